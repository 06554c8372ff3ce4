use std::error::Error;
use std::time::Duration;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use serde::{Deserialize, Serialize};

use super::BACKEND;
use super::checkpoints;
use super::worker::Failure;
use crate::error::StoreError;
use crate::id::SessionId;
use crate::session::{ArchiveEntry, ArchiveMark, FORMAT, Lease, ReadError, SessionDoc, Status};
use crate::store::Grant;
use crate::time::Timestamp;

const FIND: &str = "\
    SELECT key, flow, format, version, token, holder, lease_until, status, revision, \
    wake_at, doc FROM sessions LEFT JOIN documents ON session = key WHERE id = ?1";
const LEASE: &str = "\
    SELECT key, token, holder, revision, status IS NOT NULL AS committed, flow, owner, \
    wake_at, expires_at FROM sessions WHERE id = ?1";
const ADD_OPENED: &str = "\
    INSERT INTO sessions (id, token, holder, lease_until) \
    SELECT ?1, token + 1, ?2, ?3 FROM fence RETURNING token";
const TAKE: &str = "\
    UPDATE sessions SET token = token + 1, holder = ?2, lease_until = ?3 WHERE key = ?1 \
    RETURNING token";
const PROLONG: &str = "UPDATE sessions SET lease_until = ?2 WHERE key = ?1";
const FREE: &str = "UPDATE sessions SET holder = NULL, lease_until = NULL WHERE key = ?1";
const CHANGE: &str = "\
    UPDATE sessions SET version = ?2, format = ?3, revision = ?4, status = ?5, \
    current_step = ?6, created_at = ?7, updated_at = ?8 WHERE key = ?1";
const CHANGE_INDEXED: &str =
    "UPDATE sessions SET flow = ?2, owner = ?3, wake_at = ?4, expires_at = ?5 WHERE key = ?1";
const ADD: &str = "\
    INSERT INTO sessions (id, flow, version, format, revision, status, current_step, owner, wake_at, \
    created_at, updated_at, expires_at, token) \
    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, max(?13, token) FROM fence WHERE true \
    ON CONFLICT DO NOTHING RETURNING key";
const WRITE_DOC: &str = "\
    INSERT INTO documents (session, doc) VALUES (?1, ?2) \
    ON CONFLICT DO UPDATE SET doc = excluded.doc";
const WRITE_ENTRY: &str = "INSERT OR REPLACE INTO archive (key, seq, entry) VALUES (?1, ?2, ?3)";
const READ_ENTRIES: &str =
    "SELECT entry FROM archive WHERE key = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq";
const DELETE: &str = "DELETE FROM sessions WHERE id = ?1 RETURNING status IS NOT NULL";
const DELETE_FAMILY: &str = "DELETE FROM sessions WHERE id > ?1 AND id < ?2";
const DELETE_ARCHIVE: &str = "DELETE FROM archive WHERE key = ?1 AND seq >= ?2 AND seq < ?3";
const DELETE_FAMILY_ARCHIVE: &str = "DELETE FROM archive WHERE key > ?1 AND key < ?2";
const EXPIRED: &str = "\
    SELECT id FROM sessions WHERE expires_at <= ?1 AND (holder IS NULL OR lease_until <= ?1) \
    ORDER BY expires_at LIMIT ?2";
const DELETE_ABANDONED: &str = "\
    DELETE FROM sessions WHERE holder IS NOT NULL AND lease_until <= ?1 AND status IS NULL";
const ENDED: &str = "\
    SELECT id FROM sessions WHERE holder IS NOT NULL AND lease_until <= ?1 \
    ORDER BY lease_until LIMIT ?2";
const FREE_ENDED: &str = "\
    UPDATE sessions SET holder = NULL, lease_until = NULL, \
    wake_at = CASE status WHEN 'running' THEN min(ifnull(wake_at, ?2), ?2) ELSE wake_at END, \
    status = CASE status WHEN 'running' THEN 'waiting' ELSE status END WHERE id = ?1";

/// The first character after `~`: the end of the range of ids that begin with `x~`.
const AFTER_TILDE: char = '\x7f';

/// A document as it is written: what queries need in columns, and all of it as text.
#[derive(Debug)]
pub(super) struct Record {
    id: SessionId,
    flow: String,
    pub(super) version: u32,
    format: u32,
    pub(super) revision: u64,
    pub(super) status: Status,
    pub(super) current_step: String,
    owner: Option<String>,
    wake_at: Option<i64>,
    created_at: i64,
    pub(super) updated_at: i64,
    expires_at: Option<i64>,
    token: u64,
    pub(super) text: String,
}

impl Record {
    pub(super) fn new(doc: &SessionDoc) -> Result<Self, StoreError> {
        Ok(Self {
            id: doc.id.clone(),
            flow: doc.flow.id.clone(),
            version: doc.version,
            format: doc.format,
            revision: doc.revision,
            status: doc.status,
            current_step: doc.current_step.clone(),
            owner: doc.owner.clone(),
            wake_at: doc.wake_at.map(Timestamp::as_millis),
            created_at: doc.created_at.as_millis(),
            updated_at: doc.updated_at.as_millis(),
            expires_at: doc.expires_at.map(Timestamp::as_millis),
            token: doc.lease.token,
            text: text(doc)?,
        })
    }

    /// A document that has been superseded: its lease is over.
    pub(super) fn superseded(doc: &SessionDoc) -> Result<Self, StoreError> {
        Ok(Self { token: 0, ..Self::new(doc)? })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.text.len() as u64
    }

    fn change(&self, conn: &Connection, held: &Held) -> rusqlite::Result<()> {
        conn.prepare_cached(CHANGE)?.execute(params![
            held.key,
            self.version,
            self.format,
            self.revision,
            self.status.as_str(),
            self.current_step,
            self.created_at,
            self.updated_at,
        ])?;
        // Setting a column to what it was writes its index all the same.
        let same = held.flow.as_ref() == Some(&self.flow)
            && held.owner == self.owner
            && held.wake_at == self.wake_at
            && held.expires_at == self.expires_at;
        if !same {
            conn.prepare_cached(CHANGE_INDEXED)?.execute(params![
                held.key,
                self.flow,
                self.owner,
                self.wake_at,
                self.expires_at
            ])?;
        }
        self.write_doc(conn, held.key)
    }

    /// Returns false when there is a session with this id.
    fn add(&self, conn: &Connection) -> rusqlite::Result<bool> {
        let key = conn
            .prepare_cached(ADD)?
            .query_row(
                params![
                    self.id.as_str(),
                    self.flow,
                    self.version,
                    self.format,
                    self.revision,
                    self.status.as_str(),
                    self.current_step,
                    self.owner,
                    self.wake_at,
                    self.created_at,
                    self.updated_at,
                    self.expires_at,
                    self.token
                ],
                |row| row.get(0),
            )
            .optional()?;
        key.map_or(Ok(false), |key| self.write_doc(conn, key).map(|()| true))
    }

    fn write_doc(&self, conn: &Connection, key: i64) -> rusqlite::Result<()> {
        conn.prepare_cached(WRITE_DOC)?.execute(params![key, self.text]).map(|_| ())
    }
}

/// An archive entry as it is written.
#[derive(Debug)]
pub(super) struct Entry {
    seq: u64,
    text: String,
}

impl Entry {
    pub(super) fn new(entry: &ArchiveEntry) -> Result<Self, StoreError> {
        Ok(Self { seq: entry.seq, text: text(entry)? })
    }
}

/// A document as it was found. The columns are newer than the text where both say a thing.
#[derive(Debug)]
pub(super) struct Found {
    key: i64,
    flow: Option<String>,
    format: u32,
    version: u32,
    lease: Lease,
    revision: u64,
    status: Option<String>,
    wake_at: Option<Timestamp>,
    text: Option<String>,
}

impl Found {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            key: row.get("key")?,
            flow: row.get("flow")?,
            format: row.get("format")?,
            version: row.get("version")?,
            lease: Lease {
                holder: row.get("holder")?,
                token: row.get("token")?,
                until: optional_timestamp(row, "lease_until")?,
            },
            revision: row.get("revision")?,
            status: row.get("status")?,
            wake_at: optional_timestamp(row, "wake_at")?,
            text: row.get("doc")?,
        })
    }

    /// The document, or nothing when the session was never committed. Parsing takes time
    /// and is kept off the thread of the store.
    pub(super) fn into_doc(self, id: &SessionId) -> Result<Option<SessionDoc>, StoreError> {
        let corrupt = |reason: String| StoreError::Corrupt { session: id.clone(), reason };
        let Some(status) = self.status else { return Ok(None) };
        let text = self.text.ok_or_else(|| corrupt("the document is missing".into()))?;
        let value = serde_json::from_str(&text).map_err(|e| corrupt(e.to_string()))?;
        let doc = SessionDoc::read(value).map_err(|error| unreadable(id, error))?;
        let status = parse_status(&status).map_err(corrupt)?;
        let Self { revision, wake_at, lease, .. } = self;
        Ok(Some(SessionDoc { status, revision, wake_at, lease, ..doc }))
    }
}

/// Why the text of a document cannot be used.
pub(super) fn unreadable(id: &SessionId, error: ReadError) -> StoreError {
    match error {
        ReadError::FromFuture { found } => from_future(id, "document format", found, FORMAT),
        other => StoreError::Corrupt { session: id.clone(), reason: other.to_string() },
    }
}

pub(super) struct Request {
    pub(super) id: SessionId,
    pub(super) flow: String,
    pub(super) version: u32,
    pub(super) holder: String,
    pub(super) ttl: Duration,
}

pub(super) fn open(conn: &Connection, request: Request) -> Result<(Grant, Option<Found>), Failure> {
    let Request { id, flow, version, holder, ttl } = request;
    let now = Timestamp::now();
    let until = now.after(ttl);
    let Some(mut found) = find(conn, &id)? else {
        let token = conn
            .prepare_cached(ADD_OPENED)?
            .query_row(params![id.as_str(), holder, until.as_millis()], |row| row.get(0))?;
        return Ok((Grant { holder, token, until }, None));
    };
    if let Some(of) = found.flow.as_ref().filter(|of| **of != flow) {
        return Err(Failure::Refused(StoreError::WrongFlow {
            session: id,
            expected: flow,
            found: of.clone(),
        }));
    }
    if found.format > FORMAT {
        return Err(from_future(&id, "document format", found.format, FORMAT).into());
    }
    if found.version > version {
        return Err(from_future(&id, "document version", found.version, version).into());
    }
    if let Lease { holder: Some(holder), until: Some(until), .. } = &found.lease
        && *until > now
    {
        return Err(Failure::Refused(StoreError::Busy {
            session: id,
            holder: holder.clone(),
            until: *until,
        }));
    }
    let token = conn
        .prepare_cached(TAKE)?
        .query_row(params![found.key, holder, until.as_millis()], |row| row.get(0))?;
    found.lease = Lease { holder: Some(holder.clone()), token, until: Some(until) };
    Ok((Grant { holder, token, until }, Some(found)))
}

pub(super) fn renew(
    conn: &Connection,
    id: &SessionId,
    grant: &Grant,
    ttl: Duration,
) -> Result<Timestamp, Failure> {
    let held = check(conn, id, grant)?;
    let until = Timestamp::now().after(ttl);
    conn.prepare_cached(PROLONG)?.execute(params![held.key, until.as_millis()])?;
    Ok(until)
}

pub(super) struct Change {
    pub(super) grant: Grant,
    pub(super) base: u64,
    pub(super) record: Record,
    pub(super) archive: Vec<Entry>,
    pub(super) superseded: Option<Record>,
    pub(super) release: bool,
    pub(super) checkpoints: usize,
}

impl Change {
    pub(super) fn bytes(&self) -> u64 {
        let copies = if self.checkpoints > 0 { 2 } else { 1 };
        copies * self.record.bytes()
            + self.archive.iter().map(|entry| entry.text.len() as u64).sum::<u64>()
            + self.superseded.as_ref().map_or(0, Record::bytes)
    }
}

pub(super) fn commit(conn: &Connection, change: &Change) -> Result<(), Failure> {
    let record = &change.record;
    let id = &record.id;
    let held = check(conn, id, &change.grant)?;
    if held.revision != change.base {
        return Err(Failure::Refused(StoreError::Conflict {
            session: id.clone(),
            expected: change.base,
            found: held.revision,
        }));
    }
    record.change(conn, &held)?;
    let archive_key = id.archive_key();
    for entry in &change.archive {
        conn.prepare_cached(WRITE_ENTRY)?.execute(params![
            archive_key.as_str(),
            entry.seq,
            entry.text
        ])?;
    }
    if let Some(old) = &change.superseded {
        delete_row(conn, &old.id)?;
        old.add(conn)?;
    }
    if change.checkpoints > 0 {
        checkpoints::write(conn, held.key, record, change.checkpoints)?;
    }
    if change.release {
        conn.prepare_cached(FREE)?.execute([held.key])?;
    }
    Ok(())
}

pub(super) fn release(conn: &Connection, id: &SessionId, grant: &Grant) -> Result<(), Failure> {
    match check(conn, id, grant) {
        Ok(held) if held.committed => {
            conn.prepare_cached(FREE)?.execute([held.key])?;
        }
        Ok(_) => {
            delete(conn, id)?;
        }
        Err(Failure::Refused(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

pub(super) fn find(conn: &Connection, id: &SessionId) -> rusqlite::Result<Option<Found>> {
    conn.prepare_cached(FIND)?.query_row([id.as_str()], Found::read).optional()
}

pub(super) fn create(conn: &Connection, record: &Record) -> Result<(), Failure> {
    if record.add(conn)? {
        return Ok(());
    }
    Err(Failure::Refused(StoreError::Exists { session: record.id.clone() }))
}

pub(super) fn delete(conn: &Connection, id: &SessionId) -> rusqlite::Result<bool> {
    let archive_key = id.archive_key();
    let mark = if archive_key == *id {
        // What it has superseded, and its children.
        let (begin, end) = (format!("{id}~"), format!("{id}{AFTER_TILDE}"));
        conn.prepare_cached(DELETE_FAMILY)?.execute([&begin, &end])?;
        conn.prepare_cached(DELETE_FAMILY_ARCHIVE)?.execute([&begin, &end])?;
        ArchiveMark { from: 0, next: i64::MAX as u64 }
    } else {
        find(conn, id)?.and_then(|found| found.text).map(|text| mark(&text)).unwrap_or_default()
    };
    conn.prepare_cached(DELETE_ARCHIVE)?.execute(params![
        archive_key.as_str(),
        saturated(mark.from),
        saturated(mark.next)
    ])?;
    delete_row(conn, id)
}

/// A trigger takes the document along.
fn delete_row(conn: &Connection, id: &SessionId) -> rusqlite::Result<bool> {
    let committed = conn.prepare_cached(DELETE)?.query_row([id.as_str()], |row| row.get(0));
    Ok(committed.optional()?.unwrap_or(false))
}

/// The mark of a document that may be unreadable, and can be deleted none the less.
pub(super) fn mark(text: &str) -> ArchiveMark {
    #[derive(Deserialize)]
    struct Marked {
        archive: ArchiveMark,
    }
    serde_json::from_str(text).map(|marked: Marked| marked.archive).unwrap_or_default()
}

/// A document and the texts of the entries that belong to it.
pub(super) fn transcript(
    conn: &Connection,
    id: &SessionId,
) -> rusqlite::Result<Option<(Found, Vec<String>)>> {
    let Some(found) = find(conn, id)? else { return Ok(None) };
    let mark = found.text.as_deref().map(mark).unwrap_or_default();
    let entries = entries(conn, id, &mark)?;
    Ok(Some((found, entries)))
}

/// The texts of the entries of a session's archive that belong to one of its documents.
pub(super) fn entries(
    conn: &Connection,
    id: &SessionId,
    mark: &ArchiveMark,
) -> rusqlite::Result<Vec<String>> {
    conn.prepare_cached(READ_ENTRIES)?
        .query_map(
            params![id.archive_key().as_str(), saturated(mark.from), saturated(mark.next)],
            |row| row.get(0),
        )?
        .collect()
}

/// Deletes at most `limit` expired sessions that no one works on, with all that belongs to
/// them. Returns how many, and whether there may be more.
pub(super) fn expire(conn: &Connection, limit: usize) -> Result<(u64, bool), Failure> {
    let expired = ids(conn, EXPIRED, limit)?;
    let mut count = 0;
    for id in &expired {
        count += u64::from(delete(conn, id)?);
    }
    Ok((count, expired.len() == limit))
}

/// Frees at most `limit` sessions whose lease has ended.
pub(super) fn free(conn: &Connection, limit: usize) -> Result<Vec<SessionId>, Failure> {
    conn.prepare_cached(DELETE_ABANDONED)?.execute([Timestamp::now().as_millis()])?;
    let freed = ids(conn, ENDED, limit)?;
    let now = Timestamp::now().as_millis();
    for id in &freed {
        conn.prepare_cached(FREE_ENDED)?.execute(params![id.as_str(), now])?;
    }
    Ok(freed)
}

fn ids(conn: &Connection, sql: &str, limit: usize) -> Result<Vec<SessionId>, Failure> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query([Timestamp::now().as_millis(), limit])?;
    let mut ids = Vec::new();
    while let Some(row) = rows.next()? {
        ids.push(session_id(row.get(0)?)?);
    }
    Ok(ids)
}

/// A session whose lease the caller holds.
struct Held {
    key: i64,
    revision: u64,
    committed: bool,
    flow: Option<String>,
    owner: Option<String>,
    wake_at: Option<i64>,
    expires_at: Option<i64>,
}

fn check(conn: &Connection, id: &SessionId, grant: &Grant) -> Result<Held, Failure> {
    let found = conn
        .prepare_cached(LEASE)?
        .query_row([id.as_str()], |row| {
            let held = Held {
                key: row.get("key")?,
                revision: row.get("revision")?,
                committed: row.get("committed")?,
                flow: row.get("flow")?,
                owner: row.get("owner")?,
                wake_at: row.get("wake_at")?,
                expires_at: row.get("expires_at")?,
            };
            Ok((row.get("token")?, row.get::<_, Option<String>>("holder")?, held))
        })
        .optional()?;
    let Some((current, holder, held)) = found else {
        return Err(Failure::Refused(StoreError::NotFound { session: id.clone() }));
    };
    if current == grant.token && holder.as_ref() == Some(&grant.holder) {
        return Ok(held);
    }
    Err(Failure::Refused(StoreError::LeaseLost {
        session: id.clone(),
        token: grant.token,
        current,
    }))
}

fn from_future(id: &SessionId, what: &'static str, found: u32, supported: u32) -> StoreError {
    StoreError::FromFuture { session: id.clone(), what, found, supported }
}

pub(super) fn parse_status(text: &str) -> Result<Status, String> {
    Status::deserialize(text.into_deserializer()).map_err(|e: ValueError| e.to_string())
}

pub(super) fn timestamp(millis: i64) -> rusqlite::Result<Timestamp> {
    Timestamp::from_millis(millis).map_err(|e| invalid(Type::Integer, e))
}

pub(super) fn optional_timestamp(
    row: &Row<'_>,
    column: &str,
) -> rusqlite::Result<Option<Timestamp>> {
    row.get::<_, Option<i64>>(column)?.map(timestamp).transpose()
}

pub(super) fn session_id(text: String) -> rusqlite::Result<SessionId> {
    SessionId::try_from(text).map_err(|e| invalid(Type::Text, e))
}

fn invalid(kind: Type, error: impl Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, kind, Box::new(error))
}

/// A number for a comparison with a column.
fn saturated(number: u64) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

fn text<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|source| StoreError::Backend {
        backend: BACKEND,
        operation: "write the session",
        source: source.into(),
    })
}

/// All statements, for the test that looks at their plans.
#[cfg(all(test, feature = "testing"))]
pub(super) fn statements() -> Vec<String> {
    let fixed = [
        FIND,
        LEASE,
        ADD_OPENED,
        TAKE,
        PROLONG,
        FREE,
        CHANGE,
        CHANGE_INDEXED,
        ADD,
        WRITE_DOC,
        WRITE_ENTRY,
        READ_ENTRIES,
        DELETE,
        DELETE_FAMILY,
        DELETE_ARCHIVE,
        DELETE_FAMILY_ARCHIVE,
        EXPIRED,
        DELETE_ABANDONED,
        ENDED,
        FREE_ENDED,
    ];
    let declared = include_str!("queries.rs").matches("\nconst ").count() - 1;
    assert_eq!(fixed.len(), declared, "all constants but AFTER_TILDE are statements");
    let fixed = fixed.into_iter().map(String::from);
    fixed.chain(checkpoints::statements()).chain(super::listing::statements()).collect()
}
