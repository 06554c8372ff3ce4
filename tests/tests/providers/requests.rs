//! The exact JSON that is sent.

use flow_core::message::{Media, MediaSource, Part, Role};
use flow_core::model::provider::ProviderModel;
use flow_core::model::{ChatModel as _, ChatRequest, OutputSchema, Sampling, ToolChoice};
use flow_core::tool::ToolDefinition;
use serde_json::{Value, json};
use tests::model_server::{Answer, ModelServer};

use super::{WIRES, call, hello, result, say};

/// What each provider is asked, with the path.
async fn sent(provider: &str, name: &str, request: &ChatRequest) -> (String, Value) {
    // The answer does not matter here.
    let server = ModelServer::start([Answer::error(400, "no")]).await;
    let model = ProviderModel::builder(provider, name)
        .base_url(server.url("/v1/"))
        .key("sk-test")
        .build()
        .unwrap();
    let error = model.complete(request).await.unwrap_err();
    assert_eq!(error.code(), "model-status", "{error}");
    let request = server.requests().remove(0);
    (request.path, request.body)
}

fn media(media_type: &str, source: MediaSource, name: Option<&str>) -> Media {
    Media { media_type: media_type.into(), source, name: name.map(Into::into) }
}

/// A conversation with every kind of part that all providers take.
fn conversation() -> ChatRequest {
    let png = media("image/png", MediaSource::Base64("iVBORw0KGgo=".into()), None);
    ChatRequest::new(vec![
        say(Role::User, vec![Part::text("What is this, and how is the weather there?"), Part::Image(png)]),
        say(
            Role::Assistant,
            vec![
                Part::Reasoning { text: "It is a tower.".into(), signature: None },
                Part::Reasoning { text: "Which?".into(), signature: Some("acme:sig".into()) },
                Part::text("Let me look."),
                call("call:1", "weather", json!({ "city": "Paris" })),
                call("call:2", "weather", json!("{broken")),
            ],
        ),
        say(
            Role::Tool,
            vec![
                result("call:1", "weather", "{\"celsius\":7}", false),
                result("call:2", "weather", "`city` is missing", true),
            ],
        ),
        say(Role::Assistant, vec![Part::text("  "), Part::text("Seven degrees.")]),
        // Nothing is said here.
        say(Role::Assistant, vec![]),
        say(Role::User, vec![Part::text("")]),
        say(Role::User, vec![Part::text("And tomorrow?")]),
    ])
    .system("Be brief.")
    .tools(vec![ToolDefinition::new(
        "weather",
        "The weather of a city.",
        json!({
            "type": "object",
            "properties": { "city": { "type": "string" }, "days": { "type": "integer", "format": "uint8" } },
            "required": ["city"]
        }),
    )])
    .tool_choice(ToolChoice::Tool("weather".into()))
    .sampling(Sampling::default().temperature(0.25).top_p(0.5).max_output_tokens(300).seed(7))
    .stop(vec!["END".into()])
}

const PROVIDERS: [(&str, &str); 10] = [
    ("openai", "gpt-5.1-mini"),
    ("openai-responses", "gpt-5.1-mini"),
    ("anthropic", "claude-sonnet-4-5"),
    ("gemini", "gemini-2.5-flash"),
    ("ollama", "qwen3"),
    ("openrouter", "meta/llama-4"),
    ("deepseek", "deepseek-chat"),
    ("groq", "llama-4"),
    ("xai", "grok-4"),
    ("openai-compatible", "local"),
];

#[tokio::test]
async fn a_conversation_in_every_dialect() {
    for (provider, name) in PROVIDERS {
        let mut request = conversation();
        if provider == "openai-responses" {
            let model = ProviderModel::builder(provider, name).key("k").build().unwrap();
            let error = model.complete(&request).await.unwrap_err();
            assert_eq!(error.code(), "model-unsupported", "{error}");
            request.stop.clear();
        }
        let (path, body) = sent(provider, name, &request).await;
        insta::assert_json_snapshot!(
            format!("conversation_{provider}"),
            json!({ "path": path, "body": body })
        );
    }
}

#[tokio::test]
async fn streams_are_asked_for_as_such() {
    for wire in WIRES.into_iter().filter(|wire| wire.streamed) {
        let server = ModelServer::start([wire.text(&["Hi"])]).await;
        wire.ask(&wire.model(&server), &hello()).await.unwrap();
        let name = if wire.anthropic { "stream_anthropic" } else { "stream_openai" };
        insta::assert_json_snapshot!(name, server.last_body());
    }
}

#[tokio::test]
async fn output_by_schema_in_every_dialect() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "guests": { "type": "integer", "format": "uint8", "minimum": 0, "maximum": 255 },
            "note": { "type": ["string", "null"], "default": null }
        },
        "required": ["guests"]
    });
    let output = OutputSchema { name: "booking".into(), schema: schema.try_into().unwrap() };
    for (provider, name) in &PROVIDERS[..5] {
        let (_, body) = sent(provider, name, &hello().output(output.clone())).await;
        insta::assert_json_snapshot!(format!("output_{provider}"), body);
    }
}

#[tokio::test]
async fn tool_choices_are_sent_with_tools() {
    let with = |choice| conversation().tool_choice(choice);
    for (choice, openai, anthropic) in [
        (ToolChoice::Auto, Value::Null, Value::Null),
        (ToolChoice::None, json!("none"), json!({ "type": "none" })),
        (ToolChoice::Required, json!("required"), json!({ "type": "any" })),
    ] {
        let (_, body) = sent("openai", "m", &with(choice.clone())).await;
        assert_eq!(body["tool_choice"], openai);
        let (_, body) = sent("anthropic", "m", &with(choice.clone())).await;
        assert_eq!(body["tool_choice"], anthropic);
        let (_, body) = sent("openai", "m", &hello().tool_choice(choice)).await;
        assert_eq!((body.get("tool_choice"), body.get("tools")), (None, None));
    }
    let (_, body) = sent("ollama", "m", &with(ToolChoice::None)).await;
    assert_eq!(body.get("tools"), None);
}

#[tokio::test]
async fn efforts_and_extra_parameters_are_sent() {
    let mut sampling = Sampling::default().reasoning_effort("low");
    sampling.extra.insert("service_tier".into(), json!("flex"));
    let request = hello().sampling(sampling);
    let (_, body) = sent("openai", "gpt-5.1-mini", &request).await;
    assert_eq!((&body["reasoning_effort"], &body["service_tier"]), (&json!("low"), &json!("flex")));
    let (_, body) = sent("openai-responses", "gpt-5.1-mini", &request).await;
    assert_eq!(body["reasoning"], json!({ "effort": "low", "summary": "detailed" }));
    let (_, body) = sent("anthropic", "claude-opus-4-5", &request).await;
    assert_eq!(body["output_config"]["effort"], "low");
    // Words of a provider's own.
    let own = hello().sampling(Sampling::default().reasoning_effort("default"));
    let (_, body) = sent("groq", "qwen3", &own).await;
    assert_eq!(body["reasoning_effort"], "default");
    let model = ProviderModel::builder("anthropic", "m").key("k").build().unwrap();
    let error = model.complete(&own).await.unwrap_err();
    assert_eq!(error.code(), "model-unsupported", "{error}");
}

#[tokio::test]
async fn files_and_images_in_every_dialect() {
    let url = |path: &str| MediaSource::Url(format!("https://example.com/{path}"));
    let pdf = || MediaSource::Base64("JVBERi0=".into());
    let image = Part::Image(media("image/jpeg", url("a.jpg"), None));
    let file = Part::File(media("application/pdf", pdf(), Some("a.pdf")));
    let linked = Part::File(media("application/pdf", url("b.pdf"), Some("b.pdf")));
    let with = |part: &Part| ChatRequest::new(vec![say(Role::User, vec![part.clone()])]);
    let mut all = serde_json::Map::new();
    for (provider, name) in &PROVIDERS[..5] {
        for (kind, part) in [("image by URL", &image), ("file", &file), ("file by URL", &linked)] {
            let ok = match *provider {
                "openai" | "ollama" => kind != "file by URL",
                _ => true,
            };
            if ok {
                let (_, body) = sent(provider, name, &with(part)).await;
                let message = [&body["messages"][0], &body["input"][0], &body["contents"][0]];
                let message = message.into_iter().find(|value| !value.is_null());
                all.insert(format!("{provider}: {kind}"), message.unwrap().clone());
            } else {
                let model = ProviderModel::builder(*provider, *name).key("k").build().unwrap();
                let error = model.complete(&with(part)).await.unwrap_err();
                assert_eq!(error.code(), "model-unsupported", "{provider} {kind}");
                assert!(error.to_string().contains("Base64"), "{error}");
            }
        }
    }
    insta::assert_json_snapshot!("media", all);
}
