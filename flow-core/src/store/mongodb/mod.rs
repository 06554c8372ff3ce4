//! Documents in a MongoDB database, shared by any number of processes and machines.
//!
//! Three collections: `sessions`, one document per session as [`session`](crate::session)
//! describes it, `session_archive`, one document per
//! [`ArchiveEntry`](crate::session::ArchiveEntry), and `session_checkpoints`, one per
//! checkpoint. All can be read in Compass: nested documents and real dates. The JSON values
//! that BSON cannot hold as they are have escapes: a `.` in a key is `%2E`, an integer above
//! `i64::MAX` is `{"%u64": ".."}`.
//!
//! A standalone server is enough, no transaction is used: opening a session is one
//! `findAndModify` that reads the document and takes the lease by the server's clock, a
//! commit is one `update` that is guarded by revision and fencing token, and archive
//! entries are written before the document whose archive mark makes them readable. Needs
//! MongoDB 5.0 or newer. The shard key is `_id` for `sessions` and `session` for
//! the others.
//!
//! A commit that leaves a checkpoint costs one `insert` more, and the document of the
//! session has the ids of its checkpoints, about 40 bytes each. Once in as many commits as
//! checkpoints are kept, a `find` and a `delete` take away those that are too old; until
//! then readers pass over them.
//!
//! Expired sessions are deleted by the server's TTL monitor, once a minute, also while they
//! are worked on; a commit then gives [`NotFound`](StoreError::NotFound). Their archives and
//! checkpoints go with a later [`sweep`](SessionStore::sweep).

mod archive;
mod checkpoints;
mod codec;
mod command;
mod failure;
mod indexes;
mod sweep;

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{
    Acknowledgment, ClientOptions, CollectionOptions, Hint, ReadPreference, ReturnDocument,
    SelectionCriteria, WriteConcern,
};
use mongodb::{Client, Collection, Database};
use serde_json::Value;

use super::{
    CheckpointSummary, Commit, Grant, ListQuery, OpenRequest, Opened, SessionStore, SessionSummary,
    StoreStats, Swept, Transcript,
};
use crate::error::StoreError;
use crate::id::SessionId;
use crate::session::{FORMAT, SessionDoc};
use crate::time::Timestamp;

/// The collection of the session documents.
const SESSIONS: &str = "sessions";
/// The collection of what has moved out of them.
const ARCHIVE: &str = "session_archive";
/// The collection of the documents as they were.
const CHECKPOINTS: &str = "session_checkpoints";

/// How often an upsert that lost a race against another one is sent again. The second
/// attempt finds the document that the other one has made.
const UPSERT_ATTEMPTS: usize = 5;

/// A store in a MongoDB database.
///
/// Writes wait for the journals of a majority and reads go to the primary, whatever the connection string
/// says; its time-outs, TLS and pool settings are used as they are.
///
/// ```no_run
/// use flow_core::store::mongodb::MongoStore;
///
/// # async fn run() -> Result<(), flow_core::error::StoreError> {
/// let store = MongoStore::connect("mongodb://localhost:27017", "hotel").await?;
/// # Ok(()) }
/// ```
pub struct MongoStore {
    sessions: Collection<Document>,
    archive: Collection<Document>,
    checkpoints: Collection<Document>,
    commits: AtomicU64,
    bytes_written: AtomicU64,
    /// The session at whose archive the last sweep stopped looking for leftovers.
    archives_swept_to: Mutex<String>,
    /// The same for checkpoints.
    checkpoints_swept_to: Mutex<String>,
}

impl fmt::Debug for MongoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client knows addresses and credentials; they are not for logs.
        f.debug_struct("MongoStore")
            .field("database", &self.sessions.namespace().db)
            .finish_non_exhaustive()
    }
}

impl MongoStore {
    /// Connects with a connection string (`mongodb://` or `mongodb+srv://`) and uses the
    /// database of that name.
    ///
    /// # Errors
    /// [`Backend`](StoreError::Backend) when the string cannot be used, without quoting its
    /// credentials; else as [`new`](Self::new).
    pub async fn connect(uri: &str, database: &str) -> Result<Self, StoreError> {
        let parsed = ClientOptions::parse(uri).await;
        let mut options = parsed.map_err(|e| failure::connection_string(uri, &e))?;
        options.app_name.get_or_insert_with(|| env!("CARGO_PKG_NAME").into());
        let client = Client::with_options(options);
        let client = client.map_err(|e| failure::connection_string(uri, &e))?;
        Self::new(client.database(database)).await
    }

    /// Uses a database of a client that the program has already, and makes the indexes that
    /// are missing in it.
    ///
    /// # Errors
    /// [`Unavailable`](StoreError::Unavailable) when the server cannot be reached,
    /// [`Backend`](StoreError::Backend) when an index cannot be made or changed.
    pub async fn new(database: Database) -> Result<Self, StoreError> {
        let options = CollectionOptions::builder()
            // Journaled, so that a standalone server keeps what it has acknowledged too.
            .write_concern(
                WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build(),
            )
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .build();
        let sessions = database.collection_with_options(SESSIONS, options.clone());
        let archive = database.collection_with_options(ARCHIVE, options.clone());
        let checkpoints = database.collection_with_options(CHECKPOINTS, options);
        indexes::ensure(&database, &sessions, &archive, &checkpoints).await?;
        Ok(Self {
            sessions,
            archive,
            checkpoints,
            commits: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            archives_swept_to: Mutex::default(),
            checkpoints_swept_to: Mutex::default(),
        })
    }

    fn written(&self, bytes: u64) {
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    async fn find(&self, id: &SessionId) -> Result<Option<SessionDoc>, StoreError> {
        let filter = command::committed(doc! { "_id": id.as_str() });
        let found = self.sessions.find_one(filter).await;
        let found = found.map_err(|e| failure::driver("load a session", e))?;
        found.map(|document| read(id, document)).transpose()
    }

    async fn write_superseded(
        &self,
        commit: &Commit<'_>,
        old: &SessionDoc,
    ) -> Result<(), StoreError> {
        let mut lease = command::free_lease(0);
        lease.insert("fence", codec::token(commit.grant.token));
        let document = codec::document(old, lease).map_err(unencodable)?;
        let place = doc! { "_id": old.id.as_str() };
        self.replace_fenced(&self.sessions, commit, place, "lease.fence", document).await
    }

    /// Replaces or inserts a document, unless `fence` in it has a newer token: the upsert
    /// then meets the `_id` that is there.
    async fn replace_fenced(
        &self,
        collection: &Collection<Document>,
        commit: &Commit<'_>,
        place: Document,
        fence: &str,
        document: Document,
    ) -> Result<(), StoreError> {
        self.written(codec::document_len(&document));
        let mut filter = place;
        filter.insert(fence, doc! { "$lte": codec::token(commit.grant.token) });
        let mut attempt = 1;
        loop {
            match collection.replace_one(filter.clone(), &document).upsert(true).await {
                Ok(_) => return Ok(()),
                Err(e) if failure::is_duplicate(&e) && attempt < UPSERT_ATTEMPTS => attempt += 1,
                Err(e) if failure::is_duplicate(&e) => {
                    return Err(
                        match self.refusal(&commit.doc.id, commit.grant, commit.base).await? {
                            (Some(error), _) => error,
                            (None, _) => StoreError::LeaseLost {
                                session: commit.doc.id.clone(),
                                token: commit.grant.token,
                                current: commit.grant.token,
                            },
                        },
                    );
                }
                Err(e) => return Err(failure::driver("write what a commit moves away", e)),
            }
        }
    }

    /// Why a guarded write matched nothing, if the reason still stands, and how many
    /// documents the session has superseded.
    async fn refusal(
        &self,
        id: &SessionId,
        grant: &Grant,
        base: u64,
    ) -> Result<(Option<StoreError>, Option<i64>), StoreError> {
        let fields = doc! { "lease": 1, "revision": 1, "superseded": 1 };
        let found = self.sessions.find_one(doc! { "_id": id.as_str() }).projection(fields).await;
        let found = found.map_err(|e| failure::driver("look at a session", e))?;
        let Some(found) = found else {
            return Ok((Some(StoreError::NotFound { session: id.clone() }), None));
        };
        let current = lease_number(&found, "token");
        let revision = number(&found, "revision");
        let error = if current != grant.token || lease_text(&found, "holder") != Some(&grant.holder)
        {
            Some(StoreError::LeaseLost { session: id.clone(), token: grant.token, current })
        } else if revision != base {
            Some(StoreError::Conflict { session: id.clone(), expected: base, found: revision })
        } else {
            None
        };
        Ok((error, found.get("superseded").and_then(codec::integer)))
    }

    /// Takes back a superseded document whose successor was not committed.
    async fn withdraw(
        &self,
        commit: &Commit<'_>,
        superseded: Option<i64>,
    ) -> Result<(), StoreError> {
        let Some(old) = commit.supersede else { return Ok(()) };
        if superseded.is_some_and(|count| count >= i64::from(commit.doc.superseded)) {
            return Ok(());
        }
        let filter =
            doc! { "_id": old.id.as_str(), "lease.fence": codec::token(commit.grant.token) };
        let deleted = self.sessions.delete_one(filter).await;
        deleted.map(drop).map_err(|e| failure::driver("take a commit back", e))
    }

    async fn change(
        &self,
        commit: &Commit<'_>,
        checkpoint: Option<&str>,
    ) -> Result<bool, StoreError> {
        let mut filter = command::held(&commit.doc.id, commit.grant);
        filter.insert("revision", codec::token(commit.base));
        let update = match command::change(commit, checkpoint).map_err(unencodable)? {
            command::Change::Parts(parts) => {
                self.written(codec::document_len(&parts));
                self.sessions.update_one(filter, parts)
            }
            command::Change::Whole(pipeline) => {
                self.written(pipeline.iter().map(codec::document_len).sum());
                self.sessions.update_one(filter, pipeline)
            }
        };
        let result = update.await.map_err(|e| failure::driver("commit a session", e))?;
        Ok(result.matched_count == 1)
    }
}

#[async_trait]
impl SessionStore for MongoStore {
    fn encoded_len(&self, value: &Value) -> u64 {
        codec::json_len(value)
    }

    fn stats(&self) -> StoreStats {
        StoreStats {
            commits: self.commits.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
        }
    }

    async fn open(&self, request: &OpenRequest<'_>) -> Result<Opened, StoreError> {
        const OPERATION: &str = "open a session";
        const OVERTAKEN: &str = "others were faster each time";
        let mark = uuid::Uuid::now_v7().to_string();
        let mut attempt = 1;
        let document = loop {
            let found = self
                .sessions
                .find_one_and_update(
                    doc! { "_id": request.id.as_str() },
                    command::acquire(request, &mark),
                )
                .upsert(true)
                .return_document(ReturnDocument::After)
                .await;
            match found {
                Ok(Some(document)) => break document,
                // Another upsert was faster. Sent again, this one finds what that has made, or
                // its own mark.
                Ok(None) if attempt < UPSERT_ATTEMPTS => attempt += 1,
                Err(e) if failure::is_duplicate(&e) && attempt < UPSERT_ATTEMPTS => attempt += 1,
                Ok(None) => return Err(failure::unavailable(OPERATION, OVERTAKEN)),
                Err(e) if failure::is_duplicate(&e) => {
                    return Err(failure::unavailable(OPERATION, OVERTAKEN));
                }
                Err(e) => return Err(failure::driver(OPERATION, e)),
            }
        };
        if lease_text(&document, "mark") != Some(&mark) {
            return Err(not_granted(request, &document));
        }
        let grant = Grant {
            holder: request.holder.to_owned(),
            token: lease_number(&document, "token"),
            until: lease_end(request.id, &document)?,
        };
        if document.contains_key(command::UNCOMMITTED) {
            return Ok(Opened { grant, doc: None });
        }
        match read(request.id, document) {
            Ok(doc) => Ok(Opened { grant, doc: Some(doc) }),
            Err(unreadable) => {
                // The document is the caller's problem now; the lease need not be as well.
                let _ = self.release(request.id, &grant).await;
                Err(unreadable)
            }
        }
    }

    async fn renew(
        &self,
        id: &SessionId,
        grant: &Grant,
        ttl: Duration,
    ) -> Result<Timestamp, StoreError> {
        const OPERATION: &str = "renew a lease";
        let renewed = self
            .sessions
            .find_one_and_update(command::held(id, grant), command::renew(ttl))
            .projection(doc! { "lease": 1 })
            .return_document(ReturnDocument::After)
            .await
            .map_err(|e| failure::driver(OPERATION, e))?;
        if let Some(document) = renewed {
            return lease_end(id, &document);
        }
        match self.refusal(id, grant, 0).await?.0 {
            Some(error @ (StoreError::NotFound { .. } | StoreError::LeaseLost { .. })) => {
                Err(error)
            }
            _ => Err(failure::unavailable(OPERATION, "the session changed in the meantime")),
        }
    }

    async fn commit(&self, commit: &Commit<'_>) -> Result<(), StoreError> {
        for entry in commit.archive {
            self.write_entry(commit, entry).await?;
        }
        if let Some(old) = commit.supersede {
            self.write_superseded(commit, old).await?;
        }
        let checkpoint = self.write_checkpoint(commit).await?;
        match self.change(commit, checkpoint.as_deref()).await {
            Ok(true) => {
                self.commits.fetch_add(1, Ordering::Relaxed);
                self.delete_old_checkpoints(commit).await;
                Ok(())
            }
            Ok(false) => {
                let (error, superseded) =
                    self.refusal(&commit.doc.id, commit.grant, commit.base).await?;
                self.withdraw(commit, superseded).await?;
                Err(error.unwrap_or_else(|| {
                    failure::unavailable("commit a session", "the session changed in the meantime")
                }))
            }
            Err(refused @ StoreError::Backend { .. }) if commit.supersede.is_some() => {
                let (_, superseded) =
                    self.refusal(&commit.doc.id, commit.grant, commit.base).await?;
                self.withdraw(commit, superseded).await?;
                Err(refused)
            }
            Err(error) => Err(error),
        }
    }

    async fn release(&self, id: &SessionId, grant: &Grant) -> Result<(), StoreError> {
        let failed = |e| failure::driver("release a session", e);
        let filter = command::committed(command::held(id, grant));
        let free = doc! { "$set": { "lease": command::free_lease(grant.token) } };
        let freed = self.sessions.update_one(filter, free).await.map_err(failed)?;
        if freed.matched_count == 0 {
            let filter = command::uncommitted(command::held(id, grant));
            self.sessions.delete_one(filter).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn load(&self, id: &SessionId) -> Result<Option<SessionDoc>, StoreError> {
        self.find(id).await
    }

    async fn create(&self, doc: &SessionDoc) -> Result<(), StoreError> {
        const OPERATION: &str = "create a session";
        let lease = command::free_lease(doc.lease.token);
        let document = codec::document(doc, lease).map_err(unencodable)?;
        self.written(codec::document_len(&document));
        match self.sessions.insert_one(document).await {
            Ok(_) => Ok(()),
            Err(e) if failure::is_duplicate(&e) => {
                Err(StoreError::Exists { session: doc.id.clone() })
            }
            Err(e) => Err(failure::driver(OPERATION, e)),
        }
    }

    async fn delete(&self, id: &SessionId) -> Result<bool, StoreError> {
        let failed = |e| failure::driver("delete a session", e);
        // First, so that a worker that has it open cannot add to what is deleted next.
        let deleted = self
            .sessions
            .find_one_and_delete(doc! { "_id": id.as_str() })
            .projection(doc! { command::UNCOMMITTED: 1 })
            .await
            .map_err(failed)?;
        self.sessions.delete_many(command::family("_id", id)).await.map_err(failed)?;
        if *id == id.archive_key() {
            let own = doc! { "session": id.as_str() };
            let owned = doc! { "$or": [own, command::family("session", id)] };
            self.archive.delete_many(owned.clone()).await.map_err(failed)?;
            self.checkpoints.delete_many(owned).await.map_err(failed)?;
        }
        Ok(deleted.is_some_and(|document| !document.contains_key(command::UNCOMMITTED)))
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<SessionSummary>, StoreError> {
        const OPERATION: &str = "list sessions";
        let fields = doc! {
            "flow.id": 1, "version": 1, "revision": 1, "status": 1, "current_step": 1, "owner": 1,
            codec::WAKE_AT: 1, "created_at": 1, "updated_at": 1,
        };
        let mut find = self
            .sessions
            .find(command::listed(query))
            .sort(doc! { "_id": 1 })
            .limit(i64::try_from(query.limit).unwrap_or(i64::MAX))
            .projection(fields);
        if query.due.is_some() {
            // Left to itself the server may read all sessions in the order of their ids, to
            // find the few that are due.
            find = find.hint(Hint::Keys(indexes::timers()));
        }
        let cursor = find.await.map_err(|e| failure::driver(OPERATION, e))?;
        let found: Vec<Document> =
            cursor.try_collect().await.map_err(|e| failure::driver(OPERATION, e))?;
        found.into_iter().map(summary).collect()
    }

    async fn transcript(&self, id: &SessionId) -> Result<Option<Transcript>, StoreError> {
        let Some(doc) = self.find(id).await? else { return Ok(None) };
        let archive = self.entries(id, &doc.archive).await?;
        Ok(Some(Transcript { doc, archive }))
    }

    async fn checkpoints(&self, id: &SessionId) -> Result<Vec<CheckpointSummary>, StoreError> {
        self.list_checkpoints(id).await
    }

    async fn checkpoint(
        &self,
        id: &SessionId,
        revision: u64,
    ) -> Result<Option<Transcript>, StoreError> {
        self.read_checkpoint(id, revision).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        self.sweep_all(limit).await
    }
}

/// Why an open changed nothing, told by the document as it is.
fn not_granted(request: &OpenRequest<'_>, document: &Document) -> StoreError {
    let session = request.id.clone();
    if !document.contains_key(command::UNCOMMITTED) {
        let flow = document.get_document("flow").ok().and_then(|flow| flow.get_str("id").ok());
        if flow != Some(request.flow) {
            return StoreError::WrongFlow {
                session,
                expected: request.flow.to_owned(),
                found: flow.unwrap_or_default().to_owned(),
            };
        }
        for (what, field, supported) in [
            ("document format", "format", FORMAT),
            ("document version", "version", request.version),
        ] {
            let found = u32::try_from(number(document, field)).unwrap_or(u32::MAX);
            if found > supported {
                return StoreError::FromFuture { session, what, found, supported };
            }
        }
    }
    match (lease_text(document, "holder"), lease_end(request.id, document)) {
        (Some(holder), Ok(until)) => StoreError::Busy { session, holder: holder.to_owned(), until },
        _ => corrupt(request.id, "`lease`, `format`, `version` or `revision` has the wrong type"),
    }
}

fn read(id: &SessionId, document: Document) -> Result<SessionDoc, StoreError> {
    codec::read_document(document).map_err(|reason| corrupt(id, reason))
}

fn summary(document: Document) -> Result<SessionSummary, StoreError> {
    let shown = document.get_str("_id").unwrap_or_default().to_owned();
    let id =
        SessionId::try_from(shown).map_err(|e| failure::refused("list sessions", e.to_string()))?;
    let invalid = |field: &str| corrupt(&id, format!("`{field}` is missing or has the wrong type"));
    let text = |field: &str| document.get_str(field).map(str::to_owned).map_err(|_| invalid(field));
    let date = |field: &str| {
        let date = document.get_datetime(field).map_err(|_| invalid(field))?;
        Timestamp::from_millis(date.timestamp_millis()).map_err(|_| invalid(field))
    };
    let status = serde_json::from_value(text("status")?.into()).map_err(|_| invalid("status"))?;
    let flow = document.get_document("flow").and_then(|flow| flow.get_str("id"));
    Ok(SessionSummary {
        flow: flow.map_err(|_| invalid("flow"))?.to_owned(),
        version: u32::try_from(number(&document, "version")).map_err(|_| invalid("version"))?,
        revision: number(&document, "revision"),
        status,
        current_step: text("current_step")?,
        owner: document.get_str("owner").ok().map(str::to_owned),
        wake_at: document
            .get_datetime(codec::WAKE_AT)
            .ok()
            .map(|_| date(codec::WAKE_AT))
            .transpose()?,
        created_at: date("created_at")?,
        updated_at: date("updated_at")?,
        id: id.clone(),
    })
}

fn corrupt(id: &SessionId, reason: impl Into<String>) -> StoreError {
    StoreError::Corrupt { session: id.clone(), reason: reason.into() }
}

fn unencodable(error: serde_json::Error) -> StoreError {
    failure::refused("encode a session", error.to_string())
}

/// A number of the document that is never negative; zero when it is missing.
fn number(document: &Document, field: &str) -> u64 {
    document.get(field).and_then(codec::integer).and_then(|n| n.try_into().ok()).unwrap_or(0)
}

fn lease_number(document: &Document, field: &str) -> u64 {
    document.get_document("lease").map_or(0, |lease| number(lease, field))
}

fn lease_text<'a>(document: &'a Document, field: &str) -> Option<&'a str> {
    document.get_document("lease").ok()?.get_str(field).ok()
}

fn lease_end(id: &SessionId, document: &Document) -> Result<Timestamp, StoreError> {
    let until = document.get_document("lease").ok().and_then(|lease| lease.get("until"));
    let until = until.and_then(Bson::as_datetime).map(|date| date.timestamp_millis());
    until
        .and_then(|millis| Timestamp::from_millis(millis).ok())
        .ok_or_else(|| corrupt(id, "`lease.until` is not a date"))
}
