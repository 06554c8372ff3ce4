use flow_core::model::complete;
use flow_core::model::{ChatRequest, OutputSchema};
use opentelemetry::trace::{SpanKind, Status};

use super::*;

fn map(value: Value) -> BTreeMap<String, Value> {
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn a_call_of_a_model_is_a_client_span_with_what_was_asked_and_what_it_cost() {
    let engine = engine(ScriptedModel::new().response(response("Hello!")));
    say(&engine, "chat", "hi").await.unwrap();
    let spans = spans("chat");
    let [chat] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!(chat.name, "chat gemini-test");
    assert_eq!((&chat.span_kind, &chat.status), (&SpanKind::Client, &Status::Unset));
    assert_eq!(
        attributes(chat),
        map(json!({
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "gcp.gemini",
            "gen_ai.conversation.id": "chat",
            "gen_ai.request.model": "gemini-test",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.top_p": 0.9,
            "gen_ai.request.max_tokens": 300,
            "gen_ai.request.seed": 7,
            "gen_ai.request.stream": true,
            "gen_ai.response.id": "resp-1",
            "gen_ai.response.model": "gemini-test-001",
            "gen_ai.response.finish_reasons": "[\"stop\"]",
            "gen_ai.usage.input_tokens": 20,
            "gen_ai.usage.output_tokens": 9,
            "gen_ai.usage.cache_read.input_tokens": 16,
            "gen_ai.usage.reasoning.output_tokens": 4,
        }))
    );
    // It stands within the turn.
    let all = exporter().get_finished_spans().unwrap();
    let parent = |id| all.iter().find(|span| span.span_context.span_id() == id).unwrap();
    let step = parent(chat.parent_span_id);
    assert_eq!((&*step.name, &*parent(step.parent_span_id).name), ("step", "turn"));
}

#[tokio::test]
async fn a_call_of_a_tool_is_a_span_by_its_name_whoever_calls_it() {
    let model = ScriptedModel::new()
        .tool_calls([
            ("search", json!({ "city": "Rome" })),
            ("search", json!({ "city": "Atlantis" })),
        ])
        .tool_calls([("fly", json!({})), ("search", json!({ "town": 1 })), ("pay", json!({}))]);
    let engine = engine(model);
    say(&engine, "tools", "pay").await.unwrap();
    let spans = spans("tools");
    let told: Vec<_> = spans
        .iter()
        .map(|span| {
            let error = attributes(span).remove("error.type");
            let failed = matches!(span.status, Status::Error { .. });
            assert_eq!(error.is_some(), failed, "{span:?}");
            (span.name.to_string(), error.map_or(String::new(), |e| e.as_str().unwrap().into()))
        })
        .collect();
    let told: Vec<_> = told.iter().map(|(name, error)| (name.as_str(), error.as_str())).collect();
    // The tool that does not exist is not executed.
    assert_eq!(
        told,
        [
            ("chat gemini-test", ""),
            ("execute_tool search", ""),
            ("execute_tool search", "tool-failed"),
            ("chat gemini-test", ""),
            ("execute_tool search", "invalid-arguments"),
            ("execute_tool pay", ""),
            ("execute_tool charge", ""),
        ]
    );
    assert_eq!(attributes(&spans[0])["gen_ai.response.finish_reasons"], "[\"tool_call\"]");
    let tool = |name: &str, id: &str| {
        map(json!({
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.conversation.id": "tools",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": id,
            "gen_ai.tool.type": "function",
        }))
    };
    assert_eq!(attributes(&spans[1]), tool("search", "call-1"));
    assert_eq!(attributes(&spans[6]), tool("charge", "tools:2:0:charge:257e76806bff"));
    assert_eq!(spans[6].span_kind, SpanKind::Internal);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_one_span_and_a_failure_has_its_type() {
    let model = ScriptedModel::new().error(status(429)).response(response("Hello!"));
    let engine = engine(model.clone());
    say(&engine, "retried", "hi").await.unwrap();
    let _ = model.clone().error(status(401));
    say(&engine, "failed", "hi").await.unwrap_err();
    let _ = model.clone().delay(Duration::from_secs(60)).text("late");
    let _ = model.clone().delay(Duration::from_secs(60)).text("late");
    let _ = model.delay(Duration::from_secs(60)).text("late");
    say(&engine, "late", "hi").await.unwrap_err();
    for (session, error) in
        [("retried", None), ("failed", Some("401")), ("late", Some("model-timeout"))]
    {
        let spans = spans(session);
        assert_eq!(spans.len(), 1, "{spans:?}");
        let told = attributes(&spans[0]).remove("error.type");
        assert_eq!(told, error.map(Value::from), "{session}");
        assert_eq!(spans[0].status == Status::error(""), error.is_some(), "{:?}", spans[0]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_cancelled_turn_was_doing_is_cancelled() {
    let engine = engine(ScriptedModel::new().tool_call("hang", json!({})));
    let request = TurnRequest::new(SessionId::new("cancelled").unwrap()).message("hang");
    let mut turn = engine.turn::<Hotel>(request);
    while let Some(event) = turn.next_event().await {
        if event.name() == "tool-call" {
            turn.cancel();
        }
    }
    turn.await.unwrap_err();
    let spans = spans("cancelled");
    assert_eq!(spans[1].name, "execute_tool hang");
    assert_eq!(attributes(&spans[1])["error.type"], "cancelled");
}

#[tokio::test]
async fn a_call_outside_of_a_turn_has_its_span_too() {
    exporter();
    let model = ScriptedModel::new().text("{}");
    let schema = schemars::json_schema!({ "type": "object" });
    let request = ChatRequest::new(Vec::new())
        .output(OutputSchema { name: "form".into(), schema })
        .stop(vec!["END".into(), "\n\n".into()]);
    complete(&model, "xai::grok-alone", &request, &CallPolicy::default()).await.unwrap();
    let spans = exporter().get_finished_spans().unwrap();
    let span = spans.iter().find(|span| span.name == "chat grok-alone").unwrap();
    assert_eq!(
        attributes(span),
        map(json!({
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "x_ai",
            "gen_ai.request.model": "grok-alone",
            "gen_ai.request.stop_sequences": "[\"END\",\"\\n\\n\"]",
            "gen_ai.output.type": "json",
            "gen_ai.response.finish_reasons": "[\"stop\"]",
        }))
    );
}
