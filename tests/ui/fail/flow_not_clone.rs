//! A flow is cloned for every turn.

use flow_core::prelude::*;

#[flow(steps(Bye))]
struct Hotel;

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

fn main() {}
