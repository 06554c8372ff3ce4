//! A key says what it takes.

use flow_core::prelude::*;

#[flow(steps(Bye), version = 0, model = "gpt-5", id = 7, state)]
#[derive(Clone)]
struct Hotel;

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

fn main() {}
