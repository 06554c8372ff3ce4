//! Effects of actions: done once, replayed, waited for, answered, timed.

mod answers;
#[allow(clippy::print_stdout, reason = "a case that fails prints how to run it again")]
mod crashes;
mod failures;
mod nested;
mod policies;
mod replay;
mod timers;
mod turns;
mod world;

use std::sync::{Arc, Mutex};

use flow_core::engine::{Durability, EngineBuilder};
use flow_core::error::Error;
use flow_core::message::Part;
use flow_core::prelude::*;
use flow_core::session::{Interrupt, SessionDoc};
use flow_core::store::SessionStore;
use flow_core::store::memory::MemoryStore;
use flow_core::testing::ManualClock;
use flow_core::{Engine, TurnOutcome, TurnRequest};
use tokio::sync::Notify;

use nested::{Form, Inner};

const DURABILITIES: [Durability; 3] = [Durability::Crossing, Durability::Turn, Durability::Effect];

/// What was really done, in order.
#[derive(Debug, Clone, Default)]
struct Done {
    lines: Arc<Mutex<Vec<String>>>,
    trap: Arc<Mutex<Option<Trap>>>,
    trapped: Arc<Notify>,
}

/// Where an effect never returns.
#[derive(Debug, Clone, Copy)]
struct Trap {
    /// How many effects are made before.
    after: usize,
    /// Whether the effect itself is made.
    made: bool,
}

impl Done {
    fn push(&self, what: impl Into<String>) {
        self.lines.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }

    /// Makes an effect, unless it is trapped.
    async fn make(&self, what: impl Into<String>) {
        let trap = {
            let mut trap = self.trap.lock().unwrap();
            match &mut *trap {
                Some(Trap { after: 0, .. }) => trap.take(),
                Some(Trap { after, .. }) => {
                    *after -= 1;
                    None
                }
                None => None,
            }
        };
        if trap.is_none_or(|trap| trap.made) {
            self.push(what);
        }
        if trap.is_some() {
            self.trapped.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

/// A flow whose action does what the message says, word by word.
///
/// | word | what it does |
/// | --- | --- |
/// | `note:x` | writes `x` to its field and to the shared state, and says it |
/// | `charge:n` | calls the tool `charge` |
/// | `decline`, `insist` | calls a tool that fails; `decline` ignores that |
/// | `review` | calls a tool whose result looks like a denial |
/// | `stall` | calls a tool that never returns |
/// | `fail` | fails, unless the flow says that it does no more |
/// | `approve`, `ask` | waits for approval; `ask` takes the decision as a value |
/// | `sleep:n` | sleeps for `n` seconds |
/// | `signal`, `choose`, `input` | waits for one |
/// | `values` | says the time, a UUID and a random number |
/// | `both` | waits for two approvals side by side, with a charge beside them |
/// | `pair` | calls `charge` twice, side by side |
/// | `again` | enters the step anew |
/// | `over` | goes to the step `Over`, which stays |
/// | `step(..)` | runs a step that does what is in the brackets |
/// | `try(..)` | the same, and goes on when it fails |
/// | `steps(.. \| ..)` | runs steps side by side |
/// | `form` | runs a step that asks the user for a city and a number of guests |
#[flow(id = "script", steps(Act, Over, Inner, Form), state = Shared, tools)]
#[derive(Clone, Default)]
struct Script {
    done: Done,
    /// Whether `fail` and `decline` do not fail any more.
    works: bool,
    /// Replaces the words of the message, as another build of the program would.
    other: Option<&'static str>,
    /// Whether the flow has another digest.
    rebuilt: bool,
    /// Whether the step `Over` fails.
    fails_over: bool,
    /// Whether denials are handled by `on_denied`.
    handles_denial: bool,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Shared {
    notes: Vec<String>,
}

impl Flow for Script {
    fn config_reducers(&self) -> Reducers {
        Reducers::new().append("notes")
    }

    fn define_steps(&self, steps: flow_core::flow::Steps<Self>) -> flow_core::flow::Steps<Self> {
        if self.rebuilt { steps.remove("Over").add::<Over2>() } else { steps }
    }
}

#[tools(flow)]
impl Script {
    /// Charges some cents and returns a receipt.
    #[tool]
    async fn charge(&self, cx: &ToolCx, cents: u32) -> Result<String> {
        let made = format!("charge {cents} {} {}", cx.idempotency_key(), cx.is_repeated());
        self.done.make(made).await;
        Ok(format!("receipt for {cents}"))
    }

    /// Never returns as long as the flow does not work.
    #[tool]
    async fn stall(&self, cx: &ToolCx) -> Result<()> {
        self.done.push(format!("stall {} {}", cx.idempotency_key(), cx.is_repeated()));
        if !self.works {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    /// Checks a customer, and turns everybody down.
    #[tool]
    async fn review(&self) -> Result<serde_json::Value> {
        self.done.make("review").await;
        Ok(serde_json::json!({ "decision": "denied" }))
    }

    /// Fails as long as the flow does.
    #[tool]
    async fn decline(&self) -> Result<String> {
        self.done.make("decline").await;
        if self.works { Ok("accepted".into()) } else { Err(StepError::new("declined")) }
    }
}

#[step(action, next(Act, Over, stay, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Act {
    notes: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Paid {
    cents: u32,
}

impl Action for Act {
    type Flow = Script;

    async fn run(&mut self, cx: &mut ActionCx<'_, Script>) -> Result<ActNext> {
        let words = cx.take_message().unwrap_or_default();
        let words = cx.flow.other.map_or(words, str::to_owned);
        let way = nested::perform(&words, &mut self.notes, cx).await?;
        Ok(way.unwrap_or(ActNext::Stay))
    }

    async fn on_denied(
        &mut self,
        denied: &flow_core::effect::Denied,
        cx: &mut StepCx<'_, Script>,
    ) -> Result<Option<ActNext>> {
        if !cx.flow.handles_denial {
            return Ok(None);
        }
        cx.say(denied.to_string());
        Ok(Some(ActNext::End("denied".into())))
    }

    async fn on_crossing(
        &mut self,
        crossing: flow_core::step::Crossing<'_>,
        _: &mut StepCx<'_, Script>,
    ) -> Result<Option<String>> {
        let again = crossing.message.unwrap_or_default().replacen("again", "", 1);
        Ok(Some(again))
    }
}

#[step(action, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Over;

impl Action for Over {
    type Flow = Script;

    async fn run(&mut self, cx: &mut ActionCx<'_, Script>) -> Result<OverNext> {
        if cx.flow.fails_over {
            return Err(StepError::new("as told"));
        }
        Ok(OverNext::Stay)
    }
}

/// As `Over`, of another build.
#[step(action, id = "Over", next(stay, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Over2;

impl Action for Over2 {
    type Flow = Script;

    async fn run(&mut self, _: &mut ActionCx<'_, Script>) -> Result<Over2Next> {
        Ok(Over2Next::Stay)
    }
}

/// One session of the script flow on a store that outlives its engines.
struct Setup {
    store: Arc<dyn SessionStore>,
    clock: ManualClock,
    durability: Durability,
    flow: Script,
    engine: Engine,
}

fn setup(durability: Durability) -> Setup {
    setup_with(durability, Script::default())
}

fn setup_with(durability: Durability, flow: Script) -> Setup {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap());
    let engine = build(&store, &clock, durability, &flow);
    Setup { store, clock, durability, flow, engine }
}

fn build(
    store: &Arc<dyn SessionStore>,
    clock: &ManualClock,
    durability: Durability,
    flow: &Script,
) -> Engine {
    let builder: EngineBuilder = Engine::builder();
    let builder = builder.shared_store(store.clone()).clock(clock.clone()).durability(durability);
    builder.flow(flow.clone()).build().expect("the flow is well declared")
}

fn session() -> SessionId {
    SessionId::new("s").expect("a valid id")
}

impl Setup {
    /// Another process, perhaps with another build of the flow.
    fn restart(&mut self, change: impl FnOnce(&mut Script)) {
        change(&mut self.flow);
        self.engine = build(&self.store, &self.clock, self.durability, &self.flow);
    }

    async fn say(&self, text: &str) -> Result<TurnOutcome, Error> {
        self.engine.turn::<Script>(TurnRequest::new(session()).message(text)).await
    }

    async fn go_on(&self) -> Result<TurnOutcome, Error> {
        self.engine.turn::<Script>(TurnRequest::new(session())).await
    }

    async fn doc(&self) -> SessionDoc {
        self.engine.session(session()).load().await.expect("the session exists")
    }

    /// The texts of all messages in the history.
    async fn said(&self) -> Vec<String> {
        let text = |part: &Part| match part {
            Part::Text { text } => text.clone(),
            other => format!("{other:?}"),
        };
        let doc = self.doc().await;
        doc.memory["main"].messages.iter().flat_map(|m| m.parts.iter().map(text)).collect()
    }

    fn done(&self) -> Vec<String> {
        self.flow.done.take()
    }

    /// The only request that the session waits for.
    async fn request(&self) -> Interrupt {
        let mut pending = self.pending().await;
        assert_eq!(pending.len(), 1, "{pending:?}");
        pending.remove(0)
    }

    async fn pending(&self) -> Vec<Interrupt> {
        match self.doc().await.waiting {
            Some(flow_core::session::Waiting::Interrupts { pending }) => pending,
            other => panic!("waits for {other:?}"),
        }
    }
}
