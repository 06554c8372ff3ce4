use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};
use tokio::sync::oneshot;

use super::{BACKEND, GROUP};
use crate::error::StoreError;

/// The thread that owns the connection. It ends when the last sender is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Sender<Box<dyn Job>>,
    ended: oneshot::Receiver<()>,
}

/// Why a job did not do what it was to do.
#[derive(Debug)]
pub(super) enum Failure {
    Refused(StoreError),
    Sql(rusqlite::Error),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

impl Worker {
    /// Starts the thread. It makes its connection first, and reports how that went.
    pub(super) async fn start<F>(patience: Patience, connect: F) -> Result<Self, StoreError>
    where
        F: FnOnce(&Patience) -> Result<Connection, StoreError> + Send + 'static,
    {
        let (jobs, queue) = mpsc::channel();
        let (report, connected) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        thread::Builder::new()
            .name("flow-sqlite".into())
            .spawn(move || {
                match connect(&patience) {
                    Ok(conn) => {
                        let _ = report.send(Ok(()));
                        work(&conn, &patience, &queue);
                    }
                    Err(error) => {
                        let _ = report.send(Err(error));
                    }
                }
                let _ = end.send(());
            })
            .map_err(|source| StoreError::Unavailable {
                backend: BACKEND,
                operation: "start its thread",
                source: source.into(),
            })?;
        connected.await.unwrap_or_else(|_| Err(gone("open the file")))?;
        Ok(Self { jobs, ended })
    }

    /// Has the thread do something in a transaction, and waits for what comes of it.
    pub(super) async fn call<T, F>(
        &self,
        access: Access,
        operation: &'static str,
        work: F,
    ) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        let (answer, result) = oneshot::channel();
        self.send(access, operation, work, answer);
        result.await.unwrap_or_else(|_| Err(gone(operation)))
    }

    /// Has the thread do something, and waits for nothing.
    pub(super) fn send<T, F>(
        &self,
        access: Access,
        operation: &'static str,
        work: F,
        answer: oneshot::Sender<Result<T, StoreError>>,
    ) where
        F: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        // When the thread is gone the answer is dropped, which the caller notices.
        let _ = self.jobs.send(Box::new(Call {
            access,
            operation,
            work: Some(work),
            result: None,
            answer,
        }));
    }

    /// Ends the thread and waits until the connection is closed.
    pub(super) async fn end(self) {
        drop(self.jobs);
        let _ = self.ended.await;
    }
}

fn gone(operation: &'static str) -> StoreError {
    StoreError::Unavailable {
        backend: BACKEND,
        operation,
        source: "the thread of the store has ended; open the store again".into(),
    }
}

trait Job: Send {
    fn access(&self) -> Access;
    /// Does the work within a transaction. Returns whether the transaction may stay.
    fn run(&mut self, conn: &Connection) -> bool;
    /// Tells the caller, once it is known how the transaction ended.
    fn finish(self: Box<Self>, end: Result<(), Arc<rusqlite::Error>>);
}

struct Call<T, F> {
    access: Access,
    operation: &'static str,
    work: Option<F>,
    result: Option<Result<T, StoreError>>,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Call<T, F>
where
    F: FnOnce(&Connection) -> Result<T, Failure> + Send,
    T: Send,
{
    fn access(&self) -> Access {
        self.access
    }

    fn run(&mut self, conn: &Connection) -> bool {
        let Some(work) = self.work.take() else { return false };
        let result = work(conn).map_err(|failure| match failure {
            Failure::Refused(error) => error,
            Failure::Sql(error) => failed(self.operation, Arc::new(error)),
        });
        self.result.insert(result).is_ok()
    }

    fn finish(self: Box<Self>, end: Result<(), Arc<rusqlite::Error>>) {
        let result = match (self.result, end) {
            (Some(Ok(_)) | None, Err(error)) => Err(failed(self.operation, error)),
            (Some(result), _) => result,
            (None, Ok(())) => return,
        };
        let _ = self.answer.send(result);
    }
}

/// Does jobs until all senders are gone.
///
/// Writes that queued up while the last transaction was being synced to the disk share the
/// next one, so that many sessions at once do not wait for one sync each.
fn work(conn: &Connection, patience: &Patience, queue: &Receiver<Box<dyn Job>>) {
    while let Ok(mut first) = queue.recv() {
        patience.begin();
        let begin = match first.access() {
            Access::Read => "BEGIN",
            Access::Write => "BEGIN IMMEDIATE",
        };
        if let Err(error) = patience.retry(|| execute(conn, begin)) {
            first.finish(Err(Arc::new(error)));
            continue;
        }
        if !first.run(conn) {
            roll_back(conn);
            first.finish(Ok(()));
            continue;
        }
        let alone = first.access() == Access::Read;
        let mut group = vec![first];
        while !alone && group.len() < GROUP {
            let Ok(mut job) = queue.try_recv() else { break };
            let end = run_guarded(conn, job.as_mut());
            group.push(job);
            if end.is_err() {
                break;
            }
        }
        let end = commit(conn).map_err(Arc::new);
        if end.is_err() {
            roll_back(conn);
        }
        for job in group {
            job.finish(end.clone());
        }
    }
}

/// Some errors, such as a full disk, make SQLite end the transaction by itself. Then what
/// succeeded before in the same group is lost too, and may be tried again.
fn commit(conn: &Connection) -> rusqlite::Result<()> {
    if conn.is_autocommit() {
        let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT_ROLLBACK);
        let reason = "the transaction was ended by the failure of another call".to_owned();
        return Err(rusqlite::Error::SqliteFailure(error, Some(reason)));
    }
    execute(conn, "COMMIT")
}

/// Runs a job so that, when it fails, the transaction is as it was before.
fn run_guarded(conn: &Connection, job: &mut dyn Job) -> rusqlite::Result<()> {
    execute(conn, "SAVEPOINT job")?;
    if !job.run(conn) {
        execute(conn, "ROLLBACK TO job")?;
    }
    execute(conn, "RELEASE job")
}

pub(super) fn execute(conn: &Connection, sql: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(sql)?.execute([]).map(|_| ())
}

pub(super) fn roll_back(conn: &Connection) {
    if !conn.is_autocommit() {
        // What is not committed is rolled back when the connection ends, at the latest.
        let _ = execute(conn, "ROLLBACK");
    }
}

/// How long the thread waits for other processes before it gives up on a job.
///
/// SQLite's own busy handler sleeps longer with each attempt, so whoever has waited longest
/// asks least often and may never get its turn. Here all sleep equally short.
#[derive(Debug, Clone)]
pub(super) struct Patience {
    limit: Duration,
    deadline: Arc<Mutex<Instant>>,
}

impl Patience {
    const SLEEP_MICROS: std::ops::RangeInclusive<u64> = 50..=1000;

    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, deadline: Arc::new(Mutex::new(Instant::now() + limit)) }
    }

    /// From now on the whole limit is left.
    fn begin(&self) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + self.limit;
    }

    /// Sleeps a moment, or returns false when the limit is reached.
    pub(super) fn wait(&self) -> bool {
        let deadline = *self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_micros(fastrand::u64(Self::SLEEP_MICROS)));
        true
    }

    /// SQLite does not call the busy handler where it suspects a deadlock, so busy errors
    /// come back from some calls at once.
    pub(super) fn retry<T>(
        &self,
        mut attempt: impl FnMut() -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        loop {
            match attempt() {
                Err(error) if is_busy(&error) && self.wait() => {}
                result => return result,
            }
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
        )
    )
}

pub(super) fn failed(operation: &'static str, error: Arc<rusqlite::Error>) -> StoreError {
    let passing = is_busy(&error)
        || matches!(
            error.sqlite_error_code(),
            Some(
                ErrorCode::DiskFull
                    | ErrorCode::SystemIoFailure
                    | ErrorCode::OutOfMemory
                    | ErrorCode::OperationAborted
            )
        );
    let source = Box::new(error);
    if passing {
        StoreError::Unavailable { backend: BACKEND, operation, source }
    } else {
        StoreError::Backend { backend: BACKEND, operation, source }
    }
}
