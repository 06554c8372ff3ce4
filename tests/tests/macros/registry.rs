//! What only the whole flow shows is refused when the engine is built.

use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::{Engine, Error};

/// Tries to build an engine that runs a flow.
fn refusal<F: Flow>(flow: F) -> Error {
    Engine::builder().store(MemoryStore::new()).flow(flow).build().expect_err("a refusal")
}

macro_rules! reply_step {
    ($name:ident of $flow:ident, $($keys:tt)*) => {
        #[step(reply, next(stay), $($keys)*)]
        #[derive(Default, Serialize, Deserialize, JsonSchema)]
        struct $name;

        impl Reply for $name {
            type Flow = $flow;
        }
    };
}

#[flow(steps(Ask), tools)]
#[derive(Clone)]
struct Shared;

impl Flow for Shared {}

reply_step!(Ask of Shared, tools);

#[tools]
impl Ask {
    /// Searches here.
    #[tool]
    fn search(&self) {}
}

#[tools(flow)]
impl Shared {
    /// Searches everywhere.
    #[tool]
    fn search(&self) {}
}

#[test]
fn a_step_and_its_flow_cannot_offer_tools_of_one_name() {
    let error = refusal(Shared);
    assert_eq!(error.code(), "duplicate-tool");
    let text = error.to_string();
    assert!(
        text.contains("`Shared`") && text.contains("Ask") && text.contains("`search`"),
        "{text}"
    );
}

#[flow(steps(Twice))]
#[derive(Clone)]
struct Conditional;

impl Flow for Conditional {}

reply_step!(Twice of Conditional, tools);

#[tools]
impl Twice {
    /// There in tests.
    #[cfg(test)]
    #[tool]
    fn first(&self) {}

    /// There in tests too.
    #[cfg(test)]
    #[tool(name = "first")]
    fn second(&self) {}
}

#[test]
fn two_conditional_tools_cannot_both_be_there_under_one_name() {
    assert_eq!(refusal(Conditional).code(), "duplicate-tool");
}

#[flow(steps(Old))]
#[derive(Clone)]
struct Growing;

impl Flow for Growing {
    fn define_steps(&self, steps: Steps<Self>) -> Steps<Self> {
        steps.add::<New>()
    }
}

reply_step!(Old of Growing,);
reply_step!(New of Growing, alias("Old"));

#[test]
fn a_step_that_is_added_cannot_take_the_name_of_another() {
    let error = refusal(Growing);
    assert_eq!(error.code(), "duplicate-step");
    assert!(error.to_string().contains("`Old`"), "{error}");
}
