//! What has moved out of documents.

use futures_util::TryStreamExt as _;
use mongodb::bson::{Document, doc};

use super::{MongoStore, codec, corrupt, failure, unencodable};
use crate::error::StoreError;
use crate::id::SessionId;
use crate::session::{ArchiveEntry, ArchiveMark};
use crate::store::Commit;

impl MongoStore {
    /// The archive entries of a session that belong to one of its documents.
    pub(super) async fn entries(
        &self,
        id: &SessionId,
        mark: &ArchiveMark,
    ) -> Result<Vec<ArchiveEntry>, StoreError> {
        const OPERATION: &str = "read a transcript";
        if mark.from >= mark.next {
            return Ok(Vec::new());
        }
        let owner = id.archive_key();
        let filter = doc! {
            "session": owner.as_str(),
            "seq": { "$gte": codec::token(mark.from), "$lt": codec::token(mark.next) },
        };
        let cursor = self.archive.find(filter).sort(doc! { "session": 1, "seq": 1 }).await;
        let cursor = cursor.map_err(|e| failure::driver(OPERATION, e))?;
        let found: Vec<Document> =
            cursor.try_collect().await.map_err(|e| failure::driver(OPERATION, e))?;
        let entries = found
            .into_iter()
            .map(|entry| codec::read_archive_entry(entry).map_err(|reason| corrupt(id, reason)));
        entries.collect()
    }

    /// Writes an archive entry, unless a worker with a newer lease has written its own.
    pub(super) async fn write_entry(
        &self,
        commit: &Commit<'_>,
        entry: &ArchiveEntry,
    ) -> Result<(), StoreError> {
        let owner = commit.doc.id.archive_key();
        let mut document = codec::archive_entry(entry).map_err(unencodable)?;
        document.insert("session", owner.as_str());
        document.insert("token", codec::token(commit.grant.token));
        let entry_id = format!("{owner}:{}", entry.seq);
        // With the session, so that the collection can be sharded by it.
        let place = doc! { "_id": entry_id, "session": owner.as_str() };
        self.replace_fenced(&self.archive, commit, place, "token", document).await
    }
}
