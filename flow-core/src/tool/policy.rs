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
    /// it by then, and the model is told of a denied one who denied it and why. The step waits
    /// until all are answered. Then the round becomes part of the history, with its results in
    /// the order of the calls, and the model is asked again. The history that models are shown is whole at all times; what
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

/// What becomes of a call that an action makes, when the action runs again.
///
/// It is about the calls of actions, which are [effects](crate::effect). What a model asks
/// for in a step is no effect and not recorded call by call, so this says nothing about it: a
/// turn that is sent again may ask for the same call again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ToolReplay {
    /// For tools that honour the [idempotency key](crate::tool::ToolCx::idempotency_key).
    ///
    /// The recorded result is given back. A call that was begun, and of which no result is
    /// recorded, is made again with the same key. One that failed is made again when the turn
    /// is sent again, unless the action has handled the error.
    #[default]
    ByKey,
    /// For tools that do something and cannot honour a key: made at most once in a visit.
    ///
    /// * The recorded result is given back, an error too: the turn that is sent again fails
    ///   with the same error, which is not retryable.
    /// * A call that was begun and has no recorded outcome is not made again. It fails with
    ///   [`EffectError::InDoubt`](crate::error::EffectError::InDoubt), each time that the
    ///   action comes to it, so the action may handle the error and go on, as with any
    ///   other effect that fails.
    /// * As long as a call is in doubt, the action cannot do something else in its place: a
    ///   message with which it would not come to the call, or make another one there, fails
    ///   with the same error. `Flow::on_error` may lead out of the step.
    /// * [`restart_step`](crate::engine::SessionHandle::restart_step) forgets the call, and
    ///   lets it be made again. A later visit makes calls of its own.
    ///
    /// The call is recorded before and after it is made, whatever the
    /// [`Durability`](crate::engine::Durability). So that the record fits the document, a flow
    /// that has such a tool also commits before each of its actions what a turn has done until
    /// then, and above all what the user said.
    Never,
    /// For tools whose result should be fresh, such as a look at a price or at a queue: each
    /// run of the action calls it.
    ///
    /// The result is not recorded. The call has its place among the effects all the same, and
    /// its arguments have to be the same in each run. What the action does next should not
    /// depend on the result, as long as other effects follow in this run: when those are other
    /// ones the next time, the turn fails with
    /// [`EffectError::Diverged`](crate::error::EffectError::Diverged).
    Always,
}

impl ToolReplay {
    pub(super) fn is_by_key(&self) -> bool {
        *self == Self::ByKey
    }
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
