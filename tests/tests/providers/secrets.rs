//! Keys go to the provider and nowhere else.

use std::io;
use std::sync::{Arc, Mutex};

use flow_core::model::provider::ProviderModel;
use flow_core::model::{ChatModel as _, complete};
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

#[tokio::test]
async fn a_key_is_in_no_log_error_or_debug() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_max_level(tracing::Level::TRACE)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
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
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
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
