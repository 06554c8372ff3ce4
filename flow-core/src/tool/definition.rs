use std::any::Any;
use std::fmt;
use std::future::Future;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ToolPolicy, ToolReplay};
use crate::error::{StepError, ToolError};
use crate::id::SessionId;
use crate::step::Step;
use crate::transition::Transition;

/// What a tool returns. Any error becomes a [`StepError`] with `?`.
pub type ToolResult<T, E = StepError> = Result<T, E>;

/// A tool: what a model sees of it, and how a model's calls of it are made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// Its persisted name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema (draft 2020-12) of its arguments: an object.
    pub parameters: Value,
    /// Whether its calls may run at the same time as others, from `#[tool(parallel)]`. A tool
    /// of a step that was not made for it runs alone whatever this says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parallel: bool,
    /// Whether a call that a model asks for is made; `#[tool(ask)]` asks a person.
    #[serde(default, skip_serializing_if = "ToolPolicy::is_allow")]
    pub policy: ToolPolicy,
    /// What becomes of a call of an action that runs again, from `#[tool(replay = ..)]`. The
    /// same as [`ToolCall::REPLAY`].
    #[serde(default, skip_serializing_if = "ToolReplay::is_by_key")]
    pub replay: ToolReplay,
}

impl ToolDefinition {
    /// A tool whose calls run one after another and are allowed. `parameters` is the JSON
    /// Schema of its arguments: an object.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters,
            parallel: false,
            policy: ToolPolicy::Allow,
            replay: ToolReplay::ByKey,
        }
    }

    /// Lets its calls run at the same time as others.
    #[must_use]
    pub fn parallel(mut self) -> Self {
        self.parallel = true;
        self
    }

    /// Sets whether a call that a model asks for is made.
    #[must_use]
    pub fn policy(mut self, policy: ToolPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets what becomes of a call of an action that runs again.
    #[must_use]
    pub fn replay(mut self, replay: ToolReplay) -> Self {
        self.replay = replay;
        self
    }
}

/// What a call of a tool gave.
#[derive(Debug)]
pub struct ToolOutput {
    /// The result for the model.
    pub result: Value,
    /// The way out that the flow takes, if the tool moves it.
    pub next: Option<WayOut>,
}

/// A way out of a step, whatever the step's type.
pub struct WayOut {
    next: Box<dyn Any + Send + Sync>,
    transition: fn(Box<dyn Any + Send + Sync>) -> Transition,
}

impl WayOut {
    /// Takes a way out of the step `S`.
    pub fn new<S: Step>(next: S::Next) -> Self {
        Self {
            next: Box::new(next),
            transition: |next| match next.downcast::<S::Next>() {
                Ok(next) => S::transition(*next),
                Err(_) => unreachable!("`new` has put the next-enum of this step in"),
            },
        }
    }

    /// The next-enum of the step `S`, if it is one.
    pub fn of<S: Step>(&self) -> Option<&S::Next> {
        self.next.downcast_ref()
    }

    /// The transition that it stands for.
    pub fn into_transition(self) -> Transition {
        (self.transition)(self.next)
    }
}

impl fmt::Debug for WayOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WayOut(..)")
    }
}

/// A result for the model together with a way out of the step.
///
/// ```
/// # use flow_core::tool::ToolOutcome;
/// # enum ExploreNext { Checkout }
/// fn choose() -> ToolOutcome<&'static str, ExploreNext> {
///     ToolOutcome::new("room 12 is reserved for ten minutes").go(ExploreNext::Checkout)
/// }
/// assert!(choose().next.is_some());
/// ```
#[derive(Debug)]
pub struct ToolOutcome<T, N> {
    /// The result for the model.
    pub result: T,
    /// Where the flow goes; nothing to stay in the conversation.
    pub next: Option<N>,
}

impl<T, N> ToolOutcome<T, N> {
    /// A result that does not move the flow.
    pub fn new(result: T) -> Self {
        Self { result, next: None }
    }

    /// Moves the flow too.
    #[must_use]
    pub fn go(mut self, next: N) -> Self {
        self.next = Some(next);
        self
    }
}

/// What a tool of a flow knows about the call.
#[derive(Debug, Clone)]
pub struct ToolCx {
    session: SessionId,
    turn: String,
    step: String,
    idempotency_key: String,
    begun_before: bool,
}

impl ToolCx {
    /// For calling a tool outside of a turn, as tests do.
    pub fn new(
        session: SessionId,
        turn: impl Into<String>,
        step: impl Into<String>,
        idempotency_key: impl Into<String>,
    ) -> Self {
        Self {
            session,
            turn: turn.into(),
            step: step.into(),
            idempotency_key: idempotency_key.into(),
            begun_before: false,
        }
    }

    /// The session in which it is called.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The turn in which it is called.
    pub fn turn(&self) -> &str {
        &self.turn
    }

    /// The step that calls it.
    pub fn step(&self) -> &str {
        &self.step
    }

    /// A key that is the same when this call is made again after a crash, and different for
    /// every other call of the session. A service that honours it does the work once. A
    /// session that was deleted and made again under its old id uses its keys again.
    ///
    /// A model that is asked again may ask for something else, so the key of a call that a
    /// model has asked for tells its arguments apart too.
    pub fn idempotency_key(&self) -> &str {
        &self.idempotency_key
    }

    /// Whether this call was begun before and may have done its work: the process died in
    /// the middle of it, or of a later part of the step. Known only with
    /// `Durability::Effect`, else false. Of a tool that is called
    /// [always](ToolReplay::Always), whether an earlier run has called it, as far as is known.
    pub fn is_repeated(&self) -> bool {
        self.begun_before
    }

    pub(crate) fn begun_before(mut self) -> Self {
        self.begun_before = true;
        self
    }
}

/// A tool call as a value: the arguments of one tool of a flow.
///
/// An action makes the call with `cx.tool(Charge { cents: 12_000 })`. `#[tools(flow)]` makes
/// one such struct for each tool of a flow: the tool `charge` gets the struct `Charge`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a call of a tool of `{F}`",
    note = "`#[tools(flow)] impl {F}` makes a struct for each of its tools: `charge` gets `Charge`"
)]
pub trait ToolCall<F>: Serialize + Send + Sync + 'static {
    /// What the tool returns.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// The persisted name of the tool.
    const NAME: &'static str;

    /// What becomes of the call when the action runs again. The definition of the tool has to
    /// say the same.
    const REPLAY: ToolReplay = ToolReplay::ByKey;

    /// Makes the call.
    fn call(
        self,
        flow: &F,
        cx: &ToolCx,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;
}

/// The tools of a flow, as `#[tools(flow)]` writes them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` declares `tools` but has no `#[tools(flow)]` impl block",
    note = "write `#[tools(flow)] impl {Self} {{ .. }}` with at least one `#[tool]` method, or drop `tools`"
)]
pub trait FlowTools: Sized + Sync {
    /// The tools in source order.
    fn definitions() -> Vec<ToolDefinition>;

    /// Calls one by its name.
    fn call<'a>(
        &'a self,
        cx: &'a ToolCx,
        tool: &'a str,
        arguments: Value,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send + 'a;
}

impl ToolOutput {
    /// Where the flow goes, if the tool moves it.
    pub fn into_transition(self) -> Option<Transition> {
        self.next.map(WayOut::into_transition)
    }

    /// A result that does not move the flow.
    ///
    /// # Errors
    /// When the result cannot be written as JSON.
    pub fn value<T: Serialize>(tool: &str, result: T) -> Result<Self, ToolError> {
        let result = serde_json::to_value(result)
            .map_err(|e| ToolError::Result { tool: tool.to_owned(), reason: e.to_string() })?;
        Ok(Self { result, next: None })
    }
}
