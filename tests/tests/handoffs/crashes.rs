//! A hand-off, and a digression with its way back, cut off at every call of the store: the
//! session is never lost, and nothing of it is done twice but what was running.

use std::time::Duration;

use flow_core::store::sqlite::SqliteStore;
use tests::failing_store::{FailingStore, Fault};
use tests::recording_store::RecordingStore;

use super::*;

const DURABILITIES: [Durability; 3] = [Durability::Crossing, Durability::Turn, Durability::Effect];

/// Turns of a session, of which one is cut off. Those with a flow digress to it.
type Script = &'static [(&'static str, Option<&'static str>)];

const HAND_OFF: Script = &[
    ("say:hi", None),
    ("charge:1 again say:a billing charge:2 again say:b", None),
    ("say:end", None),
];

const DIGRESSION: Script = &[
    ("form", None),
    ("charge:1 say:a again say:b", Some("faq")),
    ("charge:2 say:c billing charge:3", None),
    ("charge:4 say:d end", None),
    ("#17", None),
];

/// Who sends a turn again that was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    /// The host, with the same request.
    Host,
    /// A sweeper that finds the session with a dead worker.
    Sweeper,
}

struct World {
    store: FailingStore,
    setup: Setup,
}

impl World {
    fn new(inner: Arc<dyn SessionStore>, durability: Durability) -> Self {
        let store = FailingStore::shared(inner);
        let setup = setup_on(Arc::new(store.clone()), |builder| {
            // A lease that is not given back is over at once.
            builder.durability(durability).lease(Duration::ZERO)
        });
        // Stores have a clock of their own, which is not ahead of this one.
        setup.clock.advance(Duration::from_secs(3600));
        Self { store, setup }
    }

    async fn turn(&self, n: usize, (text, to): (&str, Option<&str>)) -> Result<TurnOutcome, Error> {
        let request = request(text).turn_id(format!("t{n}"));
        let request = match to {
            Some(to) => request.digress(to),
            None => request,
        };
        self.setup.engine.turn::<Desk>(request).await
    }

    /// Runs a script with one call of one turn cut off. Returns whether that came about.
    async fn run(&self, script: Script, cut: Option<(usize, usize, Fault)>, again: Again) -> bool {
        let mut hit = false;
        for (n, line) in script.iter().enumerate() {
            let Some((_, call, fault)) = cut.filter(|(turn, ..)| *turn == n) else {
                self.turn(n, *line).await.unwrap();
                continue;
            };
            self.store.arm(call, fault);
            let result = self.turn(n, *line).await;
            hit = !self.store.disarm();
            if !hit {
                result.unwrap();
                continue;
            }
            if again == Again::Sweeper {
                self.setup.engine.sweep().await.unwrap();
            }
            // The end of the turn may be recorded already.
            self.turn(n, *line).await.unwrap();
        }
        hit
    }

    /// What is left of the session, but how often something was tried and when.
    async fn essence(&self) -> serde_json::Value {
        let doc = self.setup.doc().await;
        let messages = self.setup.transcript().await;
        let ids = ["s~1", "s~2", "s~3"].map(|id| serde_json::from_value(id.into()).unwrap());
        let mut aside = Vec::new();
        for id in ids {
            let doc: Option<SessionDoc> = self.setup.store.load(&id).await.unwrap();
            aside.push(doc.map(|doc| (doc.flow.id, doc.status, doc.ended, doc.state)));
        }
        let turns: Vec<_> = doc.turns.iter().map(|turn| (&turn.id, &turn.outcome)).collect();
        serde_json::json!({
            "flow": doc.flow.id, "step": doc.current_step, "visit": doc.visit, "state": doc.state,
            "steps": doc.steps, "waiting": doc.waiting, "status": doc.status, "moves": doc.moves,
            "parent": doc.parent, "superseded": doc.superseded, "turns": turns,
            "messages": messages, "aside": aside,
        })
    }

    /// How often each charge was made, by its idempotency key.
    fn charges(&self) -> std::collections::BTreeMap<String, u32> {
        let mut charges = std::collections::BTreeMap::new();
        for line in self.setup.done.take() {
            if line.starts_with("charge") {
                *charges.entry(line).or_default() += 1;
            }
        }
        charges
    }
}

async fn each_call_is_cut_off(make: impl Fn() -> BoxedStore, script: Script, faults: &[Fault]) {
    for durability in DURABILITIES {
        let calm = World::new(make().await, durability);
        calm.run(script, None, Again::Host).await;
        let (expected, charges) = (calm.essence().await, calm.charges());
        assert!(charges.values().all(|count| *count == 1));
        for turn in 1..script.len() {
            for again in [Again::Host, Again::Sweeper] {
                for fault in faults {
                    let mut calls = 0;
                    for call in 0.. {
                        let world = World::new(make().await, durability);
                        if !world.run(script, Some((turn, call, *fault)), again).await {
                            calls = call;
                            break;
                        }
                        let case = format!(
                            "{durability:?}, turn {turn}, call {call}, {fault:?}, {again:?}"
                        );
                        assert_eq!(world.essence().await, expected, "{case}");
                        // A key is never given to another charge: what ran twice is the same
                        // charge, and the receiver knows it.
                        let made = world.charges();
                        assert_eq!(
                            made.keys().collect::<Vec<_>>(),
                            charges.keys().collect::<Vec<_>>(),
                            "{case}"
                        );
                    }
                    assert!(calls >= 2, "{calls} calls");
                }
            }
        }
    }
}

type BoxedStore = std::pin::Pin<Box<dyn Future<Output = Arc<dyn SessionStore>>>>;

fn memory() -> BoxedStore {
    Box::pin(async { Arc::new(MemoryStore::new()) as Arc<dyn SessionStore> })
}

#[tokio::test]
async fn a_hand_off_in_memory() {
    each_call_is_cut_off(memory, HAND_OFF, &[Fault::FailBefore, Fault::FailAfter]).await;
}

#[tokio::test]
async fn a_digression_in_memory() {
    each_call_is_cut_off(memory, DIGRESSION, &[Fault::FailBefore, Fault::FailAfter]).await;
}

#[tokio::test]
async fn both_in_sqlite() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let make = move || -> BoxedStore {
        let n = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = folder.path().join(format!("{n}.db"));
        Box::pin(async move {
            Arc::new(SqliteStore::open(path).await.unwrap()) as Arc<dyn SessionStore>
        })
    };
    each_call_is_cut_off(&make, HAND_OFF, &[Fault::FailAfter]).await;
    each_call_is_cut_off(&make, DIGRESSION, &[Fault::FailAfter]).await;
}

/// What dies between leaving one flow and running the next is found by a sweeper.
#[tokio::test]
async fn a_process_that_dies_after_the_hand_off_leaves_a_session_that_is_due() {
    let inner: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let world = World::new(inner.clone(), Durability::Crossing);
    world.turn(0, ("say:hi", None)).await.unwrap();
    // The open is the first call, the hand-off the second.
    world.store.arm(1, Fault::StopAfter);
    world.turn(1, ("billing say:x", None)).await.unwrap_err();
    let next = World::new(inner, Durability::Crossing);
    let doc = next.setup.doc().await;
    assert_eq!((doc.flow.id.as_str(), doc.visit.entered), ("billing", false));
    let report = next.setup.engine.sweep().await.unwrap();
    assert_eq!((report.freed, report.woken), (vec![session()], vec![session()]));
    let doc = next.setup.doc().await;
    assert_eq!((doc.visit.entered, doc.turns.last().unwrap().id.as_str()), (true, "t1"));
    let repeated = next.turn(1, ("billing say:x", None)).await.unwrap();
    assert_eq!(
        (repeated.repeated, &*repeated.replies),
        (true, &["This is billing (from desk).".to_owned(), "x".into()][..])
    );
}

#[tokio::test]
async fn what_a_move_costs() {
    let store = RecordingStore::new(MemoryStore::new());
    let setup = setup_on(Arc::new(store.clone()), |builder| builder);
    setup.say("form").await.unwrap();
    store.take();
    setup.digress("say:hi", "faq").await.unwrap();
    assert_eq!(store.take_names(), ["open", "commit", "commit+release"]);
    // A host that names the first flow pays for finding the session.
    setup.say("say:hi").await.unwrap();
    assert_eq!(store.take_names(), ["open", "load", "open", "commit+release"]);
    setup.engine.turn::<Faq>(request("billing")).await.unwrap();
    assert_eq!(store.take_names(), ["open", "commit", "commit+release"]);
    setup.engine.turn::<Billing>(request("end")).await.unwrap();
    assert_eq!(store.take_names(), ["open", "commit", "commit+release"]);
    setup.say("#17").await.unwrap();
    assert_eq!(store.take_names(), ["open", "commit", "commit+release"]);
}
