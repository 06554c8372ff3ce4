//! All errors of an item are reported at once.

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
    #[tool(nam = "find")]
    fn search(self, city: &str) -> u8 {
        city.len() as u8
    }

    #[tool]
    fn find<T>(&self) -> u8 {
        1
    }
}

fn main() {}
