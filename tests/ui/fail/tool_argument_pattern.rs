//! The model sees the names of the arguments.

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
    fn search(&self, (city, nights): (String, u8)) -> u8 {
        city.len() as u8 + nights
    }
}

fn main() {}
