//! Turns of sessions that an action of another one has called: only their callers make them.

use super::lease::Held;
use super::{Core, TurnRequest};
use crate::effect::under_way;
use crate::error::{Error, SessionError, StoreError};
use crate::session::{
    Delta, EffectKind, EffectOutcome, Interrupt, Relation, SessionDoc, Status, Waiting,
};
use crate::store::Opened;

/// Whether an action of another session has called the session.
pub(super) fn is_called(doc: &SessionDoc) -> bool {
    doc.parent.as_ref().is_some_and(|parent| parent.relation == Relation::Call)
}

/// Refuses what is not the caller's to a session that was called.
pub(super) fn check_own(doc: &SessionDoc) -> Result<(), SessionError> {
    match doc.parent.as_ref().filter(|_| is_called(doc)) {
        Some(parent) => Err(SessionError::Called {
            session: doc.id.to_string(),
            parent: parent.session.to_string(),
            flow: parent.flow.clone(),
        }),
        None => Ok(()),
    }
}

/// Checks that a turn comes from whoever may make it.
pub(super) fn check_turn(request: &TurnRequest, doc: Option<&SessionDoc>) -> Result<(), Error> {
    match doc {
        None if request.goes_on => {
            Err(StoreError::NotFound { session: request.session.clone() }.into())
        }
        Some(doc) if request.parent.is_none() => Ok(check_own(doc)?),
        _ => Ok(()),
    }
}

/// Gives a session back whose turn was refused. One whose worker died is left to its caller,
/// who was found dead too: it is due no more.
pub(super) async fn refuse(core: &Core, held: Held, opened: Opened) {
    match opened.doc {
        Some(doc) if doc.wake_at.is_some() => {
            let delta = Delta {
                status: (doc.status == Status::Waiting).then_some(Status::Running),
                wake_at: Some(None),
                ..Delta::default()
            };
            let ledger = core.ledger(&opened.grant, doc);
            match ledger.commit(delta, &[], true).await {
                Ok(()) => held.forget(),
                Err(_) => held.leave().await,
            }
        }
        _ => held.leave().await,
    }
}

/// Takes the user's message from what has come for requests: the session keeps it in its
/// history as any other.
pub(super) fn take_message(request: &mut TurnRequest, pending: &[Interrupt]) {
    let is_message = |id: &str| pending.iter().any(|i| i.is_message() && i.request_id == *id);
    request.answers.retain(|(id, outcome)| match outcome {
        EffectOutcome::Value(serde_json::Value::String(text)) if is_message(id) => {
            request.message = Some(text.clone());
            false
        }
        _ => true,
    });
}

/// The request for a call with which a message of the user goes to the called session, though
/// nobody waits: its last turn has failed, or it was escalated.
pub(super) fn hears(doc: &SessionDoc) -> Option<String> {
    match &doc.waiting {
        Some(Waiting::Interrupts { .. }) => None,
        _ => under_way(doc.id.as_str(), doc.visit.number, &doc.effects),
    }
}

/// Why a step escalates since a session that it has called does.
pub(super) fn escalation(interrupts: &[Interrupt]) -> Option<String> {
    let escalated = interrupts.iter().find(|interrupt| interrupt.kind == EffectKind::Call)?;
    Some(escalated.display.title.clone())
}
