//! Sleeps and deadlines, and the sweeps that end them.

use std::time::Duration;

use flow_core::session::Status;
use flow_core::store::ListQuery;

use super::{DURABILITIES, Durability, session, setup};

#[tokio::test]
async fn a_sleep_ends_by_a_sweep_at_its_time_and_not_before() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        let outcome = setup.say("charge:1 sleep:3600 charge:2 end").await.unwrap();
        assert_eq!(outcome.interrupts().len(), 1);
        let due = "2026-11-30T13:00:00Z".parse().unwrap();
        assert_eq!(setup.doc().await.wake_at, Some(due), "{durability:?}");
        setup.clock.advance(Duration::from_secs(3599));
        assert!(setup.engine.sweep().await.unwrap().woken.is_empty());
        assert_eq!(setup.done().len(), 1);
        setup.clock.advance(Duration::from_secs(1));
        let report = setup.engine.sweep().await.unwrap();
        assert_eq!(report.woken, [session()], "{report:?}");
        let done = setup.done();
        assert_eq!(done.len(), 1, "{done:?}");
        assert!(done[0].starts_with("charge 2"));
        let doc = setup.doc().await;
        assert_eq!((doc.status, doc.wake_at), (Status::Completed, None));
        assert!(setup.engine.sweep().await.unwrap().woken.is_empty(), "woken once");
    }
}

#[tokio::test]
async fn any_turn_after_its_time_ends_a_sleep() {
    let setup = setup(Durability::Crossing);
    setup.say("sleep:10 note:a").await.unwrap();
    setup.clock.advance(Duration::from_secs(4));
    assert_eq!(setup.go_on().await.unwrap().interrupts().len(), 1);
    setup.clock.advance(Duration::from_secs(6));
    assert_eq!(setup.go_on().await.unwrap().replies, ["awake", "a"]);
}

#[tokio::test]
async fn a_request_that_nobody_answers_in_time_is_denied() {
    let setup = setup(Durability::Crossing);
    setup.say("hurry").await.unwrap();
    let interrupt = setup.request().await;
    assert_eq!(interrupt.deadline, setup.doc().await.wake_at);
    setup.clock.advance(Duration::from_secs(61));
    let report = setup.engine.sweep().await.unwrap();
    assert_eq!(report.woken.len(), 1);
    assert_eq!(setup.said().await.last().unwrap(), "approved in time: false");
}

#[tokio::test]
async fn many_sweeps_at_once_wake_a_session_once() {
    let setup = setup(Durability::Crossing);
    setup.say("sleep:1 charge:1").await.unwrap();
    setup.clock.advance(Duration::from_secs(2));
    let engines: Vec<_> = (0..4)
        .map(|_| super::build(&setup.store, &setup.clock, Durability::Crossing, &setup.flow))
        .collect();
    let reports = futures_util::future::join_all(engines.iter().map(|e| e.sweep())).await;
    let woken: usize = reports.into_iter().map(|report| report.unwrap().woken.len()).sum();
    assert_eq!(woken, 1);
    assert_eq!(setup.done().len(), 1);
}

#[tokio::test]
async fn a_wake_that_fails_is_tried_again_later() {
    let mut setup = setup(Durability::Crossing);
    setup.say("sleep:1 fail charge:1").await.unwrap();
    setup.clock.advance(Duration::from_secs(2));
    let report = setup.engine.sweep().await.unwrap();
    assert_eq!(report.failed.len(), 1, "{report:?}");
    assert!(setup.engine.sweep().await.unwrap().failed.is_empty(), "not at once");
    setup.restart(|flow| flow.works = true);
    setup.clock.advance(flow_core::engine::WAKE_RETRY);
    assert_eq!(setup.engine.sweep().await.unwrap().woken.len(), 1);
    assert_eq!(setup.done().len(), 1);
    let query =
        ListQuery { due: Some("2030-01-01T00:00:00Z".parse().unwrap()), ..ListQuery::default() };
    assert!(setup.store.list(&query).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_sweeper_sweeps_again_and_again() {
    let setup = setup(Durability::Crossing);
    setup.say("sleep:5 charge:1 end").await.unwrap();
    let engine = setup.engine.clone();
    let sweeper = tokio::spawn(async move { engine.run_sweeper(Duration::from_secs(1)).await });
    setup.clock.advance(Duration::from_secs(5));
    while setup.doc().await.status != Status::Completed {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    sweeper.abort();
    assert_eq!(setup.done().len(), 1);
}

#[tokio::test]
async fn an_action_that_wakes_and_goes_to_itself_for_ever_is_stopped() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        setup.say(&format!("sleep:1 {}", ["again"; 20].join(" "))).await.unwrap();
        for _ in 0..10 {
            setup.clock.advance(Duration::from_secs(1));
            assert_eq!(setup.engine.sweep().await.unwrap().woken.len(), 1, "{durability:?}");
        }
        setup.clock.advance(Duration::from_secs(1));
        let report = setup.engine.sweep().await.unwrap();
        let (_, error) = &report.failed[0];
        assert_eq!(error.code, "oscillation");
        assert!(error.message.contains("Limits::edge_crossings"), "{}", error.message);
        // It is not tried again by itself, and goes on with what the user says.
        setup.clock.advance(Duration::from_secs(3600));
        let report = setup.engine.sweep().await.unwrap();
        assert!(report.woken.is_empty() && report.failed.is_empty(), "{report:?}");
        assert_eq!(setup.say("note:a").await.unwrap().replies, ["a"], "{durability:?}");
    }
}
