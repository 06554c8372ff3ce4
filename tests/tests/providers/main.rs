//! Real providers' wire formats on loopback, through the provider crate.

mod answers;
mod failures;
mod other_dialects;
mod requests;
mod secrets;
mod structured;
mod turns;

use flow_core::message::{Message, Part, Role, ToolCallPart, ToolResultPart};
use flow_core::model::provider::ProviderModel;
use flow_core::model::{CallPolicy, ChatModel, ChatRequest, ChatResponse, ModelError, ModelEvent};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use std::time::Duration;
use tests::model_server::{Answer, ModelServer, anthropic, openai};

/// A dialect that the server speaks, whole or streamed.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Wire {
    anthropic: bool,
    streamed: bool,
}

/// All four.
const WIRES: [Wire; 4] = [
    Wire { anthropic: false, streamed: false },
    Wire { anthropic: false, streamed: true },
    Wire { anthropic: true, streamed: false },
    Wire { anthropic: true, streamed: true },
];

/// A call: its id, its name and its arguments in fragments.
type Call<'a> = (&'a str, &'a str, &'a [&'a str]);

impl Wire {
    fn model(self, server: &ModelServer) -> ProviderModel {
        let (provider, name) = match self.anthropic {
            true => ("anthropic", "claude-test"),
            false => ("openai", "gpt-test"),
        };
        ProviderModel::builder(provider, name)
            .base_url(server.url("/v1"))
            .key("sk-test")
            .build()
            .unwrap()
    }

    /// An answer of text.
    fn text(self, deltas: &[&str]) -> Answer {
        self.answer(deltas, &[], if self.anthropic { "end_turn" } else { "stop" })
    }

    /// An answer of calls.
    fn calls(self, calls: &[Call<'_>]) -> Answer {
        self.answer(&[], calls, if self.anthropic { "tool_use" } else { "tool_calls" })
    }

    fn answer(self, text: &[&str], calls: &[Call<'_>], stop: &str) -> Answer {
        match (self.anthropic, self.streamed) {
            (false, false) => {
                let called: Vec<Value> = calls
                    .iter()
                    .map(|(id, name, fragments)| {
                        let function = json!({ "name": name, "arguments": fragments.concat() });
                        json!({ "id": id, "type": "function", "function": function })
                    })
                    .collect();
                let content = if text.is_empty() { Value::Null } else { json!(text.concat()) };
                let mut message = json!({ "role": "assistant", "content": content });
                if !called.is_empty() {
                    message["tool_calls"] = json!(called);
                }
                openai::completion(&message, stop)
            }
            (false, true) => {
                let texts = text.iter().map(|text| json!({ "content": text }));
                // Parallel calls come interleaved.
                let begun = calls.iter().enumerate().map(|(index, (id, name, _))| {
                    json!({ "tool_calls": [{ "index": index, "id": id, "type": "function",
                        "function": { "name": name, "arguments": "" } }] })
                });
                let longest = calls.iter().map(|(.., f)| f.len()).max().unwrap_or(0);
                let fragments = (0..longest).flat_map(|n| {
                    calls.iter().enumerate().filter_map(move |(index, (.., fragments))| {
                        let function = json!({ "arguments": fragments.get(n)? });
                        Some(json!({ "tool_calls": [{ "index": index, "function": function }] }))
                    })
                });
                openai::stream(texts.chain(begun).chain(fragments), stop)
            }
            (true, false) => {
                let mut content = Vec::new();
                if !text.is_empty() {
                    content.push(json!({ "type": "text", "text": text.concat() }));
                }
                content.extend(calls.iter().map(|(id, name, fragments)| {
                    let input: Value = serde_json::from_str(&fragments.concat()).unwrap();
                    json!({ "type": "tool_use", "id": id, "name": name, "input": input })
                }));
                anthropic::message(&json!(content), stop)
            }
            (true, true) => {
                let mut blocks = Vec::new();
                if !text.is_empty() {
                    let delta = |text: &&str| json!({ "type": "text_delta", "text": text });
                    let begin = json!({ "type": "text", "text": "" });
                    blocks.push((begin, text.iter().map(delta).collect()));
                }
                blocks.extend(calls.iter().map(|(id, name, fragments)| {
                    let delta = |f: &&str| json!({ "type": "input_json_delta", "partial_json": f });
                    let begin = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                    (begin, fragments.iter().map(delta).collect())
                }));
                anthropic::stream(blocks, stop)
            }
        }
    }

    /// Asks, whole or streamed; without retries.
    async fn ask(
        self,
        model: &ProviderModel,
        request: &ChatRequest,
    ) -> Result<(Vec<ModelEvent>, ChatResponse), ModelError> {
        if !self.streamed {
            return model.complete(request).await.map(|response| (Vec::new(), response));
        }
        streamed(model, request).await
    }

    /// Asks the model of a server with one answer.
    async fn ask_one(self, answer: Answer) -> Result<(Vec<ModelEvent>, ChatResponse), ModelError> {
        let server = ModelServer::start([answer]).await;
        self.ask(&self.model(&server), &hello()).await
    }
}

/// Reads a stream to its end.
async fn streamed(
    model: &ProviderModel,
    request: &ChatRequest,
) -> Result<(Vec<ModelEvent>, ChatResponse), ModelError> {
    let mut stream = model.stream(request).await?;
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        match event? {
            ModelEvent::Done(response) => {
                assert!(stream.next().await.is_none(), "Done is the last event");
                return Ok((events, *response));
            }
            event => events.push(event),
        }
    }
    panic!("the stream ended without Done or an error: {events:?}");
}

fn say(role: Role, parts: Vec<Part>) -> Message {
    Message { seq: 0, role, parts, at: "2026-11-30T12:00:00Z".parse().unwrap() }
}

fn hello() -> ChatRequest {
    ChatRequest::new(vec![say(Role::User, vec![Part::text("Hello")])])
}

fn call(id: &str, name: &str, arguments: Value) -> Part {
    Part::ToolCall(ToolCallPart { id: id.into(), name: name.into(), arguments })
}

fn result(id: &str, name: &str, content: &str, is_error: bool) -> Part {
    let (id, name, content) = (id.into(), name.into(), content.into());
    Part::ToolResult(ToolResultPart { id, name, content, is_error })
}

/// Three attempts without waits.
fn at_once() -> CallPolicy {
    let mut policy = CallPolicy::default();
    policy.first_wait = Duration::ZERO;
    policy.longest_wait = Duration::ZERO;
    policy
}
