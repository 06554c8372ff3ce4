//! Keeps the memory of a step in shape: summaries, and what is seen on entering.

use std::collections::BTreeMap;

use super::cx::Scope;
use super::speaker::Speaker;
use crate::event::Event;
use crate::memory::{
    ContextStrategy, Fold, Marks, MemoryPolicy, fold_due, keep_last, read_summary, reset,
    reset_with_summary,
};
use crate::model::{ModelError, complete_in};
use crate::panic::catch_panic;

/// What a turn knows of the memory of its steps beside the messages.
#[derive(Default)]
pub(crate) struct Recall {
    pub(crate) policy: MemoryPolicy,
    /// The model that writes summaries, where the policy names one.
    pub(crate) summarizer: Option<Speaker>,
    /// The marks that were set since the last commit, by namespace.
    pub(crate) marks: BTreeMap<&'static str, Marks>,
    /// Why no summary could be made in this turn, by namespace.
    pub(crate) failed: BTreeMap<&'static str, ModelError>,
}

/// Summarises the oldest messages of the step's memory, once there are enough.
pub(super) async fn refresh(scope: &mut Scope) {
    if scope.recall.failed.contains_key(scope.namespace) {
        return;
    }
    let due = scope.look_back(|view| fold_due(view, &scope.recall.policy, scope.now));
    let Some(fold) = due else { return };
    match summarize(scope, &fold).await {
        Ok(text) => tell_summary(scope, fold, text),
        Err(error) => tell_failure(scope, error, false),
    }
}

/// Decides what the step that is entered sees of the time before.
pub(crate) async fn enter(scope: &mut Scope, strategy: ContextStrategy) {
    let marks = match strategy {
        ContextStrategy::Append => None,
        ContextStrategy::Reset => scope.look_back(reset),
        ContextStrategy::Last(count) => scope.look_back(|view| keep_last(view, count)),
        ContextStrategy::ResetWithSummary => {
            let policy = &scope.recall.policy;
            let fold = scope.look_back(|view| reset_with_summary(view, policy, scope.now));
            let Some(fold) = fold else { return };
            match summarize(scope, &fold).await {
                Ok(text) => return tell_summary(scope, fold, text),
                Err(error) => tell_failure(scope, error, true),
            }
            scope.look_back(reset)
        }
    };
    if let Some(marks) = marks {
        scope.recall.marks.insert(scope.namespace, marks);
    }
}

/// Lets a model write a summary, in one attempt: the turn that waits for it can do without.
async fn summarize(scope: &mut Scope, fold: &Fold) -> Result<String, ModelError> {
    if let Some(error) = scope.recall.failed.get(scope.namespace) {
        return Err(error.clone());
    }
    let speaker = scope.recall.summarizer.as_ref().or(scope.speaker.as_ref()).cloned();
    let mut speaker = speaker.ok_or(ModelError::Missing)?;
    speaker.policy.attempts = 1;
    let name = speaker.name.to_string();
    let request = speaker.prepare(&fold.request)?;
    let conversation = Some(scope.session.as_str());
    let answer = catch_panic(complete_in(conversation, speaker.callee(), &request)).await;
    let response = answer.unwrap_or_else(|message| {
        let reason = format!("it panicked: {message}");
        Err(ModelError::Malformed { model: name.clone(), reason })
    })?;
    let (step, usage) = (scope.step.clone(), response.usage);
    scope.usage += usage;
    scope.events.emit(|| Event::Usage { step, model: name.clone(), usage });
    read_summary(&name, &response)
}

fn tell_summary(scope: &mut Scope, fold: Fold, text: String) {
    let (step, namespace) = (scope.step.clone(), scope.namespace);
    let (messages, through) = (fold.count, fold.through);
    scope.events.emit(|| Event::MemorySummary {
        step,
        namespace: namespace.to_owned(),
        messages,
        through,
    });
    scope.recall.marks.insert(namespace, fold.into_marks(text));
}

fn tell_failure(scope: &mut Scope, error: ModelError, reset: bool) {
    let (step, namespace) = (scope.step.clone(), scope.namespace);
    tracing::warn!(step = %step, namespace, code = error.code(), error = %error, "no summary");
    scope.events.emit(|| Event::MemorySummaryFailed {
        step,
        namespace: namespace.to_owned(),
        code: error.code().to_owned(),
        message: error.to_string(),
        reset,
    });
    scope.recall.failed.insert(namespace, error);
}
