//! Documents as they were.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::queries::{self, Record};
use super::worker::Failure;
use crate::error::StoreError;
use crate::id::SessionId;
use crate::session::{Lease, SessionDoc};
use crate::store::CheckpointSummary;

const WRITE: &str = "\
    INSERT INTO checkpoints (session, revision, version, status, current_step, at, doc) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const DELETE_OLD: &str = "\
    DELETE FROM checkpoints WHERE session = ?1 AND revision <= (\
    SELECT revision FROM checkpoints WHERE session = ?1 ORDER BY revision DESC LIMIT 1 OFFSET ?2)";
const LIST: &str = "\
    SELECT c.revision, c.version, c.status, c.current_step, c.at \
    FROM sessions AS s CROSS JOIN checkpoints AS c ON c.session = s.key \
    WHERE s.id = ?1 ORDER BY c.revision DESC";
const READ: &str = "\
    SELECT c.doc FROM sessions AS s CROSS JOIN checkpoints AS c ON c.session = s.key \
    WHERE s.id = ?1 AND c.revision = ?2";

/// Keeps a document that is being committed, and of earlier ones as many as are wanted.
pub(super) fn write(
    conn: &Connection,
    session: i64,
    record: &Record,
    keep: usize,
) -> rusqlite::Result<()> {
    let Record { revision, version, status, current_step, updated_at, text, .. } = record;
    let status = status.as_str();
    let values = params![session, revision, version, status, current_step, updated_at, text];
    conn.prepare_cached(WRITE)?.execute(values)?;
    let keep = i64::try_from(keep).unwrap_or(i64::MAX);
    conn.prepare_cached(DELETE_OLD)?.execute([session, keep]).map(|_| ())
}

pub(super) fn list(conn: &Connection, id: &SessionId) -> Result<Vec<CheckpointSummary>, Failure> {
    let mut statement = conn.prepare_cached(LIST)?;
    let mut rows = statement.query([id.as_str()])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(summary(id, row)?);
    }
    Ok(found)
}

fn summary(id: &SessionId, row: &Row<'_>) -> Result<CheckpointSummary, Failure> {
    let status: String = row.get("status")?;
    let corrupt = |reason| StoreError::Corrupt { session: id.clone(), reason };
    Ok(CheckpointSummary {
        revision: row.get("revision")?,
        version: row.get("version")?,
        status: queries::parse_status(&status).map_err(corrupt)?,
        current_step: row.get("current_step")?,
        at: queries::timestamp(row.get("at")?)?,
    })
}

/// The texts of a document and of the archive entries that belonged to it.
pub(super) fn read(
    conn: &Connection,
    id: &SessionId,
    revision: u64,
) -> rusqlite::Result<Option<(String, Vec<String>)>> {
    // No session has a revision beyond what a column holds.
    let Ok(revision) = i64::try_from(revision) else { return Ok(None) };
    let text: Option<String> = conn
        .prepare_cached(READ)?
        .query_row(params![id.as_str(), revision], |row| row.get(0))
        .optional()?;
    let Some(text) = text else { return Ok(None) };
    let entries = queries::entries(conn, id, &queries::mark(&text))?;
    Ok(Some((text, entries)))
}

/// Reads the text of a document. Whoever held the lease then does not hold it now.
pub(super) fn parse(id: &SessionId, text: &str) -> Result<SessionDoc, StoreError> {
    let corrupt = |reason: String| StoreError::Corrupt { session: id.clone(), reason };
    let value = serde_json::from_str(text).map_err(|e| corrupt(e.to_string()))?;
    let doc = SessionDoc::read(value).map_err(|error| queries::unreadable(id, error))?;
    Ok(SessionDoc { lease: Lease::default(), ..doc })
}

/// All statements, for the test that looks at their plans.
#[cfg(all(test, feature = "testing"))]
pub(super) fn statements() -> Vec<String> {
    let fixed = [WRITE, DELETE_OLD, LIST, READ];
    let declared = include_str!("checkpoints.rs").matches("\nconst ").count();
    assert_eq!(fixed.len(), declared, "all constants are statements");
    fixed.into_iter().map(String::from).collect()
}
