use crate::session::ErrorRecord;

/// Steps that an action runs side by side, and that come to no common end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BranchError {
    /// An action runs more steps side by side than the engine allows.
    #[error(
        "session `{session}`: step `{step}` runs {count} steps side by side; at most {limit} are \
         allowed: run them in several calls, as a batch, or raise `Limits::branches`"
    )]
    TooMany {
        /// The session.
        session: String,
        /// The step that runs them.
        step: String,
        /// How many.
        count: usize,
        /// [`Limits::branches`](crate::engine::Limits::branches).
        limit: usize,
    },
    /// One of several steps side by side has failed, and all were needed.
    #[error("session `{session}`, step `{step}`: branch {branch} has failed: {}", error.message)]
    Failed {
        /// The session.
        session: String,
        /// The step that runs them.
        step: String,
        /// The place in the request and the step that has failed.
        branch: String,
        /// Why.
        error: ErrorRecord,
    },
    /// One of several steps side by side was not needed any more.
    #[error("branch {branch} was cancelled, since it was not needed any more")]
    Cancelled {
        /// The place in the request and the step.
        branch: String,
    },
    /// Too few of several steps side by side have succeeded.
    #[error(
        "session `{session}`, step `{step}`: {succeeded} branches have succeeded, {needed} are \
         needed: {reason}"
    )]
    QuorumMissed {
        /// The session.
        session: String,
        /// The step that runs them.
        step: String,
        /// How many are needed.
        needed: usize,
        /// How many have succeeded.
        succeeded: usize,
        /// Why the others have not.
        reason: String,
    },
    /// Steps side by side have written the same field of the shared state. Nothing of what they
    /// wrote counts.
    #[error(
        "session `{session}`, step `{step}`: branches {branches} both write the field `{field}` of \
         the state: {reason}. Give the field a reducer that fits, or let one branch write it"
    )]
    Conflict {
        /// The session.
        session: String,
        /// The step that runs them.
        step: String,
        /// The field.
        field: String,
        /// The two branches.
        branches: String,
        /// Why the two writes are not one.
        reason: String,
    },
}

impl BranchError {
    /// A stable kebab-case name of the error; that of the step for one that has failed.
    pub fn code(&self) -> &str {
        match self {
            Self::TooMany { .. } => "too-many-branches",
            Self::Failed { error, .. } => &error.code,
            Self::Cancelled { .. } => "branch-cancelled",
            Self::QuorumMissed { .. } => "quorum-missed",
            Self::Conflict { .. } => "branch-conflict",
        }
    }

    /// Whether the turn may succeed when it is sent again.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Failed { error, .. } => error.retryable,
            Self::QuorumMissed { .. } => true,
            _ => false,
        }
    }
}

impl From<BranchError> for super::Error {
    fn from(error: BranchError) -> Self {
        super::EffectError::Branches(Box::new(error)).into()
    }
}
