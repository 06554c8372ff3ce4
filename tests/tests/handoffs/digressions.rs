//! A flow is parked for another one, and comes back where it was.

use std::time::Duration;

use flow_core::engine::Delivery;
use flow_core::outcome::Outcome;
use flow_core::session::{Relation, Status, Waiting};

use super::*;

fn topic(topic: &str) -> HandOff {
    HandOff::to::<Faq>(Ticket { topic: topic.into(), plan: Vec::new() })
}

#[tokio::test]
async fn the_other_flow_runs_for_some_turns_and_the_question_is_asked_again() {
    let setup = setup();
    setup.say("form").await.unwrap();
    let asked = setup.doc().await;
    let (events, outcome) = setup.events(request("say:open?").digress(topic("hours"))).await;
    let outcome = outcome.unwrap();
    assert_eq!((outcome.flow.as_str(), outcome.replies.len()), ("faq", 2));
    assert_eq!(outcome.replies, ["This is faq (hours).", "open?"]);
    assert_eq!(
        names(&events),
        [
            "turn-start",
            "session-restored",
            "digression-start",
            "flow-enter",
            "step-enter",
            "message",
            "message",
            "turn-end"
        ]
    );
    let doc = setup.doc().await;
    assert_eq!((doc.flow.id.as_str(), doc.visit.number, doc.superseded), ("faq", 3, 0));
    let parent = doc.parent.clone().unwrap();
    assert_eq!(
        (parent.relation, parent.flow.as_str(), parent.session),
        (Relation::Digression, "desk", session())
    );
    let moves = doc.moves.unwrap();
    let parked = moves.parked.as_deref().unwrap();
    assert_eq!(
        (moves.origin.as_str(), &parked.waiting, &parked.state),
        ("desk", &asked.waiting, &asked.state)
    );
    assert!(parked.memory.is_empty(), "messages belong to the conversation");

    assert_eq!(setup.say("say:more").await.unwrap().replies, ["more"]);
    let (events, outcome) = setup.events(request("say:bye end").turn_id("t9")).await;
    let outcome = outcome.unwrap();
    assert_eq!(outcome.replies, ["bye", "Which order?"]);
    assert_eq!(outcome.question().unwrap().fields, ["order"]);
    assert_eq!((outcome.flow.as_str(), outcome.step.as_str()), ("desk", "Form"));
    assert_eq!(
        names(&events),
        [
            "turn-start",
            "session-restored",
            "message",
            "step-exit",
            "flow-end",
            "digression-end",
            "message",
            "question",
            "turn-end"
        ]
    );
    let again = setup.engine.turn::<Desk>(request("x").turn_id("t9")).await.unwrap();
    assert_eq!((again.repeated, again.replies), (true, outcome.replies));

    let back = setup.doc().await;
    assert_eq!(
        (back.status, &back.waiting, &back.steps),
        (Status::Waiting, &asked.waiting, &asked.steps)
    );
    assert!(back.revision > doc.revision);
    let aside = setup.aside(1).await.unwrap();
    assert_eq!((aside.flow.id.as_str(), aside.ended.as_deref()), ("faq", Some("faq is done")));
    assert_eq!(setup.say("#17").await.unwrap().replies, ["Order 17."]);
    let doc = setup.doc().await;
    assert_eq!(
        (doc.visit.number, &doc.moves, &doc.parent),
        (4, &None, &None),
        "nothing is left of it"
    );
    let said = setup.transcript().await;
    assert_eq!(
        said,
        [
            "user: form",
            "flow: This is desk ().",
            "flow: Which order?",
            "user: say:open?",
            "flow: This is faq (hours).",
            "flow: open?",
            "user: say:more",
            "flow: more",
            "user: say:bye end",
            "flow: bye",
            "flow: Which order?",
            "user: #17",
            "flow: Order 17."
        ]
    );
}

#[tokio::test]
async fn visits_go_on_being_counted_after_a_digression() {
    let setup = setup();
    setup.say("form").await.unwrap();
    setup.digress("again charge:1 again charge:1 end", "faq").await.unwrap();
    let doc = setup.doc().await;
    assert_eq!((doc.visit.number, doc.moves.unwrap().visits), (2, 5));
    setup.say("#17").await.unwrap();
    assert_eq!(setup.doc().await.visit.number, 6, "no number of the digression comes again");
}

#[tokio::test]
async fn how_many_flows_are_parked_is_a_limit_of_the_engine() {
    for limit in [0, 1] {
        let setup = setup_with(|builder| builder.limits(Limits::default().digressions(limit)));
        setup.say("form").await.unwrap();
        for _ in 0..limit {
            setup.digress("form", "billing").await.unwrap();
        }
        let error = setup.digress("form", "faq").await.unwrap_err();
        assert_eq!(error.code(), "digression-depth");
    }
}

#[tokio::test]
async fn digressions_are_parked_in_each_other_up_to_the_limit_and_come_back_in_turn() {
    let setup = setup();
    setup.say("form").await.unwrap();
    setup.digress("form", "billing").await.unwrap();
    setup.digress("form", "desk").await.unwrap();
    setup.digress("form", "billing").await.unwrap();
    let before = setup.doc().await;
    let error = setup.digress("form", "desk").await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("digression-depth", 409));
    let text = error.to_string();
    assert!(text.contains("as may be, 3") && text.contains("`Limits::digressions`"), "{text}");
    assert!(text.contains("desk > billing > desk > billing"), "{text}");
    let mut after = setup.doc().await;
    after.lease = before.lease.clone();
    assert_eq!(after, before, "the session is as it was");

    for flow in ["desk", "billing", "desk"] {
        setup.say("#1").await.unwrap();
        let outcome = setup.say("say:bye end").await.unwrap();
        assert_eq!(
            (outcome.flow.as_str(), &*outcome.replies),
            (flow, &["bye".to_owned(), "Which order?".into()][..])
        );
    }
    setup.say("#1").await.unwrap();
    assert!(setup.say("end").await.unwrap().is_ended());
    let error = setup.say("hello").await.unwrap_err();
    assert_eq!(error.code(), "session-ended");
}

#[tokio::test]
async fn a_flow_that_waits_for_an_answer_is_not_parked() {
    let setup = setup();
    setup.say("approve").await.unwrap();
    let before = setup.doc().await;
    let error = setup.digress("say:open?", "faq").await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("digression-refused", 409));
    assert!(error.to_string().contains("may I?"), "{error}");
    let mut after = setup.doc().await;
    after.lease = before.lease.clone();
    assert_eq!(after, before, "the approval is still waited for");
    assert!(matches!(setup.say("hello").await.unwrap().outcome, Outcome::Suspended { .. }));
    let Some(Waiting::Interrupts { pending }) = after.waiting else { panic!("it waits") };
    let outcome = setup.engine.deliver(session(), Delivery::approve(&pending[0].request_id)).await;
    assert_eq!(outcome.unwrap().replies, ["approved: true"]);
}

#[tokio::test]
async fn an_approval_within_a_digression_finds_it() {
    let setup = setup();
    setup.say("form").await.unwrap();
    let outcome = setup.digress("approve end", "faq").await.unwrap();
    let request = outcome.interrupts()[0].request_id.clone();
    let outcome = setup.engine.deliver(session(), Delivery::approve(request)).await.unwrap();
    assert_eq!(outcome.replies, ["approved: true", "Which order?"]);
    assert_eq!(outcome.flow, "desk");
}

#[tokio::test]
async fn an_escalated_session_and_bad_targets_are_refused() {
    let setup = setup();
    setup.say("say:hi").await.unwrap();
    for (to, reason) in [
        (HandOff::from("nowhere"), "known flows: billing, desk, faq"),
        (HandOff::to::<other::Billing>(other::Amount { cents: 7 }), "cannot be read"),
    ] {
        let error = setup.digress("x", to).await.unwrap_err();
        assert_eq!(error.code(), "digression-refused");
        assert!(error.to_string().contains(reason), "{error}");
    }
    setup.say("escalate").await.unwrap();
    let error = setup.digress("x", "faq").await.unwrap_err();
    assert!(error.to_string().contains("release"), "{error}");
    let doc = setup.doc().await;
    assert_eq!((doc.status, doc.error, doc.flow.id.as_str()), (Status::Waiting, None, "desk"));
}

#[tokio::test]
async fn a_hand_off_within_a_digression_comes_back_to_the_flow_that_was_parked() {
    let setup = setup();
    setup.say("form").await.unwrap();
    setup.digress("billing say:hi", "faq").await.unwrap();
    let outcome = setup.say("end").await.unwrap();
    assert_eq!(
        (outcome.flow.as_str(), &*outcome.replies),
        ("desk", &["Which order?".to_owned()][..])
    );
    let doc = setup.doc().await;
    assert_eq!((doc.superseded, doc.parent), (2, None));
}

#[tokio::test]
async fn a_session_may_begin_with_a_digression() {
    let setup = setup();
    let outcome = setup.digress("say:hi", "faq").await.unwrap();
    assert_eq!(outcome.replies, ["This is faq ().", "hi"]);
    // The flow that was meant begins when the other has ended.
    let outcome = setup.say("say:bye end").await.unwrap();
    assert_eq!(outcome.replies, ["bye", "This is desk ()."]);
    assert_eq!((outcome.flow.as_str(), outcome.step.as_str()), ("desk", "Talk"));
}

#[tokio::test]
async fn a_parked_flow_is_migrated_when_it_comes_back_and_one_from_the_future_is_left_alone() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let engine = |new: bool| {
        let builder = Engine::builder().shared_store(store.clone()).flow(Faq::default());
        let builder =
            if new { builder.flow(desk2::Desk2::default()) } else { builder.flow(Desk::default()) };
        builder.build().unwrap()
    };
    let (old, new) = (engine(false), engine(true));
    let say = |engine: &Engine, text: &str| engine.turn_of("desk", request(text));
    say(&old, "form").await.unwrap();
    old.turn::<Desk>(request("say:hi").digress("faq")).await.unwrap();
    let outcome = say(&new, "end").await.unwrap();
    assert_eq!(outcome.replies, ["Which order?"]);
    let doc = store.load(&session()).await.unwrap().unwrap();
    assert_eq!((doc.version, &doc.state["topic"]), (2, &"migrated".into()));

    new.turn_of("desk", request("say:hi").digress("faq")).await.unwrap();
    let error = say(&old, "end").await.unwrap_err();
    assert_eq!(error.code(), "document-from-future");
    let doc = store.load(&session()).await.unwrap().unwrap();
    assert_eq!(doc.flow.id, "faq", "the digression has not ended");
    assert_eq!(say(&new, "end").await.unwrap().flow, "desk");
}

#[tokio::test]
async fn a_parked_flow_does_not_expire_before_the_session() {
    let day = Duration::from_secs(24 * 3600);
    let setup = setup_with(|builder| builder.session_ttl(day));
    setup.say("form").await.unwrap();
    setup.digress("say:hi", "faq").await.unwrap();
    let doc = setup.doc().await;
    assert!(doc.expires_at.is_some());
    assert_eq!(doc.moves.unwrap().parked.unwrap().expires_at, None);
    for _ in 0..3 {
        setup.clock.advance(day / 2);
        setup.say("say:still").await.unwrap();
    }
    assert_eq!(setup.say("end").await.unwrap().replies, ["Which order?"]);
}

#[tokio::test]
async fn what_a_digression_costs_counts_in_the_session_and_its_model_sees_what_was_said() {
    let model = answers(&["We open at nine.", "Bye.", "At nine."]);
    let models = ModelCatalog::new().model("test::main", model.clone());
    let setup = setup_with(|builder| builder.models(models).flow(Advisor));
    setup.say("form").await.unwrap();
    let outcome = setup.digress("when do you open?", "advisor").await.unwrap();
    assert_eq!(outcome.replies, ["We open at nine."]);
    let said: Vec<String> =
        model.requests()[0].messages.iter().map(|message| message.to_text()).collect();
    assert_eq!(said, ["form", "This is desk ().\nWhich order?", "when do you open?"]);
    assert_eq!(setup.say("thanks").await.unwrap().replies, ["Bye.", "Which order?"]);
    assert_eq!(setup.doc().await.usage, TokenUsage::new(14, 10));
    setup.digress("when was it?", "advisor").await.unwrap();
    assert_eq!(setup.doc().await.usage, TokenUsage::new(21, 15));
}
