//! What becomes of a document when its session is opened: migrated, kept, put aside, begun.

use std::collections::BTreeMap;

use serde_json::Map;

use super::TurnRequest;
use super::build::FlowSlot;
use crate::error::SessionError;
use crate::flow::{Flow, Steps};
use crate::ledger::Ledger;
use crate::model::TokenUsage;
use crate::session::{
    ArchiveMark, FORMAT, FlowMoves, FlowRef, Lease, RawDoc, SessionDoc, Status, Visit,
};
use crate::time::Timestamp;

/// Brings a document to the flow's version and to the present names of its steps.
/// Returns nothing when it is there already.
pub(super) fn migrate<F: Flow>(
    slot: &FlowSlot<F>,
    steps: &Steps<F>,
    doc: &SessionDoc,
) -> Result<Option<SessionDoc>, SessionError> {
    let migrated = slot.migrations.migrate(doc, F::ID, F::VERSION)?;
    let current = migrated.as_ref().unwrap_or(doc);
    let aliased = steps.iter().flat_map(|entry| {
        entry.info().aliases.iter().map(|alias| (*alias, entry.info().name.clone()))
    });
    let used: Vec<_> = aliased
        .filter(|(alias, _)| current.current_step == *alias || current.steps.contains_key(*alias))
        .collect();
    if used.is_empty() {
        return Ok(migrated);
    }
    let failed = |reason: String| SessionError::Migration {
        session: current.id.to_string(),
        from: current.version,
        to: current.version,
        reason,
    };
    let value = serde_json::to_value(current).map_err(|error| failed(error.to_string()))?;
    let mut raw = RawDoc::new(value);
    for (alias, name) in used {
        raw.rename_step(alias, &name).map_err(|error| failed(error.to_string()))?;
    }
    SessionDoc::read(raw.into_value()).map(Some).map_err(|error| failed(error.to_string()))
}

/// The place of the step at which a document stands.
pub(super) fn find_step<F: Flow>(
    steps: &Steps<F>,
    doc: &SessionDoc,
) -> Result<usize, SessionError> {
    steps.position(&doc.current_step).ok_or_else(|| SessionError::UnknownStep {
        session: doc.id.to_string(),
        flow: F::ID.to_owned(),
        version: doc.version,
        step: doc.current_step.clone(),
        known: steps.names(),
    })
}

/// Takes over what the hook may change, and nothing else.
pub(super) fn keep(ledger: &mut Ledger, kept: SessionDoc) {
    let stored = ledger.doc();
    let doc = SessionDoc {
        id: stored.id.clone(),
        flow: stored.flow.clone(),
        format: stored.format,
        version: stored.version,
        revision: stored.revision,
        gates: stored.gates.clone(),
        archive: stored.archive.clone(),
        next_message: stored.next_message,
        superseded: stored.superseded,
        parent: stored.parent.clone(),
        moves: stored.moves.clone(),
        lease: stored.lease.clone(),
        created_at: stored.created_at,
        ..kept
    };
    if doc != *stored {
        ledger.replace(doc);
    }
}

/// Puts the stored document aside and begins a new one in its place. Returns where the old
/// one is kept.
pub(super) fn supersede(ledger: &mut Ledger, new: SessionDoc, now: Timestamp) -> String {
    let old = SessionDoc::clone(&ledger.doc());
    let count = old.superseded + 1;
    let new = SessionDoc {
        superseded: count,
        // A turn that is sent again may be one of before.
        turns: old.turns.clone(),
        // Visits go on being counted, since idempotency keys are made of them.
        visit: Visit { number: old.last_visit() + 1, ..Visit::default() },
        next_message: old.next_message,
        archive: ArchiveMark { from: old.archive.next, next: old.archive.next },
        parent: old.parent.clone().filter(|parent| parent.relation.is_child()),
        // Hosts go on to name the flow in which the session began.
        moves: beginning(&old).filter(|moves| moves.origin != new.flow.id),
        lease: old.lease.clone(),
        ..new
    };
    let closed = SessionDoc {
        id: old.id.superseded(count),
        status: Status::Superseded,
        // No sweeper is to take up what is only kept.
        wake_at: None,
        updated_at: now,
        lease: Lease::default(),
        ..old
    };
    let kept_as = closed.id.to_string();
    ledger.supersede(closed, new);
    kept_as
}

/// Where a conversation began, once it has left that flow.
fn beginning(doc: &SessionDoc) -> Option<FlowMoves> {
    let origin = doc.moves.as_ref()?.origin.clone();
    Some(FlowMoves { origin, ..FlowMoves::default() })
}

/// The document of a new session, which stands at a step that is still to be entered.
pub(super) fn new_doc<F: Flow>(
    request: &TurnRequest,
    digest: &str,
    start: &str,
    revision: u64,
    now: Timestamp,
) -> Result<SessionDoc, SessionError> {
    let state = match &request.state {
        Some(state) => state.clone(),
        None => serde_json::to_value(F::State::default()).map_err(|error| {
            let (session, path) = (request.session.to_string(), "state".to_owned());
            SessionError::Unwritable { session, path, reason: error.to_string() }
        })?,
    };
    Ok(SessionDoc {
        id: request.session.clone(),
        flow: FlowRef { id: F::ID.to_owned(), digest: digest.to_owned() },
        format: FORMAT,
        version: F::VERSION,
        revision,
        status: Status::Running,
        current_step: start.to_owned(),
        visit: Visit { number: 1, ..Visit::default() },
        state,
        steps: BTreeMap::new(),
        memory: BTreeMap::new(),
        context: Map::new(),
        path: Vec::new(),
        turns: Vec::new(),
        edges: Vec::new(),
        effects: BTreeMap::new(),
        waiting: None,
        wake_at: None,
        ended: None,
        gates: Vec::new(),
        error: None,
        usage: TokenUsage::default(),
        next_message: 0,
        archive: ArchiveMark::default(),
        superseded: 0,
        parent: request.parent.clone(),
        moves: None,
        owner: request.owner.clone(),
        labels: request.labels.clone(),
        lease: Lease::default(),
        created_at: now,
        updated_at: now,
        expires_at: None,
    })
}
