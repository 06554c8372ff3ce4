use std::future::Future;
use std::pin::Pin;

use serde_json::Value;

use super::extract::{ask_also, fill, missing};
use super::{
    Action, ActionCx, Collect, Crossing, Decide, Effect, FlowMeta, Gate, Kind, Reply, Slot, Step,
    StepCx, kind,
};
use crate::error::{Error, Result, StepError, TurnError};
use crate::event::Rendered;
use crate::model::ModelError;
use crate::transition::{Payload, Transition};

/// The flow of a step.
pub type FlowOf<S> = <<S as Step>::Kind as StepKind<S>>::Flow;

/// How a flow arrives at a step.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) from: Option<String>,
    pub(crate) input: Payload,
    /// Whether a new session begins here.
    pub(crate) start: bool,
}

/// How steps of one kind run. Implemented by the types in [`kind`] for every step that
/// implements the trait of that kind.
#[diagnostic::on_unimplemented(
    message = "`{S}` does not implement the trait of its kind",
    note = "a step with `#[step(reply)]` implements `Reply`, with `#[step(collect)]` `Collect`, and so on"
)]
pub trait StepKind<S: Step>: Sized {
    /// The flow of the step.
    type Flow: FlowMeta;

    /// The kind as a value.
    const KIND: Kind;

    /// The slots of a collect step.
    fn slots() -> &'static [Slot] {
        &[]
    }

    /// Empties what belongs to one visit alone.
    fn reset(step: &mut S) {
        let _ = step;
    }

    /// Runs the step once.
    fn dispatch(
        step: &mut S,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<Transition>> + Send;

    /// The step's `on_start`.
    fn start(
        step: &mut S,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// The step's `on_restore`.
    fn restore(
        step: &mut S,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// The step's `on_enter`.
    fn enter(
        step: &mut S,
        input: S::Input,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// The step's `on_exit`.
    fn exit(
        step: &mut S,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// The step's `on_crossing`.
    fn cross(
        step: &mut S,
        crossing: Crossing<'_>,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<Option<String>>> + Send;

    /// The step's `verify`.
    fn verify(
        step: &mut S,
        next: &S::Next,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<Gate>> + Send;
}

/// Asks the step's gate about a way out, and makes it a transition.
async fn leave<S: Step>(
    step: &mut S,
    next: S::Next,
    cx: &mut StepCx<'_, FlowOf<S>>,
) -> Result<Transition>
where
    S::Kind: StepKind<S>,
{
    if S::is_stay(&next) {
        return Ok(Transition::Stay);
    }
    match S::Kind::verify(step, &next, cx).await? {
        Gate::Pass => Ok(S::transition(next)),
        Gate::Hold(reason) => {
            // What was to be done with the transition is not done.
            cx.scope.effects.clear();
            cx.feedback(reason);
            Ok(Transition::Stay)
        }
    }
}

macro_rules! forward_hooks {
    ($kind:ident) => {
        async fn start(step: &mut S, cx: &mut StepCx<'_, Self::Flow>) -> Result<()> {
            $kind::on_start(step, cx).await
        }

        async fn restore(step: &mut S, cx: &mut StepCx<'_, Self::Flow>) -> Result<()> {
            $kind::on_restore(step, cx).await
        }

        async fn enter(
            step: &mut S,
            input: S::Input,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> Result<()> {
            $kind::on_enter(step, input, cx).await
        }

        async fn exit(step: &mut S, cx: &mut StepCx<'_, Self::Flow>) -> Result<()> {
            $kind::on_exit(step, cx).await
        }

        async fn cross(
            step: &mut S,
            crossing: Crossing<'_>,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> Result<Option<String>> {
            $kind::on_crossing(step, crossing, cx).await
        }

        async fn verify(
            step: &mut S,
            next: &S::Next,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> Result<Gate> {
            $kind::verify(step, next, cx).await
        }
    };
}

impl<S: Action> StepKind<S> for kind::Action {
    type Flow = S::Flow;
    const KIND: Kind = Kind::Action;

    async fn dispatch(step: &mut S, cx: &mut StepCx<'_, S::Flow>) -> Result<Transition> {
        let next = step.run(&mut ActionCx::new(cx.reborrow())).await?;
        leave(step, next, cx).await
    }

    forward_hooks!(Action);
}

impl<S: Decide> StepKind<S> for kind::Decide {
    type Flow = S::Flow;
    const KIND: Kind = Kind::Decide;

    async fn dispatch(step: &mut S, cx: &mut StepCx<'_, S::Flow>) -> Result<Transition> {
        let verdict = step.verdict(cx).await?;
        let next = step.decide(verdict, cx).await?;
        leave(step, next, cx).await
    }

    forward_hooks!(Decide);
}

impl<S: Reply> StepKind<S> for kind::Reply {
    type Flow = S::Flow;
    const KIND: Kind = Kind::Reply;

    async fn dispatch(step: &mut S, cx: &mut StepCx<'_, S::Flow>) -> Result<Transition> {
        cx.take_message();
        let next = match step.response(cx) {
            Some(response) => {
                cx.scope
                    .effects
                    .push(Effect::Say { text: response.clone(), rendered: Rendered::Engine });
                step.on_response(&response, cx).await?
            }
            None => match step.on_model_error(&ModelError::Missing, cx).await? {
                Some(next) => Some(next),
                None => {
                    return Err(Error::from(TurnError::NoModel {
                        flow: S::Flow::ID.to_owned(),
                        step: S::NAME.to_owned(),
                    })
                    .into());
                }
            },
        };
        match next {
            Some(next) => leave(step, next, cx).await,
            None => Ok(Transition::Stay),
        }
    }

    forward_hooks!(Reply);
}

impl<S: Collect> StepKind<S> for kind::Collect {
    type Flow = S::Flow;
    const KIND: Kind = Kind::Collect;

    fn slots() -> &'static [Slot] {
        S::slots()
    }

    fn reset(step: &mut S) {
        for slot in 0..S::slots().len() {
            // Clearing reads nothing, so it cannot fail.
            let _ = step.set(slot, None);
        }
    }

    async fn dispatch(step: &mut S, cx: &mut StepCx<'_, S::Flow>) -> Result<Transition> {
        let mut asking = match cx.take_message() {
            Some(message) => fill(step, &message, cx),
            None => Vec::new(),
        };
        asking = ask_also(asking, missing(step));
        if asking.is_empty()
            && let Some(data) = step.data()
        {
            let next = step.complete(data, cx).await?;
            asking = missing(step);
            // A step that stays after it has emptied a slot asks for it.
            if !S::is_stay(&next) || asking.is_empty() {
                return leave(step, next, cx).await;
            }
        }
        if step.max_turns().is_some_and(|most| cx.scope.asked >= most) {
            let names: Vec<_> = asking.iter().map(|slot| slot.name).collect();
            let reason =
                format!("still missing after {} questions: {}", cx.scope.asked, names.join(", "));
            return Ok(Transition::Escalate(reason));
        }
        let question = step.ask(&asking, cx);
        cx.ask(question);
        Ok(Transition::Stay)
    }

    forward_hooks!(Collect);
}

type Running<'a, T> = Pin<Box<dyn Future<Output = Result<T, StepError>> + Send + 'a>>;

/// A step of a flow, whatever its type.
pub(crate) trait DynStep<F: FlowMeta>: Send + Sync {
    fn save(&self) -> serde_json::Result<Value>;
    fn arrive<'a>(&'a mut self, arrival: Arrival, cx: &'a mut StepCx<'_, F>) -> Running<'a, ()>;
    fn restore<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Running<'a, ()>;
    fn dispatch<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Running<'a, Transition>;
    fn exit<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Running<'a, ()>;
}

pub(crate) struct Erased<S>(pub(crate) S);

impl<F, S> DynStep<F> for Erased<S>
where
    F: FlowMeta,
    S: Step,
    S::Kind: StepKind<S, Flow = F>,
{
    fn save(&self) -> serde_json::Result<Value> {
        serde_json::to_value(&self.0)
    }

    fn arrive<'a>(&'a mut self, arrival: Arrival, cx: &'a mut StepCx<'_, F>) -> Running<'a, ()> {
        Box::pin(async move {
            let step = &mut self.0;
            S::Kind::reset(step);
            if arrival.start {
                S::Kind::start(step, cx).await?;
            }
            let input = arrival.input.take::<S::Input>().map_err(|e| {
                StepError::terminal(format!(
                    "the payload of step `{}` cannot be read: {e}",
                    S::NAME
                ))
            })?;
            S::Kind::enter(step, input, cx).await?;
            if let Some(from) = arrival.from {
                let message = cx.scope.last_message.clone();
                let crossing = Crossing::new(&from, message.as_deref());
                if let Some(text) = S::Kind::cross(step, crossing, cx).await? {
                    cx.scope.message = Some(text);
                }
            }
            Ok(())
        })
    }

    fn restore<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Running<'a, ()> {
        Box::pin(S::Kind::restore(&mut self.0, cx))
    }

    fn dispatch<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Running<'a, Transition> {
        Box::pin(S::Kind::dispatch(&mut self.0, cx))
    }

    fn exit<'a>(&'a mut self, cx: &'a mut StepCx<'_, F>) -> Running<'a, ()> {
        Box::pin(S::Kind::exit(&mut self.0, cx))
    }
}
