//! A tool moves the flow along the ways of its own step.

use flow_core::prelude::*;

#[flow(steps(Talk, Bye))]
#[derive(Clone)]
struct Hotel;

#[step(reply, tools, next(Bye))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Hotel;
}

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

#[tools]
impl Talk {
    /// Leaves.
    #[tool]
    fn leave(&self) -> ByeNext {
        ByeNext::End(String::new())
    }

    /// Leaves, and says so.
    #[tool]
    fn leave_aloud(&self) -> Result<ToolOutcome<u8, ByeNext>> {
        Ok(ToolOutcome::new(1))
    }
}

fn main() {}
