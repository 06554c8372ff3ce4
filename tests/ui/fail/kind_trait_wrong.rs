//! A step implements the trait of its own kind.

use flow_core::prelude::*;

#[flow(steps(Pay))]
#[derive(Clone)]
struct Hotel;

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Pay;

impl Action for Pay {
    type Flow = Hotel;
    async fn run(&mut self, _: &mut ActionCx<'_, Hotel>) -> Result<PayNext> {
        Ok(PayNext::End(String::new()))
    }
}

fn main() {}
