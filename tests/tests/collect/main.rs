//! Forms and confirmations in conversation: what is asked, what is taken from an answer, and
//! when it is done.

mod answers;
mod confirm;
mod limits;
mod questions;
mod trip;

use flow_core::engine::EngineBuilder;
use flow_core::event::Event;
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::{Engine, TurnOutcome, TurnRequest};
use serde_json::Value;

/// A conversation with a flow.
struct Chat<F> {
    engine: Engine,
    /// What the last turn told its listener.
    events: Vec<Event>,
    flow: std::marker::PhantomData<F>,
}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

impl<F: Flow> Chat<F> {
    fn with(flow: F) -> Self {
        Self::on(Engine::builder().store(MemoryStore::new()), flow)
    }

    fn on(builder: EngineBuilder, flow: F) -> Self {
        let engine = builder.flow(flow).build().unwrap();
        Self { engine, events: Vec::new(), flow: std::marker::PhantomData }
    }

    async fn turn(&mut self, request: TurnRequest) -> TurnOutcome {
        let mut turn = self.engine.turn::<F>(request);
        self.events.clear();
        while let Some(event) = turn.next_event().await {
            self.events.push(event);
        }
        turn.await.unwrap()
    }

    /// A turn in which the user says nothing.
    async fn start(&mut self) -> TurnOutcome {
        self.turn(TurnRequest::new(session())).await
    }

    /// A turn, and what the user is told.
    async fn say(&mut self, text: &str) -> Vec<String> {
        self.turn(TurnRequest::new(session()).message(text)).await.replies
    }

    /// The fields of a step as they persist.
    async fn fields(&self, step: &str) -> Value {
        let doc = self.engine.session(session()).load().await.unwrap();
        doc.steps.get(step).cloned().unwrap_or_default()
    }

    async fn state(&self) -> Value {
        self.engine.session(session()).load().await.unwrap().state
    }

    /// The `collect-update` events of the last turn, as listeners read them.
    fn updates(&self) -> Vec<Value> {
        let updates = self.events.iter().filter(|event| event.name() == "collect-update");
        updates.map(|event| serde_json::to_value(event).unwrap()).collect()
    }
}
