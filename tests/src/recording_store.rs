//! A store that writes down what it is asked to do, in front of a real one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flow_core::error::StoreError;
use flow_core::id::SessionId;
use flow_core::session::{ArchiveEntry, Delta, SessionDoc};
use flow_core::store::{
    CheckpointSummary, Commit, Grant, ListQuery, OpenRequest, Opened, SessionStore, SessionSummary,
    StoreLimits, StoreStats, Swept, Transcript,
};
use flow_core::time::Timestamp;

/// One call of the store.
#[derive(Debug, Clone)]
pub enum Call {
    /// `open`.
    Open,
    /// `renew`.
    Renew,
    /// `commit`, with what it changes and what results.
    Commit {
        /// What changes.
        delta: Box<Delta>,
        /// The document afterwards.
        doc: Box<SessionDoc>,
        /// What moves to the archive.
        archive: Vec<ArchiveEntry>,
        /// Whether the lease is given back.
        release: bool,
    },
    /// `release`.
    Release,
    /// `load`.
    Load,
    /// Anything else.
    Other(&'static str),
}

impl Call {
    /// The name of the method.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Renew => "renew",
            Self::Commit { release: false, .. } => "commit",
            Self::Commit { release: true, .. } => "commit+release",
            Self::Release => "release",
            Self::Load => "load",
            Self::Other(name) => name,
        }
    }
}

/// A store that writes down each call before it makes it. Clones share the record.
#[derive(Clone)]
pub struct RecordingStore {
    inner: Arc<dyn SessionStore>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl RecordingStore {
    /// In front of a store.
    pub fn new(inner: impl SessionStore) -> Self {
        Self { inner: Arc::new(inner), calls: Arc::default() }
    }

    /// The calls since the last time.
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The names of the calls since the last time.
    pub fn take_names(&self) -> Vec<&'static str> {
        self.take().iter().map(Call::name).collect()
    }

    fn record(&self, call: Call) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}

#[async_trait::async_trait]
impl SessionStore for RecordingStore {
    fn limits(&self) -> StoreLimits {
        self.inner.limits()
    }

    fn encoded_len(&self, value: &serde_json::Value) -> u64 {
        self.inner.encoded_len(value)
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }

    async fn open(&self, request: &OpenRequest<'_>) -> Result<Opened, StoreError> {
        self.record(Call::Open);
        self.inner.open(request).await
    }

    async fn renew(
        &self,
        id: &SessionId,
        grant: &Grant,
        ttl: Duration,
    ) -> Result<Timestamp, StoreError> {
        self.record(Call::Renew);
        self.inner.renew(id, grant, ttl).await
    }

    async fn commit(&self, commit: &Commit<'_>) -> Result<(), StoreError> {
        self.record(Call::Commit {
            delta: Box::new(commit.delta.clone()),
            doc: Box::new(commit.doc.clone()),
            archive: commit.archive.to_vec(),
            release: commit.release,
        });
        self.inner.commit(commit).await
    }

    async fn release(&self, id: &SessionId, grant: &Grant) -> Result<(), StoreError> {
        self.record(Call::Release);
        self.inner.release(id, grant).await
    }

    async fn load(&self, id: &SessionId) -> Result<Option<SessionDoc>, StoreError> {
        self.record(Call::Load);
        self.inner.load(id).await
    }

    async fn create(&self, doc: &SessionDoc) -> Result<(), StoreError> {
        self.record(Call::Other("create"));
        self.inner.create(doc).await
    }

    async fn delete(&self, id: &SessionId) -> Result<bool, StoreError> {
        self.record(Call::Other("delete"));
        self.inner.delete(id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<SessionSummary>, StoreError> {
        self.record(Call::Other("list"));
        self.inner.list(query).await
    }

    async fn transcript(&self, id: &SessionId) -> Result<Option<Transcript>, StoreError> {
        self.record(Call::Other("transcript"));
        self.inner.transcript(id).await
    }

    async fn checkpoints(&self, id: &SessionId) -> Result<Vec<CheckpointSummary>, StoreError> {
        self.record(Call::Other("checkpoints"));
        self.inner.checkpoints(id).await
    }

    async fn checkpoint(
        &self,
        id: &SessionId,
        revision: u64,
    ) -> Result<Option<Transcript>, StoreError> {
        self.record(Call::Other("checkpoint"));
        self.inner.checkpoint(id, revision).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        self.record(Call::Other("sweep"));
        self.inner.sweep(limit).await
    }
}
