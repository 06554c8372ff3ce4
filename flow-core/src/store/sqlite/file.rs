use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::worker::{Patience, execute, roll_back};
use super::{BACKEND, Synchronous};
use crate::error::StoreError;

/// What makes the tables of each version out of those of the version before. A change of
/// the tables adds one; what is here stays as it is, since there are files like that.
const SCHEMAS: [&str; 3] = [TABLES, TIMERS, CHECKPOINTS];

/// The version of the tables.
const SCHEMA_VERSION: i64 = SCHEMAS.len() as i64;

/// Marks the file as ours ("flow" in ASCII), for `file(1)` and for ourselves.
const APPLICATION_ID: i64 = 0x666c_6f77;

/// How many prepared statements are kept: more than there are.
const STATEMENTS: usize = 64;

/// Sessions and their documents are two tables because a change of the lease rewrites the
/// row, and the document need not be rewritten with it. `status` is null until the first
/// commit. `fence` holds the highest token of all sessions that are gone, so that a token
/// is not given out twice when a session is made again under the same id.
const TABLES: &str = "
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    flow TEXT,
    version INTEGER NOT NULL DEFAULT 0,
    format INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 0,
    status TEXT,
    current_step TEXT,
    owner TEXT,
    token INTEGER NOT NULL,
    holder TEXT,
    lease_until INTEGER,
    created_at INTEGER,
    updated_at INTEGER,
    expires_at INTEGER
) STRICT;
CREATE INDEX sessions_by_flow ON sessions (flow, id);
CREATE INDEX sessions_by_owner ON sessions (owner, id) WHERE owner IS NOT NULL;
CREATE INDEX sessions_by_lease ON sessions (lease_until) WHERE holder IS NOT NULL;
CREATE INDEX sessions_by_expiry ON sessions (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE documents (
    session INTEGER PRIMARY KEY,
    doc TEXT NOT NULL
) STRICT;
CREATE TABLE archive (
    key TEXT NOT NULL,
    seq INTEGER NOT NULL,
    entry TEXT NOT NULL,
    PRIMARY KEY (key, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE fence (token INTEGER NOT NULL) STRICT;
INSERT INTO fence VALUES (0);
CREATE TRIGGER sessions_deleted AFTER DELETE ON sessions BEGIN
    DELETE FROM documents WHERE session = old.key;
    UPDATE fence SET token = max(token, old.token);
END;
";

/// Few sessions have a timer, and only those are in its index.
const TIMERS: &str = "
ALTER TABLE sessions ADD COLUMN wake_at INTEGER;
CREATE INDEX sessions_by_wake ON sessions (wake_at) WHERE wake_at IS NOT NULL;
";

/// A list of checkpoints shows what is in the columns, so that it need not read documents.
const CHECKPOINTS: &str = "
CREATE TABLE checkpoints (
    session INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    current_step TEXT NOT NULL,
    at INTEGER NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (session, revision)
) STRICT;
CREATE TRIGGER checkpoints_deleted AFTER DELETE ON sessions BEGIN
    DELETE FROM checkpoints WHERE session = old.key;
END;
";

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("the folder of `{0}` does not exist; create it first")]
    NoFolder(PathBuf),
    #[error("`{0}` is a folder; name a file in it")]
    Folder(PathBuf),
    #[error("`{0}` is not a SQLite database; it was left as it is")]
    NotADatabase(PathBuf),
    #[error("`{0}` is a database of another program; it was left as it is")]
    Foreign(PathBuf),
    #[error(
        "`{0}` cannot be written; the file and its folder must be writable, and not only the file"
    )]
    ReadOnly(PathBuf),
    #[error(
        "`{path}` has schema version {found}, this program knows up to {SCHEMA_VERSION}: \
         it was written by a newer program; it was left as it is"
    )]
    Newer { path: PathBuf, found: i64 },
    #[error(
        "`{path}` cannot be shared: write-ahead logging is not to be had (the journal mode stays `{mode}`); \
         put the file on a local file system"
    )]
    NoWal { path: PathBuf, mode: String },
    #[error("`{path}`: {source}")]
    Sql { path: PathBuf, source: rusqlite::Error },
}

impl Fault {
    fn into_error(self) -> StoreError {
        let (backend, operation) = (BACKEND, "open the file");
        let busy = matches!(
            &self,
            Self::Sql { source, .. } if source.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
        );
        let source = Box::new(self);
        if busy {
            StoreError::Unavailable { backend, operation, source }
        } else {
            StoreError::Backend { backend, operation, source }
        }
    }

    fn sql(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase(path),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly(path),
            Some(ErrorCode::CannotOpen) if path.is_dir() => Self::Folder(path),
            Some(ErrorCode::CannotOpen) if path.parent().is_some_and(|folder| !folder.is_dir()) => {
                Self::NoFolder(path)
            }
            Some(ErrorCode::CannotOpen) => Self::ReadOnly(path),
            _ => Self::Sql { path, source },
        }
    }
}

/// Opens the file, and makes the tables when it is new or brings them up to date.
pub(super) fn connect(
    path: &Path,
    synchronous: Synchronous,
    patience: &Patience,
) -> Result<Connection, StoreError> {
    // No URI flag: a path is a path, whatever it begins with.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags)
        .map_err(|error| Fault::sql(path, error).into_error())?;
    let handler = patience.clone();
    conn.busy_handler(Some(move |_| handler.wait()))
        .map_err(|error| Fault::sql(path, error).into_error())?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    prepare(&conn, path, synchronous, patience).map_err(Fault::into_error)?;
    Ok(conn)
}

/// Nothing is written before it is clear that the file is new or ours.
pub(super) fn prepare(
    conn: &Connection,
    path: &Path,
    synchronous: Synchronous,
    patience: &Patience,
) -> Result<(), Fault> {
    let sql = |error| Fault::sql(path, error);
    let found = patience.retry(|| in_transaction(conn, "BEGIN", Marks::read)).map_err(sql)?;
    found.check(path)?;
    let mode: String = patience
        .retry(|| conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)))
        .map_err(sql)?;
    if mode != "wal" {
        return Err(Fault::NoWal { path: path.to_owned(), mode });
    }
    let level = match synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    conn.pragma_update(None, "synchronous", level).map_err(sql)?;
    if found.version < SCHEMA_VERSION {
        patience.retry(|| in_transaction(conn, "BEGIN IMMEDIATE", upgrade)).map_err(sql)?;
    }
    Ok(())
}

/// Another process may have been faster, so this looks again.
fn upgrade(conn: &Connection) -> rusqlite::Result<()> {
    let found = Marks::read(conn)?.version;
    for (schema, version) in SCHEMAS.into_iter().zip(1..).filter(|(_, version)| *version > found) {
        conn.execute_batch(schema)?;
        conn.pragma_update(None, "user_version", version)?;
    }
    conn.pragma_update(None, "application_id", APPLICATION_ID)
}

/// What a file says about itself.
struct Marks {
    application: i64,
    version: i64,
    tables: i64,
}

impl Marks {
    fn read(conn: &Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            tables: conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?,
            application: conn.pragma_query_value(None, "application_id", |row| row.get(0))?,
            version: conn.pragma_query_value(None, "user_version", |row| row.get(0))?,
        })
    }

    fn check(&self, path: &Path) -> Result<(), Fault> {
        let new = self.tables == 0 && self.application == 0 && self.version == 0;
        if !new && self.application != APPLICATION_ID {
            return Err(Fault::Foreign(path.to_owned()));
        }
        if self.version > SCHEMA_VERSION {
            return Err(Fault::Newer { path: path.to_owned(), found: self.version });
        }
        Ok(())
    }
}

fn in_transaction<T>(
    conn: &Connection,
    begin: &str,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    execute(conn, begin)?;
    let result = work(conn).and_then(|value| execute(conn, "COMMIT").map(|()| value));
    if result.is_err() {
        roll_back(conn);
    }
    result
}
