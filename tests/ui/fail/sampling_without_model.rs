//! A flow that names no model has no parameters for it.

use flow_core::prelude::*;

#[flow(steps(Hi), sampling(temperature = 0.2))]
#[derive(Clone)]
struct Hotel;

impl Flow for Hotel {}

#[step(reply, next(stay), sampling)]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Hi;

impl Reply for Hi {
    type Flow = Hotel;
}

fn main() {}
