//! What is said in a called flow is said by its caller.

use flow_core::event::Event;
use flow_core::message::Part;
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{ChatResponse, TokenUsage};
use flow_core::outcome::Outcome;
use flow_core::session::{Relation, Status};
use flow_core::{TurnOutcome, TurnRequest};

use super::*;

/// Frames of a turn are those of the caller, once.
fn check_frame(events: &[Event]) {
    let names = names(events);
    for once in ["turn-start", "turn-end"] {
        assert_eq!(names.iter().filter(|name| **name == once).count(), 1, "{once}: {names:?}");
    }
    let sessions = names.iter().filter(|name| name.starts_with("session-")).count();
    assert_eq!(sessions, 1, "{names:?}");
    assert!(!names.contains(&"flow-end"), "{names:?}");
}

#[tokio::test]
async fn a_call_that_waits_for_nobody_is_over_in_the_turn() {
    for durability in DURABILITIES {
        let store = Arc::new(MemoryStore::new());
        let setup = setup_on(store, durability, ScriptedModel::new());
        let (events, outcome) =
            setup.listen("say:before call[say:within charge:3] charge:4 say:after").await;
        assert_eq!(outcome.replies, ["before", "within", "done: receipt for 3", "after"]);
        check_frame(&events);
        let doc = setup.doc().await;
        assert_eq!(
            history(&doc)[1..],
            ["flow: before", "flow: within", "flow: done: receipt for 3", "flow: after"]
        );
        assert!(doc.effects.is_empty() && doc.state["results"].as_array().unwrap().len() == 2);
        let child = setup.child().await;
        assert_eq!(child.status, Status::Completed);
        assert_eq!(child.state["results"][0], "receipt for 3");
        let parent = child.parent.unwrap();
        assert_eq!((parent.session, parent.flow.as_str(), parent.depth), (session(), "script", 1));
        assert_eq!(parent.relation, Relation::Call);
        let charges = setup.world.take_charges();
        assert_eq!(charges.len(), 2, "{charges:?}");
        assert!(charges[0].contains(&format!("3 {}:1:0:charge", child.id)), "{charges:?}");
        assert!(charges[1].contains("4 s:1:1:charge"), "{charges:?}");
    }
}

#[tokio::test]
async fn a_call_of_the_same_flow_in_a_later_turn_is_another_one() {
    let setup = setup();
    for _ in 0..2 {
        setup.say("call[charge:3]").await.unwrap();
    }
    assert_eq!(setup.called().await.len(), 2);
    assert_eq!(setup.world.take_charges().len(), 2);
    setup.say("call[charge:3] call[charge:3]").await.unwrap();
    assert_eq!(setup.called().await.len(), 4);
}

async fn reserve(setup: &Setup) -> Vec<(Vec<Event>, TurnOutcome)> {
    let mut turns = Vec::new();
    for text in ["say:well table charge:7", "for 4", "in the evening"] {
        turns.push(setup.listen(text).await);
    }
    turns
}

#[tokio::test]
async fn questions_of_a_called_flow_are_asked_and_answered_through_its_caller() {
    for durability in DURABILITIES {
        let setup = setup_on(Arc::new(MemoryStore::new()), durability, ScriptedModel::new());
        let turns = reserve(&setup).await;
        let replies: Vec<_> = turns.iter().map(|(_, outcome)| outcome.replies.clone()).collect();
        assert_eq!(replies[0], ["well", "For how many?"]);
        assert_eq!(replies[1], ["At noon or in the evening?"]);
        assert_eq!(replies[2], ["Thank you, Ada.", "reserved: 4 at evening"]);
        for (events, outcome) in &turns {
            check_frame(events);
            let told: Vec<&str> = events
                .iter()
                .filter_map(|event| match event {
                    Event::Message { text, .. } => Some(text.as_str()),
                    _ => None,
                })
                .collect();
            assert_eq!(told.len(), outcome.replies.len(), "each once: {told:?}");
            let enter = names(events).iter().filter(|name| **name == "call-enter").count();
            assert_eq!(enter, 1);
        }
        let question = turns[1].1.question().unwrap();
        assert_eq!(question.text, "At noon or in the evening?");
        assert_eq!(question.options, ["noon", "evening"]);
        assert!(matches!(&turns[2].1.outcome, Outcome::Waiting { question: None }));

        let said = [
            "flow: well",
            "flow: For how many?",
            "user: for 4",
            "flow: At noon or in the evening?",
            "user: in the evening",
            "flow: Thank you, Ada.",
            "flow: reserved: 4 at evening",
        ];
        let doc = setup.doc().await;
        assert_eq!(history(&doc)[1..], said);
        assert_eq!(doc.waiting, Some(Waiting::Message { question: None }));
        let child = setup.child().await;
        assert_eq!(history(&child), said[1..6]);
        assert_eq!(child.ended.as_deref(), Some("reserved"));
        assert_eq!(child.state, serde_json::json!({"name": "Ada", "guests": 4, "time": "evening"}));
        assert_eq!(setup.world.take_charges().len(), 1);
    }
}

#[tokio::test]
async fn while_a_called_flow_asks_the_document_says_so() {
    let setup = setup();
    setup.say("table").await.unwrap();
    let (doc, child) = (setup.doc().await, setup.child().await);
    let asked = pending(&doc);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].kind, flow_core::session::EffectKind::Message);
    assert_eq!(
        (asked[0].step.as_str(), &asked[0].path[..]),
        ("Reserve", &["table".to_owned()][..])
    );
    assert_eq!(asked[0].display.title, "For how many?");
    assert_eq!((child.status, child.wake_at), (Status::Waiting, None));
    let record = doc.effects.values().next().unwrap();
    let call = record.call.as_ref().unwrap();
    assert_eq!(
        (call.turn.as_deref(), &call.input, &call.replies[..]),
        (Some("begin"), &None, &[][..])
    );
    let json = serde_json::to_value(record).unwrap();
    assert_eq!(json["call"], serde_json::json!({ "turn": "begin", "waited": true }));
}

#[tokio::test]
async fn events_of_a_called_flow_are_told_between_enter_and_exit() {
    let setup = setup();
    let (events, _) = setup.listen("say:a call[table]").await;
    assert_eq!(
        names(&events),
        [
            "turn-start",
            "session-created",
            "flow-enter",
            "step-enter",
            "call-enter",
            "step-enter",
            "call-enter",
            "step-enter",
            "message",
            "question",
            "call-exit",
            "call-exit",
            "message",
            "turn-end",
        ]
    );
    let child = setup.called().await;
    let depths: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::CallEnter { flow, session, depth } => Some((&**flow, &**session, *depth)),
            _ => None,
        })
        .collect();
    assert_eq!(depths, [("script", child[0].id.as_str(), 1), ("table", child[1].id.as_str(), 2)]);
}

#[tokio::test]
async fn a_called_flow_speaks_through_its_model_and_its_cost_counts() {
    let answer =
        |text: &str| ChatResponse::new(vec![Part::text(text)]).usage(TokenUsage::new(10, 2));
    let model = ScriptedModel::new().response(answer("Hello.")).response(answer("Goodbye."));
    let setup = setup_on(Arc::new(MemoryStore::new()), Durability::Effect, model);
    let (events, outcome) = setup.listen("talk charge:1 approve").await;
    assert_eq!(outcome.replies, ["Hello."]);
    let names = names(&events);
    let start = names.iter().position(|name| *name == "call-enter").unwrap();
    let texts = ["text-start", "text-delta", "usage", "text-end", "message"];
    for name in texts {
        let found = names.iter().position(|found| *found == name);
        assert!(found.is_some_and(|at| at > start), "{name}: {names:?}");
        assert_eq!(names.iter().filter(|found| **found == name).count(), 1);
    }
    assert_eq!(setup.doc().await.usage, TokenUsage::default(), "the call is under way");
    let outcome = setup.say("bye").await.unwrap();
    assert_eq!(outcome.replies, ["Goodbye.", "talked"]);
    assert_eq!(setup.child().await.usage, TokenUsage::new(20, 4));
    let request = setup.pending().await.remove(0).request_id;
    let delivery = flow_core::engine::Delivery::approve(request);
    setup.engine.deliver(session(), delivery).await.unwrap();
    assert_eq!(setup.doc().await.usage, TokenUsage::new(20, 4));
    setup.say("say:x").await.unwrap();
    assert_eq!(setup.doc().await.usage, TokenUsage::new(20, 4), "counted once");
}

#[tokio::test]
async fn the_cost_of_a_call_is_counted_once_though_the_turn_commits_twice() {
    for durability in DURABILITIES {
        let answer = ChatResponse::new(vec![Part::text("Goodbye.")]);
        let model = ScriptedModel::new().response(answer.usage(TokenUsage::new(10, 2)));
        let setup = setup_on(Arc::new(MemoryStore::new()), durability, model);
        setup.say("talk again").await.unwrap();
        let doc = setup.doc().await;
        assert_eq!((doc.visit.number, doc.usage), (2, TokenUsage::new(10, 2)));
    }
}

#[tokio::test]
async fn streamed_or_not_the_documents_are_the_same() {
    let lasting = |setup: &Setup| {
        let store = setup.store.clone();
        async move {
            let mut docs = called(&store).await;
            docs.push(store.load(&session()).await.unwrap().unwrap());
            docs.iter().map(tests::lasting::lasting).collect::<Vec<_>>()
        }
    };
    let streamed = setup();
    reserve(&streamed).await;
    let plain = setup();
    for text in ["say:well table charge:7", "for 4", "in the evening"] {
        plain.say(text).await.unwrap();
    }
    assert_eq!(lasting(&streamed).await, lasting(&plain).await);
}

#[tokio::test]
async fn owner_labels_and_context_are_inherited() {
    let setup = setup();
    let request = TurnRequest::new(session()).message("table").owner("ada").label("channel", "web");
    setup.engine.turn::<Script>(request.context("tenant", "acme")).await.unwrap();
    let child = setup.child().await;
    assert_eq!(child.owner.as_deref(), Some("ada"));
    assert_eq!(child.labels["channel"], "web");
    assert_eq!(child.context["tenant"], "acme");
}
