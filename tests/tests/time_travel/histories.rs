//! What a session was.

use flow_core::error::SessionError;
use flow_core::session::Status;
use flow_core::store::CheckpointSummary;

use super::*;

#[tokio::test]
async fn each_commit_leaves_a_checkpoint_and_the_newest_comes_first() {
    for (store, _kept) in stores().await {
        let talk = talk_on(store, Desk::default(), |engine| engine);
        talk.say("s", "add:a").await;
        talk.clock.advance(Duration::from_secs(5));
        talk.say("s", "add:b over").await;
        talk.try_say("s", "again fail").await.unwrap();
        let history = talk.session("s").history().await.unwrap();
        let shown: Vec<_> = history
            .iter()
            .map(|kept| (kept.revision, kept.status, kept.current_step.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (4, Status::Waiting, "Over"),
                (3, Status::Waiting, "Over"),
                (2, Status::Running, "Over"),
                (1, Status::Waiting, "Act"),
            ]
        );
        assert_eq!(history[3].at.after(Duration::from_secs(5)), history[0].at);
        assert_eq!(history[0].version, 1);
        let doc = talk.doc("s").await;
        assert_eq!(history[0], CheckpointSummary::from(&doc));
        let kept = talk.session("s").checkpoint(4).await.unwrap();
        assert_eq!(kept.doc.lease.holder, None);
        assert_eq!(SessionDoc { lease: doc.lease.clone(), ..kept.doc }, doc);
        let first = talk.session("s").checkpoint(1).await.unwrap();
        assert_eq!(texts(&first), ["add:a", "a"]);
    }
}

#[tokio::test]
async fn a_failed_turn_and_a_change_from_outside_leave_checkpoints_too() {
    let talk = talk(Durability::Crossing);
    talk.say("s", "add:a").await;
    talk.try_say("s", "fail").await.unwrap_err();
    talk.session("s").restart_step().await.unwrap();
    talk.session("s").abandon("enough").await.unwrap();
    let history = talk.session("s").history().await.unwrap();
    let shown: Vec<_> = history.iter().map(|kept| (kept.revision, kept.status)).collect();
    let [failed, waiting] = [Status::Failed, Status::Waiting];
    assert_eq!(shown[..1], [(4, Status::Completed)]);
    assert_eq!(shown[2..], [(2, failed), (1, waiting)]);
}

#[tokio::test]
async fn only_the_last_ones_are_kept() {
    for (store, _kept) in stores().await {
        let engine = |engine: EngineBuilder| engine.checkpoints(Checkpoints::keep_last(3));
        let talk = talk_on(store, Desk::default(), engine);
        for turn in 1..=8 {
            talk.say("s", "add:a").await;
            let history = talk.session("s").history().await.unwrap();
            let revisions: Vec<_> = history.iter().map(|kept| kept.revision).collect();
            let wanted: Vec<u64> = (1..=turn).rev().take(3).collect();
            assert_eq!(revisions, wanted);
        }
        let error = talk.session("s").checkpoint(5).await.unwrap_err();
        assert_eq!(
            (error.code(), error.status(), error.retryable()),
            ("no-checkpoint", 404, false)
        );
        assert!(error.to_string().contains("session `s`"), "{error}");
        assert!(error.to_string().ends_with("revision 5; it has those of 6-8"), "{error}");
        for error in [
            talk.session("s").fork(9, id("f")).await.unwrap_err(),
            talk.session("s").rewind(9).await.unwrap_err(),
        ] {
            assert!(error.to_string().contains("revision 9; it has those of 6-8"), "{error}");
        }
        assert!(talk.store.load(&id("f")).await.unwrap().is_none());
        talk.say("s", "add:a").await;
        // Another engine keeps none, and leaves those that are there.
        let none = |engine: EngineBuilder| engine.checkpoints(Checkpoints::none());
        let talk = talk_on(talk.store, Desk::default(), none);
        talk.say("s", "add:b").await;
        let history = talk.session("s").history().await.unwrap();
        let revisions: Vec<_> = history.iter().map(|kept| kept.revision).collect();
        assert_eq!(revisions, [9, 8, 7]);
        talk.session("s").rewind(8).await.unwrap();
        assert_eq!(talk.items("s").await.len(), 8);
    }
}

#[tokio::test]
async fn without_checkpoints_there_is_no_history_and_the_error_says_how_to_get_one() {
    let none = |engine: EngineBuilder| engine.checkpoints(Checkpoints::none());
    let talk = talk_on(Arc::new(MemoryStore::new()), Desk::default(), none);
    talk.say("s", "add:a").await;
    assert_eq!(talk.session("s").history().await.unwrap(), []);
    let error = talk.session("s").rewind(1).await.unwrap_err();
    assert!(matches!(error, Error::Session(SessionError::NoCheckpoint { revision: 1, .. })));
    assert!(error.to_string().contains("Checkpoints::keep_last"), "{error}");
    talk.say("s", "add:b").await;
}

#[tokio::test]
async fn a_session_that_does_not_exist_has_no_history() {
    let talk = talk(Durability::Crossing);
    for error in [
        talk.session("s").history().await.unwrap_err(),
        talk.session("s").checkpoint(1).await.unwrap_err(),
        talk.session("s").fork(1, id("f")).await.unwrap_err(),
        talk.session("s").rewind(1).await.unwrap_err(),
    ] {
        assert_eq!(error.code(), "session-not-found");
    }
    talk.say("s", "add:a").await;
    talk.session("s").delete().await.unwrap();
    assert_eq!(talk.session("s").history().await.unwrap_err().code(), "session-not-found");
    talk.say("s", "add:a").await;
    assert_eq!(talk.session("s").history().await.unwrap().len(), 1);
}
