//! A step implements the trait of its kind.

use flow_core::prelude::*;

#[flow(steps(Pay, Bye))]
#[derive(Clone)]
struct Hotel;

#[step(action, next(Bye, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Pay;

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

fn main() {}
