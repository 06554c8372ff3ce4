//! A conversation that goes on for ten thousand turns costs per turn what a short one does,
//! and nothing of it is lost.

use std::sync::Arc;

use flow_core::message::Role;
use flow_core::prelude::*;
use flow_core::session::{PATH_WINDOW, SessionDoc};
use flow_core::store::mongodb::MongoStore;
use flow_core::store::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use flow_core::store::{SessionStore, Transcript};
use flow_core::{Durability, Engine, TurnRequest};
use tests::recording_store::RecordingStore;

/// Turns between two looks at the counters: a multiple of the turns after which each list
/// has moved a whole batch, so that every block holds the same work.
const BLOCK: usize = 320;

/// Asks for a number and tells what it was told, in a memory namespace each.
#[flow(id = "ledger", version = 1, steps(Enter, Told), state = Book)]
#[derive(Clone)]
struct Ledger;

impl Flow for Ledger {}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Book {
    last: u32,
}

#[step(collect, memory = "entries", next(Told))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Enter {
    #[slot(pattern("#(\\d+)"), ask = "What is the next entry?")]
    entry: Option<u32>,
}

impl Collect for Enter {
    type Flow = Ledger;

    async fn complete(
        &mut self,
        data: EnterData,
        cx: &mut StepCx<'_, Ledger>,
    ) -> Result<EnterNext> {
        cx.state.last = data.entry;
        Ok(EnterNext::Told)
    }
}

#[step(reply, memory = "receipts", next(Enter))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Told;

impl Reply for Told {
    type Flow = Ledger;

    fn response(&self, cx: &StepCx<'_, Ledger>) -> Option<String> {
        Some(receipt(cx.state.last as usize))
    }

    async fn on_response(
        &mut self,
        _: &str,
        _: &mut StepCx<'_, Ledger>,
    ) -> Result<Option<ToldNext>> {
        Ok(Some(ToldNext::Enter))
    }
}

// All turns say texts of one length, so that their bytes can be compared.

fn entry(turn: usize) -> String {
    format!("Entry #{:06}, if you please.", 100_000 + turn)
}

fn receipt(entry: usize) -> String {
    format!("Entry {entry:06} is in the book.")
}

fn session() -> SessionId {
    SessionId::new("long").unwrap()
}

fn engine(store: impl SessionStore) -> Engine {
    Engine::builder().store(store).flow(Ledger).build().unwrap()
}

/// Runs whole blocks of turns and checks that each block costs the same.
async fn talk(store: Arc<dyn SessionStore>, durability: Durability, blocks: usize) {
    let builder = Engine::builder().shared_store(store.clone()).durability(durability);
    let engine = builder.flow(Ledger).build().unwrap();
    let commits_per_turn = if durability == Durability::Turn { 1 } else { 3 };
    engine.turn::<Ledger>(TurnRequest::new(session())).await.unwrap();
    let mut written = Vec::new();
    let mut commits = Vec::new();
    let mut sizes = Vec::new();
    for block in 0..blocks {
        let before = store.stats();
        for turn in block * BLOCK..(block + 1) * BLOCK {
            let request = TurnRequest::new(session()).message(entry(turn));
            let outcome = engine.turn::<Ledger>(request).await.unwrap();
            assert_eq!(
                outcome.replies,
                [receipt(100_000 + turn), "What is the next entry?".to_owned()]
            );
        }
        let after = store.stats();
        written.push(after.bytes_written - before.bytes_written);
        commits.push(after.commits - before.commits);
        let doc = engine.session(session()).load().await.unwrap();
        check_windows(&doc);
        sizes.push(store.encoded_len(&serde_json::to_value(&doc).unwrap()));
    }
    assert!(commits.iter().all(|count| *count == commits_per_turn * BLOCK as u64), "{commits:?}");
    // The windows are full after the first block. The numbers of messages get longer.
    assert_flat("bytes written per block", &written[1..]);
    assert_flat("bytes of the document", &sizes[1..]);
}

fn assert_flat(what: &str, values: &[u64]) {
    let (min, max) = (values.iter().min().unwrap(), values.iter().max().unwrap());
    assert!(*min > 0 && *max * 100 <= *min * 103, "{what} are not flat: {values:?}");
}

fn check_windows(doc: &SessionDoc) {
    let policy = MemoryPolicy::default();
    assert_eq!(doc.memory.keys().collect::<Vec<_>>(), ["entries", "receipts"]);
    for (namespace, memory) in &doc.memory {
        let kept = memory.messages.len();
        let most = policy.window + policy.batch;
        assert!((policy.window..most).contains(&kept), "{namespace} holds {kept} messages");
    }
    assert!((PATH_WINDOW..2 * PATH_WINDOW).contains(&doc.path.len()), "{}", doc.path.len());
}

/// Checks that everything that was said and every step that was entered is there, in order.
fn check_transcript(transcript: &Transcript, turns: usize) {
    let said: Vec<_> = transcript.messages();
    let mut expected = vec![(Role::Assistant, "What is the next entry?".to_owned())];
    let mut steps = vec!["Enter"];
    for turn in 0..turns {
        expected.push((Role::User, entry(turn)));
        expected.push((Role::Assistant, receipt(100_000 + turn)));
        expected.push((Role::Assistant, "What is the next entry?".to_owned()));
        steps.extend(["Told", "Enter"]);
    }
    assert_eq!(said.len(), expected.len());
    for (place, (message, (role, text))) in said.iter().zip(&expected).enumerate() {
        assert_eq!(message.seq, place as u64);
        assert_eq!((message.role, &message.to_text()), (*role, text), "message {place}");
    }
    assert!(said.iter().zip(&said[1..]).all(|(one, next)| one.at <= next.at));

    let archived = transcript.archive.iter().flat_map(|entry| &entry.path);
    let path: Vec<_> = archived.chain(&transcript.doc.path).map(|p| p.step.as_str()).collect();
    assert_eq!(path, steps);
    for entry in &transcript.archive {
        let receipts = entry.messages.iter().filter(|m| m.namespace == "receipts");
        assert!(receipts.clone().all(|m| m.message.to_text().ends_with("is in the book.")));
        assert!(!entry.messages.is_empty() || !entry.path.is_empty());
    }
}

/// Reads the transcript with another store on the same documents, and counts the calls.
async fn read_back(store: impl SessionStore, turns: usize) {
    let store = RecordingStore::new(store);
    let transcript = engine(store.clone()).session(session()).transcript().await.unwrap();
    assert_eq!(store.take_names(), ["transcript"]);
    check_transcript(&transcript, turns);
}

/// One commit per turn, since each writes the whole document.
#[tokio::test]
async fn ten_thousand_turns_on_sqlite() {
    const BLOCKS: usize = 32;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.sqlite");
    let options = || SqliteOptions::new().synchronous(Synchronous::Normal);
    let store = SqliteStore::open_with(&path, options()).await.unwrap();
    talk(Arc::new(store), Durability::Turn, BLOCKS).await;
    read_back(SqliteStore::open_with(&path, options()).await.unwrap(), BLOCKS * BLOCK).await;
}

/// Fewer turns, since each waits for the disk of a server three times, and writes what has
/// changed instead of the document.
#[tokio::test]
async fn hundreds_of_turns_on_mongodb() {
    const BLOCKS: usize = 3;
    let Some(database) = tests::mongo_server::mongo().await else { return };
    talk(Arc::new(MongoStore::new(database.clone()).await.unwrap()), Durability::Crossing, BLOCKS)
        .await;
    read_back(MongoStore::new(database).await.unwrap(), BLOCKS * BLOCK).await;
}
