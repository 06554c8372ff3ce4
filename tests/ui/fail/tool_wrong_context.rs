//! The context is that of the step.

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

#[flow(steps(Bye))]
#[derive(Clone)]
struct Other;

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Other;
}

#[tools]
impl Talk {
    /// Searches.
    #[tool]
    fn search(&self, cx: &mut StepCx<'_, Other>) -> u8 {
        let _ = cx;
        1
    }

    /// Finds.
    #[tool]
    fn find(&self, cx: &ToolCx) -> u8 {
        let _ = cx;
        1
    }
}

fn main() {}
