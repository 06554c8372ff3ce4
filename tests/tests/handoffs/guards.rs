//! Hand-offs that go round without the user are stopped, and the session can go on.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn flows_that_hand_the_conversation_back_and_forth_are_stopped() {
    let setup = setup();
    let error = setup.say("billing desk billing desk billing").await.unwrap_err();
    assert_eq!(error.code(), "handoff-loop");
    let text = error.to_string();
    assert!(text.contains("desk > billing > desk > billing > desk"), "{text}");
    assert!(text.contains("2 times") && text.contains("`Limits::flow_visits`"), "{text}");
    let doc = setup.doc().await;
    assert_eq!(doc.flow.id, "billing");
    assert_eq!(doc.moves.unwrap().trail, ["desk", "billing", "desk"]);
    // New input begins a new count.
    assert_eq!(setup.say("desk billing desk").await.unwrap().flow, "desk");
}

#[tokio::test]
async fn the_count_goes_on_through_turns_without_a_message() {
    let setup = setup_with(|builder| builder.limits(Limits::default().handoffs(2).flow_visits(9)));
    setup.say("billing desk approve billing").await.unwrap();
    let request = match setup.doc().await.waiting {
        Some(flow_core::session::Waiting::Interrupts { pending }) => pending[0].request_id.clone(),
        other => panic!("{other:?}"),
    };
    setup.clock.advance(Duration::from_secs(60));
    let answer = flow_core::engine::Delivery::approve(request);
    let error = setup.engine.deliver(session(), answer).await.unwrap_err();
    assert_eq!(error.code(), "handoff-budget");
    let text = error.to_string();
    assert!(text.contains("2 hand-offs") && text.contains("`Limits::handoffs`"), "{text}");
    assert!(text.contains("desk > billing > desk > billing"), "{text}");
    assert_eq!(setup.say("billing").await.unwrap().flow, "billing");
}

#[tokio::test]
async fn a_budget_of_none_forbids_hand_offs() {
    let setup = setup_with(|builder| builder.limits(Limits::default().handoffs(0)));
    let error = setup.say("billing").await.unwrap_err();
    assert_eq!(error.code(), "handoff-budget");
    assert_eq!(setup.say("say:hi").await.unwrap().replies, ["This is desk ().", "hi"]);
}

#[tokio::test]
async fn the_crossings_of_a_turn_are_counted_through_its_flows() {
    let setup = setup_with(|builder| builder.limits(Limits::default().crossings(3)));
    let error = setup.say("again again billing again again").await.unwrap_err();
    assert_eq!(error.code(), "crossing-budget");
    let doc = setup.doc().await;
    assert_eq!((doc.flow.id.as_str(), doc.visit.number), ("billing", 5));
}

#[tokio::test]
async fn the_session_of_an_item_is_not_handed_off() {
    let setup = setup();
    setup.say("say:hi").await.unwrap();
    let mut doc = setup.doc().await;
    doc.id = SessionId::new("child").unwrap();
    doc.parent = Some(flow_core::session::Parent {
        session: session(),
        flow: "faq".into(),
        relation: flow_core::session::Relation::Item,
        depth: 1,
    });
    setup.store.create(&doc).await.unwrap();
    let turn = || TurnRequest::new(doc.id.clone());
    let error = setup.engine.turn::<Desk>(turn().message("billing")).await.unwrap_err();
    assert_eq!(error.code(), "child-handoff");
    let error = setup.engine.turn::<Desk>(turn().message("x").digress("faq")).await.unwrap_err();
    assert_eq!(error.code(), "digression-refused");
    let outcome = setup.engine.turn::<Desk>(turn().message("say:on")).await.unwrap();
    assert_eq!((outcome.flow.as_str(), &*outcome.replies), ("desk", &["on".to_owned()][..]));
}
