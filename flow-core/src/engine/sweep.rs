//! Sweeps: sessions whose worker died, sessions whose time has come, sessions that expired.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use super::{Engine, TurnRequest};
use crate::error::{Error, SessionError, StoreError, TurnError};
use crate::id::SessionId;
use crate::session::ErrorRecord;
use crate::store::{ListQuery, SessionSummary};

/// How many sessions one call of the store frees or lists.
const SWEEP_BATCH: usize = 100;

/// How many sessions a sweep wakes at once.
pub const SWEEP_CONCURRENCY: usize = 8;

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepReport {
    /// The sessions whose worker had died, and which are free now.
    pub freed: Vec<SessionId>,
    /// The sessions that were due, and whose turn went well.
    pub woken: Vec<SessionId>,
    /// The sessions that were due, and whose turn failed. They are due again after
    /// [`WAKE_RETRY`](super::WAKE_RETRY) if trying again may help, else never.
    pub failed: Vec<(SessionId, ErrorRecord)>,
    /// How many expired sessions were deleted.
    pub expired: u64,
}

impl Engine {
    /// Does once what [`run_sweeper`](Self::run_sweeper) does again and again:
    ///
    /// * frees the sessions whose worker died (those whose lease has ended without being
    ///   given back); one that was left in the middle of a turn is due at once;
    /// * wakes the sessions that are due: whose sleep is over, or a deadline of a request; at
    ///   most [`SWEEP_CONCURRENCY`] at once. Sessions of flows that this engine does not have
    ///   are left alone;
    /// * deletes the sessions that have expired.
    ///
    /// Any number of engines may sweep at once: each session is woken by one of them.
    ///
    /// # Errors
    /// When the store cannot be reached. What fails in the turn of a session is in the report.
    pub async fn sweep(&self) -> Result<SweepReport, Error> {
        let mut report = SweepReport::default();
        loop {
            let swept = self.core.store.sweep(SWEEP_BATCH).await?;
            let freed = swept.freed.len();
            report.freed.extend(swept.freed);
            report.expired += swept.expired;
            if freed < SWEEP_BATCH {
                break;
            }
        }
        let now = self.core.clock.now();
        let mut query = ListQuery { due: Some(now), limit: SWEEP_BATCH, ..ListQuery::default() };
        loop {
            let mut due = self.core.store.list(&query).await?;
            let Some(last) = due.last() else {
                report.woken.sort();
                return Ok(report);
            };
            query.after = Some(last.id.clone());
            // Several sweepers at once begin at different places.
            fastrand::shuffle(&mut due);
            let known = due.into_iter().filter(|s| self.core.flows.contains_key(s.flow.as_str()));
            let mut turns = stream::iter(known.map(|session| self.wake(session)))
                .buffer_unordered(SWEEP_CONCURRENCY);
            while let Some((session, result)) = turns.next().await {
                match result {
                    Ok(()) => report.woken.push(session),
                    // Another one was faster.
                    Err(Error::Store(StoreError::Busy { .. } | StoreError::NotFound { .. }))
                    | Err(Error::Turn(TurnError::NotDue { .. }))
                    // Its caller goes on with it.
                    | Err(Error::Session(SessionError::Called { .. })) => {}
                    Err(error) => report.failed.push((session, ErrorRecord::from(&error))),
                }
            }
        }
    }

    /// Sweeps at once and after each interval, for as long as the future is polled. A sweep
    /// that fails is logged, and the next one tries again.
    pub async fn run_sweeper(&self, interval: Duration) -> Infallible {
        let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.sweep().await {
                Ok(report) => {
                    for (session, error) in &report.failed {
                        let code = error.code.as_str();
                        tracing::warn!(%session, code, "a session that was due has failed");
                    }
                    tracing::debug!(
                        freed = report.freed.len(),
                        woken = report.woken.len(),
                        expired = report.expired,
                        "swept"
                    );
                }
                Err(error) => tracing::warn!(code = error.code(), %error, "sweep failed"),
            }
        }
    }

    async fn wake(&self, session: SessionSummary) -> (SessionId, Result<(), Error>) {
        let turn = self.turn_of(&session.flow, TurnRequest::wake(session.id.clone()));
        (session.id, turn.await.map(drop))
    }
}
