//! A process that fills a store with sessions that sleep, or that sweeps it.
//!
//! ```text
//! sweeper STORE JOURNAL fill COUNT
//! sweeper STORE JOURNAL sweep
//! ```
//!
//! `sweep` prints `ready`, waits for a line, sweeps once, and prints how many sessions it has
//! woken and how many of those have failed. A session that wakes appends a line to the journal.

#![allow(clippy::print_stdout, reason = "the parent process reads it")]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use flow_core::prelude::*;
use flow_core::testing::ManualClock;
use flow_core::{Engine, TurnRequest};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

#[flow(id = "nap", steps(Nap), tools)]
#[derive(Clone)]
struct Bed {
    journal: PathBuf,
}

impl Flow for Bed {}

#[tools(flow)]
impl Bed {
    /// Writes down which session wakes.
    #[tool]
    async fn wake(&self, cx: &ToolCx) -> Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.journal)?;
        file.write_all(format!("{}\n", cx.session()).as_bytes())?;
        Ok(())
    }
}

#[step(action, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Nap;

impl Action for Nap {
    type Flow = Bed;

    async fn run(&mut self, cx: &mut ActionCx<'_, Bed>) -> Result<NapNext> {
        cx.sleep(Duration::from_secs(60)).await?;
        cx.tool(Wake {}).await?;
        Ok(NapNext::End("awake".into()))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut arg = |name: &str| args.next().ok_or_else(|| format!("{name} is missing"));
    let (address, journal, mode) = (arg("STORE")?, arg("JOURNAL")?, arg("MODE")?);
    let store = flow_core::store::open(&address).await?;
    let bed = Bed { journal: journal.into() };
    // All sessions have slept long enough when they are swept, and none before.
    let time = if mode == "fill" { "2026-03-01T12:00:00Z" } else { "2026-03-01T13:00:00Z" };
    let clock = ManualClock::at(time.parse()?);
    let engine = Engine::builder().shared_store(store).clock(clock).flow(bed).build()?;
    if mode == "fill" {
        let sessions = (0..arg("COUNT")?.parse::<u32>()?).map(|n| format!("nap-{n:04}"));
        let turns = sessions.map(|id| {
            let engine = &engine;
            async move {
                let request = TurnRequest::new(SessionId::new(id)?);
                engine.turn::<Bed>(request).await
            }
        });
        stream::iter(turns).buffer_unordered(16).try_for_each(|_| async { Ok(()) }).await?;
        return Ok(());
    }
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let report = engine.sweep().await?;
    println!("{} {}", report.woken.len(), report.failed.len());
    Ok(())
}
