pub(crate) mod call;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::error::{Divergence, EffectError, Error};
use crate::json;
use crate::model::TokenUsage;
use crate::session::{EffectKind, EffectOutcome, EffectRecord, Interrupt};
use crate::time::Timestamp;

/// How many characters of the digest of the arguments stand in a key.
const KEY_DIGEST: usize = 12;

/// Where an effect stands among those of the visit.
type Place = u32;

/// The effects of the visit: those that are recorded, and those of the run.
///
/// It is shared by the effects that are made side by side, and by the engine, which looks
/// whether any of them still does something.
#[derive(Debug)]
pub(crate) struct Journal(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    session: String,
    visit: u64,
    step: Arc<str>,
    /// How many effects the runs of this visit that are over have made.
    base: Place,
    /// The place of the next effect of the run.
    next: Place,
    records: BTreeMap<Place, (String, EffectRecord)>,
    /// The recorded effects that the run has come to.
    reached: BTreeSet<Place>,
    /// The failed effects after which the run has begun another one.
    handled: BTreeSet<Place>,
    /// Whether the run has failed, and the flow has handled that.
    failed: bool,
    /// Whether the run has to do what the records say. Else it may be another run, about
    /// another message, and the first difference ends the validity of the records.
    strict: bool,
    /// How many effects are doing something.
    running: u32,
    /// What the run waits for, at each place.
    waiting: BTreeMap<Place, Vec<Interrupt>>,
    /// What the calls of runs that are over have cost.
    spent: TokenUsage,
    diverged: Option<(String, String, Place)>,
    /// Why the run cannot go on.
    broken_off: Option<Error>,
}

/// An effect that begins.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It is over already.
    Replayed(Place, EffectOutcome),
    /// It is to be done, or to be waited for.
    Fresh {
        place: Place,
        key: String,
        /// When it is over by itself, if that is recorded.
        due: Option<Timestamp>,
        /// Whether it was begun before.
        repeated: bool,
    },
}

/// Counts an effect that does something, until it is dropped.
#[derive(Debug)]
pub(crate) struct Running<'a>(&'a Journal);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self(Mutex::new(Inner::new("".into())))
    }
}

impl Journal {
    /// Begins with what is recorded of a visit.
    pub(crate) fn load(
        &self,
        (session, visit, step): (&str, u64, Arc<str>),
        base: Place,
        records: &BTreeMap<String, EffectRecord>,
        strict: bool,
    ) {
        let prefix = format!("{session}:{visit}:");
        let records = records.iter().filter_map(|(key, record)| {
            let place = key.strip_prefix(&prefix)?.split(':').next()?.parse().ok()?;
            Some((place, (key.clone(), record.clone())))
        });
        let records = records.collect();
        *self.lock() = Inner {
            session: session.to_owned(),
            visit,
            base,
            next: base,
            records,
            strict,
            ..Inner::new(step)
        };
    }

    /// Begins the next visit.
    pub(crate) fn enter(&self, visit: u64, step: Arc<str>) {
        let mut inner = self.lock();
        let session = std::mem::take(&mut inner.session);
        let spent = inner.spend();
        *inner = Inner { session, visit, spent, ..Inner::new(step) };
    }

    /// A run of the action begins.
    pub(crate) fn begin_run(&self) {
        let mut inner = self.lock();
        inner.next = inner.base;
        inner.running = 0;
        inner.waiting.clear();
        inner.reached.clear();
        inner.handled.clear();
        inner.diverged = None;
        inner.broken_off = None;
        inner.failed = false;
    }

    /// The run is over and the step stays. What it has done counts, unless it has failed:
    /// then the next run is another attempt.
    pub(crate) fn complete_run(&self) {
        let mut inner = self.lock();
        if inner.failed {
            inner.next = inner.base;
        } else {
            inner.base = inner.next;
            inner.spent = inner.spend();
            inner.records.clear();
        }
        inner.waiting.clear();
        inner.strict = false;
    }

    /// The run has failed, and the flow goes on all the same.
    pub(crate) fn fail_run(&self) {
        let mut inner = self.lock();
        inner.failed = true;
        let kept = inner.kept();
        inner.records.retain(|place, _| kept.contains(place));
        inner.reopen_calls();
    }

    /// How many effects the runs of this visit that are over have made.
    pub(crate) fn base(&self) -> Place {
        self.lock().base
    }

    /// The effects as they are persisted.
    pub(crate) fn records(&self) -> BTreeMap<String, EffectRecord> {
        self.lock().records.values().cloned().collect()
    }

    /// The effects that a run which has failed leaves behind.
    pub(crate) fn kept(&self) -> BTreeMap<String, EffectRecord> {
        let inner = self.lock();
        let kept = inner.kept();
        let records = inner.records.iter().filter(|(place, _)| kept.contains(place));
        let records = records.map(|(place, (key, record))| {
            let mut record = record.clone();
            call::reopen(&mut record, inner.handled.contains(place));
            (key.clone(), record)
        });
        records.collect()
    }

    /// What the run waits for.
    pub(crate) fn waiting(&self) -> Vec<Interrupt> {
        self.lock().waiting.values().flatten().cloned().collect()
    }

    /// Whether the run waits and nothing of it goes on.
    pub(crate) fn is_stuck(&self) -> bool {
        let inner = self.lock();
        inner.running == 0 && !inner.waiting.is_empty()
    }

    /// Ends the run with an error that is none of its effects.
    pub(crate) fn break_off(&self, error: Error) {
        self.lock().broken_off.get_or_insert(error);
    }

    /// Why the run cannot go on.
    pub(crate) fn take_break(&self) -> Option<Error> {
        self.lock().broken_off.take()
    }

    /// Counts an effect that does something.
    pub(crate) fn run(&self) -> Running<'_> {
        self.lock().running += 1;
        Running(self)
    }

    /// Takes the next place.
    pub(crate) fn begin(
        &self,
        kind: EffectKind,
        name: &str,
        arguments: Option<&Value>,
        now: Timestamp,
    ) -> Result<Begun, EffectError> {
        let mut inner = self.lock();
        let place = inner.next;
        inner.next += 1;
        inner.handle_failures();
        let arguments = arguments.map(json::digest);
        let mut found = EffectRecord::new(kind, name, now);
        found.arguments = arguments;
        if let Some((key, record)) = inner.records.get(&place).cloned() {
            let same_arguments = record.arguments.is_none() || record.arguments == found.arguments;
            if record.kind == kind && record.tool == name && same_arguments {
                inner.reached.insert(place);
                return Ok(match record.outcome {
                    Some(outcome) => Begun::Replayed(place, outcome),
                    None => Begun::Fresh { place, key, due: record.due, repeated: true },
                });
            }
            if inner.strict {
                let same = record.kind == kind && record.tool == name;
                let mut shown = found.shown();
                if same {
                    shown.push_str(" with other arguments");
                }
                inner.diverged.get_or_insert((record.shown(), shown, place));
                return Err(inner.divergence());
            }
            inner.records.split_off(&place);
        }
        if inner.diverged.is_some() {
            return Err(inner.divergence());
        }
        let mut key = format!("{}:{}:{place}:{name}", inner.session, inner.visit);
        if let Some(digest) = &found.arguments {
            key.push(':');
            key.push_str(&digest[..digest.len().min(KEY_DIGEST)]);
        }
        inner.records.insert(place, (key.clone(), found));
        inner.reached.insert(place);
        Ok(Begun::Fresh { place, key, due: None, repeated: false })
    }

    /// Records what an effect came to.
    pub(crate) fn finish(&self, place: Place, outcome: EffectOutcome) {
        if let Some((_, record)) = self.lock().records.get_mut(&place) {
            record.outcome = Some(outcome);
        }
    }

    /// Records when an effect is over by itself.
    pub(crate) fn set_due(&self, place: Place, due: Timestamp) {
        if let Some((_, record)) = self.lock().records.get_mut(&place) {
            record.due = Some(due);
        }
    }

    /// The run waits for an answer at a place.
    pub(crate) fn wait(&self, place: Place, make: impl FnOnce(String, String) -> Interrupt) {
        let mut inner = self.lock();
        let interrupt = make(inner.request_id(place), inner.step.to_string());
        inner.waiting.insert(place, vec![interrupt]);
    }

    /// The run will not get an answer at this place any more, since it stopped waiting.
    pub(crate) fn stop_waiting(&self, place: Place) {
        self.lock().waiting.remove(&place);
    }

    /// Records the answer to a request of an earlier run.
    pub(crate) fn answer(&self, request_id: &str, outcome: EffectOutcome) {
        let mut inner = self.lock();
        let place = request_id
            .strip_prefix(&format!("{}-", inner.visit))
            .and_then(|place| place.split('-').next()?.parse::<Place>().ok());
        let Some((_, record)) = place.and_then(|place| inner.records.get_mut(&place)) else {
            return;
        };
        match record.kind {
            EffectKind::Call => call::hear(record, request_id, outcome),
            _ => record.outcome = Some(outcome),
        }
    }

    /// Checks that the run did what is recorded; all of it, when it is over.
    pub(crate) fn check(&self, over: bool) -> Result<(), EffectError> {
        let mut inner = self.lock();
        if inner.diverged.is_some() {
            return Err(inner.divergence());
        }
        if !over {
            return Ok(());
        }
        let left = inner.records.iter().find(|(place, _)| !inner.reached.contains(place));
        if let Some((place, (_, record))) = left
            && inner.strict
        {
            let (place, shown) = (*place, record.shown());
            inner.diverged = Some((shown, "the end of the action".to_owned(), place));
            return Err(inner.divergence());
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn new(step: Arc<str>) -> Self {
        Self {
            session: String::new(),
            visit: 0,
            step,
            base: 0,
            next: 0,
            records: BTreeMap::new(),
            reached: BTreeSet::new(),
            handled: BTreeSet::new(),
            failed: false,
            strict: false,
            running: 0,
            waiting: BTreeMap::new(),
            spent: TokenUsage::default(),
            diverged: None,
            broken_off: None,
        }
    }

    /// What the requests of an effect are called. A request that is made anew after a denial
    /// is another one.
    fn request_id(&self, place: Place) -> String {
        let at = self.records.get(&place).map_or(0, |(_, record)| record.at.as_millis());
        format!("{}-{place}-{at:x}", self.visit)
    }

    /// An effect begins: the code has gone on after the failures so far.
    fn handle_failures(&mut self) {
        let over = self.records.iter().filter(|(_, (_, record))| record.outcome.is_some());
        let over: Vec<Place> = over.map(|(place, _)| *place).collect();
        self.handled.extend(over.into_iter().filter(|place| self.reached.contains(place)));
    }

    /// All effects but those that failed and that the code has not handled: they are tried
    /// again.
    fn kept(&self) -> BTreeSet<Place> {
        let kept = self.records.iter().filter(|(place, (_, record))| {
            let failed = match &record.outcome {
                // It goes on where the called session stands.
                _ if record.kind == EffectKind::Call => false,
                Some(EffectOutcome::Error(_)) => true,
                Some(EffectOutcome::Value(value)) => {
                    record.kind == EffectKind::Approval && value["decision"] == "denied"
                }
                None => false,
            };
            !failed || self.handled.contains(place)
        });
        kept.map(|(place, _)| *place).collect()
    }

    fn divergence(&self) -> EffectError {
        let (recorded, found, place) = self.diverged.clone().unwrap_or_default();
        EffectError::Diverged(Box::new(Divergence {
            session: self.session.clone(),
            step: self.step.to_string(),
            place,
            recorded,
            found,
        }))
    }
}
