//! Every unknown key is reported.

use flow_core::prelude::*;

#[flow(steps(Bye), vesion = 2, start = Bye)]
#[derive(Clone)]
struct Hotel;

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

fn main() {}
