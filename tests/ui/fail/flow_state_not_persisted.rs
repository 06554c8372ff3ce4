//! The shared state persists.

use flow_core::prelude::*;

#[derive(Default)]
struct State;

#[flow(steps(Bye), state = State)]
#[derive(Clone)]
struct Hotel;

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

fn main() {}
