//! A model sends values of known types.

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
    fn search<T: ToString>(&self, city: T) -> String {
        city.to_string()
    }

    /// Finds.
    #[tool]
    fn find(&self, city: impl ToString) -> String {
        city.to_string()
    }
}

fn main() {}
