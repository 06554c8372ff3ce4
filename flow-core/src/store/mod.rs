//! Where session documents live.
//!
//! [`SessionStore`] is the contract; [`memory`] keeps documents in the process, for tests,
//! [`sqlite`] in one file that several processes share, [`mongodb`] in a MongoDB database.
//! The [conformance suite](crate::testing::conformance) checks the contract on any
//! implementation, so a store of your own can be held to it too.
//!
//! A session is worked on under a *lease*: [`open`](SessionStore::open) reads the document
//! and takes the lease in one call, [`commit`](SessionStore::commit) changes the document
//! while the lease is held, and the last commit gives it back. Each lease has a fencing
//! token that grows with every acquisition, so a worker that was paused beyond the end of
//! its lease can do no harm: its commits are refused.

mod address;
pub mod memory;
#[cfg(feature = "mongodb")]
pub mod mongodb;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use address::open;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::error::StoreError;
use crate::id::SessionId;
use crate::json;
use crate::message::Message;
use crate::session::{ArchiveEntry, Delta, SessionDoc, Status};
use crate::time::Timestamp;

/// The default of [`StoreLimits::document_bytes`]: 16 MiB less 64 KiB, what MongoDB takes
/// of one document with some room for its own fields.
pub const DOCUMENT_BYTES: u64 = 16 * 1024 * 1024 - 64 * 1024;

/// What a store takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// The largest document, in bytes as [`SessionStore::encoded_len`] counts them.
    /// Default: [`DOCUMENT_BYTES`].
    pub document_bytes: u64,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self { document_bytes: DOCUMENT_BYTES }
    }
}

/// What a store has done since it was made. For tests and metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// Calls that changed a document.
    pub commits: u64,
    /// Bytes of documents and archive entries that were sent to be written. The memory
    /// store writes nothing and leaves this at zero.
    pub bytes_written: u64,
}

/// A request to work on a session.
#[derive(Debug, Clone)]
pub struct OpenRequest<'a> {
    /// The session.
    pub id: &'a SessionId,
    /// The flow that will run.
    pub flow: &'a str,
    /// The newest document version that the flow knows.
    pub version: u32,
    /// Who asks, for others to read; unique to the worker.
    pub holder: &'a str,
    /// How long the lease lasts unless it is renewed.
    pub ttl: Duration,
}

/// A lease that was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Who holds it.
    pub holder: String,
    /// The fencing token.
    pub token: u64,
    /// When it ends, by the store's clock.
    pub until: Timestamp,
}

/// A session that was opened.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The lease.
    pub grant: Grant,
    /// The document, or nothing for a session that has never been committed.
    pub doc: Option<SessionDoc>,
}

/// A change of a session's document.
#[derive(Debug, Clone, Copy)]
pub struct Commit<'a> {
    /// The lease under which it is made.
    pub grant: &'a Grant,
    /// The revision that the change is based on; 0 for a new session.
    pub base: u64,
    /// The whole document as it is after the change. Its revision is `base + 1`. Its lease
    /// is the store's business and is ignored.
    pub doc: &'a SessionDoc,
    /// What the change is. A store may write this or the whole document.
    pub delta: &'a Delta,
    /// What moves to the archive. Written before or together with the document.
    pub archive: &'a [ArchiveEntry],
    /// A document that this one takes the place of, under the id at which it is kept.
    /// Written before or together with the document.
    pub supersede: Option<&'a SessionDoc>,
    /// Whether the lease is given back.
    pub release: bool,
    /// How many [checkpoints](SessionStore::checkpoints) the session has after this commit,
    /// counted from the newest, which is that of this commit. With 0 this commit leaves none,
    /// and those of earlier ones stay.
    pub checkpoints: usize,
}

/// The default of [`ListQuery::limit`].
pub const LIST_LIMIT: usize = 100;

/// Which sessions to list.
#[derive(Debug, Clone)]
pub struct ListQuery {
    /// Only sessions of this flow.
    pub flow: Option<String>,
    /// Only sessions with this status.
    pub status: Option<Status>,
    /// Only sessions of this owner.
    pub owner: Option<String>,
    /// Only documents with a version below this one.
    pub below_version: Option<u32>,
    /// Only sessions that are due: those with a [`wake_at`](SessionDoc::wake_at) at or before
    /// this time on which nobody holds a lease that lasts, by the store's clock.
    ///
    /// Any number of sweepers may list the same sessions;
    /// [`open`](SessionStore::open) gives each to one of them. Whoever opens one looks at
    /// `wake_at` again, since another may have been done with it before.
    pub due: Option<Timestamp>,
    /// Only sessions whose id sorts after this one: the last of the page before.
    pub after: Option<SessionId>,
    /// The most sessions to return; at least 1. Default: [`LIST_LIMIT`].
    pub limit: usize,
}

impl Default for ListQuery {
    fn default() -> Self {
        Self {
            flow: None,
            status: None,
            owner: None,
            below_version: None,
            due: None,
            after: None,
            limit: LIST_LIMIT,
        }
    }
}

/// One session in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    /// The session.
    pub id: SessionId,
    /// The flow's id.
    pub flow: String,
    /// The document version.
    pub version: u32,
    /// The revision.
    pub revision: u64,
    /// What it is doing.
    pub status: Status,
    /// Where it stands.
    pub current_step: String,
    /// Who it belongs to.
    pub owner: Option<String>,
    /// When a sweeper takes it up by itself.
    pub wake_at: Option<Timestamp>,
    /// When it began.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

impl From<&SessionDoc> for SessionSummary {
    fn from(doc: &SessionDoc) -> Self {
        Self {
            id: doc.id.clone(),
            flow: doc.flow.id.clone(),
            version: doc.version,
            revision: doc.revision,
            status: doc.status,
            current_step: doc.current_step.clone(),
            owner: doc.owner.clone(),
            wake_at: doc.wake_at,
            created_at: doc.created_at,
            updated_at: doc.updated_at,
        }
    }
}

/// One checkpoint in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// The revision that its commit made.
    pub revision: u64,
    /// The document version.
    pub version: u32,
    /// What the session was doing; `running` between two steps of a turn.
    pub status: Status,
    /// Where the session stood.
    pub current_step: String,
    /// The document's [`updated_at`](SessionDoc::updated_at).
    pub at: Timestamp,
}

impl From<&SessionDoc> for CheckpointSummary {
    fn from(doc: &SessionDoc) -> Self {
        Self {
            revision: doc.revision,
            version: doc.version,
            status: doc.status,
            current_step: doc.current_step.clone(),
            at: doc.updated_at,
        }
    }
}

/// A whole conversation: the document and all that has moved out of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Transcript {
    /// The document.
    pub doc: SessionDoc,
    /// The archive entries that belong to it, oldest first.
    pub archive: Vec<ArchiveEntry>,
}

impl Transcript {
    /// All messages of all memory namespaces in the order in which they were said.
    pub fn messages(&self) -> Vec<&Message> {
        let archived = self.archive.iter().flat_map(|entry| &entry.messages).map(|m| &m.message);
        let live = self.doc.memory.values().flat_map(|memory| &memory.messages);
        let mut messages: Vec<&Message> = archived.chain(live).collect();
        messages.sort_by_key(|message| message.seq);
        messages
    }
}

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Sessions whose lease had ended without being given back, and which are free now.
    /// Those with status `running` have status `waiting` now and are [due](ListQuery::due).
    pub freed: Vec<SessionId>,
    /// How many expired sessions were deleted. A store that deletes by itself counts none.
    pub expired: u64,
}

/// Keeps session documents.
///
/// # Contract
///
/// * A change that is not committed is invisible. A session that was opened and never
///   committed does not exist for [`load`](Self::load), [`list`](Self::list) and
///   [`transcript`](Self::transcript).
/// * Of two workers that open one session at once, one gets it; the other gets
///   [`StoreError::Busy`] and has changed nothing.
/// * A lease whose time is over can be taken by anyone; the fencing token then grows, and
///   the former holder's calls fail with [`StoreError::LeaseLost`].
/// * A session that was deleted stays deleted, whatever a worker that had it open commits
///   ([`StoreError::NotFound`]).
/// * Every JSON value reads back equal: integers up to `u64::MAX` stay integers, floats
///   stay floats, and keys may hold dots, dollars and NUL.
/// * A commit that asks for [`checkpoints`](Commit::checkpoints) leaves one: the whole
///   document as of its revision, without a lease. Then the session has as many as it asks
///   for, the newest ones, and no other. A commit that fails leaves none that
///   readers can see, and changes none that is there. Checkpoints go with their session, when
///   it is deleted and when it expires; a session that is made again has none.
/// * A session is [due](ListQuery::due) from its [`wake_at`](SessionDoc::wake_at) on, until a
///   commit sets another one or none. Only commits and [`sweep`](Self::sweep) change it.
/// * A call that returns an error has changed nothing that readers can see.
#[async_trait]
pub trait SessionStore: Send + Sync + 'static {
    /// What the store takes.
    fn limits(&self) -> StoreLimits {
        StoreLimits::default()
    }

    /// How many bytes a value has as the store encodes it.
    fn encoded_len(&self, value: &Value) -> u64 {
        json::encoded_len(value)
    }

    /// What the store has done so far.
    fn stats(&self) -> StoreStats;

    /// Reads a session and takes its lease, in one call.
    ///
    /// # Errors
    /// [`Busy`](StoreError::Busy) while another worker holds the lease,
    /// [`WrongFlow`](StoreError::WrongFlow) and [`FromFuture`](StoreError::FromFuture) for a
    /// document that the caller must not touch. In all three cases nothing was written.
    async fn open(&self, request: &OpenRequest<'_>) -> Result<Opened, StoreError>;

    /// Prolongs a lease that has not been lost, and returns its new end.
    ///
    /// # Errors
    /// [`LeaseLost`](StoreError::LeaseLost) or [`NotFound`](StoreError::NotFound).
    async fn renew(
        &self,
        id: &SessionId,
        grant: &Grant,
        ttl: Duration,
    ) -> Result<Timestamp, StoreError>;

    /// Makes a change.
    ///
    /// # Errors
    /// [`NotFound`](StoreError::NotFound) when the session was deleted,
    /// [`LeaseLost`](StoreError::LeaseLost) when another worker has taken over,
    /// [`Conflict`](StoreError::Conflict) when the revision is not `base`.
    async fn commit(&self, commit: &Commit<'_>) -> Result<(), StoreError>;

    /// Gives a lease back without a change. A session that was never committed is gone then.
    /// Does nothing when the lease was lost or the session deleted.
    ///
    /// # Errors
    /// When the store cannot be reached.
    async fn release(&self, id: &SessionId, grant: &Grant) -> Result<(), StoreError>;

    /// Reads a document as it was last committed. Takes no lease, applies no policy.
    ///
    /// # Errors
    /// When the store cannot be reached or the document cannot be read.
    async fn load(&self, id: &SessionId) -> Result<Option<SessionDoc>, StoreError>;

    /// Writes a document that does not exist yet, as it is, with a free lease. For imports.
    ///
    /// # Errors
    /// [`Exists`](StoreError::Exists) when there is a session with this id.
    async fn create(&self, doc: &SessionDoc) -> Result<(), StoreError>;

    /// Deletes a session, its archive, its checkpoints, the documents it has superseded and its
    /// children, whoever works on them: all whose id begins with its own and a `~`. Returns
    /// whether there was one.
    ///
    /// # Errors
    /// When the store cannot be reached.
    async fn delete(&self, id: &SessionId) -> Result<bool, StoreError>;

    /// Lists sessions by ascending id.
    ///
    /// # Errors
    /// When the store cannot be reached.
    async fn list(&self, query: &ListQuery) -> Result<Vec<SessionSummary>, StoreError>;

    /// Reads a document and its whole archive.
    ///
    /// # Errors
    /// When the store cannot be reached or an entry cannot be read.
    async fn transcript(&self, id: &SessionId) -> Result<Option<Transcript>, StoreError>;

    /// Lists the checkpoints of a session, newest first; none when there is no such session.
    ///
    /// # Errors
    /// When the store cannot be reached.
    async fn checkpoints(&self, id: &SessionId) -> Result<Vec<CheckpointSummary>, StoreError>;

    /// Reads the document as it was at a revision, with no lease, and the archive that belonged
    /// to it. Nothing when there is no such checkpoint.
    ///
    /// # Errors
    /// When the store cannot be reached, or the document or an entry cannot be read.
    async fn checkpoint(
        &self,
        id: &SessionId,
        revision: u64,
    ) -> Result<Option<Transcript>, StoreError>;

    /// Frees sessions whose lease has ended, at most `limit`, and deletes what has expired.
    /// Any number of sweeps may run at once; each session is freed by one of them.
    ///
    /// A session with status `running` was left in the middle of a turn. It gets status
    /// `waiting` and is due at once: its [`wake_at`](SessionDoc::wake_at) becomes the moment
    /// by the store's clock, unless it is an earlier one already. Nothing else of a document
    /// changes, nor its revision.
    ///
    /// # Errors
    /// When the store cannot be reached.
    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError>;
}
