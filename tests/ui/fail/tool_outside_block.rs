//! `#[tool]` means something only inside of a `#[tools]` block.

use flow_core::prelude::*;

#[flow(steps(Talk))]
#[derive(Clone)]
struct Hotel;

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Hotel;
}

impl Talk {
    /// Searches.
    #[tool]
    fn search(&self) -> u8 {
        1
    }
}

fn main() {}
