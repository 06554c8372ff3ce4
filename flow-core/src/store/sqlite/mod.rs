//! Documents in one SQLite file that any number of processes on one machine share.
//!
//! The store of a laptop, a single server and a command line: nothing to install, and a
//! `kill -9` loses nothing that was committed. For several machines use
//! [`mongodb`](super::mongodb).
//!
//! Each store has one thread with one connection. The file is in write-ahead logging mode,
//! so it must lie on a local file system; beside it SQLite keeps a `-wal` and a `-shm` file
//! that belong to it. Leases are timed by the machine's clock.
//!
//! Documents are JSON text: `sqlite3 FILE "select doc from documents"` shows them, and
//! `"select revision, doc from checkpoints"` what they were. What
//! changes without the document, its revision, status, `wake_at` and lease, is true in the
//! columns of `sessions`, not in that text.

mod checkpoints;
mod file;
mod listing;
mod queries;
mod worker;

#[cfg(all(test, feature = "testing"))]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use self::queries::{Change, Entry, Record, Request};
use self::worker::{Access, Patience, Worker};
use super::{
    CheckpointSummary, Commit, Grant, ListQuery, OpenRequest, Opened, SessionStore, SessionSummary,
    StoreLimits, StoreStats, Swept, Transcript,
};
use crate::error::StoreError;
use crate::id::SessionId;
use crate::session::{ArchiveEntry, SessionDoc};
use crate::time::Timestamp;

const BACKEND: &str = "SQLite";

/// The default of [`SqliteOptions::busy_limit`].
pub const BUSY_LIMIT: Duration = Duration::from_secs(30);

/// How many calls at most share one transaction; other processes wait for all of them.
const GROUP: usize = 64;

/// How many expired sessions are deleted in one transaction.
const EXPIRY_BATCH: usize = 64;

/// What must have reached the disk when a commit returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Synchronous {
    /// The commit: it survives a power failure. One sync of the disk per commit, or per
    /// group of commits that come at once.
    #[default]
    Full,
    /// Nothing in particular: a commit survives the end of the process, however sudden, and
    /// the file is never damaged, but a power failure may take the latest commits with it.
    Normal,
}

/// How a file is opened.
///
/// ```
/// use flow_core::store::sqlite::{SqliteOptions, Synchronous};
/// use std::time::Duration;
///
/// let options =
///     SqliteOptions::new().synchronous(Synchronous::Normal).busy_limit(Duration::from_secs(5));
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    synchronous: Synchronous,
    busy_limit: Duration,
    limits: StoreLimits,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl SqliteOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            synchronous: Synchronous::default(),
            busy_limit: BUSY_LIMIT,
            limits: StoreLimits::default(),
        }
    }

    /// What must have reached the disk when a commit returns. Default:
    /// [`Synchronous::Full`].
    #[must_use]
    pub fn synchronous(self, synchronous: Synchronous) -> Self {
        Self { synchronous, ..self }
    }

    /// How long a call waits for other processes that write, before it fails with
    /// [`StoreError::Unavailable`]. Default: [`BUSY_LIMIT`], 30 s.
    #[must_use]
    pub fn busy_limit(self, busy_limit: Duration) -> Self {
        Self { busy_limit, ..self }
    }

    /// What the store takes. Default: that of every store.
    #[must_use]
    pub fn limits(self, limits: StoreLimits) -> Self {
        Self { limits, ..self }
    }
}

/// A store in one file.
///
/// Dropping the store ends its thread once the calls that it has taken are done;
/// [`close`](Self::close) waits for that.
///
/// ```
/// use flow_core::id::SessionId;
/// use flow_core::store::{SessionStore, sqlite::SqliteStore};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("sessions.db");
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = SqliteStore::open(&path).await?;
/// assert!(store.load(&SessionId::new("nobody")?).await?.is_none());
/// # Ok::<(), flow_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct SqliteStore {
    worker: Worker,
    limits: StoreLimits,
    commits: AtomicU64,
    bytes_written: AtomicU64,
}

impl SqliteStore {
    /// Opens a file, and makes it when there is none. Its folder must exist.
    ///
    /// # Errors
    /// [`Backend`](StoreError::Backend) when the file cannot be used: it is not a SQLite
    /// database, belongs to another program or was written by a newer version of this one,
    /// cannot be written, or lies where write-ahead logging does not work.
    /// [`Unavailable`](StoreError::Unavailable) when other processes keep it locked.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, SqliteOptions::new()).await
    }

    /// Opens a file with other options than the default ones.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_with(
        path: impl AsRef<Path>,
        options: SqliteOptions,
    ) -> Result<Self, StoreError> {
        let SqliteOptions { synchronous, busy_limit, limits } = options;
        let path = absolute(path.as_ref())?;
        let worker = Worker::start(Patience::new(busy_limit), move |patience| {
            file::connect(&path, synchronous, patience)
        })
        .await?;
        Ok(Self {
            worker,
            limits,
            commits: AtomicU64::default(),
            bytes_written: AtomicU64::default(),
        })
    }

    /// Does what is still to be done, closes the file and ends the thread.
    pub async fn close(self) {
        self.worker.end().await;
    }
}

/// SQLite gives a meaning to names such as `:memory:`; absolute paths are only paths, and
/// stay the same when the program changes its folder.
fn absolute(path: &Path) -> Result<PathBuf, StoreError> {
    std::path::absolute(path).map_err(|source| StoreError::Backend {
        backend: BACKEND,
        operation: "open the file",
        source: source.into(),
    })
}

fn parse_entries(id: &SessionId, entries: &[String]) -> Result<Vec<ArchiveEntry>, StoreError> {
    let entries = entries.iter().map(|entry| serde_json::from_str(entry));
    entries.collect::<Result<_, _>>().map_err(|e| StoreError::Corrupt {
        session: id.clone(),
        reason: format!("an archive entry: {e}"),
    })
}

/// Gives back a lease that was taken for a caller who has gone meanwhile.
struct Unclaimed<'a> {
    worker: &'a Worker,
    id: &'a SessionId,
    grant: Arc<OnceLock<Grant>>,
    claimed: bool,
}

impl Drop for Unclaimed<'_> {
    fn drop(&mut self) {
        if self.claimed {
            return;
        }
        let (id, grant) = (self.id.clone(), Arc::clone(&self.grant));
        // The thread works in the order of the calls, so the lease has been taken by then.
        let release = move |conn: &rusqlite::Connection| match grant.get() {
            Some(grant) => queries::release(conn, &id, grant),
            None => Ok(()),
        };
        self.worker.send(Access::Write, "give back a lease", release, oneshot::channel().0);
    }
}

#[async_trait]
impl SessionStore for SqliteStore {
    fn limits(&self) -> StoreLimits {
        self.limits
    }

    fn stats(&self) -> StoreStats {
        StoreStats {
            commits: self.commits.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
        }
    }

    async fn open(&self, request: &OpenRequest<'_>) -> Result<Opened, StoreError> {
        let grant = Arc::new(OnceLock::new());
        let mut unclaimed = Unclaimed {
            worker: &self.worker,
            id: request.id,
            grant: Arc::clone(&grant),
            claimed: false,
        };
        let wanted = Request {
            id: request.id.clone(),
            flow: request.flow.to_owned(),
            version: request.version,
            holder: request.holder.to_owned(),
            ttl: request.ttl,
        };
        let opened = self
            .worker
            .call(Access::Write, "open the session", move |conn| {
                let (granted, found) = queries::open(conn, wanted)?;
                let _ = grant.set(granted.clone());
                Ok((granted, found))
            })
            .await;
        let (grant, found) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                unclaimed.claimed = true;
                return Err(error);
            }
        };
        // A document that cannot be read leaves the lease unclaimed.
        let doc = found.map(|found| found.into_doc(request.id)).transpose()?.flatten();
        unclaimed.claimed = true;
        Ok(Opened { grant, doc })
    }

    async fn renew(
        &self,
        id: &SessionId,
        grant: &Grant,
        ttl: Duration,
    ) -> Result<Timestamp, StoreError> {
        let (id, grant) = (id.clone(), grant.clone());
        self.worker
            .call(Access::Write, "renew the lease", move |conn| {
                queries::renew(conn, &id, &grant, ttl)
            })
            .await
    }

    async fn commit(&self, commit: &Commit<'_>) -> Result<(), StoreError> {
        let change = Change {
            grant: commit.grant.clone(),
            base: commit.base,
            record: Record::new(commit.doc)?,
            archive: commit.archive.iter().map(Entry::new).collect::<Result<_, _>>()?,
            superseded: commit.supersede.map(Record::superseded).transpose()?,
            release: commit.release,
            checkpoints: commit.checkpoints,
        };
        let bytes = change.bytes();
        self.worker
            .call(Access::Write, "commit", move |conn| queries::commit(conn, &change))
            .await?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    async fn release(&self, id: &SessionId, grant: &Grant) -> Result<(), StoreError> {
        let (id, grant) = (id.clone(), grant.clone());
        self.worker
            .call(Access::Write, "give back the lease", move |conn| {
                queries::release(conn, &id, &grant)
            })
            .await
    }

    async fn load(&self, id: &SessionId) -> Result<Option<SessionDoc>, StoreError> {
        let wanted = id.clone();
        let found = self
            .worker
            .call(Access::Read, "load the session", move |conn| Ok(queries::find(conn, &wanted)?))
            .await?;
        Ok(found.map(|found| found.into_doc(id)).transpose()?.flatten())
    }

    async fn create(&self, doc: &SessionDoc) -> Result<(), StoreError> {
        let record = Record::new(doc)?;
        let bytes = record.bytes();
        self.worker
            .call(Access::Write, "create the session", move |conn| queries::create(conn, &record))
            .await?;
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    async fn delete(&self, id: &SessionId) -> Result<bool, StoreError> {
        let id = id.clone();
        self.worker
            .call(Access::Write, "delete the session", move |conn| Ok(queries::delete(conn, &id)?))
            .await
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<SessionSummary>, StoreError> {
        let query = query.clone();
        self.worker
            .call(Access::Read, "list sessions", move |conn| listing::list(conn, &query))
            .await
    }

    async fn transcript(&self, id: &SessionId) -> Result<Option<Transcript>, StoreError> {
        let wanted = id.clone();
        let found = self
            .worker
            .call(Access::Read, "read the transcript", move |conn| {
                Ok(queries::transcript(conn, &wanted)?)
            })
            .await?;
        let Some((found, entries)) = found else { return Ok(None) };
        let Some(doc) = found.into_doc(id)? else { return Ok(None) };
        let archive = parse_entries(id, &entries)?;
        Ok(Some(Transcript { doc, archive }))
    }

    async fn checkpoints(&self, id: &SessionId) -> Result<Vec<CheckpointSummary>, StoreError> {
        let id = id.clone();
        self.worker
            .call(Access::Read, "list checkpoints", move |conn| checkpoints::list(conn, &id))
            .await
    }

    async fn checkpoint(
        &self,
        id: &SessionId,
        revision: u64,
    ) -> Result<Option<Transcript>, StoreError> {
        let wanted = id.clone();
        let found = self
            .worker
            .call(Access::Read, "read a checkpoint", move |conn| {
                Ok(checkpoints::read(conn, &wanted, revision)?)
            })
            .await?;
        let Some((text, entries)) = found else { return Ok(None) };
        let doc = checkpoints::parse(id, &text)?;
        let archive = parse_entries(id, &entries)?;
        Ok(Some(Transcript { doc, archive }))
    }

    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        loop {
            let (expired, more) = self
                .worker
                .call(Access::Write, "delete expired sessions", |conn| {
                    queries::expire(conn, EXPIRY_BATCH)
                })
                .await?;
            swept.expired += expired;
            if !more {
                break;
            }
        }
        swept.freed = self
            .worker
            .call(Access::Write, "free sessions", move |conn| queries::free(conn, limit))
            .await?;
        Ok(swept)
    }
}
