//! What the store promises, where MongoDB makes it hard.

use std::collections::BTreeSet;

use flow_core::error::StoreError;
use flow_core::session::{Appended, ArchiveEntry, ArchiveMark, ArchivedMessage, EffectRecord};
use flow_core::store::{ListQuery, SessionStore as _, StoreStats};
use mongodb::bson::doc;

use super::*;

fn entry(seq: u64, text: u64) -> ArchiveEntry {
    let message = ArchivedMessage { namespace: "main".into(), message: message(text) };
    ArchiveEntry { seq, messages: vec![message], path: Vec::new() }
}

#[tokio::test]
async fn an_opened_session_is_invisible_until_it_is_committed() {
    let Some((store, _)) = store().await else { return };
    let session = id("a");
    let opened = open(&store, &session, "one").await;
    assert!(opened.doc.is_none());
    assert!(store.load(&session).await.unwrap().is_none());
    assert!(store.transcript(&session).await.unwrap().is_none());
    assert!(store.list(&ListQuery { limit: 10, ..Default::default() }).await.unwrap().is_empty());
    assert!(!store.delete(&session).await.unwrap());
    let doc = document(&session);
    let error = store.commit(&whole(&opened.grant, &doc, &Delta::replace())).await.unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
}

#[tokio::test]
async fn a_delta_is_stored_as_it_is_applied_in_memory() {
    let Some((store, _)) = store().await else { return };
    let session = id("a");
    let (grant, first) = begin(&store, &session, "one").await;
    assert_eq!(stored(&store, &session).await.as_ref(), Some(&first));
    let delta = Delta {
        status: Some(Status::Waiting),
        current_step: Some("Größe_1".into()),
        visit: Some(Visit { number: 2, input: Some(json!({ "$x.y": 1 })), ..Visit::default() }),
        state: Some(json!({ "a.b": { "$set": u64::MAX } })),
        steps: [("Größe_1".to_owned(), json!({ "x": 1.0 })), ("B-2".to_owned(), json!(null))]
            .into(),
        memory: [
            ("main".to_owned(), Appended { push: (0..5).map(message).collect(), keep: 3 }.into()),
            ("other".to_owned(), Appended::default().into()),
        ]
        .into(),
        context: Some([("$k".to_owned(), json!([1, 2]))].into_iter().collect()),
        path: Appended {
            push: vec![flow_core::session::PathEntry { step: "B".into(), level: 0, at: at(7) }],
            keep: 0,
        },
        effects: Some([("$1.x".to_owned(), EffectRecord::tool("Charge", at(8)))].into()),
        ended: Some(Some("$done".into())),
        waiting: Some(Some(flow_core::session::Waiting::Escalation { reason: "$why".into() })),
        next_message: Some(5),
        updated_at: Some(at(9)),
        wake_at: Some(Some(at(10))),
        expires_at: Some(Some(at(1_000_000))),
        ..Delta::default()
    };
    let second = next(&first, &delta);
    store.commit(&whole(&grant, &second, &delta)).await.unwrap();
    assert_eq!(stored(&store, &session).await.as_ref(), Some(&second));

    let delta = Delta {
        memory: [("main".to_owned(), Appended { push: vec![message(5)], keep: 2 }.into())].into(),
        effects: Some(Default::default()),
        ended: Some(None),
        waiting: Some(None),
        wake_at: Some(None),
        expires_at: Some(None),
        ..Delta::default()
    };
    let third = next(&second, &delta);
    store.commit(&Commit { release: true, ..whole(&grant, &third, &delta) }).await.unwrap();
    let read = store.load(&session).await.unwrap().unwrap();
    assert_eq!((read.lease.holder, read.lease.until), (None, None));
    assert_eq!(read.lease.token, grant.token);
    assert_eq!(stored(&store, &session).await, Some(third));
}

#[tokio::test]
async fn what_must_not_be_opened_stays_as_it_is() {
    let Some((store, database)) = store().await else { return };
    let session = id("a");
    let (grant, doc) = begin(&store, &session, "one").await;
    let before = raw(&database, &session).await;

    let error = store.open(&request(&session, "two", LONG)).await.unwrap_err();
    let StoreError::Busy { holder, until, .. } = &error else { panic!("{error}") };
    assert_eq!((holder.as_str(), *until), ("one", grant.until));
    // The holder itself has it open already.
    assert!(matches!(
        store.open(&request(&session, "one", LONG)).await,
        Err(StoreError::Busy { .. })
    ));
    let other = OpenRequest { flow: "other", ..request(&session, "two", LONG) };
    assert!(
        matches!(store.open(&other).await, Err(StoreError::WrongFlow { found, .. }) if found == FLOW)
    );
    let old = OpenRequest { version: 1, ..request(&session, "two", LONG) };
    let error = store.open(&old).await.unwrap_err();
    assert!(matches!(error, StoreError::FromFuture { found: 2, supported: 1, .. }), "{error}");
    assert_eq!(raw(&database, &session).await, before);

    store.release(&session, &grant).await.unwrap();
    assert!(matches!(store.open(&other).await, Err(StoreError::WrongFlow { .. })));
    assert!(matches!(store.open(&old).await, Err(StoreError::FromFuture { .. })));
    let change = doc! { "$set": { "format": 99 } };
    let sessions = database.collection::<Document>("sessions");
    sessions.update_one(doc! { "_id": "a" }, change).await.unwrap();
    let error = store.open(&request(&session, "two", LONG)).await.unwrap_err();
    assert!(
        matches!(error, StoreError::FromFuture { what: "document format", found: 99, .. }),
        "{error}"
    );
    assert_eq!(doc.revision, 1);
}

async fn raw(database: &Database, session: &SessionId) -> Option<Document> {
    let sessions = database.collection::<Document>("sessions");
    sessions.find_one(doc! { "_id": session.as_str() }).await.unwrap()
}

#[tokio::test]
async fn an_unreadable_document_is_told_and_not_locked() {
    let Some((store, database)) = store().await else { return };
    let session = id("a");
    let (grant, _) = begin(&store, &session, "one").await;
    store.release(&session, &grant).await.unwrap();
    let change = doc! { "$set": { "visit": "nowhere" } };
    let sessions = database.collection::<Document>("sessions");
    sessions.update_one(doc! { "_id": "a" }, change).await.unwrap();
    let error = store.open(&request(&session, "two", LONG)).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Corrupt { reason, .. } if reason.contains("visit")),
        "{error}"
    );
    let raw = raw(&database, &session).await.unwrap();
    assert_eq!(raw.get_document("lease").unwrap().get("holder"), Some(&mongodb::bson::Bson::Null));
}

#[tokio::test]
async fn a_lease_that_has_ended_is_taken_and_fences_its_former_holder() {
    let Some((store, _)) = store().await else { return };
    let session = id("a");
    let (_, doc) = begin(&store, &session, "zero").await;
    let late = {
        let store = &store;
        store.delete(&session).await.unwrap();
        store.open(&request(&session, "one", Duration::ZERO)).await.unwrap().grant
    };
    let new = store.open(&request(&session, "two", LONG)).await.unwrap().grant;
    assert!(new.token > late.token);
    let delta = Delta::replace();
    let commit = Commit { archive: &[entry(0, 0)], ..whole(&late, &doc, &delta) };
    let error = store.commit(&commit).await.unwrap_err();
    assert!(
        matches!(error, StoreError::LeaseLost { token, current, .. } if (token, current) == (late.token, new.token)),
        "{error}"
    );
    assert!(matches!(store.renew(&session, &late, LONG).await, Err(StoreError::LeaseLost { .. })));
    store.release(&session, &late).await.unwrap();
    let until = store.renew(&session, &new, LONG + LONG).await.unwrap();
    assert!(until > new.until);

    // Both wrote the entry with seq 0; the one with the newer token counts, in either order.
    let mut second = doc.clone();
    second.archive = ArchiveMark { from: 0, next: 1 };
    let commit = Commit { archive: &[entry(0, 7)], ..whole(&new, &second, &delta) };
    store.commit(&commit).await.unwrap();
    let commit = Commit { archive: &[entry(0, 8)], ..whole(&late, &doc, &delta) };
    assert!(matches!(store.commit(&commit).await, Err(StoreError::LeaseLost { .. })));
    let transcript = store.transcript(&session).await.unwrap().unwrap();
    assert_eq!(transcript.archive, [entry(0, 7)]);
    let error = store.commit(&whole(&new, &doc, &delta)).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { expected: 0, found: 1, .. }), "{error}");
}

#[tokio::test]
async fn a_placeholder_of_another_flow_can_be_taken_over_once_its_lease_is_over() {
    let Some((store, _)) = store().await else { return };
    let session = id("a");
    let other =
        OpenRequest { flow: "other", version: 9, ..request(&session, "one", Duration::ZERO) };
    let late = store.open(&other).await.unwrap().grant;
    let grant = open(&store, &session, "two").await.grant;
    let doc = document(&session);
    store.commit(&whole(&grant, &doc, &Delta::replace())).await.unwrap();
    assert!(matches!(store.renew(&session, &late, LONG).await, Err(StoreError::LeaseLost { .. })));
    assert_eq!(stored(&store, &session).await, Some(doc));
}

#[tokio::test]
async fn of_many_that_open_at_once_one_wins() {
    let Some((store, _)) = store().await else { return };
    let store = Arc::new(store);
    for round in 0..20 {
        let session = id(&format!("round-{round}"));
        let racers = (0..8).map(|n| {
            let (store, session) = (Arc::clone(&store), session.clone());
            async move { store.open(&request(&session, &format!("racer {n}"), LONG)).await }
        });
        let results = futures_util::future::join_all(racers).await;
        let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1, "round {round}");
        for error in lost {
            assert!(matches!(error, Err(StoreError::Busy { .. })), "{error:?}");
        }
    }
}

#[tokio::test]
async fn a_superseded_document_is_kept_only_by_a_commit_that_succeeds() {
    let Some((store, _)) = store().await else { return };
    let session = id("a");
    let (grant, old) = begin(&store, &session, "one").await;
    let kept: SessionId = serde_json::from_value(json!("a~1")).unwrap();
    let old = SessionDoc { id: kept.clone(), status: Status::Superseded, ..old };
    let new = SessionDoc { revision: 2, superseded: 1, ..document(&session) };
    let delta = Delta::replace();
    let commit = Commit { supersede: Some(&old), ..whole(&grant, &new, &delta) };
    let stale = Grant { token: grant.token - 1, ..grant.clone() };
    let refused = Commit { grant: &stale, ..commit };
    assert!(matches!(store.commit(&refused).await, Err(StoreError::LeaseLost { .. })));
    assert!(store.load(&kept).await.unwrap().is_none());
    let refused = Commit { base: 7, ..commit };
    assert!(matches!(store.commit(&refused).await, Err(StoreError::Conflict { .. })));
    assert!(store.load(&kept).await.unwrap().is_none());

    store.commit(&commit).await.unwrap();
    assert_eq!(stored(&store, &kept).await.as_ref(), Some(&old));
    // A repeated commit is refused and takes nothing back.
    assert!(matches!(store.commit(&commit).await, Err(StoreError::Conflict { .. })));
    assert_eq!(stored(&store, &kept).await, Some(old));
    // Ids that merely look alike are not its own.
    store.create(&document(&id("a-1"))).await.unwrap();
    assert!(store.delete(&session).await.unwrap());
    assert!(store.load(&kept).await.unwrap().is_none());
    assert!(store.load(&id("a-1")).await.unwrap().is_some());
}

#[tokio::test]
async fn sweeps_free_each_abandoned_session_once() {
    let Some((store, database)) = store().await else { return };
    let other = MongoStore::new(database.clone()).await.unwrap();
    let mut expected = BTreeSet::new();
    for n in 0..20 {
        let session = id(&format!("dead-{n}"));
        let (grant, _) = begin(&store, &session, "dead").await;
        store.renew(&session, &grant, Duration::ZERO).await.unwrap();
        expected.insert(session);
    }
    store.open(&request(&id("placeholder"), "dead", Duration::ZERO)).await.unwrap();
    let (alive, _) = begin(&store, &id("alive"), "alive").await;
    let few = store.sweep(5).await.unwrap().freed;
    assert!(few.len() <= 5, "{few:?}");
    let (one, two) = tokio::join!(store.sweep(100), other.sweep(100));
    let freed: Vec<_> = [few, one.unwrap().freed, two.unwrap().freed].concat();
    assert_eq!(freed.len(), 20);
    assert_eq!(freed.into_iter().collect::<BTreeSet<_>>(), expected);
    assert!(raw(&database, &id("placeholder")).await.is_none());
    let doc = store.load(&id("dead-3")).await.unwrap().unwrap();
    assert_eq!((doc.status, doc.lease.holder), (Status::Waiting, None));
    let doc = store.load(&id("alive")).await.unwrap().unwrap();
    assert_eq!((doc.status, doc.lease.token), (Status::Running, alive.token));
    assert!(store.sweep(100).await.unwrap().freed.is_empty());
}

#[tokio::test]
async fn archives_of_expired_sessions_go_and_those_of_others_stay() {
    let Some((store, database)) = store().await else { return };
    let delta = Delta::replace();
    for name in ["gone", "kept", "kept-by-superseded"] {
        let session = id(name);
        let grant = open(&store, &session, "one").await.grant;
        let mut doc = document(&session);
        doc.archive = ArchiveMark { from: 0, next: 2 };
        let archive = [entry(0, 0), entry(1, 1)];
        store.commit(&Commit { archive: &archive, ..whole(&grant, &doc, &delta) }).await.unwrap();
    }
    let kept: SessionId = serde_json::from_value(json!("kept-by-superseded~1")).unwrap();
    let mut old = document(&kept);
    old.archive = ArchiveMark { from: 0, next: 2 };
    store.create(&old).await.unwrap();
    let sessions = database.collection::<Document>("sessions");
    // As the server's TTL monitor does.
    sessions.delete_many(doc! { "_id": { "$in": ["gone", "kept-by-superseded"] } }).await.unwrap();
    // Three archives, one per sweep.
    for _ in 0..3 {
        store.sweep(1).await.unwrap();
    }
    let archive = database.collection::<Document>("session_archive");
    assert_eq!(archive.count_documents(doc! { "session": "gone" }).await.unwrap(), 0);
    assert_eq!(archive.count_documents(doc! { "session": "kept" }).await.unwrap(), 2);
    let transcript = store.transcript(&kept).await.unwrap().unwrap();
    assert_eq!(transcript.archive, [entry(0, 0), entry(1, 1)]);
}

/// What a commit writes of a checkpoint before it is made.
fn leftover(id: &str, session: &SessionId, revision: i64, token: u64) -> Document {
    let token = i64::try_from(token).unwrap();
    doc! { "_id": id, "session": session.as_str(), "revision": revision, "token": token, "doc": {} }
}

#[tokio::test]
async fn what_failed_commits_leave_of_checkpoints_is_invisible_and_goes() {
    let Some((store, database)) = store().await else { return };
    let session = id("a");
    let (grant, mut doc) = begin(&store, &session, "one").await;
    let checkpoints = database.collection::<Document>("session_checkpoints");
    // Of the next revisions, one by a worker that has taken over, and one of another session.
    let other = id("other");
    for leftover in [
        leftover("x2", &session, 2, grant.token),
        leftover("x4", &session, 4, grant.token),
        leftover("newer", &session, 3, grant.token + 1),
        leftover("beyond", &session, 99, grant.token),
        leftover("other", &other, 2, 1),
    ] {
        checkpoints.insert_one(leftover).await.unwrap();
    }
    for keep in [0, 2, 2] {
        let delta = Delta { state: Some(json!(doc.revision)), ..Delta::default() };
        doc = next(&doc, &delta);
        store.commit(&Commit { checkpoints: keep, ..whole(&grant, &doc, &delta) }).await.unwrap();
    }
    let listed = store.checkpoints(&session).await.unwrap();
    assert_eq!(listed.iter().map(|kept| kept.revision).collect::<Vec<_>>(), [4, 3]);
    assert!(store.checkpoint(&session, 2).await.unwrap().is_none());
    let kept = store.checkpoint(&session, 4).await.unwrap().unwrap();
    assert_eq!(kept.doc.state, json!(3));
    // The last commit has deleted what is behind it.
    let left = checkpoints.find(doc! { "doc": {} }).sort(doc! { "_id": 1 }).await.unwrap();
    let left: Vec<Document> = futures_util::TryStreamExt::try_collect(left).await.unwrap();
    let left: Vec<_> = left.iter().map(|left| left.get_str("_id").unwrap()).collect();
    assert_eq!(left, ["beyond", "newer", "other"]);
}

#[tokio::test]
async fn checkpoints_of_sessions_that_the_server_deleted_go_with_a_sweep() {
    let Some((store, database)) = store().await else { return };
    for name in ["a", "b", "c", "d"] {
        let (grant, mut doc) = begin(&store, &id(name), "one").await;
        for _ in 0..3 {
            doc = next(&doc, &Delta::default());
            let delta = Delta::default();
            store.commit(&Commit { checkpoints: 3, ..whole(&grant, &doc, &delta) }).await.unwrap();
        }
    }
    let sessions = database.collection::<Document>("sessions");
    // As the server's TTL monitor does.
    sessions.delete_many(doc! { "_id": { "$in": ["b", "d"] } }).await.unwrap();
    // One session per sweep, then the first one again.
    for _ in 0..5 {
        store.sweep(1).await.unwrap();
    }
    let checkpoints = database.collection::<Document>("session_checkpoints");
    for (name, left) in [("a", 3), ("b", 0), ("c", 3), ("d", 0)] {
        let found = checkpoints.count_documents(doc! { "session": name }).await.unwrap();
        assert_eq!(found, left, "{name}");
    }
}

#[tokio::test]
async fn lists_by_ascending_id_page_by_page() {
    let Some((store, _)) = store().await else { return };
    for n in [3, 1, 2, 0] {
        let mut doc = document(&id(&format!("s{n}")));
        doc.owner = (n % 2 == 0).then(|| "$ne".to_owned());
        doc.version = n;
        store.create(&doc).await.unwrap();
    }
    let ids = async |query: ListQuery| -> Vec<String> {
        let page = store.list(&query).await.unwrap();
        page.iter().map(|summary| summary.id.to_string()).collect()
    };
    let all = ListQuery { limit: 3, ..Default::default() };
    assert_eq!(ids(all.clone()).await, ["s0", "s1", "s2"]);
    assert_eq!(ids(ListQuery { after: Some(id("s2")), ..all.clone() }).await, ["s3"]);
    assert_eq!(ids(ListQuery { owner: Some("$ne".into()), ..all.clone() }).await, ["s0", "s2"]);
    assert_eq!(ids(ListQuery { below_version: Some(2), ..all.clone() }).await, ["s0", "s1"]);
    assert_eq!(ids(ListQuery { flow: Some("other".into()), ..all.clone() }).await, [""; 0]);
    assert_eq!(ids(ListQuery { status: Some(Status::Running), ..all }).await.len(), 3);
    let error = store.create(&document(&id("s0"))).await.unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }), "{error}");
}

#[tokio::test]
async fn bytes_of_a_commit_do_not_grow_with_the_document() {
    let Some((store, _)) = store().await else { return };
    let session = id("a");
    let (grant, mut doc) = begin(&store, &session, "one").await;
    let mut sizes = Vec::new();
    for n in 0..40 {
        let before: StoreStats = store.stats();
        let delta = Delta {
            memory: [(
                "main".to_owned(),
                Appended { push: vec![message(10 + n)], keep: usize::MAX }.into(),
            )]
            .into(),
            ..Delta::default()
        };
        doc = next(&doc, &delta);
        store.commit(&whole(&grant, &doc, &delta)).await.unwrap();
        sizes.push(store.stats().bytes_written - before.bytes_written);
    }
    assert!(sizes[0] > 0 && sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
    assert_eq!(store.stats().commits, 41);
    assert_eq!(stored(&store, &session).await.unwrap().memory["main"].messages.len(), 40);
}
