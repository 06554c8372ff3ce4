use std::pin::Pin;

use futures_core::Stream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ModelError;
use crate::message::{Part, ToolCallPart};

/// What a model answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChatResponse {
    /// The answer: text, tool calls, reasoning.
    pub parts: Vec<Part>,
    /// Why it ended. A response with tool calls asks for their results, whatever this says.
    pub finish: FinishReason,
    /// What it cost.
    pub usage: TokenUsage,
    /// What the provider tells besides, e.g. its id of the response.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl ChatResponse {
    /// A response of some parts. It ends with [`FinishReason::ToolCalls`] when one of them is
    /// a tool call.
    pub fn new(parts: Vec<Part>) -> Self {
        let calls = parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
        let finish = if calls { FinishReason::ToolCalls } else { FinishReason::Stop };
        Self { parts, finish, ..Self::default() }
    }

    /// Sets why it ended.
    #[must_use]
    pub fn finish(mut self, finish: FinishReason) -> Self {
        self.finish = finish;
        self
    }

    /// Sets what it cost.
    #[must_use]
    pub fn usage(mut self, usage: TokenUsage) -> Self {
        self.usage = usage;
        self
    }

    /// The text parts, joined.
    pub fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                Part::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The tool calls in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCallPart> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FinishReason {
    /// It is complete.
    #[default]
    Stop,
    /// The model wants the results of tool calls.
    ToolCalls,
    /// It reached the most tokens.
    Length,
    /// It was blocked, or the model refused.
    Refusal,
    /// Something else.
    Other,
}

/// What an answer cost, in tokens. Zero where the provider does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TokenUsage {
    /// Tokens of the request, cached ones included.
    pub input: u64,
    /// Tokens of the answer, reasoning included.
    pub output: u64,
    /// Tokens of the request that came from a cache.
    pub cached: u64,
    /// Tokens of the answer that were reasoning.
    pub reasoning: u64,
}

impl TokenUsage {
    /// So many tokens in and out.
    pub fn new(input: u64, output: u64) -> Self {
        Self { input, output, ..Self::default() }
    }

    /// Whether nothing was counted.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl std::ops::AddAssign for TokenUsage {
    fn add_assign(&mut self, other: Self) {
        self.input += other.input;
        self.output += other.output;
        self.cached += other.cached;
        self.reasoning += other.reasoning;
    }
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ModelEvent {
    /// More text.
    TextDelta(String),
    /// More reasoning.
    ReasoningDelta(String),
    /// A tool call has begun; its arguments are in the whole answer.
    ToolCallStart {
        /// The id of the call.
        id: String,
        /// The tool.
        name: String,
    },
    /// The whole answer. The last event.
    Done(Box<ChatResponse>),
}

/// An answer piece by piece.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, ModelError>> + Send>>;
