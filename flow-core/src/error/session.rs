/// A session document that cannot be used as it is.
///
/// The document is untouched when one of these is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// A field does not fit the type that the program has for it.
    #[error(
        "session `{session}` (document version {version}): `{path}` cannot be read: {reason}; \
         declare a new version and migrate the field"
    )]
    Unreadable {
        /// The session.
        session: String,
        /// The version of the document.
        version: u32,
        /// Where in the document, e.g. `steps.Checkout.guests`.
        path: String,
        /// What does not fit.
        reason: String,
    },
    /// A value cannot be written as JSON.
    #[error("session `{session}`: `{path}` cannot be written: {reason}")]
    Unwritable {
        /// The session.
        session: String,
        /// Where in the document.
        path: String,
        /// What does not fit.
        reason: String,
    },
    /// The current step of the document is not a step of the flow any more.
    #[error(
        "session `{session}` (document version {version}) stands at step `{step}`, which flow `{flow}` no longer has; \
         add `alias(\"{step}\")` to the step that replaces it, or migrate with \
         `doc.rename_step(\"{step}\", ..)` or `doc.remove_step(\"{step}\", ..)`; steps: {known}"
    )]
    UnknownStep {
        /// The session.
        session: String,
        /// The flow.
        flow: String,
        /// The version of the document.
        version: u32,
        /// The step that is gone.
        step: String,
        /// The steps that exist.
        known: String,
    },
    /// A migration returned an error or left a document that is not one.
    #[error("session `{session}` cannot be migrated from version {from} to {to}: {reason}")]
    Migration {
        /// The session.
        session: String,
        /// The version before the migration that failed.
        from: u32,
        /// The version that it should have led to.
        to: u32,
        /// What went wrong.
        reason: String,
    },
    /// The document is older than the first migration.
    #[error(
        "session `{session}` has document version {found}, older than the oldest that flow `{flow}` can read ({oldest}); \
         add `.from({found}, |doc| ..)` and what follows up to {oldest} to `migrations()`"
    )]
    TooOld {
        /// The session.
        session: String,
        /// The flow.
        flow: String,
        /// The version of the document.
        found: u32,
        /// The oldest version with a migration, or the flow's own when there are none.
        oldest: u32,
    },
    /// A commit would make the document larger than the store takes. Nothing was sent.
    #[error(
        "session `{session}` would grow to {size} bytes, over the store's limit of {limit}; \
         the biggest parts are {parts}; keep large data elsewhere and store a reference"
    )]
    TooLarge {
        /// The session.
        session: String,
        /// The size that the document would have, in bytes as the store encodes it.
        size: u64,
        /// The limit in bytes.
        limit: u64,
        /// The biggest parts with their sizes.
        parts: String,
    },
    /// A value is nested deeper than stores and parsers take. Nothing was sent.
    #[error("session `{session}`: `{path}` is nested deeper than {limit} levels")]
    TooDeep {
        /// The session.
        session: String,
        /// Where in the document.
        path: String,
        /// The limit in levels.
        limit: usize,
    },
    /// The session has ended and takes no more turns.
    #[error(
        "session `{session}` has ended ({reason}); use another session id, or return \
         `Restore::fresh(..)` from `on_restore_session_doc` to start it anew"
    )]
    Ended {
        /// The session.
        session: String,
        /// Why it ended.
        reason: String,
    },
    /// The session was called by an action of another one, which alone runs its turns.
    #[error(
        "session `{session}` was called by session `{parent}` of flow `{flow}`; send messages and answers there"
    )]
    Called {
        /// The session.
        session: String,
        /// The session that has called it.
        parent: String,
        /// The flow of that session.
        flow: String,
    },
    /// The session does not wait for a person.
    #[error("session `{session}` was not escalated: its status is `{status}`")]
    NotEscalated {
        /// The session.
        session: String,
        /// What it is doing.
        status: &'static str,
    },
    /// The checkpoint stands in the middle of a call or of a batch, and has no part in what
    /// the sessions of that have done.
    #[error(
        "the checkpoint of revision {revision} of session `{session}` stands in the middle of {what}, \
         whose own sessions it does not have; choose one from before or after that"
    )]
    UnderWay {
        /// The session.
        session: String,
        /// The revision that was asked for.
        revision: u64,
        /// What is not over, e.g. "the call of flow `card`".
        what: String,
    },
    /// The session has no checkpoint of this revision.
    #[error("session `{session}` has no checkpoint of revision {revision}; {known}")]
    NoCheckpoint {
        /// The session.
        session: String,
        /// The revision that was asked for.
        revision: u64,
        /// The revisions that there are, or why there are none.
        known: String,
    },
}

impl SessionError {
    /// A stable kebab-case name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "unreadable-field",
            Self::Unwritable { .. } => "unwritable-field",
            Self::UnknownStep { .. } => "unknown-step",
            Self::Migration { .. } => "migration-failed",
            Self::TooOld { .. } => "document-too-old",
            Self::TooLarge { .. } => "document-too-large",
            Self::TooDeep { .. } => "document-too-deep",
            Self::Ended { .. } => "session-ended",
            Self::Called { .. } => "called-session",
            Self::NotEscalated { .. } => "not-escalated",
            Self::UnderWay { .. } => "call-under-way",
            Self::NoCheckpoint { .. } => "no-checkpoint",
        }
    }

    /// The HTTP status that says the same thing to a client.
    pub fn status(&self) -> u16 {
        match self {
            Self::NoCheckpoint { .. } => 404,
            Self::TooLarge { .. } => 413,
            Self::TooDeep { .. } => 422,
            Self::Ended { .. }
            | Self::Called { .. }
            | Self::NotEscalated { .. }
            | Self::UnderWay { .. } => 409,
            _ => 500,
        }
    }
}
