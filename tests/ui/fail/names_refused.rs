//! Persisted names are keys of documents.

use flow_core::prelude::*;

#[flow(steps(Talk), id = "my hotel")]
#[derive(Clone)]
struct Hotel;

#[step(reply, id = "a.b", memory = "", alias("Old", "$old", "Old"), next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Hotel;
}

fn main() {}
