use std::future::{Future, ready};
use std::pin::Pin;

use serde_json::Value;

use super::registry::{Misfit, read_into};
use super::{Crossing, FlowMeta, Gate, Step, StepCx, StepKind};
use crate::error::{Result, StepError};
use crate::transition::{Payload, Transition};

/// How a flow arrives at a step.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) from: Option<String>,
    pub(crate) input: Payload,
    /// Whether a new session begins here.
    pub(crate) start: bool,
}

type Running<'a, T> = Pin<Box<dyn Future<Output = Result<T, StepError>> + Send + 'a>>;

/// A step of a flow, whatever its type, and the way out that it has taken.
///
/// The calls are as small as they can be, since each is compiled for every step; what they
/// are put together to is in [`arrive`] and [`dispatch`].
pub(crate) trait DynStep<F: FlowMeta>: Send + Sync {
    fn save(&self) -> serde_json::Result<Value>;
    fn load(&mut self, fields: Value) -> Result<(), Misfit>;
    fn reset(&mut self);
    fn start<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Running<'a, ()>;
    fn restore<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Running<'a, ()>;
    fn enter<'a>(&'a mut self, input: Payload, cx: &'a mut StepCx<'_, F>) -> Running<'a, ()>;
    fn cross<'a>(
        &'a mut self,
        crossing: Crossing<'a>,
        cx: &'a mut StepCx<'_, F>,
    ) -> Running<'a, Option<String>>;
    fn run<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Running<'a, Option<Transition>>;
    /// Asks the gate about the way out; nothing when it needs no gate.
    fn verify<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Option<Running<'a, Gate>>;
    /// The transition of the way out.
    fn leave(&mut self) -> Transition;
    fn exit<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Running<'a, ()>;
}

/// Enters a step.
pub(crate) async fn arrive<F: FlowMeta>(
    step: &mut dyn DynStep<F>,
    arrival: Arrival,
    cx: &mut StepCx<'_, F>,
) -> Result<()> {
    step.reset();
    if arrival.start {
        step.start(cx).await?;
    }
    step.enter(arrival.input, cx).await?;
    if let Some(from) = arrival.from {
        let message = cx.scope.last_message.clone();
        let crossing = Crossing::new(&from, message.as_deref());
        if let Some(text) = step.cross(crossing, cx).await? {
            cx.scope.message = Some(text);
        }
    }
    Ok(())
}

/// Runs a step, and asks its gate about the way out that it takes.
pub(crate) async fn dispatch<F: FlowMeta>(
    step: &mut dyn DynStep<F>,
    cx: &mut StepCx<'_, F>,
) -> Result<Transition> {
    if let Some(transition) = step.run(cx).await? {
        return Ok(transition);
    }
    let gate = match step.verify(cx) {
        Some(gate) => gate.await?,
        None => Gate::Pass,
    };
    match gate {
        Gate::Pass => Ok(step.leave()),
        Gate::Hold(reason) => {
            cx.scope.drop_undone();
            cx.feedback(reason);
            Ok(Transition::Stay)
        }
    }
}

fn refuse<'a>(step: &str, error: &serde_json::Error) -> Running<'a, ()> {
    let reason = format!("the payload of step `{step}` cannot be read: {error}");
    Box::pin(ready(Err(StepError::terminal(reason))))
}

struct Erased<S: Step> {
    step: S,
    next: Option<S::Next>,
}

/// A step as it is when it was never entered.
pub(super) fn make<F, S>() -> Box<dyn DynStep<F>>
where
    F: FlowMeta,
    S: Step,
    S::Kind: StepKind<S, Flow = F>,
{
    Box::new(Erased { step: S::default(), next: None })
}

impl<F, S> DynStep<F> for Erased<S>
where
    F: FlowMeta,
    S: Step,
    S::Kind: StepKind<S, Flow = F>,
{
    fn save(&self) -> serde_json::Result<Value> {
        serde_json::to_value(&self.step)
    }

    fn load(&mut self, fields: Value) -> Result<(), Misfit> {
        read_into(&mut self.step, fields)
    }

    fn reset(&mut self) {
        S::Kind::reset(&mut self.step);
    }

    fn start<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Running<'a, ()> {
        Box::pin(S::Kind::start(&mut self.step, cx))
    }

    fn restore<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Running<'a, ()> {
        Box::pin(S::Kind::restore(&mut self.step, cx))
    }

    fn enter<'a>(&'a mut self, input: Payload, cx: &'a mut StepCx<'_, F>) -> Running<'a, ()> {
        match input.take::<S::Input>() {
            Ok(input) => Box::pin(S::Kind::enter(&mut self.step, input, cx)),
            Err(error) => refuse(S::NAME, &error),
        }
    }

    fn cross<'a>(
        &'a mut self,
        crossing: Crossing<'a>,
        cx: &'a mut StepCx<'_, F>,
    ) -> Running<'a, Option<String>> {
        Box::pin(S::Kind::cross(&mut self.step, crossing, cx))
    }

    fn run<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Running<'a, Option<Transition>> {
        Box::pin(S::Kind::dispatch(&mut self.step, cx, &mut self.next))
    }

    fn verify<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Option<Running<'a, Gate>> {
        match &self.next {
            Some(next) if !S::is_stay(next) => {
                Some(Box::pin(S::Kind::verify(&mut self.step, next, cx)))
            }
            _ => None,
        }
    }

    fn leave(&mut self) -> Transition {
        match self.next.take() {
            Some(next) => S::transition(next),
            None => Transition::Stay,
        }
    }

    fn exit<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Running<'a, ()> {
        Box::pin(S::Kind::exit(&mut self.step, cx))
    }
}
