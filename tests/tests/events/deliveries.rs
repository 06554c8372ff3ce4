//! Answers that nobody waits for: the error says what the session does instead.

use flow_core::Error;
use flow_core::engine::Delivery;
use flow_core::error::EffectError;

use super::Act::{Cancel, Say};
use super::{Act, Mode, Scenario, World, session};
use flow_core::model::scripted::ScriptedModel;

async fn refuse(start: &'static str, acts: &[Act], status: &str, pending: &str) {
    let scenario = Scenario { start, model: ScriptedModel::new, acts: &[] };
    let world = World::new(&scenario, Mode::Plain);
    let engine = world.engine.clone();
    world.play(acts).await;
    let before = engine.session(session()).load().await.unwrap();
    let error = engine.deliver(session(), Delivery::approve("9-9").by("ada")).await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("not-waiting", 409), "{error}");
    let Error::Effect(EffectError::NotWaiting { request, status: told, step, .. }) = &error else {
        panic!("{error:?}")
    };
    assert_eq!((&**request, *told, &**step), ("9-9", status, &*before.current_step));
    let shown = error.to_string();
    assert!(shown.starts_with(&format!("session `s` is {status} at step `{step}` ")), "{shown}");
    assert!(shown.ends_with(&format!("it waits for: {pending}")), "{shown}");
    let after = engine.session(session()).load().await.unwrap();
    assert_eq!((after.revision, after.waiting), (before.revision, before.waiting));
}

#[tokio::test]
async fn an_answer_that_nobody_waits_for_is_told_what_the_session_does() {
    refuse("Rest", &[Say("hi")], "waiting", "the user's next message").await;
    refuse("Party", &[Say("hi")], "waiting", "the user's answer to `For how many?`").await;
    let taken = "a person who has taken over (I am lost), until `engine.session(id).release()`";
    refuse("Work", &[Say("escalate")], "waiting", taken).await;
    let failed = "the user's next message";
    refuse("Work", &[Say("hello"), Cancel("hang")], "failed", failed).await;
    let running = "nothing, and goes on with its next turn";
    refuse("Work", &[Say("charge fail")], "failed", running).await;
    refuse(
        "Work",
        &[Say("choose")],
        "waiting",
        "`1-0-1a22c538200` (choice `Which colour?`), `1-1-1a22c538200` (input `What size?`)",
    )
    .await;
}

#[tokio::test]
async fn an_answer_to_a_session_that_is_over_is_told_so() {
    let scenario = Scenario { start: "Work", model: ScriptedModel::new, acts: &[] };
    let world = World::new(&scenario, Mode::Plain);
    let engine = world.engine.clone();
    let deliver = || engine.deliver(session(), Delivery::approve("1-0"));
    assert_eq!(deliver().await.unwrap_err().code(), "session-not-found");
    world.play(&[Say("end")]).await;
    let error = deliver().await.unwrap_err();
    assert_eq!(error.code(), "session-ended");
    assert!(error.to_string().contains("done"), "{error}");
}
