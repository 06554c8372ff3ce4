pub(crate) mod call;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::Place;
use crate::error::{BranchError, Divergence, Doubt, EffectError, Error};
use crate::json;
use crate::model::TokenUsage;
use crate::session::{
    EffectKind, EffectOutcome, EffectRecord, ErrorRecord, FrameRecord, Interrupt, ItemGroup,
};
use crate::time::Timestamp;

/// How many characters of the digest of the arguments stand in a key.
const KEY_DIGEST: usize = 12;

/// The effects of the visit: those that are recorded, and those of the run.
///
/// It is shared by the effects that are made side by side, and by the engine, which looks
/// whether any of them still does something.
#[derive(Debug)]
pub(crate) struct Journal {
    inner: Mutex<Inner>,
    /// The most effects of a visit that are recorded at once.
    limit: usize,
}

#[derive(Debug)]
struct Inner {
    session: String,
    visit: u64,
    step: Arc<str>,
    /// How many effects the runs of this visit that are over have made.
    base: u32,
    /// The number of the next effect of the run, and of each step within it.
    next: BTreeMap<Place, u32>,
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
    /// The effects that are doing something.
    running: Vec<Place>,
    /// What the run waits for, at each place.
    waiting: BTreeMap<Place, Vec<Interrupt>>,
    /// The steps that are not needed any more and begin no effect.
    closed: Vec<Place>,
    /// What the calls of runs that are over have cost.
    spent: TokenUsage,
    diverged: Option<(String, String, Place)>,
    /// The call in doubt that the run, which is about something else, does not come to.
    doubted: Option<Place>,
    /// Why the run cannot go on.
    broken_off: Option<Error>,
}

/// An effect that begins.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It is over already.
    Replayed { place: Place, outcome: EffectOutcome },
    /// It is to be done, or to be waited for.
    Fresh {
        place: Place,
        key: String,
        /// When it is over by itself, if that is recorded.
        due: Option<Timestamp>,
        /// Whether it was begun before.
        repeated: bool,
        /// Whether that was a call that is not to be made again.
        in_doubt: bool,
    },
}

/// Counts an effect that does something, until it is dropped.
#[derive(Debug)]
pub(crate) struct Running<'a>(&'a Journal, Place);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        if let Some(at) = inner.running.iter().position(|place| *place == self.1) {
            inner.running.swap_remove(at);
        }
    }
}

impl Journal {
    /// A journal that keeps so many effects of one visit.
    pub(crate) fn new(limit: usize) -> Self {
        Self { inner: Mutex::new(Inner::new("".into())), limit }
    }

    /// Begins with what is recorded of a visit.
    pub(crate) fn load(
        &self,
        (session, visit, step): (&str, u64, Arc<str>),
        base: u32,
        records: &BTreeMap<String, EffectRecord>,
        strict: bool,
    ) {
        let prefix = format!("{session}:{visit}:");
        let records = records.iter().filter_map(|(key, record)| {
            let place = key.strip_prefix(&prefix)?.split(':').next()?.parse().ok()?;
            Some((place, (key.clone(), record.clone())))
        });
        let records = records.collect();
        *self.lock() =
            Inner { session: session.to_owned(), visit, base, records, strict, ..Inner::new(step) };
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
        inner.next.clear();
        inner.running.clear();
        inner.waiting.clear();
        inner.reached.clear();
        inner.handled.clear();
        inner.closed.clear();
        inner.diverged = None;
        inner.doubted = None;
        inner.broken_off = None;
        inner.failed = false;
    }

    /// The run is over and the step stays. What it has done counts, unless it has failed:
    /// then the next run is another attempt.
    pub(crate) fn complete_run(&self) {
        let mut inner = self.lock();
        if !inner.failed {
            inner.base = inner.next_in(&Place::default());
            inner.spent = inner.spend();
            inner.records.clear();
        }
        inner.next.clear();
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
    pub(crate) fn base(&self) -> u32 {
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
        self.is_stuck_within(&Place::default())
    }

    /// Whether what runs at a place waits and nothing of it goes on.
    pub(crate) fn is_stuck_within(&self, frame: &Place) -> bool {
        let inner = self.lock();
        inner.waiting.keys().any(|place| place.is_within(frame))
            && !inner.running.iter().any(|place| place.is_within(frame))
    }

    /// Whether an effect within a place is doing something.
    pub(crate) fn is_running_within(&self, frame: &Place) -> bool {
        self.lock().running.iter().any(|place| place.is_within(frame))
    }

    /// Ends the run with an error that is none of its effects.
    pub(crate) fn break_off(&self, error: Error) {
        self.lock().broken_off.get_or_insert(error);
    }

    /// Why the run cannot go on.
    pub(crate) fn take_break(&self) -> Option<Error> {
        self.lock().broken_off.take()
    }

    /// What runs at these places begins no effect any more.
    pub(crate) fn close(&self, frames: &[Place]) {
        self.lock().closed.extend_from_slice(frames);
    }

    /// Counts an effect that does something.
    pub(crate) fn run(&self, place: &Place) -> Running<'_> {
        self.lock().running.push(place.clone());
        Running(self, place.clone())
    }

    /// Takes the next place of the action, or of a step that runs within it.
    pub(crate) fn begin(
        &self,
        frame: &Place,
        kind: EffectKind,
        name: &str,
        arguments: Option<&Value>,
        now: Timestamp,
    ) -> Result<Begun, EffectError> {
        let mut inner = self.lock();
        inner.check_open(frame)?;
        let number = inner.next_in(frame);
        let place = frame.within(number);
        inner.next.insert(frame.clone(), number + 1);
        inner.handle_failures(frame);
        let arguments = arguments.map(json::digest);
        let mut found = EffectRecord::new(kind, name, now);
        found.arguments = arguments;
        if let Some((key, record)) = inner.records.get(&place).cloned() {
            let same_arguments = record.arguments.is_none() || record.arguments == found.arguments;
            if record.kind == kind && record.tool == name && same_arguments {
                return Ok(match record.outcome {
                    Some(outcome) => {
                        inner.reach_within(&place);
                        inner.reached.insert(place.clone());
                        Begun::Replayed { place, outcome }
                    }
                    None => {
                        inner.reached.insert(place.clone());
                        let in_doubt = record.is_in_doubt();
                        Begun::Fresh { place, key, due: record.due, repeated: true, in_doubt }
                    }
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
            let doubted =
                inner.find_doubt(|doubt| *doubt >= place && !inner.reached.contains(doubt));
            match doubted {
                Some(doubt) => inner.doubted = Some(doubt),
                None => {
                    let Inner { records, reached, .. } = &mut *inner;
                    records.retain(|other, _| *other < place || reached.contains(other));
                }
            }
        }
        if inner.diverged.is_some() {
            return Err(inner.divergence());
        }
        if let Some(doubt) = &inner.doubted {
            return Err(inner.doubt(doubt));
        }
        if inner.records.len() >= self.limit {
            let (session, step) = (inner.session.clone(), inner.step.to_string());
            let error = EffectError::TooManyEffects { session, step, limit: self.limit };
            // Some effects have no error to return.
            inner.broken_off.get_or_insert_with(|| error.clone().into());
            return Err(error);
        }
        let mut key = format!("{}:{}:{place}:{name}", inner.session, inner.visit);
        if let Some(digest) = &found.arguments {
            key.push(':');
            key.push_str(&digest[..digest.len().min(KEY_DIGEST)]);
        }
        inner.records.insert(place.clone(), (key.clone(), found));
        inner.reached.insert(place.clone());
        Ok(Begun::Fresh { place, key, due: None, repeated: false, in_doubt: false })
    }

    /// Records that a call is made, and whether it is not to be made again.
    pub(crate) fn mark(&self, place: &Place, once: bool) {
        if let Some((_, record)) = self.lock().records.get_mut(place) {
            record.once = once;
        }
    }

    /// Why the call at a place is not made.
    pub(crate) fn doubt(&self, place: &Place) -> EffectError {
        self.lock().doubt(place)
    }

    /// Records what an effect came to.
    pub(crate) fn finish(&self, place: &Place, outcome: EffectOutcome) {
        if let Some((_, record)) = self.lock().records.get_mut(place) {
            record.outcome = Some(outcome);
            record.items.clear();
        }
    }

    /// The items of a batch that are recorded as over.
    pub(crate) fn items(&self, place: &Place) -> Vec<ItemGroup> {
        self.lock().records.get(place).map_or_else(Vec::new, |(_, record)| record.items.clone())
    }

    /// Records which items of a batch are over.
    pub(crate) fn set_items(&self, place: &Place, items: Vec<ItemGroup>) {
        if let Some((_, record)) = self.lock().records.get_mut(place) {
            record.items = items;
        }
    }

    /// When the effect at a place has begun.
    pub(crate) fn begun_at(&self, place: &Place) -> Option<Timestamp> {
        self.lock().records.get(place).map(|(_, record)| record.at)
    }

    /// What is recorded of a step that runs within the action.
    pub(crate) fn frame(&self, place: &Place) -> Option<FrameRecord> {
        let inner = self.lock();
        inner.records.get(place).and_then(|(_, record)| record.frame.as_deref().cloned())
    }

    /// Records where a step within the action stands: what it did up to there is part of it.
    pub(crate) fn keep_frame(&self, place: &Place, make: impl FnOnce(u32) -> FrameRecord) {
        let mut inner = self.lock();
        let next = inner.next_in(place);
        let absorbed = inner.absorb_calls(place);
        inner.records.retain(|other, _| !other.is_within(place));
        if let Some((_, record)) = inner.records.get_mut(place) {
            record.frame = Some(Box::new(make(next)));
            record.call = absorbed;
        }
    }

    /// Records what a step within the action came to, or several: nothing that was done within
    /// it is needed any more.
    pub(crate) fn finish_frame(&self, place: &Place, frame: FrameRecord) {
        self.keep_frame(place, |_| frame);
        self.finish(place, EffectOutcome::Value(Value::Null));
    }

    /// Records that a step within the action has failed, or several, and what it has said before.
    /// What was done within it is still needed, should it be tried again.
    pub(crate) fn fail_frame(&self, place: &Place, frame: FrameRecord, error: ErrorRecord) {
        if let Some((_, record)) = self.lock().records.get_mut(place) {
            record.frame = Some(Box::new(frame));
            record.outcome = Some(EffectOutcome::Error(error));
        }
    }

    /// Records when an effect is over by itself.
    pub(crate) fn set_due(&self, place: &Place, due: Timestamp) {
        if let Some((_, record)) = self.lock().records.get_mut(place) {
            record.due = Some(due);
        }
    }

    /// The run waits for an answer at a place.
    pub(crate) fn wait(&self, place: &Place, make: impl FnOnce(String) -> Interrupt) {
        let mut inner = self.lock();
        let interrupt = make(inner.request_id(place));
        inner.waiting.insert(place.clone(), vec![interrupt]);
    }

    /// The run will not get an answer at this place any more, since it stopped waiting.
    pub(crate) fn stop_waiting(&self, place: &Place) {
        self.lock().waiting.remove(place);
    }

    /// The slots that a step within the action has asked for, if this is its request.
    pub(crate) fn asked_fields(&self, request_id: &str) -> Vec<String> {
        let inner = self.lock();
        let asked = inner.place_of(request_id).and_then(|place| {
            let (_, record) = inner.records.get(&place)?;
            let (_, around) = inner.records.get(&place.around())?;
            let frame = around.frame.as_ref().filter(|_| record.kind == EffectKind::Message);
            frame.map(|frame| frame.asked_fields.clone())
        });
        asked.unwrap_or_default()
    }

    /// Records the answer to a request of an earlier run.
    pub(crate) fn answer(&self, request_id: &str, outcome: EffectOutcome) {
        let mut inner = self.lock();
        let place = inner.place_of(request_id);
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
        if !inner.strict {
            let left = inner.find_doubt(|place| !inner.reached.contains(place));
            let doubted = inner.doubted.clone().or(left);
            return doubted.map_or(Ok(()), |place| Err(inner.doubt(&place)));
        }
        let left = inner.records.iter().find(|(place, _)| !inner.reached.contains(place));
        if let Some((place, (_, record))) = left {
            let (place, shown) = (place.clone(), record.shown());
            inner.diverged = Some((shown, "the end of the action".to_owned(), place));
            return Err(inner.divergence());
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn new(step: Arc<str>) -> Self {
        Self {
            session: String::new(),
            visit: 0,
            step,
            base: 0,
            next: BTreeMap::new(),
            records: BTreeMap::new(),
            reached: BTreeSet::new(),
            handled: BTreeSet::new(),
            failed: false,
            strict: false,
            running: Vec::new(),
            waiting: BTreeMap::new(),
            spent: TokenUsage::default(),
            closed: Vec::new(),
            diverged: None,
            doubted: None,
            broken_off: None,
        }
    }

    /// What the requests of an effect are called. A request that is made anew after a denial
    /// is another one.
    fn request_id(&self, place: &Place) -> String {
        let at = self.records.get(place).map_or(0, |(_, record)| record.at.as_millis());
        format!("{}-{place}-{at:x}", self.visit)
    }

    /// The place of the effect that a request is of.
    fn place_of(&self, request_id: &str) -> Option<Place> {
        let place = request_id.strip_prefix(&format!("{}-", self.visit))?;
        place.split('-').next()?.parse().ok()
    }

    /// The number of the next effect of the action, or of a step that runs within it.
    fn next_in(&self, frame: &Place) -> u32 {
        let first = || match self.records.get(frame) {
            Some((_, EffectRecord { frame: Some(frame), .. })) => frame.next,
            _ if *frame == Place::default() => self.base,
            _ => 0,
        };
        self.next.get(frame).copied().unwrap_or_else(first)
    }

    fn check_open(&self, frame: &Place) -> Result<(), EffectError> {
        let mut closed = self.closed.iter();
        let Some(place) = closed.find(|place| frame == *place || frame.is_within(place)) else {
            return Ok(());
        };
        let step = self.records.get(place).map_or("", |(_, record)| &record.tool);
        let branch = format!("{place} (`{step}`)");
        Err(EffectError::Branches(Box::new(BranchError::Cancelled { branch })))
    }

    /// What was done within a place is part of what it came to.
    fn reach_within(&mut self, frame: &Place) {
        let within = self.records.keys().filter(|place| place.is_within(frame));
        self.reached.extend(within.cloned());
    }

    /// An effect begins: the code has gone on after the failures so far.
    fn handle_failures(&mut self, frame: &Place) {
        let of_branches = |(_, record): &(String, EffectRecord)| record.kind == EffectKind::Steps;
        if self.records.get(frame).is_some_and(of_branches) {
            return; // Branches begin all at once, whatever becomes of them.
        }
        let over = self.records.iter().filter(|(place, (_, record))| {
            record.outcome.is_some() && place.is_within(frame) && self.reached.contains(place)
        });
        self.handled.extend(over.map(|(place, _)| place.clone()));
    }

    /// All effects but those that failed and that the code has not handled: they are tried
    /// again, if they may be.
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
            !failed || record.once || self.handled.contains(place)
        });
        kept.map(|(place, _)| place.clone()).collect()
    }

    /// The first call in doubt, of those at some places.
    fn find_doubt(&self, at: impl Fn(&Place) -> bool) -> Option<Place> {
        let doubts = self.records.iter().filter(|(_, (_, record))| record.is_in_doubt());
        doubts.map(|(place, _)| place).find(|place| at(place)).cloned()
    }

    fn doubt(&self, place: &Place) -> EffectError {
        let doubt = self.records.get(place).map(|(key, record)| Doubt {
            session: self.session.clone(),
            step: self.step.to_string(),
            tool: record.tool.clone(),
            key: key.clone(),
            arguments: record.arguments.clone(),
        });
        EffectError::InDoubt(Box::new(doubt.unwrap_or_default()))
    }

    fn divergence(&self) -> EffectError {
        let (recorded, found, place) = self.diverged.clone().unwrap_or_default();
        EffectError::Diverged(Box::new(Divergence {
            session: self.session.clone(),
            step: self.step.to_string(),
            place: place.to_string(),
            recorded,
            found,
        }))
    }
}
