//! A form has a slot.

use flow_core::prelude::*;

#[flow(steps(Form))]
#[derive(Clone)]
struct Hotel;

#[step(collect, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Form {
    name: Option<String>,
}

impl Collect for Form {
    type Flow = Hotel;
    async fn complete(&mut self, _: FormData, _: &mut StepCx<'_, Hotel>) -> Result<FormNext> {
        Ok(FormNext::End(String::new()))
    }
}

fn main() {}
