//! The order of hooks, by a recorded trace.

use flow_core::TurnRequest;
use flow_core::error::{BuildError, Error};
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use tests::route_flow::Route;

use super::{Setup, names, say, session, setup, setup_with};

#[tokio::test]
async fn a_new_session() {
    let Setup { engine, log, .. } = setup();
    engine.turn::<Route>(TurnRequest::new(session())).await.unwrap();
    assert_eq!(
        log.take(),
        ["init", "define_steps", "define_tools", "run", "A.on_start", "A.on_enter", "A.run"]
    );
}

#[tokio::test]
async fn a_restored_session() {
    let setup = setup();
    setup.turn(".").await.unwrap();
    setup.log.take();
    setup.turn(".").await.unwrap();
    assert_eq!(
        setup.log.take(),
        [
            "init",
            "define_steps",
            "on_restore_session_doc",
            "define_tools",
            "run",
            "A.on_restore",
            "A.run"
        ]
    );
}

#[tokio::test]
async fn going_to_another_step() {
    let setup = setup();
    setup.turn(".").await.unwrap();
    setup.log.take();
    let (events, _) = setup.events(say("b")).await;
    assert_eq!(
        setup.log.take()[5..],
        [
            "A.on_restore",
            "A.run",
            "A.verify",
            "A.on_exit",
            "B.on_enter",
            "B.on_crossing from A",
            "B.run"
        ]
    );
    assert_eq!(
        names(&events),
        [
            "turn-start",
            "session-restored",
            "step-exit",
            "flow-transition",
            "step-enter",
            "turn-end"
        ]
    );
}

#[tokio::test]
async fn going_to_the_same_step_is_a_real_entry_and_staying_is_not() {
    let setup = setup();
    setup.turn("a").await.unwrap();
    assert_eq!(
        setup.log.take()[4..],
        [
            "A.on_start",
            "A.on_enter",
            "A.run",
            "A.verify",
            "A.on_exit",
            "A.on_enter",
            "A.on_crossing from A",
            "A.run"
        ]
    );
    setup.turn(".").await.unwrap();
    assert_eq!(setup.log.take()[5..], ["A.on_restore", "A.run"]);
    let doc = setup.engine.session(session()).load().await.unwrap();
    assert_eq!(doc.steps["A"]["entered"], 2);
    assert_eq!(doc.visit.number, 2);
}

#[tokio::test]
async fn the_end() {
    let setup = setup();
    let (events, outcome) = setup.events(say("end")).await;
    assert!(outcome.unwrap().is_ended());
    assert_eq!(setup.log.take()[6..], ["A.run", "A.verify", "A.on_exit"]);
    assert_eq!(
        names(&events),
        [
            "turn-start",
            "session-created",
            "flow-enter",
            "step-enter",
            "step-exit",
            "flow-end",
            "turn-end"
        ]
    );
}

#[tokio::test]
async fn an_error_that_the_flow_does_not_handle() {
    let setup = setup();
    let (events, outcome) = setup.events(say("fail")).await;
    assert_eq!(outcome.unwrap_err().code(), "step-failed");
    assert_eq!(setup.log.take()[6..], ["A.run", "on_error: the step fails as told"]);
    assert_eq!(names(&events)[3..], ["step-enter", "error", "turn-end"]);
}

#[tokio::test]
async fn an_error_that_the_flow_turns_into_a_transition() {
    let setup = setup_with(Route { recover: true, ..Route::default() }, |builder| builder);
    let outcome = setup.turn("fail").await.unwrap();
    assert_eq!(outcome.step, "C");
    assert_eq!(
        setup.log.take()[6..],
        [
            "A.run",
            "on_error: the step fails as told",
            "A.on_exit",
            "C.on_enter",
            "C.on_crossing from A",
            "C.run"
        ]
    );
}

#[tokio::test]
async fn a_step_that_cannot_be_taken_up_again_is_an_error_that_the_flow_may_handle() {
    let setup = setup_with(Route { recover: true, ..Route::default() }, |builder| builder);
    setup.turn("b").await.unwrap();
    let outcome = setup.turn("fail restore").await.unwrap();
    assert_eq!(outcome.step, "C");
}

#[tokio::test]
async fn a_gate_that_holds_keeps_the_position_and_tells_why() {
    let setup = setup();
    let outcome = setup.engine.turn::<Route>(say("say b").context("hold", true)).await.unwrap();
    assert_eq!(outcome.step, "A");
    // What the step wanted to say with the transition is not said.
    assert_eq!(outcome.replies, ["not yet"]);
}

#[tokio::test]
async fn init_that_fails_touches_no_session() {
    let setup = setup();
    let error = setup.turn("fail init").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "flow `route`, session `s`: the hook `init` failed: init fails as told"
    );
    assert!(setup.store.take_names().is_empty());
}

/// A flow that overrides nothing.
#[flow(id = "plain", steps(Only))]
#[derive(Clone)]
struct Plain;

impl Flow for Plain {}

#[step(reply, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Only;

impl Reply for Only {
    type Flow = Plain;

    fn response(&self, cx: &StepCx<'_, Plain>) -> Option<String> {
        Some(format!("you said {:?}", cx.last_message()))
    }
}

#[tokio::test]
async fn nothing_overridden() {
    let engine =
        flow_core::Engine::builder().store(MemoryStore::new()).flow(Plain).build().unwrap();
    let outcome = engine.turn::<Plain>(say("hi")).await.unwrap();
    assert_eq!(outcome.replies, ["you said Some(\"hi\")"]);
    assert_eq!(outcome.step, "Only");
}

#[tokio::test]
async fn nothing_registered() {
    let engine = flow_core::Engine::builder().store(MemoryStore::new()).build().unwrap();
    let error = engine.turn::<Plain>(say("hi")).await.unwrap_err();
    assert_eq!(error.code(), "unknown-flow");
    let error = flow_core::Engine::builder().flow(Plain).build().unwrap_err();
    assert!(matches!(error, Error::Build(BuildError::NoStore)));
}
