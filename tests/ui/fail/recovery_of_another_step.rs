//! A step recovers with its own ways out.

use flow_core::model::ModelError;
use flow_core::prelude::*;

#[flow(steps(Hi, Bye))]
#[derive(Clone)]
struct Hotel;

impl Flow for Hotel {}

#[step(reply, next(Bye))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Hi;

impl Reply for Hi {
    type Flow = Hotel;

    async fn on_model_error(
        &mut self,
        _: &ModelError,
        _: &mut StepCx<'_, Hotel>,
    ) -> Result<Recovery<HiNext>> {
        Ok(Recovery::Go(ByeNext::End("no model".into())))
    }
}

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

fn main() {}
