//! A step that leads nowhere would hold the session for ever.

use flow_core::prelude::*;

#[flow(steps(Talk))]
#[derive(Clone)]
struct Hotel;

#[step(reply, next())]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Hotel;
}

fn main() {}
