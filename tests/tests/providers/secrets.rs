//! Keys go to the provider and nowhere else.

use std::io;
use std::process::Command;
use std::sync::{Arc, Mutex};

use flow_core::error::StepError;
use flow_core::model::provider::{self, ProviderModel};
use flow_core::model::{CallPolicy, ChatModel as _, ModelConfig, Sampling, complete};
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::{Engine, TurnRequest};
use tests::model_server::{Answer, ModelServer};
use tracing_subscriber::fmt::MakeWriter;

use super::{WIRES, at_once, hello, streamed};

const CANARY: &str = "sk-canary-7f3a";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// Keeps all that this thread logs.
    fn capture() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(log.clone())
            .with_max_level(tracing::Level::TRACE)
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[tokio::test]
async fn a_key_is_in_no_log_error_or_debug() {
    let (log, _guard) = Log::capture();
    for (wire, provider) in [
        (WIRES[1], "openai"),
        (WIRES[1], "openai-compatible"),
        (WIRES[1], "groq"),
        (WIRES[3], "anthropic"),
    ] {
        let script = [
            Answer::error(500, "oops"),
            Answer::error(401, "wrong key"),
            wire.text(&["One ", "two"]).cut_before("two"),
            wire.text(&["One"]),
        ];
        let server = ModelServer::start(script).await;
        let model = ProviderModel::builder(provider, "m")
            .base_url(server.url("/v1"))
            .key(CANARY)
            .build()
            .unwrap();
        let mut told = format!("{model:?}");
        let error = complete(&model, "m", &hello(), &at_once()).await.unwrap_err();
        told += &format!("{error} {error:?}");
        let error = streamed(&model, &hello()).await.unwrap_err();
        told += &format!("{error} {error:?}");
        let (_, response) = streamed(&model, &hello()).await.unwrap();
        told += &format!("{response:?}");
        assert!(!told.contains(CANARY), "{told}");
        for request in server.requests() {
            let header = if provider == "anthropic" { "x-api-key" } else { "authorization" };
            assert!(request.headers[header].contains(CANARY), "{provider}");
            assert!(!request.body.to_string().contains(CANARY) && !request.path.contains(CANARY));
        }
    }
    let log = log.text();
    assert!(log.contains("model call failed, trying again"), "the log was on: {log}");
    assert!(!log.contains(CANARY), "{log}");
}

#[tokio::test]
async fn a_key_that_the_provider_repeats_is_taken_out() {
    for wire in WIRES {
        let answer = Answer::error(401, "Incorrect API key provided: sk-test.");
        let error = wire.ask_one(answer).await.unwrap_err();
        assert!(error.to_string().ends_with("Incorrect API key provided: [key]."), "{error}");
    }
}

#[tokio::test]
async fn keys_do_not_follow_redirects() {
    for wire in WIRES {
        let elsewhere = ModelServer::start([wire.text(&["caught"])]).await;
        let answer = Answer::bytes(307, "text/plain", "").header("location", elsewhere.url("/v1"));
        let error = wire.ask_one(answer).await.unwrap_err();
        assert_eq!(error.code(), "model-status", "{error}");
        assert_eq!(elsewhere.requests().len(), 0, "{wire:?}");
    }
}

#[tokio::test]
async fn a_local_server_is_asked_without_a_key() {
    let server = ModelServer::start([WIRES[0].text(&["Hi"])]).await;
    let model = ProviderModel::builder("openai-compatible", "qwen3-max")
        .base_url(server.url("/v1?version=2"))
        .key("")
        .build();
    // An empty key is none.
    let response = model.unwrap().complete(&hello()).await.unwrap();
    assert_eq!(response.text(), "Hi");
    let request = server.requests().remove(0);
    assert_eq!(request.path, "/v1/chat/completions?version=2");
    assert!(!request.headers.contains_key("authorization"), "{request:?}");
    // The end of the name is no reasoning effort.
    assert_eq!(request.body["model"], "qwen3-max");
    assert_eq!(request.body.get("reasoning_effort"), None);
}

/// Talks through whatever model the test chooses.
#[flow(id = "chat", steps(Chat))]
#[derive(Clone)]
struct Chatter {
    config: ModelConfig,
}

impl Flow for Chatter {
    fn config_model(&self) -> Option<ModelConfig> {
        Some(self.config.clone())
    }

    fn config_call_policy(&self) -> CallPolicy {
        at_once()
    }

    async fn on_error(
        &self,
        error: &StepError,
        cx: &mut StepCx<'_, Self>,
    ) -> Result<Option<Transition>> {
        cx.emit("failed", format!("{error} {error:?}"))?;
        Ok(None)
    }
}

#[step(reply, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Chat {
    failures: Vec<String>,
}

impl Reply for Chat {
    type Flow = Chatter;

    async fn on_model_error(
        &mut self,
        error: &flow_core::model::ModelError,
        _: &mut StepCx<'_, Chatter>,
    ) -> Result<Recovery<ChatNext>> {
        // The step writes into the document what it is told.
        self.failures.push(format!("{error} {error:?}"));
        Ok(match error.code() {
            "model-refused" => Recovery::Answer("Sorry.".to_owned()),
            _ => Recovery::Pass,
        })
    }
}

/// Set where the test below runs once more, with secrets in its environment.
const CHILD: &str = "FLOW_TEST_SECRETS";

/// In the query of the base URL.
const URL_CANARY: &str = "url-canary-51c0";

/// A turn is run in a process of its own, since only there can its environment hold secrets.
#[tokio::test]
async fn secrets_are_in_no_document_event_error_or_log() {
    if std::env::var_os(CHILD).is_some() {
        return keep_secrets().await;
    }
    let wire = WIRES[1];
    let echo = format!("wrong key {CANARY} for http://h/v1?api_key={URL_CANARY}");
    let blocked = serde_json::json!({ "error": { "code": "content_filter", "message": echo } });
    let server = ModelServer::start([
        Answer::json(400, &blocked),
        Answer::error(500, &echo).header("x-request-key", CANARY),
        Answer::error(401, &echo).header("www-authenticate", CANARY),
        Answer::bytes(200, "text/plain", echo.clone()),
        Answer::bytes(200, "text/plain", echo.clone()),
        Answer::events([(None, format!("{{ \"choices\": {echo}"))]),
        wire.text(&["Hello!"]),
    ])
    .await;
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "secrets::secrets_are_in_no_document_event_error_or_log", "--nocapture"])
        .env(CHILD, "1")
        .env("OPENAI_COMPATIBLE_API_KEY", CANARY)
        .env("OPENAI_COMPATIBLE_BASE_URL", server.url(&format!("/v1?api_key={URL_CANARY}")));
    let output = tokio::process::Command::from(child).output().await.unwrap();
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{printed}");
    for canary in [CANARY, URL_CANARY] {
        assert!(!printed.contains(canary), "{printed}");
    }
    let requests = server.requests();
    assert_eq!((requests.len(), server.left()), (7, 0), "{printed}");
    for request in requests {
        // The secrets were there, and went where they belong.
        assert_eq!(request.headers["authorization"], format!("Bearer {CANARY}"));
        assert!(request.path.ends_with(&format!("?api_key={URL_CANARY}")), "{}", request.path);
    }
}

/// The turns, in the process with the secrets.
async fn keep_secrets() {
    let (log, _guard) = Log::capture();
    let mut told = String::new();
    let model = || ModelConfig::new("openai-compatible::m".parse().unwrap());
    let engine = |config: ModelConfig| {
        let builder = Engine::builder().store(MemoryStore::new()).models(provider::catalog());
        builder.flow(Chatter { config }).build().unwrap()
    };
    let session = SessionId::new("s").unwrap();
    let say = || TurnRequest::new(session.clone()).message("hi");

    let chat = engine(model());
    let mut codes = Vec::new();
    for _ in 0..4 {
        let mut turn = chat.turn::<Chatter>(say());
        while let Some(event) = turn.next_event().await {
            told += &format!("{event:?} {}", serde_json::to_string(&event).unwrap());
        }
        match turn.await {
            Ok(outcome) => {
                told += &format!("{outcome:?}");
                codes.push(outcome.replies.join("|"));
            }
            Err(error) => {
                told += &format!("{error} {error:?}");
                codes.push(error.code().to_owned());
            }
        }
        let doc = chat.session(session.clone()).load().await.unwrap();
        told += &serde_json::to_string(&doc).unwrap();
    }
    assert_eq!(codes, ["Sorry.", "model-status", "model-malformed", "Hello!"]);
    assert!(told.contains("[key]"), "the provider's words were told: {told}");
    assert!(told.contains("\"error\":{\"code\":\"model-status\""), "errors are recorded: {told}");

    for extra in ["api_key", "headers"] {
        let value = match extra {
            "headers" => serde_json::json!({ "Authorization": CANARY }),
            _ => serde_json::json!(CANARY),
        };
        let config = model().sampling(Sampling::default().extra(extra, value));
        told += &format!("{config:?}");
        let error = engine(config).turn::<Chatter>(say()).await.unwrap_err();
        assert_eq!(error.code(), "model-parameter");
        told += &format!("{error} {error:?}");
    }

    let log = log.text();
    assert!(log.contains("turn failed") && log.contains("model call failed"), "{log}");
    for canary in [CANARY, URL_CANARY] {
        let places = [("told", &told), ("log", &log)];
        let found: Vec<_> = places
            .iter()
            .filter_map(|(place, text)| {
                let at = text.find(canary)?;
                let around = &text[at.saturating_sub(300)..at];
                Some(format!("{place}: {around}<a secret>"))
            })
            .collect();
        assert!(found.is_empty(), "{found:?}");
    }
}
