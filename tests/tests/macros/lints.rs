//! Code of a user who denies every lint that generated code could trip over.
#![deny(
    warnings,
    missing_docs,
    unreachable_pub,
    unused,
    private_interfaces,
    private_bounds,
    non_local_definitions,
    clippy::all,
    clippy::pedantic,
    elided_lifetimes_in_paths,
    let_underscore_drop,
    missing_debug_implementations,
    unit_bindings,
    unused_lifetimes,
    unused_qualifications
)]

use flow_core::prelude::*;
use flow_core::tool::FlowTools;

/// A flow.
#[flow(steps(Form1, Talk), tools)]
#[derive(Debug, Clone)]
pub(crate) struct Plain;

impl Flow for Plain {}

/// A form.
#[step(collect, next(Talk(Payload), stay))]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Form1 {
    /// A name.
    #[slot(whole_message)]
    name: Option<String>,
    /// An age, which nothing reads.
    #[slot(range(0, 130), optional)]
    age: Option<u8>,
}

impl Collect for Form1 {
    type Flow = Plain;
    async fn complete(&mut self, data: Form1Data, _: &mut StepCx<'_, Plain>) -> Result<Form1Next> {
        Ok(Form1Next::Talk(Payload { name: data.name }))
    }
}

/// A payload, as visible as the step that gives it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Payload {
    name: String,
}

/// A step.
#[step(reply, tools, input = Payload, next(end, stay))]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Talk {
    /// How many calls there were.
    calls: u32,
}

impl Reply for Talk {
    type Flow = Plain;
    fn response(&self, _: &StepCx<'_, Plain>) -> Option<String> {
        Some(format!("{} calls", self.calls))
    }
}

/// An argument that only this module sees.
#[derive(Debug, Deserialize, JsonSchema)]
struct Private {
    /// Added up.
    numbers: Vec<u32>,
}

#[tools]
impl Talk {
    /// Counts.
    #[tool]
    fn count(&mut self, private: Private) -> u32 {
        self.calls += private.numbers.into_iter().sum::<u32>();
        self.calls
    }

    /// Waits and leaves.
    #[tool]
    async fn leave(&mut self, _cx: &mut StepCx<'_, Plain>) -> Result<TalkNext> {
        std::future::ready(()).await;
        Ok(TalkNext::End("left".to_owned()))
    }

    /// Is not used any more.
    #[deprecated]
    #[tool]
    fn old(&self, a: u32, #[serde(default)] b: u32) -> u32 {
        self.calls + a + b
    }
}

#[tools(flow)]
impl Plain {
    /// Adds.
    #[tool]
    pub(crate) fn add(&self, a: u32, b: u32) -> Result<u32> {
        let _ = self;
        a.checked_add(b).ok_or_else(|| StepError::terminal("too much"))
    }

    /// Only for this module.
    #[tool]
    async fn own(&self, a: u32) -> u32 {
        std::future::ready(a).await
    }
}

#[test]
fn everything_is_there_all_the_same() {
    let names: Vec<String> = <Talk as Step>::tools().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["count", "leave", "old"]);
    assert_eq!(Plain::definitions().len(), 2);
    assert_eq!((Add { a: 1, b: 2 }.a, Own { a: 1 }.a), (1, 1));
    assert_eq!(Form1::slots().len(), 2);
}
