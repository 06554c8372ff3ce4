//! Time travel: sessions as they were, and what can be made of them.

use std::collections::BTreeMap;

use super::SessionHandle;
use super::commit::expiry;
use crate::error::{Error, SessionError, StoreError};
use crate::id::SessionId;
use crate::model::TokenUsage;
use crate::session::{
    ArchiveEntry, ArchiveMark, Delta, EffectKind, Interrupt, Lease, PendingCall, SessionDoc,
    Status, Waiting,
};
use crate::store::{CheckpointSummary, Grant, OpenRequest, Transcript};
use crate::time::Timestamp;

/// The most checkpoints that are kept of a session.
pub const MAX_CHECKPOINTS: usize = 1000;

/// Which checkpoints of each session an engine keeps.
///
/// A checkpoint is the whole document as of one commit. Every commit leaves one: that of each
/// crossing and of the end of each turn, with [`Durability::Effect`](super::Durability::Effect)
/// that before each effect, that of a failure, of a migration and of a
/// [rewind](SessionHandle::rewind). So a commit writes the document once more, and on MongoDB it
/// costs one more command. Without checkpoints nothing is written twice.
///
/// ```
/// use flow_core::Engine;
/// use flow_core::engine::Checkpoints;
/// use flow_core::store::memory::MemoryStore;
///
/// let engine = Engine::builder()
///     .store(MemoryStore::new())
///     .checkpoints(Checkpoints::keep_last(20))
///     .build()?;
/// # Ok::<(), flow_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checkpoints(usize);

impl Checkpoints {
    /// Commits leave none (default). Those that a session has already stay as they are.
    pub fn none() -> Self {
        Self(0)
    }

    /// Those of the last `n` commits, at most [`MAX_CHECKPOINTS`]. 0 is [`none`](Self::none).
    pub fn keep_last(n: usize) -> Self {
        Self(n.min(MAX_CHECKPOINTS))
    }

    pub(super) fn count(self) -> usize {
        self.0
    }
}

impl SessionHandle {
    /// The checkpoints of the session, newest first: one for each of its last commits, as many
    /// as the engine [keeps](super::EngineBuilder::checkpoints).
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such session.
    pub async fn history(&self) -> Result<Vec<CheckpointSummary>, Error> {
        let history = self.core.store.checkpoints(&self.id).await?;
        if history.is_empty() {
            self.load().await?;
        }
        Ok(history)
    }

    /// The session as it was at a revision: the document, and all messages that had been said.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such session,
    /// [`SessionError::NoCheckpoint`] when it has no checkpoint of this revision.
    pub async fn checkpoint(&self, revision: u64) -> Result<Transcript, Error> {
        match self.core.store.checkpoint(&self.id, revision).await? {
            Some(found) => Ok(found),
            None => Err(self.no_checkpoint(revision).await?),
        }
    }

    /// Makes a new session from the session as it was at a revision. Both then go their own
    /// way.
    ///
    /// ```
    /// use flow_core::engine::Checkpoints;
    /// use flow_core::prelude::*;
    /// # use flow_core::store::memory::MemoryStore;
    /// # use flow_core::{Engine, TurnRequest};
    /// # #[flow(id = "drinks", steps(Order))]
    /// # #[derive(Clone)]
    /// # struct Drinks;
    /// # impl Flow for Drinks {}
    /// # #[step(collect, next(end))]
    /// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
    /// # struct Order {
    /// #     #[slot(range(1, 8), ask = "How many?")]
    /// #     number: Option<u8>,
    /// #     #[slot(one_of("tea", "coffee"), ask = "Tea or coffee?")]
    /// #     kind: Option<String>,
    /// # }
    /// # impl Collect for Order {
    /// #     type Flow = Drinks;
    /// #     async fn complete(&mut self, data: OrderData, cx: &mut StepCx<'_, Drinks>) -> Result<OrderNext> {
    /// #         cx.say(format!("{} x {}", data.number, data.kind));
    /// #         Ok(OrderNext::End("ordered".into()))
    /// #     }
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let store = MemoryStore::new();
    /// let engine = Engine::builder()
    ///     .store(store)
    ///     .flow(Drinks) // asks how many, and of what
    ///     .checkpoints(Checkpoints::keep_last(20))
    ///     .build()?;
    /// let ada = SessionId::new("ada")?;
    /// let say = |id: &SessionId, text| engine.turn::<Drinks>(TurnRequest::new(id.clone()).message(text));
    /// say(&ada, "2").await?;
    /// assert_eq!(say(&ada, "tea").await?.replies, ["2 x tea"]);
    ///
    /// let session = engine.session(ada);
    /// let [end, asked] = &session.history().await?[..] else { panic!() };
    /// assert!(end.revision > asked.revision, "newest first");
    /// let fork = session.fork(asked.revision, SessionId::new("ada/coffee")?).await?;
    /// assert_eq!(say(fork.id(), "coffee").await?.replies, ["2 x coffee"]);
    /// # Ok::<(), flow_core::Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// What the new session has:
    ///
    /// * Its transcript is whole: what had moved to the archive is copied.
    /// * Effects that the waiting action had made are recorded under the keys of the new
    ///   session, so they are not made again, and what they came to is the same in both. What
    ///   it makes from there on has idempotency keys of its own: effects that the other
    ///   session has made since are made again, and an approval that both wait for is given
    ///   to each. A call that was running at the checkpoint counts as not made.
    /// * A checkpoint between two steps of a turn waits; a turn without a message finishes
    ///   that turn. A sleep or a deadline that is over by now is due.
    /// * It begins at revision 1, now, with no recorded turns and no
    ///   [usage](SessionDoc::usage): those are the other session's. Owner and labels are
    ///   those that the other session has now.
    /// * A checkpoint of an older document version is migrated by its first turn.
    ///
    /// Sessions that the session has [called](crate::step::ActionCx::call_flow) or begun as items
    /// of a [batch](crate::step::ActionCx::concurrent) are not copied. What they have come to is
    /// recorded; in the middle of a call or a batch there is no fork.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such session, [`StoreError::Busy`] while a
    /// turn works on it, [`SessionError::NoCheckpoint`] when it has no checkpoint of this
    /// revision, [`SessionError::UnderWay`] when a call or a batch was under way there,
    /// [`StoreError::Exists`] when there is a session with the new id.
    pub async fn fork(&self, at_revision: u64, id: SessionId) -> Result<Self, Error> {
        let (grant, doc) = self.open().await?;
        let fork = self.fork_from(&doc, at_revision, id).await;
        if let Err(error) = self.give_back(&grant, doc.status).await {
            // What was made stays, and the lease runs out by itself.
            tracing::warn!(session = %self.id, %error, "lease not given back");
        }
        fork
    }

    async fn fork_from(&self, doc: &SessionDoc, at: u64, id: SessionId) -> Result<Self, Error> {
        let core = &self.core;
        let from = self.checkpoint(at).await?;
        self.check_alone(&from.doc)?;
        let exists = || Error::from(StoreError::Exists { session: id.clone() });
        if core.store.load(&id).await?.is_some() {
            return Err(exists());
        }
        let request = OpenRequest {
            id: &id,
            flow: &from.doc.flow.id,
            version: from.doc.version,
            holder: &core.holder,
            ttl: core.lease,
        };
        let opened = match core.store.open(&request).await {
            Ok(opened) => opened,
            Err(StoreError::WrongFlow { .. } | StoreError::FromFuture { .. }) => {
                return Err(exists());
            }
            Err(error) => return Err(error.into()),
        };
        let made = if opened.doc.is_some() {
            Err(exists())
        } else {
            let now = core.clock.now();
            let (fork, archive) = fork_doc(doc, from, &id, now);
            let expires_at = expiry(core.session_ttl, fork.wake_at, now);
            let ledger = core.ledger(&opened.grant, SessionDoc { expires_at, ..fork });
            ledger.commit(Delta::default(), &archive, true).await
        };
        match made {
            Ok(()) => Ok(Self { core: core.clone(), id }),
            Err(error) => {
                core.store.release(&id, &opened.grant).await?;
                Err(error)
            }
        }
    }

    /// Puts the session back to what it was at a revision. It is a commit like any other: the
    /// revision goes on upwards, and with checkpoints it leaves one. Nothing of the history is
    /// lost, so a rewind can be undone by another one.
    ///
    /// What the session has then:
    ///
    /// * The steps, the state, the messages and what it waits for are those of the checkpoint.
    /// * Visits go on being counted: the visit in which it stands has a number that no visit of
    ///   before has had. So requests that it waits for have new ids, and an answer to one of
    ///   before is refused. Effects that the waiting action had made are recorded under new
    ///   keys and are not made again; what the session makes from there on has idempotency
    ///   keys that no tool has seen, so it is really made, whatever was made after the
    ///   checkpoint. A call that was running at the checkpoint counts as not made.
    /// * A checkpoint between two steps of a turn waits; a turn without a message finishes
    ///   that turn. A sleep or a deadline that is over by now is due.
    /// * What was paid stays paid, so the [usage](SessionDoc::usage) stays. So do the outcomes of
    ///   turns that have ended: a turn that is sent again under its id is not made again.
    ///   Owner and labels stay too, and messages go on being counted.
    /// * A session that has ended since goes on.
    /// * A checkpoint of an older document version is migrated by the next turn.
    /// * A [call](crate::step::ActionCx::call_flow) or a [batch](crate::step::ActionCx::concurrent)
    ///   that has begun since is made anew, in new sessions. Those that it had stay where they
    ///   are, and nobody waits for them; they are deleted with the session.
    ///
    /// When messages have moved to the archive since, those that had moved there before are
    /// copied, so a rewind of a long conversation writes as much as its archive.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such session, [`StoreError::Busy`] while a
    /// turn works on it, [`SessionError::NoCheckpoint`] when it has no checkpoint of this
    /// revision, [`SessionError::UnderWay`] when a call or a batch was under way there: its
    /// sessions cannot be put back.
    pub async fn rewind(&self, to_revision: u64) -> Result<(), Error> {
        let (grant, doc) = self.open().await?;
        let status = doc.status;
        let rewound = self.rewind_to(&grant, doc, to_revision).await;
        if rewound.is_err() {
            self.give_back(&grant, status).await?;
        }
        rewound
    }

    async fn rewind_to(&self, grant: &Grant, doc: SessionDoc, to: u64) -> Result<(), Error> {
        let core = &self.core;
        let target = self.checkpoint(to).await?;
        self.check_alone(&target.doc)?;
        let now = core.clock.now();
        // A turn that was cut off may have made visits that were not committed.
        let visit = doc.last_visit() + u64::from(core.limits.crossings) + 1;
        let (rewound, archive) = rewind_doc(&doc, target, visit, now);
        let expires_at = expiry(core.session_ttl, rewound.wake_at, now);
        let mut ledger = core.ledger(grant, doc);
        ledger.replace(SessionDoc { expires_at, ..rewound });
        ledger.commit(Delta::default(), &archive, true).await
    }

    /// Refuses a document that waits for sessions which are somewhere else by now.
    fn check_alone(&self, doc: &SessionDoc) -> Result<(), SessionError> {
        let Some(what) = under_way(doc) else { return Ok(()) };
        let session = self.id.to_string();
        Err(SessionError::UnderWay { session, revision: doc.revision, what })
    }

    /// Says which revisions there are.
    async fn no_checkpoint(&self, revision: u64) -> Result<Error, Error> {
        let history = self.history().await?;
        let known = if history.is_empty() {
            "it has none; build the engine with `.checkpoints(Checkpoints::keep_last(n))`"
                .to_owned()
        } else {
            format!("it has those of {}", ranges(history.iter().map(|kept| kept.revision)))
        };
        let session = self.id.to_string();
        Ok(SessionError::NoCheckpoint { session, revision, known }.into())
    }
}

/// Descending numbers as ranges, ascending: `3, 5-7`.
fn ranges(numbers: impl Iterator<Item = u64>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((from, _)) if *from == number + 1 => *from = number,
            _ => ranges.push((number, number)),
        }
    }
    let shown = ranges
        .iter()
        .rev()
        .map(|(from, to)| if from == to { from.to_string() } else { format!("{from}-{to}") });
    shown.collect::<Vec<_>>().join(", ")
}

/// What a document waits for that other sessions do.
fn under_way(doc: &SessionDoc) -> Option<String> {
    let waits = doc.effects.values().find_map(|effect| match effect.kind {
        _ if effect.outcome.is_some() => None,
        EffectKind::Call => Some(format!("the call of flow `{}`", effect.tool)),
        EffectKind::Batch => Some(format!("a batch of flow `{}`", effect.tool)),
        _ => None,
    });
    let parked = || doc.moves.as_ref().and_then(|moves| moves.parked.as_deref());
    waits.or_else(|| parked().and_then(under_way))
}

/// A new session from a checkpoint, and its archive.
fn fork_doc(
    present: &SessionDoc,
    from: Transcript,
    id: &SessionId,
    now: Timestamp,
) -> (SessionDoc, Vec<ArchiveEntry>) {
    let (mark, archive) = renumber(from.archive, 0);
    let mut fork = rest(from.doc, now);
    let visit = fork.visit.number;
    move_visit(&mut fork, id, visit);
    // Nobody has sent that turn to this session.
    fork.visit.turn = None;
    let fork = SessionDoc {
        id: id.clone(),
        revision: 0,
        turns: Vec::new(),
        usage: TokenUsage::default(),
        archive: mark,
        superseded: 0,
        // Nobody waits for what it comes to.
        parent: None,
        owner: present.owner.clone(),
        labels: present.labels.clone(),
        lease: Lease::default(),
        created_at: now,
        updated_at: now,
        ..fork
    };
    (fork, archive)
}

/// The document of a session that is put back to a checkpoint, and what is written to its
/// archive.
fn rewind_doc(
    present: &SessionDoc,
    target: Transcript,
    visit: u64,
    now: Timestamp,
) -> (SessionDoc, Vec<ArchiveEntry>) {
    // What comes next would overwrite entries to which other checkpoints and superseded
    // documents refer.
    let (mark, archive) = if target.doc.archive == present.archive {
        (target.doc.archive.clone(), Vec::new())
    } else {
        renumber(target.archive, present.archive.next)
    };
    let mut rewound = rest(target.doc, now);
    move_visit(&mut rewound, &present.id, visit);
    let ended = |id: &String| present.turns.iter().any(|turn| turn.id == *id);
    rewound.visit.turn = rewound.visit.turn.filter(|id| !ended(id));
    let rewound = SessionDoc {
        revision: present.revision,
        turns: present.turns.clone(),
        usage: paid(present),
        next_message: present.next_message.max(rewound.next_message),
        archive: mark,
        superseded: present.superseded,
        parent: present.parent.clone(),
        owner: present.owner.clone(),
        labels: present.labels.clone(),
        lease: present.lease.clone(),
        created_at: present.created_at,
        updated_at: now,
        ..rewound
    };
    (rewound, archive)
}

/// What models have cost, with what calls have cost whose step is not left.
fn paid(doc: &SessionDoc) -> TokenUsage {
    let uncounted = |doc: &SessionDoc| {
        let calls = doc.effects.values().filter_map(|effect| effect.call.as_ref());
        calls.fold(TokenUsage::default(), |mut sum, call| {
            sum += call.usage;
            sum
        })
    };
    let mut usage = doc.usage;
    let mut next = Some(doc);
    while let Some(doc) = next {
        usage += uncounted(doc);
        next = doc.moves.as_ref().and_then(|moves| moves.parked.as_deref());
    }
    usage
}

/// A document that stood in the middle of a turn waits for the next one.
fn rest(mut doc: SessionDoc, now: Timestamp) -> SessionDoc {
    if doc.status == Status::Running {
        doc.status = Status::Waiting;
        // Of several requests one was just answered, and the step runs on with that.
        if matches!(doc.waiting, Some(Waiting::Interrupts { .. })) {
            doc.wake_at = Some(doc.wake_at.map_or(now, |at| at.min(now)));
        }
    }
    doc
}

/// Copies archive entries to places from `first` on.
fn renumber(entries: Vec<ArchiveEntry>, first: u64) -> (ArchiveMark, Vec<ArchiveEntry>) {
    let mark = ArchiveMark { from: first, next: first + entries.len() as u64 };
    let places = (first..).zip(entries);
    (mark, places.map(|(seq, entry)| ArchiveEntry { seq, ..entry }).collect())
}

/// Makes the visit in which a document stands one of another session, or one with another
/// number: keys of effects and ids of requests begin with them.
fn move_visit(doc: &mut SessionDoc, session: &SessionId, visit: u64) {
    let (old_key, new_key) =
        (format!("{}:{}:", doc.id, doc.visit.number), format!("{session}:{visit}:"));
    let effects = std::mem::take(&mut doc.effects).into_iter().filter_map(|(key, mut record)| {
        let begun = record.outcome.is_none();
        let is_call = matches!(record.kind, EffectKind::Tool | EffectKind::Run);
        let rest = key.strip_prefix(&old_key).filter(|_| !(begun && is_call))?;
        if let Some(call) = &mut record.call {
            call.usage = TokenUsage::default();
        }
        record.call = record.call.filter(|call| *call != PendingCall::default());
        Some((format!("{new_key}{rest}"), record))
    });
    doc.effects = effects.collect::<BTreeMap<_, _>>();
    let (old_id, new_id) = (format!("{}-", doc.visit.number), format!("{visit}-"));
    let rename = |request: &mut Interrupt| {
        if let Some(rest) = request.request_id.strip_prefix(&old_id) {
            request.request_id = format!("{new_id}{rest}");
        }
    };
    if let Some(Waiting::Interrupts { pending }) = &mut doc.waiting {
        pending.iter_mut().for_each(rename);
    }
    if let Some(round) = &mut doc.visit.round {
        round.asked.iter_mut().for_each(|asked| rename(&mut asked.request));
    }
    doc.visit.number = visit;
    // A flow that is parked comes back in the other session.
    let parked = doc.moves.as_mut().and_then(|moves| moves.parked.as_deref_mut());
    if let Some(parked) = parked.filter(|parked| parked.id != *session) {
        move_visit(parked, session, parked.visit.number);
        parked.id = session.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_named_as_ranges() {
        assert_eq!(ranges([].into_iter()), "");
        assert_eq!(ranges([4].into_iter()), "4");
        assert_eq!(ranges([9, 8, 7, 5, 3, 2].into_iter()), "2-3, 5, 7-9");
    }

    #[test]
    fn no_more_checkpoints_are_kept_than_the_limit() {
        assert_eq!(Checkpoints::keep_last(usize::MAX).count(), MAX_CHECKPOINTS);
        assert_eq!(Checkpoints::keep_last(0), Checkpoints::none());
    }
}
