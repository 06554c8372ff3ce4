//! Calls of other flows, as the journal keeps them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Inner, Journal, Place};
use crate::model::TokenUsage;
use crate::session::{EffectKind, EffectOutcome, EffectRecord, Interrupt, PendingCall};

/// What parts the caller's id of a request from the one that the called session has for it.
const PATH: char = '/';

impl Journal {
    /// How far the call at a place has come.
    pub(crate) fn call(&self, place: &Place) -> PendingCall {
        let inner = self.lock();
        let record = inner.records.get(place);
        record.and_then(|(_, record)| record.call.clone()).unwrap_or_default()
    }

    /// Records how far the call at a place has come.
    pub(crate) fn set_call(&self, place: &Place, call: PendingCall) {
        if let Some((_, record)) = self.lock().records.get_mut(place) {
            record.call = Some(call).filter(|call| *call != PendingCall::default());
        }
    }

    /// The run waits for what a called session waits for.
    pub(crate) fn wait_for_call(&self, place: &Place, mut interrupts: Vec<Interrupt>) {
        let mut inner = self.lock();
        let call = inner.request_id(place);
        for interrupt in &mut interrupts {
            interrupt.request_id = format!("{call}{PATH}{}", interrupt.request_id);
        }
        inner.waiting.insert(place.clone(), interrupts);
    }

    /// Whether called sessions have said something, at a place or within it, that no commit has.
    pub(crate) fn has_untold(&self, frame: &Place) -> bool {
        let inner = self.lock();
        let mut calls = inner.records.iter().filter_map(|(place, (_, record))| {
            record.call.as_ref().filter(|_| place == frame || place.is_within(frame))
        });
        calls.any(|call| !call.replies.is_empty())
    }

    /// The next commit has what the called sessions have said.
    pub(crate) fn pass_on(&self) {
        let mut inner = self.lock();
        let Inner { records, reached, .. } = &mut *inner;
        for (place, (_, record)) in records.iter_mut() {
            if let Some(mut call) = record.call.take() {
                if reached.contains(place) {
                    call.replies.clear();
                }
                record.call = Some(call).filter(|call| *call != PendingCall::default());
            }
        }
    }

    /// The next commit has what the run began with, and that it waits.
    pub(crate) fn await_calls(&self) {
        for (_, record) in self.lock().records.values_mut() {
            let calls = record.kind == EffectKind::Call && record.outcome.is_none();
            if let Some(call) = record.call.as_mut().filter(|_| calls) {
                call.waited = true;
            }
        }
    }

    /// Names the turns of called sessions for which something has come.
    pub(crate) fn number_calls(&self, revision: u64) {
        for (_, record) in self.lock().records.values_mut() {
            let input = record.call.as_mut().and_then(|call| call.input.as_mut());
            if let Some(input) = input.filter(|input| input.turn.is_empty()) {
                input.turn = revision.to_string();
            }
        }
    }

    /// Whether a call is not over.
    pub(crate) fn has_call(&self) -> bool {
        let inner = self.lock();
        inner.records.values().any(|(_, record)| {
            record.kind == EffectKind::Call && record.outcome.is_none() && record.call.is_some()
        })
    }

    /// What the calls of runs that are over have cost since the last commit.
    pub(crate) fn spent(&self) -> TokenUsage {
        self.lock().spent
    }

    /// A commit has counted it.
    pub(crate) fn count_spent(&self) {
        self.lock().spent = TokenUsage::default();
    }
}

impl Inner {
    /// What all calls have cost, as their records go.
    pub(super) fn spend(&self) -> TokenUsage {
        let mut spent = self.spent;
        for call in self.records.values().filter_map(|(_, record)| record.call.as_ref()) {
            spent += call.usage;
        }
        spent
    }

    /// What is left of the calls within a step, as their records go: it is that step's.
    pub(super) fn absorb_calls(&self, frame: &Place) -> Option<PendingCall> {
        let own = self.records.get(frame).and_then(|(_, record)| record.call.clone());
        let mut left = own.unwrap_or_default();
        for (place, (_, record)) in &self.records {
            if let Some(call) = record.call.as_ref().filter(|_| place.is_within(frame)) {
                left.usage += call.usage;
                left.replies.extend(call.replies.iter().cloned());
            }
        }
        Some(left).filter(|left| *left != PendingCall::default())
    }

    /// The calls whose failures nobody has handled go on where the called sessions stand.
    pub(super) fn reopen_calls(&mut self) {
        let Self { records, handled, .. } = self;
        for (place, (_, record)) in records.iter_mut() {
            reopen(record, handled.contains(place));
        }
    }
}

/// A record as a run leaves it that has failed.
pub(super) fn reopen(record: &mut EffectRecord, handled: bool) {
    let failed = matches!(record.outcome, Some(EffectOutcome::Error(_)));
    if record.kind == EffectKind::Call && failed && !handled {
        record.outcome = None;
    }
}

/// Something has come for a called session.
pub(super) fn hear(record: &mut EffectRecord, request_id: &str, outcome: EffectOutcome) {
    let Some((_, request)) = request_id.split_once(PATH) else { return };
    let mut call = record.call.take().unwrap_or_default();
    let mut input = call.input.take().unwrap_or_default();
    // With what has come, it is another turn.
    input.turn.clear();
    match outcome {
        // The called session waits for the user without a request of its own.
        EffectOutcome::Value(Value::String(message)) if is_message(request) => {
            input.message = Some(message);
        }
        outcome => input.answers.push((request.to_owned(), outcome)),
    }
    call.input = Some(input);
    record.call = Some(call);
}

/// What a caller calls the request for the user's next message, when the called session
/// waits for that alone.
pub(crate) fn message_request(turn: &str) -> String {
    format!("m{turn}")
}

/// The id of the request for a message to the called session of a call that is not over.
pub(crate) fn under_way(
    session: &str,
    visit: u64,
    effects: &BTreeMap<String, EffectRecord>,
) -> Option<String> {
    let prefix = format!("{session}:{visit}:");
    effects.iter().find_map(|(key, record)| {
        let call = record.call.as_ref().filter(|call| call.waited && record.outcome.is_none())?;
        let turn = call.turn.as_ref()?;
        let place = key.strip_prefix(&prefix)?.split(':').next()?;
        let at = record.at.as_millis();
        Some(format!("{visit}-{place}-{at:x}{PATH}{}", message_request(turn)))
    })
}

fn is_message(request: &str) -> bool {
    request.starts_with('m') && !request.contains(PATH)
}
