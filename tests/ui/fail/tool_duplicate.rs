//! Two tools of one block cannot have one name.

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

#[tools]
impl Talk {
    /// Searches.
    #[tool]
    fn search(&self) -> u8 {
        1
    }

    /// Finds.
    #[tool(name = "search")]
    fn find(&self) -> u8 {
        1
    }
}

fn main() {}
