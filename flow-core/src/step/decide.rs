use std::future::Future;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::hooks::{model_hook, step_hooks};
use super::{Crossing, FlowMeta, Gate, Prompt, Recovery, Step, StepCx, kind};
use crate::error::Result;
use crate::model::ModelError;

/// A step that branches on structured data.
///
/// The verdict is made first, then acted on, so that what was decided and what follows from
/// it can be tested apart.
///
/// A question of yes or no that the user answers is a [`Confirm`](super::Confirm).
///
/// By default the step's model, or the flow's, makes the verdict, as
/// [`StepCx::extract`] asks it for one: its type is the form of the answer. A step that
/// overrides [`verdict`](Self::verdict) is pure code and asks no model.
///
/// ```
/// use flow_core::prelude::*;
/// # #[flow(id = "f", model = "openai::gpt-5.1-mini", steps(Triage))] #[derive(Clone)] struct Desk;
/// # impl Flow for Desk {}
/// /// Says how urgent the user's last message is.
/// #[step(decide, next(end, escalate))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Triage;
///
/// #[derive(Serialize, Deserialize, JsonSchema)]
/// enum Urgency {
///     /// Somebody is in danger.
///     Emergency,
///     Routine,
/// }
///
/// impl Decide for Triage {
///     type Flow = Desk;
///     type Verdict = Urgency;
///
///     async fn decide(&mut self, urgency: Urgency, _: &mut StepCx<'_, Desk>) -> Result<TriageNext> {
///         Ok(match urgency {
///             Urgency::Emergency => TriageNext::Escalate("an emergency".into()),
///             Urgency::Routine => TriageNext::End("routine".into()),
///         })
///     }
/// }
/// ```
///
/// In code:
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

    /// What the model is to decide: its system prompt. By default the doc comment of the step.
    fn instructions(&self, cx: &StepCx<'_, Self::Flow>) -> Prompt {
        let _ = cx;
        Self::DOC.into()
    }

    /// Makes the verdict. The user's message of this turn is in [`StepCx::last_message`] and is
    /// not consumed. By default the model makes it, from [`instructions`](Self::instructions),
    /// the conversation in the step's memory and that message.
    fn verdict(
        &mut self,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<Self::Verdict>> + Send {
        let prompt = self.instructions(cx);
        cx.extract(prompt)
    }

    /// Says where the verdict leads.
    fn decide(
        &mut self,
        verdict: Self::Verdict,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<Self::Next>> + Send;

    model_hook!();

    step_hooks!();
}
