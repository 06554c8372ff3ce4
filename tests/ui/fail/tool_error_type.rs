//! A tool fails with an error.

use flow_core::prelude::*;

#[flow(steps(Talk))]
#[derive(Clone)]
struct Hotel;

#[step(reply, tools, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Hotel;
}

struct Oops;

#[tools]
impl Talk {
    /// Searches.
    #[tool]
    async fn search(&self) -> std::result::Result<u8, Oops> {
        Err(Oops)
    }
}

fn main() {}
