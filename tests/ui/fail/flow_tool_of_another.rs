//! An action calls the tools of its own flow.

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

#[flow(steps(Pay))]
#[derive(Clone)]
struct Other;

#[step(action, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Pay;

impl Action for Pay {
    type Flow = Other;
    async fn run(&mut self, cx: &mut ActionCx<'_, Other>) -> Result<PayNext> {
        let n = cx.tool(Charge).await?;
        Ok(PayNext::End(n.to_string()))
    }
}

#[tools(flow)]
impl Hotel {
    /// Charges.
    #[tool]
    fn charge(&self) -> u8 {
        1
    }
}

fn main() {}
