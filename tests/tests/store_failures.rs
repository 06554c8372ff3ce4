//! A store that fails or hangs at any one of its calls: when the turn is sent again, the
//! session is the one of a run in which nothing failed.

use std::sync::Arc;
use std::time::Duration;

use flow_core::engine::Durability;
use flow_core::flow::MemoryPolicy;
use flow_core::id::SessionId;
use flow_core::store::memory::MemoryStore;
use flow_core::store::sqlite::SqliteStore;
use flow_core::store::{SessionStore, Transcript};
use flow_core::testing::ManualClock;
use flow_core::time::Timestamp;
use flow_core::{Engine, Error, TurnRequest};
use proptest::prelude::*;
use serde_json::{Value, json};
use tests::failing_store::{FailingStore, Fault};
use tests::route_flow::Route;

/// A fault in one turn of a script.
#[derive(Debug, Clone, Copy)]
struct Planned {
    turn: usize,
    call: usize,
    fault: Fault,
}

struct Subject {
    engine: Engine,
    store: FailingStore,
    session: SessionId,
}

impl Subject {
    fn new(store: impl SessionStore, durability: Durability) -> Self {
        let store = FailingStore::new(store);
        let memory = MemoryPolicy::default().window(3).batch(2);
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
        let engine = Engine::builder()
            .store(store.clone())
            .flow(Route { again: true, memory, ..Route::default() })
            .durability(durability)
            .clock(clock)
            // A lease that is not given back is over at once.
            .lease(Duration::ZERO)
            .build()
            .unwrap();
        Self { engine, store, session: SessionId::new("s").unwrap() }
    }

    /// Runs a script. The turn of the fault is sent again until the store answers. Returns
    /// whether the fault came about.
    async fn run(&self, script: &[String], planned: Option<Planned>) -> bool {
        let mut hit = false;
        for (turn, text) in script.iter().enumerate() {
            let request = || {
                let id = format!("turn-{turn}");
                TurnRequest::new(self.session.clone()).message(text).turn_id(id)
            };
            if let Some(planned) = planned.filter(|planned| planned.turn == turn) {
                self.store.arm(planned.call, planned.fault);
                let mut handle = self.engine.turn::<Route>(request());
                let over = tokio::select! {
                    result = &mut handle => Some(result),
                    () = self.store.hangs() => None,
                };
                let result = match over {
                    Some(result) => result,
                    None => {
                        handle.cancel();
                        handle.await
                    }
                };
                hit = !self.store.disarm();
                if !hit || !matches!(&result, Err(error) if interrupted(error)) {
                    continue;
                }
            }
            if let Err(error) = self.engine.turn::<Route>(request()).await {
                assert!(!interrupted(&error), "turn {turn} of {script:?}, {planned:?}: {error}");
            }
        }
        hit
    }

    async fn transcript(&self) -> Transcript {
        self.engine.session(self.session.clone()).transcript().await.unwrap()
    }
}

fn interrupted(error: &Error) -> bool {
    matches!(error, Error::Store(_)) || error.code() == "cancelled"
}

/// All of a session that does not tell how often something was tried.
fn essence(transcript: &Transcript) -> Value {
    let mut doc = serde_json::to_value(&transcript.doc).unwrap();
    let fields = doc.as_object_mut().unwrap();
    fields.remove("revision");
    fields.remove("lease");
    for turn in fields["turns"].as_array_mut().unwrap() {
        let turn = turn.as_object_mut().unwrap();
        turn.remove("revision");
        // What was told before the interruption was told then.
        turn.remove("replies");
    }
    json!({ "doc": doc, "archive": transcript.archive })
}

/// Checks that nothing is lost or doubled in the history.
fn check_history(transcript: &Transcript) {
    let messages = transcript.messages();
    let seqs: Vec<u64> = messages.iter().map(|message| message.seq).collect();
    let first = seqs.first().copied().unwrap_or(0);
    let all: Vec<u64> = (first..transcript.doc.next_message).collect();
    assert_eq!(seqs, all, "each message once");
    let entries: Vec<u64> = transcript.archive.iter().map(|entry| entry.seq).collect();
    let mark = &transcript.doc.archive;
    assert_eq!(entries, (mark.from..mark.next).collect::<Vec<_>>(), "each batch once");
}

fn words(script: &[&str]) -> Vec<String> {
    script.iter().map(|text| (*text).to_owned()).collect()
}

const DURABILITIES: [Durability; 3] = [Durability::Crossing, Durability::Turn, Durability::Effect];

/// Lets each call of the last turn but one fail in each way, and compares.
async fn each_call_fails(make: impl Fn() -> Box<dyn SessionStore>, script: &[&str]) {
    let script = words(script);
    let turn = script.len() - 2;
    for durability in DURABILITIES {
        let calm = Subject::new(Boxed(make()), durability);
        calm.run(&script, None).await;
        let expected = calm.transcript().await;
        check_history(&expected);
        for fault in Fault::SURVIVED {
            let mut calls = 0;
            loop {
                let planned = Planned { turn, call: calls, fault };
                let subject = Subject::new(Boxed(make()), durability);
                if !subject.run(&script, Some(planned)).await {
                    break;
                }
                let found = subject.transcript().await;
                check_history(&found);
                assert_eq!(essence(&found), essence(&expected), "{durability:?}, {planned:?}");
                calls += 1;
            }
            assert!(calls >= 2, "{calls} calls failed");
        }
    }
}

/// A store of any type.
struct Boxed(Box<dyn SessionStore>);

macro_rules! forward {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        #[async_trait::async_trait]
        impl SessionStore for Boxed {
            fn stats(&self) -> flow_core::store::StoreStats {
                self.0.stats()
            }
            $(async fn $name(&self, $($arg: $type),*) -> Result<$out, flow_core::error::StoreError> {
                self.0.$name($($arg),*).await
            })*
        }
    };
}

forward! {
    open(request: &flow_core::store::OpenRequest<'_>) -> flow_core::store::Opened;
    renew(id: &SessionId, grant: &flow_core::store::Grant, ttl: Duration) -> Timestamp;
    commit(commit: &flow_core::store::Commit<'_>) -> ();
    release(id: &SessionId, grant: &flow_core::store::Grant) -> ();
    load(id: &SessionId) -> Option<flow_core::session::SessionDoc>;
    create(doc: &flow_core::session::SessionDoc) -> ();
    delete(id: &SessionId) -> bool;
    list(query: &flow_core::store::ListQuery) -> Vec<flow_core::store::SessionSummary>;
    transcript(id: &SessionId) -> Option<Transcript>;
    checkpoints(id: &SessionId) -> Vec<flow_core::store::CheckpointSummary>;
    checkpoint(id: &SessionId, revision: u64) -> Option<Transcript>;
    sweep(limit: usize) -> flow_core::store::Swept;
}

fn memory() -> Box<dyn SessionStore> {
    Box::new(MemoryStore::new())
}

#[tokio::test(start_paused = true)]
async fn a_new_session() {
    each_call_fails(memory, &["say b tool c say tool .", "say ."]).await;
}

#[tokio::test(start_paused = true)]
async fn crossings_and_a_stay() {
    each_call_fails(memory, &["tool .", "say c tool b say a .", "tool say ."]).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails() {
    each_call_fails(memory, &["b .", "say tool c say fail", "say ."]).await;
}

#[tokio::test(start_paused = true)]
async fn an_end() {
    each_call_fails(memory, &["b .", "say c tool end", "say b ."]).await;
}

#[tokio::test(start_paused = true)]
async fn a_document_that_is_superseded() {
    each_call_fails(memory, &["say b say end", "say tool c say .", "say a ."]).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_moves_to_the_archive() {
    let script = ["say .", "say .", "say say b say c say .", "say ."];
    each_call_fails(memory, &script).await;
}

#[tokio::test]
async fn crossings_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let files = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let script = words(&["tool .", "say c tool b say a .", "tool say ."]);
    let path = || {
        let n = files.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        folder.path().join(format!("{n}.db"))
    };
    for durability in DURABILITIES {
        let calm = Subject::new(MemoryStore::new(), durability);
        calm.run(&script, None).await;
        let expected = essence(&calm.transcript().await);
        for fault in [Fault::FailBefore, Fault::FailAfter] {
            for call in 0.. {
                let store = SqliteStore::open(path()).await.unwrap();
                let subject = Subject::new(store, durability);
                let planned = Planned { turn: 1, call, fault };
                if !subject.run(&script, Some(planned)).await {
                    break;
                }
                let found = subject.transcript().await;
                check_history(&found);
                assert_eq!(essence(&found), expected, "{durability:?}, {planned:?}");
            }
        }
    }
}

fn any_script() -> impl Strategy<Value = Vec<String>> {
    let word = prop_oneof![
        8 => prop::sample::select(vec!["a", "b", "c"]),
        4 => Just("say"),
        3 => Just("tool"),
        2 => Just("."),
        1 => prop::sample::select(vec!["fail", "end", "escalate", "ping", "handoff"]),
    ];
    let text = prop::collection::vec(word, 1..7).prop_map(|words| words.join(" "));
    prop::collection::vec(text, 1..6)
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop::sample::select(vec![Fault::FailBefore, Fault::FailAfter])
}

fn any_durability() -> impl Strategy<Value = Durability> {
    prop::sample::select(DURABILITIES.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    /// Random scripts with a fault at a random call: SQLite holds what the memory store
    /// holds, byte for byte, and both hold what they would without the fault.
    #[test]
    fn stores_agree_whatever_fails(
        script in any_script(),
        durability in any_durability(),
        turn in 0_usize..6,
        call in 0_usize..8,
        fault in any_fault(),
    ) {
        let mut script = script;
        // A session without any commit is not there to be compared.
        script.push("say .".to_owned());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let planned = Some(Planned { turn: turn % script.len(), call, fault });
            let calm = Subject::new(MemoryStore::new(), durability);
            calm.run(&script, None).await;
            let memory = Subject::new(MemoryStore::new(), durability);
            memory.run(&script, planned).await;
            let folder = tempfile::tempdir().unwrap();
            let file = SqliteStore::open(folder.path().join("s.db")).await.unwrap();
            let sqlite = Subject::new(file, durability);
            sqlite.run(&script, planned).await;

            let calm = calm.transcript().await;
            let memory = memory.transcript().await;
            let sqlite = sqlite.transcript().await;
            check_history(&memory);
            assert_eq!(essence(&memory), essence(&calm));
            let bytes = |transcript: &Transcript| {
                let mut doc = transcript.doc.clone();
                doc.lease = flow_core::session::Lease::default();
                (serde_json::to_string(&doc).unwrap(), serde_json::to_string(&transcript.archive).unwrap())
            };
            assert_eq!(bytes(&sqlite), bytes(&memory));
        });
    }
}
