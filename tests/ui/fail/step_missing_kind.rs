//! A step says what kind it is.

use flow_core::prelude::*;

#[step(next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

fn main() {}
