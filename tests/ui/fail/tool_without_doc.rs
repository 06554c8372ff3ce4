//! The doc comment tells the model what the tool does.

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
    #[tool]
    fn search(&self) -> u8 {
        1
    }

    ///
    #[tool]
    fn find(&self) -> u8 {
        1
    }
}

fn main() {}
