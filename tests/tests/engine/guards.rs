//! Budgets that stop runaway turns.

use flow_core::error::{Error, TurnError};
use flow_core::{Limits, TurnRequest};
use tests::route_flow::Route;

use super::{session, setup, setup_with};

#[tokio::test]
async fn the_crossing_budget_names_the_limit_and_the_trail() {
    let limits = Limits::default().crossings(5).edge_crossings(100);
    let setup = setup_with(Route::default(), |b| b.limits(limits));
    let error = setup.turn("a a a a a a a a").await.unwrap_err();
    assert!(matches!(error, Error::Turn(TurnError::CrossingBudget { limit: 5, .. })), "{error}");
    assert!(error.to_string().contains("A > A > A > A > A"), "{error}");
    assert!(error.to_string().contains("Limits::crossings"), "{error}");
    setup.turn("b").await.expect("the session is usable");
}

#[tokio::test]
async fn an_edge_that_is_crossed_too_often_is_an_oscillation() {
    let setup = setup();
    let error = setup.turn("ping").await.unwrap_err();
    let Error::Turn(TurnError::Oscillation { from, to, limit, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!((from.as_str(), to.as_str(), *limit), ("A", "B", 10));
    assert_eq!((error.code(), error.retryable()), ("oscillation", false));
    assert!(error.to_string().contains("Limits::edge_crossings"), "{error}");
    let outcome = setup.turn(".").await.expect("the session is usable");
    assert_eq!(outcome.step, "A");
}

#[tokio::test]
async fn an_action_that_always_goes_to_itself_is_an_oscillation() {
    let setup = setup();
    let error = setup.turn(&["a"; 20].join(" ")).await.unwrap_err();
    let Error::Turn(TurnError::Oscillation { from, to, limit, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!((from.as_str(), to.as_str(), *limit), ("A", "A", 10));
    assert!(error.to_string().contains("Limits::edge_crossings"), "{error}");
    let outcome = setup.turn("b").await.expect("the session is usable");
    assert_eq!(outcome.step, "B");
}

#[tokio::test]
async fn the_count_goes_on_through_turns_without_a_message_and_a_message_resets_it() {
    let limits = Limits::default().edge_crossings(3);
    let setup = setup_with(Route::default(), |b| b.limits(limits));
    // Two crossings of A>B, then a pause in the middle of the way.
    setup.turn("b a b a stay b a stay b a").await.unwrap();
    let go_on = || setup.engine.turn::<Route>(TurnRequest::new(session()));
    go_on().await.expect("the third crossing is within the limit");
    let error = go_on().await.unwrap_err();
    assert!(matches!(error, Error::Turn(TurnError::Oscillation { limit: 3, .. })), "{error}");
    setup.turn("b a").await.expect("the user said something");
}
