//! Tools are methods of the step itself.

use flow_core::prelude::*;

#[flow(steps(Talk))]
#[derive(Clone)]
struct Hotel;

#[step(reply, tools, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

#[tools]
impl Reply for Talk {
    type Flow = Hotel;
}

fn main() {}
