//! Gemini and OpenAI's responses: what of them is not like the others.

use flow_core::message::{Part, Role};
use flow_core::model::provider::{self, ProviderModel};
use flow_core::model::{ChatModel as _, FinishReason, ModelError, ModelEvent};
use serde_json::{Value, json};
use tests::model_server::{Answer, ModelServer};

use super::{call, hello, say, streamed};

fn model(provider: &str, server: &ModelServer) -> ProviderModel {
    ProviderModel::builder(provider, "m").base_url(server.url("/")).key("k").build().unwrap()
}

fn gemini(parts: Value, finish: Option<&str>) -> Value {
    let content = json!({ "role": "model", "parts": parts });
    json!({
        "responseId": "r1",
        "modelVersion": "gemini-test",
        "candidates": [{ "content": content, "finishReason": finish }],
        "usageMetadata": {
            "promptTokenCount": 20, "candidatesTokenCount": 5, "thoughtsTokenCount": 4,
            "cachedContentTokenCount": 16
        }
    })
}

/// The events of a stream without names.
fn events(events: &[Value]) -> Answer {
    Answer::events(events.iter().map(|event| (None, event.to_string())))
}

#[tokio::test]
async fn gemini_calls_get_unique_ids_and_keep_their_signatures() {
    let calls = |n: u8| {
        let function = json!({ "name": "search", "args": { "n": n } });
        json!([{ "functionCall": function, "thoughtSignature": format!("sig{n}") }])
    };
    let both = [calls(1), calls(2)].map(|call| call[0].clone());
    let script = [
        Answer::json(200, &gemini(json!(both), Some("STOP"))),
        events(&[gemini(calls(1), None), gemini(calls(2), Some("STOP"))]),
        Answer::json(200, &gemini(json!([{ "text": "Done." }]), Some("STOP"))),
    ];
    let server = ModelServer::start(script).await;
    let model = model("gemini", &server);
    let whole = model.complete(&hello()).await.unwrap();
    let (begun, streamed) = streamed(&model, &hello()).await.unwrap();

    let mut ids = Vec::new();
    for response in [&whole, &streamed] {
        assert_eq!(response.finish, FinishReason::ToolCalls);
        let usage = response.usage;
        let tokens = [usage.input, usage.output, usage.cached, usage.reasoning];
        assert_eq!(tokens, [20, 9, 16, 4]);
        assert_eq!(response.metadata["id"], "r1");
        let arguments: Vec<&Value> = response.tool_calls().map(|call| &call.arguments).collect();
        assert_eq!(arguments, [&json!({ "n": 1 }), &json!({ "n": 2 })]);
        ids.extend(response.tool_calls().map(|call| call.id.clone()));
    }
    let told: Vec<&String> = begun
        .iter()
        .filter_map(|event| match event {
            ModelEvent::ToolCallStart { id, .. } => Some(id),
            _ => None,
        })
        .collect();
    assert_eq!(told, [&ids[2], &ids[3]]);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "{ids:?}");

    // Each goes back with its signature, and without an id that Gemini has not given.
    let mut request = hello();
    request.messages.push(say(Role::Assistant, streamed.parts));
    model.complete(&request).await.unwrap();
    let expected = json!([
        { "functionCall": { "name": "search", "args": { "n": 1 } }, "thoughtSignature": "sig1" },
        { "functionCall": { "name": "search", "args": { "n": 2 } }, "thoughtSignature": "sig2" }
    ]);
    assert_eq!(server.last_body()["contents"][1]["parts"], expected);
}

#[tokio::test]
async fn gemini_blocks_prompts_and_answers() {
    let blocked = json!({ "promptFeedback": { "blockReason": "PROHIBITED_CONTENT" } });
    let unsafe_answer = gemini(json!([]), Some("SAFETY"));
    for (body, why) in [(blocked, "PROHIBITED_CONTENT"), (unsafe_answer, "SAFETY")] {
        let server =
            ModelServer::start([Answer::json(200, &body), events(std::slice::from_ref(&body))])
                .await;
        let model = model("gemini", &server);
        let whole = model.complete(&hello()).await.unwrap_err();
        let streamed = streamed(&model, &hello()).await.unwrap_err();
        for error in [whole, streamed] {
            let ModelError::Refused { reason, .. } = &error else { panic!("{why} {error:?}") };
            assert_eq!(reason, why);
        }
    }
}

#[tokio::test]
async fn a_gemini_stream_that_ends_without_a_reason_is_broken() {
    let server = ModelServer::start([events(&[gemini(json!([{ "text": "One" }]), None)])]).await;
    let error = streamed(&model("gemini", &server), &hello()).await.unwrap_err();
    assert_eq!(error.code(), "model-connection", "{error}");
}

fn responses(status: &str, output: &Value) -> Value {
    json!({
        "id": "resp_1", "object": "response", "status": status, "model": "gpt-test",
        "created_at": 0, "output": output,
        "usage": {
            "input_tokens": 20, "input_tokens_details": { "cached_tokens": 16 },
            "output_tokens": 9, "output_tokens_details": { "reasoning_tokens": 4 },
            "total_tokens": 29
        }
    })
}

#[tokio::test]
async fn responses_tell_of_calls_only_at_their_end() {
    let output = json!([
        { "type": "reasoning", "id": "rs_1", "encrypted_content": "blob",
            "summary": [{ "type": "summary_text", "text": "Hm." }] },
        { "type": "message", "id": "m_1", "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": "Let me look.", "annotations": [] }] },
        { "type": "function_call", "id": "fc_1", "call_id": "call_x", "name": "search",
            "arguments": "{\"city\":\"Lisbon\"}", "status": "completed" }
    ]);
    let body = responses("completed", &output);
    let deltas = [
        json!({ "type": "response.created", "response": responses("in_progress", &json!([])) }),
        json!({ "type": "response.output_text.delta", "delta": "Let me look." }),
        json!({ "type": "response.completed", "response": body }),
    ];
    let script = [Answer::json(200, &body), events(&deltas), Answer::json(200, &body)];
    let server = ModelServer::start(script).await;
    let model = model("openai-responses", &server);
    let whole = model.complete(&hello()).await.unwrap();
    let (events, streamed) = streamed(&model, &hello()).await.unwrap();
    let lisbon = call("call_x", "search", json!({ "city": "Lisbon" }));
    let signature = Some("openai-responses:blob".to_owned());
    let reasoning = Part::Reasoning { text: "Hm.".to_owned(), signature };
    assert_eq!(whole.parts, [reasoning, Part::text("Let me look."), lisbon.clone()]);
    assert_eq!(streamed.parts, [Part::text("Let me look."), lisbon]);
    for response in [&whole, &streamed] {
        assert_eq!(response.finish, FinishReason::ToolCalls);
        assert_eq!(response.metadata["id"], "resp_1");
        assert_eq!((response.usage.cached, response.usage.reasoning), (16, 4));
    }
    let (id, name) = ("call_x".to_owned(), "search".to_owned());
    assert_eq!(events[1], ModelEvent::ToolCallStart { id, name });

    let mut request = hello();
    request.messages.push(say(Role::Assistant, whole.parts));
    model.complete(&request).await.unwrap();
    let sent = server.last_body();
    assert_eq!(sent["input"][1]["encrypted_content"], "blob");
    assert_eq!(sent["store"], false);
}

#[tokio::test]
async fn responses_refuse_fail_and_are_cut() {
    let refusal = json!([{ "type": "message", "id": "m", "role": "assistant",
        "content": [{ "type": "refusal", "refusal": "No, no, no." }] }]);
    let refused = responses("completed", &refusal);
    let deltas = [
        json!({ "type": "response.refusal.delta", "delta": "No" }),
        json!({ "type": "response.refusal.delta", "delta": ", no" }),
        json!({ "type": "response.refusal.delta", "delta": ", no." }),
        json!({ "type": "response.completed", "response": refused }),
    ];
    let mut filtered = responses("incomplete", &json!([]));
    filtered["incomplete_details"] = json!({ "reason": "content_filter" });
    let mut cut = responses("incomplete", &json!([]));
    cut["incomplete_details"] = json!({ "reason": "max_output_tokens" });
    let mut failed = responses("failed", &json!([]));
    failed["error"] = json!({ "code": "rate_limit_exceeded", "message": "slow down" });
    let script = [
        Answer::json(200, &refused),
        events(&deltas),
        Answer::json(200, &filtered),
        Answer::json(200, &cut),
        Answer::json(200, &failed),
    ];
    let server = ModelServer::start(script).await;
    let model = model("openai-responses", &server);
    let refused = |reason: &str| {
        let (model, reason) = ("openai-responses::m".to_owned(), reason.to_owned());
        ModelError::Refused { model, reason }
    };
    assert_eq!(model.complete(&hello()).await, Err(refused("No, no, no.")));
    assert_eq!(streamed(&model, &hello()).await, Err(refused("No, no, no.")));
    assert_eq!(model.complete(&hello()).await, Err(refused("content_filter")));
    assert_eq!(model.complete(&hello()).await.unwrap().finish, FinishReason::Length);
    let error = model.complete(&hello()).await.unwrap_err();
    assert!(matches!(error, ModelError::Status { status: 429, .. }), "{error:?}");
}

#[tokio::test]
async fn the_catalog_has_all_providers() {
    let known = format!("{:?}", provider::catalog());
    for name in [
        "openai",
        "openai-responses",
        "anthropic",
        "gemini",
        "ollama",
        "openrouter",
        "deepseek",
        "groq",
        "xai",
        "openai-compatible",
    ] {
        assert!(known.contains(&format!("\"{name}\"")), "{known}");
    }
    assert!(provider::catalog().find(&"ollama::qwen3".parse().unwrap()).is_ok());
    let unknown = provider::catalog().find(&"acme::m".parse().unwrap()).err().unwrap();
    assert_eq!(unknown.code(), "unknown-model");
}
