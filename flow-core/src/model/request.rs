use schemars::Schema;
use serde::{Deserialize, Serialize};

use super::Sampling;
use crate::message::Message;
use crate::tool::ToolDefinition;

/// What a model is asked.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ChatRequest {
    /// The system prompt.
    pub system: Option<String>,
    /// The conversation, oldest message first.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    pub tools: Vec<ToolDefinition>,
    /// Whether it may, must or must not call one.
    pub tool_choice: ToolChoice,
    /// The form that the answer must have.
    pub output: Option<OutputSchema>,
    /// How the model picks its words.
    pub sampling: Sampling,
    /// Texts at which the answer ends.
    pub stop: Vec<String>,
}

impl ChatRequest {
    /// A request about a conversation.
    pub fn new(messages: Vec<Message>) -> Self {
        Self { messages, ..Self::default() }
    }

    /// Sets the system prompt.
    #[must_use]
    pub fn system(mut self, prompt: impl Into<String>) -> Self {
        self.system = Some(prompt.into());
        self
    }

    /// Offers tools.
    #[must_use]
    pub fn tools(mut self, tools: Vec<ToolDefinition>) -> Self {
        self.tools = tools;
        self
    }

    /// Says whether the model may, must or must not call a tool.
    #[must_use]
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.tool_choice = choice;
        self
    }

    /// Asks for an answer in a form.
    #[must_use]
    pub fn output(mut self, output: OutputSchema) -> Self {
        self.output = Some(output);
        self
    }

    /// Says how the model picks its words.
    #[must_use]
    pub fn sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = sampling;
        self
    }

    /// Ends the answer at one of these texts.
    #[must_use]
    pub fn stop(mut self, texts: Vec<String>) -> Self {
        self.stop = texts;
        self
    }
}

/// Whether a model may, must or must not call a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ToolChoice {
    /// It may.
    #[default]
    Auto,
    /// It must not.
    None,
    /// It must call one.
    Required,
    /// It must call this one.
    Tool(String),
}

/// The form of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputSchema {
    /// A name for the form: letters, digits, `_` and `-`.
    pub name: String,
    /// The JSON Schema.
    pub schema: Schema,
}
