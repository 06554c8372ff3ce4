//! A tool of the flow does not move it.

use flow_core::prelude::*;

#[flow(steps(Bye), tools)]
#[derive(Clone)]
struct Hotel;

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

#[tools(flow)]
impl Hotel {
    /// Charges.
    #[tool]
    fn charge(&self) -> ByeNext {
        ByeNext::End(String::new())
    }
}

fn main() {}
