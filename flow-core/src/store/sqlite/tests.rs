use std::fs;
use std::future::Future as _;
use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::session::Delta;
use crate::testing::conformance::{SAMPLE_FLOW, SAMPLE_VERSION, sample_doc};

const HOUR: Duration = Duration::from_secs(3600);

struct Folder {
    folder: TempDir,
    path: PathBuf,
}

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        Self { folder, path }
    }

    async fn store(&self) -> SqliteStore {
        SqliteStore::open(&self.path).await.unwrap()
    }

    /// How many transactions are in the write-ahead log. A frame is 24 bytes and a page; in
    /// the last frame of a transaction bytes 4 to 8 are not zero.
    fn transactions(&self) -> usize {
        let log = fs::read(self.path.with_extension("db-wal")).unwrap();
        log[32..].chunks(24 + 4096).filter(|frame| frame[4..8] != [0; 4]).count()
    }

    /// A second way into the file.
    fn raw(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }
}

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

fn request<'a>(id: &'a SessionId, holder: &'a str) -> OpenRequest<'a> {
    OpenRequest { id, flow: SAMPLE_FLOW, version: SAMPLE_VERSION, holder, ttl: HOUR }
}

async fn commit(
    store: &SqliteStore,
    grant: &Grant,
    doc: &SessionDoc,
    release: bool,
) -> Result<(), StoreError> {
    let (base, delta) = (doc.revision - 1, &Delta::replace());
    let (archive, supersede) = (&[][..], None);
    let checkpoints = 0;
    store
        .commit(&Commit { grant, base, doc, delta, archive, supersede, release, checkpoints })
        .await
}

/// Lets a call begin, and returns before it can have ended.
macro_rules! begin {
    ($call:expr) => {{
        let poll = $call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(poll, Poll::Pending), "the file is locked");
    }};
}

#[tokio::test]
async fn every_statement_uses_an_index() {
    let folder = Folder::new();
    folder.store().await.close().await;
    let conn = folder.raw();
    for sql in queries::statements() {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let plan: Vec<String> = statement
            .raw_query()
            .mapped(|row| row.get("detail"))
            .collect::<Result<_, _>>()
            .unwrap();
        for step in &plan {
            // The fence is one row.
            let scans = step.starts_with("SCAN") && step != "SCAN fence";
            // What is due is found by time and shown by id; it is little.
            let sorts = step.contains("TEMP B-TREE") && !sql.contains(":due");
            assert!(!scans && !sorts, "{sql}\n{plan:?}");
        }
        let uses = |part: &str| plan.iter().any(|step| step.contains(part));
        let due = sql.contains("wake_at <= :due");
        let filters = sql.contains("flow = :flow") || sql.contains("owner = :owner");
        assert_eq!(uses("sessions_by_wake (wake_at<?)"), due, "{sql}\n{plan:?}");
        assert_eq!(uses("(flow=?") || uses("(owner=?"), filters && !due, "{sql}\n{plan:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_can_open_a_new_file_at_once() {
    let folder = Folder::new();
    let opens: Vec<_> =
        (0..80).map(|_| tokio::spawn(SqliteStore::open(folder.path.clone()))).collect();
    let mut stores = Vec::new();
    for open in opens {
        stores.push(open.await.unwrap().unwrap());
    }
    stores[0].create(&sample_doc(&id("a"))).await.unwrap();
    for store in &stores {
        assert!(store.load(&id("a")).await.unwrap().is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_stores_on_one_file_make_one_chain_of_revisions() {
    let folder = Folder::new();
    let stores = [Arc::new(folder.store().await), Arc::new(folder.store().await)];
    let workers: Vec<_> = (0..8)
        .map(|n| {
            let store = Arc::clone(&stores[n % 2]);
            tokio::spawn(async move {
                let shared = id("shared");
                let own = id(&format!("own-{n}"));
                let mut won = 0;
                for _ in 0..20 {
                    for id in [&shared, &own] {
                        let opened = match store.open(&request(id, &format!("worker-{n}"))).await {
                            Ok(opened) => opened,
                            Err(StoreError::Busy { .. }) if *id == shared => continue,
                            Err(error) => panic!("{error}"),
                        };
                        let mut doc = opened
                            .doc
                            .unwrap_or_else(|| SessionDoc { revision: 0, ..sample_doc(id) });
                        doc.revision += 1;
                        commit(&store, &opened.grant, &doc, true).await.unwrap();
                        won += u64::from(*id == shared);
                    }
                }
                won
            })
        })
        .collect();
    let mut won = 0;
    for worker in workers {
        won += worker.await.unwrap();
    }
    for store in stores {
        let revision = async |name: &str| store.load(&id(name)).await.unwrap().unwrap().revision;
        assert_eq!(revision("shared").await, won);
        for n in 0..8 {
            assert_eq!(revision(&format!("own-{n}")).await, 20);
        }
    }
}

#[tokio::test]
async fn files_that_are_not_ours_are_refused_and_left_alone() {
    let folder = Folder::new();
    let refused = async |path: &Path| {
        let error = SqliteStore::open(path).await.unwrap_err();
        assert!(!error.retryable(), "{error}");
        error.to_string()
    };

    fs::write(&folder.path, "Dear diary, ".repeat(1000)).unwrap();
    let text = refused(&folder.path).await;
    assert!(text.contains("not a SQLite database"), "{text}");
    assert_eq!(fs::read(&folder.path).unwrap(), "Dear diary, ".repeat(1000).as_bytes());

    let text = refused(folder.folder.path()).await;
    assert!(text.contains("is a folder"), "{text}");
    let text = refused(&folder.folder.path().join("none/sessions.db")).await;
    assert!(text.contains("does not exist; create it"), "{text}");

    let foreign = folder.folder.path().join("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    let before = fs::read(&foreign).unwrap();
    let text = refused(&foreign).await;
    assert!(text.contains("another program"), "{text}");
    assert_eq!(fs::read(&foreign).unwrap(), before);

    let newer = folder.folder.path().join("newer.db");
    SqliteStore::open(&newer).await.unwrap().close().await;
    Connection::open(&newer).unwrap().execute_batch("PRAGMA user_version = 4").unwrap();
    let text = refused(&newer).await;
    assert!(text.contains("schema version 4") && text.contains("up to 3"), "{text}");
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_named() {
    let folder = Folder::new();
    // Permissions do not bind every user that runs tests; a read-only connection does.
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    fs::write(&folder.path, "").unwrap();
    let conn = Connection::open_with_flags(&folder.path, flags).unwrap();
    let patience = Patience::new(Duration::ZERO);
    let error = file::prepare(&conn, &folder.path, Synchronous::Full, &patience).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("sessions.db") && text.contains("must be writable"), "{text}");
}

#[tokio::test]
async fn names_with_a_meaning_for_sqlite_are_paths() {
    for name in [":memory:", "file:x?mode=memory", ""] {
        let path = absolute(Path::new(name));
        assert!(path.is_err() || path.is_ok_and(|path| path.is_absolute()));
    }
    let folder = Folder::new();
    let path = folder.folder.path().join("file:x?mode=memory");
    SqliteStore::open(&path).await.unwrap().close().await;
    assert!(path.exists());
}

#[tokio::test]
async fn closing_leaves_one_file_with_everything_in_it() {
    let folder = Folder::new();
    let options = SqliteOptions::new().synchronous(Synchronous::Normal);
    let store = SqliteStore::open_with(&folder.path, options).await.unwrap();
    let doc = sample_doc(&id("a"));
    store.create(&doc).await.unwrap();
    store.close().await;
    assert_eq!(fs::read_dir(folder.folder.path()).unwrap().count(), 1);
    let found = folder.store().await.load(&doc.id).await.unwrap().unwrap();
    assert_eq!(found, doc);
}

#[tokio::test]
async fn a_file_that_stays_locked_is_unavailable_for_now() {
    let folder = Folder::new();
    let options = SqliteOptions::new().busy_limit(Duration::ZERO);
    let store = SqliteStore::open_with(&folder.path, options).await.unwrap();
    let (doc, raw) = (sample_doc(&id("a")), folder.raw());
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.create(&doc).await.unwrap_err();
    assert!(error.retryable(), "{error}");
    assert_eq!(error.code(), "store-unavailable");
    assert!(store.load(&doc.id).await.unwrap().is_none(), "readers are not locked out");
    raw.execute_batch("COMMIT").unwrap();
    store.create(&doc).await.unwrap();
}

#[tokio::test]
async fn a_call_that_was_given_up_keeps_no_lease() {
    let folder = Folder::new();
    let (store, raw, a) = (folder.store().await, folder.raw(), id("a"));
    store.create(&sample_doc(&a)).await.unwrap();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    {
        let wanted = request(&a, "gone");
        let mut open = pin!(store.open(&wanted));
        begin!(open);
    }
    raw.execute_batch("COMMIT").unwrap();
    let opened = store.open(&request(&a, "next")).await.unwrap();
    assert_eq!(opened.grant.token, 2, "the call that was given up did take the lease");
}

#[tokio::test]
async fn calls_that_come_at_once_share_a_transaction_and_fail_alone() {
    let folder = Folder::new();
    let (store, raw) = (folder.store().await, folder.raw());
    let docs: Vec<_> = (0..10).map(|n| sample_doc(&id(&format!("s{n}")))).collect();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut creates: Vec<_> = docs.iter().map(|doc| store.create(doc)).collect();
    creates.insert(5, store.create(&docs[0]));
    for create in &mut creates {
        begin!(create);
    }
    let before = folder.transactions();
    raw.execute_batch("COMMIT").unwrap();
    for (n, create) in creates.into_iter().enumerate() {
        match create.await {
            Ok(()) => assert_ne!(n, 5),
            Err(error) => assert_eq!((n, error.code()), (5, "session-exists")),
        }
    }
    let query = ListQuery { limit: 100, ..ListQuery::default() };
    assert_eq!(store.list(&query).await.unwrap().len(), docs.len());
    assert_eq!(folder.transactions(), before + 1);
}

#[tokio::test]
async fn a_full_disk_loses_only_what_does_not_fit() {
    let folder = Folder::new();
    let (store, raw) = (folder.store().await, folder.raw());
    let set_pages = async |pages: u32| {
        let set = move |conn: &Connection| {
            let sql = format!("PRAGMA max_page_count = {pages}");
            Ok(conn.query_row(&sql, [], |row| row.get::<_, i64>(0))?)
        };
        store.worker.call(Access::Read, "set", set).await.unwrap()
    };
    set_pages(60).await;
    let small = ["a", "b"].map(|name| sample_doc(&id(name)));
    let large = SessionDoc { state: json!("x".repeat(1_000_000)), ..sample_doc(&id("large")) };
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut creates = [&small[0], &large, &small[1]].map(|doc| store.create(doc));
    for create in &mut creates {
        begin!(create);
    }
    raw.execute_batch("COMMIT").unwrap();
    for (create, doc) in creates.into_iter().zip([&small[0], &large, &small[1]]) {
        match create.await {
            Ok(()) => assert_eq!(store.load(&doc.id).await.unwrap().as_ref(), Some(doc)),
            Err(error) => {
                assert_eq!(error.code(), "store-unavailable", "{error}");
                assert!(store.load(&doc.id).await.unwrap().is_none());
            }
        }
    }
    assert!(store.load(&large.id).await.unwrap().is_none());
    set_pages(10_000).await;
    store.create(&large).await.unwrap();
    assert_eq!(store.load(&large.id).await.unwrap(), Some(large));
}

#[tokio::test]
async fn a_token_is_not_given_out_twice_even_to_one_holder() {
    let folder = Folder::new();
    let (store, a) = (folder.store().await, id("a"));
    let old = store.open(&request(&a, "w")).await.unwrap().grant;
    store.delete(&a).await.unwrap();
    let new = store.open(&request(&a, "w")).await.unwrap().grant;
    assert!(new.token > old.token);
    let error = commit(&store, &old, &sample_doc(&a), true).await.unwrap_err();
    assert_eq!(error.code(), "lease-lost");
    store.release(&a, &new).await.unwrap();
    store.create(&sample_doc(&a)).await.unwrap();
    assert!(store.open(&request(&a, "w")).await.unwrap().grant.token > new.token);
}

#[tokio::test]
async fn a_damaged_document_is_named_keeps_no_lease_and_can_be_deleted() {
    let folder = Folder::new();
    let (store, raw, a) = (folder.store().await, folder.raw(), id("a"));
    store.create(&sample_doc(&a)).await.unwrap();
    for damage in ["UPDATE documents SET doc = '{'", "UPDATE documents SET doc = '{\"format\":1}'"]
    {
        raw.execute_batch(damage).unwrap();
        assert_eq!(store.load(&a).await.unwrap_err().code(), "document-corrupt");
        assert_eq!(store.open(&request(&a, "w")).await.unwrap_err().code(), "document-corrupt");
        // Calls are done in their order, so after this one the lease has been given back.
        assert!(
            store.list(&ListQuery { limit: 1, ..ListQuery::default() }).await.unwrap().len() == 1
        );
        let free: bool =
            raw.query_row("SELECT holder IS NULL FROM sessions", [], |row| row.get(0)).unwrap();
        assert!(free);
    }
    assert!(store.delete(&a).await.unwrap());
    for table in ["sessions", "documents", "archive"] {
        let count: i64 =
            raw.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        assert_eq!(count, 0, "{table}");
    }
}

#[tokio::test]
async fn bytes_written_are_those_of_the_texts() {
    let folder = Folder::new();
    let (store, a) = (folder.store().await, id("a"));
    let grant = store.open(&request(&a, "w")).await.unwrap().grant;
    let doc = SessionDoc { state: json!("ü".repeat(1000)), ..sample_doc(&a) };
    let entry = ArchiveEntry { seq: 0, messages: Vec::new(), path: doc.path.clone() };
    let supersede = sample_doc(&a.superseded(1));
    let wanted = [
        serde_json::to_string(&doc).unwrap(),
        serde_json::to_string(&entry).unwrap(),
        serde_json::to_string(&supersede).unwrap(),
    ];
    let archive = &[entry][..];
    let (base, delta, release) = (0, &Delta::replace(), true);
    let supersede = Some(&supersede);
    let grant = &grant;
    let change =
        Commit { grant, base, doc: &doc, delta, archive, supersede, release, checkpoints: 0 };
    store.commit(&change).await.unwrap();
    let bytes = wanted.iter().map(|text| text.len() as u64).sum();
    assert_eq!(store.stats(), StoreStats { commits: 1, bytes_written: bytes });

    let grant = &store.open(&request(&a, "w")).await.unwrap().grant;
    let next = SessionDoc { revision: 2, ..doc.clone() };
    let change = Commit { grant, base: 1, doc: &next, checkpoints: 1, ..change };
    store.commit(&change).await.unwrap();
    let again = bytes + wanted[0].len() as u64;
    assert_eq!(store.stats(), StoreStats { commits: 2, bytes_written: bytes + again });
}

#[tokio::test]
async fn an_expired_session_goes_with_all_that_belongs_to_it() {
    let folder = Folder::new();
    let (store, raw, a) = (folder.store().await, folder.raw(), id("a"));
    let grant = store.open(&request(&a, "w")).await.unwrap().grant;
    let old = SessionDoc { expires_at: None, ..sample_doc(&a.superseded(1)) };
    let past = Timestamp::from_millis(0).unwrap();
    let doc = SessionDoc { expires_at: Some(past), ..sample_doc(&a) };
    let archive = &[ArchiveEntry { seq: 0, messages: Vec::new(), path: Vec::new() }][..];
    let (base, delta, supersede) = (0, &Delta::replace(), Some(&old));
    let change = Commit {
        grant: &grant,
        base,
        doc: &doc,
        delta,
        archive,
        supersede,
        release: false,
        checkpoints: 1,
    };
    store.commit(&change).await.unwrap();
    assert_eq!(store.sweep(10).await.unwrap().expired, 0, "someone works on it");
    store.release(&a, &grant).await.unwrap();
    assert_eq!(store.sweep(10).await.unwrap().expired, 1);
    for table in ["sessions", "documents", "archive", "checkpoints"] {
        let count: i64 =
            raw.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        assert_eq!(count, 0, "{table}");
    }
}

#[tokio::test]
async fn files_of_schema_1_are_read() {
    let folder = Folder::new();
    folder.raw().execute_batch(include_str!("schema-1.sql")).unwrap();
    let store = folder.store().await;
    let doc = store.load(&id("hotel-1")).await.unwrap().unwrap();
    assert_eq!((doc.revision, doc.lease.token), (4, 3));
    assert_eq!(doc.status, crate::session::Status::Waiting, "the column is newer than the text");
    let transcript = store.transcript(&doc.id).await.unwrap().unwrap();
    assert_eq!(transcript.archive.len(), 1);
    assert_eq!(store.checkpoints(&doc.id).await.unwrap(), []);
    let opened = store.open(&request(&doc.id, "w")).await.unwrap();
    assert_eq!(opened.grant.token, 4);
    let at = Timestamp::from_millis(1_000).unwrap();
    let next = SessionDoc { revision: 5, wake_at: Some(at), ..doc };
    commit(&store, &opened.grant, &next, true).await.unwrap();
    let query = ListQuery { due: Some(at), ..ListQuery::default() };
    assert_eq!(store.list(&query).await.unwrap(), [SessionSummary::from(&next)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn files_of_schema_1_get_the_tables_of_a_new_file() {
    let [old, new] = [Folder::new(), Folder::new()];
    let writer = old.raw();
    writer.execute_batch(include_str!("schema-1.sql")).unwrap();
    let opens: Vec<_> =
        (0..20).map(|_| tokio::spawn(SqliteStore::open(old.path.clone()))).collect();
    for open in opens {
        open.await.unwrap().unwrap();
    }
    new.store().await;
    let tables = |folder: &Folder| -> Vec<(String, Option<String>)> {
        let raw = folder.raw();
        let version: i64 = raw.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(version, 3);
        let mut tables = raw.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").unwrap();
        let rows = tables.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(tables(&old), tables(&new));
    // A process of before that still has the file open.
    writer.execute_batch("UPDATE sessions SET token = token + 1").unwrap();
    let token: u64 = writer.query_row("SELECT token FROM sessions", [], |row| row.get(0)).unwrap();
    assert_eq!(old.store().await.load(&id("hotel-1")).await.unwrap().unwrap().lease.token, token);
}
