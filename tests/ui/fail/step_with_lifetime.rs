//! A step owns its data.

use flow_core::prelude::*;

#[step(reply, next(end))]
struct Talk<'a> {
    name: &'a str,
}

fn main() {}
