//! What is said in a conversation.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::time::Timestamp;

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// The person (or the system) that talks to the flow.
    User,
    /// The flow.
    Assistant,
    /// Tools, with the results of calls.
    Tool,
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Part {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image(Media),
    /// A file.
    File(Media),
    /// A model's call of a tool.
    ToolCall(ToolCallPart),
    /// The result of a call.
    ToolResult(ToolResultPart),
    /// What a model thought before it answered.
    Reasoning {
        /// The text.
        text: String,
        /// The provider's proof that the text is the model's own, where it wants it back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
}

impl Part {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// An image or a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// Its media type, e.g. `image/png`.
    pub media_type: String,
    /// Where it is.
    #[serde(flatten)]
    pub source: MediaSource,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Where an image or a file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MediaSource {
    /// At an address from which the provider fetches it.
    Url(String),
    /// In the message itself, in Base64.
    Base64(String),
}

/// A model's call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallPart {
    /// The id of the call, unique within the conversation; its result carries it too.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments as the model wrote them.
    pub arguments: Value,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResultPart {
    /// The call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What the model is told: the result as JSON text, or what went wrong.
    pub content: String,
    /// Whether the call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Its place in the conversation, counted from 0 through all memory namespaces.
    pub seq: u64,
    /// Who said it.
    pub role: Role,
    /// What was said.
    pub parts: Vec<Part>,
    /// When it was said.
    pub at: Timestamp,
}

impl Message {
    /// A message of one text part.
    pub fn text(seq: u64, role: Role, text: impl Into<String>, at: Timestamp) -> Self {
        Self { seq, role, parts: vec![Part::text(text)], at }
    }

    /// The text parts, one per line.
    pub fn to_text(&self) -> String {
        let texts: Vec<&str> = self
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        texts.join("\n")
    }
}
