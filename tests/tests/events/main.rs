//! What listeners of turns are told, and in what order.

mod deliveries;
mod desk;
mod order;
mod scenarios;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flow_core::engine::{Delivery, EngineBuilder, TurnHandle};
use flow_core::event::Event;
use flow_core::model::ModelCatalog;
use flow_core::model::scripted::ScriptedModel;
use flow_core::prelude::*;
use flow_core::session::{Interrupt, Waiting};
use flow_core::store::SessionStore;
use flow_core::store::memory::MemoryStore;
use flow_core::testing::ManualClock;
use flow_core::{Engine, Limits, TurnRequest};
use serde_json::{Value, json};

use desk::Desk;

/// Something that happens to a session.
#[derive(Clone, Copy)]
enum Act {
    /// The user says something.
    Say(&'static str),
    /// The user says something that the host sends to the other flow.
    Digress(&'static str),
    /// The turn before is sent once more.
    Again,
    /// A turn without a message.
    GoOn,
    /// One of the requests that the session waits for is answered.
    Deliver(usize, fn(String) -> Delivery),
    /// Time passes, and a sweeper wakes the session.
    Wake(Duration),
    /// The user says something, and the caller gives up when a tool hangs.
    Cancel(&'static str),
    /// What failed works from now on.
    Repair,
    /// The session is put aside by its next turn.
    BeginAnew,
    /// The session was written by the version before.
    Age,
}

/// A story of a session.
struct Scenario {
    start: &'static str,
    model: fn() -> ScriptedModel,
    acts: &'static [Act],
}

/// How a caller takes part in a turn.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    /// The outcome alone; sweepers wake the session.
    Plain,
    /// The outcome, and the events afterwards.
    Awaited,
    /// The events one by one, then the outcome.
    Streamed,
}

/// What became of a turn.
struct Told {
    request: String,
    events: Vec<Event>,
    outcome: String,
    doc: String,
}

struct World {
    mode: Mode,
    store: Arc<dyn SessionStore>,
    clock: ManualClock,
    flow: Desk,
    engine: Engine,
    turns: usize,
    told: Vec<Told>,
}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

impl World {
    fn new(scenario: &Scenario, mode: Mode) -> Self {
        let flow = Desk {
            start: scenario.start,
            works: Arc::default(),
            begins_anew: Arc::default(),
            hangs: Arc::default(),
        };
        let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
        let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap());
        let builder: EngineBuilder = Engine::builder();
        let builder = builder.shared_store(store.clone()).clock(clock.clone()).flow(flow.clone());
        let builder = builder.flow(tests::other_flow::Other).flow(desk::Quick);
        let builder = builder.limits(Limits::default().edge_crossings(2).message_bytes(50));
        let models = ModelCatalog::new().model("test::model", (scenario.model)());
        let engine = builder.models(models).build().expect("the flow is well declared");
        Self { mode, store, clock, flow, engine, turns: 0, told: Vec::new() }
    }

    async fn play(mut self, acts: &[Act]) -> Vec<Told> {
        for act in acts {
            match *act {
                Act::Say(text) => {
                    self.turns += 1;
                    self.run(text.to_owned(), self.say(text), false).await;
                }
                Act::Digress(text) => {
                    self.turns += 1;
                    self.run(text.to_owned(), self.say(text).digress("other"), false).await;
                }
                Act::Again => {
                    let Act::Say(text) = acts[0] else { panic!("a first message") };
                    self.run("the same".to_owned(), self.say(text), false).await;
                }
                Act::GoOn => {
                    self.run("(nothing)".to_owned(), TurnRequest::new(session()), false).await;
                }
                Act::Deliver(place, answer) => {
                    self.turns += 1;
                    let id = self.pending().await[place].request_id.clone();
                    let delivery = answer(id).signal_id(format!("mail-{}", self.turns));
                    let shown = format!("{delivery:?}");
                    self.run(shown, TurnRequest::new(session()).deliver(delivery), false).await;
                }
                Act::Wake(pause) => {
                    self.clock.advance(pause);
                    if self.mode == Mode::Plain {
                        let report = self.engine.sweep().await.unwrap();
                        assert_eq!(report.woken, [session()], "{report:?}");
                        self.tell("(wakes)".to_owned(), Vec::new(), String::new()).await;
                    } else {
                        self.run("(wakes)".to_owned(), TurnRequest::new(session()), false).await;
                        self.told.last_mut().unwrap().outcome = String::new();
                    }
                }
                Act::Cancel(text) => {
                    self.turns += 1;
                    self.run(text.to_owned(), self.say(text), true).await;
                }
                Act::Repair => self.flow.works.store(true, Ordering::Relaxed),
                Act::BeginAnew => self.flow.begins_anew.store(true, Ordering::Relaxed),
                Act::Age => {
                    let mut doc = self.store.load(&session()).await.unwrap().unwrap();
                    doc.version = 1;
                    self.store.delete(&session()).await.unwrap();
                    self.store.create(&doc).await.unwrap();
                }
            }
        }
        self.told
    }

    fn say(&self, text: &str) -> TurnRequest {
        TurnRequest::new(session()).message(text).turn_id(format!("turn-{}", self.turns))
    }

    async fn pending(&self) -> Vec<Interrupt> {
        match self.store.load(&session()).await.unwrap().unwrap().waiting {
            Some(Waiting::Interrupts { pending }) => pending,
            other => panic!("waits for {other:?}"),
        }
    }

    async fn run(&mut self, shown: String, request: TurnRequest, cancels: bool) {
        let mut turn = self.engine.turn::<Desk>(request);
        let mut events = Vec::new();
        let hangs = self.flow.hangs.clone();
        if cancels {
            // The events before are read while the tool hangs, and the others when it is over.
            hangs.notified().await;
            turn.cancel();
        }
        let result = match self.mode {
            Mode::Plain => turn.await,
            Mode::Awaited => {
                let result = (&mut turn).await;
                read(&mut turn, &mut events).await;
                result
            }
            Mode::Streamed => {
                read(&mut turn, &mut events).await;
                turn.await
            }
        };
        let outcome = match result {
            Ok(outcome) => format!("{:?} {:?}", outcome.outcome, outcome.replies),
            Err(error) => format!("{}: {error}", error.code()),
        };
        self.tell(shown, events, outcome).await;
    }

    async fn tell(&mut self, request: String, events: Vec<Event>, outcome: String) {
        let doc = self.store.load(&session()).await.unwrap();
        let doc = serde_json::to_string_pretty(&doc).unwrap();
        self.told.push(Told { request, events, outcome, doc });
    }
}

async fn read(turn: &mut TurnHandle, events: &mut Vec<Event>) {
    while let Some(event) = turn.next_event().await {
        events.push(event);
    }
}

/// The events without what is another one in each run: ids that nobody has given to a turn.
fn shown(events: &[Event]) -> Vec<Value> {
    let shown = |event: &Event| {
        let mut value = serde_json::to_value(event).unwrap();
        if let Event::TurnStart { turn, .. } = event
            && !turn.starts_with("turn-")
            && !turn.starts_with("signal:")
        {
            value["turn"] = "(random)".into();
        }
        value
    };
    events.iter().map(shown).collect()
}

/// Plays a scenario for each kind of caller, and checks that all are told the same, in the
/// documented order, and leave the same documents. Returns what a listener is told.
async fn play(scenario: Scenario) -> (Vec<Told>, Value) {
    let plain = World::new(&scenario, Mode::Plain).play(scenario.acts).await;
    let awaited = World::new(&scenario, Mode::Awaited).play(scenario.acts).await;
    let streamed = World::new(&scenario, Mode::Streamed).play(scenario.acts).await;
    assert_eq!((plain.len(), awaited.len()), (streamed.len(), streamed.len()));
    let mut turns = Vec::new();
    for (turn, told) in streamed.iter().enumerate() {
        let at = format!("turn {turn}: {}", told.request);
        order::check(&told.events).unwrap_or_else(|error| panic!("{at}: {error}\n{told:#?}"));
        assert_eq!(shown(&awaited[turn].events), shown(&told.events), "{at}");
        for other in [&plain[turn], &awaited[turn]] {
            assert_eq!((&other.request, &other.outcome), (&told.request, &told.outcome), "{at}");
            assert_eq!(other.doc, told.doc, "{at}");
        }
        turns.push(json!({ "request": told.request, "events": shown(&told.events) }));
    }
    (streamed, turns.into())
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.events.iter().map(Event::name)).finish()
    }
}
