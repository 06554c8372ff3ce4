use std::fmt;
use std::future::Future;
use std::pin::Pin;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FlowOf, StepCx, StepKind, Steps};
use crate::error::ToolError;
use crate::tool::{ToolCx, ToolDefinition, ToolOutput};
use crate::transition::{Input, Next, Payload, Target, Transition};

/// What `#[flow]` implements for a flow: its names, its state and its registry.
///
/// The hooks that a user overrides are in [`Flow`](crate::flow::Flow).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a flow",
    label = "this has to be a struct with `#[flow(..)]`",
    note = "`#[flow(id = \"..\", version = 1, steps(..))]` on the struct makes it one"
)]
pub trait FlowMeta: Clone + Send + Sync + Sized + 'static {
    /// The state that all steps share; `()` for none.
    type State: Serialize + DeserializeOwned + JsonSchema + Default + Send + Sync + 'static;

    /// The persisted id. It outlives a rename of the struct.
    const ID: &'static str;

    /// The version of the session documents that this program writes.
    const VERSION: u32;

    /// The doc comment of the struct.
    const DOC: &'static str = "";

    /// The model of the flow, as `provider::name`, from `#[flow(model = "..")]`.
    const MODEL: Option<&'static str> = None;

    /// The steps in the order in which they are declared; the first one is the start.
    fn steps() -> Steps<Self>;

    /// The tools of the flow itself.
    fn tools() -> Vec<ToolDefinition> {
        Vec::new()
    }

    /// Calls a tool of the flow by its name.
    fn call_tool<'a>(&'a self, cx: &'a ToolCx, tool: &'a str, arguments: Value) -> ToolFuture<'a> {
        let _ = (cx, arguments);
        no_tool(tool)
    }
}

/// A flow that lists a step. `#[flow(steps(..))]` implements it for each.
#[diagnostic::on_unimplemented(
    message = "the flow `{Self}` does not list the step `{S}`",
    label = "not in the `steps(..)` of `{Self}`",
    note = "add `{S}` to `#[flow(.., steps(..))]` on `{Self}`"
)]
pub trait HasStep<S> {}

/// The kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// Speaks.
    Reply,
    /// Fills a form.
    Collect,
    /// Does work.
    Action,
    /// Branches on structured data.
    Decide,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reply => "reply",
            Self::Collect => "collect",
            Self::Action => "action",
            Self::Decide => "decide",
        })
    }
}

/// The kinds of steps as types, for [`Step::Kind`].
pub mod kind {
    /// The step implements [`Reply`](super::super::Reply).
    #[derive(Debug)]
    pub enum Reply {}
    /// The step implements [`Collect`](super::super::Collect).
    #[derive(Debug)]
    pub enum Collect {}
    /// The step implements [`Action`](super::super::Action).
    #[derive(Debug)]
    pub enum Action {}
    /// The step implements [`Decide`](super::super::Decide).
    #[derive(Debug)]
    pub enum Decide {}
    /// The step implements [`Confirm`](super::super::Confirm). It is of the kind
    /// [`Kind::Decide`](super::Kind::Decide).
    #[derive(Debug)]
    pub enum Confirm {}
}

/// What `#[step]` implements for a step: its names, its input and its ways out.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a step",
    label = "this has to be a struct with `#[step(..)]`",
    note = "`#[step(reply | collect | action | decide, next(..))]` on the struct makes it one"
)]
pub trait Step:
    Serialize + DeserializeOwned + JsonSchema + Default + Send + Sync + Sized + 'static
{
    /// One of the types in [`kind`].
    type Kind;

    /// What the step is entered with; `()` for nothing.
    type Input: Input;

    /// The ways out: the enum that `next(..)` makes.
    type Next: Next;

    /// The ways out in source order.
    const TARGETS: &'static [Target];

    /// The persisted name. It defaults to the name of the struct and can be fixed with `id`.
    const NAME: &'static str;

    /// Names under which documents written before a rename know the step.
    const ALIASES: &'static [&'static str] = &[];

    /// The memory namespace; nothing for the flow's main one.
    const MEMORY: Option<&'static str> = None;

    /// The model that speaks for the step, as `provider::name`; nothing for the flow's.
    const MODEL: Option<&'static str> = None;

    /// The doc comment of the struct.
    const DOC: &'static str = "";

    /// The transition that a way out stands for.
    fn transition(next: Self::Next) -> Transition;

    /// Whether a way out stays at the step.
    fn is_stay(next: &Self::Next) -> bool;

    /// The tools of the step: those of its `#[tools]` block, or none.
    fn tools() -> Vec<ToolDefinition> {
        Vec::new()
    }
}

impl Transition {
    /// Goes to a step with the payload that it declares; `()` for none.
    ///
    /// For hooks that return a [`Transition`]; a step returns its own next-enum.
    pub fn go<S: Step>(input: S::Input) -> Self {
        Self::enter(S::NAME, Payload::new(input))
    }

    fn enter(step: &'static str, input: Payload) -> Self {
        Self::Go { step: step.into(), input }
    }
}

/// The tools of a step, as `#[tools]` writes them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` declares `tools` but has no `#[tools]` impl block",
    note = "write `#[tools] impl {Self} {{ .. }}` with at least one `#[tool]` method, or drop `tools`"
)]
pub trait StepTools: Step<Kind: StepKind<Self>> {
    /// The tools in source order.
    fn definitions() -> Vec<ToolDefinition>;

    /// Calls one by its name.
    fn call<'a>(
        &'a mut self,
        cx: &'a mut StepCx<'_, FlowOf<Self>>,
        tool: &'a str,
        arguments: Value,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send + 'a;
}

/// A call of a tool that runs.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<ToolOutput, ToolError>> + Send + 'a>>;

fn no_tool<'a>(tool: &str) -> ToolFuture<'a> {
    let error = ToolError::Unknown { tool: tool.to_owned(), known: "none".to_owned() };
    Box::pin(std::future::ready(Err(error)))
}

/// The tools that a model may call while it speaks for a reply step. `#[step(reply)]`
/// implements it: with those of the `#[tools]` block, or with none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which tools a model may call for it",
    note = "`#[step(reply, ..)]` does; by hand: `impl ToolHost for {Self} {{ type Flow = ..; }}`"
)]
pub trait ToolHost {
    /// The flow of the step.
    type Flow: FlowMeta;

    /// Calls a tool of the step by its name.
    fn call_tool<'a>(
        &'a mut self,
        cx: &'a mut StepCx<'_, Self::Flow>,
        tool: &'a str,
        arguments: Value,
    ) -> ToolFuture<'a> {
        let _ = (cx, arguments);
        no_tool(tool)
    }
}

/// A step or flow whose `tools` are registered: `#[step(.., tools)]` or `#[flow(.., tools)]`.
#[diagnostic::on_unimplemented(
    message = "the tools of `{Self}` are not registered",
    label = "no `tools` in the `#[step(..)]` or `#[flow(..)]` of `{Self}`",
    note = "write `#[step(.., tools)]` on the step, or `#[flow(.., tools)]` on the flow"
)]
pub trait ToolsRegistered {}

/// The instructions of a reply step for the model: its system prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt(String);

impl Prompt {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Prompt {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}
