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
    /// Hands the conversation to another flow, for good.
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
/// engine, and the state has to read as its state. That is checked, and the flow made ready
/// (its `init` runs, its models are found), before the step that hands off is left: a turn that
/// fails there leaves the session where it was.
///
/// # What happens
///
/// The conversation moves within its session. One commit puts the document of the flow that
/// is left aside, as ended, and the one of the other flow in its place; the turn goes on there
/// at once, under the same lease and the same turn id, and the other flow may greet.
///
/// | | |
/// | --- | --- |
/// | goes along | the session id; all messages, summaries and the archive, so that the transcript stays whole; what no step has read of the message; the context, the recorded turns, the token usage, owner and labels; the notes and the crossings of the turn |
/// | begins anew | the state (what is handed over, or the default), the fields of the steps, the path |
/// | goes on being counted | revisions and visits, so that no idempotency key comes twice |
/// | stays behind | the document, at the id that [`SessionDoc::parent`](crate::session::SessionDoc::parent) of the new one names |
///
/// A process that dies after that commit leaves a session in the other flow: the turn that is
/// sent again goes on there, and so does a sweeper. A host may go on to name the flow in which
/// the session began in [`Engine::turn`](crate::Engine::turn). A session that has ended and
/// [begins anew](crate::flow::Restore::Fresh) begins in that flow too.
///
/// How often a conversation is handed off without new input from the user is limited by
/// [`Limits::handoffs`](crate::Limits::handoffs) and
/// [`Limits::flow_visits`](crate::Limits::flow_visits). The session of an action that waits
/// for its end is not handed off.
///
/// For a flow that comes back, see [`TurnRequest::digress`](crate::TurnRequest::digress).
///
/// # Errors
///
/// [`TurnError::HandOffTarget`](crate::error::TurnError::HandOffTarget),
/// [`HandOffState`](crate::error::TurnError::HandOffState),
/// [`HandOffBudget`](crate::error::TurnError::HandOffBudget),
/// [`HandOffLoop`](crate::error::TurnError::HandOffLoop) and
/// [`ChildHandOff`](crate::error::TurnError::ChildHandOff) of the turn.
///
/// # Example
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
///
/// #[step(reply, next(stay))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Explain;
///
/// impl Reply for Explain {
///     type Flow = Billing;
///
///     fn response(&self, cx: &StepCx<'_, Billing>) -> Option<String> {
///         Some(format!("This is billing, about invoice {}.", cx.state.number))
///     }
/// }
///
/// #[flow(id = "desk", steps(Sort))]
/// #[derive(Clone)]
/// struct Desk;
/// # impl Flow for Desk {}
///
/// #[step(action, next(stay, hand_off))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Sort;
///
/// impl Action for Sort {
///     type Flow = Desk;
///
///     async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<SortNext> {
///         match cx.take_message().and_then(|text| text.parse().ok()) {
///             Some(number) => Ok(SortNext::HandOff(HandOff::to::<Billing>(Invoice { number }))),
///             None => Ok(SortNext::Stay),
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # use flow_core::store::memory::MemoryStore;
/// use flow_core::{Engine, TurnRequest};
///
/// let engine = Engine::builder().store(MemoryStore::new()).flow(Desk).flow(Billing).build()?;
/// let say = |text| engine.turn::<Desk>(TurnRequest::new(SessionId::new("ada").unwrap()).message(text));
/// let outcome = say("17").await?;
/// assert_eq!((outcome.flow.as_str(), &*outcome.replies[0]), ("billing", "This is billing, about invoice 17."));
/// assert_eq!(say("thanks").await?.flow, "billing");
/// # Ok(()) }
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
