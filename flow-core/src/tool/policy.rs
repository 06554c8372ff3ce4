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
    /// A person has to approve it.
    ///
    /// The other calls of the answer are made, then the step waits: the turn ends with
    /// [`Outcome::Suspended`](crate::outcome::Outcome::Suspended) and one request for each
    /// such call, which shows the tool with the arguments as it will read them. A request has
    /// no deadline. When one is answered with [`Engine::deliver`](crate::Engine::deliver), an
    /// approved call is made at once, if its tool is still offered and the policy does not deny
    /// it by then, and the model is told of a denied one who denied it and why. The step waits until all are answered. Then
    /// the round becomes part of the history, with its results in the order of the calls, and
    /// the model is asked again. The history that models are shown is whole at all times; what
    /// tools and people have said meanwhile stands before the round.
    ///
    /// What is promised:
    ///
    /// * A call is not made before it is approved, nor with other arguments than those that
    ///   were shown, also when the program was rebuilt meanwhile.
    /// * A decision is committed before anything is done with it, so it is never lost. A call
    ///   that was made, in a turn that then failed or died before its next commit, is made
    ///   again with the same [idempotency key](crate::tool::ToolCx::idempotency_key): the one
    ///   that it would have had without an approval. The fields and the state of the step are
    ///   then as they were before the call.
    /// * The calls that were not asked about are not made again, once the step waits.
    /// * When a tool moves the flow, in the same answer or as a call that was approved, the
    ///   calls without a result are not made, and nobody is asked any more. The same holds when
    ///   an error handler lets the step go on without them.
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
