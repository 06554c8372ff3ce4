//! Forks and rewinds of sessions that call others.

use flow_core::engine::{Checkpoints, Delivery};
use flow_core::error::SessionError;
use flow_core::model::{ChatResponse, TokenUsage};
use flow_core::session::Status;

use super::*;

fn setup_with_checkpoints(model: ScriptedModel) -> Setup {
    let setup = setup_on(Arc::new(MemoryStore::new()), Durability::Crossing, model.clone());
    let engine = Engine::builder()
        .shared_store(setup.store.clone())
        .clock(setup.clock.clone())
        .checkpoints(Checkpoints::keep_last(50))
        .models(ModelCatalog::new().model("test::main", model))
        .flow(Script { world: setup.world.clone() })
        .flow(Table)
        .flow(Talk)
        .build()
        .unwrap();
    Setup { engine, ..setup }
}

#[tokio::test]
async fn in_the_middle_of_a_call_there_is_neither_fork_nor_rewind() {
    for words in ["table", "step[table]", "steps[table|say:x]"] {
        let setup = setup_with_checkpoints(ScriptedModel::new());
        setup.say("say:hi").await.unwrap();
        let before = setup.doc().await.revision;
        setup.say(words).await.unwrap();
        let handle = setup.engine.session(session());
        let at = setup.doc().await.revision;
        for error in [
            handle.fork(at, SessionId::new("f").unwrap()).await.unwrap_err(),
            handle.rewind(at).await.unwrap_err(),
        ] {
            assert_eq!(
                (error.code(), error.status(), error.retryable()),
                ("call-under-way", 409, false)
            );
            let Error::Session(SessionError::UnderWay { revision, what, .. }) = &error else {
                panic!("{error}")
            };
            assert_eq!((*revision, what.as_str()), (at, "the call of flow `table`"), "{words}");
        }
        assert!(setup.store.load(&SessionId::new("f").unwrap()).await.unwrap().is_none());
        // The session is where it was.
        assert_eq!(
            setup.say("4").await.unwrap().question().unwrap().text,
            "At noon or in the evening?"
        );

        // Before the call is fine: made again, it is another one.
        handle.rewind(before).await.unwrap();
        setup.say(words).await.unwrap();
        setup.say("3").await.unwrap();
        setup.say("evening").await.unwrap();
        let results: Shared = serde_json::from_value(setup.doc().await.state).unwrap();
        assert_eq!(results.results, ["table for 3"], "{words}");
        let mut ended: Vec<_> = setup.called().await.into_iter().map(|doc| doc.status).collect();
        ended.sort_by_key(|status| status.as_str());
        assert_eq!(ended, [Status::Completed, Status::Waiting], "the first one stays where it was");
        handle.delete().await.unwrap();
        assert!(setup.called().await.is_empty());
    }
}

#[tokio::test]
async fn what_a_call_has_come_to_is_the_same_in_a_fork_and_paid_once() {
    let usage = TokenUsage::new(10, 5);
    let goodbye = ChatResponse::new(vec![Part::text("Goodbye!")]).usage(usage);
    let model = ScriptedModel::new().response(goodbye);
    let setup = setup_with_checkpoints(model);
    setup.say("say:hi").await.unwrap();
    let outcome = setup.say("talk approve charge:1").await.unwrap();
    let at = setup.doc().await.revision;
    let request = outcome.interrupts()[0].request_id.clone();
    let handle = setup.engine.session(session());
    let fork = handle.fork(at, SessionId::new("f").unwrap()).await.unwrap();
    let yes = |id: &SessionId, request: &str| {
        setup.engine.deliver(id.clone(), Delivery::approve(request).by("ada"))
    };
    yes(fork.id(), &request).await.unwrap();
    assert_eq!(fork.load().await.unwrap().usage, TokenUsage::default(), "the other one has paid");
    yes(&session(), &request).await.unwrap();
    assert_eq!(setup.doc().await.usage, usage);

    // Put back, it goes on with the same result.
    handle.rewind(at).await.unwrap();
    let request = setup.pending().await.remove(0).request_id;
    yes(&session(), &request).await.unwrap();
    assert_eq!(setup.doc().await.usage, usage, "counted once");
    assert_eq!(setup.world.take_charges().len(), 3);
    // As it is when it is put back before that was counted.
    handle.rewind(at).await.unwrap();
    handle.rewind(at).await.unwrap();
    assert_eq!(setup.doc().await.usage, usage);
}
