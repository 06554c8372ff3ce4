//! What becomes of repeated calls is said of a flow's tools, in one of three words.

use flow_core::prelude::*;

#[flow(steps(Talk), tools)]
#[derive(Clone)]
struct Hotel;

impl Flow for Hotel {}

#[tools(flow)]
impl Hotel {
    /// Is close to a word.
    #[tool(replay = nevr)]
    fn close(&self) {}

    /// Is far from any.
    #[tool(replay = sometimes)]
    fn far(&self) {}

    /// Has quotes.
    #[tool(replay = "never")]
    fn quoted(&self) {}

    /// Says nothing.
    #[tool(replay)]
    fn alone(&self) {}

    /// Says too much.
    #[tool(replay = never(2))]
    fn more(&self) {}
}

#[step(reply, tools, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Hotel;
}

#[tools]
impl Talk {
    /// Is called by models.
    #[tool(replay = never)]
    fn change(&self) -> u8 {
        1
    }
}

fn main() {}
