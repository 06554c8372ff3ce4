use std::error::Error as StdError;

use crate::id::SessionId;
use crate::time::Timestamp;

/// A store that refused a call or could not be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another worker holds the lease of the session.
    #[error(
        "session `{session}` is busy: {holder} works on it until {until} at the latest; try again then"
    )]
    Busy {
        /// The session.
        session: SessionId,
        /// Who holds the lease.
        holder: String,
        /// When the lease ends unless it is renewed.
        until: Timestamp,
    },
    /// The session was changed since it was read; nothing was written.
    #[error(
        "session `{session}` is at revision {found}, not {expected}: it was changed by someone else"
    )]
    Conflict {
        /// The session.
        session: SessionId,
        /// The revision that the commit was based on.
        expected: u64,
        /// The revision that the store has.
        found: u64,
    },
    /// The lease was taken over by another worker; nothing was written.
    #[error(
        "the lease of session `{session}` (fencing token {token}) was lost: the store is at token {current}; \
         a pause longer than the lease lets others take over"
    )]
    LeaseLost {
        /// The session.
        session: SessionId,
        /// The token of the caller.
        token: u64,
        /// The token that the store has.
        current: u64,
    },
    /// There is no such session.
    #[error("there is no session `{session}`")]
    NotFound {
        /// The session.
        session: SessionId,
    },
    /// A session with this id exists already.
    #[error("session `{session}` exists already")]
    Exists {
        /// The session.
        session: SessionId,
    },
    /// The session belongs to another flow; nothing was written.
    #[error("session `{session}` belongs to flow `{found}`, not to `{expected}`")]
    WrongFlow {
        /// The session.
        session: SessionId,
        /// The flow that the caller runs.
        expected: String,
        /// The flow of the document.
        found: String,
    },
    /// The document was written by a newer version of the program; nothing was written.
    #[error(
        "session `{session}` was written by a newer program ({what} {found}, this one knows up to {supported}); \
         deploy that version again or route the session to it"
    )]
    FromFuture {
        /// The session.
        session: SessionId,
        /// `document version` or `document format`.
        what: &'static str,
        /// What the document says.
        found: u32,
        /// What this program knows.
        supported: u32,
    },
    /// What is stored is not a session document.
    #[error("session `{session}` is stored in a form that cannot be read: {reason}")]
    Corrupt {
        /// The session.
        session: SessionId,
        /// What is wrong.
        reason: String,
    },
    /// An address that names no store, or one that this program was built without.
    #[error(
        "`{scheme}` names no store of this program; use `memory`, `sqlite:PATH` (feature `sqlite`) \
         or `mongodb://HOST/DATABASE` (feature `mongodb`)"
    )]
    Address {
        /// What stands before the first colon.
        scheme: String,
    },
    /// The store could not be reached or gave up; the call may be made again.
    #[error("{backend} could not {operation}: {source}")]
    Unavailable {
        /// `SQLite`, `MongoDB`, ...
        backend: &'static str,
        /// What was attempted.
        operation: &'static str,
        /// The driver's error.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The store refused for a reason that trying again does not cure.
    #[error("{backend} refused to {operation}: {source}")]
    Backend {
        /// `SQLite`, `MongoDB`, ...
        backend: &'static str,
        /// What was attempted.
        operation: &'static str,
        /// The driver's error.
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl StoreError {
    /// A stable kebab-case name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "session-busy",
            Self::Conflict { .. } => "revision-conflict",
            Self::LeaseLost { .. } => "lease-lost",
            Self::NotFound { .. } => "session-not-found",
            Self::Exists { .. } => "session-exists",
            Self::WrongFlow { .. } => "wrong-flow",
            Self::FromFuture { .. } => "document-from-future",
            Self::Corrupt { .. } => "document-corrupt",
            Self::Address { .. } => "store-address",
            Self::Unavailable { .. } => "store-unavailable",
            Self::Backend { .. } => "store-failed",
        }
    }

    /// Whether the same call may succeed when it is made again.
    pub fn retryable(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. }
                | Self::Conflict { .. }
                | Self::LeaseLost { .. }
                | Self::Unavailable { .. }
        )
    }

    /// The HTTP status that says the same thing to a client.
    pub fn status(&self) -> u16 {
        match self {
            Self::NotFound { .. } => 404,
            Self::Busy { .. }
            | Self::Conflict { .. }
            | Self::LeaseLost { .. }
            | Self::Exists { .. }
            | Self::WrongFlow { .. }
            | Self::FromFuture { .. } => 409,
            Self::Unavailable { .. } => 503,
            Self::Corrupt { .. } | Self::Address { .. } | Self::Backend { .. } => 500,
        }
    }
}
