use std::future::Future;

use super::hooks::step_hooks;
use super::{ActionCx, Crossing, FlowMeta, Gate, Step, StepCx, kind};
use crate::effect::Denied;
use crate::error::Result;

/// A step that does work: calls tools, computes, decides where to go.
///
/// What it does on the outside goes through its context, as [effects](crate::effect) that
/// are done once: it may wait for an approval for three days and die in between. When it
/// waits and when the process dies it runs again from its beginning, with the fields and the
/// state that it had, and the recorded outcomes of its effects.
///
/// ```
/// use flow_core::prelude::*;
/// # #[flow(id = "f", steps(Count))] #[derive(Clone)] struct Desk;
/// # impl Flow for Desk {}
/// /// Counts its runs.
/// #[step(action, next(stay))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Count {
///     runs: u32,
/// }
///
/// impl Action for Count {
///     type Flow = Desk;
///
///     async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<CountNext> {
///         self.runs += 1;
///         cx.say(format!("Run {}.", self.runs));
///         Ok(CountNext::Stay)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is an action step but does not implement `Action`",
    note = "write `impl Action for {Self} {{ type Flow = ..; async fn run(..) .. }}`"
)]
pub trait Action: Step<Kind = kind::Action> {
    /// The flow that the step belongs to.
    type Flow: FlowMeta;

    /// Does the work and says where to go.
    fn run(
        &mut self,
        cx: &mut ActionCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<Self::Next>> + Send;

    /// Runs when a request was denied and [`run`](Self::run) ended with that, and may say
    /// where to go instead of failing the turn. By default it fails; the request is then made
    /// anew by the next turn.
    fn on_denied(
        &mut self,
        denied: &Denied,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<Option<Self::Next>>> + Send {
        let _ = (denied, cx);
        std::future::ready(Ok(None))
    }

    step_hooks!();
}
