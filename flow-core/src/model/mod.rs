//! Models: what a flow speaks through.
//!
//! [`ChatModel`] is the contract. [`ScriptedModel`](scripted::ScriptedModel) answers from a
//! script, for tests; [`provider`] speaks to real providers; a [`cassette`] records them and
//! replays what was recorded. A [`ModelCatalog`] finds the
//! model that a [`ModelSelection`] names, and a [`CallPolicy`] says how often and how long a
//! call is tried.

mod call;
pub mod cassette;
mod catalog;
mod error;
#[cfg(feature = "providers")]
pub mod provider;
mod request;
mod response;
pub mod scripted;
mod selection;

pub(crate) use call::speak;
pub use call::{CallPolicy, complete};
pub use catalog::ModelCatalog;
pub use error::ModelError;
pub use request::{ChatRequest, OutputSchema, Sampling, ToolChoice};
pub use response::{ChatResponse, FinishReason, ModelEvent, ModelStream, TokenUsage};
pub use selection::{ModelSelection, ModelSelectionError};

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};

/// A model that takes part in a conversation.
///
/// A call is one attempt: it is not retried here. Dropping the future or the stream aborts
/// it.
#[async_trait]
pub trait ChatModel: Send + Sync + 'static {
    /// Answers a request.
    ///
    /// # Errors
    /// Why there is no answer; [`ModelError::retryable`] says whether to try again.
    async fn complete(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError>;

    /// Answers a request piece by piece. The last item is [`ModelEvent::Done`] with the whole
    /// answer, or an error. By default the whole answer comes in one piece.
    ///
    /// # Errors
    /// As [`complete`](Self::complete), when there is not even a first piece.
    async fn stream(&self, request: &ChatRequest) -> Result<ModelStream, ModelError> {
        let response = self.complete(request).await?;
        let text = response.text();
        let mut events = Vec::new();
        if !text.is_empty() {
            events.push(Ok(ModelEvent::TextDelta(text)));
        }
        events.push(Ok(ModelEvent::Done(Box::new(response))));
        Ok(stream::iter(events).boxed())
    }

    /// What the model can do.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
}

#[async_trait]
impl<M: ChatModel + ?Sized> ChatModel for Arc<M> {
    async fn complete(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        (**self).complete(request).await
    }

    async fn stream(&self, request: &ChatRequest) -> Result<ModelStream, ModelError> {
        (**self).stream(request).await
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }
}

/// What a model can do by itself. What it cannot, the engine does in another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Capabilities {
    /// It calls tools. Default: true.
    pub tools: bool,
    /// Its output follows a JSON Schema where one is asked for. Default: false.
    pub structured_output: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self { tools: true, structured_output: false }
    }
}

impl Capabilities {
    /// Sets [`tools`](Self::tools).
    #[must_use]
    pub fn tools(mut self, yes: bool) -> Self {
        self.tools = yes;
        self
    }

    /// Sets [`structured_output`](Self::structured_output).
    #[must_use]
    pub fn structured_output(mut self, yes: bool) -> Self {
        self.structured_output = yes;
        self
    }
}
