//! The payload is the input of the step that is entered.

use flow_core::prelude::*;

#[flow(steps(Talk, Pay))]
#[derive(Clone)]
struct Hotel;

#[derive(Serialize, Deserialize)]
struct Bill {
    cents: u32,
}

#[step(reply, next(Pay(String)))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Hotel;
}

#[step(reply, input = Bill, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Pay;

impl Reply for Pay {
    type Flow = Hotel;
}

fn main() {}
