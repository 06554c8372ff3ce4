use super::StepError;
use crate::model::ModelError;

/// A turn that could not be completed. The session stays at its last commit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// The engine has no such flow.
    #[error("no flow `{flow}` is registered; known flows: {known}")]
    UnknownFlow {
        /// The flow that was asked for.
        flow: String,
        /// The flows that are registered.
        known: String,
    },
    /// The message of the user is too large. Nothing was read or written.
    #[error(
        "the message has {size} bytes, over the limit of {limit}; raise `Limits::message_bytes` or send less"
    )]
    MessageTooLarge {
        /// Its size in bytes.
        size: usize,
        /// [`Limits::message_bytes`](crate::engine::Limits::message_bytes).
        limit: usize,
    },
    /// The turn crossed more steps than the budget allows.
    #[error(
        "flow `{flow}`, session `{session}`: the turn crossed {limit} steps without a pause (last: {trail}); \
         let a step wait for the user, or raise `Limits::crossings`"
    )]
    CrossingBudget {
        /// The flow.
        flow: String,
        /// The session.
        session: String,
        /// [`Limits::crossings`](crate::engine::Limits::crossings).
        limit: u32,
        /// The last steps.
        trail: String,
    },
    /// The flow went back and forth over one edge too often without new input.
    #[error(
        "flow `{flow}`, session `{session}`: went from `{from}` to `{to}` {limit} times without new input; \
         let one of them wait for the user, or raise `Limits::edge_crossings`"
    )]
    Oscillation {
        /// The flow.
        flow: String,
        /// The session.
        session: String,
        /// The step that is left.
        from: String,
        /// The step that is entered.
        to: String,
        /// [`Limits::edge_crossings`](crate::engine::Limits::edge_crossings).
        limit: u32,
    },
    /// A step returned an error that nothing handled.
    #[error("flow `{flow}`, step `{step}`, session `{session}`: {error}")]
    Step {
        /// The flow.
        flow: String,
        /// The step.
        step: String,
        /// The session.
        session: String,
        /// What the step said.
        error: StepError,
    },
    /// A step or a hook panicked.
    #[error("flow `{flow}`, session `{session}`: panicked: {message}")]
    Panicked {
        /// The flow.
        flow: String,
        /// The session.
        session: String,
        /// The message of the panic.
        message: String,
    },
    /// A hook of the flow returned an error.
    #[error("flow `{flow}`, session `{session}`: the hook `{hook}` failed: {error}")]
    Hook {
        /// The flow.
        flow: String,
        /// The session.
        session: String,
        /// The hook.
        hook: &'static str,
        /// What it said.
        error: StepError,
    },
    /// The model of a flow or of a step cannot be had, which is found before the session is
    /// touched, or gave no answer.
    #[error("flow `{flow}`: the model of {place} cannot be used: {error}")]
    Model {
        /// The flow.
        flow: String,
        /// `the flow`, or the step.
        place: String,
        /// Why.
        error: Box<ModelError>,
    },
    /// A transition names a step that the flow does not have.
    #[error(
        "flow `{flow}`: step `{from}` went to `{to}`, which is not a step of the flow: {known}"
    )]
    UnknownTarget {
        /// The flow.
        flow: String,
        /// The step that is left.
        from: String,
        /// The step that was named.
        to: String,
        /// The steps that exist.
        known: String,
    },
    /// A sweeper found that the session is not due any more.
    #[error("session `{session}` is not due any more: another sweeper or a turn was faster")]
    NotDue {
        /// The session.
        session: String,
    },
    /// The turn was cancelled by its handle.
    #[error("the turn of session `{session}` was cancelled; the session stays at its last commit")]
    Cancelled {
        /// The session.
        session: String,
    },
}

impl TurnError {
    /// A stable kebab-case name of the error. For [`Step`](Self::Step) and
    /// [`Hook`](Self::Hook) it is the code of the error inside.
    pub fn code(&self) -> &str {
        match self {
            Self::UnknownFlow { .. } => "unknown-flow",
            Self::MessageTooLarge { .. } => "message-too-large",
            Self::CrossingBudget { .. } => "crossing-budget",
            Self::Oscillation { .. } => "oscillation",
            Self::Step { error, .. } | Self::Hook { error, .. } => error.code(),
            Self::Panicked { .. } => "panicked",
            Self::Model { error, .. } => error.code(),
            Self::UnknownTarget { .. } => "unknown-target",
            Self::NotDue { .. } => "not-due",
            Self::Cancelled { .. } => "cancelled",
        }
    }

    /// Whether the same turn may succeed when it is sent again.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Step { error, .. } | Self::Hook { error, .. } => error.retryable(),
            Self::Model { error, .. } => error.retryable(),
            Self::Cancelled { .. } => true,
            _ => false,
        }
    }

    /// The HTTP status that says the same thing to a client.
    pub fn status(&self) -> u16 {
        match self {
            Self::UnknownFlow { .. } => 404,
            Self::MessageTooLarge { .. } => 413,
            Self::NotDue { .. } => 409,
            Self::Cancelled { .. } => 499,
            _ => 500,
        }
    }
}
