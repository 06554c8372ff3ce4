use std::future::Future;

use super::hooks::{model_hook, step_hooks};
use super::{Crossing, FlowMeta, Form, Gate, Recovery, Slot, Step, StepCx, kind};
use crate::error::Result;
use crate::model::ModelError;
use crate::session::Question;

/// A step that fills a form in conversation.
///
/// The fields marked `#[slot]` are the form. Each pass reads the user's message with the
/// slots' resolvers, then with the step's model, or the flow's, if there is one; when every
/// required slot has a value, [`complete`](Self::complete) gets them as a struct without
/// options, else the user is asked for what is missing.
///
/// A visit begins with an empty form, so nothing leaks from one visit into the next.
///
/// **Without a model.** A message is read for the empty slots first; only one that fits none of
/// them may correct a slot that is filled. When a slot takes the whole message, no other slot
/// reads it. The slot that was asked for has the first claim on a value; a message that could
/// mean more than one thing sets nothing, and the slot is asked for again.
///
/// **With a model.** What the resolvers have found in a message is final. The model is asked
/// for the other slots, as far as it needs to be. It is not asked when
///
/// * the resolvers have found something and no required slot is missing any more,
/// * the message says one slot's value and nothing else, or was taken as a whole,
/// * the message could mean more than one thing to a resolver,
/// * nothing was said, or [`extracts`](Self::extracts) says no.
///
/// It is asked through a tool, `submit_<step>_data`, which it is made to call; a model without
/// tools is asked as [`StepCx::extract`] does. Each slot is a property that may be null or left
/// out, with its doc comment (else its `ask`), its type and its `one_of` or `range`. A slot that
/// is filled is offered too, with its value, for the case that the message corrects it ("no,
/// Tuesday"). The model sees the conversation in the step's memory; what it answers is neither
/// told to the user nor kept in the history.
///
/// Of what it gives
///
/// * a value for a `verbatim` slot that does not stand in the message is dropped,
/// * a value that the slot's type, `one_of`, `range` or the capture of its `pattern` does not
///   admit empties the slot, which is asked for again if it is required,
/// * any other value is set, and said to be the model's in the event
///   [`CollectUpdate`](crate::event::Event::CollectUpdate).
///
/// The model is told not to guess; whether it has cannot be seen in a value that is no copy of
/// the user's words, such as 4 for "the four of us". A step where that is not good enough
/// confirms the form, marks its slots `verbatim`, or turns the model off.
///
/// When the model fails, so does the turn: the form and the history stay as they were, and the
/// turn can be sent again with the same message.
///
/// ```
/// use flow_core::prelude::*;
/// # #[flow(id = "f", steps(Party))] #[derive(Clone)] struct Desk;
/// # impl Flow for Desk {}
/// /// Takes the size of the party.
/// #[step(collect, next(end))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Party {
///     #[slot(range(1, 8), ask = "For how many?")]
///     guests: Option<u8>,
///     /// Anything we should know.
///     #[slot(optional)]
///     wish: Option<String>,
/// }
///
/// impl Collect for Party {
///     type Flow = Desk;
///
///     async fn complete(&mut self, data: PartyData, cx: &mut StepCx<'_, Desk>) -> Result<PartyNext> {
///         let PartyData { guests, wish } = data; // a `u8`, and an `Option<String>`
///         cx.say(format!("A table for {guests}{}.", if wish.is_some() { ", and your wish" } else { "" }));
///         Ok(PartyNext::End("reserved".into()))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is a collect step but does not implement `Collect`",
    note = "write `impl Collect for {Self} {{ type Flow = ..; async fn complete(..) .. }}`"
)]
pub trait Collect: Step<Kind = kind::Collect> + Form {
    /// The flow that the step belongs to.
    type Flow: FlowMeta;

    /// Asks for what is missing, at least one slot. The default asks for the first one with
    /// its `ask` text, else with its doc comment, and offers its `one_of` values.
    fn ask(&self, missing: &[&'static Slot], cx: &StepCx<'_, Self::Flow>) -> Question {
        let _ = cx;
        missing.first().map(|slot| slot.question()).unwrap_or_default()
    }

    /// Whether the model reads what the resolvers do not. Default: true. Without a model in the
    /// flow or the step there is nothing to turn off.
    fn extracts(&self) -> bool {
        true
    }

    /// How many questions a visit may take before the session is escalated with the names
    /// of the missing slots. Default: no limit.
    fn max_turns(&self) -> Option<u32> {
        None
    }

    /// Runs when the form is complete, and says where to go.
    fn complete(
        &mut self,
        data: Self::Data,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<Self::Next>> + Send;

    model_hook!();

    step_hooks!();
}
