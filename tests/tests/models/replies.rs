//! What is asked of a model, and what becomes of its answer.

use flow_core::message::{Part, Role};
use flow_core::model::{ChatResponse, FinishReason, ModelCatalog, ModelError, TokenUsage};

use super::*;

#[tokio::test]
async fn a_model_speaks_for_a_step_that_has_no_authored_response() {
    let response = ChatResponse::new(vec![Part::text("Hello!")]).usage(TokenUsage::new(11, 3));
    let talk = Talk::new(ScriptedModel::new().response(response));
    let outcome = talk.say("hi").await.unwrap();
    assert_eq!(outcome.replies, ["Hello!"]);
    let requests = talk.main.requests();
    assert_eq!(requests[0].system.as_deref(), Some("You find rooms. Searches so far: 0."));
    let asked: Vec<_> = requests[0].messages.iter().map(|m| (m.role, m.to_text())).collect();
    assert_eq!(asked, [(Role::User, "hi".to_owned())]);
    let tools: Vec<_> = requests[0].tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(tools, ["search", "choose", "hang", "crash", "dump", "weather"]);
    let doc = talk.doc().await;
    let kept: Vec<_> = doc.memory["explore"].messages.iter().map(|m| m.to_text()).collect();
    assert_eq!(kept, ["hi", "Hello!"]);
    assert_eq!(doc.usage, TokenUsage::new(11, 3));
}

#[tokio::test]
async fn the_conversation_goes_on_in_the_memory_of_the_step() {
    let talk = Talk::new(ScriptedModel::new().text("Where to?").text("Fine."));
    talk.say("hi").await.unwrap();
    talk.say("Lisbon").await.unwrap();
    let second = &talk.main.requests()[1];
    let asked: Vec<_> = second.messages.iter().map(|m| m.to_text()).collect();
    assert_eq!(asked, ["hi", "Where to?", "Lisbon"]);
    let numbers: Vec<_> =
        talk.doc().await.memory["explore"].messages.iter().map(|m| m.seq).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
}

#[tokio::test]
async fn the_answer_is_streamed_in_pieces_and_kept_whole() {
    let talk = Talk::new(ScriptedModel::new().chunks(["Hel", "lo", "!"]));
    let events = talk.events("hi").await;
    let deltas: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::TextDelta { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(deltas, ["Hel", "lo", "!"]);
    let names: Vec<_> = events.iter().map(Event::name).skip(4).collect();
    assert_eq!(
        names,
        [
            "text-start",
            "text-delta",
            "text-delta",
            "text-delta",
            "text-end",
            "usage",
            "message",
            "turn-end"
        ]
    );
    assert_eq!(talk.doc().await.memory["explore"].messages[1].to_text(), "Hello!");
}

#[tokio::test]
async fn a_tool_may_move_the_flow_and_the_next_step_speaks_through_its_own_model() {
    let main = ScriptedModel::new()
        .tool_calls([("choose", json!({ "room": "12" })), ("search", json!({ "city": "Oslo" }))]);
    let talk = Talk::new(main);
    let _ = talk.desk.clone().text("Your name, please?");
    let outcome = talk.say("room 12").await.unwrap();
    assert_eq!(
        (outcome.step.as_str(), outcome.replies.join("|")),
        ("Desk", "Your name, please?".into())
    );
    assert_eq!(talk.desk.requests()[0].system.as_deref(), Some("The guest wants room 12."));
    let sampling = &talk.desk.requests()[0].sampling;
    assert_eq!((sampling.temperature, sampling.max_output_tokens), (Some(0.2), Some(200)));
    assert_eq!(talk.main.requests()[0].sampling, Sampling::default());
    let doc = talk.doc().await;
    // Each call has exactly one result, also the one that was not made.
    let kept = &doc.memory["explore"].messages;
    let Part::ToolResult(second) = &kept[2].parts[1] else { panic!("{kept:?}") };
    assert!(second.is_error && second.content.starts_with("not called"), "{second:?}");
    assert_eq!(doc.steps["Explore"]["searches"], 0);
}

#[tokio::test]
async fn an_answer_that_the_step_refuses_is_asked_for_again_and_never_kept() {
    let talk = Talk::new(ScriptedModel::new().text("darn").text("I am sorry."));
    assert_eq!(talk.say("hi").await.unwrap().replies, ["I am sorry."]);
    let again = &talk.main.requests()[1];
    let asked: Vec<_> = again.messages.iter().map(|m| m.to_text()).collect();
    assert_eq!(asked, ["hi", "darn", "Do not swear."]);
    assert_eq!(talk.doc().await.memory["explore"].messages.len(), 2);

    let talk = Talk::new(ScriptedModel::new().text("darn").text("darn").text("darn"));
    let error = talk.say("hi").await.unwrap_err();
    assert!(error.to_string().contains("refused 3 answers of the model"), "{error}");
}

#[tokio::test]
async fn a_model_that_gives_no_answer_is_an_error_that_names_flow_and_step() {
    let error = ModelError::Status {
        model: "test::main".into(),
        status: 401,
        message: "bad key".into(),
        retry_after: None,
    };
    let talk = Talk::new(ScriptedModel::new().error(error));
    let error = talk.say("hi").await.unwrap_err();
    assert_eq!(error.code(), "model-status");
    assert_eq!(
        error.to_string(),
        "flow `hotel`: the model of step `Explore` cannot be used: `test::main` answered with status 401: bad key"
    );
}

#[tokio::test]
async fn a_refusal_is_not_tried_again_and_the_step_may_handle_it() {
    let refusal = ChatResponse::new(vec![Part::text("I will not.")]).finish(FinishReason::Refusal);
    let hotel = Hotel { recover: true, ..Hotel::default() };
    let talk = Talk::with(hotel, ScriptedModel::new().response(refusal).text("late"));
    assert_eq!(talk.say("hi").await.unwrap().replies, ["I cannot talk now (model-refused)."]);
    assert_eq!(talk.main.left(), 1);
}

#[tokio::test]
async fn a_model_that_is_not_known_is_found_before_the_session_is_touched() {
    let store = std::sync::Arc::new(MemoryStore::new());
    let models = ModelCatalog::new().model("test::main", ScriptedModel::new());
    let engine = Engine::builder()
        .shared_store(store.clone())
        .flow(Hotel::default())
        .models(models)
        .build()
        .unwrap();
    let error = engine.turn::<Hotel>(TurnRequest::new(session()).message("hi")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "flow `hotel`: the model of step `Desk` cannot be used: no model `test::desk` is known; known: test::main"
    );
    assert!(engine.session(session()).load().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_is_made_again_and_the_answer_is_kept_once() {
    let busy = || ModelError::Status {
        model: "test::main".into(),
        status: 429,
        message: "slow down".into(),
        retry_after: Some(Duration::from_secs(3)),
    };
    let talk = Talk::new(ScriptedModel::new().error(busy()).error(busy()).text("Hello!"));
    assert_eq!(talk.say("hi").await.unwrap().replies, ["Hello!"]);
    assert_eq!(talk.main.requests().len(), 3);
    assert_eq!(talk.doc().await.memory["explore"].messages.len(), 2);
}
