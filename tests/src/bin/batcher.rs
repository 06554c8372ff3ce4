//! A process that runs a batch, for tests that kill it.
//!
//! ```text
//! batcher STORE SESSION JOURNAL [KILL_AT]
//! ```
//!
//! It runs one turn with the message of its standard input's first line, goes on with what an
//! earlier process has left of it, and prints how that ended. It waits for the lease of a process
//! that is dead. With KILL_AT it kills itself with SIGKILL at that call of the store, `300-`
//! right before the call and `300+` right after it.

#![allow(clippy::print_stdout, reason = "the parent process reads it")]

use std::time::Duration;

use flow_core::error::StoreError;
use flow_core::id::SessionId;
use flow_core::time::Timestamp;
use flow_core::{Durability, Engine, Error, TurnRequest};
use tests::batch_flow::{Done, Jobs, Spreads};
use tests::failing_store::{FailingStore, Fault};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut arg = |name: &str| args.next().ok_or_else(|| format!("{name} is missing"));
    let (address, session, journal) = (arg("STORE")?, arg("SESSION")?, arg("JOURNAL")?);
    let store = FailingStore::shared(flow_core::store::open(&address).await?);
    if let Some(at) = args.next() {
        let call: usize = at.trim_end_matches(['+', '-']).parse()?;
        let fault = if at.ends_with('+') { Fault::KillAfter } else { Fault::KillBefore };
        store.arm(call - 1, fault);
    }
    let done = Done::in_file(journal);
    let engine = Engine::builder()
        .store(store)
        .flow(Spreads { sums: true, ..Spreads::default() })
        .flow(Jobs { done, gate: None })
        .durability(Durability::Effect)
        .lease(Duration::from_millis(500))
        .build()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let mut request = TurnRequest::new(SessionId::new(session)?);
    if !line.trim().is_empty() {
        request = request.message(line.trim());
    }
    loop {
        match engine.turn::<Spreads>(request.clone()).await {
            Ok(outcome) => println!("done {}", outcome.revision),
            Err(Error::Store(StoreError::Busy { until, .. })) => {
                tokio::time::sleep(until.since(Timestamp::now())).await;
                continue;
            }
            Err(error) => println!("error {error}"),
        }
        return Ok(());
    }
}
