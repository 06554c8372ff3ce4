//! A model provider on loopback: it answers from a script in the wire formats of OpenAI's
//! chat completions and Anthropic's messages, and records what it was asked.
//!
//! It refuses what the real ones refuse: a request that breaks the rules of
//! [`ordering`] is answered with status 400, and the test that sent it fails when the server is
//! dropped.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::ordering;

/// The server. It stops when it is dropped.
pub struct ModelServer {
    url: String,
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    answers: VecDeque<Answer>,
    requests: Vec<Request>,
    violations: Vec<String>,
}

/// What the server was asked.
#[derive(Debug, Clone)]
pub struct Request {
    /// The path and the query.
    pub path: String,
    /// The headers, by their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Value,
}

/// One answer of the script.
pub struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    piece: usize,
    cut: bool,
}

impl ModelServer {
    /// Starts a server with a script.
    pub async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let answers = answers.into_iter().collect();
        let shared = Arc::new(Mutex::new(Shared { answers, ..Shared::default() }));
        let app = Router::new().fallback(answer).with_state(shared.clone());
        let task = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("the server runs until it is dropped");
        });
        Self { url: format!("http://{address}"), shared, task }
    }

    /// The server's address with a path, e.g. `/v1`.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).requests.clone()
    }

    /// The body of the last request.
    ///
    /// # Panics
    /// When there was none.
    pub fn last_body(&self) -> Value {
        self.requests().pop().expect("a request was made").body
    }

    /// Adds an answer to the script.
    pub fn push(&self, answer: Answer) {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).answers.push_back(answer);
    }

    /// Takes out what was wrong with the requests so far.
    pub fn take_violations(&self) -> Vec<String> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut shared.violations)
    }

    /// How many answers of the script are left.
    pub fn left(&self) -> usize {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).answers.len()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
        if !std::thread::panicking() {
            let violations = self.take_violations();
            assert!(violations.is_empty(), "requests that providers refuse: {violations:#?}");
        }
    }
}

/// What a provider would say against a request.
fn check(path: &str, body: &Value) -> Result<(), String> {
    if path.ends_with("/chat/completions") {
        ordering::openai(body)
    } else if path.ends_with("/messages") {
        ordering::anthropic(body)
    } else {
        Ok(())
    }
}

async fn answer(
    State(shared): State<Arc<Mutex<Shared>>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let headers = headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let request = Request {
        path: uri.to_string(),
        headers: headers.collect(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let checked = check(uri.path(), &request.body);
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(reason) = checked {
        shared.violations.push(format!("{reason}\n{:#}", request.body["messages"]));
        shared.requests.push(request);
        return Answer::error(400, &reason).into_response();
    }
    shared.requests.push(request);
    let answer = shared.answers.pop_front();
    answer.unwrap_or_else(|| Answer::error(501, "the script has no more answers")).into_response()
}

impl Answer {
    /// JSON with a status.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::bytes(status, "application/json", body.to_string())
    }

    /// Bytes of some content type.
    pub fn bytes(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: vec![("content-type", content_type.to_owned())],
            body: body.into(),
            piece: usize::MAX,
            cut: false,
        }
    }

    /// An error, in words that all dialects read.
    pub fn error(status: u16, message: &str) -> Self {
        let error = json!({ "type": "some_error", "message": message });
        Self::json(status, &json!({ "type": "error", "error": error }))
    }

    /// Server-sent events.
    pub fn events<'a>(events: impl IntoIterator<Item = (Option<&'a str>, String)>) -> Self {
        let body: String = events
            .into_iter()
            .map(|(name, data)| match name {
                Some(name) => format!("event: {name}\ndata: {data}\n\n"),
                None => format!("data: {data}\n\n"),
            })
            .collect();
        Self::bytes(200, "text/event-stream", body)
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Sends the body in pieces of so many bytes, which cut through events and letters.
    #[must_use]
    pub fn in_pieces_of(mut self, bytes: usize) -> Self {
        self.piece = bytes;
        self
    }

    /// Sends only what comes before a text in the body, and then breaks the connection.
    ///
    /// # Panics
    /// When the body does not hold the text.
    #[must_use]
    pub fn cut_before(mut self, text: &str) -> Self {
        let body = String::from_utf8_lossy(&self.body);
        let end = body.find(text).expect("the body holds the text");
        self.body.truncate(end);
        self.cut = true;
        self
    }

    fn into_response(self) -> Response {
        let mut response = Response::builder()
            .status(StatusCode::from_u16(self.status).expect("a status of the script is valid"));
        for (name, value) in self.headers {
            response = response.header(name, value);
        }
        let whole = self.piece == usize::MAX && !self.cut;
        let body = if whole {
            Body::from(self.body)
        } else {
            let size = self.piece.min(self.body.len().max(1));
            let pieces = self.body.chunks(size).map(|piece| Ok(piece.to_vec()));
            let end = self.cut.then(|| Err(io::Error::other("the connection breaks")));
            let pieces: Vec<io::Result<Vec<u8>>> = pieces.chain(end).collect();
            // A pause lets the server send what it has.
            Body::from_stream(stream::iter(pieces).then(|piece| async {
                tokio::task::yield_now().await;
                piece
            }))
        };
        response
            .header(header::SERVER, "model-server")
            .body(body)
            .unwrap_or_else(|_: axum::http::Error| unreachable!("the headers are valid"))
    }
}

/// The wire format of OpenAI's chat completions.
pub mod openai {
    use super::{Answer, Value, json};

    /// What every answer says it cost.
    pub fn usage() -> Value {
        json!({
            "prompt_tokens": 20,
            "completion_tokens": 9,
            "total_tokens": 29,
            "prompt_tokens_details": { "cached_tokens": 16 },
            "completion_tokens_details": { "reasoning_tokens": 4 }
        })
    }

    /// A whole answer.
    pub fn completion(message: &Value, finish: &str) -> Answer {
        Answer::json(
            200,
            &json!({
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "model": "gpt-test-2026",
                "choices": [{ "index": 0, "message": message, "finish_reason": finish }],
                "usage": usage()
            }),
        )
    }

    /// A streamed answer.
    pub fn stream(deltas: impl IntoIterator<Item = Value>, finish: &str) -> Answer {
        let chunk = |choices: Value, usage: Value| {
            json!({
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "model": "gpt-test-2026",
                "choices": choices,
                "usage": usage
            })
            .to_string()
        };
        let choice = |delta: Value, finish: Value| {
            chunk(json!([{ "index": 0, "delta": delta, "finish_reason": finish }]), Value::Null)
        };
        let mut events = vec![choice(json!({ "role": "assistant", "content": "" }), Value::Null)];
        events.extend(deltas.into_iter().map(|delta| choice(delta, Value::Null)));
        events.push(choice(json!({}), json!(finish)));
        events.push(chunk(json!([]), usage()));
        events.push("[DONE]".to_owned());
        Answer::events(events.into_iter().map(|event| (None, event)))
    }
}

/// The wire format of Anthropic's messages.
pub mod anthropic {
    use super::{Answer, Value, json};

    /// A whole answer.
    pub fn message(content: &Value, stop: &str) -> Answer {
        Answer::json(
            200,
            &json!({
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "claude-test-2026",
                "content": content,
                "stop_reason": stop,
                "usage": {
                    "input_tokens": 4,
                    "cache_read_input_tokens": 16,
                    "output_tokens": 9,
                    "output_tokens_details": { "thinking_tokens": 4 }
                }
            }),
        )
    }

    /// A streamed answer of blocks, each with its beginning and its deltas.
    pub fn stream(blocks: impl IntoIterator<Item = (Value, Vec<Value>)>, stop: &str) -> Answer {
        let mut events = vec![
            json!({ "type": "message_start", "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "claude-test-2026",
                "content": [],
                "usage": { "input_tokens": 4, "cache_read_input_tokens": 16, "output_tokens": 1 }
            } }),
            json!({ "type": "ping" }),
        ];
        for (index, (begin, deltas)) in blocks.into_iter().enumerate() {
            events.push(json!({
                "type": "content_block_start", "index": index, "content_block": begin
            }));
            events.extend(deltas.into_iter().map(
                |delta| json!({ "type": "content_block_delta", "index": index, "delta": delta }),
            ));
            events.push(json!({ "type": "content_block_stop", "index": index }));
        }
        events.push(json!({
            "type": "message_delta",
            "delta": { "stop_reason": stop },
            "usage": {
                "output_tokens": 9,
                "cache_read_input_tokens": 16,
                "output_tokens_details": { "thinking_tokens": 4 }
            }
        }));
        events.push(json!({ "type": "message_stop" }));
        let name = |event: &Value| event["type"].as_str().unwrap_or_default().to_owned();
        let events: Vec<(String, String)> =
            events.iter().map(|event| (name(event), event.to_string())).collect();
        Answer::events(events.iter().map(|(name, data)| (Some(name.as_str()), data.clone())))
    }
}
