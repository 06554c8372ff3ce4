//! Conversations with called flows that are cut off at each call of the store come to the same
//! end, and charge once per key.

use std::collections::BTreeSet;
use std::time::Duration;

use flow_core::engine::{Delivery, WAKE_RETRY};
use flow_core::session::{EffectKind, Status};
use flow_core::store::sqlite::SqliteStore;
use flow_core::time::{Clock as _, Timestamp};
use serde_json::Value;
use tests::failing_store::{FailingStore, Fault};
use tests::lasting::lasting;

use super::*;

const UNAVAILABLE: &str = "store-unavailable";

/// How often a caller sends a turn before the test gives up.
const ATTEMPTS: usize = 8;

/// What the user says; what else is waited for comes by itself.
const SCRIPTS: [&[&str]; 6] = [
    &["say:a call[say:b charge:1] charge:2 say:c"],
    &["say:a table charge:1 say:b", "for 4", "evening", "say:d charge:2"],
    &["call[charge:1 approve say:b charge:2] say:c"],
    &["call[sleep:60 charge:1 call[both charge:2]] charge:3"],
    &["call[call[table charge:1] approve]", "4", "noon", "say:x"],
    &["step[table charge:1] steps[call[approve charge:2]|call[charge:3 say:x]] say:z", "4", "noon"],
];

const FAULTS: [Fault; 4] =
    [Fault::FailBefore, Fault::FailAfter, Fault::StopBefore, Fault::StopAfter];

struct Play {
    inner: Arc<dyn SessionStore>,
    store: FailingStore,
    clock: ManualClock,
    durability: Durability,
    world: World,
    engine: Engine,
    replies: Vec<String>,
}

fn begin(
    inner: &Arc<dyn SessionStore>,
    clock: &ManualClock,
    durability: Durability,
    world: &World,
) -> (FailingStore, Engine) {
    let store = FailingStore::shared(inner.clone());
    let builder = Engine::builder().store(store.clone()).clock(clock.clone());
    // The lease of a process that is dead is over at once.
    let builder = builder.durability(durability).lease(Duration::ZERO);
    let builder = builder.flow(Script { world: world.clone() }).flow(Table);
    (store, builder.build().unwrap())
}

impl Play {
    fn new(inner: Arc<dyn SessionStore>, durability: Durability) -> Self {
        let clock = ManualClock::at(Timestamp::now().after(Duration::from_secs(3600)));
        let world = World::default();
        let (store, engine) = begin(&inner, &clock, durability, &world);
        Self { inner, store, clock, durability, world, engine, replies: Vec::new() }
    }

    fn restart(&mut self) {
        if self.store.is_stopped() {
            (self.store, self.engine) =
                begin(&self.inner, &self.clock, self.durability, &self.world);
        }
    }

    async fn send(&mut self, request: TurnRequest) {
        for _ in 0..ATTEMPTS {
            let result = self.engine.turn::<Script>(request.clone()).await;
            self.restart();
            match result {
                Ok(outcome) => {
                    self.replies.extend(outcome.replies);
                    return;
                }
                Err(error) => assert_eq!(error.code(), UNAVAILABLE, "{error}"),
            }
        }
        panic!("never answered: {request:?}");
    }

    async fn doc(&self) -> SessionDoc {
        self.inner.load(&session()).await.unwrap().expect("the session exists")
    }

    async fn sleep(&mut self, request: &Interrupt) {
        let due = request.deadline.expect("a sleep has an end");
        self.clock.advance(due.since(self.clock.now()));
        for _ in 0..ATTEMPTS {
            let result = self.engine.sweep().await;
            self.restart();
            if let Ok(report) = result {
                assert!(report.failed.iter().all(|(_, e)| e.code == UNAVAILABLE), "{report:?}");
            }
            let doc = self.doc().await;
            let waits = pending(&doc).iter().any(|i| i.request_id == request.request_id);
            if doc.status == Status::Waiting && !waits && doc.wake_at.is_none_or(|at| at > due) {
                return;
            }
            self.clock.advance(WAKE_RETRY);
        }
        panic!("sleeps for ever: {:?}", self.doc().await);
    }

    async fn play(&mut self, script: &[&str]) {
        let mut said = 0;
        let mut texts = script.iter();
        loop {
            let doc = self.inner.load(&session()).await.unwrap();
            let pending = doc.as_ref().map(pending).unwrap_or_default();
            let Some(request) = pending.iter().find(|i| i.kind != EffectKind::Message) else {
                let Some(text) = texts.next() else { return };
                said += 1;
                let request = TurnRequest::new(session()).message(*text);
                self.send(request.turn_id(format!("turn-{said}"))).await;
                continue;
            };
            match request.kind {
                EffectKind::Sleep => self.sleep(request).await,
                EffectKind::Approval => {
                    let id = &request.request_id;
                    let delivery = Delivery::approve(id).by("ada").signal_id(id);
                    self.send(TurnRequest::new(session()).deliver(delivery)).await;
                }
                other => panic!("nobody answers {other:?}"),
            }
        }
    }

    async fn end(self) -> End {
        let mut docs = called(&self.inner).await;
        docs.push(self.doc().await);
        let conversation = history(docs.last().unwrap());
        let charges = self.world.take_charges();
        let docs = docs.iter().map(lasting).collect();
        let replies = self.replies;
        End { docs, conversation, charges, replies, calls: self.store.calls() }
    }
}

struct End {
    docs: Vec<Value>,
    conversation: Vec<String>,
    charges: Vec<String>,
    replies: Vec<String>,
    calls: usize,
}

/// The memory store is cut at each call, one on a disk at each third.
async fn check_all(store: Arc<dyn SessionStore>, durability: Durability, every: usize) {
    for script in SCRIPTS {
        let mut calm = Play::new(Arc::new(MemoryStore::new()), durability);
        calm.play(script).await;
        let calm = calm.end().await;
        let keys: BTreeSet<&String> = calm.charges.iter().collect();
        assert_eq!(keys.len(), calm.charges.len(), "{script:?}: {:?}", calm.charges);
        for call in (0..calm.calls).step_by(every) {
            for fault in FAULTS {
                println!("{durability:?} {script:?}: {fault:?} at call {call}");
                let mut play = Play::new(store.clone(), durability);
                play.store.arm(call, fault);
                play.play(script).await;
                let end = play.end().await;
                assert_eq!(end.conversation, calm.conversation);
                assert_eq!(end.docs, calm.docs);
                let made: BTreeSet<&String> = end.charges.iter().collect();
                assert_eq!(made, keys, "the same charges with the same keys");
                // One cut repeats at most what was running.
                assert!(end.charges.len() <= keys.len() + 2, "{:?}", end.charges);
                if fault == Fault::FailBefore || fault == Fault::FailAfter {
                    assert!(calm.replies.ends_with(&end.replies[end.replies.len() - 1..]));
                }
                assert!(store.delete(&session()).await.unwrap());
            }
        }
    }
}

#[tokio::test]
async fn a_conversation_ends_as_if_nothing_had_cut_it_off_in_memory() {
    for durability in DURABILITIES {
        check_all(Arc::new(MemoryStore::new()), durability, 1).await;
    }
}

#[tokio::test]
async fn a_conversation_ends_as_if_nothing_had_cut_it_off_in_sqlite() {
    for durability in [Durability::Crossing, Durability::Effect] {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("sessions.db")).await.unwrap();
        check_all(Arc::new(store), durability, 3).await;
    }
}
