//! The tool calls of one answer of a model: each is decided on, made, and given exactly one
//! result.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use serde_json::{Map, Value};

use super::cx::Scope;
use super::generate::Spoken;
use super::{FlowMeta, StepCx};
use crate::error::ToolError;
use crate::event::Event;
use crate::id::SessionId;
use crate::json;
use crate::message::{ToolCallPart, ToolResultPart};
use crate::model::CallPolicy;
use crate::panic::catch_panic;
use crate::session::AskedCall;
use crate::telemetry::{ToolSpan, execute_tool};
use crate::tool::{ToolCx, ToolDefinition, ToolOutput, ToolPolicy, WayOut, arguments};
use crate::transition::Transition;

pub(super) const NOT_CALLED: &str =
    "not called: another tool of this round has moved the conversation";

/// What a model may call, and how.
pub(super) struct Toolbox {
    /// The tools of the step itself.
    pub(super) own: Arc<[ToolDefinition]>,
    /// The tools that the model is offered, no two with one name.
    pub(super) offered: Vec<ToolDefinition>,
    pub(super) policy: CallPolicy,
    pub(super) session: SessionId,
}

/// What a round has given.
pub(super) struct Round {
    /// Its place in the conversation.
    pub(super) place: u64,
    /// A result for each call that does not wait, in the order of the calls.
    pub(super) results: Vec<ToolResultPart>,
    /// The calls that wait for an approval, in their order; none once the flow has moved.
    pub(super) asked: Vec<AskedCall>,
    /// Where a tool has moved the flow.
    pub(super) transition: Option<Transition>,
}

/// Whether a call is made now.
pub(super) enum Verdict {
    /// A person is asked first; the arguments are as the tool will read them.
    Ask(Value),
    Now(Decision),
}

/// What becomes of a call.
pub(super) enum Decision {
    /// The tool of the step is called.
    Step,
    /// The tool of the flow is called.
    Flow(ToolCx),
    /// It is not called.
    Refuse(ToolError),
}

/// A call and its place in the conversation.
pub(super) struct Placed<'a> {
    pub(super) call: &'a ToolCallPart,
    /// The place of the round.
    pub(super) round: u64,
    /// The place among the calls of the round.
    pub(super) index: usize,
}

/// What a call has come to in its round.
enum Answered {
    Result(ToolResultPart),
    Asked(Box<AskedCall>),
}

type Made = Result<ToolOutput, ToolError>;

impl Toolbox {
    pub(super) fn find(&self, name: &str) -> Option<&ToolDefinition> {
        self.offered.iter().find(|tool| tool.name == name)
    }

    /// Whether a call may run at the same time as others. One of a tool that nobody has is
    /// answered without waiting for anything.
    fn is_parallel(&self, name: &str) -> bool {
        let Some(tool) = self.find(name) else { return true };
        let own = self.own.iter().find(|own| own.name == name);
        tool.parallel && own.is_none_or(|own| own.parallel)
    }

    /// Makes the calls of a round. One after another in their order; neighbours that are
    /// parallel at the same time.
    pub(super) async fn run<F: FlowMeta>(
        &self,
        step: &mut dyn Spoken<F>,
        cx: &mut StepCx<'_, F>,
        calls: &[ToolCallPart],
    ) -> Round {
        let place = cx.scope.next_place();
        let calls: Vec<Placed<'_>> =
            (0..).zip(calls).map(|(index, call)| Placed { call, round: place, index }).collect();
        let mut answers = Vec::with_capacity(calls.len());
        let mut transition = None;
        let mut rest = calls.as_slice();
        while let Some((first, behind)) = rest.split_first() {
            if transition.is_some() {
                tell_call(cx, first.call);
                let result = self.answer(cx, first.call, Err(NOT_CALLED.to_owned()));
                answers.push(Answered::Result(result));
                rest = behind;
                continue;
            }
            let together = rest.iter().take_while(|c| self.is_parallel(&c.call.name)).count();
            if together > 0 {
                let (now, later) = rest.split_at(together);
                answers.extend(self.run_together(step, cx, now).await);
                rest = later;
            } else {
                let (answered, next) = self.run_alone(step, cx, first).await;
                answers.push(answered);
                transition = next;
                rest = behind;
            }
        }
        let (mut results, mut asked) = (Vec::new(), Vec::new());
        for (answered, Placed { call, .. }) in answers.into_iter().zip(&calls) {
            match answered {
                Answered::Result(result) => results.push(result),
                Answered::Asked(_) if transition.is_some() => {
                    results.push(self.answer(cx, call, Err(NOT_CALLED.to_owned())));
                }
                Answered::Asked(call) => asked.push(*call),
            }
        }
        Round { place, results, asked, transition }
    }

    /// Says what becomes of a call.
    pub(super) fn decide<F: FlowMeta>(
        &self,
        step: &dyn Spoken<F>,
        cx: &StepCx<'_, F>,
        placed: &Placed<'_>,
    ) -> Verdict {
        let call = placed.call;
        let refuse = |error| Verdict::Now(Decision::Refuse(error));
        let name = || call.name.clone();
        let Some(tool) = self.find(&call.name) else {
            let known: Vec<&str> = self.offered.iter().map(|tool| tool.name.as_str()).collect();
            return refuse(ToolError::Unknown { tool: name(), known: known.join(", ") });
        };
        let mut seen = match arguments::refuse_deep(&call.name, call.arguments.clone()) {
            Ok(arguments) => arguments,
            Err(error) => return refuse(error),
        };
        // What the policy sees is what the tool will read: no number hides in a text.
        arguments::repair(&tool.parameters, &mut seen);
        match step.tool_policy(tool, &seen, cx) {
            ToolPolicy::Allow => Verdict::Now(self.allow(cx.scope, placed)),
            ToolPolicy::Ask => match arguments::refuse_deep(&call.name, seen) {
                Ok(seen) => Verdict::Ask(seen),
                Err(error) => refuse(error),
            },
            ToolPolicy::Deny(reason) => refuse(ToolError::Denied { tool: name(), reason }),
        }
    }

    /// Lets a call be made.
    pub(super) fn allow(&self, scope: &Scope, placed: &Placed<'_>) -> Decision {
        let Placed { call, round, index } = placed;
        if self.own.iter().any(|own| own.name == call.name) {
            return Decision::Step;
        }
        let digest = json::digest(&call.arguments);
        let key = format!(
            "{}:{}:{round}:{index}:{}:{}",
            scope.session,
            scope.visit,
            call.name,
            &digest[..16]
        );
        Decision::Flow(ToolCx::new(scope.session.clone(), &*scope.turn, &*scope.step, key))
    }

    async fn run_alone<F: FlowMeta>(
        &self,
        step: &mut dyn Spoken<F>,
        cx: &mut StepCx<'_, F>,
        placed: &Placed<'_>,
    ) -> (Answered, Option<Transition>) {
        match self.decide(step, cx, placed) {
            Verdict::Ask(seen) => {
                (Answered::Asked(self.request(cx.scope, placed, seen).into()), None)
            }
            Verdict::Now(decision) => {
                let (result, next) = self.make(step, cx, placed, decision).await;
                (Answered::Result(result), next)
            }
        }
    }

    /// Makes a call, or says why not.
    pub(super) async fn make<F: FlowMeta>(
        &self,
        step: &mut dyn Spoken<F>,
        cx: &mut StepCx<'_, F>,
        placed: &Placed<'_>,
        decision: Decision,
    ) -> (ToolResultPart, Option<Transition>) {
        let call = placed.call;
        tell_call(cx, call);
        let said = cx.scope.effects.len();
        let made = match decision {
            Decision::Step => {
                let running = step.call(cx, &call.name, call.arguments.clone());
                self.guard(call, running).await
            }
            Decision::Flow(tool_cx) => self.call_flow(cx.flow, &tool_cx, call).await,
            Decision::Refuse(error) => Err(error),
        };
        let (result, next) = match made {
            Ok(ToolOutput { result, next }) => (Ok(result), next),
            Err(error) => {
                cx.scope.effects.truncate(said);
                (Err(error.to_string()), None)
            }
        };
        (self.answer(cx, call, result), next.map(WayOut::into_transition))
    }

    /// Makes calls at the same time, as many as the policy allows.
    async fn run_together<F: FlowMeta>(
        &self,
        step: &dyn Spoken<F>,
        cx: &StepCx<'_, F>,
        calls: &[Placed<'_>],
    ) -> Vec<Answered> {
        type Running<'a> = Pin<Box<dyn Future<Output = (usize, Answered)> + Send + 'a>>;

        let verdicts: Vec<Verdict> =
            calls.iter().map(|placed| self.decide(step, cx, placed)).collect();
        let running: Vec<Running<'_>> = (0..)
            .zip(calls)
            .zip(verdicts)
            .map(|((i, placed), verdict)| -> Running<'_> {
                let call = placed.call;
                Box::pin(async move {
                    let decision = match verdict {
                        Verdict::Ask(seen) => {
                            return (
                                i,
                                Answered::Asked(self.request(cx.scope, placed, seen).into()),
                            );
                        }
                        Verdict::Now(decision) => decision,
                    };
                    tell_call(cx, call);
                    let made = match decision {
                        Decision::Step => {
                            let arguments = call.arguments.clone();
                            let running =
                                async { step.call_shared(cx, &call.name, arguments).await };
                            self.guard(call, running).await
                        }
                        Decision::Flow(tool_cx) => self.call_flow(cx.flow, &tool_cx, call).await,
                        Decision::Refuse(error) => Err(error),
                    };
                    let result = made.map(|made| made.result).map_err(|error| error.to_string());
                    (i, Answered::Result(self.answer(cx, call, result)))
                })
            })
            .collect();
        let limit = self.policy.parallel_tools.max(1);
        let mut results: Vec<(usize, Answered)> =
            stream::iter(running).buffer_unordered(limit).collect().await;
        results.sort_by_key(|(i, _)| *i);
        results.into_iter().map(|(_, result)| result).collect()
    }

    async fn call_flow<F: FlowMeta>(&self, flow: &F, cx: &ToolCx, call: &ToolCallPart) -> Made {
        let arguments = call.arguments.clone();
        // Within the guard, since making the future may panic too.
        self.guard(call, async { flow.call_tool(cx, &call.name, arguments).await }).await
    }

    /// Runs a call to its end, its panic or its limit.
    async fn guard(&self, call: &ToolCallPart, running: impl Future<Output = Made>) -> Made {
        let limit = self.policy.tool_timeout;
        let running = async {
            let reason = match tokio::time::timeout(limit, catch_panic(running)).await {
                Ok(Ok(made)) => return made,
                Ok(Err(message)) => format!("it panicked: {message}"),
                Err(_) => format!("it did not return within {limit:?}"),
            };
            Err(ToolError::Failed { tool: call.name.clone(), reason, retryable: true })
        };
        let span = ToolSpan {
            tool: &call.name,
            id: &call.id,
            arguments: &call.arguments,
            conversation: self.session.as_str(),
        };
        execute_tool(span, running, |output: &ToolOutput| output.result.clone()).await
    }

    /// Tells the result of a call, and makes it what the model is told.
    pub(super) fn answer<F: FlowMeta>(
        &self,
        cx: &StepCx<'_, F>,
        call: &ToolCallPart,
        result: Result<Value, String>,
    ) -> ToolResultPart {
        let is_error = result.is_err();
        let limit = self.policy.tool_result_bytes;
        let (value, content) = match result {
            Ok(Value::String(text)) | Err(text) => (None, cut_middle(text, limit)),
            Ok(value) => {
                let content = value.to_string();
                let fits = content.len() <= limit;
                (fits.then_some(value), cut_middle(content, limit))
            }
        };
        cx.scope.events.emit(|| Event::ToolResult {
            id: call.id.clone(),
            tool: call.name.clone(),
            result: value.unwrap_or_else(|| Value::from(content.clone())),
            failed: is_error,
        });
        let name = plain_name(&call.name).into_owned();
        ToolResultPart { id: call.id.clone(), name, content, is_error }
    }
}

/// Tells that a call is begun.
fn tell_call<F: FlowMeta>(cx: &StepCx<'_, F>, call: &ToolCallPart) {
    cx.scope.events.emit(|| Event::ToolCall {
        id: call.id.clone(),
        tool: call.name.clone(),
        arguments: call.arguments.clone(),
    });
}

/// What the history keeps of a call: a name and arguments that every provider and store
/// takes, however the model has written them.
pub(super) fn keep(call: &ToolCallPart) -> ToolCallPart {
    let arguments = if json::is_deeper_than(&call.arguments, json::MAX_DEPTH) {
        Value::Object(Map::new())
    } else {
        call.arguments.clone()
    };
    ToolCallPart { id: call.id.clone(), name: plain_name(&call.name).into_owned(), arguments }
}

/// A name in the form that providers ask of tools. Tools that exist have such names, so this
/// changes only what a model has made up.
fn plain_name(name: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=64).contains(&name.len()) && name.chars().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let plain: String = name.chars().take(64).map(|c| if is_plain(c) { c } else { '_' }).collect();
    Cow::Owned(if plain.is_empty() { "unnamed".to_owned() } else { plain })
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
    fn the_history_keeps_names_and_arguments_that_everybody_takes() {
        let deep = (0..200).fold(Value::Null, |value, _| Value::from(vec![value]));
        let call = |name: &str, arguments| {
            keep(&ToolCallPart { id: "c".into(), name: name.into(), arguments })
        };
        assert_eq!(call("find-room_2", Value::from(1)).name, "find-room_2");
        assert_eq!(call("find rooms!", Value::Null).name, "find_rooms_");
        assert_eq!(call("", Value::Null).name, "unnamed");
        assert_eq!(call(&"ü".repeat(70), Value::Null).name, "_".repeat(64));
        assert_eq!(call("t", deep).arguments, Value::Object(Map::new()));
    }
}
