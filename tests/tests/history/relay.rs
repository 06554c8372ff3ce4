//! A model that gives the answers of a turn's script and keeps what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use flow_core::message::{Part, ToolCallPart};
use flow_core::model::{
    CallPolicy, ChatModel, ChatRequest, ChatResponse, FinishReason, ModelError,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// Two attempts without waits, and three rounds of tools.
pub(super) fn policy() -> CallPolicy {
    let mut policy = CallPolicy::default().attempts(2).tool_rounds(3);
    policy.first_wait = Duration::ZERO;
    policy.longest_wait = Duration::ZERO;
    policy
}

/// What the model answers once.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Text(&'static str),
    /// Calls, with some text before them.
    Calls(Option<&'static str>, Vec<Call>),
    /// Text that a provider marks as a refusal.
    Refusal,
    /// An error, by its status; some are tried again.
    Error(u16),
    /// Nothing, ever.
    Stuck,
}

/// A call of a tool, with an id that is not always one of its own.
#[derive(Debug, Clone)]
pub(super) struct Call {
    id: &'static str,
    tool: &'static str,
    arguments: Value,
}

impl Answer {
    /// One call.
    pub(super) fn call(id: &'static str, tool: &'static str) -> Self {
        Self::Calls(None, vec![Call { id, tool, arguments: json!({ "at": 1 }) }])
    }
}

pub(super) fn any_answer() -> impl Strategy<Value = Answer> {
    let text = prop::sample::select(vec!["Fine.", "Well."]);
    let word = prop::sample::select(vec!["darn", "explode", "fail", "form", "leave", " \n", ""]);
    let before = prop::option::of(prop::sample::select(vec!["Let me see.", "\n\n"]));
    prop_oneof![
        3 => text.prop_map(Answer::Text),
        3 => word.prop_map(Answer::Text),
        8 => (before, prop::collection::vec(any_call(), 1..5)).prop_map(|(text, calls)| Answer::Calls(text, calls)),
        1 => Just(Answer::Refusal),
        1 => prop::sample::select(vec![400_u16, 429, 503]).prop_map(Answer::Error),
        1 => Just(Answer::Stuck),
    ]
}

fn any_call() -> impl Strategy<Value = Call> {
    let id = prop::sample::select(vec!["a", "a", "b", "c:1", "c_1", ""]);
    let call = prop_oneof![
        3 => Just(("look", json!({ "at": 3 }))),
        1 => Just(("look", json!({ "at": "many" }))),
        1 => Just(("look", json!("{\"at\": "))),
        1 => Just(("hush", Value::Null)),
        2 => Just(("ring", json!({}))),
        1 => Just(("stumble", json!({}))),
        1 => Just(("crash", json!({}))),
        1 => Just(("wait", json!({}))),
        1 => Just(("fly", json!({}))),
        1 => Just(("leave", json!({}))),
        2 => prop::sample::select(vec![1, 5, 13]).prop_map(|door| ("sidestep", json!({ "door": door }))),
    ];
    (id, call).prop_map(|(id, (tool, arguments))| Call { id, tool, arguments })
}

/// The model.
#[derive(Clone)]
pub(super) struct Relay {
    script: Arc<Mutex<VecDeque<Answer>>>,
    requests: Arc<Mutex<Vec<ChatRequest>>>,
    stuck: Arc<Notify>,
}

impl Relay {
    pub(super) fn new(stuck: Arc<Notify>) -> Self {
        Self { script: Arc::default(), requests: Arc::default(), stuck }
    }

    /// Begins a turn: these are the answers, and after them more than enough words.
    pub(super) fn load(&self, answers: &[Answer]) {
        *self.script.lock().unwrap() = answers.iter().cloned().collect();
    }

    /// Takes out what the model was asked.
    pub(super) fn take_requests(&self) -> Vec<ChatRequest> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

#[async_trait]
impl ChatModel for Relay {
    async fn complete(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        self.requests.lock().unwrap().push(request.clone());
        let answer = self.script.lock().unwrap().pop_front();
        match answer.unwrap_or(Answer::Text("Yes.")) {
            Answer::Text(text) => Ok(ChatResponse::new(vec![Part::text(text)])),
            Answer::Calls(text, calls) => {
                let calls = calls.into_iter().map(|Call { id, tool, arguments }| {
                    Part::ToolCall(ToolCallPart { id: id.into(), name: tool.into(), arguments })
                });
                Ok(ChatResponse::new(text.map(Part::text).into_iter().chain(calls).collect()))
            }
            Answer::Refusal => {
                let response = ChatResponse::new(vec![Part::text("I cannot help with that.")]);
                Ok(response.finish(FinishReason::Refusal))
            }
            Answer::Error(status) => Err(ModelError::Status {
                model: "relay::m".into(),
                status,
                message: "no".into(),
                retry_after: None,
            }),
            Answer::Stuck => {
                self.stuck.notify_one();
                std::future::pending().await
            }
        }
    }
}
