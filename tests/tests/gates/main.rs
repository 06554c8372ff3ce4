//! Gates of a flow: checks and judges that are asked before it ends.

mod checks;
mod declarations;
mod effects;
mod judges;

use std::sync::{Arc, Mutex};

use flow_core::engine::{Durability, EngineBuilder};
use flow_core::error::Error;
use flow_core::event::Event;
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{CallPolicy, ModelCatalog};
use flow_core::prelude::*;
use flow_core::session::GateVerdict;
use flow_core::store::SessionStore;
use flow_core::store::memory::MemoryStore;
use flow_core::store::sqlite::SqliteStore;
use flow_core::{Engine, TurnOutcome, TurnRequest};

const DURABILITIES: [Durability; 3] = [Durability::Crossing, Durability::Turn, Durability::Effect];

type Define = Arc<dyn Fn(Gates<Shop>) -> Gates<Shop> + Send + Sync>;

/// A flow whose gates a test defines, and whose first step does what the message says.
///
/// | word | what it does |
/// | --- | --- |
/// | `total:n` | writes the total to the shared state |
/// | `name:x` | writes to a field of the step |
/// | `say:x` | says it |
/// | `charge:n` | calls a tool |
/// | `decline` | calls a tool that fails, and says so |
/// | `approve` | waits for approval |
/// | `fail` | fails; the flow makes an end of it |
/// | `end`, `hand`, `escalate` | takes this way out |
/// | `chat` | goes to the step `Chat` |
#[flow(id = "shop", steps(Desk, Chat), state = Order, model = "test::main", tools)]
#[derive(Clone)]
struct Shop {
    define: Define,
    done: Done,
    /// How often a gate was asked that counts.
    asked: Arc<Mutex<usize>>,
    policy: CallPolicy,
}

/// What was really done, in order.
#[derive(Clone, Default)]
struct Done(Arc<Mutex<Vec<String>>>);

impl Done {
    fn push(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Order {
    total: u32,
    /// How many runs have written to the state.
    runs: u32,
    items: Vec<String>,
    secret: String,
}

impl Flow for Shop {
    fn config_call_policy(&self) -> CallPolicy {
        self.policy.clone()
    }

    fn define_gates(&self, gates: Gates<Self>) -> Gates<Self> {
        (self.define)(gates)
    }

    async fn on_error(
        &self,
        error: &StepError,
        _: &mut StepCx<'_, Self>,
    ) -> Result<Option<Transition>> {
        Ok(match error.to_string().as_str() {
            "as told" => Some(Transition::End("failed".into())),
            "stuck" => Some(Transition::Stay),
            _ => None,
        })
    }
}

#[tools(flow)]
impl Shop {
    /// Charges some cents and returns a receipt.
    #[tool]
    async fn charge(&self, cents: u32) -> Result<String> {
        self.done.push(format!("charge {cents}"));
        Ok(format!("receipt for {cents}"))
    }

    /// Fails.
    #[tool]
    async fn decline(&self) -> Result<()> {
        self.done.push("decline");
        Err(StepError::new("declined"))
    }
}

#[step(action, next(Chat, stay, end, hand_off, escalate))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Desk {
    name: String,
    runs: u32,
}

impl Action for Desk {
    type Flow = Shop;

    async fn run(&mut self, cx: &mut ActionCx<'_, Shop>) -> Result<DeskNext> {
        self.runs += 1;
        cx.state.runs += 1;
        cx.state.secret = "CANARY".into();
        let words = cx.take_message().unwrap_or_default();
        for word in words.split_whitespace() {
            let (word, rest) = word.split_once(':').unwrap_or((word, ""));
            match word {
                "total" => cx.state.total = rest.parse()?,
                "name" => rest.clone_into(&mut self.name),
                "say" => cx.say(rest),
                "charge" => {
                    let receipt = cx.tool(Charge { cents: rest.parse()? }).await?;
                    cx.say(receipt);
                }
                "decline" => {
                    if let Err(error) = cx.tool(Decline {}).await {
                        cx.say(error.to_string());
                    }
                }
                "approve" => {
                    cx.approve("end it").await?;
                }
                "fail" => return Err(StepError::new("as told")),
                "chat" => return Ok(DeskNext::Chat),
                "end" => return Ok(DeskNext::End("done".into())),
                "hand" => return Ok(DeskNext::HandOff("other".into())),
                "escalate" => return Ok(DeskNext::Escalate("too hard".into())),
                _ => {}
            }
        }
        Ok(DeskNext::Stay)
    }

    async fn verify(&mut self, _: &DeskNext, cx: &mut StepCx<'_, Shop>) -> Result<Gate> {
        let hold = self.name == "nobody";
        cx.flow.done.push("verify");
        Ok(if hold { Gate::Hold("nobody may not leave".into()) } else { Gate::Pass })
    }

    async fn on_exit(&mut self, cx: &mut StepCx<'_, Shop>) -> Result<()> {
        cx.flow.done.push("exit");
        if self.name == "stuck" { Err(StepError::new("stuck")) } else { Ok(()) }
    }
}

/// Chats until the model is done.
#[step(reply, tools, next(stay, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Chat {
    finished: u32,
}

impl Reply for Chat {
    type Flow = Shop;
}

#[tools]
impl Chat {
    /// Ends the conversation.
    #[tool]
    async fn finish(&mut self) -> ChatNext {
        self.finished += 1;
        ChatNext::End("chatted".into())
    }
}

/// One session of the shop.
struct Setup {
    engine: Engine,
    store: Arc<dyn SessionStore>,
    done: Done,
    _folder: Option<tempfile::TempDir>,
}

fn shop(define: impl Fn(Gates<Shop>) -> Gates<Shop> + Send + Sync + 'static) -> Shop {
    Shop {
        define: Arc::new(define),
        done: Done::default(),
        asked: Arc::default(),
        policy: CallPolicy::default().attempts(1),
    }
}

fn setup(define: impl Fn(Gates<Shop>) -> Gates<Shop> + Send + Sync + 'static) -> Setup {
    setup_with(shop(define), Arc::new(MemoryStore::new()), |builder| builder)
}

fn setup_with(
    flow: Shop,
    store: Arc<dyn SessionStore>,
    change: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Setup {
    let done = flow.done.clone();
    let builder = Engine::builder().shared_store(store.clone()).flow(flow).models(models([]));
    let builder = builder.flow(tests::other_flow::Other);
    let engine = change(builder).build().expect("the flow is well declared");
    Setup { engine, store, done, _folder: None }
}

fn models<const N: usize>(models: [(&'static str, &ScriptedModel); N]) -> ModelCatalog {
    let catalog = ModelCatalog::new().model("test::main", ScriptedModel::new());
    models.into_iter().fold(catalog, |catalog, (name, model)| catalog.model(name, model.clone()))
}

/// The same session on each store that needs nothing else.
async fn on_stores(
    define: impl Fn(Gates<Shop>) -> Gates<Shop> + Send + Sync + Clone + 'static,
    change: impl Fn(EngineBuilder) -> EngineBuilder,
) -> [Setup; 2] {
    let memory = setup_with(shop(define.clone()), Arc::new(MemoryStore::new()), &change);
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(folder.path().join("sessions.sqlite")).await.unwrap();
    let sqlite = setup_with(shop(define), Arc::new(sqlite), &change);
    [memory, Setup { _folder: Some(folder), ..sqlite }]
}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

fn say(text: &str) -> TurnRequest {
    TurnRequest::new(session()).message(text)
}

impl Setup {
    async fn turn(&self, request: TurnRequest) -> Result<TurnOutcome, Error> {
        self.engine.turn::<Shop>(request).await
    }

    async fn say(&self, text: &str) -> TurnOutcome {
        self.turn(say(text)).await.unwrap()
    }

    async fn go_on(&self) -> TurnOutcome {
        self.turn(TurnRequest::new(session())).await.unwrap()
    }

    async fn events(&self, request: TurnRequest) -> (Vec<Event>, TurnOutcome) {
        let mut turn = self.engine.turn::<Shop>(request);
        let mut events = Vec::new();
        while let Some(event) = turn.next_event().await {
            events.push(event);
        }
        (events, turn.await.unwrap())
    }

    async fn doc(&self) -> SessionDoc {
        self.store.load(&session()).await.unwrap().expect("the session exists")
    }

    /// The texts of the history.
    async fn said(&self) -> Vec<String> {
        self.doc().await.memory["main"].messages.iter().map(|m| m.to_text()).collect()
    }
}

/// A verdict of a gate that ran.
fn verdict(gate: &str, passed: bool, blocking: bool, reason: Option<&str>) -> GateVerdict {
    let reason = reason.map(str::to_owned);
    GateVerdict { gate: gate.to_owned(), passed, blocking, ran: true, reason }
}

/// A verdict of a gate that could not run.
fn broken(gate: &str, reason: &str) -> GateVerdict {
    GateVerdict { ran: false, ..verdict(gate, false, true, Some(reason)) }
}

/// A gate that lets nothing above 100 pass.
fn within_budget(gates: Gates<Shop>) -> Gates<Shop> {
    gates.check("within-budget", |run| match run.state.total {
        ..=100 => Verdict::pass(),
        total => Verdict::fail(format!("{total} is over the budget")),
    })
}
