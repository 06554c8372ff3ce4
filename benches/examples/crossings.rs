//! Runs crossings and nothing else, for tools that count instructions:
//!
//! ```text
//! crossings turn|crossing|effect CROSSINGS [MESSAGES_OF_HISTORY]
//! ```
//!
//! What two runs with different numbers of crossings differ by, divided by the difference, is
//! one crossing. See the README.

use benches::Bounce;
use flow_core::id::SessionId;
use flow_core::store::memory::MemoryStore;
use flow_core::{Durability, Engine, Error, Limits, TurnRequest};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let durability = match arguments.next().as_deref() {
        Some("turn") => Durability::Turn,
        Some("effect") => Durability::Effect,
        _ => Durability::Crossing,
    };
    let mut number = || arguments.next().and_then(|text| text.parse().ok()).unwrap_or(0);
    let (crossings, history): (u32, u32) = (number(), number());
    let limits = Limits::default().crossings(u32::MAX).edge_crossings(u32::MAX);
    let builder = Engine::builder().store(MemoryStore::new()).flow(Bounce);
    let engine = builder.limits(limits).durability(durability).build()?;
    let session = SessionId::new("s")?;
    for _ in 0..history {
        let request = TurnRequest::new(session.clone()).message("0");
        engine.turn::<Bounce>(request).await?;
    }
    let request = TurnRequest::new(session).message(crossings.to_string());
    engine.turn::<Bounce>(request).await?;
    Ok(())
}
