//! The tools that a step offers are tools of its flow.

use flow_core::prelude::*;

#[flow(steps(Misspelled, NoTool, Foreign), tools)]
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

#[step(reply, flow_tools(Chrage), next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Misspelled;

impl Reply for Misspelled {
    type Flow = Hotel;
}

#[derive(Serialize)]
struct Room;

#[step(reply, flow_tools(Charge, Room), next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct NoTool;

impl Reply for NoTool {
    type Flow = Hotel;
}

#[flow(steps(Talk))]
#[derive(Clone)]
struct Other;

#[step(reply, flow_tools(Charge), next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Other;
}

#[step(reply, flow_tools(Charge), next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Foreign;

impl Reply for Foreign {
    type Flow = Hotel;
}

fn main() {}
