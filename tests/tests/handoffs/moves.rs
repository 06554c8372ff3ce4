//! Hand-offs: what goes along, what is kept, who finds the session.

use flow_core::outcome::Outcome;
use flow_core::session::{Relation, Status};
use flow_core::store::ListQuery;

use super::*;

#[tokio::test]
async fn the_other_flow_greets_in_the_same_turn_with_the_state_that_it_was_given() {
    let setup = setup();
    let (events, outcome) = setup.events(request("say:wait billing say:hello").turn_id("t1")).await;
    let outcome = outcome.unwrap();
    assert_eq!(
        outcome.replies,
        ["This is desk ().", "wait", "This is billing (from desk).", "hello"]
    );
    assert_eq!((outcome.flow.as_str(), outcome.step.as_str()), ("billing", "Talk"));
    assert_eq!(outcome.outcome, Outcome::Waiting { question: None });
    assert_eq!(
        names(&events),
        [
            "turn-start",
            "session-created",
            "flow-enter",
            "step-enter",
            "message",
            "message",
            "step-exit",
            "handoff",
            "flow-end",
            "flow-enter",
            "step-enter",
            "message",
            "message",
            "turn-end"
        ]
    );
    let doc = setup.doc().await;
    assert_eq!(
        (doc.flow.id.as_str(), doc.status, doc.visit.number),
        ("billing", Status::Waiting, 2)
    );
    assert_eq!(doc.state["topic"], "from desk");
    assert_eq!((doc.revision, outcome.revision), (2, 2));
    let parent = doc.parent.unwrap();
    assert_eq!((parent.session.as_str(), parent.flow.as_str()), ("s~1", "desk"));
    assert_eq!((parent.relation, parent.depth), (Relation::HandOff, 1));
    let left = setup.aside(1).await.unwrap();
    assert_eq!(
        (left.status, left.ended.as_deref()),
        (Status::Completed, Some("handed off to billing"))
    );
    assert_eq!(
        (left.flow.id.as_str(), left.current_step.as_str(), left.lease.holder),
        ("desk", "Talk", None)
    );
}

#[tokio::test]
async fn the_conversation_goes_along_and_its_transcript_stays_whole() {
    let memory = MemoryPolicy::default().window(3).batch(2);
    let setup = setup_with(|_| {
        let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
        Engine::builder()
            .shared_store(store)
            .flow(Desk { memory: memory.clone(), ..Desk::default() })
            .flow(Billing { memory, ..Billing::default() })
    });
    let first = request("say:1 say:2 say:3 say:4")
        .owner("ada")
        .label("channel", "web")
        .context("tenant", "t");
    setup.engine.turn::<Desk>(first).await.unwrap();
    let before = setup.doc().await;
    setup.say("say:5 say:6 billing say:7 say:8 say:9 say:10").await.unwrap();
    setup.say("say:11").await.unwrap();
    let said = setup.transcript().await;
    let flow = |range: std::ops::RangeInclusive<u32>| range.map(|n| format!("flow: {n}"));
    let expected: Vec<String> =
        ["user: say:1 say:2 say:3 say:4".to_owned(), "flow: This is desk ().".to_owned()]
            .into_iter()
            .chain(flow(1..=4))
            .chain(["user: say:5 say:6 billing say:7 say:8 say:9 say:10".to_owned()])
            .chain(flow(5..=6))
            .chain(["flow: This is billing (from desk).".to_owned()])
            .chain(flow(7..=10))
            .chain(["user: say:11".to_owned()])
            .chain(flow(11..=11))
            .collect();
    assert_eq!(said, expected);
    let doc = setup.doc().await;
    assert!(doc.archive.next > before.archive.next && doc.archive.from == 0, "{:?}", doc.archive);
    assert_eq!((doc.owner.as_deref(), doc.labels["channel"].as_str()), (Some("ada"), "web"));
    assert_eq!((&doc.context["tenant"], doc.created_at), (&"t".into(), before.created_at));
}

#[tokio::test]
async fn the_model_of_the_other_flow_is_shown_what_was_said_and_its_tokens_add_up() {
    let model = answers(&["Take the blue one.", "You are welcome."]);
    let models = ModelCatalog::new().model("test::main", model.clone());
    let setup = setup_with(|builder| builder.models(models).flow(Advisor));
    setup.say("say:hello").await.unwrap();
    let outcome = setup.say("advisor").await.unwrap();
    assert_eq!(outcome.replies, ["Take the blue one."]);
    setup.say("thanks").await.unwrap();
    let shown: Vec<Vec<String>> = model
        .requests()
        .iter()
        .map(|request| request.messages.iter().map(|message| message.to_text()).collect())
        .collect();
    assert_eq!(shown[0], ["say:hello", "This is desk ().\nhello", "advisor"]);
    assert_eq!(shown[1][2..], ["advisor", "Take the blue one.", "thanks"]);
    assert_eq!(setup.doc().await.usage, TokenUsage::new(14, 10));
}

#[tokio::test]
async fn what_no_step_has_read_is_read_by_the_other_flow() {
    // The form leaves the message; `Talk` of the other flow follows it.
    let setup = setup();
    setup.say("billing form").await.unwrap();
    let outcome = setup.say("#17 please").await.unwrap();
    assert_eq!(outcome.replies, ["Order 17."]);
    // A message beside the digression is followed there.
    let outcome = setup.digress("say:here", "faq").await.unwrap();
    assert_eq!(outcome.replies, ["This is faq ().", "here"]);
}

#[tokio::test]
async fn a_host_that_names_the_first_flow_finds_the_session_and_one_that_names_another_does_not() {
    let setup = setup();
    setup.say("billing").await.unwrap();
    let outcome = setup.say("faq").await.unwrap();
    assert_eq!(outcome.flow, "faq");
    let outcome = setup.say("say:still").await.unwrap();
    assert_eq!((outcome.flow.as_str(), &*outcome.replies), ("faq", &["still".to_owned()][..]));
    let error = setup.engine.turn::<Billing>(request("say:hi")).await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("wrong-flow", 409), "{error}");
    let outcome = setup.engine.turn::<Faq>(request("say:direct")).await.unwrap();
    assert_eq!(outcome.replies, ["direct"]);
    let faq = ListQuery { flow: Some("faq".into()), ..ListQuery::default() };
    let listed = setup.engine.sessions(&faq).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].id, session());
    setup.engine.session(session()).delete().await.unwrap();
    assert!(setup.aside(1).await.is_none() && setup.aside(2).await.is_none());
}

#[tokio::test]
async fn a_flow_that_is_not_there_and_a_state_that_does_not_read_leave_the_session_as_it_is() {
    let setup = setup();
    setup.say("say:hi").await.unwrap();
    let error = setup.say("lost").await.unwrap_err();
    assert_eq!(error.code(), "handoff-target");
    assert!(error.to_string().contains("known flows: billing, desk, faq"), "{error}");
    let error = setup.say("other").await.unwrap_err();
    assert_eq!(error.code(), "handoff-state");
    assert!(error.to_string().contains("handed off to `billing`"), "{error}");
    let doc = setup.doc().await;
    assert_eq!((doc.flow.id.as_str(), doc.superseded, doc.moves), ("desk", 0, None));
    assert_eq!(doc.error.unwrap().code, "handoff-state");
    assert_eq!(setup.say("billing").await.unwrap().flow, "billing");
}

#[tokio::test]
async fn a_flow_that_cannot_be_made_ready_is_not_entered() {
    let setup = setup();
    setup.say("say:hi").await.unwrap();
    let error = setup.engine.turn::<Desk>(request("billing").context("broken", "billing")).await;
    assert_eq!(error.unwrap_err().code(), "step-failed");
    assert_eq!(setup.doc().await.flow.id, "desk");
    assert_eq!(setup.say("billing").await.unwrap().flow, "billing");
}

#[tokio::test]
async fn a_repeated_turn_gives_the_outcome_of_the_whole() {
    let setup = setup();
    let turn = || request("charge:1 billing charge:2").turn_id("t1");
    let first = setup.engine.turn::<Desk>(turn()).await.unwrap();
    assert_eq!(setup.done.take().len(), 4);
    let again = setup.engine.turn::<Desk>(turn()).await.unwrap();
    assert_eq!((again.repeated, &again.replies, &again.flow), (true, &first.replies, &first.flow));
    assert_eq!((again.revision, setup.done.take()), (first.revision, Vec::new()));
}

#[tokio::test]
async fn visits_and_their_idempotency_keys_are_never_used_twice() {
    let setup = setup();
    setup.say("charge:1 billing charge:1 desk charge:1").await.unwrap();
    let done = setup.done.take();
    let mut keys: Vec<&String> = done.iter().filter(|line| line.starts_with("charge")).collect();
    assert_eq!(keys.len(), 3, "{done:?}");
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3, "{done:?}");
    let doc = setup.doc().await;
    assert_eq!((doc.visit.number, doc.flow.id.as_str()), (3, "desk"));
}

#[tokio::test]
async fn a_session_that_has_ended_elsewhere_begins_anew_where_it_once_began() {
    let setup = setup_with(|_| {
        let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
        Engine::builder()
            .shared_store(store)
            .flow(Desk { again: true, ..Desk::default() })
            .flow(Billing { again: true, ..Billing::default() })
    });
    setup.say("billing end").await.unwrap();
    let (events, outcome) = setup.events(request("say:back")).await;
    let outcome = outcome.unwrap();
    assert_eq!(
        (outcome.flow.as_str(), &*outcome.replies),
        ("desk", &["This is desk ().".to_owned(), "back".into()][..])
    );
    assert!(names(&events).contains(&"session-superseded"), "{events:?}");
    let doc = setup.doc().await;
    assert_eq!((doc.moves, doc.parent, doc.superseded), (None, None, 2));
}

#[tokio::test]
async fn the_same_script_streamed_or_not_leaves_the_same_document() {
    let mut docs = Vec::new();
    for stream in [false, true] {
        let setup = setup();
        setup.clock.advance(std::time::Duration::ZERO);
        for text in ["say:a billing say:b", "desk say:c"] {
            let request = request(text).turn_id(text);
            if stream {
                setup.events(request).await.1.unwrap();
            } else {
                setup.engine.turn::<Desk>(request).await.unwrap();
            }
        }
        let mut doc = serde_json::to_value(setup.doc().await).unwrap();
        strip_times(&mut doc);
        docs.push(doc);
    }
    assert_eq!(docs[0], docs[1]);
}

/// Takes out the times, which differ between two clocks.
fn strip_times(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(map) => {
            map.retain(|key, _| {
                !matches!(key.as_str(), "at" | "created_at" | "updated_at" | "lease")
            });
            map.values_mut().for_each(strip_times);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(strip_times),
        _ => {}
    }
}

#[tokio::test]
async fn with_one_commit_at_the_end_of_a_turn_a_hand_off_is_a_commit_all_the_same() {
    let setup = setup_with(|builder| builder.durability(Durability::Turn));
    setup.say("again say:x billing again say:y").await.unwrap();
    assert_eq!(setup.doc().await.revision, 2);
    assert_eq!(setup.aside(1).await.unwrap().revision, 1);
}
