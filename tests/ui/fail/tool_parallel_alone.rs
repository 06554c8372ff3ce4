//! Parallel tools share the step and its context.

use flow_core::prelude::*;

#[flow(steps(Talk))]
#[derive(Clone)]
struct Hotel;

impl Flow for Hotel {}

#[step(reply, tools, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Hotel;
}

#[tools]
impl Talk {
    /// Changes the step.
    #[tool(parallel)]
    async fn change(&mut self) -> u8 {
        1
    }

    /// Changes the state.
    #[tool(parallel)]
    async fn speak(&self, cx: &mut StepCx<'_, Hotel>) -> u8 {
        cx.say("hi");
        1
    }

    /// Is given a value.
    #[tool(parallel = true, ask = false)]
    fn value(&self) -> u8 {
        1
    }
}

fn main() {}
