//! A flow owns its data.

use flow_core::prelude::*;

#[flow(steps(Bye))]
#[derive(Clone)]
struct Hotel<'a> {
    name: &'a str,
}

fn main() {}
