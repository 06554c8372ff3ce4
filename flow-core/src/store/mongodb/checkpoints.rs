//! Documents as they were.
//!
//! A checkpoint is inserted before the update that commits it, under an id of its own. The
//! update appends that id to the `checkpoints` of the session's document, so a checkpoint is
//! there for readers exactly when its commit is, whatever was left by commits that failed.

use std::collections::BTreeSet;

use futures_util::TryStreamExt as _;
use mongodb::bson::{Bson, Document, doc};

use super::{MongoStore, codec, command, corrupt, failure, number, read, unencodable};
use crate::error::StoreError;
use crate::id::SessionId;
use crate::store::{CheckpointSummary, Commit, Transcript};
use crate::time::Timestamp;

/// The list, in the document of a session, of the ids of its checkpoints, oldest first.
pub(super) const LISTED: &str = "checkpoints";

const LIST: &str = "list checkpoints";
const READ: &str = "read a checkpoint";

impl MongoStore {
    /// Inserts the checkpoint of a commit, if it leaves one. Returns its id.
    pub(super) async fn write_checkpoint(
        &self,
        commit: &Commit<'_>,
    ) -> Result<Option<String>, StoreError> {
        if commit.checkpoints == 0 {
            return Ok(None);
        }
        let id = uuid::Uuid::now_v7().simple().to_string();
        let kept = codec::document(commit.doc, command::free_lease(0)).map_err(unencodable)?;
        let document = doc! {
            "_id": &id,
            "session": commit.doc.id.as_str(),
            "revision": codec::token(commit.doc.revision),
            "token": codec::token(commit.grant.token),
            "doc": kept,
        };
        self.written(codec::document_len(&document));
        let inserted = self.checkpoints.insert_one(document).await;
        inserted.map_err(|e| failure::driver("write a checkpoint", e))?;
        Ok(Some(id))
    }

    /// Deletes what is no checkpoint of the session any more, and what commits that failed
    /// have left, once in as many commits as there are checkpoints. What is newer than the
    /// commit, or was written under a newer lease, is another worker's business.
    ///
    /// The commit is made: what cannot be deleted now is deleted later.
    pub(super) async fn delete_old_checkpoints(&self, commit: &Commit<'_>) {
        let keep = commit.checkpoints as u64;
        if keep == 0 || !commit.doc.revision.is_multiple_of(keep) {
            return;
        }
        if let Err(error) = self.delete_unlisted(commit).await {
            let session = &commit.doc.id;
            tracing::debug!(%session, %error, "old checkpoints not deleted");
        }
    }

    async fn delete_unlisted(&self, commit: &Commit<'_>) -> Result<(), StoreError> {
        let session = &commit.doc.id;
        let Some(listed) = self.listed(session, "look for checkpoints").await? else {
            return Ok(());
        };
        let filter = doc! {
            "session": session.as_str(),
            "revision": { "$lte": codec::token(commit.doc.revision) },
            "token": { "$lte": codec::token(commit.grant.token) },
            "_id": { "$nin": listed },
        };
        let deleted = self.checkpoints.delete_many(filter).await;
        deleted.map(drop).map_err(|e| failure::driver("delete old checkpoints", e))
    }

    /// The ids of the checkpoints of a session; nothing when there is no such session.
    async fn listed(
        &self,
        session: &SessionId,
        operation: &'static str,
    ) -> Result<Option<Vec<Bson>>, StoreError> {
        let filter = command::committed(doc! { "_id": session.as_str() });
        let found = self.sessions.find_one(filter).projection(doc! { LISTED: 1 }).await;
        let found = found.map_err(|e| failure::driver(operation, e))?;
        Ok(found.map(|document| document.get_array(LISTED).cloned().unwrap_or_default()))
    }

    pub(super) async fn list_checkpoints(
        &self,
        session: &SessionId,
    ) -> Result<Vec<CheckpointSummary>, StoreError> {
        let listed = self.listed(session, LIST).await?.unwrap_or_default();
        if listed.is_empty() {
            return Ok(Vec::new());
        }
        let filter = doc! { "session": session.as_str(), "_id": { "$in": listed } };
        let fields = doc! {
            "revision": 1, "doc.version": 1, "doc.status": 1, "doc.current_step": 1,
            "doc.updated_at": 1,
        };
        let cursor = self.checkpoints.find(filter).projection(fields).await;
        let cursor = cursor.map_err(|e| failure::driver(LIST, e))?;
        let found: Vec<Document> =
            cursor.try_collect().await.map_err(|e| failure::driver(LIST, e))?;
        let summaries = found.iter().map(|checkpoint| summary(session, checkpoint));
        let mut summaries = summaries.collect::<Result<Vec<_>, _>>()?;
        summaries.sort_by_key(|summary| std::cmp::Reverse(summary.revision));
        Ok(summaries)
    }

    pub(super) async fn read_checkpoint(
        &self,
        session: &SessionId,
        revision: u64,
    ) -> Result<Option<Transcript>, StoreError> {
        let listed = self.listed(session, READ).await?.unwrap_or_default();
        let Ok(revision) = i64::try_from(revision) else { return Ok(None) };
        if listed.is_empty() {
            return Ok(None);
        }
        let filter = doc! {
            "session": session.as_str(),
            "revision": revision,
            "_id": { "$in": listed },
        };
        let found = self.checkpoints.find_one(filter).await;
        let Some(mut found) = found.map_err(|e| failure::driver(READ, e))? else {
            return Ok(None);
        };
        let Some(Bson::Document(kept)) = found.remove("doc") else {
            return Err(corrupt(session, "a checkpoint has no document"));
        };
        let doc = read(session, kept)?;
        let archive = self.entries(session, &doc.archive).await?;
        Ok(Some(Transcript { doc, archive }))
    }

    /// The sessions of the next checkpoints after a session, and whether these are all that
    /// are left.
    pub(super) async fn sessions_with_checkpoints(
        &self,
        after: &str,
        limit: i64,
    ) -> Result<(BTreeSet<String>, bool), mongodb::error::Error> {
        let found: Vec<Document> = self
            .checkpoints
            .find(doc! { "session": { "$gt": after } })
            .projection(doc! { "session": 1 })
            .sort(doc! { "session": 1, "revision": 1 })
            .limit(limit)
            .await?
            .try_collect()
            .await?;
        let all = (found.len() as i64) < limit;
        let sessions = found.iter().filter_map(|checkpoint| checkpoint.get_str("session").ok());
        Ok((sessions.map(str::to_owned).collect(), all))
    }
}

fn summary(session: &SessionId, checkpoint: &Document) -> Result<CheckpointSummary, StoreError> {
    let invalid = |field: &str| corrupt(session, format!("`{field}` of a checkpoint is invalid"));
    let kept = checkpoint.get_document("doc").map_err(|_| invalid("doc"))?;
    let text = |field: &str| kept.get_str(field).map(str::to_owned).map_err(|_| invalid(field));
    let at = kept.get_datetime("updated_at").map_err(|_| invalid("updated_at"))?;
    Ok(CheckpointSummary {
        revision: number(checkpoint, "revision"),
        version: u32::try_from(number(kept, "version")).map_err(|_| invalid("version"))?,
        status: serde_json::from_value(text("status")?.into()).map_err(|_| invalid("status"))?,
        current_step: text("current_step")?,
        at: Timestamp::from_millis(at.timestamp_millis()).map_err(|_| invalid("updated_at"))?,
    })
}
