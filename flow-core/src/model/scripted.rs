//! A model that answers from a script, for tests and for trying a flow without a provider.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use super::{
    Capabilities, ChatModel, ChatRequest, ChatResponse, ModelError, ModelEvent, ModelStream,
};
use crate::message::{Part, ToolCallPart};

/// A model that gives the answers of a script, one for each request, and keeps the requests.
/// Clones share both.
///
/// ```
/// use flow_core::model::scripted::ScriptedModel;
/// use serde_json::json;
///
/// let model = ScriptedModel::new()
///     .tool_call("search", json!({ "city": "Lisbon" }))
///     .text("I found three rooms.");
/// assert_eq!(model.left(), 2);
/// ```
#[derive(Debug, Clone, Default)]
pub struct ScriptedModel {
    shared: Arc<Mutex<Script>>,
}

#[derive(Debug, Default)]
struct Script {
    answers: VecDeque<Answer>,
    requests: Vec<ChatRequest>,
    /// What the next answer that is added gets.
    delay: Duration,
    calls: u64,
    capabilities: Capabilities,
}

#[derive(Debug)]
struct Answer {
    delay: Duration,
    chunks: Option<Vec<String>>,
    result: Result<ChatResponse, ModelError>,
}

impl ScriptedModel {
    /// An empty script.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers with a text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.response(ChatResponse::new(vec![Part::text(text)]))
    }

    /// Answers with a text that is streamed in these pieces.
    #[must_use]
    pub fn chunks<T: Into<String>>(self, chunks: impl IntoIterator<Item = T>) -> Self {
        let chunks: Vec<String> = chunks.into_iter().map(Into::into).collect();
        let response = ChatResponse::new(vec![Part::text(chunks.concat())]);
        self.push(Ok(response), Some(chunks))
    }

    /// Answers with a call of a tool.
    #[must_use]
    pub fn tool_call(self, name: impl Into<String>, arguments: Value) -> Self {
        self.tool_calls([(name.into(), arguments)])
    }

    /// Answers with several calls of tools at once. Their ids are `call-1`, `call-2`, ... through
    /// the whole script.
    #[must_use]
    pub fn tool_calls<T: Into<String>>(self, calls: impl IntoIterator<Item = (T, Value)>) -> Self {
        let parts = {
            let mut script = self.lock();
            let calls = calls.into_iter().map(|(name, arguments)| {
                script.calls += 1;
                let id = format!("call-{}", script.calls);
                Part::ToolCall(ToolCallPart { id, name: name.into(), arguments })
            });
            calls.collect()
        };
        self.response(ChatResponse::new(parts))
    }

    /// Gives a whole response.
    #[must_use]
    pub fn response(self, response: ChatResponse) -> Self {
        self.push(Ok(response), None)
    }

    /// Fails.
    #[must_use]
    pub fn error(self, error: ModelError) -> Self {
        self.push(Err(error), None)
    }

    /// Lets the next answer of the script take some time.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        self.lock().delay = delay;
        self
    }

    /// Says what the model can do. By default it calls tools and keeps to no schema.
    #[must_use]
    pub fn capabilities(self, capabilities: Capabilities) -> Self {
        self.lock().capabilities = capabilities;
        self
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<ChatRequest> {
        self.lock().requests.clone()
    }

    /// How many answers of the script are left.
    pub fn left(&self) -> usize {
        self.lock().answers.len()
    }

    fn push(self, result: Result<ChatResponse, ModelError>, chunks: Option<Vec<String>>) -> Self {
        {
            let mut script = self.lock();
            let delay = std::mem::take(&mut script.delay);
            script.answers.push_back(Answer { delay, chunks, result });
        }
        self
    }

    fn lock(&self) -> MutexGuard<'_, Script> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(&self, request: &ChatRequest) -> Answer {
        let answer = {
            let mut script = self.lock();
            script.requests.push(request.clone());
            script.answers.pop_front()
        };
        let answer = answer.unwrap_or_else(|| Answer {
            delay: Duration::ZERO,
            chunks: None,
            result: Err(ModelError::Malformed {
                model: "scripted".to_owned(),
                reason: "the script has no more answers".to_owned(),
            }),
        });
        if !answer.delay.is_zero() {
            tokio::time::sleep(answer.delay).await;
        }
        answer
    }
}

#[async_trait]
impl ChatModel for ScriptedModel {
    fn capabilities(&self) -> Capabilities {
        self.lock().capabilities
    }

    async fn complete(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        self.next(request).await.result
    }

    async fn stream(&self, request: &ChatRequest) -> Result<ModelStream, ModelError> {
        let answer = self.next(request).await;
        let response = answer.result?;
        let chunks = answer.chunks.unwrap_or_else(|| vec![response.text()]);
        let mut events: Vec<Result<ModelEvent, ModelError>> = chunks
            .into_iter()
            .filter(|chunk| !chunk.is_empty())
            .map(|chunk| Ok(ModelEvent::TextDelta(chunk)))
            .collect();
        events.extend(response.tool_calls().map(|call| {
            Ok(ModelEvent::ToolCallStart { id: call.id.clone(), name: call.name.clone() })
        }));
        events.push(Ok(ModelEvent::Done(Box::new(response))));
        Ok(stream::iter(events).boxed())
    }
}
