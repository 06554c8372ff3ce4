//! The engine: order of hooks, commits, guards, failures, cancellation, bad input.

mod commits;
mod declarations;
mod failures;
mod guards;
mod hooks;
mod input;
mod resume;
mod turns;

use flow_core::engine::EngineBuilder;
use flow_core::event::Event;
use flow_core::id::SessionId;
use flow_core::store::memory::MemoryStore;
use flow_core::{Engine, TurnOutcome, TurnRequest};
use tests::recording_store::RecordingStore;
use tests::route_flow::{Log, Route};

/// An engine with the route flow over a memory store, and what it does.
struct Setup {
    engine: Engine,
    store: RecordingStore,
    log: Log,
}

fn setup() -> Setup {
    setup_with(Route::default(), |builder| builder)
}

fn setup_with(flow: Route, change: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Setup {
    let store = RecordingStore::new(MemoryStore::new());
    let log = flow.log.clone();
    let builder = Engine::builder().store(store.clone()).flow(flow);
    let engine = change(builder).build().expect("the flow is well declared");
    log.take();
    Setup { engine, store, log }
}

fn session() -> SessionId {
    SessionId::new("s").expect("a valid id")
}

fn say(text: &str) -> TurnRequest {
    TurnRequest::new(session()).message(text)
}

impl Setup {
    async fn turn(&self, text: &str) -> Result<TurnOutcome, flow_core::Error> {
        self.engine.turn::<Route>(say(text)).await
    }

    /// Runs a turn and gives the names of its events too.
    async fn events(
        &self,
        request: TurnRequest,
    ) -> (Vec<Event>, Result<TurnOutcome, flow_core::Error>) {
        let mut turn = self.engine.turn::<Route>(request);
        let mut events = Vec::new();
        while let Some(event) = turn.next_event().await {
            events.push(event);
        }
        (events, turn.await)
    }
}

fn names(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::name).collect()
}
