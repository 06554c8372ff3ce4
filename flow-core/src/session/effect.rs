use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ErrorRecord, PendingCall};
use crate::error::{EffectError, Error};
use crate::time::Timestamp;

/// An effect of an action, as its journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectRecord {
    /// The tool, or the name of another effect.
    pub tool: String,
    /// When it was begun for the first time.
    pub at: Timestamp,
    /// What it is.
    #[serde(default, skip_serializing_if = "EffectKind::is_tool")]
    pub kind: EffectKind,
    /// The digest of its arguments; nothing for one without arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// When it is over by itself: the end of a sleep, the deadline of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// What it came to; nothing while it runs or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<EffectOutcome>,
    /// How far the call of another flow has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<PendingCall>,
}

impl EffectRecord {
    /// A tool call that begins.
    pub fn tool(name: impl Into<String>, at: Timestamp) -> Self {
        Self::new(EffectKind::Tool, name, at)
    }

    pub(crate) fn new(kind: EffectKind, name: impl Into<String>, at: Timestamp) -> Self {
        Self { tool: name.into(), at, kind, arguments: None, due: None, outcome: None, call: None }
    }

    /// The effect as errors name it.
    pub(crate) fn shown(&self) -> String {
        format!("{} `{}`", self.kind.as_str(), self.tool)
    }
}

/// The kinds of effects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EffectKind {
    /// A call of a tool of the flow.
    #[default]
    Tool,
    /// Code of the action that does something on the outside.
    Run,
    /// The time.
    Now,
    /// A fresh UUID.
    Uuid,
    /// A random number.
    Random,
    /// A pause.
    Sleep,
    /// A person is asked to approve.
    Approval,
    /// A signal is waited for.
    Signal,
    /// A person is asked to choose.
    Choice,
    /// A person is asked for data.
    Input,
    /// The user's next message is waited for.
    Message,
    /// Another flow is called.
    Call,
}

impl EffectKind {
    /// The kind as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Run => "run",
            Self::Now => "now",
            Self::Uuid => "uuid",
            Self::Random => "random",
            Self::Sleep => "sleep",
            Self::Approval => "approval",
            Self::Signal => "signal",
            Self::Choice => "choice",
            Self::Input => "input",
            Self::Message => "message",
            Self::Call => "call",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_tool(&self) -> bool {
        *self == Self::Tool
    }
}

/// What an effect came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EffectOutcome {
    /// A value.
    Value(Value),
    /// An error.
    Error(ErrorRecord),
}

impl EffectOutcome {
    /// What a request comes to that nobody has answered in time.
    pub(crate) fn expired(request: &str) -> Self {
        let error = EffectError::Expired { request: request.to_owned() };
        Self::Error(ErrorRecord::from(&Error::from(error)))
    }
}
