//! What turns leave behind when they are cut off, fail or come in between.

use std::time::Duration;

use flow_core::engine::{Delivery, WAKE_RETRY};
use flow_core::session::Status;
use flow_core::store::memory::MemoryStore;
use flow_core::{Engine, TurnRequest};
use tests::failing_store::{FailingStore, Fault};

use super::{DURABILITIES, Durability, Script, Trap, session, setup};

fn turn(text: &str) -> TurnRequest {
    TurnRequest::new(session()).message(text).turn_id("t")
}

/// Runs a turn until its next effect, which never returns, and kills the process there: the
/// document stays as it is, and the lease is over.
async fn die(setup: &mut super::Setup, request: TurnRequest, after: usize) {
    let store = FailingStore::shared(setup.store.clone());
    let builder = Engine::builder().store(store.clone()).clock(setup.clock.clone());
    let builder = builder.durability(setup.durability).lease(Duration::ZERO);
    let engine = builder.flow(setup.flow.clone()).build().unwrap();
    *setup.flow.done.trap.lock().unwrap() = Some(Trap { after, made: true });
    let turn = engine.turn::<Script>(request);
    setup.flow.done.trapped.notified().await;
    store.stop();
    turn.cancel();
    turn.await.unwrap_err();
    let builder = Engine::builder().shared_store(setup.store.clone()).clock(setup.clock.clone());
    let builder = builder.durability(setup.durability).lease(Duration::ZERO);
    setup.engine = builder.flow(setup.flow.clone()).build().unwrap();
    // Stores have a clock of their own.
    setup.clock.advance(Duration::from_secs(3600 * 24 * 365 * 50));
}

#[tokio::test]
async fn a_message_that_comes_when_a_sleep_is_over_is_in_the_history() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        setup.say("sleep:10 note:a").await.unwrap();
        setup.clock.advance(Duration::from_secs(10));
        assert_eq!(setup.say("hello").await.unwrap().replies, ["awake", "a"]);
        assert_eq!(setup.said().await, ["sleep:10 note:a", "hello", "awake", "a"]);
    }
}

#[tokio::test]
async fn what_an_earlier_run_has_said_does_not_silence_a_run_about_other_words() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        setup.say("note:a note:b ask fail").await.unwrap();
        let yes = Delivery::approve(setup.request().await.request_id);
        setup.engine.deliver(session(), yes).await.unwrap_err();
        assert_eq!(setup.say("note:c note:d note:e").await.unwrap().replies, ["c", "d", "e"]);
    }
}

#[tokio::test]
async fn a_turn_that_failed_does_not_make_one_without_a_message_diverge() {
    for durability in DURABILITIES {
        for words in ["charge:1 fail", "run insist", "again charge:1 fail"] {
            for begin in [None, Some("note:a")] {
                let mut setup = setup(durability);
                if let Some(text) = begin {
                    setup.say(text).await.unwrap();
                }
                setup.say(words).await.unwrap_err();
                setup.restart(|flow| flow.works = true);
                setup.go_on().await.unwrap();
                assert_eq!(setup.doc().await.status, Status::Waiting, "{durability:?}, {words}");
            }
        }
    }
}

#[tokio::test]
async fn a_session_that_was_woken_a_second_time_and_fails_wakes_again() {
    for durability in DURABILITIES {
        let mut setup = setup(durability);
        setup.say("sleep:1 again fail charge:1 end").await.unwrap();
        // The first visit sleeps and crosses, the second sleeps and fails.
        for failed in [0, 1] {
            setup.clock.advance(Duration::from_secs(2));
            let report = setup.engine.sweep().await.unwrap();
            assert_eq!(report.failed.len(), failed, "{durability:?}: {report:?}");
        }
        setup.restart(|flow| flow.works = true);
        setup.clock.advance(WAKE_RETRY);
        assert_eq!(setup.engine.sweep().await.unwrap().woken.len(), 1, "{durability:?}");
        assert_eq!(setup.doc().await.status, Status::Completed);
    }
}

#[tokio::test]
async fn a_session_that_was_woken_and_loses_the_store_wakes_again() {
    for durability in DURABILITIES {
        let mut setup = setup(durability);
        setup.say("sleep:1 over").await.unwrap();
        setup.clock.advance(Duration::from_secs(2));
        let store = FailingStore::shared(setup.store.clone());
        let builder = Engine::builder().store(store.clone()).clock(setup.clock.clone());
        let engine = builder.durability(durability).flow(setup.flow.clone()).build().unwrap();
        // Open, the answer, the crossing if there is one, and the end, which fails.
        let last = if durability == Durability::Turn { 2 } else { 3 };
        store.arm(last, Fault::FailBefore);
        let report = engine.sweep().await.unwrap();
        assert_eq!(report.failed.len(), 1, "{report:?}");
        assert!(!store.disarm());
        setup.restart(|_| {});
        setup.clock.advance(WAKE_RETRY);
        assert_eq!(setup.engine.sweep().await.unwrap().woken.len(), 1, "{durability:?}");
        assert_eq!(setup.doc().await.current_step, "Over");
    }
}

#[tokio::test]
async fn a_session_that_was_woken_and_fails_after_a_crossing_wakes_again() {
    for durability in DURABILITIES {
        let mut setup = setup(durability);
        setup.restart(|flow| flow.fails_over = true);
        setup.say("sleep:1 over").await.unwrap();
        setup.clock.advance(Duration::from_secs(2));
        let report = setup.engine.sweep().await.unwrap();
        assert_eq!(report.failed.len(), 1, "{report:?}");
        setup.restart(|flow| flow.fails_over = false);
        setup.clock.advance(WAKE_RETRY);
        assert_eq!(setup.engine.sweep().await.unwrap().woken.len(), 1, "{durability:?}");
        assert_eq!(setup.doc().await.current_step, "Over");
    }
}

#[tokio::test]
async fn an_abandoned_and_a_restarted_session_are_not_woken() {
    for abandons in [true, false] {
        let setup = setup(Durability::Crossing);
        setup.say("charge:1 sleep:1").await.unwrap();
        let handle = setup.engine.session(session());
        if abandons {
            handle.abandon("enough").await.unwrap();
        } else {
            handle.restart_step().await.unwrap();
        }
        assert_eq!(setup.doc().await.wake_at, None);
        setup.clock.advance(Duration::from_secs(2));
        let report = setup.engine.sweep().await.unwrap();
        assert!(report.failed.is_empty() && report.woken.is_empty(), "{report:?}");
    }
}

#[tokio::test]
async fn a_result_that_looks_like_a_denial_is_a_result() {
    let mut setup = setup(Durability::Crossing);
    setup.say("review fail").await.unwrap_err();
    setup.restart(|flow| flow.works = true);
    setup.say("review fail").await.unwrap();
    assert_eq!(setup.done(), ["review"], "made once");
}

#[tokio::test]
async fn a_turn_that_a_sweeper_has_finished_is_not_made_again() {
    for durability in [Durability::Crossing, Durability::Effect] {
        let mut setup = setup(durability);
        die(&mut setup, turn("charge:1 again charge:2"), 1).await;
        let report = setup.engine.sweep().await.unwrap();
        assert_eq!(report.woken, [session()], "{report:?}");
        let before = setup.doc().await;
        assert_eq!(before.status, Status::Waiting);
        setup.done();
        let outcome = setup.engine.turn::<Script>(turn("charge:1 again charge:2")).await.unwrap();
        assert!(outcome.repeated, "{durability:?}: {outcome:?}");
        assert!(setup.done().is_empty());
        assert_eq!(setup.doc().await.revision, before.revision);
    }
}

#[tokio::test]
async fn a_first_turn_that_dies_between_effects_goes_on_with_what_was_said() {
    let mut setup = setup(Durability::Effect);
    die(&mut setup, turn("charge:1 charge:2 note:a"), 1).await;
    let report = setup.engine.sweep().await.unwrap();
    assert_eq!(report.woken, [session()], "{report:?}");
    let done = setup.done();
    assert_eq!(done.len(), 3, "{done:?}");
    assert_eq!(done[2], done[1].replace("false", "true"), "only the one that was running");
    let said = setup.said().await;
    assert_eq!(said, ["charge:1 charge:2 note:a", "receipt for 1", "receipt for 2", "a"]);
}

#[tokio::test]
async fn a_message_does_not_put_aside_an_answer_that_is_still_to_be_worked_on() {
    for durability in DURABILITIES {
        let mut setup = setup(durability);
        setup.say("both sleep:1").await.unwrap();
        let [first, second] = &setup.pending().await[..] else { panic!("two requests") };
        let yes = Delivery::approve(&first.request_id);
        // The process dies once the answer is committed.
        let store = FailingStore::shared(setup.store.clone());
        let builder = Engine::builder().store(store.clone()).clock(setup.clock.clone());
        let builder = builder.durability(durability).lease(Duration::ZERO);
        let engine = builder.flow(setup.flow.clone()).build().unwrap();
        store.arm(2, Fault::StopAfter);
        engine.deliver(session(), yes).await.unwrap_err();
        setup.clock.advance(Duration::from_secs(3600 * 24 * 365 * 50));
        setup.store.sweep(10).await.unwrap();
        assert!(setup.doc().await.wake_at.is_some(), "it is due");
        setup.restart(|_| {});
        setup.say("hello").await.unwrap();
        let doc = setup.doc().await;
        assert!(doc.effects.values().filter(|e| e.outcome.is_some()).count() >= 2, "{doc:?}");
        let yes = Delivery::approve(&second.request_id);
        let outcome = setup.engine.deliver(session(), yes).await.unwrap();
        assert_eq!(outcome.replies, ["(true, \"receipt for 5\", true)"]);
        assert_eq!(setup.said().await[1], "hello");
    }
}

#[tokio::test]
async fn a_session_that_sleeps_longer_than_it_is_kept_wakes_first() {
    let setup = setup(Durability::Crossing);
    let builder = Engine::builder().shared_store(setup.store.clone()).clock(setup.clock.clone());
    let day = Duration::from_secs(24 * 3600);
    let engine = builder.session_ttl(day).flow(setup.flow.clone()).build().unwrap();
    let request = TurnRequest::new(session()).message("sleep:259200 note:a");
    engine.turn::<Script>(request).await.unwrap();
    let doc = setup.doc().await;
    assert_eq!(doc.expires_at, doc.wake_at.map(|at| at.after(day)));
    setup.clock.advance(3 * day);
    engine.turn::<Script>(TurnRequest::new(session())).await.unwrap();
    let doc = setup.doc().await;
    assert_eq!(doc.expires_at, Some(doc.updated_at.after(day)));
}

#[tokio::test]
async fn no_effect_is_made_before_its_intent_is_stored_whatever_is_beside_it() {
    for fault in [Fault::HangBefore, Fault::FailBefore] {
        let store = FailingStore::new(MemoryStore::new());
        let setup = setup(Durability::Effect);
        let builder = Engine::builder().store(store.clone()).durability(Durability::Effect);
        let engine = builder.flow(setup.flow.clone()).build().unwrap();
        // Open, the beginning of the turn, and the intents of both.
        store.arm(2, fault);
        let turn = engine.turn::<Script>(TurnRequest::new(session()).message("pair"));
        if fault == Fault::HangBefore {
            store.hangs().await;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            turn.cancel();
        }
        turn.await.unwrap_err();
        assert_eq!(setup.done(), [""; 0], "{fault:?}");
    }
}

#[tokio::test]
async fn a_delivery_may_come_with_a_message() {
    let setup = setup(Durability::Crossing);
    setup.say("ask").await.unwrap();
    let yes = Delivery::approve(setup.request().await.request_id);
    let request = TurnRequest::new(session()).deliver(yes).message("go on then");
    setup.engine.turn::<Script>(request).await.unwrap();
    assert_eq!(setup.said().await, ["ask", "go on then", "approved: true"]);
}
