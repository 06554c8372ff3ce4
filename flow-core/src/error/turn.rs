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
    /// The conversation was handed off to a flow that the engine does not have.
    #[error(
        "flow `{flow}`, session `{session}`: handed off to `{to}`, which is not registered; \
         register it with `EngineBuilder::flow`; known flows: {known}"
    )]
    HandOffTarget {
        /// The flow.
        flow: String,
        /// The session.
        session: String,
        /// The flow that was named.
        to: String,
        /// The flows that are registered.
        known: String,
    },
    /// The state that a flow is to begin with does not read as its state.
    #[error(
        "session `{session}`: handed off to `{to}` with a state that it cannot read: `{path}`: {reason}"
    )]
    HandOffState {
        /// The session.
        session: String,
        /// The flow that was to begin.
        to: String,
        /// Where in the state; `.` for all of it.
        path: String,
        /// What does not fit.
        reason: String,
    },
    /// The conversation was handed off too often without new input.
    #[error(
        "session `{session}`: {limit} hand-offs without new input ({trail}); \
         let one of the flows wait for the user, or raise `Limits::handoffs`"
    )]
    HandOffBudget {
        /// The session.
        session: String,
        /// [`Limits::handoffs`](crate::engine::Limits::handoffs).
        limit: u32,
        /// The flows.
        trail: String,
    },
    /// Flows hand the conversation back and forth without new input.
    #[error(
        "session `{session}`: flow `{to}` has had the conversation {limit} times without new input ({trail}); \
         let one of the flows wait for the user, or raise `Limits::flow_visits`"
    )]
    HandOffLoop {
        /// The session.
        session: String,
        /// The flow that would have it once more.
        to: String,
        /// [`Limits::flow_visits`](crate::engine::Limits::flow_visits).
        limit: u32,
        /// The flows.
        trail: String,
    },
    /// A session that another one has begun cannot go to another flow, since that one waits
    /// for what its flow comes to.
    #[error(
        "flow `{flow}`, session `{session}`: a session of an action ({relation}) cannot be handed off; \
         end it, and let the action go on from there"
    )]
    ChildHandOff {
        /// The flow.
        flow: String,
        /// The session.
        session: String,
        /// [How](crate::session::Relation) it belongs to the other one.
        relation: &'static str,
    },
    /// The session cannot be parked for another flow. Nothing has changed.
    #[error("flow `{flow}`, session `{session}`: no digression to `{to}`: {reason}")]
    DigressionRefused {
        /// The flow in which the session is.
        flow: String,
        /// The session.
        session: String,
        /// The flow that was asked for.
        to: String,
        /// Why not.
        reason: String,
    },
    /// As many flows are parked as may be. Nothing has changed.
    #[error(
        "session `{session}`: no digression to `{to}`: as many flows are parked as may be, {limit} ({trail}); \
         let one of them end, or raise `Limits::digressions`"
    )]
    DigressionDepth {
        /// The session.
        session: String,
        /// The flow that was asked for.
        to: String,
        /// [`Limits::digressions`](crate::engine::Limits::digressions).
        limit: u32,
        /// The flows, the first one in front.
        trail: String,
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
            Self::HandOffTarget { .. } => "handoff-target",
            Self::HandOffState { .. } => "handoff-state",
            Self::HandOffBudget { .. } => "handoff-budget",
            Self::HandOffLoop { .. } => "handoff-loop",
            Self::ChildHandOff { .. } => "child-handoff",
            Self::DigressionRefused { .. } => "digression-refused",
            Self::DigressionDepth { .. } => "digression-depth",
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
            Self::NotDue { .. } | Self::DigressionRefused { .. } | Self::DigressionDepth { .. } => {
                409
            }
            Self::Cancelled { .. } => 499,
            _ => 500,
        }
    }
}
