//! The error types of the whole crate.
//!
//! One enum per area ([`IdError`], [`BuildError`], [`SessionError`], [`StoreError`],
//! [`ToolError`], [`EffectError`], [`TurnError`]), gathered in [`Error`]. Every error has a stable
//! [`code`](Error::code), says whether trying again can help ([`retryable`](Error::retryable))
//! and maps to an HTTP [`status`](Error::status). No message carries a whole document.
//!
//! Code that users write (steps, tools, hooks) returns [`StepError`], into which `?`
//! turns any error.

mod branch;
mod build;
mod effect;
mod id;
mod session;
mod step;
mod store;
mod tool;
mod turn;

pub use branch::BranchError;
pub use build::BuildError;
pub use effect::{Divergence, Doubt, EffectError};
pub use id::IdError;
pub use session::SessionError;
pub use step::{Result, StepError};
pub use store::StoreError;
pub use tool::ToolError;
pub use turn::TurnError;

/// What a panic says.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is not text".to_owned())
}

use crate::model::ModelError;

/// Any error of this crate.
///
/// ```
/// use flow_core::{Error, id::SessionId};
///
/// let error: Error = SessionId::new("").unwrap_err().into();
/// assert_eq!(error.code(), "invalid-id");
/// assert_eq!(error.status(), 400);
/// assert!(!error.retryable());
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An id or a name that cannot be used.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A flow or an engine that cannot be built as declared.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A session document that cannot be used as it is.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A store that refused or could not be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A tool call that failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// An effect of an action that cannot be done, or an answer that nobody waits for.
    #[error(transparent)]
    Effect(#[from] EffectError),
    /// A model that gave no answer.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A turn that could not be completed.
    #[error(transparent)]
    Turn(#[from] TurnError),
}

impl Error {
    /// A stable kebab-case name of the error, fit for metrics, tests and clients.
    pub fn code(&self) -> &str {
        match self {
            Self::Id(_) => "invalid-id",
            Self::Build(e) => e.code(),
            Self::Session(e) => e.code(),
            Self::Store(e) => e.code(),
            Self::Tool(e) => e.code(),
            Self::Effect(e) => e.code(),
            Self::Model(e) => e.code(),
            Self::Turn(e) => e.code(),
        }
    }

    /// Whether the same call may succeed when it is made again unchanged.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Id(_) | Self::Build(_) | Self::Session(_) => false,
            Self::Store(e) => e.retryable(),
            Self::Tool(e) => e.retryable(),
            Self::Effect(e) => e.retryable(),
            Self::Model(e) => e.retryable(),
            Self::Turn(e) => e.retryable(),
        }
    }

    /// The HTTP status that says the same thing to a client.
    pub fn status(&self) -> u16 {
        match self {
            Self::Id(_) => 400,
            Self::Build(_) => 500,
            Self::Session(e) => e.status(),
            Self::Store(e) => e.status(),
            Self::Tool(_) => 422,
            Self::Effect(e) => e.status(),
            Self::Model(_) => 502,
            Self::Turn(e) => e.status(),
        }
    }
}
