use serde::{Deserialize, Serialize};

use super::EffectOutcome;
use crate::model::TokenUsage;

/// How far an action has come with a flow that it has called. It is part of the effect's
/// record; where the called session itself stands is in its own document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PendingCall {
    /// The id of the last turn that the called session has made for this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// What has come for the called session, and what its next turn is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<CallInput>,
    /// Whether the caller has waited for it. From then on a message for which nobody waits is
    /// the called session's: its last turn has failed, or it was escalated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waited: bool,
    /// What the called session has said and the caller has not passed on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replies: Vec<String>,
    /// Whether the called session waits for a person who takes over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escalated: bool,
    /// What models have cost in the called session and those below it, once it has ended.
    #[serde(default, skip_serializing_if = "TokenUsage::is_zero")]
    pub usage: TokenUsage,
}

/// What has come for a called session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallInput {
    /// The id of the turn that takes it.
    pub turn: String,
    /// What the user has said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What requests of the called session have come to, by its own request ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<(String, EffectOutcome)>,
}
