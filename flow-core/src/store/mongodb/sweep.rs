//! What dead workers and expired sessions leave behind.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use futures_util::TryStreamExt as _;
use mongodb::Collection;
use mongodb::bson::{Document, doc};

use super::{MongoStore, codec, command, failure};
use crate::error::StoreError;
use crate::id::SessionId;
use crate::store::Swept;

const OPERATION: &str = "sweep";

impl MongoStore {
    pub(super) async fn sweep_all(&self, limit: usize) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        self.free_abandoned(limit, &mut swept).await?;
        self.drop_archives(limit).await?;
        self.drop_checkpoints(limit).await?;
        Ok(swept)
    }

    /// Frees sessions one by one, each guarded by the token that was seen, so that of
    /// several sweeps one frees it and a worker that has taken over keeps it.
    async fn free_abandoned(&self, limit: usize, swept: &mut Swept) -> Result<(), StoreError> {
        let failed = |e| failure::driver(OPERATION, e);
        let found: Vec<Document> = self
            .sessions
            .find(command::abandoned())
            .projection(doc! { "uncommitted": 1, "lease.token": 1 })
            .limit(clamp(limit))
            .await
            .map_err(failed)?
            .try_collect()
            .await
            .map_err(failed)?;
        for document in found {
            let Ok(id) = document.get_str("_id") else { continue };
            let token = document.get_document("lease").ok().and_then(|lease| lease.get("token"));
            let token = token.and_then(codec::integer).unwrap_or(0);
            let mut filter = command::abandoned();
            filter.insert("_id", id);
            filter.insert("lease.token", token);
            if document.contains_key(command::UNCOMMITTED) {
                let filter = command::uncommitted(filter);
                self.sessions.delete_one(filter).await.map_err(failed)?;
                continue;
            }
            let filter = command::committed(filter);
            let freed =
                self.sessions.update_one(filter, command::free(token)).await.map_err(failed)?;
            if freed.matched_count == 1 {
                let id = SessionId::try_from(id.to_owned());
                swept.freed.push(id.map_err(|e| failure::refused(OPERATION, e.to_string()))?);
            }
        }
        Ok(())
    }

    /// Deletes archives whose sessions the server has deleted since they expired. Each
    /// sweep looks at the next `limit` archives and begins again after the last one.
    async fn drop_archives(&self, limit: usize) -> Result<(), StoreError> {
        let failed = |e| failure::driver(OPERATION, e);
        let after = read(&self.archives_swept_to);
        let first_entries: Vec<Document> = self
            .archive
            .find(doc! { "session": { "$gt": after }, "seq": 0_i64 })
            .projection(doc! { "session": 1 })
            .sort(doc! { "session": 1, "seq": 1 })
            .limit(clamp(limit))
            .await
            .map_err(failed)?
            .try_collect()
            .await
            .map_err(failed)?;
        let all = first_entries.len() < limit;
        let sessions = first_entries.iter().filter_map(|entry| entry.get_str("session").ok());
        let sessions = sessions.map(str::to_owned).collect();
        go_on(&self.archives_swept_to, &sessions, all);
        self.drop_orphans(&self.archive, sessions).await
    }

    /// Deletes checkpoints whose sessions the server has deleted since they expired, in the
    /// same way.
    async fn drop_checkpoints(&self, limit: usize) -> Result<(), StoreError> {
        let after = read(&self.checkpoints_swept_to);
        let found = self.sessions_with_checkpoints(&after, clamp(limit)).await;
        let (sessions, all) = found.map_err(|e| failure::driver(OPERATION, e))?;
        go_on(&self.checkpoints_swept_to, &sessions, all);
        self.drop_orphans(&self.checkpoints, sessions).await
    }

    /// Deletes from a collection what belongs to those of the sessions that are gone.
    async fn drop_orphans(
        &self,
        collection: &Collection<Document>,
        sessions: BTreeSet<String>,
    ) -> Result<(), StoreError> {
        let failed = |e| failure::driver(OPERATION, e);
        if sessions.is_empty() {
            return Ok(());
        }
        let alive: BTreeSet<String> = self
            .sessions
            .find(doc! { "_id": { "$in": sessions.iter().collect::<Vec<_>>() } })
            .projection(doc! { "_id": 1 })
            .await
            .map_err(failed)?
            .try_filter_map(async |document| Ok(document.get_str("_id").ok().map(str::to_owned)))
            .try_collect()
            .await
            .map_err(failed)?;
        for session in sessions.difference(&alive) {
            self.delete_orphan(collection, session).await?;
        }
        Ok(())
    }

    /// Deletes what belongs to a session that is gone. Tokens are read first and the session
    /// is looked for then: should it be made again meanwhile, it is either seen or its
    /// entries have newer tokens, and they stay.
    async fn delete_orphan(
        &self,
        collection: &Collection<Document>,
        session: &str,
    ) -> Result<(), StoreError> {
        let failed = |e| failure::driver(OPERATION, e);
        let Ok(id) = SessionId::try_from(session.to_owned()) else { return Ok(()) };
        let entries: Vec<Document> = collection
            .find(doc! { "session": session })
            .projection(doc! { "token": 1 })
            .await
            .map_err(failed)?
            .try_collect()
            .await
            .map_err(failed)?;
        let newest =
            entries.iter().filter_map(|entry| entry.get("token").and_then(codec::integer)).max();
        for owner in [doc! { "_id": session }, command::family("_id", &id)] {
            if self.sessions.find_one(owner).await.map_err(failed)?.is_some() {
                return Ok(());
            }
        }
        let filter = doc! { "session": session, "token": { "$lte": newest } };
        collection.delete_many(filter).await.map(drop).map_err(failed)
    }
}

/// Where a sweep begins.
fn read(swept_to: &Mutex<String>) -> String {
    swept_to.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Has the next sweep begin after these sessions, or at the first one after all of them.
fn go_on(swept_to: &Mutex<String>, sessions: &BTreeSet<String>, all: bool) {
    let last = if all { None } else { sessions.last() };
    let last = last.cloned().unwrap_or_default();
    *swept_to.lock().unwrap_or_else(PoisonError::into_inner) = last;
}

fn clamp(limit: usize) -> i64 {
    // 0 would be no limit.
    i64::try_from(limit.max(1)).unwrap_or(i64::MAX)
}
