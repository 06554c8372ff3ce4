//! Failures never destroy a session; cancelled turns leave it at its last commit.

use std::time::Duration;

use flow_core::error::{Error, StoreError, TurnError};
use flow_core::event::Event;
use flow_core::session::Status;
use flow_core::store::{OpenRequest, SessionStore};
use tests::route_flow::Route;

use super::{say, session, setup, setup_with};

#[tokio::test]
async fn a_panic_is_an_error_of_the_turn_and_the_lease_is_free_again() {
    let setup = setup();
    setup.turn("b .").await.unwrap();
    let error = setup.turn("panic").await.unwrap_err();
    assert!(
        matches!(&error, Error::Turn(TurnError::Panicked { message, .. }) if message == "the step panics as told")
    );
    let doc = setup.engine.session(session()).load().await.unwrap();
    assert_eq!((doc.status, doc.lease.holder), (Status::Failed, None));
    assert_eq!(setup.turn("c").await.unwrap().step, "C");
}

#[tokio::test]
async fn a_terminal_error_is_not_retryable_and_the_session_goes_on() {
    let setup = setup();
    setup.turn(".").await.unwrap();
    let error = setup.turn("terminal").await.unwrap_err();
    assert!(!error.retryable());
    assert_eq!(error.to_string(), "flow `route`, step `A`, session `s`: the step fails for good");
    setup.turn("b").await.unwrap();
}

#[tokio::test]
async fn cancelling_stops_at_the_next_await_and_gives_the_session_back() {
    let setup = setup();
    setup.turn(".").await.unwrap();
    let mut turn = setup.engine.turn::<Route>(say("b hang"));
    while let Some(event) = turn.next_event().await {
        if matches!(&event, Event::StepEnter { step, .. } if &**step == "B") {
            turn.cancel();
        }
    }
    let error = turn.await.unwrap_err();
    assert!(matches!(error, Error::Turn(TurnError::Cancelled { .. })), "{error}");
    let doc = setup.engine.session(session()).load().await.unwrap();
    assert_eq!((doc.current_step.as_str(), doc.lease.holder), ("B", None));
    setup.turn("c").await.unwrap();
}

#[tokio::test]
async fn dropping_the_handle_cancels_the_turn() {
    let setup = setup();
    setup.turn(".").await.unwrap();
    let mut turn = setup.engine.turn::<Route>(say("b hang"));
    while let Some(event) = turn.next_event().await {
        if matches!(&event, Event::StepEnter { step, .. } if &**step == "B") {
            break;
        }
    }
    drop(turn);
    // Waits in the queue until the cancelled turn has given the session back.
    assert_eq!(setup.turn("c").await.unwrap().step, "C");
}

#[tokio::test]
async fn a_turn_that_waits_in_the_queue_can_be_cancelled() {
    let setup = setup();
    setup.turn(".").await.unwrap();
    let mut first = setup.engine.turn::<Route>(say("hang"));
    first.next_event().await;
    let second = setup.engine.turn::<Route>(say("b"));
    second.cancel();
    assert_eq!(second.await.unwrap_err().code(), "cancelled");
    first.cancel();
    first.await.unwrap_err();
}

#[tokio::test]
async fn a_session_that_another_process_works_on_is_busy_until_its_lease_is_over() {
    let setup = setup();
    setup.turn(".").await.unwrap();
    let other = OpenRequest {
        id: &session(),
        flow: "route",
        version: 1,
        holder: "another process",
        ttl: Duration::from_secs(60),
    };
    setup.store.open(&other).await.unwrap();
    let error = setup.turn("b").await.unwrap_err();
    let Error::Store(StoreError::Busy { holder, .. }) = &error else { panic!("{error}") };
    assert_eq!(holder, "another process");
    assert!(error.retryable());
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_while_a_turn_runs() {
    let setup = setup_with(Route::default(), |b| b.lease(Duration::from_secs(30)));
    let mut turn = setup.engine.turn::<Route>(say("hang"));
    turn.next_event().await;
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    turn.cancel();
    turn.await.unwrap_err();
    let names = setup.store.take_names();
    assert!(names.contains(&"renew"), "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_lease_was_taken_over_stops() {
    let setup = setup_with(Route::default(), |b| b.lease(Duration::ZERO));
    let mut turn = setup.engine.turn::<Route>(say("hang"));
    turn.next_event().await;
    let other = OpenRequest {
        id: &session(),
        flow: "route",
        version: 1,
        holder: "another process",
        ttl: Duration::from_secs(60),
    };
    setup.store.open(&other).await.unwrap();
    let error = turn.await.unwrap_err();
    assert!(matches!(error, Error::Store(StoreError::LeaseLost { .. })), "{error}");
}

#[tokio::test]
async fn an_escalated_session_takes_messages_and_runs_nothing_until_it_is_released() {
    let setup = setup();
    setup.turn("b escalate").await.unwrap();
    setup.log.take();
    let outcome = setup.turn("c").await.unwrap();
    assert_eq!(outcome.step, "B");
    let log = setup.log.take();
    assert!(!log.iter().any(|entry| entry.ends_with(".run")), "{log:?}");
    let transcript = setup.engine.session(session()).transcript().await.unwrap();
    assert_eq!(transcript.messages().len(), 3, "the message is kept and answered");
    setup.engine.session(session()).release().await.unwrap();
    assert_eq!(setup.turn("c").await.unwrap().step, "C");
    let error = setup.engine.session(session()).release().await.unwrap_err();
    assert_eq!(error.code(), "not-escalated");
}
