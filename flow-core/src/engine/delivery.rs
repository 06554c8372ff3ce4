//! Answers to what a session waits for.

use serde_json::Value;

use crate::effect::{Approved, Decision, Denied};
use crate::error::EffectError;
use crate::session::{EffectKind, EffectOutcome, Interrupt, SessionDoc, Status, Waiting};
use crate::time::Timestamp;

/// What the turn of a delivery is called: its signal id, apart from the ids of other turns.
pub(super) const SIGNAL_TURN: &str = "signal:";

/// The most bytes of a signal id.
pub(super) const MAX_SIGNAL_ID_BYTES: usize = 120;

/// An answer to a request of a session, or a signal that it waits for.
///
/// ```
/// use flow_core::engine::Delivery;
/// use serde_json::json;
///
/// let yes = Delivery::approve("7-0").by("ada").reason("within budget").signal_id("mail-17");
/// let no = Delivery::deny("7-0").by("eve");
/// let paid = Delivery::signal("paid", json!({ "cents": 12_000 }));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    to: To,
    answer: Answer,
    actor: Option<String>,
    reason: Option<String>,
    signal_id: Option<String>,
    argument_hash: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum To {
    Request(String),
    Signal(String),
}

#[derive(Debug, Clone, PartialEq)]
enum Answer {
    Approve,
    Deny,
    Payload(Value),
}

impl Delivery {
    fn new(to: To, answer: Answer) -> Self {
        Self { to, answer, actor: None, reason: None, signal_id: None, argument_hash: None }
    }

    /// Approves a request.
    pub fn approve(request_id: impl Into<String>) -> Self {
        Self::new(To::Request(request_id.into()), Answer::Approve)
    }

    /// Denies a request.
    pub fn deny(request_id: impl Into<String>) -> Self {
        Self::new(To::Request(request_id.into()), Answer::Deny)
    }

    /// Decides on a request with a word that a person has written. Only a clear yes approves;
    /// anything else, silence too, denies.
    pub fn decide(request_id: impl Into<String>, word: &str) -> Self {
        let word = word.trim().to_lowercase();
        let yes = matches!(word.as_str(), "yes" | "y" | "approve" | "approved");
        if yes { Self::approve(request_id) } else { Self::deny(request_id) }
    }

    /// Answers a request for a choice or for data.
    pub fn payload(request_id: impl Into<String>, payload: impl Into<Value>) -> Self {
        Self::new(To::Request(request_id.into()), Answer::Payload(payload.into()))
    }

    /// A signal, by its name: the first one of this name that the session waits for gets it.
    pub fn signal(name: impl Into<String>, payload: impl Into<Value>) -> Self {
        Self::new(To::Signal(name.into()), Answer::Payload(payload.into()))
    }

    /// Who answers.
    #[must_use]
    pub fn by(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    /// Why.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// An id that makes the delivery idempotent: one that was made already gives its recorded
    /// outcome and does nothing. It has 1 to 120 bytes.
    #[must_use]
    pub fn signal_id(mut self, id: impl Into<String>) -> Self {
        self.signal_id = Some(id.into());
        self
    }

    /// The [argument hash](crate::session::Operation::argument_hash) of the call that the
    /// person was shown. An approval of another call is rejected.
    #[must_use]
    pub fn argument_hash(mut self, hash: impl Into<String>) -> Self {
        self.argument_hash = Some(hash.into());
        self
    }

    /// The id of the turn that makes the delivery.
    pub(super) fn turn_id(&self) -> Option<String> {
        self.signal_id.as_ref().map(|id| format!("{SIGNAL_TURN}{id}"))
    }

    /// The request that is answered, and what the answer comes to.
    fn resolve(&self, doc: &SessionDoc) -> Result<(String, EffectOutcome), EffectError> {
        let session = doc.id.as_str();
        let pending = pending(doc);
        let found = pending.iter().find(|interrupt| match &self.to {
            To::Request(id) => interrupt.request_id == *id,
            To::Signal(name) => interrupt.kind == EffectKind::Signal && interrupt.name == *name,
        });
        let (To::Request(named) | To::Signal(named)) = &self.to;
        let Some(interrupt) = found else {
            return Err(EffectError::NotWaiting {
                session: session.to_owned(),
                request: named.clone(),
                status: doc.status.as_str(),
                step: doc.current_step.clone(),
                pending: show_waiting(doc),
            });
        };
        let rejected = |reason: String| EffectError::Rejected {
            session: session.to_owned(),
            request: named.clone(),
            reason,
        };
        if let (Some(hash), Some(operation)) = (&self.argument_hash, &interrupt.operation)
            && *hash != operation.argument_hash
        {
            let reason = "it is about a call with other arguments than the one that waits";
            return Err(rejected(reason.to_owned()));
        }
        let (by, reason) = (self.actor.clone(), self.reason.clone());
        let value = match (interrupt.kind, &self.answer) {
            (EffectKind::Approval, Answer::Approve) => {
                written(&Decision::Approved(Approved { by, reason }))
            }
            (EffectKind::Approval, Answer::Deny) => {
                written(&Decision::Denied(Denied { by, reason }))
            }
            (EffectKind::Choice, Answer::Payload(Value::String(choice)))
                if interrupt.allowed.contains(choice) =>
            {
                Value::String(choice.clone())
            }
            (EffectKind::Choice, _) => {
                return Err(rejected(format!(
                    "it has to be one of: {}",
                    interrupt.allowed.join(", ")
                )));
            }
            (EffectKind::Signal | EffectKind::Input, Answer::Payload(payload)) => {
                if let Some(schema) = &interrupt.response_schema {
                    check(schema, payload).map_err(rejected)?;
                }
                payload.clone()
            }
            (EffectKind::Approval, Answer::Payload(_)) => {
                return Err(rejected("it has to approve or deny".to_owned()));
            }
            (EffectKind::Sleep, _) => {
                return Err(rejected("a sleep ends by itself".to_owned()));
            }
            (EffectKind::Message, _) => {
                return Err(rejected("it is answered by a turn with a message".to_owned()));
            }
            _ => return Err(rejected("it needs a payload".to_owned())),
        };
        Ok((interrupt.request_id.clone(), EffectOutcome::Value(value)))
    }
}

/// The requests for which a session waits.
pub(super) fn pending(doc: &SessionDoc) -> &[Interrupt] {
    match &doc.waiting {
        Some(Waiting::Interrupts { pending }) => pending,
        _ => &[],
    }
}

/// What a session waits for, for an error.
fn show_waiting(doc: &SessionDoc) -> String {
    match &doc.waiting {
        Some(Waiting::Interrupts { pending }) => {
            let show =
                |i: &Interrupt| format!("`{}` ({} `{}`)", i.request_id, i.kind.as_str(), i.name);
            pending.iter().map(show).collect::<Vec<_>>().join(", ")
        }
        Some(Waiting::Message { question: Some(question) }) => {
            format!("the user's answer to `{}`", question.text)
        }
        Some(Waiting::Message { question: None }) => "the user's next message".to_owned(),
        Some(Waiting::Escalation { reason }) => {
            format!("a person who has taken over ({reason}), until `engine.session(id).release()`")
        }
        None if matches!(doc.status, Status::Running | Status::Failed) => {
            "nothing, and goes on with its next turn".to_owned()
        }
        None => "nothing".to_owned(),
    }
}

fn written(decision: &Decision) -> Value {
    serde_json::to_value(decision).unwrap_or(Value::Null)
}

/// Checks a payload against the JSON Schema of a request.
fn check(schema: &Value, payload: &Value) -> Result<(), String> {
    let validator = jsonschema::validator_for(schema).map_err(|error| error.to_string())?;
    validator.validate(payload).map_err(|error| {
        let place = error.instance_path().to_string();
        let place = if place.is_empty() { "the payload".to_owned() } else { format!("`{place}`") };
        format!("{place}: {error}")
    })
}

/// What the requests of a session have come to.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The requests that are answered or whose time has come, each with its outcome.
    pub(super) over: Vec<(String, EffectOutcome)>,
    /// Those that are still waited for.
    pub(super) left: Vec<Interrupt>,
}

/// Finds which requests are over: the one that is delivered, the first one that waits for the
/// user's message, and those whose time has come.
pub(super) fn answer(
    doc: &SessionDoc,
    delivery: Option<&Delivery>,
    message: Option<&str>,
    now: Timestamp,
) -> Result<Answers, EffectError> {
    let delivered = delivery.map(|delivery| delivery.resolve(doc)).transpose()?;
    let asks = pending(doc).iter().find(|interrupt| interrupt.kind == EffectKind::Message);
    let heard = message.zip(asks).map(|(message, asks)| {
        (asks.request_id.clone(), EffectOutcome::Value(Value::from(message)))
    });
    let delivered = delivered.or(heard);
    let mut answers = Answers::default();
    for interrupt in pending(doc) {
        let id = &interrupt.request_id;
        if let Some((request, outcome)) = delivered.as_ref().filter(|(request, _)| request == id) {
            answers.over.push((request.clone(), outcome.clone()));
        } else if interrupt.deadline.is_some_and(|deadline| deadline <= now) {
            let expired = || EffectOutcome::expired(&interrupt.display.title);
            let outcome = interrupt.on_expiry.clone().unwrap_or_else(expired);
            answers.over.push((id.clone(), outcome));
        } else {
            answers.left.push(interrupt.clone());
        }
    }
    Ok(answers)
}
