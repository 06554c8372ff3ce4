//! Lets a model speak for a reply step: the tool loop.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::approval::Resumed;
use super::cx::Scope;
use super::recall;
use super::round::{Round, Toolbox, keep};
use super::speaker::ask;
use super::{
    Check, Effect, Exposure, FlowMeta, Gate, Prompt, Reply, Step, StepCx, ToolFuture, ToolHost,
};
use crate::error::{Error, StepError, ToolError};
use crate::memory;
use crate::message::{Message, Part, Role, ToolCallPart};
use crate::model::{CallPolicy, ChatRequest, ModelError, Sampling, ToolChoice};
use crate::session::PendingRound;
use crate::tool::{ToolDefinition, ToolPolicy, WayOut, declared};
use crate::transition::Transition;

/// How often a step may refuse an answer before its turn fails.
pub const CHECK_RETRIES: u32 = 2;

/// What a model has said, and where a tool has moved the flow.
pub(super) struct Generated {
    pub(super) text: String,
    pub(super) transition: Option<Transition>,
}

/// How far the loop has come. After a failure another model goes on from there, so that no
/// tool is called twice.
#[derive(Default)]
pub(super) struct Progress {
    messages: Option<Vec<Message>>,
    refused: u32,
    rounds: u32,
}

/// Why there is no answer.
pub(super) enum Failed {
    Model(ModelError),
    Step(StepError),
}

impl From<Failed> for StepError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Model(error) => Error::from(error).into(),
            Failed::Step(error) => error,
        }
    }
}

impl From<StepError> for Failed {
    fn from(error: StepError) -> Self {
        Self::Step(error)
    }
}

impl From<ModelError> for Failed {
    fn from(error: ModelError) -> Self {
        Self::Model(error)
    }
}

/// A reply step for which a model speaks, whatever its type: the loop below is compiled once
/// for each flow, not for each step.
pub(super) trait Spoken<F: FlowMeta>: Send + Sync {
    fn instructions(&self, cx: &StepCx<'_, F>) -> Prompt;
    fn sampling(&self, cx: &StepCx<'_, F>) -> Sampling;
    fn own_tools(&self) -> Arc<[ToolDefinition]>;
    fn flow_tools(&self) -> Exposure;
    fn offer(&self, tools: Vec<ToolDefinition>, cx: &StepCx<'_, F>) -> Vec<ToolDefinition>;
    fn check(&self, response: &str, cx: &StepCx<'_, F>) -> Check;
    fn call<'a>(
        &'a mut self,
        cx: &'a mut StepCx<'_, F>,
        tool: &'a str,
        arguments: Value,
    ) -> ToolFuture<'a>;
    fn call_shared<'a>(
        &'a self,
        cx: &'a StepCx<'_, F>,
        tool: &'a str,
        arguments: Value,
    ) -> ToolFuture<'a>;
    fn tool_policy(
        &self,
        tool: &ToolDefinition,
        arguments: &Value,
        cx: &StepCx<'_, F>,
    ) -> ToolPolicy;
}

impl<S> Spoken<<S as Reply>::Flow> for S
where
    S: Reply + ToolHost<Flow = <S as Reply>::Flow>,
{
    fn instructions(&self, cx: &StepCx<'_, <S as Reply>::Flow>) -> Prompt {
        Reply::instructions(self, cx)
    }

    fn sampling(&self, cx: &StepCx<'_, <S as Reply>::Flow>) -> Sampling {
        Reply::sampling(self, cx)
    }

    fn own_tools(&self) -> Arc<[ToolDefinition]> {
        declared::<S>(<S as Step>::tools)
    }

    fn flow_tools(&self) -> Exposure {
        S::FLOW_TOOLS
    }

    fn offer(
        &self,
        tools: Vec<ToolDefinition>,
        cx: &StepCx<'_, <S as Reply>::Flow>,
    ) -> Vec<ToolDefinition> {
        Reply::tools(self, tools, cx)
    }

    fn check(&self, response: &str, cx: &StepCx<'_, <S as Reply>::Flow>) -> Check {
        self.check_response(response, cx)
    }

    fn call<'a>(
        &'a mut self,
        cx: &'a mut StepCx<'_, <S as Reply>::Flow>,
        tool: &'a str,
        arguments: Value,
    ) -> ToolFuture<'a> {
        Box::pin(async move {
            let output = self.call_tool(cx, tool, arguments).await?;
            let leaves = output.next.as_ref().and_then(WayOut::of::<S>);
            let Some(next) = leaves.filter(|next| !S::is_stay(next)) else { return Ok(output) };
            // A model is told why the step holds its position.
            let held = match self.verify(next, cx).await {
                Ok(Gate::Pass) => return Ok(output),
                Ok(Gate::Hold(reason)) => reason,
                Err(error) => error.to_string(),
            };
            let reason = format!("the step holds its position: {held}");
            Err(ToolError::Failed { tool: tool.to_owned(), reason, retryable: false })
        })
    }

    fn call_shared<'a>(
        &'a self,
        cx: &'a StepCx<'_, <S as Reply>::Flow>,
        tool: &'a str,
        arguments: Value,
    ) -> ToolFuture<'a> {
        self.call_tool_shared(cx, tool, arguments)
    }

    fn tool_policy(
        &self,
        tool: &ToolDefinition,
        arguments: &Value,
        cx: &StepCx<'_, <S as Reply>::Flow>,
    ) -> ToolPolicy {
        Reply::tool_policy(self, tool, arguments, cx)
    }
}

/// Lets the model answer, calls the tools that it asks for, and goes on until it has answered
/// in words or a tool has moved the flow.
pub(super) async fn generate<F: FlowMeta>(
    step: &mut dyn Spoken<F>,
    cx: &mut StepCx<'_, F>,
    progress: &mut Progress,
) -> Result<Generated, Failed> {
    let speaker = cx.scope.speaker.clone().ok_or(ModelError::Missing)?;
    let toolbox = open_toolbox(step, cx, speaker.policy.clone());
    let limit = speaker.policy.tool_rounds;
    let Progress { messages, refused, rounds } = progress;
    let waited = match cx.scope.round.take() {
        Some(round) => match toolbox.resume(step, cx, round).await {
            Resumed::Leaves(transition) => {
                return Ok(Generated { text: String::new(), transition: Some(transition) });
            }
            Resumed::Over(round) => Some(round),
        },
        None => None,
    };
    let history = match messages.take() {
        Some(messages) => messages,
        None => {
            recall::refresh(cx.scope).await;
            match waited {
                Some(round) => {
                    (*refused, *rounds) = (round.refused, round.rounds);
                    history_with(cx.scope, round)
                }
                None => cx.scope.history(),
            }
        }
    };
    let mut request =
        ChatRequest::new(history).tools(toolbox.offered.clone()).sampling(step.sampling(cx));
    let system = step.instructions(cx);
    if !system.as_str().is_empty() {
        request = request.system(system.as_str());
    }
    loop {
        if *rounds == limit {
            // The last round: the model has to answer with what it has.
            request.tool_choice = ToolChoice::None;
        }
        let response = match ask(cx.scope, &speaker, &request).await {
            Ok(response) => response,
            Err(error) => {
                *messages = Some(request.messages);
                return Err(error.into());
            }
        };
        let (parts, calls) = cx.scope.look_back(|view| {
            name_calls(response.parts, view.messages.iter().copied().chain(&request.messages))
        });
        let text = texts(&parts);
        if calls.is_empty() {
            if let Check::Retry(reason) = step.check(&text, cx) {
                if *refused == CHECK_RETRIES {
                    return Err(Failed::Step(StepError::new(format!(
                        "the step refused {} answers of the model; the last reason: {reason}",
                        *refused + 1
                    ))));
                }
                *refused += 1;
                // Neither the refused answer nor the reason becomes part of the history.
                request.messages.push(cx.scope.draft(Role::Assistant, parts));
                request.messages.push(cx.scope.draft(Role::User, vec![Part::text(reason)]));
                continue;
            }
            cx.scope.effects.push(Effect::Answer { parts, text: text.clone() });
            return Ok(Generated { text, transition: None });
        }
        if *rounds == limit {
            *messages = Some(request.messages);
            return Err(ModelError::ToolRounds { limit }.into());
        }
        *rounds += 1;

        let before = cx.scope.effects.len();
        let Round { place, results, asked, transition } = toolbox.run(step, cx, &calls).await;
        if !asked.is_empty() {
            if !text.trim().is_empty() {
                cx.scope.effects.insert(before, Effect::Aside(text));
            }
            let (rounds, refused) = (*rounds, *refused);
            let round = PendingRound { answer: parts, results, asked, place, rounds, refused };
            let transition = Some(cx.scope.suspend(round));
            return Ok(Generated { text: String::new(), transition });
        }
        let results: Vec<Part> = results.into_iter().map(Part::ToolResult).collect();
        request.messages.push(cx.scope.draft(Role::Assistant, parts.clone()));
        request.messages.push(cx.scope.draft(Role::Tool, results.clone()));
        // What tools have said comes behind the results, which belong right behind the calls.
        cx.scope.effects.insert(before, Effect::Round { answer: parts, text, results });
        if transition.is_some() {
            return Ok(Generated { text: String::new(), transition });
        }
    }
}

/// The conversation with a round that has waited, which is not recorded yet.
fn history_with(scope: &Scope, round: PendingRound) -> Vec<Message> {
    let mut history = scope.recalled();
    let results = round.results.into_iter().map(Part::ToolResult).collect();
    memory::join(&mut history, scope.draft(Role::Assistant, round.answer));
    memory::join(&mut history, scope.draft(Role::Tool, results));
    memory::frame(&mut history, scope.now);
    history
}

/// Finds what the model may call: what the step declares, as its hook has left it.
fn open_toolbox<F: FlowMeta>(
    step: &dyn Spoken<F>,
    cx: &StepCx<'_, F>,
    policy: CallPolicy,
) -> Toolbox {
    let own = step.own_tools();
    let exposure = step.flow_tools();
    let shared = cx.scope.tools.iter().filter(|tool| exposure.offers(&tool.name));
    let mut offered = step.offer(own.iter().chain(shared).cloned().collect(), cx);
    let mut names = HashSet::new();
    offered.retain(|tool| names.insert(tool.name.clone()));
    let session = cx.scope.session.clone();
    Toolbox { own, offered, policy, session }
}

/// Gives every call an id that no other call of the conversation has. The parts are as the
/// history keeps them, the calls as the model has made them.
fn name_calls<'a>(
    parts: Vec<Part>,
    messages: impl IntoIterator<Item = &'a Message>,
) -> (Vec<Part>, Vec<ToolCallPart>) {
    let mut taken: BTreeSet<String> = messages
        .into_iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match part {
            Part::ToolCall(call) => Some(call.id.clone()),
            _ => None,
        })
        .collect();
    let mut calls = Vec::new();
    let parts = parts
        .into_iter()
        .map(|part| match part {
            Part::ToolCall(mut call) => {
                let wanted = if call.id.is_empty() { "call".to_owned() } else { call.id.clone() };
                let mut id = wanted.clone();
                let mut n = 2;
                while id.is_empty() || !taken.insert(id.clone()) {
                    id = format!("{wanted}-{n}");
                    n += 1;
                }
                call.id = id;
                let kept = keep(&call);
                calls.push(call);
                Part::ToolCall(kept)
            }
            other => other,
        })
        .collect();
    (parts, calls)
}

fn texts(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_get_ids_of_their_own() {
        let call = |id: &str| {
            Part::ToolCall(ToolCallPart { id: id.into(), name: "t".into(), arguments: Value::Null })
        };
        let (_, calls) = name_calls(vec![call("a"), call("a"), call(""), call("")], &[]);
        let ids: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["a", "a-2", "call", "call-2"]);
    }
}
