//! The lease of a turn: renewed while the turn runs, and given back whatever happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::Core;
use super::turn::cancelled;
use crate::error::{EffectError, Error, SessionError, StoreError, TurnError};
use crate::id::SessionId;
use crate::ledger::Ledger;
use crate::session::{Delta, ErrorRecord, SessionDoc, Status};
use crate::store::{Grant, SessionStore};
use crate::time::Timestamp;

/// How long after a failed turn a session that was due is due again.
pub const WAKE_RETRY: Duration = Duration::from_secs(60);

/// A lease while a turn runs: it is renewed in the background, and given back even when the
/// turn is dropped in the middle.
pub(super) struct Held {
    store: Arc<dyn SessionStore>,
    checkpoints: usize,
    session: SessionId,
    grant: Option<Grant>,
    now: Timestamp,
    /// Whether the session was due: nobody else may come back to it.
    due: bool,
    /// Whether the worker of its last turn has died.
    died: bool,
    pub(super) closing: Arc<AtomicBool>,
    /// Ends when the lease is lost.
    renewal: JoinHandle<StoreError>,
}

impl Held {
    pub(super) fn new(
        core: &Core,
        session: &SessionId,
        grant: Grant,
        doc: Option<&SessionDoc>,
    ) -> Self {
        let now = core.clock.now();
        let renewal = renew(core.store.clone(), session.clone(), grant.clone(), core.lease);
        Self {
            store: core.store.clone(),
            checkpoints: core.checkpoints.count(),
            session: session.clone(),
            grant: Some(grant),
            now,
            due: doc.is_some_and(|doc| is_due(doc, now)),
            died: doc.is_some_and(|doc| doc.status == Status::Running),
            closing: Arc::default(),
            renewal: tokio::spawn(renewal),
        }
    }

    /// Waits until the lease is lost, and says how. Once the last commit is on its way, its
    /// own result says so, and a renewal that comes after it is late, not lost.
    pub(super) async fn lost(&mut self) -> StoreError {
        match (&mut self.renewal).await {
            Ok(error) if !self.closing.load(Ordering::Relaxed) => error,
            _ => std::future::pending().await,
        }
    }

    /// The last commit has given the lease back.
    pub(super) fn forget(mut self) {
        self.grant = None;
    }

    /// Whether the session was due when it was opened.
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// Gives the lease back without a change. When that fails it runs out by itself.
    pub(super) async fn give_back(mut self) {
        self.renewal.abort();
        if let Some(grant) = self.grant.take()
            && let Err(error) = give_back(&self.store, &self.session, &grant, self.died).await
        {
            tracing::warn!(session = %self.session, error = %error, "lease not given back");
        }
    }

    /// Gives the lease back without a change, and leaves a session whose worker has died to
    /// whoever has called it.
    pub(super) async fn leave(mut self) {
        self.died = false;
        self.give_back().await;
    }

    /// Records an error in the document as it was last committed, and gives the lease back.
    pub(super) async fn record(mut self, error: &Error) {
        if let Some(grant) = self.grant.take() {
            let store = (&self.store, self.checkpoints);
            let was = (self.now, self.due, self.died);
            record_failure(store, &self.session, grant, error, was).await;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.renewal.abort();
        if let Some(grant) = self.grant.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (store, checkpoints) = (self.store.clone(), self.checkpoints);
            let session = self.session.clone();
            let was = (self.now, self.due, self.died);
            runtime.spawn(async move {
                let store = (&store, checkpoints);
                record_failure(store, &session, grant, &cancelled(&session), was).await;
            });
        }
    }
}

/// Whether the time has come for which a session waits.
fn is_due(doc: &SessionDoc, now: Timestamp) -> bool {
    doc.wake_at.is_some_and(|at| at <= now)
}

/// Gives a lease back without a change. A session whose worker has died is found by a sweep, by
/// a lease that has ended.
pub(super) async fn give_back(
    store: &Arc<dyn SessionStore>,
    session: &SessionId,
    grant: &Grant,
    died: bool,
) -> Result<(), StoreError> {
    if died {
        return store.renew(session, grant, Duration::ZERO).await.map(drop);
    }
    store.release(session, grant).await
}

/// Renews a lease after each third of its time, until it is lost.
async fn renew(
    store: Arc<dyn SessionStore>,
    session: SessionId,
    grant: Grant,
    lease: Duration,
) -> StoreError {
    let pause = (lease / 3).max(Duration::from_millis(1));
    loop {
        tokio::time::sleep(pause).await;
        match store.renew(&session, &grant, lease).await {
            Ok(_) => {}
            Err(error @ (StoreError::LeaseLost { .. } | StoreError::NotFound { .. })) => {
                tracing::warn!(session = %session, error = %error, "lease lost");
                return error;
            }
            // The store may come back before the lease is over; if not, the next commit fails.
            Err(error) => tracing::warn!(session = %session, error = %error, "lease not renewed"),
        }
    }
}

/// Leaves the document at its last commit, with the error recorded and the lease given back.
async fn record_failure(
    (store, checkpoints): (&Arc<dyn SessionStore>, usize),
    session: &SessionId,
    grant: Grant,
    error: &Error,
    (now, due, died): (Timestamp, bool, bool),
) {
    // Documents that cannot be used as they are stay as they are. When the store is gone or
    // the lease is lost, the lease runs out by itself.
    let untouched = match error {
        Error::Store(_) => !due,
        Error::Build(_)
        | Error::Effect(EffectError::NotWaiting { .. } | EffectError::Rejected { .. })
        | Error::Turn(TurnError::DigressionRefused { .. } | TurnError::DigressionDepth { .. }) => {
            true
        }
        Error::Session(error) => !matches!(
            error,
            SessionError::TooLarge { .. }
                | SessionError::TooDeep { .. }
                | SessionError::Unwritable { .. }
        ),
        _ => false,
    };
    let stored = if untouched { None } else { store.load(session).await.ok().flatten() };
    let recorded = match stored {
        Some(doc) if doc.lease.token == grant.token => {
            // A turn that was due and failed is tried again by a sweeper, if that may help.
            let later = error.retryable().then(|| now.after(WAKE_RETRY));
            let delta = Delta {
                wake_at: due.then_some(later),
                // What has ended stays so.
                status: doc.ended.is_none().then_some(Status::Failed),
                error: Some(Some(ErrorRecord::from(error))),
                updated_at: Some(now),
                ..Delta::default()
            };
            let ledger = Ledger::new(store.clone(), grant.clone(), doc, checkpoints);
            ledger.commit(delta, &[], true).await.is_ok()
        }
        _ => false,
    };
    // Of a session that was due, a sweeper learns when the lease has run out.
    if !recorded && (untouched || !due) {
        let _ = give_back(store, session, &grant, died && untouched).await;
    }
}
