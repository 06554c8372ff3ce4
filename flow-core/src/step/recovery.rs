//! What becomes of a step whose model gives no answer.

use std::future::Future;
use std::pin::Pin;

use super::cx::Scope;
use super::{Effect, FlowMeta, Speaker, StepCx};
use crate::error::{Error, Result};
use crate::model::{ModelConfig, ModelError};
use crate::transition::Transition;

/// What a step or a flow says when a model gave no answer: the result of `on_model_error`.
///
/// The step is asked first, with its next-enum as `N`; when it passes, the flow is, with a
/// [`Transition`]; when both pass, the turn fails. They are asked when the
/// [`CallPolicy`](crate::model::CallPolicy) has given up, and at once about what another
/// attempt cannot cure, such as [`ModelError::Refused`].
///
/// What the model has said so far is dropped, except before a retry; the tool calls that were
/// made stay in the history with their results. What the hook itself says with the context is
/// said.
///
/// ```
/// use flow_core::prelude::*;
/// use flow_core::model::{ModelError, ModelSelection};
/// # #[flow(id = "f", steps(Greet), model = "openai::gpt-5.1-mini")] #[derive(Clone)] struct Desk;
/// # impl Flow for Desk {}
/// # #[step(reply, next(stay, escalate))]
/// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// # struct Greet;
/// impl Reply for Greet {
///     type Flow = Desk;
///
///     async fn on_model_error(
///         &mut self,
///         error: &ModelError,
///         _: &mut StepCx<'_, Desk>,
///     ) -> Result<Recovery<GreetNext>> {
///         Ok(match error {
///             ModelError::Refused { .. } => Recovery::Answer("I cannot help with that.".into()),
///             ModelError::Deadline { .. } => Recovery::Go(GreetNext::Escalate("too slow".into())),
///             _ => Recovery::Retry("anthropic::claude-haiku-4-5".parse::<ModelSelection>()?.into()),
///         })
///     }
/// }
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub enum Recovery<N> {
    /// Somebody else may handle it: the flow, else nobody.
    #[default]
    Pass,
    /// The user is told this text. A reply step goes on as if the model had answered it; a step
    /// of another kind waits for the user.
    Answer(String),
    /// The step is left, or stays.
    Go(N),
    /// Another model is asked the same, with the results of the tools that were called already.
    /// That happens once in each run of a step, whoever asks for it: a second `Retry` counts as
    /// [`Pass`](Self::Pass). The deadline of the turn stays where it is. A model that
    /// cannot be had or does not take the parameters fails the turn with the reason. Parameters of the flow and the step go along only if it is
    /// their model; those of [`Reply::sampling`](super::Reply::sampling) always do.
    Retry(ModelConfig),
}

/// A hook of a flow that runs.
type Asking<'a> = Pin<Box<dyn Future<Output = Result<Recovery<Transition>>> + Send + 'a>>;

/// The `on_model_error` of a flow, which steps do not know by its trait.
pub(crate) type AskFlow<F> =
    for<'a, 'b> fn(&'a F, &'a ModelError, &'a mut StepCx<'b, F>) -> Asking<'a>;

/// The failures of models in one run of a step, of whatever kind:
///
/// 1. [`begin`](Self::begin) before the first call;
/// 2. after a failure [`mark`](Self::mark), then the step's hook, then [`settle`](Self::settle),
///    and the calls again if that says so;
/// 3. [`finish`](Self::finish) after an answer.
pub(super) struct Failures {
    own: Option<Speaker>,
    retried: bool,
    /// How much was to be said before the hook ran.
    said: usize,
}

/// How a run of a step goes on after a failure.
pub(super) enum Recovered<N> {
    /// The calls are made again, by another model.
    Again,
    Answer(String),
    Go(N),
    /// The flow leaves the step, without its gate.
    Leave(Transition),
}

impl Failures {
    pub(super) fn begin(scope: &Scope) -> Self {
        Self { own: scope.speaker.clone(), retried: false, said: 0 }
    }

    pub(super) fn mark(&mut self, scope: &Scope) {
        self.said = scope.effects.len();
    }

    /// Does what the step says, else asks the flow.
    pub(super) async fn settle<F: FlowMeta, N>(
        &mut self,
        step: Recovery<N>,
        error: ModelError,
        cx: &mut StepCx<'_, F>,
    ) -> Result<Recovered<N>> {
        let recovered = match step {
            Recovery::Answer(text) => Recovered::Answer(text),
            Recovery::Go(next) => Recovered::Go(next),
            Recovery::Retry(config) if !self.retried => {
                return self.retry(config, &error, cx.scope);
            }
            Recovery::Pass | Recovery::Retry(_) => {
                let said = match cx.ask_flow {
                    Some(ask) => ask(cx.flow, &error, cx).await?,
                    None => Recovery::Pass,
                };
                match said {
                    Recovery::Answer(text) => Recovered::Answer(text),
                    Recovery::Go(transition) => Recovered::Leave(transition),
                    Recovery::Retry(config) if !self.retried => {
                        return self.retry(config, &error, cx.scope);
                    }
                    Recovery::Pass | Recovery::Retry(_) => return Err(Error::from(error).into()),
                }
            }
        };
        let code = error.code();
        tracing::warn!(step = %cx.scope.step, code, error = %error, "model failed, the step goes on");
        // What tools have done is done, so the history shows it.
        let mut before = self.said;
        cx.scope.effects.retain(|effect| {
            let said = before > 0;
            before = before.saturating_sub(1);
            !said || matches!(effect, Effect::Round { .. })
        });
        self.finish(cx.scope);
        Ok(recovered)
    }

    fn retry<N>(
        &mut self,
        config: ModelConfig,
        error: &ModelError,
        scope: &mut Scope,
    ) -> Result<Recovered<N>> {
        let config = match &self.own {
            Some(own) => config.over(&own.config),
            None => config,
        };
        let speaker = scope.models.find(config).map_err(Error::from)?;
        let (code, model) = (error.code(), &*speaker.name);
        tracing::warn!(step = %scope.step, code, error = %error, model, "model failed, asking another");
        self.retried = true;
        scope.speaker = Some(speaker);
        Ok(Recovered::Again)
    }

    /// Gives the step its own model back.
    pub(super) fn finish(&mut self, scope: &mut Scope) {
        if self.retried {
            scope.speaker = self.own.take();
        }
    }
}
