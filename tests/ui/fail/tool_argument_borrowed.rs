//! Arguments are owned.

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
    fn search(&self, city: &str) -> u8 {
        city.len() as u8
    }

    /// Finds.
    #[tool]
    fn find(&self, cx: &StepCx<'_, Hotel>, city: &String) -> u8 {
        let _ = cx;
        city.len() as u8
    }
}

fn main() {}
