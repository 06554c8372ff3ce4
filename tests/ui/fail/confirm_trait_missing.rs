//! A confirm step implements `Confirm`, not `Decide`.

use flow_core::prelude::*;

#[flow(steps(Check))]
#[derive(Clone)]
struct Hotel;

#[step(decide, confirm, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Check;

impl Decide for Check {
    type Flow = Hotel;
    type Verdict = bool;

    async fn verdict(&mut self, _: &mut StepCx<'_, Hotel>) -> Result<bool> {
        Ok(true)
    }

    async fn decide(&mut self, _: bool, _: &mut StepCx<'_, Hotel>) -> Result<CheckNext> {
        Ok(CheckNext::Stay)
    }
}

fn main() {}
