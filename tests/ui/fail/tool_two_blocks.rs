//! A step has one block of tools.

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
    /// Fine.
    #[tool]
    fn fine(&self) -> u8 {
        1
    }
}

#[tools]
impl Talk {
    /// Searches.
    #[tool]
    fn search(&self) -> u8 {
        1
    }
}

fn main() {}
