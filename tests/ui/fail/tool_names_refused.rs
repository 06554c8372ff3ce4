//! Providers agree on what a name is.

use flow_core::prelude::*;

#[flow(steps(Talk))]
#[derive(Clone)]
struct Hotel;

#[step(reply, tools, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Hotel;
}

#[tools]
impl Talk {
    /// Searches.
    #[tool(name = "search rooms")]
    fn search(&self) -> u8 {
        1
    }

    /// Finds.
    #[tool]
    fn größe(&self) -> u8 {
        1
    }
}

fn main() {}
