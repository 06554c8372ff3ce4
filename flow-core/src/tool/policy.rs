use serde::{Deserialize, Serialize};

/// Whether a call that a model asks for is made.
///
/// It is about models: an action calls the tools that its code names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ToolPolicy {
    /// It is made.
    #[default]
    Allow,
    /// A person has to approve it. While turns cannot wait for one, it is not made, and the
    /// model is told that it needs an approval.
    Ask,
    /// It is not made, and the model is told this reason.
    Deny(String),
}

impl ToolPolicy {
    /// Not to be made, for a reason that the model is told.
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::Deny(reason.into())
    }

    pub(super) fn is_allow(&self) -> bool {
        *self == Self::Allow
    }
}
