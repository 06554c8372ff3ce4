//! A confirm step is a decide step.

use flow_core::prelude::*;

#[flow(steps(Talk, Bye))]
#[derive(Clone)]
struct Hotel;

#[step(reply, confirm, next(Bye))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Hotel;
}

#[step(confirm = "yes", decide, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Confirm for Bye {
    type Flow = Hotel;

    fn question(&self, _: &StepCx<'_, Hotel>) -> String {
        "Bye?".into()
    }

    async fn confirmed(&mut self, _: bool, _: &mut StepCx<'_, Hotel>) -> Result<ByeNext> {
        Ok(ByeNext::End("bye".into()))
    }
}

fn main() {}
