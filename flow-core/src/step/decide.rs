use std::future::Future;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::hooks::step_hooks;
use super::{Crossing, FlowMeta, Gate, Step, StepCx, kind};
use crate::error::Result;

/// A step that branches on structured data.
///
/// The verdict is made first, then acted on, so that what was decided and what follows from
/// it can be tested apart.
///
/// A question of yes or no that the user answers is a [`Confirm`](super::Confirm).
///
/// ```
/// use flow_core::prelude::*;
/// # #[flow(id = "f", steps(Hours))] #[derive(Clone)] struct Desk;
/// # impl Flow for Desk {}
/// /// Sends long messages to a person.
/// #[step(decide, next(end, escalate))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Hours;
///
/// impl Decide for Hours {
///     type Flow = Desk;
///     type Verdict = bool;
///
///     async fn verdict(&mut self, cx: &mut StepCx<'_, Desk>) -> Result<bool> {
///         Ok(cx.last_message().is_some_and(|message| message.len() > 500))
///     }
///
///     async fn decide(&mut self, long: bool, _: &mut StepCx<'_, Desk>) -> Result<HoursNext> {
///         Ok(if long { HoursNext::Escalate("a long message".into()) } else { HoursNext::End("short".into()) })
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is a decide step but does not implement `Decide`",
    note = "write `impl Decide for {Self} {{ type Flow = ..; type Verdict = ..; .. }}`"
)]
pub trait Decide: Step<Kind = kind::Decide> {
    /// The flow that the step belongs to.
    type Flow: FlowMeta;

    /// What is decided on.
    type Verdict: Serialize + DeserializeOwned + JsonSchema + Send + 'static;

    /// Makes the verdict in code. The user's message of this turn is in
    /// [`StepCx::last_message`] and is not consumed.
    fn verdict(
        &mut self,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<Self::Verdict>> + Send;

    /// Says where the verdict leads.
    fn decide(
        &mut self,
        verdict: Self::Verdict,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<Self::Next>> + Send;

    step_hooks!();
}
