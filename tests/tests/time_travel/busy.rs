//! A session is not put back while a turn works on it.

use flow_core::error::StoreError;

use super::*;

#[tokio::test]
async fn both_refuse_while_a_turn_runs() {
    for (store, _kept) in stores().await {
        let talk = talk_on(store, Desk::default(), |engine| engine);
        talk.say("s", "add:a").await;
        let turn = talk.engine.turn::<Desk>(TurnRequest::new(id("s")).message("hold add:b"));
        talk.flow.barrier.reached.notified().await;
        for error in [
            talk.session("s").fork(1, id("f")).await.unwrap_err(),
            talk.session("s").rewind(1).await.unwrap_err(),
        ] {
            assert!(
                matches!(&error, Error::Store(StoreError::Busy { session, .. }) if *session == id("s")),
                "{error}"
            );
        }
        assert_eq!(talk.session("s").history().await.unwrap().len(), 1, "looking is allowed");
        talk.flow.barrier.passed.notify_one();
        turn.await.unwrap();
        assert_eq!(talk.items("s").await, ["a", "b"]);
        assert!(talk.store.load(&id("f")).await.unwrap().is_none());

        talk.session("s").fork(1, id("f")).await.unwrap();
        assert_eq!(talk.doc("s").await.lease.holder, None, "the lease is given back");
        talk.session("s").rewind(1).await.unwrap();
        assert_eq!(talk.doc("s").await.lease.holder, None, "the lease is given back");
        talk.session("s").rewind(77).await.unwrap_err();
        assert_eq!(talk.doc("s").await.lease.holder, None, "the lease is given back");
    }
}

#[tokio::test]
async fn a_fork_does_not_take_the_place_of_a_session() {
    for (store, _kept) in stores().await {
        let talk = talk_on(store, Desk::default(), |engine| engine);
        talk.say("s", "add:a").await;
        talk.say("other", "add:x").await;
        let foreign = SessionDoc {
            id: id("foreign"),
            flow: flow_core::session::FlowRef { id: "foreign".into(), digest: String::new() },
            ..talk.doc("s").await
        };
        talk.store.create(&foreign).await.unwrap();
        for name in ["s", "other", "foreign"] {
            let error = talk.session("s").fork(1, id(name)).await.unwrap_err();
            assert_eq!(error.code(), "session-exists", "{name}");
        }
        assert_eq!(talk.items("other").await, ["x"]);
        assert_eq!(talk.session("other").history().await.unwrap().len(), 1);
        // Somebody begins a session with that id.
        let turn = talk.engine.turn::<Desk>(TurnRequest::new(id("new")).message("hold"));
        talk.flow.barrier.reached.notified().await;
        let error = talk.session("s").fork(1, id("new")).await.unwrap_err();
        assert_eq!((error.code(), error.retryable()), ("session-busy", true));
        talk.flow.barrier.passed.notify_one();
        turn.await.unwrap();
        assert_eq!(talk.items("new").await, [""; 0]);
    }
}

#[tokio::test]
async fn a_session_whose_worker_has_died_is_still_found_by_a_sweep() {
    for (store, _kept) in stores().await {
        let talk = talk_on(store, Desk::default(), |engine| engine);
        talk.say("s", "add:a over").await;
        let between = talk.session("s").checkpoint(1).await.unwrap().doc;
        talk.edit("s", |doc| *doc = SessionDoc { lease: doc.lease.clone(), ..between }).await;
        let session = id("s");
        let (flow, holder) = ("desk", "dead");
        let ttl = Duration::ZERO;
        let request = OpenRequest { id: &session, flow, version: 1, holder, ttl };
        talk.store.open(&request).await.unwrap();

        talk.session("s").fork(2, id("f")).await.unwrap();
        talk.session("s").rewind(77).await.unwrap_err();
        talk.session("s").release().await.unwrap_err();
        // Sweepers go by the store's clock.
        talk.clock.advance(Duration::from_secs(1_000_000_000));
        let swept = talk.engine.sweep().await.unwrap();
        assert_eq!((swept.freed, swept.woken), (vec![id("s")], vec![id("s")]));
        assert_eq!(talk.doc("s").await.current_step, "Over");
    }
}

#[tokio::test]
async fn a_turn_that_is_refused_leaves_a_session_whose_worker_has_died_to_a_sweep() {
    for (store, _kept) in stores().await {
        let talk = talk_on(store, Desk::default(), |engine| engine);
        let request = || TurnRequest::new(id("s")).message("add:a over").turn_id("t");
        talk.engine.turn::<Desk>(request()).await.unwrap();
        let between = talk.session("s").checkpoint(1).await.unwrap().doc;
        let session = id("s");
        let (flow, holder) = ("desk", "dead");
        let ttl = Duration::ZERO;
        let die = async || {
            let doc = talk.edit("s", |doc| {
                let (lease, turns) = (doc.lease.clone(), doc.turns.clone());
                *doc = SessionDoc { lease, turns, ..between.clone() };
            });
            doc.await;
            let request = OpenRequest { id: &session, flow, version: 1, holder, ttl };
            talk.store.open(&request).await.unwrap();
            // Sweepers go by the store's clock.
            talk.clock.advance(Duration::from_secs(1_000_000_000));
        };
        let check = async |refused: &str| {
            let swept = talk.engine.sweep().await.unwrap();
            assert_eq!((swept.freed, swept.woken), (vec![id("s")], vec![id("s")]), "{refused}");
            assert_eq!(talk.doc("s").await.current_step, "Over");
        };
        die().await;
        assert!(talk.engine.turn::<Desk>(request()).await.unwrap().repeated);
        check("a repeated turn").await;

        die().await;
        let answer = Delivery::approve("1-0-0");
        let error = talk.engine.deliver(id("s"), answer).await.unwrap_err();
        assert_eq!(error.code(), "not-waiting", "{error}");
        check("an answer for which nobody asks").await;
    }
}
