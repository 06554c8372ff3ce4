//! Tools are methods.

use flow_core::prelude::*;

#[tools]
struct Talk;

fn main() {}
