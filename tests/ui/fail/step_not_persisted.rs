//! The fields of a step persist.

use flow_core::prelude::*;

#[flow(steps(Talk))]
#[derive(Clone)]
struct Hotel;

#[step(reply, next(end))]
#[derive(Default)]
struct Talk;

impl Reply for Talk {
    type Flow = Hotel;
}

fn main() {}
