//! A flow has steps.

use flow_core::prelude::*;

#[flow(id = "hotel")]
#[derive(Clone)]
struct Hotel;

fn main() {}
