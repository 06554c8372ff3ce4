//! A confirm step implements `Confirm`, not `Decide`.

use flow_core::prelude::*;

#[flow(steps(Check, Sure))]
#[derive(Clone)]
struct Hotel;

#[step(decide, confirm, next(Sure))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Check;

impl Decide for Check {
    type Flow = Hotel;
    type Verdict = bool;

    async fn verdict(&mut self, _: &mut StepCx<'_, Hotel>) -> Result<bool> {
        Ok(true)
    }

    async fn decide(&mut self, _: bool, _: &mut StepCx<'_, Hotel>) -> Result<CheckNext> {
        Ok(CheckNext::Sure)
    }
}

#[step(decide, confirm, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Sure;

impl Confirm for Sure {
    type Flow = Hotel;

    fn question(&self, _: &StepCx<'_, Hotel>) -> String {
        "Sure?".into()
    }

    async fn confirmed(&mut self, _: bool, _: &mut StepCx<'_, Hotel>) -> Result<SureNext> {
        Ok(SureNext::End("sure".into()))
    }
}

fn main() {}
