//! A flow that declares tools has a block of them.

use flow_core::prelude::*;

#[flow(steps(Bye), tools)]
#[derive(Clone)]
struct Hotel;

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

fn main() {}
