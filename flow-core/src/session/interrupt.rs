use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EffectKind, EffectOutcome, Question};
use crate::time::Timestamp;

/// A durable pause: what a step waits for, and what a user interface needs to show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupt {
    /// Names the request in an answer; unique within the session.
    pub request_id: String,
    /// What is waited for.
    pub kind: EffectKind,
    /// The step that waits.
    pub step: String,
    /// The flows that were called on the way to that step, the innermost last; empty for a
    /// step of the session's own flow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// The name of a signal; for other kinds as the title.
    pub name: String,
    /// What a person is shown.
    pub display: Display,
    /// The decisions or choices that are taken; empty where the answer is data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// The JSON Schema of the payload of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
    /// When it is over without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// What holds once the deadline has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_expiry: Option<EffectOutcome>,
    /// The tool call that is to be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
}

impl Interrupt {
    /// Whether the user's next message is waited for.
    pub(crate) fn is_message(&self) -> bool {
        self.kind == EffectKind::Message
    }

    /// What is asked, as a question.
    pub(crate) fn question(&self) -> Question {
        let options = self.allowed.clone();
        Question { text: self.display.title.clone(), options, ..Question::default() }
    }
}

/// What a person is shown of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Display {
    /// One line.
    pub title: String,
    /// More, where there is more to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// A tool call that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Value,
    /// The SHA-256 of the canonical form of the arguments.
    pub argument_hash: String,
}
