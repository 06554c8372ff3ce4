//! Documents in the memory of the process: for unit tests and for flows that need no
//! persistence.
//!
//! Each reader gets a copy of its own, so a test that holds a document is as isolated as
//! with a database.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::{
    CheckpointSummary, Commit, Grant, ListQuery, OpenRequest, Opened, SessionStore, SessionSummary,
    StoreLimits, StoreStats, Swept, Transcript,
};
use crate::error::StoreError;
use crate::id::SessionId;
use crate::session::{ArchiveEntry, ArchiveMark, FORMAT, Lease, SessionDoc, Status};
use crate::time::Timestamp;

/// A store in the memory of the process.
///
/// ```
/// use flow_core::store::{SessionStore, memory::MemoryStore};
/// use flow_core::id::SessionId;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = MemoryStore::new();
/// assert!(store.load(&SessionId::new("nobody")?).await?.is_none());
/// # Ok::<(), flow_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Default)]
pub struct MemoryStore {
    records: Mutex<BTreeMap<SessionId, Record>>,
    commits: AtomicU64,
    limits: StoreLimits,
}

#[derive(Debug, Default)]
struct Record {
    /// Nothing until the first commit. Its lease field is not used; `lease` is.
    doc: Option<SessionDoc>,
    lease: Lease,
    archive: Vec<ArchiveEntry>,
    /// By revision.
    checkpoints: BTreeMap<u64, SessionDoc>,
}

impl Record {
    /// Keeps the document as it is now, and of earlier ones as many as are wanted.
    fn keep_checkpoint(&mut self, keep: usize) {
        let Some(doc) = self.doc.as_ref().filter(|_| keep > 0) else { return };
        let kept = SessionDoc { lease: Lease::default(), ..doc.clone() };
        self.checkpoints.insert(kept.revision, kept);
        while self.checkpoints.len() > keep {
            self.checkpoints.pop_first();
        }
    }

    fn snapshot(&self) -> Option<SessionDoc> {
        self.doc.as_ref().map(|doc| SessionDoc { lease: self.lease.clone(), ..doc.clone() })
    }

    /// Whether anyone may take the lease.
    fn is_free(&self, now: Timestamp) -> bool {
        self.lease.until.is_none_or(|until| until <= now)
    }

    fn check(&self, id: &SessionId, grant: &Grant) -> Result<(), StoreError> {
        if self.lease.token == grant.token && self.lease.holder.as_ref() == Some(&grant.holder) {
            return Ok(());
        }
        Err(StoreError::LeaseLost {
            session: id.clone(),
            token: grant.token,
            current: self.lease.token,
        })
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store with other limits than the default ones.
    pub fn with_limits(limits: StoreLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Record>> {
        // A panic while the lock is held leaves whole records behind, since each change is
        // made in one piece.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_found(id: &SessionId) -> StoreError {
    StoreError::NotFound { session: id.clone() }
}

/// Deletes what belongs to a session that is gone.
fn delete_family(records: &mut BTreeMap<SessionId, Record>, id: &SessionId) {
    let family = format!("{id}~");
    records.retain(|key, _| !key.as_str().starts_with(&family));
}

/// The entries of the archive of a session that belong to one of its documents.
fn archive(
    records: &BTreeMap<SessionId, Record>,
    id: &SessionId,
    mark: &ArchiveMark,
) -> Vec<ArchiveEntry> {
    let mark = mark.from..mark.next;
    let owner = records.get(&id.archive_key());
    let entries = owner.into_iter().flat_map(|owner| &owner.archive);
    entries.filter(|entry| mark.contains(&entry.seq)).cloned().collect()
}

#[async_trait]
impl SessionStore for MemoryStore {
    fn limits(&self) -> StoreLimits {
        self.limits
    }

    fn stats(&self) -> StoreStats {
        StoreStats { commits: self.commits.load(Ordering::Relaxed), bytes_written: 0 }
    }

    async fn open(&self, request: &OpenRequest<'_>) -> Result<Opened, StoreError> {
        let now = Timestamp::now();
        let mut records = self.lock();
        let record = records.entry(request.id.clone()).or_default();
        if let Some(doc) = &record.doc {
            if doc.flow.id != request.flow {
                return Err(StoreError::WrongFlow {
                    session: request.id.clone(),
                    expected: request.flow.to_owned(),
                    found: doc.flow.id.clone(),
                });
            }
            let future = |what, found, supported| StoreError::FromFuture {
                session: request.id.clone(),
                what,
                found,
                supported,
            };
            if doc.format > FORMAT {
                return Err(future("document format", doc.format, FORMAT));
            }
            if doc.version > request.version {
                return Err(future("document version", doc.version, request.version));
            }
        }
        if let (Some(holder), Some(until)) = (&record.lease.holder, record.lease.until)
            && until > now
        {
            return Err(StoreError::Busy {
                session: request.id.clone(),
                holder: holder.clone(),
                until,
            });
        }
        let until = now.after(request.ttl);
        record.lease = Lease {
            holder: Some(request.holder.to_owned()),
            token: record.lease.token + 1,
            until: Some(until),
        };
        let grant = Grant { holder: request.holder.to_owned(), token: record.lease.token, until };
        Ok(Opened { grant, doc: record.snapshot() })
    }

    async fn renew(
        &self,
        id: &SessionId,
        grant: &Grant,
        ttl: Duration,
    ) -> Result<Timestamp, StoreError> {
        let mut records = self.lock();
        let record = records.get_mut(id).ok_or_else(|| not_found(id))?;
        record.check(id, grant)?;
        let until = Timestamp::now().after(ttl);
        record.lease.until = Some(until);
        Ok(until)
    }

    async fn commit(&self, commit: &Commit<'_>) -> Result<(), StoreError> {
        let id = &commit.doc.id;
        let mut records = self.lock();
        let record = records.get_mut(id).ok_or_else(|| not_found(id))?;
        record.check(id, commit.grant)?;
        let found = record.doc.as_ref().map_or(0, |doc| doc.revision);
        if found != commit.base {
            return Err(StoreError::Conflict { session: id.clone(), expected: commit.base, found });
        }
        match &mut record.doc {
            Some(doc) if !commit.delta.replace => {
                commit.delta.apply(doc);
                doc.revision = commit.doc.revision;
            }
            doc => *doc = Some(commit.doc.clone()),
        }
        record.archive.extend_from_slice(commit.archive);
        record.keep_checkpoint(commit.checkpoints);
        if commit.release {
            record.lease.holder = None;
            record.lease.until = None;
        }
        if let Some(old) = commit.supersede {
            let kept = Record { doc: Some(old.clone()), ..Record::default() };
            records.insert(old.id.clone(), kept);
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn release(&self, id: &SessionId, grant: &Grant) -> Result<(), StoreError> {
        let mut records = self.lock();
        if let Some(record) = records.get_mut(id)
            && record.check(id, grant).is_ok()
        {
            record.lease.holder = None;
            record.lease.until = None;
            if record.doc.is_none() {
                records.remove(id);
            }
        }
        Ok(())
    }

    async fn load(&self, id: &SessionId) -> Result<Option<SessionDoc>, StoreError> {
        Ok(self.lock().get(id).and_then(Record::snapshot))
    }

    async fn create(&self, doc: &SessionDoc) -> Result<(), StoreError> {
        let mut records = self.lock();
        if records.contains_key(&doc.id) {
            return Err(StoreError::Exists { session: doc.id.clone() });
        }
        let record = Record {
            doc: Some(doc.clone()),
            lease: Lease { holder: None, token: doc.lease.token, until: None },
            ..Record::default()
        };
        records.insert(doc.id.clone(), record);
        Ok(())
    }

    async fn delete(&self, id: &SessionId) -> Result<bool, StoreError> {
        let mut records = self.lock();
        delete_family(&mut records, id);
        Ok(records.remove(id).is_some_and(|record| record.doc.is_some()))
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<SessionSummary>, StoreError> {
        let now = Timestamp::now();
        let records = self.lock();
        let due = |record: &Record, doc: &SessionDoc, time| {
            doc.wake_at.is_some_and(|at| at <= time) && record.is_free(now)
        };
        let wanted = |(record, doc): &(&Record, &SessionDoc)| {
            query.flow.as_ref().is_none_or(|flow| doc.flow.id == *flow)
                && query.status.is_none_or(|status| doc.status == status)
                && query.owner.as_ref().is_none_or(|owner| doc.owner.as_ref() == Some(owner))
                && query.below_version.is_none_or(|version| doc.version < version)
                && query.due.is_none_or(|time| due(record, doc, time))
                && query.after.as_ref().is_none_or(|after| doc.id > *after)
        };
        Ok(records
            .values()
            .filter_map(|record| Some((record, record.doc.as_ref()?)))
            .filter(wanted)
            .take(query.limit)
            .map(|(_, doc)| SessionSummary::from(doc))
            .collect())
    }

    async fn transcript(&self, id: &SessionId) -> Result<Option<Transcript>, StoreError> {
        let records = self.lock();
        let Some(record) = records.get(id) else { return Ok(None) };
        let Some(doc) = record.snapshot() else { return Ok(None) };
        let archive = archive(&records, id, &doc.archive);
        Ok(Some(Transcript { doc, archive }))
    }

    async fn checkpoints(&self, id: &SessionId) -> Result<Vec<CheckpointSummary>, StoreError> {
        let records = self.lock();
        let kept = records.get(id).into_iter().flat_map(|record| record.checkpoints.values().rev());
        Ok(kept.map(CheckpointSummary::from).collect())
    }

    async fn checkpoint(
        &self,
        id: &SessionId,
        revision: u64,
    ) -> Result<Option<Transcript>, StoreError> {
        let records = self.lock();
        let Some(doc) = records.get(id).and_then(|record| record.checkpoints.get(&revision)) else {
            return Ok(None);
        };
        let archive = archive(&records, id, &doc.archive);
        Ok(Some(Transcript { doc: doc.clone(), archive }))
    }

    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        let now = Timestamp::now();
        let mut swept = Swept::default();
        let mut records = self.lock();
        let mut expired = Vec::new();
        records.retain(|id, record| {
            let free = record.is_free(now);
            let over =
                record.doc.as_ref().is_some_and(|doc| doc.expires_at.is_some_and(|at| at <= now));
            if free && over {
                swept.expired += 1;
                expired.push(id.clone());
                return false;
            }
            if free && record.lease.holder.is_some() && swept.freed.len() < limit {
                record.lease.holder = None;
                record.lease.until = None;
                match &mut record.doc {
                    None => return false,
                    Some(doc) => {
                        if doc.status == Status::Running {
                            doc.status = Status::Waiting;
                            doc.wake_at = Some(doc.wake_at.map_or(now, |at| at.min(now)));
                        }
                        swept.freed.push(id.clone());
                    }
                }
            }
            true
        });
        for id in expired {
            delete_family(&mut records, &id);
        }
        swept.freed.retain(|id| records.contains_key(id));
        Ok(swept)
    }
}
