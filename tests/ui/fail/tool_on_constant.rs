//! A tool is a method.

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
    /// Never.
    #[tool]
    const LIMIT: u8 = 1;

    /// Fine.
    #[tool]
    fn fine(&self) -> u8 {
        1
    }
}

fn main() {}
