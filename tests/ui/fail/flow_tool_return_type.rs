//! The result of a tool of the flow is journaled.

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

#[derive(Serialize)]
struct Receipt;

#[tools(flow)]
impl Hotel {
    /// Charges.
    #[tool]
    async fn charge(&self) -> Result<Receipt> {
        Ok(Receipt)
    }
}

fn main() {}
