//! A tool that moves the flow runs alone.

use flow_core::prelude::*;

#[flow(steps(Talk))]
#[derive(Clone)]
struct Hotel;

impl Flow for Hotel {}

#[step(reply, tools, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Hotel;
}

#[tools]
impl Talk {
    /// Ends.
    #[tool(parallel)]
    async fn leave(&self) -> Result<TalkNext> {
        Ok(TalkNext::End("done".into()))
    }
}

fn main() {}
