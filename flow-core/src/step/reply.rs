use std::future::Future;

use serde_json::Value;

use super::hooks::{model_hook, step_hooks};
use super::{Crossing, FlowMeta, Gate, Prompt, Recovery, Step, StepCx, kind};
use crate::error::Result;
use crate::model::{ModelError, Sampling};
use crate::tool::{ToolDefinition, ToolPolicy};

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
/// # Tool calls
///
/// A model may ask for several calls at once: a round. They are made in its order, one after
/// another; neighbouring calls of tools marked `#[tool(parallel)]` run at the same time, up to
/// [`CallPolicy::parallel_tools`](crate::model::CallPolicy::parallel_tools) of them. So a call
/// sees what all calls before it have done, unless both are parallel. Once a tool has moved
/// the flow, the calls behind it are not made.
///
/// Each call gets exactly one result, in the order of the calls, whatever finished first. A
/// tool that fails, panics, takes longer than
/// [`CallPolicy::tool_timeout`](crate::model::CallPolicy::tool_timeout) or is not made is an
/// error result, from which the model goes on; what such a tool has said through its context
/// is not said.
///
/// Calls that a person has to [approve](ToolPolicy::Ask) wait, and the step with them, after
/// the other calls of the round are made.
///
/// When the model fails after that, or the step itself, calls that were made stay in the
/// history if [`on_model_error`](Self::on_model_error) or the flow's `on_error` lets the turn
/// go on. A turn that fails leaves nothing of them but its events: the document stays at its
/// last commit.
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

    /// The tools that the model may call, given what the step declares: its own, then those
    /// of the flow that the key `flow_tools` names. What it returns is offered, in that order;
    /// of two with one name the first.
    ///
    /// A model that calls a tool that is not offered is told so.
    fn tools(
        &self,
        declared: Vec<ToolDefinition>,
        cx: &StepCx<'_, Self::Flow>,
    ) -> Vec<ToolDefinition> {
        let _ = cx;
        declared
    }

    /// Whether a call that the model asks for is made. By default as its definition says;
    /// `#[tool(ask)]` lets a person decide, see [`ToolPolicy::Ask`].
    ///
    /// It is asked before each call, with the step and the state as the calls before it in
    /// the round have left them; for calls that run at the same time, before the first of
    /// them. `arguments` are the model's, repaired as the tool will read them. About a call
    /// that was approved it is asked once more before the call is made: it may still deny it.
    ///
    /// ```
    /// # use flow_core::prelude::*;
    /// # use flow_core::tool::ToolDefinition;
    /// # #[flow(id = "f", steps(Pay))] #[derive(Clone)] struct Desk;
    /// # impl Flow for Desk {}
    /// # #[step(reply, next(stay))]
    /// # #[derive(Default, Serialize, Deserialize, JsonSchema)] struct Pay;
    /// impl Reply for Pay {
    ///     type Flow = Desk;
    ///
    ///     fn tool_policy(
    ///         &self,
    ///         tool: &ToolDefinition,
    ///         arguments: &serde_json::Value,
    ///         _: &StepCx<'_, Desk>,
    ///     ) -> ToolPolicy {
    ///         let cents = arguments["cents"].as_u64().unwrap_or(u64::MAX);
    ///         if tool.name == "charge" && cents > 10_000 {
    ///             return ToolPolicy::deny("more than 100 euros are charged at the desk");
    ///         }
    ///         tool.policy.clone()
    ///     }
    /// }
    /// ```
    fn tool_policy(
        &self,
        tool: &ToolDefinition,
        arguments: &Value,
        cx: &StepCx<'_, Self::Flow>,
    ) -> ToolPolicy {
        let _ = (arguments, cx);
        tool.policy.clone()
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

    model_hook!();

    step_hooks!();
}
