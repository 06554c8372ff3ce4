use std::collections::BTreeSet;

use serde_json::Value;

use super::build::Registered;
use super::{Core, Engine};
use crate::error::{Error, SessionError, StoreError};
use crate::flow::Flow;
use crate::id::SessionId;
use crate::session::{Delta, ErrorRecord, SessionDoc, Status};
use crate::store::{ListQuery, OpenRequest};

/// How many sessions one call of the store lists unless [`MigrateOptions::batch`] says so.
pub const MIGRATE_BATCH: usize = 100;

/// How [`Engine::migrate_all`] works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigrateOptions {
    /// Says what would change and writes nothing. Default: false.
    pub dry_run: bool,
    /// How many sessions are listed at a time. Default: [`MIGRATE_BATCH`].
    pub batch: usize,
}

impl Default for MigrateOptions {
    fn default() -> Self {
        Self { dry_run: false, batch: MIGRATE_BATCH }
    }
}

impl MigrateOptions {
    /// Says what would change and writes nothing.
    pub fn dry_run() -> Self {
        Self { dry_run: true, ..Self::default() }
    }

    /// Lists another number of sessions at a time; at least 1.
    #[must_use]
    pub fn batch(mut self, sessions: usize) -> Self {
        self.batch = sessions.max(1);
        self
    }
}

/// What became of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MigrateEvent {
    /// It is at the flow's version now, or would be.
    Migrated {
        /// The session.
        session: SessionId,
        /// The version it had.
        from: u32,
        /// The flow's version.
        to: u32,
        /// The parts that differ, e.g. `current_step` or `steps.Checkout`.
        changed: Vec<String>,
    },
    /// It could not be migrated and is as it was.
    Failed {
        /// The session.
        session: SessionId,
        /// Why.
        error: ErrorRecord,
    },
    /// A turn works on it; that turn migrates it.
    Busy {
        /// The session.
        session: SessionId,
    },
}

/// What became of all sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigrateReport {
    /// How many sessions were migrated, or would be.
    pub migrated: u64,
    /// The sessions on which a turn works.
    pub busy: Vec<SessionId>,
    /// The sessions that could not be migrated, and why.
    pub failed: Vec<(SessionId, ErrorRecord)>,
}

impl Engine {
    /// Migrates all sessions of a flow to its document version, one by one, each under its
    /// lease, and tells what became of each. Sessions that are never migrated this way are
    /// migrated by their next turn.
    ///
    /// It may be stopped and started again at any time: what is migrated stays so.
    ///
    /// # Errors
    /// When the flow is not registered or the store cannot be reached. What is wrong with a
    /// single session is in the report.
    pub async fn migrate_all<F: Flow>(
        &self,
        options: MigrateOptions,
        mut progress: impl FnMut(&MigrateEvent) + Send,
    ) -> Result<MigrateReport, Error> {
        let flow = self.flow(F::ID)?;
        let mut report = MigrateReport::default();
        let mut query = ListQuery {
            flow: Some(F::ID.to_owned()),
            below_version: Some(F::VERSION),
            limit: options.batch.max(1),
            ..ListQuery::default()
        };
        loop {
            let page = self.core.store.list(&query).await?;
            for summary in &page {
                // Superseded documents are kept as they were.
                if summary.status == Status::Superseded {
                    continue;
                }
                let event = match migrate_one(&self.core, &*flow, &summary.id, options.dry_run)
                    .await
                {
                    Ok(Some(event)) => event,
                    Ok(None) => continue,
                    Err(Error::Store(StoreError::Busy { session, .. })) => {
                        MigrateEvent::Busy { session }
                    }
                    Err(error @ Error::Store(StoreError::Unavailable { .. })) => return Err(error),
                    Err(error) => MigrateEvent::Failed {
                        session: summary.id.clone(),
                        error: ErrorRecord::from(&error),
                    },
                };
                progress(&event);
                match event {
                    MigrateEvent::Migrated { .. } => report.migrated += 1,
                    MigrateEvent::Busy { session } => report.busy.push(session),
                    MigrateEvent::Failed { session, error } => report.failed.push((session, error)),
                }
            }
            match page.last() {
                Some(last) if page.len() == query.limit => query.after = Some(last.id.clone()),
                _ => return Ok(report),
            }
        }
    }
}

/// Migrates one session. Nothing when there is nothing to do, or the session is gone.
async fn migrate_one(
    core: &Core,
    flow: &dyn Registered,
    id: &SessionId,
    dry_run: bool,
) -> Result<Option<MigrateEvent>, Error> {
    if dry_run {
        let Some(doc) = core.store.load(id).await? else { return Ok(None) };
        let migrated = try_migrate(flow, &doc)?;
        return Ok(migrated.map(|migrated| describe(&doc, &migrated)));
    }
    let request = OpenRequest {
        id,
        flow: flow.id(),
        version: flow.version(),
        holder: &core.holder,
        ttl: core.lease,
    };
    let opened = core.store.open(&request).await?;
    let migrated = match &opened.doc {
        Some(doc) => {
            let migrated = try_migrate(flow, doc);
            migrated.map(|migrated| migrated.map(|new| (doc.clone(), new)))
        }
        None => Ok(None),
    };
    match migrated {
        Ok(Some((doc, migrated))) => {
            let event = describe(&doc, &migrated);
            let mut ledger = core.ledger(&opened.grant, doc);
            ledger.replace(migrated);
            // `updated_at` stays: a session does not become less idle by being migrated.
            match ledger.commit(Delta::default(), &[], true).await {
                Ok(()) => Ok(Some(event)),
                Err(error) => {
                    core.store.release(id, &opened.grant).await?;
                    Err(error)
                }
            }
        }
        other => {
            core.store.release(id, &opened.grant).await?;
            Ok(other.map(|_| None)?)
        }
    }
}

/// Migrates a document, and checks that its next turn will find the step it stands at.
fn try_migrate(
    flow: &dyn Registered,
    doc: &SessionDoc,
) -> Result<Option<SessionDoc>, SessionError> {
    let migrated = flow.migrate(doc)?;
    if let Some(migrated) = &migrated {
        flow.check_step(migrated)?;
    }
    Ok(migrated)
}

fn describe(old: &SessionDoc, new: &SessionDoc) -> MigrateEvent {
    MigrateEvent::Migrated {
        session: old.id.clone(),
        from: old.version,
        to: new.version,
        changed: changed_parts(old, new),
    }
}

/// The parts in which two documents differ; steps and memories one by one.
fn changed_parts(old: &SessionDoc, new: &SessionDoc) -> Vec<String> {
    let parts = |doc: &SessionDoc| serde_json::to_value(doc).unwrap_or_default();
    let (old, new) = (parts(old), parts(new));
    let mut changed = Vec::new();
    for part in keys(&old, &new) {
        if part == "version" || old.get(&part) == new.get(&part) {
            continue;
        }
        let (old, new) = (&old[&part], &new[&part]);
        if matches!(part.as_str(), "steps" | "memory") {
            let names = keys(old, new).into_iter().filter(|name| old.get(name) != new.get(name));
            changed.extend(names.map(|name| format!("{part}.{name}")));
        } else {
            changed.push(part);
        }
    }
    changed
}

fn keys(old: &Value, new: &Value) -> BTreeSet<String> {
    let of = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
    of(old).into_iter().chain(of(new)).flatten().collect()
}
