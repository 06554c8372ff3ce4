//! A flow lists steps.

use flow_core::prelude::*;

struct Thing;

#[flow(steps(Bye, Thing))]
#[derive(Clone)]
struct Hotel;

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

fn main() {}
