//! What the next turn finds after one that was interrupted or failed: payloads, words that no
//! step has read, idempotency keys, the hooks of a new session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flow_core::engine::Durability;
use flow_core::prelude::*;
use flow_core::session::Status;
use flow_core::store::memory::MemoryStore;
use flow_core::{Engine, Limits, TurnRequest};
use tests::recording_store::RecordingStore;
use tests::route_flow::{Log, Route};

use super::{say, session, setup, setup_with};

const DURABILITIES: [Durability; 3] = [Durability::Crossing, Durability::Turn, Durability::Effect];

/// Keys that the tool was called with.
fn keys(log: &Log) -> Vec<String> {
    log.take().into_iter().filter(|entry| entry.starts_with("touch")).collect()
}

#[tokio::test]
async fn a_new_session_whose_first_step_fails_after_a_tool_call_goes_on() {
    for durability in DURABILITIES {
        let setup = setup_with(Route::default(), |b| b.durability(durability));
        setup.turn("tool fail").await.unwrap_err();
        setup.log.take();
        let outcome = setup.turn("tool b").await.unwrap();
        assert_eq!(outcome.step, "B", "{durability:?}");
        let log = setup.log.take();
        let begins = ["A.on_start", "A.on_restore"][usize::from(durability == Durability::Effect)];
        assert!(log.contains(&begins.to_owned()), "{durability:?}: {log:?}");
        let doc = setup.engine.session(session()).load().await.unwrap();
        assert_eq!(doc.steps["A"]["entered"], 1, "{durability:?}");
    }
}

#[tokio::test]
async fn the_tool_calls_of_a_later_turn_have_keys_of_their_own() {
    for durability in DURABILITIES {
        let setup = setup_with(Route::default(), |b| b.durability(durability));
        setup.turn("tool tool .").await.unwrap();
        setup.turn("tool .").await.unwrap();
        let expected =
            [0, 1, 2].map(|n| format!("touch s:1:{n}:touch:44136fa355b3 repeated=false"));
        assert_eq!(keys(&setup.log), expected, "{durability:?}");
        let doc = setup.engine.session(session()).load().await.unwrap();
        assert!(doc.effects.is_empty(), "calls of runs that are over are not kept");
    }
}

#[tokio::test]
async fn a_run_that_failed_does_not_repeat_its_calls_even_when_the_flow_goes_on() {
    let relay = Relay { stays: true, ..Relay::default() };
    let (engine, _) = relay_engine(&relay, Durability::Crossing);
    relay.fails.store(true, Ordering::Relaxed);
    engine.turn::<Relay>(TurnRequest::new(session()).message("call")).await.unwrap();
    engine.turn::<Relay>(TurnRequest::new(session()).message("call")).await.unwrap();
    assert_eq!(relay.log.take(), ["call s:1:0:call:44136fa355b3"], "it is not made again");
}

#[tokio::test]
async fn the_payload_is_kept_for_a_step_that_could_not_be_entered() {
    for durability in DURABILITIES {
        for stays in [false, true] {
            let relay = Relay { stays, ..Relay::default() };
            let (engine, _) = relay_engine(&relay, durability);
            let turn = |text: &str| {
                engine.turn::<Relay>(TurnRequest::new(session()).message(text.to_owned()))
            };
            turn("wait").await.unwrap();
            relay.fails.store(true, Ordering::Relaxed);
            assert_eq!(turn("pass").await.is_ok(), stays);
            relay.fails.store(false, Ordering::Relaxed);
            assert_eq!(turn("pass").await.unwrap().step, "Second", "{durability:?}, {stays}");
            assert_eq!(relay.log.take().last().unwrap(), "second: 7", "{durability:?}, {stays}");
        }
    }
}

#[tokio::test]
async fn words_that_no_step_has_read_wait_for_the_step_that_was_interrupted() {
    let relay = Relay::default();
    let (engine, _) = relay_engine(&relay, Durability::Crossing);
    relay.fails.store(true, Ordering::Relaxed);
    engine.turn::<Relay>(TurnRequest::new(session()).message("pass")).await.unwrap_err();
    relay.fails.store(false, Ordering::Relaxed);
    engine.turn::<Relay>(TurnRequest::new(session())).await.unwrap();
    assert_eq!(relay.log.take(), ["second read `pass`", "second: 7"]);
    engine.turn::<Relay>(TurnRequest::new(session())).await.unwrap();
    assert_eq!(relay.log.take(), ["second: 7"], "they are read once");
}

#[tokio::test]
async fn a_turn_that_is_sent_again_after_a_crossing_says_nothing_twice() {
    let relay = Relay::default();
    let (engine, _) = relay_engine(&relay, Durability::Crossing);
    let turn = |id: &str| {
        engine.turn::<Relay>(TurnRequest::new(session()).message("read pass").turn_id(id))
    };
    relay.fails.store(true, Ordering::Relaxed);
    turn("m-1").await.unwrap_err();
    relay.fails.store(false, Ordering::Relaxed);
    assert!(!turn("m-1").await.unwrap().repeated);
    assert_eq!(relay.log.take(), ["second: 7"], "the first step has read the message");
    let transcript = engine.session(session()).transcript().await.unwrap();
    assert_eq!(transcript.messages().len(), 1);
    assert!(turn("m-1").await.unwrap().repeated);
}

#[tokio::test]
async fn a_turn_of_before_is_not_run_again_in_a_session_that_started_anew() {
    let setup = setup_with(Route { again: true, ..Route::default() }, |b| b);
    let turn = |text: &str, id: &str| setup.engine.turn::<Route>(say(text).turn_id(id));
    turn("b end", "m-1").await.unwrap();
    turn("c .", "m-2").await.unwrap();
    assert!(turn("b end", "m-1").await.unwrap().repeated);
}

#[tokio::test]
async fn a_session_that_has_ended_is_still_completed_when_a_new_start_fails() {
    let setup = setup_with(Route { again: true, ..Route::default() }, |b| b);
    setup.turn("b end").await.unwrap();
    setup.turn("fail").await.unwrap_err();
    let doc = setup.engine.session(session()).load().await.unwrap();
    assert_eq!(doc.status, Status::Completed);
    assert_eq!(doc.error.unwrap().code, "step-failed");
}

#[tokio::test]
async fn a_turn_whose_session_is_deleted_says_so() {
    let setup = setup_with(Route::default(), |b| b.lease(std::time::Duration::ZERO));
    setup.turn(".").await.unwrap();
    let mut turn = setup.engine.turn::<Route>(say("hang"));
    turn.next_event().await;
    setup.engine.session(session()).delete().await.unwrap();
    assert_eq!(turn.await.unwrap_err().code(), "session-not-found");
}

#[tokio::test]
async fn the_crossing_budget_counts_crossings() {
    let limits = Limits::default().crossings(2);
    let setup = setup_with(Route::default(), |b| b.limits(limits));
    assert_eq!(setup.turn("b c .").await.unwrap().step, "C");
    assert_eq!(setup.turn("a b c").await.unwrap_err().code(), "crossing-budget");
}

#[tokio::test]
async fn a_long_reason_counts_for_the_size_of_the_document() {
    let limits = flow_core::store::StoreLimits { document_bytes: 16 * 1024 };
    let relay = Relay::default();
    let store = RecordingStore::new(MemoryStore::with_limits(limits));
    let engine = Engine::builder().store(store).flow(relay).build().unwrap();
    let turn = |text: &str| engine.turn::<Relay>(TurnRequest::new(session()).message(text));
    turn("wait").await.unwrap();
    assert_eq!(turn("give up").await.unwrap_err().code(), "document-too-large");
    turn("wait").await.expect("the session is usable");
}

#[tokio::test]
async fn the_error_of_a_store_that_a_step_uses_itself_is_the_error_of_the_step() {
    let relay = Relay { stays: true, ..Relay::default() };
    let (engine, _) = relay_engine(&relay, Durability::Crossing);
    engine.turn::<Relay>(TurnRequest::new(session()).message("look")).await.unwrap();
    assert_eq!(relay.log.take(), ["on_error session-not-found"]);
    let relay = Relay::default();
    let (engine, _) = relay_engine(&relay, Durability::Crossing);
    engine.turn::<Relay>(TurnRequest::new(session()).message("wait")).await.unwrap();
    let error =
        engine.turn::<Relay>(TurnRequest::new(session()).message("look")).await.unwrap_err();
    assert!(error.to_string().contains("step `First`"), "{error}");
    let doc = engine.session(session()).load().await.unwrap();
    assert_eq!(doc.error.unwrap().code, "session-not-found");
}

#[tokio::test]
async fn a_flow_that_panics_before_its_session_is_opened_fails_the_turn() {
    let relay = Relay::default();
    let (engine, store) = relay_engine(&relay, Durability::Crossing);
    relay.panics.store(true, Ordering::Relaxed);
    let error = engine.turn::<Relay>(TurnRequest::new(session())).await.unwrap_err();
    assert_eq!(error.code(), "panicked");
    assert!(store.take().is_empty(), "nothing was opened");
}

#[tokio::test]
async fn a_long_message_of_an_error_is_cut_where_it_is_kept() {
    let setup = setup();
    setup.turn(".").await.unwrap();
    let long = flow_core::Error::from(flow_core::error::TurnError::Panicked {
        flow: "route".into(),
        session: "s".into(),
        message: "ü".repeat(100_000),
    });
    let record = flow_core::session::ErrorRecord::from(&long);
    assert!(record.message.len() < 4200 && record.message.ends_with("ü…"));
}

/// A flow of two steps: the first hands a number over, and reads a message only when told.
#[flow(id = "relay", version = 1, steps(First, Second), tools)]
#[derive(Debug, Clone, Default)]
struct Relay {
    log: Log,
    /// Whether `Second` cannot be entered, and `First` fails after its tool call.
    fails: Arc<AtomicBool>,
    /// Whether `on_error` stays.
    stays: bool,
    /// Whether `define_steps` panics.
    panics: Arc<AtomicBool>,
}

fn relay_engine(relay: &Relay, durability: Durability) -> (Engine, RecordingStore) {
    let store = RecordingStore::new(MemoryStore::new());
    let builder = Engine::builder().store(store.clone()).flow(relay.clone());
    (builder.durability(durability).build().unwrap(), store)
}

impl Flow for Relay {
    fn define_steps(&self, steps: Steps<Self>) -> Steps<Self> {
        assert!(!self.panics.load(Ordering::Relaxed), "define_steps panics as told");
        steps
    }

    async fn on_error(
        &self,
        error: &StepError,
        cx: &mut StepCx<'_, Self>,
    ) -> Result<Option<Transition>> {
        if error.code() != "step-failed" {
            cx.flow.log.push(format!("on_error {}", error.code()));
        }
        Ok(self.stays.then_some(Transition::Stay))
    }
}

#[tools(flow)]
impl Relay {
    /// Writes its key down.
    #[tool]
    async fn call(&self, cx: &ToolCx) -> Result<String> {
        self.log.push(format!("call {}", cx.idempotency_key()));
        Ok(String::new())
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    number: u8,
}

/// Hands a number over.
#[step(action, next(Second(Order), stay, escalate))]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
struct First;

impl Action for First {
    type Flow = Relay;

    async fn run(&mut self, cx: &mut ActionCx<'_, Relay>) -> Result<FirstNext> {
        let message = cx.message().unwrap_or_default().to_owned();
        match message.as_str() {
            "read pass" => {
                cx.take_message();
            }
            "call" => {
                cx.tool(Call {}).await?;
                if cx.flow.fails.load(Ordering::Relaxed) {
                    return Err(StepError::new("fails as told"));
                }
            }
            "look" => {
                let other = SessionId::new("other")?;
                let store = Engine::builder().store(MemoryStore::new()).build()?;
                store.session(other).load().await?;
            }
            "give up" => return Ok(FirstNext::Escalate("x".repeat(64 * 1024))),
            "wait" => return Ok(FirstNext::Stay),
            _ => {}
        }
        if message.ends_with("pass") {
            return Ok(FirstNext::Second(Order { number: 7 }));
        }
        Ok(FirstNext::Stay)
    }
}

/// Takes the number.
#[step(action, input = Order, next(stay))]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Second {
    number: u8,
}

impl Action for Second {
    type Flow = Relay;

    async fn on_enter(&mut self, order: Order, cx: &mut StepCx<'_, Relay>) -> Result<()> {
        if cx.flow.fails.load(Ordering::Relaxed) {
            return Err(StepError::new("cannot be entered as told"));
        }
        self.number = order.number;
        Ok(())
    }

    async fn run(&mut self, cx: &mut ActionCx<'_, Relay>) -> Result<SecondNext> {
        if let Some(message) = cx.take_message() {
            cx.flow.log.push(format!("second read `{message}`"));
        }
        let number = self.number;
        cx.flow.log.push(format!("second: {number}"));
        Ok(SecondNext::Stay)
    }
}
