//! A store that fails in the middle.

use tests::failing_store::{FailingStore, Fault};

use super::*;

async fn prepared() -> (FailingStore, Talk) {
    let store = FailingStore::new(MemoryStore::new());
    let memory = MemoryPolicy::default().window(2).batch(2);
    let flow = Desk { memory, ..Desk::default() };
    let talk = talk_on(Arc::new(store.clone()), flow, |engine| engine);
    for turn in 0..6 {
        talk.say("s", &format!("add:{turn}")).await;
    }
    (store, talk)
}

/// What was said, without the lease.
async fn essence(talk: &Talk, name: &str) -> Option<(u64, Vec<String>)> {
    let transcript = talk.store.transcript(&id(name)).await.unwrap()?;
    Some((transcript.doc.revision, texts(&transcript)))
}

#[tokio::test]
async fn a_rewind_is_made_or_not() {
    for fault in [Fault::FailBefore, Fault::FailAfter] {
        let mut ends = Vec::new();
        for call in 0.. {
            let (store, talk) = prepared().await;
            let before = essence(&talk, "s").await.unwrap();
            let then = texts(&talk.session("s").checkpoint(3).await.unwrap());
            store.arm(call, fault);
            let result = talk.session("s").rewind(3).await;
            if store.disarm() {
                result.unwrap();
                break;
            }
            result.unwrap_err();
            let after = essence(&talk, "s").await.unwrap();
            let made = after == (7, then);
            assert!(made || after == before, "{fault:?} at call {call}: {after:?}");
            assert_eq!(talk.session("s").history().await.unwrap().len() as u64, after.0);
            ends.push(made);
        }
        assert_eq!(ends, [false, false, fault == Fault::FailAfter], "load, open, commit");
    }
}

#[tokio::test]
async fn a_fork_is_made_whole_or_not_at_all() {
    for fault in [Fault::FailBefore, Fault::FailAfter] {
        let mut ends = Vec::new();
        for call in 0.. {
            let (store, talk) = prepared().await;
            let before = essence(&talk, "s").await;
            let then = texts(&talk.session("s").checkpoint(3).await.unwrap());
            store.arm(call, fault);
            let result = talk.session("s").fork(3, id("f")).await;
            if store.disarm() {
                result.unwrap();
                break;
            }
            let fork = essence(&talk, "f").await;
            assert!(
                fork.is_none() || fork == Some((1, then)),
                "{fault:?} at call {call}: {fork:?}"
            );
            assert_eq!(essence(&talk, "s").await, before);
            assert!(result.is_err() || fork.is_some());
            ends.push(fork.is_some());
        }
        // The last call only gives the lease of the first session back.
        let commit = fault == Fault::FailAfter;
        assert_eq!(ends, [false, false, false, false, commit, true], "{fault:?}");
    }
}
