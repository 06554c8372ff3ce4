use super::BranchError;
use crate::session::ErrorRecord;

/// Where an action that runs again does something else than its journal says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Divergence {
    /// The session.
    pub session: String,
    /// The step.
    pub step: String,
    /// The place of the effect among those of the visit, counted from 0. `3_1` is effect
    /// number 1 of the step that runs as effect number 3.
    pub place: String,
    /// What is recorded.
    pub recorded: String,
    /// What the code does.
    pub found: String,
}

/// A call of which nobody knows whether it was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Doubt {
    /// The session.
    pub session: String,
    /// The step.
    pub step: String,
    /// The tool.
    pub tool: String,
    /// The idempotency key of the call.
    pub key: String,
    /// The SHA-256 of the canonical form of its arguments.
    pub arguments: Option<String>,
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
    /// A call that is not to be made again ([`ToolReplay::Never`](crate::tool::ToolReplay::Never))
    /// was begun, and what it came to is not known: its turn was cut off. Nothing was done.
    #[error(
        "session `{}`: step `{}` has begun to call tool `{}` (key `{}`, arguments {}), and it is \
         not known whether that was done; the tool is `replay = never`, so it is not called again. \
         Find out on the outside; then handle this error in the step, or call \
         `engine.session(id).restart_step()` to let it be called again, or `.abandon(reason)`",
        .0.session, .0.step, .0.tool, .0.key, .0.arguments.as_deref().unwrap_or("none")
    )]
    InDoubt(Box<Doubt>),
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
    /// Too many calls of flows and batches are under way within each other. Nothing was called.
    #[error(
        "session `{session}` calls a flow within {limit} calls already: {path}; end the recursion, \
         or raise `Limits::call_depth`"
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
    /// A batch has more items than it may have. None of them has begun.
    #[error(
        "a batch of flow `{flow}` has {items} items, over the limit of {limit}; raise \
         `Limits::batch_items` or make several batches, one after the other"
    )]
    BatchTooLarge {
        /// The flow of the items.
        flow: String,
        /// How many there are.
        items: usize,
        /// [`Limits::batch_items`](crate::engine::Limits::batch_items).
        limit: usize,
    },
    /// An action has more effects in one visit than the engine allows.
    #[error(
        "session `{session}`: step `{step}` has {limit} effects in this visit and begins one more; \
         an action that works in a loop needs an end, or goes to itself now and then. Raise \
         `Limits::effects`, or call `engine.session(id).restart_step()` once the code is mended"
    )]
    TooManyEffects {
        /// The session.
        session: String,
        /// The step at which the session stands.
        step: String,
        /// [`Limits::effects`](crate::engine::Limits::effects).
        limit: usize,
    },
    /// A step within a step is deeper than the engine allows.
    #[error(
        "session `{session}`: step `{step}` would run within `{within}`, more than {limit} steps \
         deep; a step that runs itself needs an end, or raise `Limits::step_depth`"
    )]
    StepDepth {
        /// The session.
        session: String,
        /// The step that was to run.
        step: String,
        /// The step that runs it.
        within: String,
        /// [`Limits::step_depth`](crate::engine::Limits::step_depth).
        limit: u32,
    },
    /// A step within another one wants what only a step at which the session stands can have.
    #[error("session `{session}`: step `{step}` runs within `{within}` and cannot {what}")]
    Unfit {
        /// The session.
        session: String,
        /// The step.
        step: String,
        /// The step at which the session stands.
        within: String,
        /// What it wants.
        what: &'static str,
    },
    /// Steps that an action runs side by side come to no common end.
    #[error("{0}")]
    Branches(Box<BranchError>),
    /// The session does not wait for this answer: it was answered before, or never asked.
    #[error(
        "session `{session}` is {status} at step `{step}` and does not wait for request \
         `{request}`; it waits for: {pending}"
    )]
    NotWaiting {
        /// The session.
        session: String,
        /// What the answer names.
        request: String,
        /// The status of the session.
        status: &'static str,
        /// The step at which it stands.
        step: String,
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
            Self::InDoubt(_) => "effect-in-doubt",
            Self::Failed { error } | Self::Call { error, .. } => &error.code,
            Self::CallDepth { .. } => "call-depth",
            Self::Expired { .. } => "request-expired",
            Self::Unreadable { .. } => "effect-unreadable",
            Self::BatchTooLarge { .. } => "batch-too-large",
            Self::TooManyEffects { .. } => "too-many-effects",
            Self::StepDepth { .. } => "step-depth",
            Self::Unfit { .. } => "step-unfit",
            Self::Branches(error) => error.code(),
            Self::NotWaiting { .. } => "not-waiting",
            Self::Rejected { .. } => "answer-rejected",
        }
    }

    /// Whether the turn may succeed when it is sent again.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Failed { error } | Self::Call { error, .. } => error.retryable,
            Self::Branches(error) => error.retryable(),
            Self::Expired { .. } => true,
            _ => false,
        }
    }

    /// The HTTP status that says the same thing to a client.
    pub fn status(&self) -> u16 {
        match self {
            Self::Diverged(_)
            | Self::Drifted { .. }
            | Self::InDoubt(_)
            | Self::NotWaiting { .. } => 409,
            Self::Rejected { .. } => 422,
            Self::Expired { .. } => 504,
            Self::Failed { .. }
            | Self::Call { .. }
            | Self::CallDepth { .. }
            | Self::Unreadable { .. }
            | Self::TooManyEffects { .. }
            | Self::StepDepth { .. }
            | Self::Unfit { .. }
            | Self::BatchTooLarge { .. }
            | Self::Branches(_) => 500,
        }
    }
}
