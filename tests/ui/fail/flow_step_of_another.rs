//! A step belongs to one flow.

use flow_core::prelude::*;

#[flow(steps(Talk))]
#[derive(Clone)]
struct Other;

#[flow(steps(Bye, Talk))]
#[derive(Clone)]
struct Hotel;

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Other;
}

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

fn main() {}
