//! Reply steps that speak through a model: the tool loop, memory, failures.

mod asking;
mod collect;
mod deadlines;
mod errands;
mod exposure;
mod loops;
mod memory;
mod parameters;
mod recoveries;
mod replies;
mod rescues;
mod rounds;
mod structured;

use std::time::Duration;

use flow_core::event::Event;
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{CallPolicy, ChatRequest, ModelCatalog, ModelError, Sampling};
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::tool::ToolDefinition;
use flow_core::{Engine, TurnOutcome, TurnRequest};
use serde_json::{Value, json};

/// Finds rooms and books them.
#[flow(id = "hotel", version = 1, steps(Explore, Desk), model = "test::main", tools)]
#[derive(Clone, Default)]
pub struct Hotel {
    policy: CallPolicy,
    recover: bool,
}

impl Flow for Hotel {
    fn config_call_policy(&self) -> CallPolicy {
        self.policy.clone()
    }
}

#[tools(flow)]
impl Hotel {
    /// Charges the guest: for actions, not for models.
    #[tool]
    async fn charge(&self, cents: u32) -> Result<u32> {
        Ok(cents)
    }

    /// Tells the weather in a city.
    #[tool]
    async fn weather(&self, cx: &ToolCx, city: String) -> Result<String> {
        Ok(format!("{city} is sunny ({})", cx.idempotency_key()))
    }
}

/// Finds rooms with the guest.
#[step(reply, tools, memory = "explore", next(Desk(u32), stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub struct Explore {
    searches: u32,
}

impl Reply for Explore {
    type Flow = Hotel;

    fn instructions(&self, _: &StepCx<'_, Hotel>) -> Prompt {
        format!("You find rooms. Searches so far: {}.", self.searches).into()
    }

    fn tools(&self, mut own: Vec<ToolDefinition>, cx: &StepCx<'_, Hotel>) -> Vec<ToolDefinition> {
        own.extend(cx.tools().iter().filter(|tool| tool.name == "weather").cloned());
        own
    }

    fn check_response(&self, response: &str, _: &StepCx<'_, Hotel>) -> Check {
        if response.contains("darn") { Check::Retry("Do not swear.".into()) } else { Check::Accept }
    }

    async fn verify(&mut self, next: &ExploreNext, _: &mut StepCx<'_, Hotel>) -> Result<Gate> {
        Ok(match next {
            ExploreNext::Desk(13) => Gate::Hold("room 13 is being painted".into()),
            _ => Gate::Pass,
        })
    }

    async fn on_model_error(
        &mut self,
        error: &ModelError,
        cx: &mut StepCx<'_, Hotel>,
    ) -> Result<Recovery<ExploreNext>> {
        if cx.flow.recover {
            cx.say(format!("I cannot talk now ({}).", error.code()));
            return Ok(Recovery::Go(ExploreNext::Stay));
        }
        Ok(Recovery::Pass)
    }
}

#[tools]
impl Explore {
    /// Searches free rooms.
    #[tool]
    async fn search(&mut self, city: String, nights: Option<u8>) -> Result<Value> {
        self.searches += 1;
        Ok(json!({ "city": city, "nights": nights, "rooms": [7, 12] }))
    }

    /// The guest chose a room.
    #[tool]
    async fn choose(&mut self, room: u32) -> ExploreNext {
        ExploreNext::Desk(room)
    }

    /// Never returns.
    #[tool]
    async fn hang(&mut self) -> Result<()> {
        std::future::pending().await
    }

    /// Panics.
    #[tool]
    async fn crash(&mut self) -> Result<()> {
        panic!("no such room")
    }

    /// Returns more than a model should read.
    #[tool]
    async fn dump(&mut self) -> String {
        "x".repeat(50 * 1024 * 1024)
    }
}

/// Takes the guest's data.
#[step(reply, input = u32, model = "test::desk", next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub struct Desk {
    room: u32,
}

impl Reply for Desk {
    type Flow = Hotel;

    async fn on_enter(&mut self, room: u32, _: &mut StepCx<'_, Hotel>) -> Result<()> {
        self.room = room;
        Ok(())
    }

    fn sampling(&self, _: &StepCx<'_, Hotel>) -> Sampling {
        Sampling::default().temperature(0.2).max_output_tokens(200)
    }

    fn instructions(&self, _: &StepCx<'_, Hotel>) -> Prompt {
        format!("The guest wants room {}.", self.room).into()
    }
}

struct Talk {
    engine: Engine,
    main: ScriptedModel,
    desk: ScriptedModel,
}

impl Talk {
    fn new(main: ScriptedModel) -> Self {
        Self::with(Hotel::default(), main)
    }

    fn with(hotel: Hotel, main: ScriptedModel) -> Self {
        let desk = ScriptedModel::new();
        let models =
            ModelCatalog::new().model("test::main", main.clone()).model("test::desk", desk.clone());
        let store = MemoryStore::new();
        let engine = Engine::builder().store(store).flow(hotel).models(models).build().unwrap();
        Self { engine, main, desk }
    }

    async fn say(&self, text: &str) -> Result<TurnOutcome, flow_core::Error> {
        self.engine.turn::<Hotel>(TurnRequest::new(session()).message(text)).await
    }

    async fn events(&self, text: &str) -> Vec<Event> {
        let mut turn = self.engine.turn::<Hotel>(TurnRequest::new(session()).message(text));
        let mut events = Vec::new();
        while let Some(event) = turn.next_event().await {
            events.push(event);
        }
        turn.await.unwrap();
        events
    }

    async fn doc(&self) -> SessionDoc {
        self.engine.session(session()).load().await.unwrap()
    }
}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

fn quick() -> Hotel {
    let policy = CallPolicy::default().tool_timeout(Duration::from_secs(5)).tool_rounds(2);
    Hotel { policy, recover: false }
}

/// A request as a snapshot shows it.
fn shown(request: &ChatRequest) -> Value {
    let messages: Vec<_> =
        request.messages.iter().map(|m| json!({ "role": m.role, "parts": m.parts })).collect();
    let output = request.output.as_ref();
    json!({
        "system": request.system,
        "messages": messages,
        "tools": request.tools,
        "tool_choice": request.tool_choice,
        "output": output.map(|output| json!({ "name": output.name, "schema": output.schema })),
    })
}
