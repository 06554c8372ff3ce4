//! What a method with `#[tool]` may return, told apart by trait and not by name.
//!
//! The same call means different things for different types, so the choice is made by
//! method lookup: of the implementations of `tag` the one behind the most references that
//! fits is taken. A call looks like this:
//!
//! ```text
//! let value = (&&&&probe(&returned)).failure().take(tool, returned)?;
//! (&&&&probe(&value)).value().output(step::<S>(), tool, value)
//! ```

use std::error::Error as StdError;
use std::marker::PhantomData;

use serde::Serialize;
use serde_json::Value;

use super::{ToolCall, ToolCx, ToolOutcome, ToolOutput, WayOut};
use crate::error::{StepError, ToolError};
use crate::step::Step;
use crate::transition::Next;

/// Stands for a type in method lookup.
#[derive(Debug)]
pub struct Probe<R>(PhantomData<fn() -> R>);

/// Stands for the type of a value.
pub fn probe<R>(_: &R) -> Probe<R> {
    Probe(PhantomData)
}

/// Stands for the step that has the tool.
pub fn step<S: Step>() -> PhantomData<fn() -> S> {
    PhantomData
}

macro_rules! tags {
    ($($(#[$doc:meta])* $tag:ident;)*) => {
        $($(#[$doc])* #[derive(Debug)] pub struct $tag;)*
    };
}

tags! {
    /// A `Result` with an error of this crate or any [`std::error::Error`].
    Fails;
    /// A `Result` with what can be boxed as an error: a text, `anyhow::Error`.
    FailsBoxed;
    /// A `Result` with something else.
    FailsOddly;
    /// Not a `Result`.
    Succeeds;
    /// A [`ToolOutcome`].
    Outcome;
    /// A next-enum.
    Moves;
    /// A result for the model.
    Speaks;
    /// None of these.
    Odd;
}

type Boxed = Box<dyn StdError + Send + Sync>;

/// Lookup of the failure, first choice.
pub trait FailureA {
    /// The choice.
    fn failure(&self) -> Fails {
        Fails
    }
}
impl<T, E: Into<StepError>> FailureA for &&&Probe<Result<T, E>> {}

/// Lookup of the failure, second choice.
pub trait FailureB {
    /// The choice.
    fn failure(&self) -> FailsBoxed {
        FailsBoxed
    }
}
impl<T, E: Into<Boxed>> FailureB for &&Probe<Result<T, E>> {}

/// Lookup of the failure, third choice.
pub trait FailureC {
    /// The choice.
    fn failure(&self) -> FailsOddly {
        FailsOddly
    }
}
impl<T, E> FailureC for &Probe<Result<T, E>> {}

/// Lookup of the failure, last choice.
pub trait FailureD {
    /// The choice.
    fn failure(&self) -> Succeeds {
        Succeeds
    }
}
impl<T> FailureD for Probe<T> {}

/// The error of a tool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error that a tool can return",
    label = "this error type does not implement `std::error::Error`",
    note = "a tool fails with any `std::error::Error + Send + Sync`, a `StepError`, a text or an `anyhow::Error`"
)]
pub trait Failure: std::fmt::Display {}

#[diagnostic::do_not_recommend]
impl<E: StdError + Send + Sync> Failure for E {}

fn failed(tool: &str, error: StepError) -> ToolError {
    ToolError::Failed {
        tool: tool.to_owned(),
        reason: error.to_string(),
        retryable: error.retryable(),
    }
}

impl Fails {
    /// The value, or the error as one of a tool.
    ///
    /// # Errors
    /// What the tool returned.
    pub fn take<T, E: Into<StepError>>(
        self,
        tool: &str,
        returned: Result<T, E>,
    ) -> Result<T, ToolError> {
        returned.map_err(|error| failed(tool, error.into()))
    }
}

impl FailsBoxed {
    /// The value, or the error as one of a tool.
    ///
    /// # Errors
    /// What the tool returned.
    pub fn take<T, E: Into<Boxed>>(
        self,
        tool: &str,
        returned: Result<T, E>,
    ) -> Result<T, ToolError> {
        returned.map_err(|error| failed(tool, StepError::new(error.into().to_string())))
    }
}

impl FailsOddly {
    /// Never compiles: the error type is wrong.
    ///
    /// # Errors
    /// Never.
    pub fn take<T, E: Failure>(self, tool: &str, returned: Result<T, E>) -> Result<T, ToolError> {
        returned.map_err(|error| failed(tool, StepError::new(error.to_string())))
    }
}

impl Succeeds {
    /// The value.
    ///
    /// # Errors
    /// Never.
    pub fn take<T>(self, _: &str, returned: T) -> Result<T, ToolError> {
        Ok(returned)
    }
}

/// Lookup of the value, first choice.
pub trait ValueA {
    /// The choice.
    fn value(&self) -> Outcome {
        Outcome
    }
}
impl<T, N> ValueA for &&&Probe<ToolOutcome<T, N>> {}

/// Lookup of the value, second choice.
pub trait ValueB {
    /// The choice.
    fn value(&self) -> Moves {
        Moves
    }
}
impl<N: Next> ValueB for &&Probe<N> {}

/// Lookup of the value, third choice.
pub trait ValueC {
    /// The choice.
    fn value(&self) -> Speaks {
        Speaks
    }
}
impl<T: Serialize> ValueC for &Probe<T> {}

/// Lookup of the value, last choice.
pub trait ValueD {
    /// The choice.
    fn value(&self) -> Odd {
        Odd
    }
}
impl<T> ValueD for Probe<T> {}

/// The value that a tool of a step returns.
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    label = "not `Serialize`, and not a way out of the step",
    note = "a tool returns anything that is `Serialize`, the next-enum of its step, a `ToolOutcome` of both, or a `Result` of one of these"
)]
pub trait Returned: Serialize {}

#[diagnostic::do_not_recommend]
impl<T: Serialize> Returned for T {}

/// The next-enum of the step that has the tool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the next-enum of the step `{S}`",
    label = "the ways out of `{S}` are in `{Own}`",
    note = "a tool moves the flow along a way out of its own step"
)]
pub trait OwnNext<S, Own> {
    /// The same value.
    fn own(self) -> Own;
}

impl<S, N> OwnNext<S, N> for N {
    fn own(self) -> N {
        self
    }
}

impl Outcome {
    /// The result and the way out.
    ///
    /// # Errors
    /// When the result cannot be written as JSON.
    pub fn output<S: Step, T: Returned, N: OwnNext<S, S::Next>>(
        self,
        _: PhantomData<fn() -> S>,
        tool: &str,
        outcome: ToolOutcome<T, N>,
    ) -> Result<ToolOutput, ToolError> {
        let mut output = ToolOutput::value(tool, outcome.result)?;
        output.next = outcome.next.map(|next| WayOut::new::<S>(next.own()));
        Ok(output)
    }
}

impl Moves {
    /// The way out.
    ///
    /// # Errors
    /// Never.
    pub fn output<S: Step, N: OwnNext<S, S::Next>>(
        self,
        _: PhantomData<fn() -> S>,
        _: &str,
        next: N,
    ) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput { result: Value::Null, next: Some(WayOut::new::<S>(next.own())) })
    }
}

impl Speaks {
    /// The result.
    ///
    /// # Errors
    /// When the result cannot be written as JSON.
    pub fn output<S: Step, T: Serialize>(
        self,
        _: PhantomData<fn() -> S>,
        tool: &str,
        result: T,
    ) -> Result<ToolOutput, ToolError> {
        ToolOutput::value(tool, result)
    }
}

impl Odd {
    /// Never compiles: the type is wrong.
    ///
    /// # Errors
    /// Never.
    pub fn output<S: Step, T: Returned>(
        self,
        _: PhantomData<fn() -> S>,
        tool: &str,
        result: T,
    ) -> Result<ToolOutput, ToolError> {
        ToolOutput::value(tool, result)
    }
}

/// What a tool of a flow may return: a value. The step that calls it moves the flow.
#[diagnostic::on_unimplemented(
    message = "a tool of a flow cannot move it",
    label = "this is a way out of a step",
    note = "a tool of a flow returns a value; the step that calls the tool says where the flow goes"
)]
pub trait Still {}
impl Still for Speaks {}
impl Still for Odd {}

/// Compiles for what is not a way out of a step.
pub fn still<V: Still>(_: V) {}

/// What a parallel tool of a step may return: a value.
#[diagnostic::on_unimplemented(
    message = "a tool that moves the flow cannot be `parallel`",
    label = "this is a way out of the step",
    note = "of calls that run at the same time none is first, so none can say where the flow goes: drop `parallel`, or return a value"
)]
pub trait Steady {}
impl Steady for Speaks {}
impl Steady for Odd {}

/// Compiles for what is not a way out of a step.
pub fn steady<V: Steady>(value: V) -> V {
    value
}

/// A `Result`, whatever its alias is called.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is called a result but is not one",
    note = "a tool of a flow returns a value, or a `Result` under a name that ends in `Result`"
)]
pub trait Fallible {
    /// What it holds on success.
    type Value;
}

impl<T, E> Fallible for Result<T, E> {
    type Value = T;
}

/// Not a `Result`, so that the value is what the caller gets.
#[diagnostic::on_unimplemented(
    message = "this tool of a flow returns a `Result` under another name",
    label = "the name of this type does not end in `Result`",
    note = "write `Result<..>` or an alias whose name ends in `Result`, so that the call gives the value"
)]
pub trait Infallible {}
impl Infallible for Succeeds {}

/// The value of what is not a `Result`.
///
/// # Errors
/// Never.
pub fn infallible<I: Infallible, T>(_: I, returned: T) -> Result<T, ToolError> {
    Ok(returned)
}

/// Makes a call of a flow's tool and writes its result as JSON.
///
/// # Errors
/// What the tool returned, and when its result cannot be written as JSON.
pub async fn answer<F: Sync, C: ToolCall<F>>(
    flow: &F,
    cx: &ToolCx,
    call: C,
) -> Result<ToolOutput, ToolError> {
    ToolOutput::value(C::NAME, call.call(flow, cx).await?)
}
