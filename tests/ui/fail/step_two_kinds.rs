//! A step has one kind.

use flow_core::prelude::*;

#[flow(steps(Talk, Bye))]
#[derive(Clone)]
struct Hotel;

#[step(reply, action, next(Bye))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Hotel;
}

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

fn main() {}
