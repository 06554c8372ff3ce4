//! What goes wrong, and what is tried again.

use std::time::Duration;

use flow_core::model::provider::ProviderModel;
use flow_core::model::{ChatModel as _, ModelError, ModelEvent, complete};
use futures_util::StreamExt as _;
use serde_json::json;
use tests::model_server::{Answer, ModelServer, anthropic, openai};
use tokio::net::TcpListener;

use super::{WIRES, Wire, at_once, hello};

#[tokio::test]
async fn statuses_and_messages_are_told() {
    for wire in WIRES {
        for (status, retryable) in
            [(400, false), (401, false), (404, false), (429, true), (500, true), (529, true)]
        {
            let error = wire.ask_one(Answer::error(status, "so it goes")).await.unwrap_err();
            let ModelError::Status { status: told, message, retry_after, .. } = &error else {
                panic!("{wire:?} {error:?}")
            };
            assert_eq!((*told, message.as_str(), *retry_after), (status, "so it goes", None));
            assert_eq!(error.retryable(), retryable, "{status}");
        }
    }
}

#[tokio::test]
async fn a_long_message_is_shortened() {
    for wire in WIRES {
        let page = format!("<html>{}</html>", "ö".repeat(10_000));
        let error = wire.ask_one(Answer::bytes(502, "text/html", page)).await.unwrap_err();
        let message = error.to_string();
        assert!(message.len() < 700 && message.contains("<html>ööö"), "{wire:?} {message}");
    }
}

#[tokio::test]
async fn the_provider_says_how_long_to_wait() {
    let in_an_hour = std::time::SystemTime::now() + Duration::from_secs(3600);
    let in_an_hour = http_date(in_an_hour);
    for wire in WIRES {
        let asked = async |name, value: &str| {
            let answer = Answer::error(429, "slow down").header(name, value);
            wire.ask_one(answer).await.unwrap_err().retry_after()
        };
        assert_eq!(asked("retry-after", "7").await, Some(Duration::from_secs(7)), "{wire:?}");
        assert_eq!(asked("retry-after-ms", "250").await, Some(Duration::from_millis(250)));
        let until = asked("retry-after", &in_an_hour).await.unwrap();
        assert!((3500..=3600).contains(&until.as_secs()), "{wire:?} {until:?}");
        let past = asked("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT").await;
        assert_eq!(past, Some(Duration::ZERO), "{wire:?}");
    }
}

/// The form of dates in HTTP.
fn http_date(time: std::time::SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time).unwrap();
    jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap()
}

#[tokio::test]
async fn what_may_pass_is_tried_again() {
    for wire in WIRES.into_iter().filter(|wire| !wire.streamed) {
        let script = [
            Answer::error(429, "slow down").header("retry-after", "0"),
            Answer::error(500, "oops"),
            wire.text(&["Here."]),
        ];
        let server = ModelServer::start(script).await;
        let response = complete(&wire.model(&server), "m", &hello(), &at_once()).await.unwrap();
        assert_eq!(response.text(), "Here.");
        let requests = server.requests();
        assert_eq!(requests.len(), 3);
        assert_eq!(requests[0].body, requests[2].body);
    }
}

#[tokio::test]
async fn what_may_not_pass_is_asked_once() {
    for wire in WIRES.into_iter().filter(|wire| !wire.streamed) {
        for refused in [Answer::error(400, "bad"), wire.refusal("No.")] {
            let server = ModelServer::start([refused, wire.text(&["Here."])]).await;
            complete(&wire.model(&server), "m", &hello(), &at_once()).await.unwrap_err();
            assert_eq!(server.requests().len(), 1, "{wire:?}");
        }
    }
}

#[tokio::test]
async fn attempts_end_with_the_last_error() {
    let script = (1..=4).map(|n| Answer::error(500, &format!("failure {n}")));
    let server = ModelServer::start(script).await;
    let error = complete(&WIRES[0].model(&server), "m", &hello(), &at_once()).await.unwrap_err();
    assert!(error.to_string().contains("failure 3"), "{error}");
    assert_eq!(server.left(), 1);
}

impl Wire {
    pub(super) fn refusal(self, why: &str) -> Answer {
        match (self.anthropic, self.streamed) {
            (false, false) => {
                let message = json!({ "role": "assistant", "content": null, "refusal": why });
                openai::completion(&message, "stop")
            }
            (false, true) => {
                let (head, tail) = why.split_at(2);
                openai::stream([json!({ "refusal": head }), json!({ "refusal": tail })], "stop")
            }
            (true, false) => anthropic::message(&json!([]), "refusal"),
            (true, true) => anthropic::stream([], "refusal"),
        }
    }
}

#[tokio::test]
async fn a_refusal_is_its_own_class() {
    for wire in WIRES {
        let error = wire.ask_one(wire.refusal("No, I will not.")).await.unwrap_err();
        let ModelError::Refused { reason, .. } = &error else { panic!("{wire:?} {error:?}") };
        let why = if wire.anthropic { "refusal" } else { "No, I will not." };
        assert_eq!(reason, why, "{wire:?}");
        assert!(!error.retryable());
    }
}

#[tokio::test]
async fn blocked_content_is_a_refusal() {
    for wire in WIRES.into_iter().filter(|wire| !wire.anthropic) {
        let answer = wire.answer(&["Some"], &[], "content_filter");
        let error = wire.ask_one(answer).await.unwrap_err();
        assert_eq!(error.code(), "model-refused", "{wire:?}");
        let body = json!({ "error": { "code": "content_filter", "message": "filtered" } });
        let error = wire.ask_one(Answer::json(400, &body)).await.unwrap_err();
        assert_eq!(error.code(), "model-refused", "{wire:?}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_is_told() {
    for wire in WIRES {
        let answer = wire.text(&["One ", "two ", "three"]).cut_before("three");
        let server = ModelServer::start([answer]).await;
        let model = wire.model(&server);
        if !wire.streamed {
            let error = model.complete(&hello()).await.unwrap_err();
            assert_eq!(error.code(), "model-connection", "{wire:?} {error}");
            continue;
        }
        let events: Vec<_> = model.stream(&hello()).await.unwrap().collect().await;
        assert_eq!(events[0], Ok(ModelEvent::TextDelta("One ".to_owned())), "{wire:?}");
        let error = events.last().unwrap().as_ref().unwrap_err();
        assert_eq!(error.code(), "model-connection", "{wire:?} {error}");
        assert!(error.retryable());
        assert_eq!(events.iter().filter(|event| event.is_err()).count(), 1, "{wire:?}");
    }
}

#[tokio::test]
async fn a_stream_that_ends_early_without_an_error_is_told() {
    for wire in WIRES.into_iter().filter(|wire| wire.streamed) {
        let body = match wire.anthropic {
            true => "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n",
            false => "data: {\"choices\":[{\"delta\":{\"content\":\"One\"}}]}\n\n",
        };
        let answer = Answer::bytes(200, "text/event-stream", body);
        let error = wire.ask_one(answer).await.unwrap_err();
        assert_eq!(error.code(), "model-connection", "{wire:?} {error}");
    }
}

#[tokio::test]
async fn an_error_in_a_stream_is_told_by_its_status() {
    let overloaded = json!({ "type": "overloaded_error", "message": "too much" });
    let event = json!({ "type": "error", "error": overloaded }).to_string();
    let first = json!({ "choices": [{ "delta": { "content": "One" } }] }).to_string();
    for (wire, events) in [
        (WIRES[1], vec![(None, first), (None, event.clone())]),
        (WIRES[3], vec![(Some("error"), event)]),
    ] {
        let error = wire.ask_one(Answer::events(events)).await.unwrap_err();
        let ModelError::Status { status, message, .. } = &error else { panic!("{error:?}") };
        assert_eq!((*status, message.as_str()), (529, "too much"), "{wire:?}");
        assert!(error.retryable());
    }
}

#[tokio::test]
async fn answers_that_cannot_be_read_are_malformed() {
    for wire in WIRES {
        let answer = match wire.streamed {
            true => Answer::events([(Some("message_start"), "{\"choices\": [".to_owned())]),
            false => Answer::bytes(200, "application/json", "{\"choices\": ["),
        };
        let error = wire.ask_one(answer).await.unwrap_err();
        assert_eq!(error.code(), "model-malformed", "{wire:?} {error}");
        assert!(error.retryable());
    }
    for wire in [WIRES[0], WIRES[2]] {
        let error = wire.ask_one(Answer::json(200, &json!({ "id": "x" }))).await.unwrap_err();
        assert_eq!(error.code(), "model-malformed", "{wire:?} {error}");
        // The request is not repeated in the error.
        assert!(!error.to_string().contains("Hello"), "{error}");
    }
    let body = json!({ "error": { "code": 429, "message": "upstream is busy" } });
    let error = WIRES[0].ask_one(Answer::json(200, &body)).await.unwrap_err();
    assert!(matches!(&error, ModelError::Status { status: 429, .. }), "{error:?}");
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://user:canary@{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let model = ProviderModel::builder("openai-compatible", "m").base_url(url).build().unwrap();
    let whole = model.complete(&hello()).await.unwrap_err();
    let streamed = super::streamed(&model, &hello()).await.unwrap_err();
    for error in [whole, streamed] {
        assert_eq!(error.code(), "model-connection", "{error}");
        assert!(error.retryable() && !error.to_string().contains("canary"), "{error}");
    }
}

#[tokio::test]
async fn dropping_a_stream_ends_the_request() {
    for wire in WIRES.into_iter().filter(|wire| wire.streamed) {
        let server = ModelServer::start([wire.text(&["One", "two"]), wire.text(&["Again"])]).await;
        let model = wire.model(&server);
        let mut stream = model.stream(&hello()).await.unwrap();
        assert_eq!(stream.next().await, Some(Ok(ModelEvent::TextDelta("One".to_owned()))));
        drop(stream);
        let (_, response) = wire.ask(&model, &hello()).await.unwrap();
        assert_eq!(response.text(), "Again");
    }
}
