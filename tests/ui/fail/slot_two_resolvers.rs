//! A slot is read in one way.

use flow_core::prelude::*;

#[flow(steps(Form))]
#[derive(Clone)]
struct Hotel;

#[step(collect, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Form {
    #[slot(whole_message, range(1, 8))]
    guests: Option<u8>,
}

impl Collect for Form {
    type Flow = Hotel;
    async fn complete(&mut self, _: FormData, _: &mut StepCx<'_, Hotel>) -> Result<FormNext> {
        Ok(FormNext::End(String::new()))
    }
}

fn main() {}
