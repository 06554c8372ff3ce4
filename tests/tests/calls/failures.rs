//! Called flows that fail, or cannot be called.

use flow_core::session::Status;

use super::*;

#[tokio::test]
async fn recursion_is_allowed_up_to_the_depth_and_the_error_names_it() {
    let setup = setup();
    setup.say("call[call[call[charge:1]]]").await.unwrap();
    assert_eq!(setup.world.take_charges().len(), 1);
    let error = setup.say("dive").await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("call-depth", false), "{error}");
    let text = error.to_string();
    for part in ["script > script > script > script > script", "3 calls", "Limits::call_depth"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(setup.say("say:x").await.unwrap().replies, ["x"], "the session is usable");
    assert_eq!(Limits::default().call_depth, 8);
}

#[tokio::test]
async fn a_depth_that_is_reached_can_be_handled() {
    let setup = setup();
    let outcome = setup.say("call[call[call[try[say:x] approve]]]").await.unwrap();
    assert_eq!(outcome.replies, ["went without it: call-depth"]);
    let request = outcome.interrupts()[0].request_id.clone();
    let delivery = flow_core::engine::Delivery::approve(request);
    let outcome = setup.engine.deliver(session(), delivery).await.unwrap();
    assert_eq!(outcome.replies.len(), 3, "{outcome:?}");
}

#[tokio::test]
async fn a_flow_that_is_not_registered_is_an_error_that_names_those_that_are() {
    let setup = setup();
    let error = setup.say("missing").await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("unknown-flow", false), "{error}");
    for part in ["`missing`", "script, table, talk"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(setup.called().await.is_empty());
}

#[tokio::test]
async fn a_failure_that_may_pass_fails_the_turn_which_goes_on_where_it_was() {
    for durability in DURABILITIES {
        let setup = setup_on(Arc::new(MemoryStore::new()), durability, ScriptedModel::new());
        let turn = || TurnRequest::new(session()).message("try[say:x charge:1 fail charge:2]");
        let turn = || turn().turn_id("t1");
        for attempts in 1..3 {
            let error = setup.engine.turn::<Script>(turn()).await.unwrap_err();
            assert!(error.retryable(), "{error}");
            let child = setup.child().await;
            assert!(error.to_string().contains(child.id.as_str()), "{error}");
            assert_eq!(setup.world.attempts.load(Ordering::Relaxed), attempts);
        }
        setup.world.repair();
        let outcome = setup.engine.turn::<Script>(turn()).await.unwrap();
        assert_eq!(outcome.replies, ["x", "done after all"]);
        let mut charges = setup.world.take_charges();
        charges.dedup();
        assert_eq!(charges.len(), 2, "{charges:?}");
    }
}

#[tokio::test]
async fn a_new_message_goes_to_the_called_flow_whose_turn_has_failed() {
    for same_turn in [false, true] {
        let setup = setup();
        setup.say("call[table fail] say:end").await.unwrap();
        setup.say("4").await.unwrap();
        let turn = |text: &str| TurnRequest::new(session()).message(text).turn_id("t");
        let error = setup.engine.turn::<Script>(turn("evening")).await.unwrap_err();
        assert!(error.retryable(), "{error}");
        setup.world.repair();
        let outcome = if same_turn {
            setup.engine.turn::<Script>(turn("evening")).await.unwrap()
        } else {
            setup.say("hello?").await.unwrap()
        };
        let end = ["Thank you, Ada.", "reserved: 4 at evening", "done: table for 4", "end"];
        assert_eq!(outcome.replies, end);
    }
}

#[tokio::test]
async fn a_failure_for_good_is_an_error_that_the_caller_may_handle() {
    for durability in DURABILITIES {
        let setup = setup_on(Arc::new(MemoryStore::new()), durability, ScriptedModel::new());
        let outcome = setup.say("try[say:lost charge:1 break] approve").await.unwrap();
        assert_eq!(outcome.replies, ["went without it: step-failed"]);
        let request = outcome.interrupts()[0].request_id.clone();
        setup.world.repair();
        let delivery = flow_core::engine::Delivery::approve(request);
        setup.engine.deliver(session(), delivery).await.unwrap();
        let said = history(&setup.doc().await);
        assert_eq!(said.len(), 2, "the failure that was handled stays: {said:?}");
        assert_eq!(setup.child().await.status, Status::Failed);
        assert_eq!(setup.world.take_charges().len(), 1);
    }
}

#[tokio::test]
async fn a_failure_for_good_that_nobody_handles_fails_the_turn_and_the_next_one_goes_on() {
    let setup = setup();
    let error = setup.say("call[charge:1 break charge:2]").await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("step-failed", false), "{error}");
    assert!(error.to_string().contains("the called flow `script`"), "{error}");
    setup.world.repair();
    let outcome = setup.say("call[charge:1 break charge:2]").await.unwrap();
    assert_eq!(outcome.replies, ["done: receipt for 1, receipt for 2"]);
    let mut charges = setup.world.take_charges();
    charges.dedup();
    assert_eq!(charges.len(), 2, "{charges:?}");
}

#[tokio::test]
async fn what_a_called_flow_has_said_is_said_once_though_its_caller_fails_after_it() {
    let setup = setup();
    let turn = || TurnRequest::new(session()).message("say:a call[say:b] fail say:c").turn_id("t");
    setup.engine.turn::<Script>(turn()).await.unwrap_err();
    setup.world.repair();
    let outcome = setup.engine.turn::<Script>(turn()).await.unwrap();
    assert_eq!(outcome.replies, ["a", "b", "done: ", "c"]);
    let setup = super::setup();
    setup.say("say:a call[say:b table] fail say:c").await.unwrap();
    setup.say("4").await.unwrap();
    let turn = || TurnRequest::new(session()).message("noon").turn_id("t");
    setup.engine.turn::<Script>(turn()).await.unwrap_err();
    setup.world.repair();
    let outcome = setup.engine.turn::<Script>(turn()).await.unwrap();
    let end = ["Thank you, Ada.", "reserved: 4 at noon", "done: table for 4", "c"];
    assert_eq!(outcome.replies, end);
}

#[tokio::test]
async fn a_called_session_that_is_gone_is_an_error_until_the_step_is_restarted() {
    let setup = setup();
    setup.say("table").await.unwrap();
    setup.store.delete(&setup.child().await.id).await.unwrap();
    for _ in 0..2 {
        let error = setup.say("4").await.unwrap_err();
        assert_eq!((error.code(), error.retryable()), ("session-not-found", false), "{error}");
    }
    setup.engine.session(session()).restart_step().await.unwrap();
    assert_eq!(setup.say("table").await.unwrap().replies, ["For how many?"]);
}
