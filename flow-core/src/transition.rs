//! How a flow moves: what a step returns, and the only thing that moves it.
//!
//! `#[step(.., next(Checkout(Choice), Farewell, stay))]` makes an enum of exactly these
//! ways out; [`Step::transition`](crate::step::Step::transition)
//! turns it into the [`Transition`] that the engine acts on.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::step::FlowMeta;

/// What the engine does next.
#[derive(Debug)]
#[non_exhaustive]
pub enum Transition {
    /// Leaves the step and enters another (or the same one anew).
    Go {
        /// The persisted name of the step that is entered.
        step: Cow<'static, str>,
        /// What it is entered with.
        input: Payload,
    },
    /// Stays at the step and waits for the user.
    Stay,
    /// Ends the flow.
    End(String),
    /// Hands the conversation to another flow.
    HandOff(HandOff),
    /// Parks the session for a person, for a reason.
    Escalate(String),
    /// Puts the step aside until what it waits for has come. An action makes it by waiting
    /// for a request, a signal or a time; nothing else can.
    Suspend,
}

/// The flow that a conversation goes to, and the state with which that begins.
///
/// An id alone is that flow with its default state. The flow has to be registered in the
/// engine; the state has to read as its state. Both are checked before anything is left.
///
/// ```
/// use flow_core::prelude::*;
///
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Invoice {
///     number: u64,
/// }
///
/// #[flow(id = "billing", steps(Explain), state = Invoice)]
/// #[derive(Clone)]
/// struct Billing;
/// # impl Flow for Billing {}
/// # #[step(reply, next(end))]
/// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// # struct Explain;
/// # impl Reply for Explain { type Flow = Billing; }
///
/// let typed = HandOff::to::<Billing>(Invoice { number: 7 });
/// let by_id = HandOff::from("billing");
/// assert_eq!(typed.flow(), by_id.flow());
/// ```
#[derive(Clone, PartialEq)]
pub struct HandOff {
    flow: Cow<'static, str>,
    state: Begins,
}

/// What a flow begins with.
#[derive(Debug, Clone, PartialEq)]
enum Begins {
    Default,
    With(Value),
    Unwritable(String),
}

impl HandOff {
    /// A flow by its type, with the state that it begins with.
    pub fn to<F: FlowMeta>(state: F::State) -> Self {
        let state = match serde_json::to_value(&state) {
            Ok(state) => Begins::With(state),
            // The engine says it, as with any state that cannot be written.
            Err(error) => Begins::Unwritable(error.to_string()),
        };
        Self { flow: F::ID.into(), state }
    }

    /// The id of the flow.
    pub fn flow(&self) -> &str {
        &self.flow
    }

    /// The state, if it is not the default, or why it cannot be written.
    pub(crate) fn state(&self) -> Result<Option<&Value>, &str> {
        match &self.state {
            Begins::Default => Ok(None),
            Begins::With(state) => Ok(Some(state)),
            Begins::Unwritable(reason) => Err(reason),
        }
    }
}

impl fmt::Debug for HandOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandOff").field("flow", &self.flow).finish_non_exhaustive()
    }
}

impl From<&str> for HandOff {
    fn from(flow: &str) -> Self {
        flow.to_owned().into()
    }
}

impl From<String> for HandOff {
    fn from(flow: String) -> Self {
        Self { flow: flow.into(), state: Begins::Default }
    }
}

/// A way out of a step, as the registry and the graph know it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// Another step, by its persisted name.
    Step(Cow<'static, str>),
    /// Wait for the user at this step.
    Stay,
    /// The end of the flow.
    End,
    /// Another flow.
    HandOff,
    /// A person.
    Escalate,
}

/// The enum of the ways out of a step, made by `#[step(.., next(..))]`. A marker, so that
/// nothing else is taken for one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the next-enum of a step",
    note = "`#[step(.., next(..))]` on a struct `Name` makes the enum `NameNext`"
)]
pub trait Next: Send + Sync + 'static {}

/// What a step can be entered with: any owned type that serde reads and writes. It is
/// persisted between leaving one step and entering the next.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the input of a step",
    note = "an input is persisted between two steps: derive `Serialize` and `Deserialize`, and own all data"
)]
pub trait Input: Serialize + DeserializeOwned + Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Input for T {}

/// The value that a step is entered with, on its way.
///
/// It stays a typed value as long as the turn runs and becomes JSON when a commit falls
/// between the two steps.
#[derive(Default)]
pub struct Payload(Option<Box<dyn Carried>>);

trait Carried: Send + Sync {
    fn type_id(&self) -> TypeId;
    fn to_json(&self) -> serde_json::Result<Value>;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: Input> Carried for T {
    fn type_id(&self) -> TypeId {
        TypeId::of::<T>()
    }

    fn to_json(&self) -> serde_json::Result<Value> {
        serde_json::to_value(self)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Payload {
    /// Takes a value along. The unit value takes no room.
    pub fn new<T: Input>(value: T) -> Self {
        if TypeId::of::<T>() == TypeId::of::<()>() {
            Self(None)
        } else {
            Self(Some(Box::new(value)))
        }
    }

    /// The value as JSON; nothing for the unit value.
    ///
    /// # Errors
    /// When the value cannot be written as JSON.
    pub fn to_json(&self) -> serde_json::Result<Option<Value>> {
        self.0.as_ref().map(|value| value.to_json()).transpose()
    }

    /// Takes the value out as the type that the step declares. JSON is read, the unit value
    /// is `null`, and a value of another type is read from its JSON, as after a restart.
    ///
    /// # Errors
    /// When the value has another type and does not read as this one.
    pub fn take<T: Input>(self) -> serde_json::Result<T> {
        let Some(value) = self.0 else { return T::deserialize(Value::Null) };
        if (*value).type_id() != TypeId::of::<T>() {
            return T::deserialize(value.to_json()?);
        }
        match value.into_any().downcast::<T>() {
            Ok(value) => Ok(*value),
            Err(_) => unreachable!("its type was looked at"),
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Payload(..)" } else { "Payload" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_payload_comes_out_as_it_went_in_typed_or_as_json() {
        assert_eq!(Payload::new(7_u8).take::<u8>().unwrap(), 7);
        assert_eq!(Payload::new(7_u8).to_json().unwrap(), Some(json!(7)));
        assert_eq!(Payload::new(json!(7)).take::<u8>().unwrap(), 7);
        assert_eq!(Payload::new(json!("x")).take::<Value>().unwrap(), json!("x"));
        assert!(Payload::new(json!("x")).take::<u8>().is_err());
        assert!(Payload::new("x".to_owned()).take::<u8>().is_err());
        assert_eq!(Payload::new(7_u8).take::<u64>().unwrap(), 7);
        assert!(Payload::new(300_u64).take::<u8>().is_err());
    }

    #[test]
    fn nothing_is_the_unit_value() {
        assert_eq!(Payload::new(()).to_json().unwrap(), None);
        Payload::default().take::<()>().unwrap();
        assert_eq!(Payload::default().take::<Option<u8>>().unwrap(), None);
    }
}
