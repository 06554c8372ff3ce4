//! What the macros name. Not part of the public API: it may change in any release.

use crate::transition::Transition;

pub use crate::error::ToolError;
pub use crate::step::{
    Action, Collect, Decide, FlowMeta, FlowOf, Form, HasStep, Pattern, Reply, Resolver, Slot,
    SlotField, Step, StepCx, StepKind, StepTools, Steps, ToolsRegistered, get_slot, kind, set_slot,
};
pub use crate::tool::{
    FlowTools, ToolCall, ToolCx, ToolDefinition, ToolOutput, returns, signature,
};
pub use crate::transition::{Next, Target, Transition as Way};
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

/// Compiles when the flow of a step lists one of its targets.
pub fn listed<S: Step, T>()
where
    S::Kind: StepKind<S>,
    FlowOf<S>: HasStep<T>,
{
}

/// Compiles when two steps of a flow do not answer to one name.
pub const fn names_are_unique(names: &[(&str, &[&str])]) {
    let mut i = 0;
    while i < names.len() {
        let mut j = 0;
        while j < i {
            clash(names[i], names[j]);
            j += 1;
        }
        i += 1;
    }
}

const fn clash(a: (&str, &[&str]), b: (&str, &[&str])) {
    claim(a.0, b);
    let mut i = 0;
    while i < a.1.len() {
        claim(a.1[i], b);
        i += 1;
    }
}

const fn claim(name: &str, other: (&str, &[&str])) {
    let mut taken = same(name, other.0);
    let mut i = 0;
    while i < other.1.len() {
        taken |= same(name, other.1[i]);
        i += 1;
    }
    if taken {
        let mut text = [0; 512];
        let mut end = append(&mut text, 0, "two steps answer to the persisted name `");
        end = append(&mut text, end, name);
        end = append(&mut text, end, "`: give one of them another `id` or drop the alias");
        match std::str::from_utf8(text.split_at(end).0) {
            Ok(text) => panic!("{}", text),
            Err(_) => panic!("two steps answer to one persisted name"),
        }
    }
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
pub fn registered<T: ToolsRegistered>() {}

/// Writes a tool call without arguments: an empty object, as its schema says.
///
/// # Errors
/// What the serializer returns.
pub fn no_arguments<S: serde::Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap as _;
    serializer.serialize_map(Some(0))?.end()
}
