use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ErrorRecord, ItemGroup, PathEntry, PendingCall};
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
    /// The items of a batch that are over, as long as others are not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemGroup>,
    /// Whether the call was made, and is not to be made again whatever it came to
    /// ([`ToolReplay::Never`](crate::tool::ToolReplay::Never)).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
    /// What it came to; nothing while it runs or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<EffectOutcome>,
    /// How far the call of another flow has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<PendingCall>,
    /// For a step that runs within the action: where it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<Box<FrameRecord>>,
}

/// Where a step stands that an action runs within its own run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FrameRecord {
    /// Its fields; for several steps side by side, those of each that is over.
    pub fields: Value,
    /// The shared state as it has left it, if it has changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    /// What it has done to the conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<Value>,
    /// How many questions it has asked.
    #[serde(default, skip_serializing_if = "is_none")]
    pub asked: u32,
    /// The slots that it has asked for last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_fields: Vec<String>,
    /// The number of its next effect.
    #[serde(default, skip_serializing_if = "is_none")]
    pub next: u32,
    /// The steps that were entered with it, itself first. They are part of the path once the run
    /// of the action is over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entered: Vec<PathEntry>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

impl EffectRecord {
    /// A tool call that begins.
    pub fn tool(name: impl Into<String>, at: Timestamp) -> Self {
        Self::new(EffectKind::Tool, name, at)
    }

    pub(crate) fn new(kind: EffectKind, name: impl Into<String>, at: Timestamp) -> Self {
        Self {
            tool: name.into(),
            at,
            kind,
            arguments: None,
            due: None,
            items: Vec::new(),
            once: false,
            outcome: None,
            call: None,
            frame: None,
        }
    }

    /// Whether it may have been done, and is not to be done again.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.once && self.outcome.is_none()
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
    /// A flow runs for each of some items.
    Batch,
    /// A step runs within the action.
    Step,
    /// Several steps run within the action, side by side.
    Steps,
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
            Self::Batch => "batch",
            Self::Step => "step",
            Self::Steps => "steps",
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
