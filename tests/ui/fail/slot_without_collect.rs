//! Only a form has slots.

use flow_core::prelude::*;

#[flow(steps(Talk))]
#[derive(Clone)]
struct Hotel;

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk {
    #[slot]
    name: Option<String>,
}

impl Reply for Talk {
    type Flow = Hotel;
}

fn main() {}
