//! A flow has a start.

use flow_core::prelude::*;

#[flow(steps())]
#[derive(Clone)]
struct Hotel;

fn main() {}
