//! Requests, signals, choices, and what answers are taken.

use flow_core::engine::Delivery;
use flow_core::session::{EffectKind, Status};
use flow_core::{Error, TurnOutcome, TurnRequest};
use serde_json::json;

use super::{DURABILITIES, Durability, Script, session, setup, setup_with};

async fn deliver(setup: &super::Setup, delivery: Delivery) -> Result<TurnOutcome, Error> {
    setup.engine.deliver(session(), delivery).await
}

#[tokio::test]
async fn a_denial_is_a_value_for_who_asks_for_it() {
    let setup = setup(Durability::Crossing);
    setup.say("ask charge:1").await.unwrap();
    let no = Delivery::deny(setup.request().await.request_id).by("eve");
    assert_eq!(deliver(&setup, no).await.unwrap().replies, ["approved: false", "receipt for 1"]);
}

#[tokio::test]
async fn a_denial_ends_the_run_and_goes_where_the_step_says() {
    let flow = Script { handles_denial: true, ..Script::default() };
    let setup = setup_with(Durability::Crossing, flow);
    setup.say("approve charge:1").await.unwrap();
    let no = Delivery::deny(setup.request().await.request_id).by("eve").reason("too much");
    let outcome = deliver(&setup, no).await.unwrap();
    assert_eq!(outcome.replies, ["denied by eve: too much"]);
    assert!(outcome.is_ended());
    assert!(setup.done().is_empty(), "nothing was charged");
}

#[tokio::test]
async fn a_denial_that_nobody_handles_fails_the_turn_and_the_session_stays_usable() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        setup.say("charge:1 approve charge:2").await.unwrap();
        let no = Delivery::deny(setup.request().await.request_id);
        let error = deliver(&setup, no).await.unwrap_err();
        assert!(error.retryable(), "{error}");
        assert!(error.to_string().contains("denied"), "{error}");
        assert_eq!(setup.doc().await.status, Status::Failed);
        // The next turn asks anew, and does not charge again.
        let outcome = setup.go_on().await.unwrap();
        let [interrupt] = outcome.interrupts() else { panic!("{outcome:?}") };
        let yes = Delivery::approve(&interrupt.request_id);
        deliver(&setup, yes).await.unwrap();
        let done = setup.done();
        assert_eq!(done.len(), 2, "{durability:?}: {done:?}");
    }
}

#[tokio::test]
async fn a_delivery_with_an_id_is_made_once() {
    let setup = setup(Durability::Crossing);
    setup.say("ask charge:1 ask").await.unwrap();
    let yes = Delivery::approve(setup.request().await.request_id).signal_id("mail-1");
    let first = deliver(&setup, yes.clone()).await.unwrap();
    let revision = setup.doc().await.revision;
    let second = deliver(&setup, yes).await.unwrap();
    assert!(second.repeated && !first.repeated);
    assert_eq!(first.replies, second.replies);
    assert_eq!(setup.doc().await.revision, revision, "nothing was written");
    assert_eq!(setup.done().len(), 1);
}

#[tokio::test]
async fn what_nobody_waits_for_is_refused_and_changes_nothing() {
    let setup = setup(Durability::Crossing);
    setup.say("ask").await.unwrap();
    let request = setup.request().await.request_id;
    let before = setup.doc().await;
    for delivery in [
        Delivery::approve("1-9-0"),
        Delivery::signal("paid", json!({ "cents": 1 })),
        Delivery::payload(&request, json!("approved")),
    ] {
        let error = deliver(&setup, delivery).await.unwrap_err();
        assert!(["not-waiting", "answer-rejected"].contains(&error.code()), "{error}");
        let after = setup.doc().await;
        assert_eq!((after.revision, &after.waiting), (before.revision, &before.waiting));
        assert_eq!(after.status, Status::Waiting);
    }
    let error = deliver(&setup, Delivery::approve("1-9-0")).await.unwrap_err().to_string();
    assert!(error.contains("may I?") && error.contains(&request), "{error}");
}

#[tokio::test]
async fn a_payload_has_to_fit_the_type_that_is_waited_for() {
    let setup = setup(Durability::Crossing);
    setup.say("signal choose").await.unwrap();
    let interrupt = setup.request().await;
    assert_eq!(interrupt.kind, EffectKind::Signal);
    assert_eq!(
        interrupt.response_schema.as_ref().unwrap()["properties"]["cents"]["type"],
        "integer"
    );
    for wrong in [json!({ "cents": "many" }), json!(null), json!({ "cents": -1 })] {
        let error = deliver(&setup, Delivery::signal("paid", wrong)).await.unwrap_err();
        assert_eq!(error.code(), "answer-rejected", "{error}");
    }
    let outcome = deliver(&setup, Delivery::signal("paid", json!({ "cents": 12 }))).await.unwrap();
    assert_eq!(outcome.replies, ["paid 12"]);
    let choice = setup.request().await;
    assert_eq!(choice.allowed, ["red", "blue"]);
    let wrong = Delivery::payload(&choice.request_id, "green");
    let error = deliver(&setup, wrong).await.unwrap_err().to_string();
    assert!(error.contains("red, blue"), "{error}");
    let outcome = deliver(&setup, Delivery::payload(&choice.request_id, "blue")).await.unwrap();
    assert_eq!(outcome.replies, ["blue"]);
}

#[tokio::test]
async fn a_message_while_a_step_waits_is_answered_and_kept_and_moves_nothing() {
    let setup = setup(Durability::Crossing);
    setup.say("note:a ask charge:1").await.unwrap();
    let before = setup.pending().await;
    let outcome = setup.say("hello? charge:9").await.unwrap();
    assert_eq!(outcome.replies, ["I am still waiting: may I?."]);
    assert_eq!(outcome.interrupts(), before);
    assert!(setup.done().is_empty());
    let said = setup.said().await;
    assert_eq!(said[2..], ["hello? charge:9", "I am still waiting: may I?."]);
    // The answer runs the step with the message that it had.
    let yes = Delivery::approve(&before[0].request_id);
    assert_eq!(deliver(&setup, yes).await.unwrap().replies, ["approved: true", "receipt for 1"]);
    // A turn without a message while it waits tells what it waits for.
    setup.say("ask").await.unwrap();
    let outcome = setup.go_on().await.unwrap();
    assert!(outcome.replies.is_empty());
    assert_eq!(outcome.interrupts().len(), 1);
}

#[tokio::test]
async fn a_signal_id_has_a_size_and_no_turn_takes_its_form() {
    let setup = setup(Durability::Crossing);
    setup.say("ask").await.unwrap();
    let request = setup.request().await.request_id;
    for (id, good) in [(String::new(), false), ("x".repeat(121), false), ("x".repeat(120), true)] {
        let delivered = deliver(&setup, Delivery::approve(&request).signal_id(id.clone())).await;
        match delivered {
            Ok(_) => assert!(good, "{id}"),
            Err(error) => assert_eq!((error.code(), good), ("invalid-id", false), "{error}"),
        }
    }
    let turn = TurnRequest::new(session()).message("hi").turn_id("signal:mail-1");
    let error = setup.engine.turn::<Script>(turn).await.unwrap_err();
    assert_eq!(error.code(), "invalid-id", "{error}");
}

#[test]
fn only_a_clear_yes_approves() {
    for word in ["yes", " YES ", "approved", "approve", "y"] {
        assert_eq!(Delivery::decide("r", word), Delivery::approve("r"), "{word}");
    }
    for word in ["", "no", "ok?", "yes, but", "sure", "approv", "nein"] {
        assert_eq!(Delivery::decide("r", word), Delivery::deny("r"), "{word}");
    }
}
