//! A step is a struct.

use flow_core::prelude::*;

#[step(reply, next(end))]
enum Talk {
    A,
}

fn main() {}
