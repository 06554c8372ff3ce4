use std::fmt;
use std::sync::Arc;

use super::Core;
use crate::error::{Error, SessionError, StoreError};
use crate::id::SessionId;
use crate::ledger::Ledger;
use crate::session::{Delta, SessionDoc, Visit, Waiting};
use crate::store::{OpenRequest, SessionStore, Transcript};

/// How many sessions one call of the store frees.
const SWEEP_BATCH: usize = 100;

/// One session, from outside of its turns.
#[derive(Clone)]
pub struct SessionHandle {
    core: Arc<Core>,
    id: SessionId,
}

impl SessionHandle {
    pub(super) fn new(core: Arc<Core>, id: SessionId) -> Self {
        Self { core, id }
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// The document as it was last committed.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such session.
    pub async fn load(&self) -> Result<SessionDoc, Error> {
        Ok(self.core.store.load(&self.id).await?.ok_or_else(|| self.not_found())?)
    }

    /// The document and all messages that were ever said.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such session.
    pub async fn transcript(&self) -> Result<Transcript, Error> {
        Ok(self.core.store.transcript(&self.id).await?.ok_or_else(|| self.not_found())?)
    }

    /// Deletes the session with its transcript and the documents that it has superseded. A
    /// turn that runs cannot commit any more.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such session.
    pub async fn delete(&self) -> Result<(), Error> {
        if self.core.store.delete(&self.id).await? { Ok(()) } else { Err(self.not_found().into()) }
    }

    /// Takes a session that was escalated back from the person who took over: its next turn
    /// goes on at the step that escalated. Messages that came meanwhile are in the history.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such session, [`StoreError::Busy`] while a
    /// turn works on it, [`SessionError::NotEscalated`] when nobody has taken over.
    pub async fn release(&self) -> Result<(), Error> {
        let doc = self.load().await?;
        let request = OpenRequest {
            id: &self.id,
            flow: &doc.flow.id,
            version: doc.version,
            holder: &self.core.holder,
            ttl: self.core.lease,
        };
        let opened = self.core.store.open(&request).await?;
        let released = match opened.doc {
            Some(doc) if matches!(doc.waiting, Some(Waiting::Escalation { .. })) => {
                // A form that has asked enough asks afresh.
                let visit = Visit { asked: 0, ..doc.visit.clone() };
                let mut ledger = Ledger::new(self.core.store.clone(), opened.grant.clone(), doc);
                let delta = Delta {
                    visit: Some(visit),
                    waiting: Some(Some(Waiting::Message { question: None })),
                    updated_at: Some(self.core.clock.now()),
                    ..Delta::default()
                };
                ledger.commit(delta, &[], true).await
            }
            Some(doc) => {
                let status = doc.status.as_str();
                Err(SessionError::NotEscalated { session: self.id.to_string(), status }.into())
            }
            None => Err(self.not_found().into()),
        };
        if released.is_err() {
            self.core.store.release(&self.id, &opened.grant).await?;
        }
        released
    }

    fn not_found(&self) -> StoreError {
        StoreError::NotFound { session: self.id.clone() }
    }
}

impl fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionHandle").field(&self.id).finish()
    }
}

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepReport {
    /// The sessions whose worker had died, and which are free now.
    pub freed: Vec<SessionId>,
    /// How many expired sessions were deleted.
    pub expired: u64,
}

pub(super) async fn sweep(store: &dyn SessionStore) -> Result<SweepReport, Error> {
    let mut report = SweepReport::default();
    loop {
        let swept = store.sweep(SWEEP_BATCH).await?;
        let freed = swept.freed.len();
        report.freed.extend(swept.freed);
        report.expired += swept.expired;
        if freed < SWEEP_BATCH {
            return Ok(report);
        }
    }
}
