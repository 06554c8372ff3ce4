//! A flow for others to hand a conversation to.

use flow_core::prelude::*;

/// Greets, and ends when it hears `bye`.
#[flow(id = "other", version = 1, steps(Listen))]
#[derive(Debug, Clone)]
pub struct Other;

impl Flow for Other {}

/// Listens.
#[step(action, next(stay, end))]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Listen;

impl Action for Listen {
    type Flow = Other;

    async fn run(&mut self, cx: &mut ActionCx<'_, Other>) -> Result<ListenNext> {
        if cx.take_message().is_some_and(|text| text == "bye") {
            return Ok(ListenNext::End("heard enough".into()));
        }
        cx.say("This is the other flow.");
        Ok(ListenNext::Stay)
    }
}
