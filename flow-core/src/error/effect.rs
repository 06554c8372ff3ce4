use crate::session::ErrorRecord;

/// Where an action that runs again does something else than its journal says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Divergence {
    /// The session.
    pub session: String,
    /// The step.
    pub step: String,
    /// The place of the effect among those of the visit, counted from 0.
    pub place: u32,
    /// What is recorded.
    pub recorded: String,
    /// What the code does.
    pub found: String,
}

/// An effect of an action that cannot be done, or an answer that nobody waits for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EffectError {
    /// The action does something else than its journal says. Nothing was done.
    #[error(
        "session `{}`: step `{}` runs again, and its effect number {} is {}, but {} is recorded; \
         the code of the step has changed, or depends on something that is no effect. Deploy the \
         code that the session began with, or call `engine.session(id).restart_step()` or \
         `.abandon(reason)`",
        .0.session, .0.step, .0.place, .0.found, .0.recorded
    )]
    Diverged(Box<Divergence>),
    /// As [`Diverged`](Self::Diverged), and the flow itself has changed since the action began.
    #[error(
        "session `{}` waits in step `{}` of another build of the flow (digest {before}, now \
         {after}), and the step does not fit what it has done: effect number {} is {}, but {} is \
         recorded. Deploy the earlier build, or call `engine.session(id).restart_step()` or \
         `.abandon(reason)`",
        .divergence.session, .divergence.step, .divergence.place, .divergence.found,
        .divergence.recorded
    )]
    Drifted {
        /// The digest of the flow with which the action began.
        before: String,
        /// The digest of the flow now.
        after: String,
        /// What does not fit.
        divergence: Box<Divergence>,
    },
    /// The effect failed, in this run or in the one that is repeated.
    #[error("{}", error.message)]
    Failed {
        /// The error as it is recorded.
        error: ErrorRecord,
    },
    /// A called flow failed, in this run or in the one that is repeated. An action may go on
    /// without it. When it does not, the next turn goes on where the called session stands.
    #[error("the called flow `{flow}` (session `{session}`) failed: {}", error.message)]
    Call {
        /// The flow.
        flow: String,
        /// The called session.
        session: String,
        /// What happened there.
        error: ErrorRecord,
    },
    /// Too many calls of flows are under way within each other. Nothing was called.
    #[error(
        "session `{session}` calls a flow within {limit} calls already: {path}; end the recursion, or raise `Limits::call_depth`"
    )]
    CallDepth {
        /// The session that calls.
        session: String,
        /// [`Limits::call_depth`](crate::engine::Limits::call_depth).
        limit: u32,
        /// The flows, from the outermost to the one that is not called.
        path: String,
    },
    /// Nobody answered a request in time, and it has no default.
    #[error("nobody answered `{request}` before its deadline")]
    Expired {
        /// The title of the request, or the name of the signal.
        request: String,
    },
    /// The recorded outcome of an effect does not read as the type that the code has for it.
    #[error("the recorded outcome of {effect} cannot be read: {reason}")]
    Unreadable {
        /// The effect.
        effect: String,
        /// What does not fit.
        reason: String,
    },
    /// The session does not wait for this answer: it was answered before, or never asked.
    #[error("session `{session}` does not wait for request `{request}`; it waits for: {pending}")]
    NotWaiting {
        /// The session.
        session: String,
        /// What the answer names.
        request: String,
        /// What the session waits for.
        pending: String,
    },
    /// The answer is not one that the request takes. The session still waits.
    #[error("session `{session}`: the answer to request `{request}` is not taken: {reason}")]
    Rejected {
        /// The session.
        session: String,
        /// The request.
        request: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl EffectError {
    /// A stable kebab-case name of the error.
    pub fn code(&self) -> &str {
        match self {
            Self::Diverged(_) => "effect-diverged",
            Self::Drifted { .. } => "flow-drifted",
            Self::Failed { error } | Self::Call { error, .. } => &error.code,
            Self::CallDepth { .. } => "call-depth",
            Self::Expired { .. } => "request-expired",
            Self::Unreadable { .. } => "effect-unreadable",
            Self::NotWaiting { .. } => "not-waiting",
            Self::Rejected { .. } => "answer-rejected",
        }
    }

    /// Whether the turn may succeed when it is sent again.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Failed { error } | Self::Call { error, .. } => error.retryable,
            Self::Expired { .. } => true,
            _ => false,
        }
    }

    /// The HTTP status that says the same thing to a client.
    pub fn status(&self) -> u16 {
        match self {
            Self::Diverged(_) | Self::Drifted { .. } | Self::NotWaiting { .. } => 409,
            Self::Rejected { .. } => 422,
            Self::Expired { .. } => 504,
            Self::Failed { .. }
            | Self::Call { .. }
            | Self::CallDepth { .. }
            | Self::Unreadable { .. } => 500,
        }
    }
}
