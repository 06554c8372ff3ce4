//! Rounds of tool calls that wait for approvals, and how they go on.

use serde_json::Value;

use super::cx::Scope;
use super::generate::Spoken;
use super::round::{self, NOT_CALLED, Placed, Toolbox, Verdict};
use super::{Effect, FlowMeta, StepCx};
use crate::effect::Decision;
use crate::error::ToolError;
use crate::event::Event;
use crate::json;
use crate::message::{Part, ToolResultPart};
use crate::session::{AskedCall, Display, EffectKind, Interrupt, Operation, PendingRound};
use crate::transition::Transition;

/// What the model is told of the calls of a round that waits, when the step goes on otherwise.
const GONE_ON: &str = "not called: the conversation went on without it";

/// How a round goes on that has waited.
pub(super) enum Resumed {
    /// The step waits on, or a tool has moved the flow.
    Leaves(Transition),
    /// Every call is answered, and the model is asked again.
    Over(PendingRound),
}

impl Toolbox {
    /// Makes the request for approval of a call.
    pub(super) fn request(&self, scope: &Scope, placed: &Placed<'_>, seen: Value) -> AskedCall {
        let Placed { call, index, .. } = placed;
        let description = self.find(&call.name).map(|tool| tool.description.clone());
        let title = format!("call of `{}`", call.name);
        let argument_hash = json::digest(&seen);
        let revision = scope.ledger.as_ref().map_or(0, |ledger| ledger.doc().revision);
        let request = Interrupt {
            // A step waits at the end of a turn, and each turn has revisions of its own.
            request_id: format!("{}-{revision}-{index}", scope.visit),
            kind: EffectKind::Approval,
            step: scope.step.to_string(),
            path: Vec::new(),
            name: title.clone(),
            display: Display { title, description: description.unwrap_or_default() },
            allowed: vec!["approved".to_owned(), "denied".to_owned()],
            response_schema: None,
            deadline: None,
            on_expiry: None,
            operation: Some(Operation { tool: call.name.clone(), arguments: seen, argument_hash }),
        };
        AskedCall { call: call.id.clone(), request, decision: None }
    }

    /// Does what was decided about the calls of a round that has waited.
    pub(super) async fn resume<F: FlowMeta>(
        &self,
        step: &mut dyn Spoken<F>,
        cx: &mut StepCx<'_, F>,
        mut round: PendingRound,
    ) -> Resumed {
        let before = cx.scope.effects.len();
        let mut transition = None;
        while let Some((asked, decision)) = round.take_decided() {
            let mut calls = round.calls().cloned().enumerate();
            let Some((index, call)) = calls.find(|(_, call)| call.id == asked.call) else {
                continue;
            };
            drop(calls);
            let placed = Placed { call: &call, round: round.place, index };
            let (result, next) = match decision {
                Decision::Approved(_) => {
                    let decision = self.decide_approved(step, cx, &placed, &asked);
                    self.make(step, cx, &placed, decision).await
                }
                Decision::Denied(denied) => {
                    let (tool, reason) = (call.name.clone(), denied.to_string());
                    let error = ToolError::Denied { tool, reason };
                    (self.answer(cx, &call, Err(error.to_string())), None)
                }
            };
            round.add(result);
            if next.is_some() {
                transition = next;
                break;
            }
        }
        if transition.is_none() && !round.asked.is_empty() {
            return Resumed::Leaves(cx.scope.suspend(round));
        }
        for call in round.open_calls() {
            let result = self.answer(cx, &call, Err(NOT_CALLED.to_owned()));
            round.add(result);
        }
        cx.scope.effects.insert(before, over(&round));
        match transition {
            Some(transition) => Resumed::Leaves(transition),
            None => Resumed::Over(round),
        }
    }

    /// Says what becomes of a call that was approved: what the tool would read has to be what
    /// the person was shown.
    fn decide_approved<F: FlowMeta>(
        &self,
        step: &dyn Spoken<F>,
        cx: &StepCx<'_, F>,
        placed: &Placed<'_>,
        asked: &AskedCall,
    ) -> round::Decision {
        match self.decide(step, cx, placed) {
            Verdict::Ask(seen) => {
                let shown = asked.request.operation.as_ref();
                if shown.is_some_and(|shown| shown.argument_hash == json::digest(&seen)) {
                    return self.allow(cx.scope, placed);
                }
                let tool = placed.call.name.clone();
                let reason = "the tool reads other arguments now than those that were approved";
                round::Decision::Refuse(ToolError::Denied { tool, reason: reason.to_owned() })
            }
            Verdict::Now(decision) => decision,
        }
    }
}

impl Scope {
    /// Lets the step wait for the approvals of a round.
    pub(super) fn suspend(&mut self, round: PendingRound) -> Transition {
        self.interrupts = round.asked.iter().map(|asked| asked.request.clone()).collect();
        self.round = Some(round);
        Transition::Suspend
    }

    /// Ends a round that waits, since the step goes on without it.
    pub(crate) fn drop_round(&mut self) {
        let Some(mut round) = self.round.take() else { return };
        for call in round.open_calls() {
            self.events.emit(|| Event::ToolResult {
                id: call.id.clone(),
                tool: call.name.clone(),
                result: GONE_ON.into(),
                failed: true,
            });
            let content = GONE_ON.to_owned();
            round.add(ToolResultPart { id: call.id, name: call.name, content, is_error: true });
        }
        self.effects.insert(0, over(&round));
    }
}

/// The round as it becomes part of the history. What the model said with it was said when the
/// step began to wait.
fn over(round: &PendingRound) -> Effect {
    let results = round.results.iter().cloned().map(Part::ToolResult).collect();
    Effect::Round { answer: round.answer.clone(), text: String::new(), results }
}
