//! What the macros name. Not part of the public API: it may change in any release.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;

use crate::transition::Transition;

pub use crate::error::ToolError;
pub use crate::memory::ContextStrategy;
pub use crate::model::Sampling;
pub use crate::step::{
    Action, Collect, Confirm, Decide, Exposure, FlowMeta, FlowOf, Form, HasStep, Pattern, Reply,
    Resolver, Slot, SlotField, Step, StepCx, StepKind, StepTools, Steps, ToolFuture, ToolHost,
    ToolsRegistered, kind,
};
pub use crate::tool::{
    FlowTools, ToolCall, ToolCx, ToolDefinition, ToolOutput, ToolPolicy, ToolReplay, returns,
    signature,
};
pub use crate::transition::{HandOff, Next, Target, Transition as Way};
pub use {schemars, serde, serde_json, std};

/// The payload with which a way out enters a step.
#[diagnostic::on_unimplemented(
    message = "the step `{S}` is entered with `{Input}`, not with `{Self}`",
    label = "the payload has to be `{Input}`",
    note = "the payload in `next(..)` is the step's own `input`: `next({S}({Input}))`, and `next({S})` for a step without one"
)]
pub trait PayloadOf<S, Input> {
    /// The same value.
    fn input(self) -> Input;
}

impl<S, I> PayloadOf<S, I> for I {
    fn input(self) -> I {
        self
    }
}

/// The transition of a way out that enters a step.
pub fn go<S: Step, P: PayloadOf<S, S::Input>>(payload: P) -> Transition {
    Transition::go::<S>(payload.input())
}

/// A step to which the steps of a flow may lead.
#[diagnostic::on_unimplemented(
    message = "the flow `{F}` does not list a step `{Self}`",
    label = "not in the `steps(..)` of `{F}`",
    note = "a way out leads to a struct with `#[step(..)]` that is listed in `#[flow(.., steps(..))]` on `{F}`"
)]
pub trait Reach<F> {
    /// The step as a target.
    const TARGET: Target;
}

#[diagnostic::do_not_recommend]
impl<F: HasStep<S>, S: Step> Reach<F> for S {
    const TARGET: Target = Target::Step(Cow::Borrowed(S::NAME));
}

/// A step that a flow may list.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a step of the flow `{F}`",
    label = "not a step of `{F}`",
    note = "a step of `{F}` is a struct with `#[step(..)]` that implements the trait of its kind with `type Flow = {F}`"
)]
pub trait StepOf<F: FlowMeta>: Sized {
    /// The names to which the step answers.
    const NAMES: Names;

    /// Adds the step to a registry.
    fn add(steps: Steps<F>) -> Steps<F>;
}

#[diagnostic::do_not_recommend]
impl<F: FlowMeta, S: Step> StepOf<F> for S
where
    S::Kind: StepKind<S, Flow = F>,
{
    const NAMES: Names = (S::NAME, S::ALIASES);

    fn add(steps: Steps<F>) -> Steps<F> {
        steps.add::<S>()
    }
}

/// The persisted name of a step, and its aliases.
pub type Names = (&'static str, &'static [&'static str]);

/// The name to which two steps answer, in a message.
pub struct Clash([u8; 512], usize);

impl Clash {
    /// The message.
    pub const fn as_str(&self) -> &str {
        match std::str::from_utf8(self.0.split_at(self.1).0) {
            Ok(text) => text,
            // A long name was cut within a letter.
            Err(_) => "two steps answer to one persisted name",
        }
    }
}

/// Finds two steps that answer to one name.
pub const fn find_clash(names: &[Names]) -> Option<Clash> {
    let mut i = 0;
    while i < names.len() {
        let mut j = 0;
        while j < i {
            if let Some(name) = shared(names[i], names[j]) {
                let mut text = [0; 512];
                let mut end = append(&mut text, 0, "two steps answer to the persisted name `");
                end = append(&mut text, end, name);
                end = append(&mut text, end, "`: give one of them another `id` or drop the alias");
                return Some(Clash(text, end));
            }
            j += 1;
        }
        i += 1;
    }
    None
}

const fn shared(a: Names, b: Names) -> Option<&'static str> {
    if has(b, a.0) {
        return Some(a.0);
    }
    let mut i = 0;
    while i < a.1.len() {
        if has(b, a.1[i]) {
            return Some(a.1[i]);
        }
        i += 1;
    }
    None
}

const fn has(names: Names, name: &str) -> bool {
    let mut found = same(name, names.0);
    let mut i = 0;
    while i < names.1.len() {
        found |= same(name, names.1[i]);
        i += 1;
    }
    found
}

const fn append(text: &mut [u8; 512], mut end: usize, part: &str) -> usize {
    let part = part.as_bytes();
    let mut i = 0;
    while i < part.len() && end < text.len() {
        text[end] = part[i];
        i += 1;
        end += 1;
    }
    end
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Nothing to set: the form has no slot at this place.
///
/// # Errors
/// Always.
pub fn no_slot(_: Option<serde_json::Value>) -> Result<(), String> {
    Err("the form has no such slot".to_owned())
}

/// Compiles when the tools of a step or flow are registered.
pub const fn registered<T: ToolsRegistered>() {}

/// A future whose type is hidden, so that what is wrong with it is said where it is made.
pub type Running<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Hides the type of a future.
pub fn run<'a, T>(future: impl Future<Output = T> + Send + 'a) -> Running<'a, T> {
    Box::pin(future)
}

/// Writes a tool call without arguments: an empty object, as its schema says.
///
/// # Errors
/// What the serializer returns.
pub fn no_arguments<S: serde::Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap as _;
    serializer.serialize_map(Some(0))?.end()
}
