//! A confirm step is a decide step.

use flow_core::prelude::*;

#[flow(steps(Talk, Bye))]
#[derive(Clone)]
struct Hotel;

#[step(collect, confirm, next(Bye))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

#[step(confirm = "yes", decide, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

fn main() {}
