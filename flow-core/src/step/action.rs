use std::future::Future;

use super::hooks::step_hooks;
use super::{ActionCx, Crossing, FlowMeta, Gate, Step, StepCx, kind};
use crate::error::Result;

/// A step that does work: calls tools, computes, decides where to go.
///
/// It runs without waiting for the user. When the process dies while it runs, it runs
/// again; tools that it calls with [`ActionCx::tool`] then get the same idempotency key.
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

    step_hooks!();
}
