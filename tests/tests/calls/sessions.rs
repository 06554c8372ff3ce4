//! Called sessions belong to their callers.

use std::time::Duration;

use flow_core::engine::Delivery;
use flow_core::session::Status;
use flow_core::store::sqlite::SqliteStore;

use super::*;

#[tokio::test]
async fn only_its_caller_runs_turns_of_a_called_session() {
    let setup = setup();
    setup.say("call[approve]").await.unwrap();
    let child = setup.child().await;
    let request = pending(&child).remove(0).request_id;
    let direct = [
        setup.engine.turn::<Script>(TurnRequest::new(child.id.clone()).message("hi")).await,
        setup.engine.turn::<Script>(TurnRequest::new(child.id.clone())).await,
        setup.engine.deliver(child.id.clone(), Delivery::approve(request)).await,
    ];
    for refused in direct {
        let error = refused.unwrap_err();
        assert_eq!((error.code(), error.status()), ("called-session", 409), "{error}");
        assert!(error.to_string().contains("session `s` of flow `script`"), "{error}");
    }
    let handle = setup.engine.session(child.id.clone());
    for refused in [handle.restart_step().await, handle.abandon("x").await, handle.release().await]
    {
        assert_eq!(refused.unwrap_err().code(), "called-session");
    }
    let SessionDoc { lease, .. } = child.clone();
    let after = setup.child().await;
    assert_eq!(SessionDoc { lease, ..after }, child, "nothing has changed");
    let request = setup.pending().await.remove(0).request_id;
    setup.engine.deliver(session(), Delivery::approve(request)).await.unwrap();
}

#[tokio::test]
async fn the_family_is_deleted_with_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(folder.path().join("s.db")).await.unwrap();
    let stores: [Arc<dyn SessionStore>; 2] = [Arc::new(MemoryStore::new()), Arc::new(sqlite)];
    for store in stores {
        let setup = setup_on(store, Durability::Crossing, ScriptedModel::new());
        setup.say("call[call[table]]").await.unwrap();
        assert_eq!(setup.called().await.len(), 3);
        setup.engine.session(session()).delete().await.unwrap();
        assert!(setup.called().await.is_empty());
    }
}

/// Sessions in memory and in SQLite, made hours ago and kept for a time.
async fn setups_hours_ago(
    hours: u64,
    ttl: u64,
) -> (Vec<(Arc<dyn SessionStore>, Engine, ManualClock)>, tempfile::TempDir) {
    let hour = Duration::from_secs(3600);
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(folder.path().join("s.db")).await.unwrap();
    let stores: [Arc<dyn SessionStore>; 2] = [Arc::new(MemoryStore::new()), Arc::new(sqlite)];
    // Stores go by the real time.
    let setups = stores.map(|store| {
        let start = flow_core::time::Timestamp::now().as_millis()
            - i64::try_from(hours).unwrap() * 3_600_000;
        let clock = ManualClock::at(flow_core::time::Timestamp::from_millis(start).unwrap());
        let builder = Engine::builder().shared_store(store.clone()).clock(clock.clone());
        let builder = builder.session_ttl(hour * u32::try_from(ttl).unwrap());
        let engine = builder.flow(Script::default()).flow(Table).build().unwrap();
        (store, engine, clock)
    });
    (setups.into(), folder)
}

#[tokio::test]
async fn a_called_session_is_kept_as_long_as_its_caller_waits_for_it() {
    let (setups, _folder) = setups_hours_ago(3, 2).await;
    for (store, engine, clock) in setups {
        let turn = |text: &str| engine.turn::<Script>(TurnRequest::new(session()).message(text));
        let outcome = turn("call[call[approve]]").await.unwrap();
        let request = outcome.interrupts()[0].request_id.clone();
        clock.advance(Duration::from_secs(2 * 3600));
        // A turn of which the called sessions know nothing; after it theirs would be over.
        turn("still there?").await.unwrap();
        assert_eq!(engine.sweep().await.unwrap().expired, 0);
        engine.deliver(session(), Delivery::approve(request)).await.unwrap();
        let doc = store.load(&session()).await.unwrap().unwrap();
        assert!(pending(&doc).is_empty() && doc.expires_at.is_some(), "{doc:?}");
        for child in called(&store).await {
            assert_eq!((child.status, child.expires_at), (Status::Completed, doc.expires_at));
        }
    }
}

#[tokio::test]
async fn a_called_session_expires_with_its_caller() {
    let (setups, _folder) = setups_hours_ago(3, 2).await;
    for (store, engine, _) in setups {
        let turn = |text: &str| engine.turn::<Script>(TurnRequest::new(session()).message(text));
        turn("call[call[approve]]").await.unwrap();
        assert_eq!(called(&store).await.len(), 2);
        assert_eq!(engine.sweep().await.unwrap().expired, 1);
        assert!(store.load(&session()).await.unwrap().is_none());
        assert!(called(&store).await.is_empty());
    }
}

#[tokio::test]
async fn a_restarted_call_goes_on_with_its_session() {
    let setup = setup();
    setup.say("table").await.unwrap();
    setup.say("4").await.unwrap();
    setup.engine.session(session()).restart_step().await.unwrap();
    let outcome = setup.say("table").await.unwrap();
    assert_eq!(outcome.replies, ["For how many?"], "what it said at its beginning");
    assert_eq!(outcome.question().unwrap().text, "At noon or in the evening?", "where it stands");
    let outcome = setup.say("noon").await.unwrap();
    assert_eq!(outcome.replies, ["Thank you, Ada.", "reserved: 4 at noon"]);
    assert_eq!(setup.called().await.len(), 1);
}

#[tokio::test]
async fn a_restarted_call_whose_session_has_ended_gives_its_result() {
    let setup = setup();
    setup.say("call[charge:1] approve").await.unwrap();
    setup.engine.session(session()).restart_step().await.unwrap();
    let outcome = setup.say("call[charge:1]").await.unwrap();
    assert_eq!(outcome.replies, ["done: receipt for 1"]);
    assert_eq!(setup.world.take_charges().len(), 1);
    assert_eq!(setup.called().await.len(), 1);
}

#[tokio::test]
async fn a_caller_that_is_abandoned_leaves_nothing_that_wakes() {
    let setup = setup();
    setup.say("call[sleep:60]").await.unwrap();
    setup.engine.session(session()).abandon("enough").await.unwrap();
    setup.clock.advance(Duration::from_secs(3600));
    let report = setup.engine.sweep().await.unwrap();
    assert!(report.woken.is_empty() && report.failed.is_empty(), "{report:?}");
    assert_eq!(setup.child().await.status, Status::Waiting);
}

#[tokio::test]
async fn a_cancelled_turn_gives_the_called_session_back_and_the_next_one_goes_on() {
    let setup = setup();
    let request = || TurnRequest::new(session()).message("call[charge:1 stall charge:2]");
    for _ in 0..3 {
        let turn = setup.engine.turn::<Script>(request());
        setup.world.stalled.notified().await;
        turn.cancel();
        assert_eq!(turn.await.unwrap_err().code(), "cancelled");
    }
    setup.world.repair();
    let outcome = setup.engine.turn::<Script>(request()).await.unwrap();
    assert_eq!(outcome.replies, ["done: receipt for 1, receipt for 2"]);
    let mut charges = setup.world.take_charges();
    charges.dedup();
    assert_eq!(charges.len(), 2, "{charges:?}");
}

/// A worker dies in a turn of a called session: both leases run out.
#[tokio::test]
async fn a_sweep_goes_on_with_a_called_session_through_its_caller() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    for durability in [Durability::Crossing, Durability::Effect] {
        let failing = tests::failing_store::FailingStore::shared(store.clone());
        let clock =
            ManualClock::at(flow_core::time::Timestamp::now().after(Duration::from_secs(60)));
        let world = World::default();
        let build = |store: Arc<dyn SessionStore>| {
            let builder = Engine::builder().shared_store(store).clock(clock.clone());
            let builder = builder.durability(durability).lease(Duration::ZERO);
            builder.flow(Script { world: world.clone() }).flow(Table).build().unwrap()
        };
        let engine = build(Arc::new(failing.clone()));
        let turn = |text: &str| engine.turn::<Script>(TurnRequest::new(session()).message(text));
        turn("call[table approve charge:1 stall charge:2]").await.unwrap();
        turn("4").await.unwrap();
        let waits = turn("noon").await.unwrap();
        let request = waits.interrupts()[0].request_id.clone();
        let dying = engine.clone();
        let delivery = Delivery::approve(request);
        let dead = tokio::spawn(async move { dying.deliver(session(), delivery).await });
        world.stalled.notified().await;
        failing.stop();
        dead.abort();
        let _ = dead.await;
        world.repair();
        // A child that is found first waits for its caller.
        let engine = build(store.clone());
        let mut woken = Vec::new();
        for _ in 0..3 {
            let report = engine.sweep().await.unwrap();
            assert!(report.failed.is_empty(), "{report:?}");
            woken.extend(report.woken);
        }
        assert_eq!(woken, [session()]);
        let doc = store.load(&session()).await.unwrap().unwrap();
        assert!(doc.effects.is_empty() && pending(&doc).is_empty(), "{doc:?}");
        for child in called(&store).await {
            assert_eq!((child.status, child.wake_at), (Status::Completed, None));
        }
        let mut charges = world.take_charges();
        charges.dedup();
        assert_eq!(charges.len(), 2, "{charges:?}");
        store.delete(&session()).await.unwrap();
    }
}

#[tokio::test]
async fn calls_work_over_mongodb() {
    let Some(database) = tests::mongo_server::mongo().await else { return };
    let store = flow_core::store::mongodb::MongoStore::new(database).await.unwrap();
    let setup = setup_on(Arc::new(store), Durability::Effect, ScriptedModel::new());
    setup.say("say:a call[table approve charge:1] say:b").await.unwrap();
    setup.say("4").await.unwrap();
    let outcome = setup.say("noon").await.unwrap();
    assert_eq!(outcome.replies, ["Thank you, Ada.", "reserved: 4 at noon"]);
    let request = outcome.interrupts()[0].request_id.clone();
    let delivery = Delivery::approve(request).by("ada");
    let outcome = setup.engine.deliver(session(), delivery).await.unwrap();
    assert_eq!(outcome.replies, ["done: table for 4, approved by ada, receipt for 1", "b"]);
    assert_eq!(setup.world.take_charges().len(), 1);
    assert_eq!(setup.called().await.len(), 2);
    setup.engine.session(session()).delete().await.unwrap();
    assert!(setup.called().await.is_empty());
}
