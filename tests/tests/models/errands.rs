//! A flow whose tools tell when they run, and run when they are told.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use flow_core::Engine;
use flow_core::event::Event;
use flow_core::message::{Message, Part, Role, ToolResultPart};
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{CallPolicy, ModelCatalog, ModelError};
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::testing::ManualClock;
use flow_core::time::Timestamp;
use flow_core::tool::ToolDefinition;
use flow_core::{TurnOutcome, TurnRequest};
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify, watch};

/// Runs errands.
#[flow(id = "errands", version = 1, steps(Closed, Open, Named, Done), model = "test::main", tools)]
#[derive(Clone)]
pub(crate) struct Errands {
    pub(crate) policy: CallPolicy,
    pub(crate) start: &'static str,
    /// Tools that `define_tools` takes out.
    pub(crate) removed: Vec<&'static str>,
    /// Tools that `define_tools` denies.
    pub(crate) denied: Vec<&'static str>,
    /// Whether errors are handled: by the step, by the flow.
    pub(crate) recover: Option<&'static str>,
    pub(crate) stage: Arc<Stage>,
}

/// What the tools share with the test.
pub(crate) struct Stage {
    pub(crate) log: Mutex<Vec<String>>,
    pub(crate) running: AtomicUsize,
    /// The most calls that have run at the same time.
    pub(crate) peak: AtomicUsize,
    pub(crate) eight: Barrier,
    pub(crate) two: Barrier,
    /// In which order the calls of `race` finish.
    pub(crate) order: Vec<&'static str>,
    pub(crate) finished: watch::Sender<usize>,
    pub(crate) hangs: Notify,
}

impl Stage {
    fn note(&self, entry: impl Into<String>) {
        self.log.lock().unwrap().push(entry.into());
    }

    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    /// Returns when all before it in `order` have finished.
    async fn race(&self, name: &str) {
        let place = self.order.iter().position(|other| *other == name).unwrap();
        let mut finished = self.finished.subscribe();
        finished.wait_for(|count| *count == place).await.unwrap();
        self.finished.send_modify(|count| *count += 1);
    }
}

impl Errands {
    pub(crate) fn at(start: &'static str) -> Self {
        let stage = Stage {
            log: Mutex::default(),
            running: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            eight: Barrier::new(8),
            two: Barrier::new(2),
            order: Vec::new(),
            finished: watch::Sender::new(0),
            hangs: Notify::new(),
        };
        Self {
            policy: CallPolicy::default().tool_timeout(std::time::Duration::from_secs(5)),
            start,
            removed: Vec::new(),
            denied: Vec::new(),
            recover: None,
            stage: Arc::new(stage),
        }
    }

    pub(crate) fn in_order(order: &[&'static str]) -> Self {
        let mut flow = Self::at("Open");
        Arc::get_mut(&mut flow.stage).unwrap().order = order.to_vec();
        flow
    }
}

impl Flow for Errands {
    fn config_call_policy(&self) -> CallPolicy {
        self.policy.clone()
    }

    fn initial_step(&self) -> Option<std::borrow::Cow<'static, str>> {
        Some(self.start.into())
    }

    fn define_tools(&self, mut tools: Vec<ToolDefinition>) -> Vec<ToolDefinition> {
        tools.retain(|tool| !self.removed.contains(&tool.name.as_str()));
        for tool in &mut tools {
            if self.denied.contains(&tool.name.as_str()) {
                tool.policy = ToolPolicy::deny("not on a Sunday");
            }
        }
        tools
    }

    async fn on_error(
        &self,
        _: &StepError,
        _: &mut StepCx<'_, Self>,
    ) -> Result<Option<Transition>> {
        Ok((self.recover == Some("flow")).then_some(Transition::Stay))
    }
}

#[tools(flow)]
impl Errands {
    /// Fetches a parcel; some are lost.
    #[tool(parallel)]
    async fn fetch(&self, number: usize) -> Result<String> {
        let running = self.stage.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.stage.peak.fetch_max(running, Ordering::SeqCst);
        if number < 8 {
            self.stage.eight.wait().await;
        }
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.stage.running.fetch_sub(1, Ordering::SeqCst);
        if [3, 7, 11].contains(&number) {
            return Err(StepError::new(format!("parcel {number} is lost")));
        }
        Ok(format!("parcel {number}"))
    }

    /// Runs a race, which ends as the test says.
    #[tool(parallel)]
    async fn race(&self, name: String) -> Result<Value> {
        self.stage.race(&name).await;
        Ok(json!({ "name": name, "length": name.len() }))
    }

    /// Meets somebody.
    #[tool(parallel)]
    async fn meet(&self, name: String) -> Result<String> {
        self.stage.note(format!("begin {name}"));
        self.stage.two.wait().await;
        self.stage.note(format!("end {name}"));
        Ok(name)
    }

    /// Does one thing.
    #[tool]
    async fn work(&self, name: String) -> Result<String> {
        self.stage.note(format!("begin {name}"));
        tokio::task::yield_now().await;
        self.stage.note(format!("end {name}"));
        Ok(name)
    }

    /// Never returns.
    #[tool(parallel)]
    async fn hang(&self) -> Result<()> {
        self.stage.hangs.notify_one();
        std::future::pending().await
    }

    /// Panics.
    #[tool(parallel)]
    async fn crash(&self) -> Result<()> {
        panic!("out of petrol")
    }

    /// Pays a bill.
    #[tool]
    async fn pay(&self, cx: &ToolCx, cents: u32) -> Result<String> {
        self.stage.note(format!("pay {cents} {}", cx.idempotency_key()));
        Ok("paid".into())
    }

    /// Pays money back.
    #[tool(ask)]
    async fn refund(&self, cents: u32) -> Result<u32> {
        self.stage.note("refund");
        Ok(cents)
    }
}

/// Sees none of the flow's tools.
#[step(reply, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Closed;

impl Reply for Closed {
    type Flow = Errands;
}

/// Sees all of the flow's tools.
#[step(reply, tools, flow_tools = open, next(Done, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Open {
    pub(crate) count: u32,
}

impl Reply for Open {
    type Flow = Errands;

    fn tool_policy(
        &self,
        tool: &ToolDefinition,
        arguments: &Value,
        _: &StepCx<'_, Errands>,
    ) -> ToolPolicy {
        if tool.name == "pay" && arguments["cents"].as_u64().is_none_or(|cents| cents > 100) {
            return ToolPolicy::deny(format!("at most 100 cents, {} calls so far", self.count));
        }
        tool.policy.clone()
    }

    async fn on_model_error(
        &mut self,
        error: &ModelError,
        cx: &mut StepCx<'_, Errands>,
    ) -> Result<Recovery<OpenNext>> {
        if cx.flow.recover == Some("step") {
            cx.say(format!("Sorry: {}.", error.code()));
            return Ok(Recovery::Go(OpenNext::Stay));
        }
        Ok(Recovery::Pass)
    }
}

#[tools]
impl Open {
    /// Meets somebody, with the step at hand.
    #[tool(parallel)]
    async fn look(&self, cx: &StepCx<'_, Errands>, name: String) -> Result<String> {
        cx.flow.stage.two.wait().await;
        Ok(format!("{name} {} {}", cx.step(), self.count))
    }

    /// Counts and says so.
    #[tool]
    async fn count(&mut self, cx: &mut StepCx<'_, Errands>, by: u32, fail: bool) -> Result<u32> {
        self.count += by;
        cx.say(format!("counted {}", self.count));
        if fail { Err(StepError::new("miscounted")) } else { Ok(self.count) }
    }

    /// Goes home.
    #[tool]
    fn go_home(&self) -> OpenNext {
        OpenNext::Done
    }
}

/// Sees some of the flow's tools.
#[step(reply, tools, flow_tools(Refund, Fetch), next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Named;

impl Reply for Named {
    type Flow = Errands;
}

#[tools]
impl Named {
    /// Rests.
    #[tool]
    fn rest(&self) {}
}

/// Is done.
#[step(action, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Done;

impl Action for Done {
    type Flow = Errands;

    async fn run(&mut self, _: &mut ActionCx<'_, Errands>) -> Result<DoneNext> {
        Ok(DoneNext::Stay)
    }
}

pub(crate) struct Talk {
    pub(crate) engine: Engine,
    pub(crate) model: ScriptedModel,
    pub(crate) stage: Arc<Stage>,
}

impl Talk {
    pub(crate) fn new(flow: Errands, model: ScriptedModel) -> Self {
        let stage = flow.stage.clone();
        let models = ModelCatalog::new().model("test::main", model.clone());
        let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
        let builder = Engine::builder().store(MemoryStore::new()).clock(clock);
        Self { engine: builder.flow(flow).models(models).build().unwrap(), model, stage }
    }

    pub(crate) fn request(text: &str) -> TurnRequest {
        TurnRequest::new(SessionId::new("s").unwrap()).message(text)
    }

    pub(crate) async fn say(&self, text: &str) -> Result<TurnOutcome, flow_core::Error> {
        self.engine.turn::<Errands>(Self::request(text)).await
    }

    pub(crate) async fn events(&self, text: &str) -> Vec<Event> {
        let mut turn = self.engine.turn::<Errands>(Self::request(text));
        let mut events = Vec::new();
        while let Some(event) = turn.next_event().await {
            events.push(event);
        }
        turn.await.unwrap();
        events
    }

    pub(crate) async fn doc(&self) -> SessionDoc {
        self.engine.session(SessionId::new("s").unwrap()).load().await.unwrap()
    }

    /// What the last request told the model of its calls.
    pub(crate) fn told(&self) -> Vec<ToolResultPart> {
        let requests = self.model.requests();
        let last = requests.last().unwrap().messages.last().unwrap().clone();
        assert_eq!(last.role, Role::Tool);
        results(&last)
    }

    pub(crate) fn offered(&self) -> Vec<String> {
        let requests = self.model.requests();
        requests.last().unwrap().tools.iter().map(|tool| tool.name.clone()).collect()
    }
}

pub(crate) fn results(message: &Message) -> Vec<ToolResultPart> {
    let result = |part: &Part| match part {
        Part::ToolResult(result) => result.clone(),
        other => panic!("{other:?}"),
    };
    message.parts.iter().map(result).collect()
}

/// Checks what all providers ask of a history: each call has one result, in the message right
/// behind it, and nothing else is one.
pub(crate) fn assert_valid(history: &[Message]) {
    let mut open: Vec<String> = Vec::new();
    let mut ids = std::collections::HashSet::new();
    for message in history {
        if message.role == Role::Tool {
            let closed: Vec<String> = results(message).into_iter().map(|r| r.id).collect();
            assert_eq!(closed, open, "{history:#?}");
            open.clear();
            continue;
        }
        assert!(open.is_empty(), "calls without a result: {history:#?}");
        for part in &message.parts {
            if let Part::ToolCall(call) = part {
                assert!(ids.insert(call.id.clone()), "the id {} is there twice", call.id);
                let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                assert!(!call.name.is_empty() && call.name.chars().all(plain), "{}", call.name);
                open.push(call.id.clone());
            }
        }
    }
    assert!(open.is_empty(), "calls without a result: {history:#?}");
}
