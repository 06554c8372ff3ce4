//! Checkpoints, forks and rewinds.

mod busy;
mod costs;
mod documents;
mod faults;
mod forks;
mod histories;
mod migrations;
mod rewinds;
mod rounds;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flow_core::effect::ApprovalRequest;
use flow_core::engine::{Checkpoints, Delivery, EngineBuilder, SessionHandle};
use flow_core::error::Error;
use flow_core::message::Part;
use flow_core::prelude::*;
use flow_core::session::{Delta, Interrupt, SessionDoc, Waiting};
use flow_core::step::Crossing;
use flow_core::store::memory::MemoryStore;
use flow_core::store::mongodb::MongoStore;
use flow_core::store::sqlite::SqliteStore;
use flow_core::store::{Commit, OpenRequest, SessionStore, Transcript};
use flow_core::testing::ManualClock;
use flow_core::{Durability, Engine, TurnOutcome, TurnRequest};
use tokio::sync::Notify;

const DURABILITIES: [Durability; 3] = [Durability::Crossing, Durability::Turn, Durability::Effect];

/// A bank that honours idempotency keys. Clones share it.
#[derive(Debug, Clone, Default)]
struct Bank {
    receipts: Arc<Mutex<BTreeMap<String, String>>>,
    /// The keys of what was really made, in order.
    made: Arc<Mutex<Vec<String>>>,
}

impl Bank {
    fn charge(&self, key: &str, cents: u32) -> String {
        let mut receipts = self.receipts.lock().unwrap();
        let number = receipts.len() + 1;
        let receipt = receipts.entry(key.to_owned()).or_insert_with(|| {
            self.made.lock().unwrap().push(key.to_owned());
            format!("receipt {number} for {cents}")
        });
        receipt.clone()
    }

    /// The keys of what was made since the last time.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.made.lock().unwrap())
    }
}

/// Where a turn stops until the test lets it go on.
#[derive(Debug, Default)]
struct Barrier {
    reached: Notify,
    passed: Notify,
}

/// A flow whose action does what the message says, word by word.
///
/// | word | what it does |
/// | --- | --- |
/// | `add:x` | puts `x` into the cart and says what is in it |
/// | `charge:n` | charges `n` cents and says the receipt |
/// | `approve` | waits for approval |
/// | `both` | waits for two approvals side by side |
/// | `sleep:n` | sleeps for `n` seconds |
/// | `hold` | waits until the test lets it go on |
/// | `fail` | fails |
/// | `again` | enters the step anew, with the words that are left |
/// | `over` | goes to the step `Over`, which says so |
/// | `end` | ends |
#[flow(id = "desk", version = 1, steps(Act, Over), state = Cart, tools)]
#[derive(Clone, Default)]
struct Desk {
    bank: Bank,
    memory: MemoryPolicy,
    barrier: Arc<Barrier>,
    /// Whether the next turn begins the session anew.
    fresh: bool,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Cart {
    items: Vec<String>,
}

impl Flow for Desk {
    fn config_memory(&self) -> MemoryPolicy {
        self.memory.clone()
    }

    async fn on_restore_session_doc(&self, doc: SessionDoc) -> Result<Restore> {
        Ok(if self.fresh { Restore::fresh("as told") } else { Restore::keep(doc) })
    }
}

#[tools(flow)]
impl Desk {
    /// Charges some cents.
    #[tool]
    async fn charge(&self, cx: &ToolCx, cents: u32) -> Result<String> {
        let receipt = self.bank.charge(cx.idempotency_key(), cents);
        Ok(format!("{receipt}, repeated: {}", cx.is_repeated()))
    }

    /// Charges some cents, and never returns.
    #[tool]
    async fn stall(&self, cx: &ToolCx, cents: u32) -> Result<String> {
        self.bank.charge(cx.idempotency_key(), cents);
        self.barrier.reached.notify_one();
        self.barrier.passed.notified().await;
        Ok(format!("stalled, repeated: {}", cx.is_repeated()))
    }
}

#[step(action, next(Act, Over, stay, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Act {
    runs: u32,
    /// The words for the next visit.
    #[serde(default)]
    left: String,
}

impl Action for Act {
    type Flow = Desk;

    async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<ActNext> {
        self.runs += 1;
        let words = cx.take_message().unwrap_or_default();
        let mut words = words.split_whitespace();
        while let Some(word) = words.next() {
            let (word, rest) = word.split_once(':').unwrap_or((word, ""));
            match word {
                "add" => {
                    cx.state.items.push(rest.to_owned());
                    let text = cx.state.items.join(" ");
                    cx.say(text);
                }
                "charge" => {
                    let receipt = cx.tool(Charge { cents: rest.parse()? }).await?;
                    cx.say(receipt);
                }
                "stall" => {
                    let stalled = cx.tool(Stall { cents: rest.parse()? }).await?;
                    cx.say(stalled);
                }
                "approve" => {
                    cx.approve("may I?").await?;
                    cx.say("approved");
                }
                "both" => {
                    let (first, second) = futures_util::join!(
                        cx.approve(ApprovalRequest::new("first")).decision(),
                        cx.approve(ApprovalRequest::new("second")).decision(),
                    );
                    cx.say(format!("{} {}", first?.is_approved(), second?.is_approved()));
                }
                "sleep" => {
                    cx.sleep(Duration::from_secs(rest.parse()?)).await?;
                    cx.say("awake");
                }
                "hold" => {
                    cx.flow.barrier.reached.notify_one();
                    cx.flow.barrier.passed.notified().await;
                }
                "fail" => return Err(StepError::new("as told")),
                "again" => {
                    self.left = words.collect::<Vec<_>>().join(" ");
                    return Ok(ActNext::Act);
                }
                "over" => return Ok(ActNext::Over),
                "end" => return Ok(ActNext::End("done".into())),
                _ => {}
            }
        }
        Ok(ActNext::Stay)
    }

    async fn on_crossing(
        &mut self,
        _: Crossing<'_>,
        _: &mut StepCx<'_, Desk>,
    ) -> Result<Option<String>> {
        Ok(Some(std::mem::take(&mut self.left)))
    }
}

#[step(action, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Over;

impl Action for Over {
    type Flow = Desk;

    async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<OverNext> {
        cx.say("over");
        Ok(OverNext::Stay)
    }
}

/// Sessions of the flow on one store.
struct Talk {
    store: Arc<dyn SessionStore>,
    clock: ManualClock,
    flow: Desk,
    engine: Engine,
}

/// Sessions in memory, with checkpoints.
fn talk(durability: Durability) -> Talk {
    talk_on(Arc::new(MemoryStore::new()), Desk::default(), |engine| engine.durability(durability))
}

fn talk_on(
    store: Arc<dyn SessionStore>,
    flow: Desk,
    change: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Talk {
    let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap());
    let builder = Engine::builder().shared_store(store.clone()).clock(clock.clone());
    let builder = builder.flow(flow.clone()).checkpoints(Checkpoints::keep_last(50));
    let engine = change(builder).build().unwrap();
    Talk { store, clock, flow, engine }
}

/// Each store that is to be had, and what it needs as long as it is used.
async fn stores() -> Vec<(Arc<dyn SessionStore>, Option<tempfile::TempDir>)> {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(folder.path().join("sessions.db")).await.unwrap();
    let mut stores: Vec<(Arc<dyn SessionStore>, _)> =
        vec![(Arc::new(MemoryStore::new()), None), (Arc::new(sqlite), Some(folder))];
    if let Some(database) = tests::mongo_server::mongo().await {
        stores.push((Arc::new(MongoStore::new(database).await.unwrap()), None));
    }
    stores
}

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

impl Talk {
    fn session(&self, name: &str) -> SessionHandle {
        self.engine.session(id(name))
    }

    async fn try_say(&self, name: &str, text: &str) -> Result<TurnOutcome, Error> {
        self.engine.turn::<Desk>(TurnRequest::new(id(name)).message(text)).await
    }

    async fn say(&self, name: &str, text: &str) -> TurnOutcome {
        self.try_say(name, text).await.unwrap()
    }

    /// A turn without a message.
    async fn go_on(&self, name: &str) -> TurnOutcome {
        self.engine.turn::<Desk>(TurnRequest::new(id(name))).await.unwrap()
    }

    async fn approve(&self, name: &str, request: &Interrupt) -> Result<TurnOutcome, Error> {
        self.engine.deliver(id(name), Delivery::approve(&request.request_id)).await
    }

    async fn doc(&self, name: &str) -> SessionDoc {
        self.session(name).load().await.unwrap()
    }

    async fn revision(&self, name: &str) -> u64 {
        self.doc(name).await.revision
    }

    async fn items(&self, name: &str) -> Vec<String> {
        serde_json::from_value(self.doc(name).await.state["items"].clone()).unwrap()
    }

    /// What the session waits for.
    async fn pending(&self, name: &str) -> Vec<Interrupt> {
        match self.doc(name).await.waiting {
            Some(Waiting::Interrupts { pending }) => pending,
            other => panic!("waits for {other:?}"),
        }
    }

    /// The texts of the whole conversation.
    async fn said(&self, name: &str) -> Vec<String> {
        texts(&self.session(name).transcript().await.unwrap())
    }

    /// Commits a change of a document that no turn would make.
    async fn edit(&self, name: &str, change: impl FnOnce(&mut SessionDoc)) -> SessionDoc {
        let id = id(name);
        let (flow, holder) = ("desk", "editor");
        let ttl = Duration::from_secs(60);
        let request = OpenRequest { id: &id, flow, version: 1, holder, ttl };
        let opened = self.store.open(&request).await.unwrap();
        let mut doc = opened.doc.unwrap();
        let base = doc.revision;
        change(&mut doc);
        doc.revision = base + 1;
        let commit = Commit {
            grant: &opened.grant,
            base,
            doc: &doc,
            delta: &Delta::replace(),
            archive: &[],
            supersede: None,
            release: true,
            checkpoints: 50,
        };
        self.store.commit(&commit).await.unwrap();
        doc
    }
}

fn texts(transcript: &Transcript) -> Vec<String> {
    let text = |part: &Part| match part {
        Part::Text { text } => text.clone(),
        other => format!("{other:?}"),
    };
    transcript.messages().iter().flat_map(|m| m.parts.iter().map(text)).collect()
}
