use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::confirm::{Answer, question, read};
use super::extract::{ask_also, fill, missing};
use super::generate::{Failed, Generated, Progress, generate};
use super::recovery::{Failures, Recovered};
use super::{
    Action, ActionCx, Collect, Confirm, Crossing, Decide, Effect, FlowMeta, Gate, Kind, Reply,
    Slot, Step, StepCx, ToolHost, kind,
};
use crate::effect::{Denied, Journal};
use crate::error::{Error, Result, StepError};
use crate::event::Rendered;
use crate::model::ModelError;
use crate::session::Interrupt;
use crate::transition::Transition;

/// The flow of a step.
pub type FlowOf<S> = <<S as Step>::Kind as StepKind<S>>::Flow;

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

    /// Runs the step once. A way out that it takes is put into `next`, to pass the gate;
    /// any other transition is returned and has none.
    fn dispatch(
        step: &mut S,
        cx: &mut StepCx<'_, Self::Flow>,
        next: &mut Option<S::Next>,
    ) -> impl Future<Output = Result<Option<Transition>>> + Send;

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

// The futures of the hooks are handed on as they are: an `async fn` around each would be
// compiled anew for every step of every flow.
macro_rules! forward_hooks {
    ($kind:ident) => {
        fn start(
            step: &mut S,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> impl Future<Output = Result<()>> + Send {
            $kind::on_start(step, cx)
        }

        fn restore(
            step: &mut S,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> impl Future<Output = Result<()>> + Send {
            $kind::on_restore(step, cx)
        }

        fn enter(
            step: &mut S,
            input: S::Input,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> impl Future<Output = Result<()>> + Send {
            $kind::on_enter(step, input, cx)
        }

        fn exit(
            step: &mut S,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> impl Future<Output = Result<()>> + Send {
            $kind::on_exit(step, cx)
        }

        fn cross(
            step: &mut S,
            crossing: Crossing<'_>,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> impl Future<Output = Result<Option<String>>> + Send {
            $kind::on_crossing(step, crossing, cx)
        }

        fn verify(
            step: &mut S,
            next: &S::Next,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> impl Future<Output = Result<Gate>> + Send {
            $kind::verify(step, next, cx)
        }
    };
}

/// What came of a run of an action.
pub(crate) enum Ran<T> {
    Over(T),
    Waits(Vec<Interrupt>),
}

/// Runs an action until it is over, or until it waits and none of its effects goes on. Then
/// it is dropped.
pub(crate) async fn run_until_stuck<T>(
    journal: &Journal,
    run: impl Future<Output = Result<T>>,
) -> Result<Ran<T>> {
    journal.begin_run();
    let mut run = pin!(run);
    let ran = poll_fn(|cx| {
        let polled = run.as_mut().poll(cx);
        if let Some(error) = journal.take_break() {
            return Poll::Ready(Err(error.into()));
        }
        match polled {
            Poll::Ready(result) => Poll::Ready(result.map(Ran::Over)),
            Poll::Pending if journal.is_stuck() => Poll::Ready(Ok(Ran::Waits(journal.waiting()))),
            Poll::Pending => Poll::Pending,
        }
    });
    let ran = ran.await;
    // What the code has done after it diverged does not count, whatever it returned.
    let over = matches!(ran, Ok(Ran::Over(_)));
    journal.check(over).map_err(Error::from)?;
    ran
}

impl<S: Action> StepKind<S> for kind::Action {
    type Flow = S::Flow;
    const KIND: Kind = Kind::Action;

    async fn dispatch(
        step: &mut S,
        cx: &mut StepCx<'_, S::Flow>,
        next: &mut Option<S::Next>,
    ) -> Result<Option<Transition>> {
        let journal = cx.scope.journal.clone();
        let result = {
            let nested = cx.scope.level > 0;
            let mut cx = ActionCx::new(cx.reborrow());
            let run = step.run(&mut cx);
            // A step within an action is put aside with that.
            if nested { run.await.map(Ran::Over) } else { run_until_stuck(&journal, run).await }
        };
        match result {
            Ok(Ran::Over(way)) => *next = Some(way),
            Ok(Ran::Waits(interrupts)) => {
                cx.scope.interrupts = interrupts;
                return Ok(Some(Transition::Suspend));
            }
            Err(error) => match error.downcast_ref::<Denied>().cloned() {
                Some(denied) => match step.on_denied(&denied, cx).await? {
                    Some(way) => *next = Some(way),
                    None => return Err(error),
                },
                None => return Err(error),
            },
        }
        Ok(None)
    }

    forward_hooks!(Action);
}

impl<S: Decide> StepKind<S> for kind::Decide {
    type Flow = S::Flow;
    const KIND: Kind = Kind::Decide;

    async fn dispatch(
        step: &mut S,
        cx: &mut StepCx<'_, S::Flow>,
        next: &mut Option<S::Next>,
    ) -> Result<Option<Transition>> {
        let mut failures = Failures::begin(cx.scope);
        let verdict = loop {
            let error = match step.verdict(cx).await {
                Ok(verdict) => break verdict,
                Err(error) => of_model(error)?,
            };
            failures.mark(cx.scope);
            let recovery = step.on_model_error(&error, cx).await?;
            let recovered = failures.settle(recovery, error, cx).await?;
            if let Some(over) = follow(recovered, cx, next) {
                return Ok(over);
            }
        };
        failures.finish(cx.scope);
        *next = Some(step.decide(verdict, cx).await?);
        Ok(None)
    }

    forward_hooks!(Decide);
}

impl<S: Confirm> StepKind<S> for kind::Confirm {
    type Flow = S::Flow;
    const KIND: Kind = Kind::Decide;

    async fn dispatch(
        step: &mut S,
        cx: &mut StepCx<'_, S::Flow>,
        next: &mut Option<S::Next>,
    ) -> Result<Option<Transition>> {
        let message = cx.take_message();
        let mut hint = None;
        // What was said before the question is no answer to it.
        if cx.scope.asked > 0
            && let Some(message) = message
        {
            match read(step, &message, cx) {
                Answer::Unclear => hint = Some(step.hint(cx)),
                answer => {
                    let way = step.confirmed(answer == Answer::Yes, cx).await?;
                    if !S::is_stay(&way) {
                        *next = Some(way);
                        return Ok(None);
                    }
                }
            }
        }
        if step.max_turns().is_some_and(|most| cx.scope.asked >= most) {
            let reason = format!("no clear answer after {} questions", cx.scope.asked);
            return Ok(Some(Transition::Escalate(reason)));
        }
        if let Some(hint) = hint {
            cx.feedback(hint);
        }
        let question = question(step, cx);
        cx.ask(question);
        Ok(Some(Transition::Stay))
    }

    forward_hooks!(Confirm);
}

impl<S> StepKind<S> for kind::Reply
where
    S: Reply + ToolHost<Flow = <S as Reply>::Flow>,
{
    type Flow = <S as Reply>::Flow;
    const KIND: Kind = Kind::Reply;

    async fn dispatch(
        step: &mut S,
        cx: &mut StepCx<'_, Self::Flow>,
        next: &mut Option<S::Next>,
    ) -> Result<Option<Transition>> {
        cx.take_message();
        // A round of calls that has waited goes on, whatever it has made of the step.
        let waited = cx.scope.round.is_some();
        let authored = if waited { None } else { step.response(cx) };
        let text = match authored {
            Some(response) => {
                let text = response.clone();
                cx.scope.effects.push(Effect::Say { text, rendered: Rendered::Engine });
                response
            }
            None => {
                let mut failures = Failures::begin(cx.scope);
                let mut progress = Progress::default();
                loop {
                    let error = match generate(step, cx, &mut progress).await {
                        Ok(Generated { text, transition }) => {
                            failures.finish(cx.scope);
                            if transition.is_some() {
                                return Ok(transition);
                            }
                            break text;
                        }
                        Err(Failed::Step(error)) => return Err(error),
                        Err(Failed::Model(error)) => error,
                    };
                    failures.mark(cx.scope);
                    let recovery = step.on_model_error(&error, cx).await?;
                    match failures.settle(recovery, error, cx).await? {
                        Recovered::Again => {}
                        Recovered::Answer(text) => {
                            cx.say(text.clone());
                            break text;
                        }
                        Recovered::Go(way) => {
                            *next = Some(way);
                            return Ok(None);
                        }
                        Recovered::Leave(transition) => return Ok(Some(transition)),
                    }
                }
            }
        };
        *next = step.on_response(&text, cx).await?;
        Ok(next.is_none().then_some(Transition::Stay))
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

    async fn dispatch(
        step: &mut S,
        cx: &mut StepCx<'_, S::Flow>,
        next: &mut Option<S::Next>,
    ) -> Result<Option<Transition>> {
        let mut asking = Vec::new();
        if let Some(message) = cx.take_message() {
            let mut failures = Failures::begin(cx.scope);
            let asked = cx.scope.asked_fields.clone();
            let form: Vec<_> = (0..S::slots().len()).map(|slot| step.get(slot)).collect();
            asking = loop {
                let error = match fill(step, &message, cx).await {
                    Ok(asking) => break asking,
                    Err(Failed::Step(error)) => return Err(error),
                    Err(Failed::Model(error)) => error,
                };
                failures.mark(cx.scope);
                let recovery = step.on_model_error(&error, cx).await?;
                let recovered = failures.settle(recovery, error, cx).await?;
                if let Some(over) = follow(recovered, cx, next) {
                    return Ok(over);
                }
                // Another model reads the message into the form as it was.
                cx.scope.asked_fields.clone_from(&asked);
                for (slot, value) in form.iter().enumerate() {
                    // A value that the slot had before reads as its type.
                    let _ = step.set(slot, value.clone());
                }
            };
            failures.finish(cx.scope);
        }
        asking = ask_also(asking, missing(step));
        if asking.is_empty()
            && let Some(data) = step.data()
        {
            let way = step.complete(data, cx).await?;
            asking = missing(step);
            // A step that stays after it has emptied a slot asks for it.
            if !S::is_stay(&way) || asking.is_empty() {
                *next = Some(way);
                return Ok(None);
            }
        }
        if step.max_turns().is_some_and(|most| cx.scope.asked >= most) {
            let names: Vec<_> = asking.iter().map(|slot| slot.name).collect();
            let reason =
                format!("still missing after {} questions: {}", cx.scope.asked, names.join(", "));
            return Ok(Some(Transition::Escalate(reason)));
        }
        let question = step.ask(&asking, cx);
        cx.ask(question);
        Ok(Some(Transition::Stay))
    }

    forward_hooks!(Collect);
}

/// The error of a model, or any other as it is.
fn of_model(error: StepError) -> Result<ModelError> {
    match error.into_source::<Error>()? {
        Error::Model(error) => Ok(error),
        other => Err(other.into()),
    }
}

/// What a step that does not speak does after its model has failed; nothing when it is to be
/// asked again.
fn follow<F: FlowMeta, N>(
    recovered: Recovered<N>,
    cx: &mut StepCx<'_, F>,
    next: &mut Option<N>,
) -> Option<Option<Transition>> {
    match recovered {
        Recovered::Again => None,
        Recovered::Answer(text) => {
            cx.say(text);
            Some(Some(Transition::Stay))
        }
        Recovered::Go(way) => {
            *next = Some(way);
            Some(None)
        }
        Recovered::Leave(transition) => Some(Some(transition)),
    }
}
