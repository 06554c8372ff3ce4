//! Which tools of its flow a reply step offers.

use flow_core::prelude::*;

#[flow(steps(Word, Nothing, Empty, Twice, Work), tools)]
#[derive(Clone)]
struct Hotel;

impl Flow for Hotel {}

#[tools(flow)]
impl Hotel {
    /// Charges.
    #[tool]
    fn charge(&self) -> u8 {
        1
    }
}

#[step(reply, flow_tools = all, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Word;

#[step(reply, flow_tools, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Nothing;

#[step(reply, flow_tools(), next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Empty;

#[step(reply, flow_tools(Charge, Charge), next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Twice;

#[step(action, flow_tools(Charge), next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Work;

impl Reply for Word {
    type Flow = Hotel;
}
impl Reply for Nothing {
    type Flow = Hotel;
}
impl Reply for Empty {
    type Flow = Hotel;
}
impl Reply for Twice {
    type Flow = Hotel;
}
impl Action for Work {
    type Flow = Hotel;
    async fn run(&mut self, _: &mut ActionCx<'_, Hotel>) -> Result<WorkNext> {
        Ok(WorkNext::Stay)
    }
}

fn main() {}
