//! Parameters of a model are checked by name, by type and by range.

use flow_core::prelude::*;

#[flow(
    steps(Hi, Bye, Work),
    model = "openai::gpt-5.1-mini",
    sampling(temprature = 0.2, temperature = "hot", top_p = 1.5, max_output_tokens = 0.5, top_k = 40),
)]
#[derive(Clone)]
struct Hotel;

#[step(
    reply,
    next(Bye),
    sampling(
        temperature = -1,
        max_output_tokens = 0,
        reasoning_effort = low,
        seed = -7,
        top_p,
        extra(api_key = "sk-1", seed = 7, tier = flex, "tier" = "flex", tier = 1, big = 99999999999999999999),
    )
)]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Hi;

impl Reply for Hi {
    type Flow = Hotel;
}

#[step(reply, next(end), sampling(), model = "openai::gpt-5.1-mini")]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

#[step(action, next(end), sampling(seed = 7))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Work;

impl Action for Work {
    type Flow = Hotel;

    async fn run(&mut self, _: &mut ActionCx<'_, Hotel>) -> Result<WorkNext> {
        Ok(WorkNext::End("done".into()))
    }
}

fn main() {}
