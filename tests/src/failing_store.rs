//! A store that fails, hangs or ends the process at one call, in front of a real one.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flow_core::error::StoreError;
use flow_core::id::SessionId;
use flow_core::session::SessionDoc;
use flow_core::store::{
    CheckpointSummary, Commit, Grant, ListQuery, OpenRequest, Opened, SessionStore, SessionSummary,
    StoreLimits, StoreStats, Swept, Transcript,
};
use flow_core::time::Timestamp;
use tokio::sync::Notify;

/// What a call does instead of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done, and the call fails.
    FailBefore,
    /// The work is done, and the call fails: the answer was lost.
    FailAfter,
    /// Nothing is done, and the call never returns.
    HangBefore,
    /// The work is done, and the call never returns.
    HangAfter,
    /// Nothing is done, and the process kills itself with SIGKILL.
    KillBefore,
    /// The work is done, and the process kills itself with SIGKILL.
    KillAfter,
    /// Nothing is done, and this call and all that come after it fail, as if the process
    /// were dead: of what it does without the store, nothing is known.
    StopBefore,
    /// The work is done, and this call and all that come after it fail.
    StopAfter,
}

impl Fault {
    /// Those that the process survives.
    pub const SURVIVED: [Self; 4] =
        [Self::FailBefore, Self::FailAfter, Self::HangBefore, Self::HangAfter];
}

/// A store that fails or hangs at one call. Clones share the plan.
#[derive(Clone)]
pub struct FailingStore {
    inner: Arc<dyn SessionStore>,
    /// How many calls are made before the one that fails.
    plan: Arc<Mutex<Option<(usize, Fault)>>>,
    hanging: Arc<Notify>,
    stopped: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
}

impl FailingStore {
    /// In front of a store. Nothing fails until a fault is armed.
    pub fn new(inner: impl SessionStore) -> Self {
        Self::shared(Arc::new(inner))
    }

    /// In front of a store that is shared with others.
    pub fn shared(inner: Arc<dyn SessionStore>) -> Self {
        Self {
            inner,
            plan: Arc::default(),
            hanging: Arc::default(),
            stopped: Arc::default(),
            calls: Arc::default(),
        }
    }

    /// Plans a fault for the call after the next `calls` of `open`, `commit`, `release` and
    /// `load`.
    pub fn arm(&self, calls: usize, fault: Fault) {
        *self.plan() = Some((calls, fault));
    }

    /// Takes the plan back. Returns whether its call was never made.
    pub fn disarm(&self) -> bool {
        self.plan().take().is_some()
    }

    /// Waits until a call hangs.
    pub async fn hangs(&self) {
        self.hanging.notified().await;
    }

    /// Lets all calls fail from now on.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether all calls fail.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// How many calls that can fail were made.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Option<(usize, Fault)>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of this call.
    fn due(&self) -> Option<Fault> {
        let mut plan = self.plan();
        match &mut *plan {
            Some((0, fault)) => {
                let fault = *fault;
                *plan = None;
                Some(fault)
            }
            Some((calls, _)) => {
                *calls -= 1;
                None
            }
            None => None,
        }
    }

    async fn call<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let fault = self.due();
        match fault {
            _ if self.is_stopped() => {}
            None => return work.await,
            Some(Fault::FailBefore) => {}
            Some(Fault::StopBefore) => self.stop(),
            Some(Fault::StopAfter) => {
                drop(work.await?);
                self.stop();
            }
            Some(Fault::FailAfter) => drop(work.await?),
            Some(Fault::HangBefore) => {
                self.hanging.notify_one();
                std::future::pending::<()>().await;
            }
            Some(Fault::HangAfter) => {
                drop(work.await?);
                self.hanging.notify_one();
                std::future::pending::<()>().await;
            }
            Some(Fault::KillBefore) => kill(),
            Some(Fault::KillAfter) => {
                drop(work.await?);
                kill();
            }
        }
        Err(unavailable())
    }
}

fn unavailable() -> StoreError {
    let source = "the connection was lost as planned".into();
    StoreError::Unavailable { backend: "the store", operation: "answer", source }
}

fn kill() -> ! {
    let _ = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
    unreachable!("SIGKILL cannot be survived")
}

#[async_trait::async_trait]
impl SessionStore for FailingStore {
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
        self.call(self.inner.open(request)).await
    }

    async fn renew(
        &self,
        id: &SessionId,
        grant: &Grant,
        ttl: Duration,
    ) -> Result<Timestamp, StoreError> {
        if self.is_stopped() {
            return Err(unavailable());
        }
        self.inner.renew(id, grant, ttl).await
    }

    async fn commit(&self, commit: &Commit<'_>) -> Result<(), StoreError> {
        self.call(self.inner.commit(commit)).await
    }

    async fn release(&self, id: &SessionId, grant: &Grant) -> Result<(), StoreError> {
        self.call(self.inner.release(id, grant)).await
    }

    async fn load(&self, id: &SessionId) -> Result<Option<SessionDoc>, StoreError> {
        self.call(self.inner.load(id)).await
    }

    async fn create(&self, doc: &SessionDoc) -> Result<(), StoreError> {
        self.inner.create(doc).await
    }

    async fn delete(&self, id: &SessionId) -> Result<bool, StoreError> {
        self.inner.delete(id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<SessionSummary>, StoreError> {
        self.inner.list(query).await
    }

    async fn transcript(&self, id: &SessionId) -> Result<Option<Transcript>, StoreError> {
        self.inner.transcript(id).await
    }

    async fn checkpoints(&self, id: &SessionId) -> Result<Vec<CheckpointSummary>, StoreError> {
        self.inner.checkpoints(id).await
    }

    async fn checkpoint(
        &self,
        id: &SessionId,
        revision: u64,
    ) -> Result<Option<Transcript>, StoreError> {
        self.inner.checkpoint(id, revision).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        self.inner.sweep(limit).await
    }
}
