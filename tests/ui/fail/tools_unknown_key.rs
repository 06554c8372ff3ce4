//! The block knows two keys.

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

#[tools(flows)]
impl Talk {
    /// Fine.
    #[tool]
    fn fine(&self) -> u8 {
        1
    }
}

fn main() {}
