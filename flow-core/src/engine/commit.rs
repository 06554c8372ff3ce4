//! What a turn has changed, made into commits.

use std::time::Duration;

use super::call::is_called;
use super::delivery::Answers;
use super::moves::handed_off;
use super::run::Run;
use crate::error::{Error, SessionError};
use crate::event::Event;
use crate::flow::Flow;
use crate::memory::cut_at;
use crate::message::Message;
use crate::model::TokenUsage;
use crate::outcome::Outcome;
use crate::session::{
    Appended, ArchiveEntry, ArchiveMark, ArchivedMessage, Delta, EdgeCount, FlowRef, MemoryDelta,
    PATH_WINDOW, PathEntry, SessionDoc, Status, TURN_WINDOW, TurnRecord, Visit, Waiting,
};
use crate::time::Timestamp;

/// How many path entries beyond the window make a batch that moves to the archive.
const PATH_BATCH: usize = 32;

/// What has happened since the last commit.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The steps that were entered.
    pub(super) path: Vec<PathEntry>,
}

impl<F: Flow> Run<F> {
    /// Commits a crossing: the cursor stands at the next step, which is still to be entered.
    pub(super) async fn commit_crossing(
        &mut self,
        now: Timestamp,
        ttl: Option<Duration>,
    ) -> Result<(), Error> {
        let (mut delta, archive) = self.build_delta(now, ttl)?;
        if self.ledger().doc().waiting.is_some() {
            delta.waiting = Some(None);
        }
        self.commit(delta, archive, false).await
    }

    /// Makes the last commit of the turn.
    pub(super) async fn commit_end(
        &mut self,
        outcome: &Outcome,
        replies: &[String],
        now: Timestamp,
        ttl: Option<Duration>,
    ) -> Result<(), Error> {
        let (mut delta, archive) = self.build_delta(now, ttl)?;
        let doc = self.ledger().doc();
        let (status, waiting, ended) = match outcome {
            Outcome::Waiting { question } if self.interrupts.is_empty() => {
                (Status::Waiting, Some(Waiting::Message { question: question.clone() }), None)
            }
            Outcome::Waiting { .. } | Outcome::Suspended { .. } => {
                let pending = self.interrupts.clone();
                (Status::Waiting, Some(Waiting::Interrupts { pending }), None)
            }
            Outcome::Escalated { reason } => {
                (Status::Waiting, Some(Waiting::Escalation { reason: reason.clone() }), None)
            }
            Outcome::Held { .. } => {
                (Status::Waiting, Some(Waiting::Message { question: None }), None)
            }
            Outcome::HandedOff { to } => (Status::Completed, None, Some(handed_off(to))),
            Outcome::Ended { reason } => (Status::Completed, None, Some(reason.clone())),
            Outcome::Failed { error } => (Status::Failed, None, Some(error.message.clone())),
        };
        delta.status = (doc.status != status).then_some(status);
        delta.waiting = (doc.waiting != waiting).then_some(waiting);
        delta.ended = (doc.ended != ended).then_some(ended);
        if let Some(id) = self.turn_id.clone() {
            let revision = doc.revision + 1;
            let record = TurnRecord {
                id,
                outcome: outcome.clone(),
                replies: replies.to_vec(),
                gates: self.verdicts.clone(),
                revision,
                at: now,
            };
            delta.turns = Appended { push: vec![record], keep: TURN_WINDOW };
        }
        drop(doc);
        self.commit(delta, archive, true).await
    }

    async fn commit(
        &mut self,
        delta: Delta,
        archive: Vec<ArchiveEntry>,
        release: bool,
    ) -> Result<(), Error> {
        self.ledger().commit(delta, &archive, release).await?;
        self.changes = Changes::default();
        self.scope.unsaved.clear();
        self.scope.recall.marks.clear();
        self.scope.usage = TokenUsage::default();
        self.scope.journal.count_spent();
        Ok(())
    }

    /// Commits the answers to what the step waited for, before it runs on with them.
    pub(super) async fn resume(&mut self, answers: Answers) -> Result<(), Error> {
        let requests = answers.over.into_iter().map(|(request, _)| request).collect();
        self.scope.events.emit(|| Event::Resumed { requests });
        let doc = self.ledger().doc();
        let turn = self.turn_id.clone();
        let visit = Visit { turn, round: self.scope.round.clone(), ..doc.visit.clone() };
        drop(doc);
        let left = answers.left;
        let waiting = (!left.is_empty()).then_some(Waiting::Interrupts { pending: left });
        let mut delta = Delta {
            status: Some(Status::Running),
            visit: Some(visit),
            effects: Some(self.scope.journal.records()),
            waiting: Some(waiting),
            updated_at: Some(self.core.clock.now()),
            ..Delta::default()
        };
        let archive = self.append_history(&self.ledger().doc(), &mut delta);
        self.commit(delta, archive, false).await
    }

    /// Commits that a turn has begun, before it makes effects that are recorded: whoever goes
    /// on with them has to know what the user said.
    pub(super) async fn commit_begin(&mut self) -> Result<(), Error> {
        let doc = self.ledger().doc();
        let begins = doc.revision == 0 || matches!(doc.waiting, Some(Waiting::Message { .. }));
        let begins = begins || !self.scope.unsaved.is_empty();
        // With `Durability::Turn`, the document may stand at an earlier step.
        let begins = begins || doc.visit.number != self.visit.number;
        drop(doc);
        if !begins || !self.ledger().commits_begins() {
            return Ok(());
        }
        let now = self.core.clock.now();
        let (mut delta, archive) = self.build_delta(now, self.core.session_ttl)?;
        if matches!(self.ledger().doc().waiting, Some(Waiting::Message { .. })) {
            delta.waiting = Some(None);
        }
        self.commit(delta, archive, false).await
    }

    /// Keeps the effects of a run that has failed, so that the turn which is sent again does
    /// not make them again.
    pub(super) async fn keep_effects(&self) -> Result<(), Error> {
        let doc = self.ledger().doc();
        let effects = self.scope.journal.kept();
        if doc.visit.number != self.visit.number || doc.effects == effects {
            return Ok(());
        }
        drop(doc);
        let now = self.core.clock.now();
        let delta = Delta { effects: Some(effects), updated_at: Some(now), ..Delta::default() };
        self.ledger().commit(delta, &[], false).await
    }

    /// Whether the session is over with the turn.
    fn ends(&self) -> bool {
        let pause = self.pause.as_ref();
        pause
            .is_some_and(|pause| matches!(pause, Outcome::Ended { .. } | Outcome::HandedOff { .. }))
    }

    /// What differs from the document as it was last committed, and what moves out of it.
    pub(super) fn build_delta(
        &self,
        now: Timestamp,
        ttl: Option<Duration>,
    ) -> Result<(Delta, Vec<ArchiveEntry>), Error> {
        let doc = self.ledger().doc();
        let mut delta = Delta { updated_at: Some(now), ..Delta::default() };
        delta.status = (doc.status != Status::Running).then_some(Status::Running);
        if doc.flow.digest != *self.digest {
            delta.flow = Some(FlowRef { id: F::ID.to_owned(), digest: self.digest.to_string() });
        }
        let name = &self.steps.at(self.cursor).info().name;
        delta.current_step = (doc.current_step != **name).then(|| name.to_string());
        let suspended = !self.interrupts.is_empty();
        let called = self.scope.journal.has_call();
        let under_way = self.pause.is_none() || suspended || called || self.runs_again;
        let heard_more = self.scope.last_message != self.scope.message;
        let visit = Visit {
            number: self.visit.number,
            entered: self.visit.entered,
            from: self.visit.from.clone(),
            input: self.visit.input.to_json().map_err(|e| unwritable(&doc, "visit.input", &e))?,
            asked: self.scope.asked,
            calls: self.scope.journal.base(),
            said: self.scope.said,
            message: self.scope.message.clone().filter(|_| under_way),
            heard: self.scope.last_message.clone().filter(|_| under_way && heard_more),
            turn: self.turn_id.clone().filter(|_| self.pause.is_none()),
            round: self.scope.round.clone(),
        };
        let effects = self.scope.journal.records();
        delta.effects = (doc.effects != effects).then_some(effects);
        delta.visit = (doc.visit != visit).then_some(visit);
        let state = serde_json::to_value(&self.state).map_err(|e| unwritable(&doc, "state", &e))?;
        delta.state = (doc.state != state).then_some(state);
        for (place, step) in self.live.iter().enumerate() {
            let Some(step) = step else { continue };
            let name = &self.steps.at(place).info().name;
            let fields = step.save().map_err(|e| unwritable(&doc, &format!("steps.{name}"), &e))?;
            if doc.steps.get(&**name) != Some(&fields) {
                delta.steps.insert(name.to_string(), fields);
            }
        }
        let mut usage = doc.usage;
        usage += self.scope.usage;
        usage += self.scope.journal.spent();
        delta.usage = (doc.usage != usage).then_some(usage);
        if doc.context != self.scope.context {
            delta.context = Some(self.scope.context.clone());
        }
        let edges: Vec<EdgeCount> = self
            .edges
            .iter()
            .map(|(from, to, count)| EdgeCount {
                from: self.steps.at(*from).info().name.to_string(),
                to: self.steps.at(*to).info().name.to_string(),
                count: *count,
            })
            .collect();
        delta.edges = (doc.edges != edges).then_some(edges);
        delta.gates = (doc.gates != self.verdicts).then(|| self.verdicts.clone());
        delta.error = doc.error.is_some().then_some(None);
        let moves = self.moves_now();
        delta.moves = (doc.moves != moves).then_some(moves);
        // Whatever the session was to be woken for, it is awake now.
        let wake_at = self.interrupts.iter().filter_map(|interrupt| interrupt.deadline).min();
        // A called session is woken by its caller.
        let own_wake_at = wake_at.filter(|_| !is_called(&doc));
        delta.wake_at = (doc.wake_at != own_wake_at).then_some(own_wake_at);
        // A called session lasts as long as its caller, which may wait for it and meanwhile
        // make turns of which this one knows nothing.
        let ttl = ttl.filter(|_| !is_called(&doc) || self.ends());
        let expires_at = expiry(ttl, wake_at, now);
        delta.expires_at = (doc.expires_at != expires_at).then_some(expires_at);
        let archive = self.append_history(&doc, &mut delta);
        Ok((delta, archive))
    }

    /// Appends messages and path entries, and moves what is beyond the windows out. A tool
    /// call and its results stay together.
    fn append_history(&self, doc: &SessionDoc, delta: &mut Delta) -> Vec<ArchiveEntry> {
        let said = &self.scope.unsaved;
        if !said.is_empty() {
            delta.next_message = Some(doc.next_message + said.len() as u64);
        }
        for (namespace, message) in said {
            let memory = delta.memory.entry((*namespace).to_owned()).or_default();
            memory.messages.push.push(message.clone());
        }
        for (namespace, marks) in &self.scope.recall.marks {
            let was = doc.memory.get(*namespace);
            let memory = delta.memory.entry((*namespace).to_owned()).or_default();
            let (summary, start) = was.map_or((&None, &None), |was| (&was.summary, &was.start));
            memory.summary = (*summary != marks.summary).then(|| marks.summary.clone());
            memory.start = (*start != marks.start).then(|| marks.start.clone());
        }
        let policy = &self.scope.recall.policy;
        let mut archived = Vec::new();
        for (namespace, MemoryDelta { messages: appended, .. }) in &mut delta.memory {
            let kept = doc.memory.get(namespace).map_or(&[][..], |memory| &memory.messages);
            let all: Vec<&Message> = kept.iter().chain(&appended.push).collect();
            let surplus = surplus(all.len(), policy.window, policy.batch);
            let surplus = surplus.map_or(0, |surplus| cut_at(&all, surplus));
            if surplus > 0 {
                archived.extend(all[..surplus].iter().map(|message| ArchivedMessage {
                    namespace: namespace.clone(),
                    message: (*message).clone(),
                }));
                appended.keep = all.len() - surplus;
            }
        }
        archived.sort_by_key(|archived| archived.message.seq);
        delta.path.push.clone_from(&self.changes.path);
        let mut path = Vec::new();
        if let Some(surplus) =
            surplus(doc.path.len() + delta.path.push.len(), PATH_WINDOW, PATH_BATCH)
        {
            path.extend(doc.path.iter().chain(&delta.path.push).take(surplus).cloned());
            delta.path.keep = PATH_WINDOW;
        }
        let entries = make_entries(doc.archive.next, archived, path, policy.batch);
        if let Some(last) = entries.last() {
            delta.archive = Some(ArchiveMark { from: doc.archive.from, next: last.seq + 1 });
        }
        entries
    }
}

/// When a session expires: one that sleeps longer than it is kept wakes first.
pub(super) fn expiry(
    ttl: Option<Duration>,
    wake_at: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    ttl.map(|ttl| wake_at.unwrap_or(now).max(now).after(ttl))
}

/// Makes one archive entry of what moves out, or several of at most two batches each when a
/// lower window has let go of more than that.
fn make_entries(
    seq: u64,
    messages: Vec<ArchivedMessage>,
    mut path: Vec<PathEntry>,
    batch: usize,
) -> Vec<ArchiveEntry> {
    if messages.is_empty() && path.is_empty() {
        return Vec::new();
    }
    let count = messages.len().div_ceil(2 * batch.max(1)).max(1);
    let mut messages = messages.into_iter();
    let entry = |place| {
        let share = messages.len().div_ceil(count - place);
        ArchiveEntry {
            seq: seq + place as u64,
            messages: messages.by_ref().take(share).collect(),
            path: std::mem::take(&mut path),
        }
    };
    (0..count).map(entry).collect()
}

/// How many items move out: nothing until a whole batch is beyond the window.
fn surplus(len: usize, window: usize, batch: usize) -> Option<usize> {
    (len >= window + batch.max(1)).then(|| len - window)
}

fn unwritable(doc: &SessionDoc, path: &str, error: &serde_json::Error) -> Error {
    SessionError::Unwritable {
        session: doc.id.to_string(),
        path: path.to_owned(),
        reason: error.to_string(),
    }
    .into()
}
