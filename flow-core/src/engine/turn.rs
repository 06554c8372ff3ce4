//! One turn from open to close.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::build::{FlowSlot, Running};
use super::call;
use super::delivery::{MAX_SIGNAL_ID_BYTES, SIGNAL_TURN, answer, pending};
use super::lease::{Held, give_back};
use super::moves::{Arrives, Carried, Entry, Moved, Ready, Unfit, Worked, digress, follow};
use super::prepare::{Prepared, prepare};
use super::queue;
use super::restore::{find_step, keep, migrate, supersede};
use super::run::Run;
use super::{Core, Durability, Engine, TurnOutcome, TurnRequest};
use crate::effect::{Journal, Place};
use crate::error::{Error, IdError, SessionError, StepError, StoreError, TurnError};
use crate::event::Event;
use crate::flow::{Flow, Restore};
use crate::id::{MAX_ID_BYTES, SessionId};
use crate::ledger::Ledger;
use crate::message::Role;
use crate::model::TokenUsage;
use crate::outcome::Outcome;
use crate::panic::catch_panic;
use crate::session::{Delta, EffectOutcome, ErrorRecord, MAIN_MEMORY, SessionDoc, Status, Waiting};
use crate::step::{EventSink, Scope, read};
use crate::store::{Grant, OpenRequest, Opened};
use crate::time::Timestamp;
use crate::tool::ToolReplay;

/// Runs a turn, tells its events, and gives the session back whatever happens.
pub(super) async fn run<F: Flow>(
    slot: Arc<FlowSlot<F>>,
    core: Arc<Core>,
    request: TurnRequest,
    events: EventSink,
    cancel: CancellationToken,
) -> Result<TurnOutcome, Error> {
    let turn: Arc<str> = match &request.turn_id {
        Some(id) => id.as_str().into(),
        None => uuid::Uuid::now_v7().to_string().into(),
    };
    let span = tracing::info_span!("turn", flow = F::ID, session = %request.session, turn = %turn);
    async {
        let (events, cancel) = (events.clone(), cancel);
        let entry = TurnEntry { request, turn, events: events.clone(), cancel, place: None };
        let result = take_turn(slot, core, entry).await;
        match &result {
            Ok(outcome) => {
                tracing::debug!(step = %outcome.step, revision = outcome.revision, "turn over");
                events.emit(|| Event::TurnEnd { outcome: outcome.outcome.clone() });
            }
            Err(error) => {
                tracing::warn!(code = error.code(), error = %error, "turn failed");
                let record = ErrorRecord::from(error);
                events.emit(|| Event::Error {
                    code: record.code.clone(),
                    message: record.message.clone(),
                    retryable: record.retryable,
                });
                events.emit(|| Event::TurnEnd { outcome: Outcome::Failed { error: record } });
            }
        }
        result
    }
    .instrument(span)
    .await
}

pub(super) fn cancelled(session: &SessionId) -> Error {
    TurnError::Cancelled { session: session.to_string() }.into()
}

/// A turn that is to be taken.
pub(crate) struct TurnEntry {
    request: TurnRequest,
    turn: Arc<str>,
    events: EventSink,
    cancel: CancellationToken,
    /// Its place in the queue, once it has one.
    place: Option<queue::Place>,
}

pub(super) async fn take_turn<F: Flow>(
    slot: Arc<FlowSlot<F>>,
    core: Arc<Core>,
    entry: TurnEntry,
) -> Result<TurnOutcome, Error> {
    let TurnEntry { request, turn, events, cancel, place } = entry;
    let (core, events, cancel) = (&core, &events, &cancel);
    check_request(core, &request)?;
    let session = request.session.clone();
    let place = match place {
        Some(place) => place,
        None => tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(cancelled(&session)),
            place = core.queue.enter(&session) => place,
        },
    };

    let prepared = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(cancelled(&session)),
        prepared = catch_panic(Box::pin(prepare(core, slot, request, turn))) => prepared,
    };
    let mut prepared = prepared.map_err(|message| panicked::<F>(&session, message))??;

    let mut opening = Box::pin(open::<F>(core.clone(), session.clone()));
    let opened = tokio::select! {
        biased;
        () = cancel.cancelled() => {
            // The lease may be granted all the same, so it is given back before the next turn.
            let store = core.store.clone();
            let id = session.clone();
            let give_back = async move {
                if let Ok(Opened { grant, doc, .. }) = opening.await {
                    let died = doc.is_some_and(|doc| doc.status == Status::Running);
                    let _ = give_back(&store, &id, &grant, died).await;
                }
            };
            let give_back = tokio::time::timeout(patience(core), give_back);
            tokio::spawn(async move {
                let _ = give_back.await;
                drop(place);
            });
            return Err(cancelled(&session));
        }
        opened = &mut opening => opened,
    };
    let opened = match opened {
        Err(refusal @ StoreError::WrongFlow { .. }) => {
            let named = prepared.request.named.unwrap_or(F::ID);
            let flow = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(cancelled(&session)),
                flow = follow(core, &session, named, refusal) => flow?,
            };
            let entry = TurnEntry {
                request: TurnRequest { named: Some(named), ..prepared.request },
                turn: prepared.turn,
                events: events.clone(),
                cancel: cancel.clone(),
                place: Some(place),
            };
            return flow.take_turn(core.clone(), entry).await;
        }
        opened => opened?,
    };
    let mut held = Held::new(core, &session, opened.grant.clone(), opened.doc.as_ref());
    if let Err(error) = call::check_turn(&prepared.request, opened.doc.as_ref()) {
        let _ = tokio::time::timeout(patience(core), call::refuse(core, held, opened)).await;
        return Err(error);
    }
    let turn = prepared.turn.clone();
    events.emit(|| Event::TurnStart { session: session.as_str().into(), turn });

    if let Some(id) = &prepared.request.turn_id
        && let Some(doc) = &opened.doc
        && let Some(record) = doc.turns.iter().find(|record| record.id == *id)
    {
        let outcome = TurnOutcome {
            session: session.clone(),
            turn: record.id.clone(),
            revision: record.revision,
            flow: doc.flow.id.clone(),
            step: doc.current_step.clone(),
            replies: record.replies.clone(),
            outcome: record.outcome.clone(),
            gates: record.gates.clone(),
            repeated: true,
        };
        let _ = tokio::time::timeout(patience(core), held.give_back()).await;
        return Ok(outcome);
    }

    if prepared.request.wakes && !held.is_due() {
        let _ = tokio::time::timeout(patience(core), held.give_back()).await;
        return Err(TurnError::NotDue { session: session.to_string() }.into());
    }

    prepared.closing = held.closing.clone();
    let work = async {
        let begun = Box::pin(begin(core, prepared, opened.doc, &opened.grant, events));
        let begun = catch_panic(begun).await;
        let mut part = begun.unwrap_or_else(|message| Err(panicked::<F>(&session, message)));
        loop {
            match part? {
                Worked::Over(outcome) => return Ok(*outcome),
                Worked::Moved(moved) => part = moved.go_on(core, events).await,
            }
        }
    };
    let result = tokio::select! {
        biased;
        () = cancel.cancelled() => Err(cancelled(&session)),
        error = held.lost() => Err(error.into()),
        result = work => result,
    };
    match result {
        Ok(outcome) => {
            held.forget();
            Ok(outcome)
        }
        Err(error) => {
            let _ = tokio::time::timeout(patience(core), held.record(&error)).await;
            Err(error)
        }
    }
}

/// How long a turn that is over waits for the store: once its lease has run out, there is
/// nothing to give back any more.
fn patience(core: &Core) -> Duration {
    core.lease.max(Duration::from_secs(1))
}

fn panicked<F: Flow>(session: &SessionId, message: String) -> Error {
    TurnError::Panicked { flow: F::ID.to_owned(), session: session.to_string(), message }.into()
}

fn check_request(core: &Core, request: &TurnRequest) -> Result<(), Error> {
    let size = request.message.as_ref().map_or(0, String::len);
    let limit = core.limits.message_bytes;
    if size > limit {
        return Err(TurnError::MessageTooLarge { size, limit }.into());
    }
    let Some(id) = &request.turn_id else { return Ok(()) };
    let signal = id.strip_prefix(SIGNAL_TURN);
    let (kind, id, reason) = match (&request.delivery, signal) {
        (Some(_), Some(signal)) if signal.is_empty() || signal.len() > MAX_SIGNAL_ID_BYTES => {
            ("signal id", signal, "it must have 1 to 120 bytes")
        }
        (None, Some(_)) => ("turn id", id.as_str(), "those of deliveries begin with `signal:`"),
        _ if id.is_empty() || id.len() > MAX_ID_BYTES => {
            ("turn id", id.as_str(), "it must have 1 to 128 bytes")
        }
        _ => return Ok(()),
    };
    let shown: String = id.chars().take(64).collect();
    Err(IdError { kind, shown: format!("{shown:?}"), reason }.into())
}

async fn open<F: Flow>(core: Arc<Core>, session: SessionId) -> Result<Opened, StoreError> {
    let request = OpenRequest {
        id: &session,
        flow: F::ID,
        version: F::VERSION,
        holder: &core.holder,
        ttl: core.lease,
    };
    let span = tracing::debug_span!("open", session = %session);
    core.store.open(&request).instrument(span).await
}

/// Makes a flow ready for its part of a turn that goes on in it.
pub(super) async fn make_ready<F: Flow>(
    slot: Arc<FlowSlot<F>>,
    core: Arc<Core>,
    request: TurnRequest,
    turn: Arc<str>,
) -> Result<Box<dyn Ready>, Error> {
    let session = request.session.clone();
    let prepared = catch_panic(prepare(&core, slot, request, turn)).await;
    let prepared = prepared.map_err(|message| panicked::<F>(&session, message))??;
    Ok(Box::new(prepared))
}

impl<F: Flow> Ready for Prepared<F> {
    fn document(&self, revision: u64, now: Timestamp) -> Result<SessionDoc, Unfit> {
        let doc = self.begin(revision, now).map_err(Unfit::Other)?;
        match read::<F::State>(doc.state.clone()) {
            Ok(_) => Ok(doc),
            Err(misfit) => Err(Unfit::State { path: misfit.path, reason: misfit.reason }),
        }
    }

    fn namespace(&self) -> &'static str {
        let start = self.start().unwrap_or(0);
        self.steps.at(start).info().memory.unwrap_or(MAIN_MEMORY)
    }

    fn go_on(
        self: Box<Self>,
        core: Arc<Core>,
        ledger: Ledger,
        entry: Entry,
        events: EventSink,
    ) -> Running<Worked> {
        Box::pin(async move {
            let session = self.request.session.clone();
            let work = Box::pin(work(&core, *self, ledger, entry, &events));
            let work = catch_panic(work).await;
            work.unwrap_or_else(|message| Err(panicked::<F>(&session, message)))
        })
    }
}

/// The turn from the opened document on.
async fn begin<F: Flow>(
    core: &Arc<Core>,
    prepared: Prepared<F>,
    doc: Option<SessionDoc>,
    grant: &Grant,
    events: &EventSink,
) -> Result<Worked, Error> {
    let (arrives, doc) = match doc {
        None => (Arrives::Created, prepared.begin(0, core.clock.now())?),
        Some(doc) => (Arrives::Restored, doc),
    };
    let mut ledger = core.ledger(grant, doc);
    ledger.on_closing(prepared.closing.clone());
    if core.durability == Durability::Effect {
        ledger.record_effects();
    }
    let entry = Entry { arrives, says: true, carried: Carried::default() };
    Box::pin(work(core, prepared, ledger, entry, events)).await
}

/// What becomes of a stored document.
enum TakenUp {
    /// The session goes on with it.
    Kept,
    /// A new one is in its place.
    Anew,
    /// The session begins anew in the flow in which it once began.
    Elsewhere(Box<dyn Ready>),
}

/// Brings a stored document up to date, and asks the flow what becomes of it.
async fn take_up<F: Flow>(
    core: &Arc<Core>,
    prepared: &Prepared<F>,
    ledger: &mut Ledger,
    events: &EventSink,
) -> Result<TakenUp, Error> {
    let from = ledger.doc().version;
    if let Some(migrated) = migrate::<F>(&prepared.slot, &prepared.steps, &ledger.doc())? {
        ledger.replace(migrated);
        // `updated_at` stays, so that the hook sees how long the session was idle.
        ledger.commit(Delta::default(), &[], false).await?;
        let to = ledger.doc().version;
        events.emit(|| Event::SessionMigrated { from, to });
    }
    let doc = SessionDoc::clone(&ledger.doc());
    let kept = prepared.flow.on_restore_session_doc(doc).await;
    let kept = kept.map_err(|error| TurnError::Hook {
        flow: F::ID.to_owned(),
        session: prepared.request.session.to_string(),
        hook: "on_restore_session_doc",
        error,
    })?;
    match kept {
        Restore::Keep(doc) => {
            keep(ledger, *doc);
            Ok(TakenUp::Kept)
        }
        Restore::Fresh { reason } => {
            let now = core.clock.now();
            let doc = ledger.doc();
            let origin = doc.moves.as_ref().filter(|moves| moves.origin != F::ID);
            let (new, taken) = match origin.and_then(|moves| core.flows.get(&*moves.origin)) {
                Some(origin) => {
                    let (request, turn) = (prepared.request.clone(), prepared.turn.clone());
                    let ready = origin.clone().prepare(core.clone(), request, turn).await?;
                    let new = ready.document(doc.revision, now).map_err(|error| error.at(&doc))?;
                    (new, TakenUp::Elsewhere(ready))
                }
                None => (prepared.begin(doc.revision, now)?, TakenUp::Anew),
            };
            drop(doc);
            let kept_as = supersede(ledger, new, now);
            events.emit(|| Event::SessionSuperseded { reason, kept_as });
            Ok(taken)
        }
    }
}

/// A flow's part of the turn: from its document to the commit that ends the part.
async fn work<F: Flow>(
    core: &Arc<Core>,
    prepared: Prepared<F>,
    mut ledger: Ledger,
    entry: Entry,
    events: &EventSink,
) -> Result<Worked, Error> {
    let Entry { mut arrives, says, carried } = entry;
    if matches!(arrives, Arrives::Restored | Arrives::Back) {
        match Box::pin(take_up(core, &prepared, &mut ledger, events)).await? {
            TakenUp::Kept => {}
            TakenUp::Anew => arrives = Arrives::Created,
            TakenUp::Elsewhere(ready) => {
                let entry = Entry { arrives: Arrives::Created, says, carried };
                return Ok(Worked::Moved(Box::new(Moved { ready, ledger, entry })));
            }
        }
    }
    let Prepared {
        slot,
        flow,
        steps,
        models,
        speakers,
        recall,
        reducers,
        gatekeepers,
        digest,
        context,
        turn,
        mut request,
        closing: _,
    } = prepared;
    if !says {
        request.message = None;
    }
    let session = request.session.clone();
    let now = core.clock.now();
    if core.durability != Durability::Effect
        && slot.tools.iter().any(|tool| tool.replay == ToolReplay::Never)
    {
        ledger.commit_begins();
    }
    if let Some(reason) = &ledger.doc().ended {
        let reason = reason.clone();
        return Err(SessionError::Ended { session: session.to_string(), reason }.into());
    }
    let tools = flow.define_tools(slot.tools.clone());

    let doc = ledger.doc();
    let cursor = find_step(&steps, &doc)?;
    let name = steps.at(cursor).info().name.clone();
    match arrives {
        Arrives::Created => {
            events.emit(|| Event::SessionCreated { flow: F::ID.into(), version: F::VERSION });
            events.emit(|| Event::FlowEnter { flow: F::ID.into() });
        }
        Arrives::Restored => {
            let revision = doc.revision;
            events.emit(|| Event::SessionRestored { step: name.clone(), revision });
        }
        Arrives::Entered => events.emit(|| Event::FlowEnter { flow: F::ID.into() }),
        Arrives::Back => {}
    }

    let mut merged = doc.context.clone();
    merged.extend(context.clone());
    let asked_fields = match &doc.waiting {
        Some(Waiting::Message { question: Some(question) }) => question.fields.clone(),
        _ => Vec::new(),
    };
    // A turn that is sent again goes on from its last crossing: what the user said is in the
    // history already, and steps that have read it do not read it again.
    let resumed = request.turn_id.is_some() && doc.visit.turn == request.turn_id;
    if let Some(to) = request.digression.take().filter(|_| says && !resumed) {
        drop(doc);
        return Box::pin(digress(core, ledger, (to, request, turn), merged, events)).await;
    }
    let pending = pending(&doc).to_vec();
    call::take_message(&mut request, &pending);
    let delivery = request.delivery.as_ref().filter(|_| !resumed);
    let settled = if resumed { &[][..] } else { &request.answers };
    let heard = request.message.as_deref().filter(|_| !resumed);
    let answers = answer(&doc, delivery, settled, heard, now);
    let mut answers = answers.map_err(Error::from)?;
    let hears = call::hears(&doc);
    let parked = matches!(doc.waiting, Some(Waiting::Escalation { .. })) && !request.releases;
    if let Some((call, heard)) = hears.clone().zip(heard).filter(|_| !parked) {
        answers.over.push((call, EffectOutcome::Value(heard.into())));
    }
    // A session that was interrupted after an answer was committed runs on with that.
    let due = doc.wake_at.is_some_and(|wake_at| wake_at <= now);
    let holds =
        !pending.is_empty() && answers.over.is_empty() && doc.status == Status::Waiting && !due;
    let said = request.message.filter(|_| !resumed);
    let goes_on = said.is_none();
    // A turn that goes on with another one finishes that.
    let finishes = goes_on && request.delivery.is_none();
    let turn_id = request.turn_id.or_else(|| doc.visit.turn.clone().filter(|_| finishes));
    let mut message = doc.visit.message.clone();
    let mut last_message = doc.visit.heard.clone().or_else(|| message.clone());
    if pending.is_empty()
        && hears.is_none()
        && let Some(said) = &said
    {
        message = Some(said.clone());
        last_message.clone_from(&message);
    }
    let journal = Arc::new(Journal::new(core.limits.effects));
    let visit = (session.as_str(), doc.visit.number, name.clone());
    // What a run did that began in its turn, with a message that is not in the document, says
    // nothing about a run without it.
    let begun_before =
        !matches!(doc.waiting, Some(Waiting::Message { .. })) && !doc.path.is_empty();
    let strict =
        !pending.is_empty() || hears.is_some() || (goes_on && (message.is_some() || begun_before));
    journal.load(visit, doc.visit.calls, &doc.effects, strict);
    for (request, outcome) in &answers.over {
        journal.answer(request, outcome.clone());
    }
    journal.number_calls(doc.revision);
    let mut round = doc.visit.round.clone();
    if let Some(round) = &mut round {
        for (request, outcome) in &answers.over {
            round.decide(request, outcome);
        }
    }
    let visit = doc.visit.number;
    let asked = if request.releases { 0 } else { doc.visit.asked };
    // A run about other words says other things.
    let same_run = strict || message == doc.visit.message;
    let said_before = if same_run { doc.visit.said } else { 0 };
    drop(doc);
    let scope = Scope {
        session,
        turn,
        step: name,
        visit,
        journal,
        frame: Place::default(),
        level: 0,
        current: None,
        limits: core.limits.frames(),
        interrupts: Vec::new(),
        round,
        unrecorded: Arc::default(),
        last_message,
        message,
        asked_fields,
        asked,
        effects: Vec::new(),
        said: said_before,
        notes: carried.notes,
        context: merged,
        tools: tools.into(),
        models,
        speakers,
        speaker: None,
        namespace: MAIN_MEMORY,
        recall,
        reducers,
        unsaved: Vec::new(),
        usage: TokenUsage::default(),
        events: events.clone(),
        now,
        clock: core.clock.clone(),
        children: Some(Arc::new(Engine { core: core.clone() })),
        ledger: Some(Arc::new(ledger)),
        may_ask: true,
        entered: Vec::new(),
        callers: request.callers,
    };
    let created = arrives == Arrives::Created;
    // What holds it would else be as large as all of it.
    let run = Run::new(core.clone(), flow, steps, digest, cursor, scope, created)?;
    let mut run = Box::new(run);
    run.turn_id = turn_id;
    run.passed = context;
    run.replies = carried.replies;
    run.crossings = carried.crossings;
    run.gatekeepers = Arc::new(gatekeepers);
    run.set_voice();
    if goes_on {
        run.keep_edges();
    }
    let speaks = said.is_some();
    if let Some(message) = said {
        run.record_message(Role::User, message);
    }
    if let Some(reason) = run.escalation().filter(|_| !request.releases) {
        return Box::pin(run.park(reason, speaks)).await;
    }
    let asks_again = run.arrive_by(speaks);
    if asks_again {
        return Box::pin(run.ask_again()).await;
    }
    if holds {
        return Box::pin(run.hold(pending, speaks)).await;
    }
    if !answers.over.is_empty() {
        run.resume(answers).await?;
    }
    let flow = run.flow().clone();
    flow.run(&mut *run).await.map_err(|error| match error.into_source::<Error>() {
        Ok(error) => error,
        Err(error) => hook_error::<F>(&run, "run", error),
    })?;
    run.close().await
}

fn hook_error<F: Flow>(run: &Run<F>, hook: &'static str, error: StepError) -> Error {
    TurnError::Hook { flow: F::ID.to_owned(), session: run.session().to_string(), hook, error }
        .into()
}
