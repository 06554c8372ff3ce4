//! A process of its own for tests that kill, stop or race processes.
//!
//! ```text
//! worker STORE SESSION MODE [JOURNAL] [KILL_AT]
//! ```
//!
//! In mode `once` it runs one turn with the message of its standard input's first line and
//! prints how that ended. With KILL_AT it kills itself with SIGKILL at that call of the store:
//! `3-` right before the third call, `3+` right after it. In mode `serve` it runs a turn for
//! each line, one after the other, and prints `holding` when a step waits for the next line.

#![allow(clippy::print_stdout, reason = "the parent process reads it")]

use std::io::BufRead as _;
use std::time::Duration;

use flow_core::event::Event;
use flow_core::id::SessionId;
use flow_core::{Engine, TurnRequest};
use tests::failing_store::{FailingStore, Fault};
use tests::route_flow::Route;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut arg = |name: &str| args.next().ok_or_else(|| format!("{name} is missing"));
    let (address, session, mode) = (arg("STORE")?, arg("SESSION")?, arg("MODE")?);
    let session = SessionId::new(session)?;
    let journal = args.next().filter(|path| path != "-").map(Into::into);
    let kill_at = args.next();

    let store = FailingStore::shared(flow_core::store::open(&address).await?);
    if let Some(at) = kill_at {
        let call: usize = at.trim_end_matches(['+', '-']).parse()?;
        let fault = if at.ends_with('+') { Fault::KillAfter } else { Fault::KillBefore };
        store.arm(call - 1, fault);
    }
    // A commit needs the fencing token, not time: with a short lease nobody has to wait for
    // a process that was killed. Tests that stop a process give it more.
    let lease = std::env::var("LEASE_MILLIS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let engine = Engine::builder()
        .store(store)
        .flow(Route { journal, ..Route::default() })
        .lease(Duration::from_millis(lease))
        .build()?;

    loop {
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut request = TurnRequest::new(session.clone());
        if !line.trim().is_empty() {
            request = request.message(line.trim());
        }
        let mut turn = engine.turn::<Route>(request);
        while let Some(event) = turn.next_event().await {
            if matches!(&event, Event::Custom { name, .. } if name == "holding") {
                println!("holding");
            }
        }
        match turn.await {
            Ok(outcome) => println!("done {} {}", outcome.revision, outcome.step),
            Err(error) => println!("error {}", error.code()),
        }
        if mode == "once" {
            return Ok(());
        }
    }
}
