//! Lets a model speak for a reply step: the tool loop.

use std::collections::BTreeSet;

use serde_json::Value;

use super::cx::Scope;
use super::speaker::ask;
use super::{Check, Effect, FlowMeta, Gate, Prompt, Reply, Step, StepCx, ToolFuture, ToolHost};
use crate::error::{StepError, ToolError};
use crate::event::Event;
use crate::message::{Message, Part, Role, ToolCallPart, ToolResultPart};
use crate::model::{CallPolicy, ChatRequest, ModelError, Sampling, ToolChoice};
use crate::panic::catch_panic;
use crate::telemetry::{ToolSpan, execute_tool};
use crate::tool::{ToolCx, ToolDefinition, ToolOutput, WayOut};
use crate::transition::Transition;

/// How often a step may refuse an answer before its turn fails.
pub const CHECK_RETRIES: u32 = 2;

/// What a model has said, and where a tool has moved the flow.
pub(super) struct Generated {
    pub(super) text: String,
    pub(super) transition: Option<Transition>,
}

/// Why there is no answer.
pub(super) enum Failed {
    Model(ModelError),
    Step(StepError),
}

impl From<ModelError> for Failed {
    fn from(error: ModelError) -> Self {
        Self::Model(error)
    }
}

/// A reply step for which a model speaks, whatever its type: the loop below is compiled once
/// for each flow, not for each step.
pub(super) trait Spoken<F: FlowMeta>: Send {
    fn instructions(&self, cx: &StepCx<'_, F>) -> Prompt;
    fn sampling(&self, cx: &StepCx<'_, F>) -> Sampling;
    fn own_tools(&self) -> Vec<ToolDefinition>;
    fn offer(&self, tools: Vec<ToolDefinition>, cx: &StepCx<'_, F>) -> Vec<ToolDefinition>;
    fn check(&self, response: &str, cx: &StepCx<'_, F>) -> Check;
    fn call<'a>(
        &'a mut self,
        cx: &'a mut StepCx<'_, F>,
        tool: &'a str,
        arguments: Value,
    ) -> ToolFuture<'a>;
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

    fn own_tools(&self) -> Vec<ToolDefinition> {
        <S as Step>::tools()
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
}

/// Lets the model answer, calls the tools that it asks for, and goes on until it has answered
/// in words or a tool has moved the flow.
pub(super) async fn generate<F: FlowMeta>(
    step: &mut dyn Spoken<F>,
    cx: &mut StepCx<'_, F>,
) -> Result<Generated, Failed> {
    let speaker = cx.scope.speaker.clone().ok_or(ModelError::Missing)?;
    let own = step.own_tools();
    let tools = step.offer(own.clone(), cx);
    let system = step.instructions(cx);
    let sampling = step.sampling(cx);

    let mut messages = cx.scope.history();
    let mut refused = 0;
    let mut rounds = 0;
    loop {
        let mut request =
            ChatRequest::new(messages.clone()).tools(tools.clone()).sampling(sampling.clone());
        if !system.as_str().is_empty() {
            request = request.system(system.as_str());
        }
        if rounds == speaker.policy.tool_rounds {
            // The last round: the model has to answer with what it has.
            request = request.tool_choice(ToolChoice::None);
        }
        let response = ask(cx.scope, &speaker, &request).await?;
        let (parts, calls) = name_calls(response.parts, &messages);
        let text = texts(&parts);
        if calls.is_empty() {
            if let Check::Retry(reason) = step.check(&text, cx) {
                if refused == CHECK_RETRIES {
                    return Err(Failed::Step(StepError::new(format!(
                        "the step refused {} answers of the model; the last reason: {reason}",
                        refused + 1
                    ))));
                }
                refused += 1;
                // Neither the refused answer nor the reason becomes part of the history.
                messages.push(cx.scope.draft(Role::Assistant, parts));
                messages.push(cx.scope.draft(Role::User, vec![Part::text(reason)]));
                continue;
            }
            cx.scope.effects.push(Effect::Answer { parts, text: text.clone() });
            return Ok(Generated { text, transition: None });
        }
        if rounds == speaker.policy.tool_rounds {
            return Err(ModelError::ToolRounds { limit: speaker.policy.tool_rounds }.into());
        }
        rounds += 1;
        messages.push(cx.scope.draft(Role::Assistant, parts.clone()));
        cx.scope.effects.push(Effect::Answer { parts, text });

        let mut transition = None;
        let mut results = Vec::new();
        for call in calls {
            let result = if transition.is_some() {
                Err("not called: another tool of this round has moved the conversation".to_owned())
            } else {
                let own = own.iter().any(|tool| tool.name == call.name);
                match run_tool(step, cx, &speaker.policy, &tools, own, &call).await {
                    Ok(ToolOutput { result, next }) => {
                        transition = next.map(WayOut::into_transition);
                        Ok(result)
                    }
                    Err(error) => Err(error.to_string()),
                }
            };
            results.push(finish_call(cx.scope, &speaker.policy, call, result));
        }
        messages.push(cx.scope.draft(Role::Tool, results.clone()));
        cx.scope.effects.push(Effect::Record { role: Role::Tool, parts: results });
        if transition.is_some() {
            return Ok(Generated { text: String::new(), transition });
        }
    }
}

/// Calls one tool of the step or of the flow.
async fn run_tool<F: FlowMeta>(
    step: &mut dyn Spoken<F>,
    cx: &mut StepCx<'_, F>,
    policy: &CallPolicy,
    tools: &[ToolDefinition],
    own: bool,
    call: &ToolCallPart,
) -> Result<ToolOutput, ToolError> {
    let (id, tool) = (call.id.clone(), call.name.clone());
    let arguments = call.arguments.clone();
    cx.scope.events.emit(|| Event::ToolCall { id, tool, arguments });
    if !tools.iter().any(|tool| tool.name == call.name) {
        let known: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        return Err(ToolError::Unknown { tool: call.name.clone(), known: known.join(", ") });
    }
    let session = cx.scope.session.clone();
    let conversation = session.as_str();
    let span =
        ToolSpan { tool: &call.name, id: &call.id, arguments: &call.arguments, conversation };
    let value = |output: &ToolOutput| output.result.clone();
    execute_tool(span, run_known_tool(step, cx, policy, own, call), value).await
}

async fn run_known_tool<F: FlowMeta>(
    step: &mut dyn Spoken<F>,
    cx: &mut StepCx<'_, F>,
    policy: &CallPolicy,
    own: bool,
    call: &ToolCallPart,
) -> Result<ToolOutput, ToolError> {
    let limit = policy.tool_timeout;
    let failed = |reason| ToolError::Failed { tool: call.name.clone(), reason, retryable: true };
    let arguments = call.arguments.clone();
    let result = if own {
        let running = step.call(cx, &call.name, arguments);
        tokio::time::timeout(limit, catch_panic(running)).await
    } else {
        let scope = &*cx.scope;
        // The id alone may come again once the call has left the document.
        let said = scope.ledger.as_ref().map_or(0, |ledger| ledger.doc().next_message);
        let key = format!("{}:{}:{said}:{}", scope.session, scope.visit, call.id);
        let tool_cx = ToolCx::new(scope.session.clone(), &*scope.turn, &*scope.step, key);
        let running = cx.flow.call_tool(&tool_cx, &call.name, arguments);
        tokio::time::timeout(limit, catch_panic(running)).await
    };
    match result {
        Ok(Ok(result)) => result,
        Ok(Err(message)) => Err(failed(format!("it panicked: {message}"))),
        Err(_) => Err(failed(format!("it did not return within {limit:?}"))),
    }
}

/// Tells the result of a call, and makes it what the model is told.
fn finish_call(
    scope: &Scope,
    policy: &CallPolicy,
    call: ToolCallPart,
    result: Result<Value, String>,
) -> Part {
    let is_error = result.is_err();
    let (value, content) = match result {
        Ok(Value::String(text)) => (Value::from(text.clone()), text),
        Ok(value) => {
            let content = value.to_string();
            (value, content)
        }
        Err(error) => (Value::from(error.clone()), error),
    };
    let (id, tool) = (call.id.clone(), call.name.clone());
    scope.events.emit(|| Event::ToolResult { id, tool, result: value, failed: is_error });
    let content = cut_middle(content, policy.tool_result_bytes);
    Part::ToolResult(ToolResultPart { id: call.id, name: call.name, content, is_error })
}

/// Leaves the middle out of a text that is too long.
fn cut_middle(text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let mut head = limit / 2;
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = text.len() - limit / 2;
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    format!("{}\n[{} bytes left out]\n{}", &text[..head], tail - head, &text[tail..])
}

/// Gives every call an id that no other call of the conversation has.
fn name_calls(parts: Vec<Part>, messages: &[Message]) -> (Vec<Part>, Vec<ToolCallPart>) {
    let mut taken: BTreeSet<String> = messages
        .iter()
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
                calls.push(call.clone());
                Part::ToolCall(call)
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
    fn a_long_result_loses_its_middle_at_character_boundaries() {
        assert_eq!(cut_middle("short".into(), 5), "short");
        let cut = cut_middle("ü".repeat(50_000), 100);
        assert!(cut.starts_with("üü") && cut.ends_with("üü"), "{cut}");
        assert!(cut.contains("[99900 bytes left out]"), "{cut}");
    }

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
