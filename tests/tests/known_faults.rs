//! Faults that engines of this kind are known for, each with a test that it is not here.
//! Those of forms are in `collect`, those of leases and loops in `engine`, those of crashes
//! in `processes`.

use std::sync::Arc;
use std::time::Duration;

use flow_core::error::{Error, SessionError};
use flow_core::event::Event;
use flow_core::prelude::*;
use flow_core::session::Status;
use flow_core::store::memory::MemoryStore;
use flow_core::store::{OpenRequest, SessionStore};
use flow_core::{Durability, Engine, TurnOutcome, TurnRequest};
use tests::route_flow::{Log, Route};

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

fn say(text: &str) -> TurnRequest {
    TurnRequest::new(session()).message(text)
}

/// An engine with the route flow, and what the flow does.
fn route(durability: Durability) -> (Engine, Log) {
    let flow = Route::default();
    let log = flow.log.clone();
    let builder = Engine::builder().store(MemoryStore::new()).durability(durability);
    (builder.flow(flow).build().unwrap(), log)
}

fn touches(log: &Log) -> Vec<String> {
    log.take().into_iter().filter(|entry| entry.starts_with("touch")).collect()
}

async fn events(engine: &Engine, request: TurnRequest) -> (Vec<Event>, TurnOutcome) {
    let mut turn = engine.turn_of("route", request);
    let mut events = Vec::new();
    while let Some(event) = turn.next_event().await {
        events.push(event);
    }
    (events, turn.await.unwrap())
}

#[tokio::test]
async fn the_same_call_in_a_later_turn_is_another_call() {
    for durability in [Durability::Turn, Durability::Crossing, Durability::Effect] {
        let (engine, log) = route(durability);
        // The step stays, so that all turns are of one visit.
        for text in ["tool tool .", "tool .", "tool ."] {
            engine.turn::<Route>(say(text)).await.unwrap();
        }
        assert_eq!(
            touches(&log),
            [0, 1, 2, 3].map(|n| format!("touch s:1:{n}:touch:44136fa355b3 repeated=false")),
            "{durability:?}"
        );
        let doc = engine.session(session()).load().await.unwrap();
        assert!(doc.effects.is_empty(), "calls that are done leave nothing behind");
        // What a turn that failed has done is not done again.
        engine.turn::<Route>(say("tool fail")).await.unwrap_err();
        engine.turn::<Route>(say("tool .")).await.unwrap();
        let key = "touch s:1:4:touch:44136fa355b3 repeated=false";
        assert_eq!(touches(&log), [key], "{durability:?}");
    }
}

#[tokio::test]
async fn a_retried_turn_does_not_run_its_tools_again() {
    let (engine, log) = route(Durability::Crossing);
    let request = || say("tool say b").turn_id("one");
    let first = engine.turn::<Route>(request()).await.unwrap();
    let (events, again) = events(&engine, request()).await;
    assert_eq!(touches(&log).len(), 1);
    assert_eq!((again.replies, again.outcome), (first.replies, first.outcome));
    assert!(!events.iter().any(|event| event.name() == "tool-call"), "{events:?}");
}

#[tokio::test]
async fn a_tool_call_is_told_once_with_one_result() {
    let (engine, _) = route(Durability::Effect);
    let (events, _) = events(&engine, say("tool b tool .")).await;
    let told: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::ToolCall { id, .. } => Some(format!("call {id}")),
            Event::ToolResult { id, .. } => Some(format!("result {id}")),
            _ => None,
        })
        .collect();
    assert_eq!(
        told,
        [
            "call s:1:0:touch:44136fa355b3",
            "result s:1:0:touch:44136fa355b3",
            "call s:2:0:touch:44136fa355b3",
            "result s:2:0:touch:44136fa355b3"
        ]
    );
}

#[tokio::test]
async fn a_conflict_is_found_before_anything_runs() {
    let store = Arc::new(MemoryStore::new());
    let flow = Route::default();
    let log = flow.log.clone();
    let engine = Engine::builder().shared_store(store.clone()).flow(flow).build().unwrap();
    engine.turn::<Route>(say(".")).await.unwrap();
    let other = OpenRequest {
        id: &session(),
        flow: "route",
        version: 1,
        holder: "another",
        ttl: Duration::from_secs(60),
    };
    store.open(&other).await.unwrap();
    log.take();
    let error = engine.turn::<Route>(say("tool b")).await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("session-busy", 409));
    let ran = log.take();
    assert!(!ran.iter().any(|entry| entry.ends_with(".run") || entry == "run"), "{ran:?}");
}

#[tokio::test]
async fn a_finished_run_is_finished_and_an_earlier_failure_does_not_taint_it() {
    for (way, status) in
        [("end", Status::Completed), ("handoff", Status::Waiting), ("escalate", Status::Waiting)]
    {
        let (engine, _) = route(Durability::Crossing);
        engine.turn::<Route>(say(".")).await.unwrap();
        engine.turn::<Route>(say("b fail")).await.unwrap_err();
        let doc = engine.session(session()).load().await.unwrap();
        assert_eq!((doc.status, doc.error.is_some()), (Status::Failed, true));
        engine.turn::<Route>(say(way)).await.unwrap();
        let doc = engine.session(session()).load().await.unwrap();
        assert_eq!((doc.status, doc.error, doc.lease.holder), (status, None, None), "{way}");
    }
}

/// The route flow as a later program has it: without the step `B`.
mod redefined {
    use flow_core::prelude::*;

    #[flow(id = "route", version = 1, steps(A, C), state = Way)]
    #[derive(Clone)]
    pub(crate) struct Shorter;

    impl Flow for Shorter {}

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct Way {
        rest: Vec<String>,
        ran: u32,
    }

    macro_rules! reply {
        ($name:ident) => {
            #[step(reply, next(stay))]
            #[derive(Default, Serialize, Deserialize, JsonSchema)]
            pub(crate) struct $name {
                entered: u32,
            }

            impl Reply for $name {
                type Flow = Shorter;

                fn response(&self, _: &StepCx<'_, Shorter>) -> Option<String> {
                    Some(format!("{} was entered {} time(s)", stringify!($name), self.entered))
                }
            }
        };
    }

    reply!(A);
    reply!(C);
}

#[tokio::test]
async fn a_flow_that_was_redefined_is_noticed_and_no_parked_session_changes_its_place() {
    let store = Arc::new(MemoryStore::new());
    let builder = || Engine::builder().shared_store(store.clone());
    let old = builder().flow(Route::default()).build().unwrap();
    let new = builder().flow(redefined::Shorter).build().unwrap();

    old.turn::<Route>(say("c .")).await.unwrap();
    let before = old.session(session()).load().await.unwrap();
    let outcome = new.turn::<redefined::Shorter>(say("hello")).await.unwrap();
    assert_eq!(outcome.replies, ["C was entered 1 time(s)"]);
    let after = new.session(session()).load().await.unwrap();
    assert_ne!(after.flow.digest, before.flow.digest, "the document tells which graph it ran");

    let parked = SessionId::new("parked").unwrap();
    let request = || TurnRequest::new(parked.clone()).message("b .");
    old.turn::<Route>(request()).await.unwrap();
    let before = old.session(parked.clone()).load().await.unwrap();
    let error = new.turn::<redefined::Shorter>(request()).await.unwrap_err();
    let Error::Session(SessionError::UnknownStep { step, known, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!((step.as_str(), known.as_str()), ("B", "A, C"));
    let mut after = new.session(parked).load().await.unwrap();
    after.lease = before.lease.clone();
    assert_eq!(after, before);
}

/// Leaves notes, and answers with those that it finds.
#[flow(id = "notes", version = 1, steps(Writer, Reader))]
#[derive(Clone)]
struct Notes;

impl Flow for Notes {}

#[step(action, next(Reader, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Writer;

impl Action for Writer {
    type Flow = Notes;

    async fn run(&mut self, cx: &mut ActionCx<'_, Notes>) -> Result<WriterNext> {
        let known = cx.notes().len();
        cx.note(format!("note after {known} notes"));
        Ok(if cx.take_message().is_some() { WriterNext::Reader } else { WriterNext::Stay })
    }
}

#[step(reply, next(Writer, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Reader;

impl Reply for Reader {
    type Flow = Notes;

    fn response(&self, cx: &StepCx<'_, Notes>) -> Option<String> {
        Some(format!("I know: {}", cx.notes().join(", ")))
    }

    async fn on_response(
        &mut self,
        _: &str,
        cx: &mut StepCx<'_, Notes>,
    ) -> Result<Option<ReaderNext>> {
        let back = cx.last_message() == Some("back");
        Ok(back.then_some(ReaderNext::Writer))
    }
}

#[tokio::test]
async fn notes_of_a_turn_end_with_it_and_nobody_is_told() {
    let engine = Engine::builder().store(MemoryStore::new()).flow(Notes).build().unwrap();
    let outcome = engine.turn::<Notes>(say("go")).await.unwrap();
    assert_eq!(outcome.replies, ["I know: note after 0 notes"]);
    // The notes of the turn before are gone.
    let outcome = engine.turn::<Notes>(say("back")).await.unwrap();
    assert_eq!(outcome.replies, ["I know: "]);
    let transcript = engine.session(session()).transcript().await.unwrap();
    let document = serde_json::to_string(&transcript.doc).unwrap();
    assert!(!document.contains("\"note after"), "{document}");
}

#[tokio::test]
async fn an_authored_reply_is_said_once_whatever_waits() {
    let engine = Engine::builder().store(MemoryStore::new()).flow(Notes).build().unwrap();
    for (text, replies) in [("go", 1), ("again", 1), ("once more", 1)] {
        let mut turn = engine.turn::<Notes>(say(text));
        let mut said = 0;
        while let Some(event) = turn.next_event().await {
            said += usize::from(event.name() == "message");
        }
        assert_eq!((said, turn.await.unwrap().replies.len()), (replies, replies), "{text}");
    }
    let transcript = engine.session(session()).transcript().await.unwrap();
    assert_eq!(transcript.messages().len(), 6, "three of each");
}
