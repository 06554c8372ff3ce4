use std::future::Future;

use super::hooks::step_hooks;
use super::{Crossing, FlowMeta, Form, Gate, Slot, Step, StepCx, kind};
use crate::error::Result;
use crate::session::Question;

/// A step that fills a form in conversation.
///
/// The fields marked `#[slot]` are the form. Each pass reads the user's message with the
/// slots' resolvers; when every required slot has a value, [`complete`](Self::complete)
/// gets them as a struct without options, else the user is asked for what is missing.
///
/// A visit begins with an empty form, so nothing leaks from one visit into the next. A
/// message is read for the empty slots first; only one that fits none of them may correct
/// a slot that is filled. When a slot takes the whole message, no other slot reads it. The
/// slot that was asked for has the first claim on a value; a message that could mean more than
/// one thing sets nothing, and the slot is asked for again.
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

    step_hooks!();
}
