//! The model of a step, and one call of it.

use std::sync::Arc;

use super::cx::Scope;
use crate::event::Event;
use crate::model::{
    CallPolicy, ChatModel, ChatRequest, ChatResponse, FinishReason, ModelError, ModelEvent, speak,
};
use crate::telemetry::{ChatCall, chat};

/// A model that a step may speak through, and how it is called.
#[derive(Clone)]
pub(crate) struct Speaker {
    pub(crate) model: Arc<dyn ChatModel>,
    pub(crate) name: Arc<str>,
    pub(crate) policy: CallPolicy,
}

/// Calls the model, tells listeners its pieces, counts its tokens.
pub(super) async fn ask(
    scope: &mut Scope,
    speaker: &Speaker,
    request: &ChatRequest,
) -> Result<ChatResponse, ModelError> {
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
    let name = &speaker.name;
    let conversation = Some(scope.session.as_str());
    let call = ChatCall { model: name, request, conversation, stream: true };
    let speech = speak(&*speaker.model, name, request, &speaker.policy, &events, &begin, &observe);
    let response = chat(call, speech).await?;
    scope.events.emit(|| Event::TextEnd { step: step.clone(), finish: response.finish });
    let usage = response.usage;
    scope.usage += usage;
    scope.events.emit(|| Event::Usage { step: step.clone(), model: name.to_string(), usage });
    let model = || name.to_string();
    if response.finish == FinishReason::Refusal {
        return Err(ModelError::Refused { model: model(), reason: response.text() });
    }
    if response.text().trim().is_empty() && response.tool_calls().next().is_none() {
        let reason = "it has neither text nor a tool call".to_owned();
        return Err(ModelError::Malformed { model: model(), reason });
    }
    Ok(response)
}
