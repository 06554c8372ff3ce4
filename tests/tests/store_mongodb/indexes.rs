//! The indexes that the store makes.

use flow_core::error::StoreError;
use futures_util::TryStreamExt as _;
use mongodb::IndexModel;
use mongodb::bson::doc;
use mongodb::options::{Hint, IndexOptions};

use super::*;

async fn lifetimes(database: &Database) -> Vec<Option<Duration>> {
    let sessions = database.collection::<Document>("sessions");
    let indexes: Vec<IndexModel> =
        sessions.list_indexes().await.unwrap().try_collect().await.unwrap();
    let on_expiry = indexes.into_iter().filter(|index| index.keys.contains_key("expires_at"));
    on_expiry.map(|index| index.options.and_then(|options| options.expire_after)).collect()
}

#[tokio::test]
async fn are_made_once_and_left_alone_then() {
    let Some((recorder, _, database)) = Recorder::store().await else { return };
    assert_eq!(lifetimes(&database).await, [Some(Duration::ZERO)]);
    recorder.take();
    MongoStore::new(database.clone()).await.unwrap();
    assert_eq!(recorder.names(), ["listIndexes", "listIndexes", "listIndexes"]);
    let stores = (0..8).map(|_| MongoStore::new(database.clone()));
    assert!(futures_util::future::join_all(stores).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn that_of_timers_has_only_sessions_with_a_timer() {
    let Some((store, database)) = store().await else { return };
    let sessions = database.collection::<Document>("sessions");
    for n in 0..20 {
        let wake_at = (n < 3).then(|| at(n));
        let doc = SessionDoc { wake_at, ..document(&id(&format!("s{n}"))) };
        store.create(&doc).await.unwrap();
    }
    // A commit of a whole document and one of parts, each of which ends a timer.
    for (session, replace) in [("s0", true), ("s1", false)] {
        let opened = open(&store, &id(session), "one").await;
        let delta = Delta { replace, wake_at: Some(None), ..Delta::default() };
        let doc = next(&opened.doc.unwrap(), &delta);
        store.commit(&whole(&opened.grant, &doc, &delta)).await.unwrap();
    }
    // A sweep that gives no timer.
    let opened = open(&store, &id("s4"), "one").await;
    let delta = Delta { status: Some(Status::Failed), ..Delta::default() };
    let doc = next(&opened.doc.unwrap(), &delta);
    store.commit(&whole(&opened.grant, &doc, &delta)).await.unwrap();
    store.renew(&doc.id, &opened.grant, Duration::ZERO).await.unwrap();
    assert_eq!(store.sweep(10).await.unwrap().freed, [doc.id]);

    let mut with_timer =
        sessions.find(doc! {}).hint(Hint::Keys(doc! { "wake_at": 1 })).await.unwrap();
    let mut found = Vec::new();
    while let Some(document) = with_timer.try_next().await.unwrap() {
        found.push(document.get_str("_id").unwrap().to_owned());
    }
    assert_eq!(found, ["s2"]);
}

#[tokio::test]
async fn are_made_by_many_processes_at_once() {
    let Some(database) = tests::mongo_server::mongo().await else { return };
    let stores = (0..8).map(|_| MongoStore::new(database.clone()));
    for store in futures_util::future::join_all(stores).await {
        store.unwrap();
    }
    assert_eq!(lifetimes(&database).await, [Some(Duration::ZERO)]);
}

#[tokio::test]
async fn are_added_to_a_collection_that_has_documents() {
    let Some(database) = tests::mongo_server::mongo().await else { return };
    let sessions = database.collection::<Document>("sessions");
    sessions.insert_one(doc! { "_id": "older", "revision": 3 }).await.unwrap();
    MongoStore::new(database.clone()).await.unwrap();
    assert_eq!(lifetimes(&database).await, [Some(Duration::ZERO)]);
}

#[tokio::test]
async fn another_lifetime_is_changed() {
    let Some(database) = tests::mongo_server::mongo().await else { return };
    index_on_expiry(&database, Some(Duration::from_secs(3600))).await;
    MongoStore::new(database.clone()).await.unwrap();
    assert_eq!(lifetimes(&database).await, [Some(Duration::ZERO)]);
}

#[tokio::test]
async fn an_index_without_a_lifetime_gets_one_or_is_refused_by_name() {
    let Some(database) = tests::mongo_server::mongo().await else { return };
    index_on_expiry(&database, None).await;
    match MongoStore::new(database.clone()).await {
        Ok(_) => assert_eq!(lifetimes(&database).await, [Some(Duration::ZERO)]),
        Err(error) => {
            assert!(matches!(error, StoreError::Backend { .. }), "{error}");
            assert!(error.to_string().contains("`expires_at`"), "{error}");
        }
    }
}

async fn index_on_expiry(database: &Database, lifetime: Option<Duration>) {
    let options = IndexOptions::builder().expire_after(lifetime).build();
    let index = IndexModel::builder().keys(doc! { "expires_at": 1 }).options(options).build();
    database.collection::<Document>("sessions").create_index(index).await.unwrap();
}
