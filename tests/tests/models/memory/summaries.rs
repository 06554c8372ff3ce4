//! Summaries: when they are made, of what, and what becomes of one that fails.

use std::time::Duration;

use flow_core::model::{ChatModel, ChatResponse, FinishReason, ModelError, TokenUsage};
use flow_core::store::sqlite::SqliteStore;

use super::*;

fn broken() -> ModelError {
    ModelError::Status {
        model: "test::summary".into(),
        status: 503,
        message: "down".into(),
        retry_after: None,
    }
}

#[tokio::test]
async fn a_summary_is_made_exactly_at_the_threshold_before_the_model_is_asked() {
    let room = Room::new(summaries(5, 2));
    let _ = room.summary.clone().text("Ada wants a room.");
    room.say_all(&["a room", "in Lisbon"]).await;
    assert_eq!(room.summary.requests().len(), 0);
    let doc = room.doc().await;
    assert_eq!((doc.memory["talk"].messages.len(), &doc.memory["talk"].summary), (4, &None));

    // The fifth message is the one to be answered.
    let _ = room.main.clone().text("FOR TWO");
    let events = room.events("for two").await;
    assert_eq!(
        serde_json::to_value(&events).unwrap(),
        json!([{
            "type": "memory-summary", "step": "Chat", "namespace": "talk",
            "messages": 3, "through": 2,
        }])
    );
    insta::assert_snapshot!("what_the_summary_is_made_of", show(&room.summary.requests()[0]));
    insta::assert_snapshot!("what_is_shown_with_a_summary", room.asked());
    let doc = room.doc().await;
    let memory = &doc.memory["talk"];
    assert_eq!(memory.messages.len(), 6, "all of them stay");
    let summary = memory.summary.as_ref().unwrap();
    assert_eq!((summary.text.as_str(), summary.through), ("Ada wants a room.", 2));
}

#[tokio::test]
async fn each_summary_takes_in_the_one_before() {
    let room = Room::new(summaries(5, 1));
    let _ = room.summary.clone().text("First summary.").text("Second summary.");
    let look = || room.main.clone().tool_call("look", json!({ "what": "rooms" }));
    room.say_all(&["one", "two", "three"]).await;
    let _ = look();
    room.say("four").await;
    room.say("five").await;
    let requests = room.summary.requests();
    assert_eq!(requests.len(), 2);
    insta::assert_snapshot!("a_second_summary_is_made_of", show(&requests[1]));
    insta::assert_snapshot!("what_is_shown_with_a_second_summary", room.asked());
}

#[tokio::test]
async fn a_summary_that_fails_is_told_and_nothing_is_lost() {
    let text = |text: &str| ChatResponse::new(vec![Part::text(text)]);
    for (code, answer) in [
        ("model-status", Err(broken())),
        ("model-malformed", Ok(text(" \n"))),
        ("model-malformed", Ok(ChatResponse::new(Vec::new()))),
        ("model-refused", Ok(text("No.").finish(FinishReason::Refusal))),
    ] {
        let room = Room::new(summaries(5, 1));
        room.say_all(&["one", "two"]).await;
        let _ = match answer {
            Ok(response) => room.summary.clone().response(response),
            Err(error) => room.summary.clone().error(error),
        };
        // It is not tried again when another step of the turn speaks in the same namespace.
        let _ = room.main.clone().tool_call("go", json!({ "to": "shared" })).text("THREE");
        let events = room.events("three").await;
        assert_eq!(events.len(), 1, "{events:?}");
        let event = serde_json::to_value(&events[0]).unwrap();
        assert_eq!(
            json!([event["type"], event["namespace"], event["code"], event["reset"]]),
            json!(["memory-summary-failed", "talk", code, false])
        );
        assert_eq!(room.summary.requests().len(), 1, "{code}");
        assert_eq!(
            room.asked(),
            "[system] You are Shared.\n[user] one\n[assistant] ONE\n[user] two\n[assistant] TWO\n\
             [user] three\n[assistant] call-1 go({\"to\":\"shared\"})\n[tool] call-1 = null"
        );
        let doc = room.doc().await;
        assert_eq!(doc.memory["talk"].messages.len(), 8);
        assert_eq!(doc.memory["talk"].summary, None);

        // The next turn tries again.
        let _ = room.summary.clone().text("At last.");
        room.say("four").await;
        assert_eq!(room.doc().await.memory["talk"].summary.as_ref().unwrap().text, "At last.");
    }
}

#[tokio::test(start_paused = true)]
async fn a_summary_that_hangs_is_given_up_after_one_attempt() {
    let room = Room::new(summaries(3, 1));
    room.say("one").await;
    let _ = room.summary.clone().delay(Duration::from_secs(1_000)).text("late").text("again");
    let begin = tokio::time::Instant::now();
    room.say("two").await;
    assert_eq!(begin.elapsed(), CallPolicy::default().attempt_timeout);
    assert_eq!(room.summary.requests().len(), 1);
}

struct Panicking;

#[async_trait::async_trait]
impl ChatModel for Panicking {
    async fn complete(&self, _: &ChatRequest) -> Result<ChatResponse, ModelError> {
        panic!("no memory")
    }
}

#[tokio::test]
async fn a_summary_whose_model_panics_fails_like_any_other() {
    let main = ScriptedModel::new().text("ONE").text("TWO");
    let models =
        ModelCatalog::new().model("test::main", main.clone()).model("test::summary", Panicking);
    let store = MemoryStore::new();
    let salon = Salon { memory: summaries(3, 1) };
    let engine = Engine::builder().store(store).flow(salon).models(models).build().unwrap();
    for (text, answer) in [("one", "ONE"), ("two", "TWO")] {
        let turn = engine.turn::<Salon>(TurnRequest::new(session()).message(text));
        assert_eq!(turn.await.unwrap().replies, [answer]);
    }
    assert_eq!(main.requests()[1].messages.len(), 3);
}

#[tokio::test]
async fn a_summary_counts_in_the_usage() {
    let room = Room::new(summaries(3, 1));
    let response = |text: &str, tokens| {
        ChatResponse::new(vec![Part::text(text)]).usage(TokenUsage::new(tokens, 1))
    };
    room.say("one").await;
    let _ = room.summary.clone().response(response("short", 100));
    let _ = room.main.clone().response(response("TWO", 10));
    let mut turn = room.engine.turn::<Salon>(TurnRequest::new(session()).message("two"));
    let mut used = Vec::new();
    while let Some(event) = turn.next_event().await {
        if let Event::Usage { model, usage, .. } = event {
            used.push((model, usage.input));
        }
    }
    turn.await.unwrap();
    assert_eq!(used, [("test::summary".to_owned(), 100), ("test::main".to_owned(), 10)]);
    assert_eq!(room.doc().await.usage, TokenUsage::new(110, 2));
    // One that says nothing costs too.
    let _ = room.summary.clone().response(response("", 1_000));
    room.say("three").await;
    assert_eq!(room.doc().await.usage.input, 1_110);
}

#[tokio::test]
async fn a_summary_of_a_turn_that_fails_is_made_again() {
    let room = Room::new(summaries(3, 1));
    room.say("one").await;
    let _ = room.summary.clone().text("lost with the turn");
    let error = room.turn("two").await.unwrap_err();
    assert_eq!(error.code(), "model-malformed", "the script of the chat is at its end");
    assert_eq!(room.doc().await.memory["talk"].summary, None);
    let _ = room.summary.clone().text("made again");
    room.say("two").await;
    assert_eq!(room.doc().await.memory["talk"].summary.as_ref().unwrap().text, "made again");
}

#[tokio::test]
async fn without_a_model_of_its_own_a_summary_is_written_by_the_model_of_the_step() {
    let policy = SummaryPolicy::default().min_messages(3).keep_recent(1);
    let room = Room::new(MemoryPolicy::default().summary(policy));
    room.say("one").await;
    let _ = room.main.clone().text("By the chat itself.");
    room.say("two").await;
    assert_eq!(
        room.doc().await.memory["talk"].summary.as_ref().unwrap().text,
        "By the chat itself."
    );
    assert_eq!(room.summary.requests().len(), 0);
}

#[tokio::test]
async fn a_summary_model_that_is_not_known_is_found_before_the_session_is_touched() {
    let model: ModelSelection = "test::nobody".parse().unwrap();
    let room = Room::new(MemoryPolicy::default().summary(SummaryPolicy::default().model(model)));
    let error = room.turn("hi").await.unwrap_err();
    assert_eq!(error.code(), "unknown-model");
    assert!(error.to_string().contains("the summaries (`config_memory`)"), "{error}");
    assert!(room.engine.session(session()).load().await.is_err());
}

#[tokio::test]
async fn steps_of_one_namespace_share_a_summary_and_other_namespaces_do_not() {
    let room = Room::new(summaries(5, 1));
    let _ = room.summary.clone().text("They count.");
    room.say_all(&["one", "two", "three"]).await;
    let shared = room.restart(summaries(50, 1));
    shared.go("shared", "four").await;
    insta::assert_snapshot!("what_another_step_of_the_namespace_is_shown", shared.asked());

    let room = Room::new(summaries(5, 1));
    let _ = room.summary.clone().text("They count.");
    room.say_all(&["one", "two", "three"]).await;
    room.go("side", "four").await;
    assert_eq!(room.asked(), "[system] You are Side.\n[user] (Please go on.)");
    room.say("five").await;
    assert_eq!(
        room.asked(),
        "[system] You are Side.\n[user] (The conversation so far.)\n[assistant] FOUR\n[user] five"
    );
    let doc = room.doc().await;
    assert_eq!(doc.memory["side"].summary, None);
    assert_eq!(doc.memory["side"].messages.len(), 3);
}

#[tokio::test]
async fn another_process_goes_on_from_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let store = || SqliteStore::open(folder.path().join("s.sqlite"));
    let told = {
        let room = Room::on(Arc::new(store().await.unwrap()), summaries(5, 1));
        let _ = room.summary.clone().text("They count.");
        room.say_all(&["one", "two", "three"]).await;
        room.transcript().await
    };
    let room = Room::on(Arc::new(store().await.unwrap()), summaries(5, 1));
    assert_eq!(room.transcript().await.doc.memory, told.doc.memory);
    room.say("four").await;
    assert_eq!(room.summary.requests().len(), 0);
    insta::assert_snapshot!("what_another_process_shows", room.asked());
}

#[tokio::test]
async fn a_streamed_turn_leaves_the_same_document_as_a_plain_one() {
    let mut docs = Vec::new();
    for streamed in [false, true] {
        let room = Room::new(summaries(3, 1).window(4).batch(2));
        for turn in 0..12 {
            let _ = room.summary.clone().text(format!("summary {turn}"));
            let chunks = ["An ans", "wer to ", "it."];
            let _ = match turn {
                4 => room.main.clone().tool_call("go", json!({ "to": "brief" })).chunks(chunks),
                _ => room.main.clone().chunks(chunks),
            };
            let text = format!("message {turn}");
            if streamed {
                room.events(&text).await;
            } else {
                room.turn(&text).await.unwrap();
            }
        }
        let mut transcript = room.transcript().await;
        transcript.doc.lease = flow_core::session::Lease::default();
        let doc = serde_json::to_string(&transcript.doc).unwrap();
        docs.push((doc, transcript.archive, room.main.requests(), room.summary.requests()));
    }
    assert!(docs[0].0.contains(r#""summary":{"text":"summary 11""#), "{}", docs[0].0);
    assert!(docs[0].1.len() > 2, "{:?}", docs[0].1);
    assert_eq!(docs[0], docs[1]);
}
