//! A step leaves only by what `next(..)` declares.

use flow_core::prelude::*;

#[flow(steps(Pay, Bye))]
#[derive(Clone)]
struct Hotel;

#[step(action, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Pay;

impl Action for Pay {
    type Flow = Hotel;
    async fn run(&mut self, _: &mut ActionCx<'_, Hotel>) -> Result<PayNext> {
        Ok(PayNext::Bye)
    }
}

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

fn main() {}
