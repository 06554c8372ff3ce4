//! kill -9 at every call of the store.

use std::collections::BTreeMap;

use flow_core::id::SessionId;
use flow_core::session::Status;
use flow_core::{Engine, TurnRequest};
use tests::route_flow::Route;

use super::{Worker, stores};

const WAY: &str = "b c a .";

/// How often each visit of a step ran, by the visit's number.
fn runs(journal: &std::path::Path) -> BTreeMap<u64, u32> {
    let mut runs = BTreeMap::new();
    for line in std::fs::read_to_string(journal).unwrap_or_default().lines() {
        let visit = line.split(' ').next().and_then(|visit| visit.parse().ok());
        *runs.entry(visit.expect("a line begins with the visit")).or_default() += 1;
    }
    runs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_of_three_crossings_killed_at_every_store_call() {
    for (address, _keep) in stores().await {
        let folder = tempfile::tempdir().unwrap();
        let store = flow_core::store::open(&address).await.unwrap();
        let mut kills = 0;
        'calls: for call in 1.. {
            for edge in ["-", "+"] {
                let at = format!("{call}{edge}");
                let session =
                    format!("crash-{call}{}", if edge == "-" { "before" } else { "after" });
                let journal = folder.path().join(&session);
                let path = journal.to_str().unwrap();

                let mut worker = Worker::start(&address, &session, &["once", path, &at], 1);
                worker.say(WAY);
                let finished = worker.hear();
                let status = worker.join();
                if status.success() {
                    assert_eq!(finished.as_deref(), Some("done 4 A"), "{address}, {at}");
                    break 'calls;
                }
                kills += 1;

                // The next process goes on. A turn that was killed before its first commit
                // is sent again, as its caller would; later ones go on without a message.
                let id = SessionId::new(&session).unwrap();
                let left = store.load(&id).await.unwrap();
                let message = if left.is_none() { WAY } else { "" };
                if left.as_ref().is_none_or(|doc| doc.status == Status::Running) {
                    let mut worker = Worker::start(&address, &session, &["once", path], 1);
                    worker.say(message);
                    let line = worker.hear();
                    assert!(worker.join().success());
                    assert_eq!(line.as_deref(), Some("done 4 A"), "{address}, {at}");
                }
                let doc = store.load(&id).await.unwrap().expect("the session is not lost");
                assert_eq!(doc.status, Status::Waiting, "{address}, {at}");
                assert_eq!(doc.revision, 4, "{address}, {at}");
                assert_eq!(doc.state["ran"], 4, "each step's effect on the state counts once");
                let steps: Vec<_> = doc.path.iter().map(|entry| entry.step.as_str()).collect();
                assert_eq!(steps, ["A", "B", "C", "A"], "{address}, {at}");
                let runs = runs(&journal);
                assert_eq!(runs.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4]);
                let repeated: Vec<_> = runs.values().filter(|runs| **runs > 1).collect();
                assert!(
                    repeated.is_empty() || repeated == [&2],
                    "only the step that was running may run again: {runs:?} ({address}, {at})"
                );
            }
        }
        assert_eq!(kills, 10, "open and four commits, before and after each ({address})");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_frees_a_session_whose_worker_died() {
    for (address, _keep) in stores().await {
        let mut worker = Worker::start(&address, "orphan", &["serve"], 1);
        worker.say("b hold");
        assert_eq!(worker.hear().as_deref(), Some("holding"));
        worker.signal("-KILL");
        assert!(!worker.join().success());

        let store = flow_core::store::open(&address).await.unwrap();
        let engine = Engine::builder().shared_store(store).flow(Route::default()).build().unwrap();
        let id = SessionId::new("orphan").unwrap();
        let before = engine.session(id.clone()).load().await.unwrap();
        assert_eq!(before.status, Status::Running, "{address}");
        // The lease of a millisecond is over as soon as another call has been answered.
        let swept = engine.store().sweep(100).await.unwrap();
        assert_eq!(swept.freed, std::slice::from_ref(&id), "{address}");
        let again = engine.store().sweep(100).await.unwrap();
        assert!(again.freed.is_empty(), "freed once ({address})");
        let doc = engine.session(id.clone()).load().await.unwrap();
        assert_eq!((doc.status, doc.lease.holder), (Status::Waiting, None), "{address}");
        assert!(doc.wake_at.is_some(), "a sweeper may go on with it ({address})");
        let outcome = engine.turn::<Route>(TurnRequest::new(id.clone()).message("c")).await;
        assert_eq!(outcome.unwrap().step, "C", "{address}");
        let doc = engine.session(id).load().await.unwrap();
        assert_eq!(doc.wake_at, None, "someone else has ({address})");
    }
}
