//! What a commit costs in SQLite, beside a bare SQLite commit of the same bytes, and beside
//! the bare commit as an async program has to make it: the document is written as JSON, and
//! a thread that may block makes the commit.

use std::hint::black_box;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use flow_core::id::SessionId;
use flow_core::session::{Delta, SessionDoc};
use flow_core::store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use flow_core::store::{Commit, OpenRequest, SessionStore};
use flow_core::testing::conformance::{SAMPLE_FLOW, SAMPLE_VERSION, sample_doc};
use rusqlite::Connection;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// Bytes of shared state in the document.
const STATES: [usize; 2] = [1_000, 20_000];

const UPDATE: &str = "UPDATE documents SET doc = ?1, revision = revision + 1 WHERE id = 's'";

fn document(session: &SessionId, state: usize) -> SessionDoc {
    SessionDoc { state: "x".repeat(state).into(), ..sample_doc(session) }
}

fn commits(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    for (name, synchronous) in [("full", Synchronous::Full), ("normal", Synchronous::Normal)] {
        let mut group = c.benchmark_group(format!("sqlite-{name}"));
        for state in STATES {
            let folder = tempfile::tempdir().expect("a folder");
            let session = SessionId::new("s").expect("a valid id");
            let options = SqliteOptions::new().synchronous(synchronous);
            let (store, grant) = runtime.block_on(async {
                let path = folder.path().join("store.sqlite");
                let store = SqliteStore::open_with(path, options).await.expect("it opens");
                let open = OpenRequest {
                    id: &session,
                    flow: SAMPLE_FLOW,
                    version: SAMPLE_VERSION,
                    holder: "bench",
                    ttl: Duration::from_secs(3600),
                };
                let grant = store.open(&open).await.expect("the session is free").grant;
                (Arc::new(store), grant)
            });
            let mut doc = SessionDoc { revision: 0, ..document(&session, state) };
            let delta = Delta { state: Some(doc.state.clone()), ..Delta::default() };
            group.bench_function(format!("store/{state}"), |b| {
                b.iter(|| {
                    let base = doc.revision;
                    doc.revision += 1;
                    let commit = Commit {
                        grant: &grant,
                        base,
                        doc: &doc,
                        delta: &delta,
                        archive: &[],
                        supersede: None,
                        release: false,
                        checkpoints: 0,
                    };
                    runtime.block_on(store.commit(&commit)).expect("the commit is made");
                });
            });
            let bytes = serde_json::to_string(&doc).expect("it is JSON");
            let path = folder.path().join("bare.sqlite");
            let bare = Connection::open(path).expect("it opens");
            bare.execute_batch(&format!(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = {name};
                 CREATE TABLE documents (id TEXT PRIMARY KEY, revision INTEGER, doc TEXT);
                 INSERT INTO documents VALUES ('s', 0, '');"
            ))
            .expect("a table");
            {
                let mut update = bare.prepare(UPDATE).expect("a statement");
                group.bench_function(format!("bare/{state}"), |b| {
                    b.iter(|| black_box(update.execute([&bytes]).expect("the commit is made")));
                });
            }
            let (jobs, queue) = mpsc::channel::<(String, oneshot::Sender<usize>)>();
            let thread = thread::spawn(move || {
                let mut update = bare.prepare(UPDATE).expect("a statement");
                while let Ok((bytes, done)) = queue.recv() {
                    let _ = done.send(update.execute([bytes]).expect("the commit is made"));
                }
            });
            group.bench_function(format!("bare-on-a-thread/{state}"), |b| {
                b.iter(|| {
                    let bytes = serde_json::to_string(&doc).expect("it is JSON");
                    let (done, result) = oneshot::channel();
                    jobs.send((bytes, done)).expect("the thread runs");
                    runtime.block_on(result).expect("the commit is made")
                });
            });
            drop(jobs);
            thread.join().expect("the thread ends");
        }
        group.finish();
    }
}

criterion_group!(benches, commits);
criterion_main!(benches);
