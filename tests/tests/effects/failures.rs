//! Actions that fail, and actions whose code is another one than that which waited.

use flow_core::TurnRequest;
use flow_core::engine::Delivery;
use flow_core::error::{EffectError, Error};
use flow_core::session::Status;

use super::{DURABILITIES, Durability, Script, session, setup};

#[tokio::test]
async fn a_turn_that_is_sent_again_makes_only_what_failed_again() {
    for durability in DURABILITIES {
        let mut setup = setup(durability);
        let error = setup.say("charge:1 insist charge:2").await.unwrap_err();
        assert_eq!(error.code(), "tool-failed", "{error}");
        assert_eq!(setup.done().len(), 2);
        setup.restart(|flow| flow.works = true);
        setup.say("charge:1 insist charge:2").await.unwrap();
        let done = setup.done();
        assert_eq!(done[0], "decline", "{durability:?}: {done:?}");
        assert!(done[1].starts_with("charge 2"), "{done:?}");
        assert_eq!(done.len(), 2);
        assert!(setup.doc().await.effects.is_empty());
    }
}

#[tokio::test]
async fn an_error_that_was_handled_is_the_same_when_the_action_goes_on() {
    for durability in DURABILITIES {
        let mut setup = setup(durability);
        let outcome = setup.say("decline ask").await.unwrap();
        let first = outcome.replies.clone();
        assert!(first[0].starts_with("tool-failed: "), "{first:?}");
        setup.restart(|flow| flow.works = true);
        let yes = Delivery::approve(setup.request().await.request_id);
        let outcome = setup.engine.deliver(session(), yes).await.unwrap();
        assert_eq!(outcome.replies, ["approved: true"]);
        assert_eq!(setup.done(), ["decline"], "{durability:?}");
        // A later run tries again.
        assert_eq!(setup.say("decline").await.unwrap().replies, ["accepted"]);
    }
}

#[tokio::test]
async fn other_words_after_a_failure_begin_another_run() {
    let setup = setup(Durability::Crossing);
    setup.say("charge:1 charge:2 fail").await.unwrap_err();
    setup.done();
    setup.say("charge:1 run charge:2").await.unwrap();
    let done = setup.done();
    assert_eq!(done[0], "run", "the first charge was made before: {done:?}");
    assert!(done[1].starts_with("charge 2 s:1:2:"), "{done:?}");
}

#[tokio::test]
async fn code_that_does_something_else_is_a_typed_error_that_names_both() {
    for durability in DURABILITIES {
        for (other, found) in [
            ("run ask charge:2", "run `count`"),
            ("charge:9 ask charge:2", "tool `charge` with other arguments"),
            ("end", "the end of the action"),
        ] {
            let mut setup = setup(durability);
            setup.say("charge:1 ask charge:2").await.unwrap();
            let request = setup.request().await.request_id;
            setup.restart(|flow| flow.other = Some(other));
            setup.done();
            let yes = Delivery::approve(&request);
            let error = setup.engine.deliver(session(), yes).await.unwrap_err();
            let Error::Effect(EffectError::Diverged(place)) = &error else { panic!("{error:?}") };
            let shown = (place.recorded.as_str(), place.found.as_str(), place.place.as_str());
            assert_eq!(shown, ("tool `charge`", found, "0"));
            assert!(setup.done().is_empty(), "nothing was done");
            assert_eq!(setup.doc().await.status, Status::Failed);
            // The build that fits goes on.
            setup.restart(|flow| flow.other = None);
            let outcome = setup.go_on().await.unwrap();
            assert_eq!(outcome.replies, ["approved: true", "receipt for 2"], "{other}");
        }
    }
}

#[tokio::test]
async fn a_session_that_diverged_is_restarted_or_abandoned() {
    for abandons in [false, true] {
        let mut setup = setup(Durability::Crossing);
        setup.say("charge:1 ask").await.unwrap();
        let request = setup.request().await.request_id;
        setup.restart(|flow| flow.other = Some("charge:1 run"));
        let yes = Delivery::approve(&request);
        setup.engine.deliver(session(), yes).await.unwrap_err();
        setup.done();
        let handle = setup.engine.session(session());
        if abandons {
            handle.abandon("changed").await.unwrap();
            assert_eq!(setup.say("hello").await.unwrap_err().code(), "session-ended");
            assert_eq!(setup.doc().await.ended.as_deref(), Some("changed"));
            assert_eq!(handle.abandon("again").await.unwrap_err().code(), "session-ended");
        } else {
            handle.restart_step().await.unwrap();
            setup.go_on().await.unwrap();
            let done = setup.done();
            assert!(done[0].starts_with("charge 1 s:1:0:charge:"), "with the same key: {done:?}");
            assert_eq!(done[1], "run");
        }
    }
}

#[tokio::test]
async fn another_build_of_the_flow_goes_on_when_the_action_fits_and_says_so_when_not() {
    let mut setup = setup(Durability::Crossing);
    setup.say("charge:1 ask charge:2").await.unwrap();
    let digest = setup.doc().await.flow.digest;
    setup.restart(|flow| flow.rebuilt = true);
    let request = setup.request().await.request_id;
    setup.say("a message changes nothing of that").await.unwrap();
    setup.restart(|flow| flow.other = Some("run"));
    let yes = Delivery::approve(&request);
    let error = setup.engine.deliver(session(), yes).await.unwrap_err();
    let Error::Effect(EffectError::Drifted { before, after, .. }) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(before, &digest);
    assert_ne!(after, &digest);
    setup.restart(|flow| flow.other = None);
    assert_eq!(setup.go_on().await.unwrap().replies, ["approved: true", "receipt for 2"]);
}

#[tokio::test]
async fn a_call_that_was_cut_off_is_made_again_with_its_key() {
    for durability in DURABILITIES {
        let mut setup = setup(durability);
        let request = TurnRequest::new(session()).message("charge:1 stall charge:2");
        let turn = setup.engine.turn::<Script>(request.clone().turn_id("t"));
        let mut done = Vec::new();
        while done.len() < 2 {
            tokio::task::yield_now().await;
            done.extend(setup.done());
        }
        turn.cancel();
        assert_eq!(turn.await.unwrap_err().code(), "cancelled");
        setup.restart(|flow| flow.works = true);
        setup.engine.turn::<Script>(request.turn_id("t")).await.unwrap();
        let again = setup.done();
        if durability == Durability::Effect {
            // The first charge is recorded with the intent of the call after it.
            assert_eq!(again.len(), 2, "{again:?}");
            assert_eq!(again[0], done[1].replace("false", "true"), "it learns that");
        } else {
            assert_eq!(again.len(), 3, "{again:?}");
            assert_eq!(again[..2], done[..], "with the same keys");
        }
    }
}
