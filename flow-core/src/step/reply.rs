use std::future::Future;

use super::hooks::step_hooks;
use super::{Crossing, FlowMeta, Gate, Prompt, Recovery, Step, StepCx, kind};
use crate::error::Result;
use crate::model::{ModelError, Sampling};
use crate::tool::ToolDefinition;

/// What a reply step says about a model's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Check {
    /// It is said.
    Accept,
    /// The model is told this reason and answers again.
    Retry(String),
}

/// A step that speaks.
///
/// With an authored [`response`](Self::response) the engine says that text and asks no
/// model. Else the step's model, or the flow's, answers the conversation in the step's memory:
/// it gets the [`instructions`](Self::instructions) and the [`tools`](Self::tools), and its
/// tool calls are made until it answers in words or a tool moves the flow. Then
/// [`on_response`](Self::on_response) says where to go; by default the step waits for the user
/// and speaks again on the next message.
///
/// ```
/// use flow_core::prelude::*;
/// # #[flow(id = "f", steps(Greet))] #[derive(Clone)] struct Desk;
/// # impl Flow for Desk {}
/// /// Greets.
/// #[step(reply, next(stay))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Greet;
///
/// impl Reply for Greet {
///     type Flow = Desk;
///
///     fn response(&self, cx: &StepCx<'_, Desk>) -> Option<String> {
///         Some(format!("You said {:?}.", cx.last_message().unwrap_or_default()))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is a reply step but does not implement `Reply`",
    note = "write `impl Reply for {Self} {{ type Flow = ..; .. }}`"
)]
pub trait Reply: Step<Kind = kind::Reply> {
    /// The flow that the step belongs to.
    type Flow: FlowMeta;

    /// The authored reply; nothing to let a model speak.
    fn response(&self, cx: &StepCx<'_, Self::Flow>) -> Option<String> {
        let _ = cx;
        None
    }

    /// The system prompt of the model.
    fn instructions(&self, cx: &StepCx<'_, Self::Flow>) -> Prompt {
        let _ = cx;
        Prompt::default()
    }

    /// How the model picks its words, from what the step holds as it runs. These parameters
    /// come last: each one wins over that of `#[step(.., sampling(..))]` and of the flow, and
    /// goes to whichever model speaks, also to that of a
    /// [`Recovery::Retry`]. One that the model does not take is a
    /// [`ModelError::Parameter`]. Default: none.
    fn sampling(&self, cx: &StepCx<'_, Self::Flow>) -> Sampling {
        let _ = cx;
        Sampling::default()
    }

    /// The tools that the model may call. By default those of the step alone: a model gets
    /// none of the flow's tools unless the step adds it, from [`StepCx::tools`], by its name.
    fn tools(&self, own: Vec<ToolDefinition>, cx: &StepCx<'_, Self::Flow>) -> Vec<ToolDefinition> {
        let _ = cx;
        own
    }

    /// Checks a model's answer before it is said.
    fn check_response(&self, response: &str, cx: &StepCx<'_, Self::Flow>) -> Check {
        let _ = (response, cx);
        Check::Accept
    }

    /// Runs when the reply has been said, and says where to go; nothing to wait for the user.
    fn on_response(
        &mut self,
        response: &str,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<Option<Self::Next>>> + Send {
        let _ = (response, cx);
        std::future::ready(Ok(None))
    }

    /// Runs when the model gave no answer, or refused, and may answer, leave the step or ask
    /// another model once. Default: the flow is asked
    /// ([`Flow::on_model_error`](crate::flow::Flow::on_model_error)).
    fn on_model_error(
        &mut self,
        error: &ModelError,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<Recovery<Self::Next>>> + Send {
        let _ = (error, cx);
        std::future::ready(Ok(Recovery::Pass))
    }

    step_hooks!();
}
