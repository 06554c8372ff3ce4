//! The model of a step, and one call of it.

use std::borrow::Cow;
use std::sync::Arc;

use super::cx::Scope;
use crate::event::Event;
use crate::model::{
    CallPolicy, Callee, ChatModel, ChatRequest, ChatResponse, Deadline, FinishReason, ModelCatalog,
    ModelConfig, ModelError, ModelEvent, Sampling, complete_in, speak,
};
use crate::telemetry::{ChatCall, chat};

/// The models that a turn may speak through, and how they are called.
#[derive(Clone, Default)]
pub(crate) struct Models {
    catalog: Arc<ModelCatalog>,
    policy: CallPolicy,
    deadline: Option<Deadline>,
}

impl Models {
    /// The models of a turn that begins now.
    pub(crate) fn begin(catalog: Arc<ModelCatalog>, policy: CallPolicy) -> Self {
        let deadline = Deadline::begin(&policy);
        Self { catalog, policy, deadline }
    }

    /// Finds a model and checks its parameters.
    pub(crate) fn find(&self, config: ModelConfig) -> Result<Speaker, ModelError> {
        let model = self.catalog.find(&config.model)?;
        let speaker = Speaker {
            model,
            name: config.model.to_string().into(),
            config: Arc::new(config),
            policy: self.policy.clone(),
            deadline: self.deadline,
        };
        speaker.check(&speaker.config.sampling)?;
        Ok(speaker)
    }
}

/// The models of the steps of a flow, by their places in the registry and their names.
pub(crate) type Speakers = Arc<[(Arc<str>, Option<Speaker>)]>;

/// A model that a step may speak through, and how it is called.
#[derive(Clone)]
pub(crate) struct Speaker {
    pub(crate) model: Arc<dyn ChatModel>,
    pub(crate) name: Arc<str>,
    /// The selection, with the parameters of the flow and of the step.
    pub(crate) config: Arc<ModelConfig>,
    pub(crate) policy: CallPolicy,
    deadline: Option<Deadline>,
}

impl Speaker {
    pub(super) fn callee(&self) -> Callee<'_> {
        let Self { model, name, policy, .. } = self;
        Callee { model: &**model, name, policy, deadline: self.deadline }
    }

    fn check(&self, sampling: &Sampling) -> Result<(), ModelError> {
        sampling.check(&self.name)?;
        self.model.check_sampling(sampling)
    }

    /// The request with the parameters of the flow and of the step under its own.
    pub(super) fn prepare<'a>(
        &self,
        request: &'a ChatRequest,
    ) -> Result<Cow<'a, ChatRequest>, ModelError> {
        let sampling = request.sampling.over(&self.config.sampling);
        if sampling != self.config.sampling {
            self.check(&sampling)?;
        }
        if sampling == request.sampling {
            return Ok(Cow::Borrowed(request));
        }
        let mut request = request.clone();
        request.sampling = sampling;
        Ok(Cow::Owned(request))
    }
}

/// Calls the model, tells listeners its pieces, counts its tokens. The request's parameters are
/// laid over those of the speaker.
pub(super) async fn ask(
    scope: &mut Scope,
    speaker: &Speaker,
    request: &ChatRequest,
) -> Result<ChatResponse, ModelError> {
    let request = &*speaker.prepare(request)?;
    let events = scope.events.clone();
    events.ready().await;
    let step = scope.step.clone();
    let observe = |event: ModelEvent| {
        if let ModelEvent::TextDelta(text) = event {
            let step = step.clone();
            events.emit(|| Event::TextDelta { step, text });
        }
    };
    let begin = || {
        let step = step.clone();
        events.emit(|| Event::TextStart { step });
    };
    let conversation = Some(scope.session.as_str());
    let call = ChatCall { model: &speaker.name, request, conversation, stream: true };
    let speech = speak(speaker.callee(), request, &events, &begin, &observe);
    let response = chat(call, speech).await?;
    scope.events.emit(|| Event::TextEnd { step: step.clone(), finish: response.finish });
    settle(scope, speaker, response)
}

/// Calls the model without a word to listeners but what it cost: for values, not for words.
pub(super) async fn ask_silently(
    scope: &mut Scope,
    speaker: &Speaker,
    request: &ChatRequest,
) -> Result<ChatResponse, ModelError> {
    let request = &*speaker.prepare(request)?;
    scope.events.ready().await;
    let conversation = Some(scope.session.as_str());
    let response = complete_in(conversation, speaker.callee(), request).await?;
    settle(scope, speaker, response)
}

/// Counts the tokens of an answer, and refuses one that says nothing.
fn settle(
    scope: &mut Scope,
    speaker: &Speaker,
    response: ChatResponse,
) -> Result<ChatResponse, ModelError> {
    let model = || speaker.name.to_string();
    let usage = response.usage;
    scope.usage += usage;
    let step = scope.step.clone();
    scope.events.emit(|| Event::Usage { step, model: model(), usage });
    if response.finish == FinishReason::Refusal {
        return Err(ModelError::Refused { model: model(), reason: response.text() });
    }
    if response.text().trim().is_empty() && response.tool_calls().next().is_none() {
        let reason = "it has neither text nor a tool call".to_owned();
        return Err(ModelError::Malformed { model: model(), reason });
    }
    Ok(response)
}
