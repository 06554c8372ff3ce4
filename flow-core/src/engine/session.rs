use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Core;
use super::call::check_own;
use crate::error::{Error, SessionError, StoreError};
use crate::id::SessionId;
use crate::session::{Delta, SessionDoc, Status, Visit, Waiting};
use crate::store::{Grant, OpenRequest, Transcript};

/// One session, from outside of its turns.
#[derive(Clone)]
pub struct SessionHandle {
    pub(super) core: Arc<Core>,
    pub(super) id: SessionId,
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

    /// Deletes the session with its transcript, its checkpoints, the documents that it has
    /// superseded and the sessions that its actions have begun (called flows, items of
    /// batches). A turn that runs cannot commit any more.
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
        self.change(|doc| match doc.waiting {
            Some(Waiting::Escalation { .. }) => Ok(Delta {
                // A form that has asked enough asks afresh.
                visit: Some(Visit { asked: 0, ..doc.visit.clone() }),
                waiting: Some(Some(Waiting::Message { question: None })),
                ..Delta::default()
            }),
            _ => {
                let status = doc.status.as_str();
                Err(SessionError::NotEscalated { session: self.id.to_string(), status })
            }
        })
        .await
    }

    /// Forgets what the current step has done and waits for, so that its next run begins anew,
    /// in this build of the flow. For a session that fails with
    /// [`EffectError::Diverged`](crate::error::EffectError::Diverged). Its effects are done
    /// again, those that are the same as before with the same idempotency keys.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such session, [`StoreError::Busy`] while a
    /// turn works on it, [`SessionError::Ended`] when it has ended.
    pub async fn restart_step(&self) -> Result<(), Error> {
        self.change(|doc| {
            self.check_goes_on(doc)?;
            // What was said stays said; the run says it again.
            let visit = Visit { said: 0, round: None, ..doc.visit.clone() };
            Ok(Delta {
                visit: Some(visit),
                effects: Some(BTreeMap::new()),
                waiting: Some(Some(Waiting::Message { question: None })),
                wake_at: Some(None),
                ..Delta::default()
            })
        })
        .await
    }

    /// Ends the session where it stands. Nothing of its step runs any more.
    ///
    /// # Errors
    /// As [`restart_step`](Self::restart_step).
    pub async fn abandon(&self, reason: impl Into<String>) -> Result<(), Error> {
        let reason = reason.into();
        self.change(|doc| {
            self.check_goes_on(doc)?;
            Ok(Delta {
                status: Some(Status::Completed),
                ended: Some(Some(reason)),
                waiting: Some(None),
                wake_at: Some(None),
                ..Delta::default()
            })
        })
        .await
    }

    fn check_goes_on(&self, doc: &SessionDoc) -> Result<(), SessionError> {
        match &doc.ended {
            Some(reason) => {
                let (session, reason) = (self.id.to_string(), reason.clone());
                Err(SessionError::Ended { session, reason })
            }
            None => Ok(()),
        }
    }

    /// Makes a change outside of a turn, under the lease.
    async fn change(
        &self,
        make: impl FnOnce(&SessionDoc) -> Result<Delta, SessionError>,
    ) -> Result<(), Error> {
        let (grant, doc) = self.open().await?;
        let status = doc.status;
        let changed = match make(&doc) {
            Ok(delta) => {
                let updated_at = Some(self.core.clock.now());
                let delta = Delta { updated_at, ..delta };
                self.core.ledger(&grant, doc).commit(delta, &[], true).await
            }
            Err(error) => Err(error.into()),
        };
        if changed.is_err() {
            self.give_back(&grant, status).await?;
        }
        changed
    }

    /// Gives the lease back without a change.
    pub(super) async fn give_back(&self, grant: &Grant, status: Status) -> Result<(), StoreError> {
        let store = &self.core.store;
        if status == Status::Running {
            // Its worker has died. A sweep finds that by a lease that has ended.
            return store.renew(&self.id, grant, Duration::ZERO).await.map(drop);
        }
        store.release(&self.id, grant).await
    }

    /// Takes the lease outside of a turn. Whoever does so gives it back.
    pub(super) async fn open(&self) -> Result<(Grant, SessionDoc), Error> {
        let doc = self.load().await?;
        check_own(&doc)?;
        let request = OpenRequest {
            id: &self.id,
            flow: &doc.flow.id,
            version: doc.version,
            holder: &self.core.holder,
            ttl: self.core.lease,
        };
        let opened = self.core.store.open(&request).await?;
        match opened.doc {
            Some(doc) => Ok((opened.grant, doc)),
            None => {
                // It was deleted meanwhile; this takes back what `open` has made.
                self.core.store.release(&self.id, &opened.grant).await?;
                Err(self.not_found().into())
            }
        }
    }

    pub(super) fn not_found(&self) -> StoreError {
        StoreError::NotFound { session: self.id.clone() }
    }
}

impl fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionHandle").field(&self.id).finish()
    }
}
