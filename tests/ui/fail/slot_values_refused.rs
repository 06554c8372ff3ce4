//! Resolvers are checked.

use flow_core::prelude::*;

#[flow(steps(Form))]
#[derive(Clone)]
struct Hotel;

#[step(collect, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Form {
    #[slot(range(8, 1))]
    a: Option<u8>,
    #[slot(range(1))]
    b: Option<u8>,
    #[slot(one_of())]
    c: Option<String>,
    #[slot(one_of("card", "Card", ""))]
    d: Option<String>,
    #[slot(pattern(7))]
    e: Option<String>,
    #[slot(range("a", "b"))]
    f: Option<u8>,
    #[slot = "x"]
    g: Option<u8>,
}

impl Collect for Form {
    type Flow = Hotel;
    async fn complete(&mut self, _: FormData, _: &mut StepCx<'_, Hotel>) -> Result<FormNext> {
        Ok(FormNext::End(String::new()))
    }
}

fn main() {}
