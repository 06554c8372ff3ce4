//! A flow in which everything happens that can happen to a conversation.

use std::sync::{Arc, Mutex};

use flow_core::model::{CallPolicy, ModelError};
use flow_core::prelude::*;
use flow_core::tool::ToolDefinition;
use tokio::sync::Notify;

use super::relay::policy;

/// Leads from room to room.
#[flow(id = "maze", version = 1, steps(Front, Back, Side, Form), model = "relay::m", tools)]
#[derive(Debug, Clone)]
pub(super) struct Maze {
    /// Whether a step goes on when its model gives no answer.
    pub(super) recovers: bool,
    /// Whether the flow goes on when a step fails.
    pub(super) rescues: bool,
    pub(super) memory: MemoryPolicy,
    /// Told when a tool waits that never returns.
    pub(super) stuck: Arc<Notify>,
    /// The idempotency keys of the calls of `ring` in this turn.
    pub(super) keys: Arc<Mutex<Vec<String>>>,
}

type Cx<'a> = StepCx<'a, Maze>;

impl Flow for Maze {
    fn config_call_policy(&self) -> CallPolicy {
        policy()
    }

    fn config_memory(&self) -> MemoryPolicy {
        self.memory.clone()
    }

    async fn on_error(&self, _: &StepError, cx: &mut Cx<'_>) -> Result<Option<Transition>> {
        Ok(self.rescues.then(|| {
            cx.say("Something went wrong.");
            Transition::Stay
        }))
    }
}

#[tools(flow)]
impl Maze {
    /// Rings a bell, once for each key.
    #[tool]
    async fn ring(&self, cx: &ToolCx) -> Result<String> {
        self.keys.lock().unwrap().push(cx.idempotency_key().to_owned());
        Ok("ding".into())
    }
}

/// Has tools, and shares its memory.
#[step(reply, tools, memory = "shared", next(Back, Side(u32), Form, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(super) struct Front {
    looks: u32,
}

impl Reply for Front {
    type Flow = Maze;

    fn instructions(&self, _: &Cx<'_>) -> Prompt {
        format!("{} looks", self.looks).into()
    }

    fn tools(&self, mut own: Vec<ToolDefinition>, cx: &Cx<'_>) -> Vec<ToolDefinition> {
        own.extend(cx.tools().iter().cloned());
        own
    }

    fn check_response(&self, response: &str, _: &Cx<'_>) -> Check {
        if response.contains("darn") { Check::Retry("Do not swear.".into()) } else { Check::Accept }
    }

    async fn verify(&mut self, next: &FrontNext, _: &mut Cx<'_>) -> Result<Gate> {
        Ok(match next {
            FrontNext::Side(13) => Gate::Hold("the door is locked".into()),
            _ => Gate::Pass,
        })
    }

    async fn on_response(&mut self, response: &str, _: &mut Cx<'_>) -> Result<Option<FrontNext>> {
        match response {
            "explode" => panic!("the step explodes"),
            "fail" => Err(StepError::new("the step fails")),
            "form" => Ok(Some(FrontNext::Form)),
            "leave" => Ok(Some(FrontNext::Back)),
            _ => Ok(None),
        }
    }

    async fn on_model_error(
        &mut self,
        error: &ModelError,
        cx: &mut Cx<'_>,
    ) -> Result<Recovery<FrontNext>> {
        if !cx.flow.recovers {
            return Ok(Recovery::Pass);
        }
        cx.say(format!("I cannot talk now ({}).", error.code()));
        Ok(Recovery::Go(FrontNext::Stay))
    }
}

#[tools]
impl Front {
    /// Looks around.
    #[tool]
    async fn look(&mut self, at: u8) -> String {
        self.looks += 1;
        format!("{at} doors")
    }

    /// Says nothing.
    #[tool]
    async fn hush(&mut self) -> String {
        String::new()
    }

    /// Fails.
    #[tool]
    async fn stumble(&mut self) -> Result<()> {
        Err(StepError::new("there is a step"))
    }

    /// Panics.
    #[tool]
    async fn crash(&mut self) -> Result<()> {
        panic!("there is a wall")
    }

    /// Never returns.
    #[tool]
    async fn wait(&mut self, cx: &mut StepCx<'_, Maze>) -> Result<()> {
        cx.flow.stuck.notify_one();
        std::future::pending().await
    }

    /// Leaves by the back door.
    #[tool]
    async fn leave(&mut self) -> FrontNext {
        FrontNext::Back
    }

    /// Leaves by a side door.
    #[tool]
    async fn sidestep(&mut self, door: u32) -> FrontNext {
        FrontNext::Side(door)
    }
}

/// Has no tools, and the memory of the front.
#[step(reply, memory = "shared", next(Front, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(super) struct Back;

impl Reply for Back {
    type Flow = Maze;

    async fn on_response(&mut self, response: &str, _: &mut Cx<'_>) -> Result<Option<BackNext>> {
        Ok((response == "leave").then_some(BackNext::Front))
    }
}

/// Has a memory of its own, and fails to be left by door 5.
#[step(reply, tools, input = u32, memory = "side", next(Front, Form, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(super) struct Side {
    door: u32,
}

impl Reply for Side {
    type Flow = Maze;

    async fn on_enter(&mut self, door: u32, _: &mut Cx<'_>) -> Result<()> {
        self.door = door;
        Ok(())
    }

    async fn on_exit(&mut self, _: &mut Cx<'_>) -> Result<()> {
        if self.door == 5 { Err(StepError::new("the door is stuck")) } else { Ok(()) }
    }
}

#[tools]
impl Side {
    /// Goes back.
    #[tool]
    async fn leave(&mut self) -> SideNext {
        self.door = 0;
        SideNext::Front
    }

    /// Goes to the form, by the door.
    #[tool]
    async fn sidestep(&mut self) -> SideNext {
        SideNext::Form
    }
}

/// Asks in code, and has the memory of the front.
#[step(collect, memory = "shared", next(Front))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(super) struct Form {
    #[slot(range(1, 9), ask = "How many?")]
    count: Option<u8>,
}

impl Collect for Form {
    type Flow = Maze;

    async fn complete(&mut self, data: FormData, cx: &mut Cx<'_>) -> Result<FormNext> {
        cx.say(format!("{} it is.", data.count));
        Ok(FormNext::Front)
    }
}
