//! What is said in a conversation.

use serde::{Deserialize, Serialize};

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
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Part {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
        Self { seq, role, parts: vec![Part::Text { text: text.into() }], at }
    }

    /// The text parts, one per line.
    pub fn to_text(&self) -> String {
        let texts: Vec<&str> = self.parts.iter().map(|Part::Text { text }| text.as_str()).collect();
        texts.join("\n")
    }
}
