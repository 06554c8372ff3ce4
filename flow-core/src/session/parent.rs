use serde::{Deserialize, Serialize};

use crate::id::SessionId;

/// The session that has begun another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The session; for one that was put aside, the id at which it is kept. For a digression,
    /// the session itself, in which the parked flow comes back.
    pub session: SessionId,
    /// The id of its flow.
    pub flow: String,
    /// How the two belong together.
    pub relation: Relation,
    /// How many sessions stand above this one; 1 for a child of a session that has no parent.
    pub depth: u32,
}

/// How a session belongs to the one that has begun it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Relation {
    /// An action has called its flow, and goes on with what it comes to.
    Call,
    /// It is one item of a batch.
    Item,
    /// The conversation was handed off to its flow.
    HandOff,
    /// The conversation comes back to the parent once it has ended.
    Digression,
}

impl Relation {
    /// Whether it is a session of its own beside its parent, and not what came after the
    /// parent in the same session.
    pub(crate) fn is_child(self) -> bool {
        matches!(self, Self::Call | Self::Item)
    }

    /// The relation as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Item => "item",
            Self::HandOff => "hand-off",
            Self::Digression => "digression",
        }
    }
}
