//! An action that waited runs again from its beginning, and does nothing twice.

use flow_core::engine::Delivery;
use flow_core::outcome::Outcome;
use flow_core::session::Status;

use super::{DURABILITIES, setup};

#[tokio::test]
async fn what_was_done_before_a_wait_is_not_done_again() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        let outcome = setup.say("note:a charge:3 approve note:b charge:4 end").await.unwrap();
        assert_eq!(outcome.replies, ["a", "receipt for 3"], "{durability:?}");
        let [interrupt] = outcome.interrupts() else { panic!("{outcome:?}") };
        assert_eq!(
            (interrupt.step.as_str(), interrupt.display.title.as_str()),
            ("Act", "charge it")
        );
        assert_eq!(setup.done().len(), 1);
        let doc = setup.doc().await;
        assert_eq!(doc.status, Status::Waiting);
        assert_eq!(doc.steps["Act"]["notes"], serde_json::json!([]), "the run is not over");
        assert_eq!(doc.state["notes"], serde_json::json!([]));

        let yes = Delivery::approve(&interrupt.request_id).by("ada");
        let outcome = setup.engine.deliver(super::session(), yes).await.unwrap();
        assert_eq!(
            outcome.replies,
            ["approved by Some(\"ada\")", "b", "receipt for 4"],
            "{durability:?}"
        );
        assert!(matches!(outcome.outcome, Outcome::Ended { .. }));
        let done = setup.done();
        assert_eq!(done.len(), 1, "{done:?}");
        assert!(done[0].starts_with("charge 4 s:1:2:charge:"), "{done:?}");
        let doc = setup.doc().await;
        assert_eq!(doc.steps["Act"]["notes"], serde_json::json!(["a", "b"]), "each note once");
        assert_eq!(doc.state["notes"], serde_json::json!(["a", "b"]));
        assert!(doc.effects.is_empty() && doc.waiting.is_none());
        let said = setup.said().await;
        assert_eq!(
            said[1..],
            ["a", "receipt for 3", "approved by Some(\"ada\")", "b", "receipt for 4"]
        );
    }
}

#[tokio::test]
async fn another_process_goes_on_where_the_first_one_waited() {
    for durability in DURABILITIES {
        let mut setup = setup(durability);
        setup.say("charge:3 run approve charge:4 end").await.unwrap();
        let request = setup.request().await.request_id;
        setup.restart(|_| {});
        setup.engine.deliver(super::session(), Delivery::approve(request)).await.unwrap();
        let done = setup.done();
        assert_eq!(done.len(), 3, "{durability:?}: {done:?}");
        assert!(done[0].starts_with("charge 3"));
        assert_eq!(done[1], "run");
        assert!(done[2].starts_with("charge 4"));
    }
}

#[tokio::test]
async fn time_uuids_and_random_numbers_stay_what_they_were() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        setup.say("values approve values").await.unwrap();
        let first = setup.done();
        setup.clock.advance(std::time::Duration::from_secs(100));
        let yes = Delivery::approve(setup.request().await.request_id);
        setup.engine.deliver(super::session(), yes).await.unwrap();
        let again = setup.done();
        assert_eq!((first.len(), again.len()), (1, 2));
        assert_eq!(first[0], again[0], "{durability:?}");
        assert_ne!(again[0], again[1]);
    }
}

#[tokio::test]
async fn a_later_visit_and_a_later_turn_call_the_same_tool_again() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        setup.say("charge:3 again charge:3").await.unwrap();
        setup.say("charge:3").await.unwrap();
        let done = setup.done();
        let keys: Vec<_> = done.iter().map(|line| line.split(' ').nth(2).unwrap()).collect();
        assert_eq!(keys.len(), 4, "{durability:?}: {done:?}");
        for (key, expected) in keys.iter().zip(["s:1:0:", "s:2:0:", "s:2:1:", "s:2:2:"]) {
            assert!(key.starts_with(expected), "{keys:?}");
        }
    }
}

#[tokio::test]
async fn effects_side_by_side_are_answered_in_any_order_with_one_result() {
    let mut documents = Vec::new();
    for order in [[0, 1], [1, 0]] {
        let setup = setup(super::Durability::Crossing);
        let outcome = setup.say("both").await.unwrap();
        let titles: Vec<_> =
            outcome.interrupts().iter().map(|i| i.display.title.as_str()).collect();
        assert_eq!(titles, ["first", "second"]);
        let ids: Vec<_> = outcome.interrupts().iter().map(|i| i.request_id.clone()).collect();
        let deliver = |i: usize| setup.engine.deliver(super::session(), Delivery::approve(&ids[i]));
        let outcome = deliver(order[0]).await.unwrap();
        assert_eq!(outcome.interrupts().len(), 1);
        let outcome = deliver(order[1]).await.unwrap();
        assert_eq!(outcome.replies, ["(true, \"receipt for 5\", true)"]);
        assert_eq!(setup.done().len(), 1, "charged once");
        documents.push(setup.doc().await);
    }
    assert_eq!(documents[0], documents[1]);
}

#[tokio::test]
async fn a_new_visit_of_a_waiting_step_is_not_answered_by_an_old_request() {
    let setup = setup(super::Durability::Crossing);
    setup.say("ask again ask").await.unwrap();
    let first = setup.request().await.request_id;
    setup.engine.deliver(super::session(), Delivery::approve(&first)).await.unwrap();
    let second = setup.request().await.request_id;
    assert_ne!(first, second);
    let error = setup.engine.deliver(super::session(), Delivery::approve(first)).await;
    assert_eq!(error.unwrap_err().code(), "not-waiting");
    setup.engine.deliver(super::session(), Delivery::deny(second)).await.unwrap();
}
