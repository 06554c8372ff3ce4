use serde::{Deserialize, Serialize};

use super::{EffectOutcome, Interrupt};
use crate::effect::{Decision, Denied};
use crate::message::{Part, ToolCallPart, ToolResultPart};

/// A round of tool calls that a model has asked for, and of which some wait for a person to
/// approve them. It becomes part of the history when every call has its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingRound {
    /// What the model has answered, with the calls, as the history will keep it. Its text was
    /// said already.
    pub answer: Vec<Part>,
    /// The results so far, in the order of the calls.
    pub results: Vec<ToolResultPart>,
    /// The calls that need an approval and have no result, in the order of the calls.
    pub asked: Vec<AskedCall>,
    /// The place of the round in the conversation, which is part of the idempotency keys of
    /// its calls.
    pub place: u64,
    /// How many rounds the model has had for its answer, with this one.
    pub rounds: u32,
    /// How many of its answers the step has refused.
    #[serde(default, skip_serializing_if = "none")]
    pub refused: u32,
}

/// A call that a person has to approve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AskedCall {
    /// The id of the call.
    pub call: String,
    /// What the person is asked.
    pub request: Interrupt,
    /// What the person has decided; nothing while the call waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn none(refused: &u32) -> bool {
    *refused == 0
}

impl PendingRound {
    /// Records what a request has come to. What is no clear approval is a denial.
    pub(crate) fn decide(&mut self, request_id: &str, outcome: &EffectOutcome) {
        let asked = self.asked.iter_mut().find(|asked| asked.request.request_id == request_id);
        let Some(asked) = asked else { return };
        let decision = match outcome {
            EffectOutcome::Value(value) => serde_json::from_value(value.clone()).ok(),
            EffectOutcome::Error(error) => {
                Some(Decision::Denied(Denied { by: None, reason: Some(error.message.clone()) }))
            }
        };
        asked.decision = Some(decision.unwrap_or_else(|| Decision::Denied(Denied::default())));
    }

    /// Takes the first call that was decided on out of those that wait.
    pub(crate) fn take_decided(&mut self) -> Option<(AskedCall, Decision)> {
        let place = self.asked.iter().position(|asked| asked.decision.is_some())?;
        let mut asked = self.asked.remove(place);
        let decision = asked.decision.take()?;
        Some((asked, decision))
    }

    /// The calls, in their order.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &ToolCallPart> {
        self.answer.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// The calls that have no result.
    pub(crate) fn open_calls(&self) -> Vec<ToolCallPart> {
        let is_open = |call: &&ToolCallPart| self.results.iter().all(|other| other.id != call.id);
        self.calls().filter(is_open).cloned().collect()
    }

    /// Adds a result, in the order of the calls.
    pub(crate) fn add(&mut self, result: ToolResultPart) {
        self.results.push(result);
        let order: Vec<String> = self.calls().map(|call| call.id.clone()).collect();
        self.results.sort_by_key(|result| order.iter().position(|id| *id == result.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Approved;
    use crate::error::{EffectError, Error};
    use crate::session::{Display, EffectKind, ErrorRecord};
    use serde_json::{Value, json};

    fn round() -> PendingRound {
        let call = |id: &str| {
            let arguments = Value::Null;
            Part::ToolCall(ToolCallPart { id: id.into(), name: "t".into(), arguments })
        };
        let asked = |id: &str| AskedCall {
            call: id.into(),
            request: Interrupt {
                request_id: format!("r-{id}"),
                kind: EffectKind::Approval,
                step: "S".into(),
                path: Vec::new(),
                name: "t".into(),
                display: Display::default(),
                allowed: Vec::new(),
                response_schema: None,
                deadline: None,
                on_expiry: None,
                operation: None,
            },
            decision: None,
        };
        PendingRound {
            answer: vec![Part::text("Well:"), call("a"), call("b"), call("c")],
            results: Vec::new(),
            asked: vec![asked("a"), asked("c")],
            place: 1,
            rounds: 1,
            refused: 0,
        }
    }

    fn result(id: &str) -> ToolResultPart {
        let (name, content) = ("t".into(), String::new());
        ToolResultPart { id: id.into(), name, content, is_error: false }
    }

    #[test]
    fn results_come_into_the_order_of_the_calls() {
        let mut round = round();
        for id in ["c", "a", "b"] {
            round.add(result(id));
        }
        let ids: Vec<_> = round.results.iter().map(|result| result.id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "c"]);
        assert!(round.open_calls().is_empty());
    }

    #[test]
    fn only_a_clear_approval_approves() {
        let approved = Decision::Approved(Approved { by: Some("ada".into()), reason: None });
        let yes = EffectOutcome::Value(serde_json::to_value(&approved).unwrap());
        let expired = Error::from(EffectError::Expired { request: "t".into() });
        let late = EffectOutcome::Error(ErrorRecord::from(&expired));
        for (outcome, is_yes) in
            [(yes, true), (EffectOutcome::Value(json!("approved")), false), (late, false)]
        {
            let mut round = round();
            round.decide("r-unknown", &outcome);
            assert_eq!(round.take_decided(), None);
            round.decide("r-c", &outcome);
            let (asked, decision) = round.take_decided().unwrap();
            assert_eq!((asked.call.as_str(), decision.is_approved()), ("c", is_yes));
            assert_eq!(round.asked.len(), 1);
            assert_eq!(round.take_decided(), None);
        }
    }
}
