//! Servers that die and servers that fail on purpose.

use std::sync::atomic::{AtomicU64, Ordering};

use flow_core::error::StoreError;
use flow_core::store::ListQuery;
use mongodb::bson::doc;
use tests::mongo_server::{MongoServer, failcommand_server, fresh_database};

use super::*;

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_server_dies_and_comes_back() {
    let Some(mut server) = MongoServer::start().await else { return };
    let uri = server.uri_with_limit(Duration::from_secs(2));
    let name = fresh_database();
    let store = Arc::new(MongoStore::connect(&uri, &name).await.unwrap());
    for round in 0..2 {
        let acknowledged = Arc::new(AtomicU64::new(0));
        let session = id(&format!("round-{round}"));
        let worker = {
            let (store, session, acknowledged) =
                (Arc::clone(&store), session.clone(), Arc::clone(&acknowledged));
            tokio::spawn(async move {
                let (grant, mut doc) = begin(&store, &session, "one").await;
                loop {
                    acknowledged.store(doc.revision, Ordering::SeqCst);
                    doc = next(&doc, &Delta::default());
                    if let Err(error) = store.commit(&whole(&grant, &doc, &Delta::default())).await
                    {
                        return (error, grant);
                    }
                }
            })
        };
        while acknowledged.load(Ordering::SeqCst) < 50 {
            tokio::task::yield_now().await;
        }
        server.kill();
        let (error, grant) = worker.await.unwrap();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        assert!(error.retryable());
        let error = store.load(&session).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");

        server.restart().await;
        let doc = store.load(&session).await.unwrap().unwrap();
        let acknowledged = acknowledged.load(Ordering::SeqCst);
        // The commit that was under way may have been made or not.
        assert!(
            (acknowledged..=acknowledged + 1).contains(&doc.revision),
            "acknowledged {acknowledged}, found {}",
            doc.revision
        );
        let after = next(&doc, &Delta::default());
        store.commit(&whole(&grant, &after, &Delta::default())).await.unwrap();
        assert_eq!(store.load(&session).await.unwrap().unwrap().revision, after.revision);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_typed_error() {
    let Some(mut server) = MongoServer::start().await else { return };
    server.kill();
    let uri = server.uri_with_limit(Duration::from_millis(200)).replace("//", "//ann:s3cret@");
    let error = MongoStore::connect(&uri, "x").await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");

    server.restart().await;
    let store = MongoStore::connect(&server.uri(), "x").await.unwrap();
    assert_eq!(format!("{store:?}"), "MongoStore { database: \"x\", .. }");
}

/// Makes the next commands of that name fail.
async fn fail(database: &Database, times: i32, data: Document) {
    let command =
        doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
    database.client().database("admin").run_command(command).await.unwrap();
}

#[tokio::test]
async fn each_command_that_fails_is_a_typed_error_and_the_retry_works() {
    let Some(server) = failcommand_server().await else { return };
    let client = Client::with_uri_str(server.uri()).await.unwrap();
    let database = client.database(&fresh_database());
    let store = MongoStore::new(database.clone()).await.unwrap();
    let session = id("a");
    // What a server says while it shuts down, and a cut connection. The driver tries twice.
    let failures = |command: &str| {
        [
            doc! { "failCommands": [command], "errorCode": 91 },
            doc! { "failCommands": [command], "closeConnection": true },
        ]
    };
    for failure in failures("findAndModify") {
        fail(&database, 2, failure).await;
        let error = store.open(&request(&session, "one", LONG)).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    }
    let grant = open(&store, &session, "one").await.grant;
    let doc = document(&session);
    for failure in failures("update") {
        fail(&database, 2, failure).await;
        let error = store.commit(&whole(&grant, &doc, &Delta::replace())).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        assert!(store.load(&session).await.unwrap().is_none());
    }
    store.commit(&whole(&grant, &doc, &Delta::replace())).await.unwrap();
    for failure in failures("findAndModify") {
        fail(&database, 2, failure).await;
        let error = store.renew(&session, &grant, LONG).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    }
    store.renew(&session, &grant, LONG).await.unwrap();
    for failure in failures("find") {
        fail(&database, 2, failure.clone()).await;
        let error = store.load(&session).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        fail(&database, 2, failure).await;
        let error = store.list(&ListQuery { limit: 1, ..Default::default() }).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    }
    assert_eq!(stored(&store, &session).await, Some(doc));
    let imported = document(&id("b"));
    for failure in failures("insert") {
        fail(&database, 2, failure).await;
        let error = store.create(&imported).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    }
    store.create(&imported).await.unwrap();
    for failure in failures("delete") {
        // The driver does not repeat what deletes many.
        fail(&database, 1, failure).await;
        let error = store.delete(&imported.id).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    }
    assert!(!store.delete(&imported.id).await.unwrap(), "the document went before the rest");
    // What is not a matter of time is told apart.
    fail(&database, 1, doc! { "failCommands": ["find"], "errorCode": 13 }).await;
    let error = store.load(&session).await.unwrap_err();
    assert!(matches!(error, StoreError::Backend { .. }), "{error}");
    assert!(!error.retryable());
}

#[tokio::test]
async fn a_commit_survives_one_cut_connection_and_is_made_once() {
    let Some(server) = failcommand_server().await else { return };
    let client = Client::with_uri_str(server.uri()).await.unwrap();
    let database = client.database(&fresh_database());
    let store = MongoStore::new(database.clone()).await.unwrap();
    let session = id("a");
    fail(&database, 1, doc! { "failCommands": ["findAndModify"], "closeConnection": true }).await;
    let (grant, first) = begin(&store, &session, "one").await;
    let delta = Delta {
        memory: [(
            "main".to_owned(),
            flow_core::session::Appended { push: vec![message(0)], keep: usize::MAX }.into(),
        )]
        .into(),
        ..Delta::default()
    };
    let second = next(&first, &delta);
    fail(&database, 1, doc! { "failCommands": ["update"], "closeConnection": true }).await;
    store.commit(&whole(&grant, &second, &delta)).await.unwrap();
    assert_eq!(stored(&store, &session).await, Some(second));
}
