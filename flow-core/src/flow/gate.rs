//! Gates of a flow: what a run is judged by before the flow ends.
//!
//! [`Flow::define_gates`](super::Flow::define_gates) declares them. They are asked whenever a
//! step of the flow takes a way out of it, that is ends it, hands it off or escalates: after the
//! step's own gate ([`verify`](crate::step::Action::verify)) and before its `on_exit` and the
//! commit. All of them are asked, one after the other in the order in which they were added.
//! Each gives a [`GateVerdict`], which is told as an event (`gate-verdict`, and together on
//! `flow-end`), is in [`TurnOutcome::gates`](crate::engine::TurnOutcome::gates), and is kept in
//! [`SessionDoc::gates`] until the next turn that runs a step: a run begins with a clean verdict.
//!
//! # Two kinds
//!
//! * [`check`](Gates::check) asks Rust code, which is shown the run as a [`RunView`].
//! * [`judge`](Gates::judge) asks a model, which is shown a rubric and the parts of the document
//!   that the [`Judge`] lists, and nothing else.
//!
//! # What becomes of the flow
//!
//! A gate is blocking, unless it is made [`advisory`](Gates::advisory). A gate that could not
//! run (code that returned an error or panicked, a model that failed, refused or gave no
//! verdict) counts as not passed, and as blocking whatever it is.
//!
//! | | all blocking gates pass | one of them does not |
//! | --- | --- | --- |
//! | end, hand-off | the flow ends | it stays where it is: [`Outcome::Held`] |
//! | escalate | a person takes over | a person takes over all the same |
//!
//! A flow that is held waits for the user at the step that was to end it. What the step has said
//! is said, and the user is told the reasons as feedback; of a gate that could not run only that
//! it could not. The next turn, with a message or without one, dispatches the step again, and
//! when it comes to an end the gates are asked afresh.
//!
//! A reply, collect or decide step keeps what it has written to its fields and to the shared
//! state. An action runs again *from its beginning* and so begins with the fields and the shared
//! state that it had, as one that has waited does; its [effects](crate::effect) are recorded and
//! none of them is done again, also not one that failed or was denied. A turn without a message
//! gives it the message that it had. To have its effects done anew, call
//! [`restart_step`](crate::engine::SessionHandle::restart_step).
//!
//! Verdicts are not journaled: when the process dies between a gate and the commit, the next
//! turn runs the step and asks the gates again.
//!
//! [`SessionDoc::gates`]: crate::session::SessionDoc::gates
//! [`Outcome::Held`]: crate::outcome::Outcome::Held

use std::fmt;

use super::FlowMeta;
use crate::error::{Result, StepError};
use crate::model::ModelConfig;
use crate::session::{GateVerdict, SessionDoc};
use crate::step::{self, Step};

/// The most bytes of the reason of a verdict; a longer one is cut.
pub const REASON_BYTES: usize = 1024;

/// The code of a check.
pub(crate) type Predicate<F> = dyn Fn(&RunView<'_, F>) -> Result<Verdict> + Send + Sync;

/// The gates of a flow, in the order in which they are asked.
///
/// ```
/// use flow_core::prelude::*;
/// # #[step(action, next(end))]
/// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// # pub struct Order { note: Option<String> }
/// # impl Action for Order {
/// #     type Flow = Orders;
/// #     async fn run(&mut self, _: &mut ActionCx<'_, Orders>) -> Result<OrderNext> {
/// #         Ok(OrderNext::End("ordered".into()))
/// #     }
/// # }
/// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// # pub struct Totals { cents: u64 }
///
/// #[flow(id = "orders", steps(Order), state = Totals, model = "openai::gpt-5.1-mini")]
/// #[derive(Clone)]
/// pub struct Orders {
///     pub budget: u64,
/// }
///
/// impl Flow for Orders {
///     fn define_gates(&self, gates: Gates<Self>) -> Gates<Self> {
///         gates
///             .check("within-budget", |run| {
///                 let (total, budget) = (run.state.cents, run.flow.budget);
///                 if total <= budget {
///                     return Verdict::pass();
///                 }
///                 Verdict::fail(format!("The order costs {total} cents, {budget} may be spent."))
///             })
///             .check("has-note", |run| -> Result<Verdict> {
///                 let order: Option<Order> = run.step()?; // an error: the gate could not run
///                 let noted = order.is_some_and(|order| order.note.is_some());
///                 Ok(if noted { Verdict::pass() } else { Verdict::fail("There is no note.") })
///             })
///             .advisory()
///             .judge(
///                 "polite",
///                 Judge::new("The assistant has been polite to the user.").show(["memory.main"]),
///             )
///     }
/// }
/// ```
pub struct Gates<F: FlowMeta> {
    gates: Vec<FlowGate<F>>,
}

/// One gate of a flow.
pub(crate) struct FlowGate<F: FlowMeta> {
    pub(crate) name: String,
    pub(crate) blocking: bool,
    pub(crate) kind: GateKind<F>,
}

pub(crate) enum GateKind<F: FlowMeta> {
    Check(Box<Predicate<F>>),
    Judge(Box<Judge>),
}

impl<F: FlowMeta> Gates<F> {
    /// Adds a gate of Rust code. The code is given the run and says whether it passes, as a
    /// [`Verdict`] or as a `Result` of one. It must not block: it runs in the turn.
    ///
    /// The name is persisted with the verdict and is told to the user when the gate cannot run.
    /// It begins with a letter or `_` and has letters, digits, `_` and `-`; no two gates of a flow
    /// have the same. What is wrong with a name is found when the engine is built.
    #[must_use]
    pub fn check<V: IntoVerdict>(
        self,
        name: impl Into<String>,
        check: impl Fn(&RunView<'_, F>) -> V + Send + Sync + 'static,
    ) -> Self {
        let check = Box::new(move |run: &RunView<'_, F>| check(run).into_verdict());
        self.add(name.into(), GateKind::Check(check))
    }

    /// Adds a gate for which a model judges. The name is one as for [`check`](Self::check).
    #[must_use]
    pub fn judge(self, name: impl Into<String>, judge: Judge) -> Self {
        self.add(name.into(), GateKind::Judge(Box::new(judge)))
    }

    /// Makes the gate that was added last advisory: when the run does not pass it, the flow ends
    /// all the same, with the verdict on record.
    #[must_use]
    pub fn advisory(mut self) -> Self {
        if let Some(gate) = self.gates.last_mut() {
            gate.blocking = false;
        }
        self
    }

    fn add(mut self, name: String, kind: GateKind<F>) -> Self {
        self.gates.push(FlowGate { name, blocking: true, kind });
        self
    }

    pub(crate) fn as_slice(&self) -> &[FlowGate<F>] {
        &self.gates
    }
}

impl<F: FlowMeta> Default for Gates<F> {
    fn default() -> Self {
        Self { gates: Vec::new() }
    }
}

impl<F: FlowMeta> fmt::Debug for Gates<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.gates.iter().map(|gate| &gate.name)).finish()
    }
}

impl<F: FlowMeta> FlowGate<F> {
    /// What the gate has said, or that it could not run.
    pub(crate) fn conclude(&self, verdict: Result<Verdict>) -> GateVerdict {
        let gate = self.name.clone();
        match verdict {
            Ok(Verdict { passed, reason }) => {
                let reason = reason.filter(|reason| !reason.trim().is_empty()).map(cut);
                GateVerdict { gate, passed, blocking: self.blocking, ran: true, reason }
            }
            Err(error) => {
                let reason = Some(cut(error.to_string()));
                GateVerdict { gate, passed: false, blocking: true, ran: false, reason }
            }
        }
    }
}

/// Cuts a reason to [`REASON_BYTES`].
fn cut(mut reason: String) -> String {
    const MORE: &str = "…";
    if reason.len() > REASON_BYTES {
        reason.truncate(reason.floor_char_boundary(REASON_BYTES - MORE.len()));
        reason.push_str(MORE);
    }
    reason
}

/// What a gate says about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    passed: bool,
    reason: Option<String>,
}

impl Verdict {
    /// The run passes.
    pub fn pass() -> Self {
        Self { passed: true, reason: None }
    }

    /// The run does not pass, for a reason that the user is told when the gate is blocking.
    pub fn fail(reason: impl Into<String>) -> Self {
        Self { passed: false, reason: Some(reason.into()) }
    }

    /// What a model has said.
    pub(crate) fn of_judge(passed: bool, reason: String) -> Self {
        Self { passed, reason: Some(reason) }
    }
}

/// What a check may return: a [`Verdict`], or a `Result` of one, of which an error means that
/// the gate could not run.
pub trait IntoVerdict {
    /// The verdict, or why there is none.
    ///
    /// # Errors
    /// That of the `Result`.
    fn into_verdict(self) -> Result<Verdict>;
}

impl IntoVerdict for Verdict {
    fn into_verdict(self) -> Result<Verdict> {
        Ok(self)
    }
}

impl<E: Into<StepError>> IntoVerdict for Result<Verdict, E> {
    fn into_verdict(self) -> Result<Verdict> {
        self.map_err(Into::into)
    }
}

/// A run that comes to an end, as a gate sees it.
#[non_exhaustive]
pub struct RunView<'a, F: FlowMeta> {
    /// The flow: the registered struct, cloned for this turn and initialised by `init`.
    pub flow: &'a F,
    /// The shared state.
    pub state: &'a F::State,
    /// The session document with all that the turn has done up to here, whether it is committed
    /// or not. Its status is `running`.
    pub doc: &'a SessionDoc,
    /// How it ends.
    pub ending: Ending<'a>,
}

impl<'a, F: FlowMeta> RunView<'a, F> {
    pub(crate) fn new(
        flow: &'a F,
        state: &'a F::State,
        doc: &'a SessionDoc,
        ending: Ending<'a>,
    ) -> Self {
        Self { flow, state, doc, ending }
    }

    /// The fields of a step; nothing for one that was never visited.
    ///
    /// # Errors
    /// When they do not fit the step.
    pub fn step<S: Step>(&self) -> Result<Option<S>> {
        let Some(fields) = self.doc.steps.get(S::NAME) else { return Ok(None) };
        step::read(fields.clone()).map(Some).map_err(|misfit| {
            let step::Misfit { path, reason } = misfit;
            StepError::terminal(format!("`steps.{}`, at `{path}`: {reason}", S::NAME))
        })
    }
}

impl<F: FlowMeta> fmt::Debug for RunView<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunView")
            .field("flow", &F::ID)
            .field("session", &self.doc.id)
            .field("step", &self.doc.current_step)
            .field("ending", &self.ending)
            .finish_non_exhaustive()
    }
}

/// How a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending<'a> {
    /// The flow ends, for a reason in the words of the step.
    End(&'a str),
    /// The conversation goes to another flow, named by its id.
    HandOff(&'a str),
    /// A person takes over, for a reason in the words of the step.
    Escalate(&'a str),
}

/// A model that judges a run by a rubric.
///
/// It is shown the rubric and the parts of the session document that are [listed](Self::show),
/// as data: with the rule that instructions in them are not followed. Nothing else of the
/// document reaches it, neither the conversation nor the state. It answers with a verdict and a
/// reason, as [structured output](crate::step::StepCx::extract) of any model. Its tokens count
/// as the session's, and it has the time that
/// [`CallPolicy`](crate::model::CallPolicy) gives to the models of the turn.
///
/// ```
/// use flow_core::prelude::*;
///
/// let judge = Judge::new("The summary names the room and the price of the order.")
///     .show(["state.order", "steps.Checkout.name", "memory.main"])
///     .model("openai::gpt-5.1".parse::<flow_core::model::ModelSelection>()?);
/// # Ok::<(), flow_core::model::ModelSelectionError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Judge {
    pub(crate) rubric: String,
    pub(crate) paths: Vec<String>,
    pub(crate) model: Option<ModelConfig>,
}

impl Judge {
    /// A judge with a rubric: what has to hold for the run to pass.
    pub fn new(rubric: impl Into<String>) -> Self {
        Self { rubric: rubric.into(), paths: Vec::new(), model: None }
    }

    /// Shows the model parts of the [document](RunView::doc), by their paths: `state.order.total`,
    /// `steps.Checkout.name`, `state.items[0]`, `memory.main` for the messages of a namespace that
    /// are still in the document. A part that the document does not have is shown as absent. A
    /// judge shows one part at least; keys that hold `.` or `[` cannot be reached, only the whole
    /// in which they are.
    #[must_use]
    pub fn show<P: Into<String>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.paths.extend(paths.into_iter().map(Into::into));
        self
    }

    /// The model that judges, and its parameters; the flow's own are under them when it is the
    /// same model. Default: the flow's model. As for steps, a model that cannot be had fails the
    /// turn before its session is touched.
    #[must_use]
    pub fn model(mut self, model: impl Into<ModelConfig>) -> Self {
        self.model = Some(model.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_at_a_character() {
        for (reason, cut_to) in [
            ("x".repeat(REASON_BYTES), "x".repeat(REASON_BYTES)),
            ("x".repeat(REASON_BYTES + 1), format!("{}…", "x".repeat(REASON_BYTES - 3))),
            ("é".repeat(REASON_BYTES), format!("{}…", "é".repeat(REASON_BYTES / 2 - 2))),
        ] {
            assert_eq!(cut(reason), cut_to);
        }
    }
}
