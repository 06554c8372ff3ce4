//! How a conversation goes from one flow to another and comes back, in its session.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::build::Running;
use super::failure::Failure;
use super::run::Run;
use super::{Core, TurnOutcome, TurnRequest};
use crate::error::{Error, SessionError, StoreError, TurnError};
use crate::event::Event;
use crate::flow::Flow;
use crate::id::SessionId;
use crate::ledger::Ledger;
use crate::message::{Message, Role};
use crate::model::TokenUsage;
use crate::outcome::Outcome;
use crate::session::{
    ArchiveMark, Delta, FlowMoves, Interrupt, Lease, Parent, Relation, SessionDoc, Status, Visit,
    Waiting,
};
use crate::step::{Effect, EventSink};
use crate::time::Timestamp;
use crate::transition::{HandOff, Transition};

/// What a flow's part of a turn comes to.
pub(crate) enum Worked {
    /// The turn is over.
    Over(Box<TurnOutcome>),
    /// It goes on in another flow, whose document is in the ledger.
    Moved(Box<Moved>),
}

/// A turn on its way to another flow, under the lease of the one before.
pub(crate) struct Moved {
    pub(super) ready: Box<dyn Ready>,
    pub(super) ledger: Ledger,
    pub(super) entry: Entry,
}

impl Moved {
    pub(super) fn go_on(self, core: &Arc<Core>, events: &EventSink) -> Running<Worked> {
        self.ready.go_on(core.clone(), self.ledger, self.entry, events.clone())
    }
}

/// How a flow gets its part of a turn.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) arrives: Arrives,
    /// Whether the message of the request is new; else the document has it.
    pub(super) says: bool,
    pub(super) carried: Carried,
}

/// In which state a flow finds its document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrives {
    /// The session begins.
    Created,
    /// It was read from the store.
    Restored,
    /// The conversation has come from another flow.
    Entered,
    /// It has come back.
    Back,
}

/// What the parts of one turn share.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// What the user was told.
    pub(super) replies: Vec<String>,
    /// The notes of the turn.
    pub(super) notes: Vec<String>,
    /// The crossings of the turn.
    pub(super) crossings: u32,
}

/// A flow that is ready for its part of a turn, whatever its type.
pub(crate) trait Ready: Send + Sync {
    /// The document with which it begins, whose state comes from the request. The state is
    /// checked.
    fn document(&self, revision: u64, now: Timestamp) -> Result<SessionDoc, Unfit>;

    /// The memory namespace of its first step.
    fn namespace(&self) -> &'static str;

    /// Runs it to the end of its part.
    fn go_on(
        self: Box<Self>,
        core: Arc<Core>,
        ledger: Ledger,
        entry: Entry,
        events: EventSink,
    ) -> Running<Worked>;
}

/// Why a flow cannot begin.
pub(crate) enum Unfit {
    /// The state does not read as its state.
    State {
        path: String,
        reason: String,
    },
    Other(Error),
}

impl Unfit {
    /// The error of a session that cannot begin anew.
    pub(super) fn at(self, doc: &SessionDoc) -> Error {
        match self {
            Self::State { path, reason } => SessionError::Unwritable {
                session: doc.id.to_string(),
                path: format!("state.{path}"),
                reason,
            }
            .into(),
            Self::Other(error) => error,
        }
    }
}

/// Where a conversation goes, found and made ready before anything is left.
pub(super) struct Moving {
    ready: Box<dyn Ready>,
    /// The document that takes the place of the one that is left, without what belongs to the
    /// conversation.
    doc: SessionDoc,
    way: Way,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Another flow begins.
    HandOff,
    /// The flow that was parked comes back.
    Back,
}

/// Why a session has ended that was handed off.
pub(super) fn handed_off(to: &str) -> String {
    format!("handed off to {to}")
}

impl<F: Flow> Run<F> {
    /// How the conversation came to this flow; nothing while it is where it began, with
    /// nothing to come back to.
    pub(super) fn moves_now(&self) -> Option<FlowMoves> {
        let mut moves = self.moves.clone()?;
        if moves.visits <= self.visit.number {
            moves.visits = 0;
        }
        let settled = FlowMoves { origin: F::ID.to_owned(), ..FlowMoves::default() };
        (moves != settled).then_some(moves)
    }

    /// The highest number that a visit of the session has had.
    pub(super) fn last_visit(&self) -> u64 {
        self.visit.number.max(self.moves.as_ref().map_or(0, |moves| moves.visits))
    }

    /// Finds where a transition leads if it leaves the flow, and makes that flow ready.
    pub(super) async fn find_way(
        &mut self,
        transition: &Transition,
    ) -> Result<Option<Moving>, Failure> {
        match transition {
            Transition::HandOff(to) => Ok(Some(self.find_target(to).await?)),
            Transition::End(_) => {
                let parked = self.moves.as_ref().and_then(|moves| moves.parked.clone());
                let Some(parked) = parked else { return Ok(None) };
                Ok(Some(self.find_parked(*parked).await?))
            }
            _ => Ok(None),
        }
    }

    async fn find_target(&self, to: &HandOff) -> Result<Moving, Error> {
        let session = || self.session().to_string();
        let doc = self.ledger().doc();
        if let Some(parent) = doc.parent.as_ref().filter(|parent| parent.relation.is_child()) {
            let relation = parent.relation.as_str();
            let flow = F::ID.to_owned();
            return Err(TurnError::ChildHandOff { flow, session: session(), relation }.into());
        }
        self.check_trail(to.flow())?;
        let flow = self.core.flows.get(to.flow()).cloned();
        let flow = flow.ok_or_else(|| TurnError::HandOffTarget {
            flow: F::ID.to_owned(),
            session: session(),
            to: to.flow().to_owned(),
            known: self.core.known_flows(),
        })?;
        let unfit = |path: &str, reason: &str| TurnError::HandOffState {
            session: session(),
            to: to.flow().to_owned(),
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        let state = to.state().map_err(|reason| unfit(".", reason))?.cloned();
        let request = TurnRequest { state, ..self.request() };
        let ready = flow.prepare(self.core.clone(), request, self.scope.turn.clone()).await?;
        let doc =
            ready.document(doc.revision, self.core.clock.now()).map_err(|error| match error {
                Unfit::State { path, reason } => unfit(&path, &reason).into(),
                Unfit::Other(error) => error,
            })?;
        Ok(Moving { ready, doc, way: Way::HandOff })
    }

    async fn find_parked(&self, parked: SessionDoc) -> Result<Moving, Error> {
        let flow = self.core.find(&parked.flow.id)?;
        if parked.version > flow.version() {
            return Err(StoreError::FromFuture {
                session: self.session().clone(),
                what: "document version",
                found: parked.version,
                supported: flow.version(),
            }
            .into());
        }
        let (request, turn) = (self.request(), self.scope.turn.clone());
        let ready = flow.prepare(self.core.clone(), request, turn).await?;
        Ok(Moving { ready, doc: parked, way: Way::Back })
    }

    /// What another flow is told of the turn before it has its document.
    fn request(&self) -> TurnRequest {
        TurnRequest {
            message: self.scope.message.clone(),
            turn_id: self.turn_id.clone(),
            context: self.passed.clone(),
            ..TurnRequest::new(self.session().clone())
        }
    }

    /// Stops hand-offs that go round without the user.
    fn check_trail(&self, to: &str) -> Result<(), TurnError> {
        let trail = self.moves.as_ref().map_or(&[][..], |moves| &moves.trail);
        let been = || trail.iter().map(String::as_str).chain([F::ID]);
        let session = || self.session().to_string();
        let shown = || been().chain([to]).collect::<Vec<_>>().join(" > ");
        let limits = &self.core.limits;
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        if count(been().filter(|flow| *flow == to).count()) >= limits.flow_visits {
            let (to, limit) = (to.to_owned(), limits.flow_visits);
            return Err(TurnError::HandOffLoop { session: session(), to, limit, trail: shown() });
        }
        if count(trail.len()) >= limits.handoffs {
            let limit = limits.handoffs;
            return Err(TurnError::HandOffBudget { session: session(), limit, trail: shown() });
        }
        Ok(())
    }

    /// Puts the document aside and the one of the other flow in its place, in one commit, and
    /// goes on there under the same lease.
    pub(super) async fn leave_flow(mut self: Box<Self>, moving: Moving) -> Result<Worked, Error> {
        let Moving { ready, doc: next, way } = moving;
        let now = self.core.clock.now();
        let (delta, archive) = self.build_delta(now, self.core.session_ttl)?;
        let doc = self.ledger().doc();
        let mut left = SessionDoc::clone(&doc);
        delta.apply(&mut left);
        let base = doc.revision;
        drop(doc);
        let reason = match &self.pause {
            Some(Outcome::HandedOff { to }) => handed_off(to),
            Some(Outcome::Ended { reason }) => reason.clone(),
            _ => String::new(),
        };
        let moves = left.moves.take();
        let last_visit = left.visit.number.max(moves.as_ref().map_or(0, |moves| moves.visits));
        let mut moves =
            moves.unwrap_or_else(|| FlowMoves { origin: F::ID.to_owned(), ..FlowMoves::default() });
        let count = left.superseded + 1;
        let kept_as = left.id.superseded(count);
        let to = next.flow.id.clone();
        let heard = self.scope.last_message.clone();
        let heard = heard.filter(|_| self.scope.last_message != self.scope.message);
        let next = match way {
            Way::HandOff => {
                moves.trail.push(F::ID.to_owned());
                moves.visits = 0;
                SessionDoc {
                    visit: Visit {
                        number: last_visit + 1,
                        message: self.scope.message.clone(),
                        heard,
                        turn: self.turn_id.clone(),
                        ..Visit::default()
                    },
                    parent: Some(Parent {
                        session: kept_as.clone(),
                        flow: F::ID.to_owned(),
                        relation: Relation::HandOff,
                        depth: left.parent.as_ref().map_or(0, |parent| parent.depth) + 1,
                    }),
                    ..next
                }
            }
            Way::Back => {
                moves.visits = last_visit;
                moves.returned = asks(&next);
                moves.parked = next.moves.and_then(|moves| moves.parked);
                SessionDoc {
                    visit: Visit { turn: self.turn_id.clone(), ..next.visit },
                    status: Status::Running,
                    wake_at: None,
                    moves: None,
                    ..next
                }
            }
        };
        let next = SessionDoc {
            revision: base,
            superseded: count,
            moves: Some(moves),
            expires_at: left.expires_at,
            updated_at: now,
            ..conversation(&left, next)
        };
        let left = SessionDoc {
            id: kept_as,
            revision: base + 1,
            status: Status::Completed,
            ended: Some(reason),
            waiting: None,
            wake_at: None,
            lease: Lease::default(),
            ..left
        };
        // No step runs any more that could hold it.
        let ledger = self.scope.ledger.take().and_then(Arc::into_inner);
        let mut ledger = ledger.expect("a turn has a ledger");
        ledger.supersede(left, next);
        ledger.commit(Delta::default(), &archive, false).await?;
        let arrives = match way {
            Way::HandOff => Arrives::Entered,
            Way::Back => {
                let from = F::ID.to_owned();
                self.scope.events.emit(|| Event::DigressionEnd { from, to });
                Arrives::Back
            }
        };
        let carried =
            Carried { replies: self.replies, notes: self.scope.notes, crossings: self.crossings };
        let entry = Entry { arrives, says: false, carried };
        Ok(Worked::Moved(Box::new(Moved { ready, ledger, entry })))
    }

    /// Begins the flow's part of a turn, in which the user says something or not. Returns
    /// whether the user is to be asked again what was asked before the flow was parked.
    pub(super) fn arrive_by(&mut self, speaks: bool) -> bool {
        let Some(moves) = &mut self.moves else { return false };
        if speaks {
            moves.trail.clear();
        }
        std::mem::take(&mut moves.returned) && !speaks
    }

    /// Asks the user again what was asked before the flow was parked. No step runs.
    pub(super) async fn ask_again(mut self: Box<Self>) -> Result<Worked, Error> {
        let waiting = self.ledger().doc().waiting.clone();
        let (question, interrupts) = match waiting {
            Some(Waiting::Interrupts { pending }) => {
                (pending.first().map(Interrupt::question), pending)
            }
            Some(Waiting::Message { question }) => (question, Vec::new()),
            _ => (None, Vec::new()),
        };
        if let Some(question) = question.clone() {
            self.scope.effects.push(Effect::Ask(question));
            self.flush_aside();
        }
        if interrupts.is_empty() {
            self.pause = Some(Outcome::Waiting { question });
        } else {
            self.suspend(interrupts);
        }
        // The step has not run in this build of the flow.
        self.digest = self.ledger().doc().flow.digest.as_str().into();
        self.close().await
    }
}

/// A document with what belongs to the conversation, whichever flow has it.
fn conversation(of: &SessionDoc, doc: SessionDoc) -> SessionDoc {
    SessionDoc {
        id: of.id.clone(),
        memory: of.memory.clone(),
        context: of.context.clone(),
        turns: of.turns.clone(),
        usage: of.usage,
        next_message: of.next_message,
        archive: of.archive.clone(),
        owner: of.owner.clone(),
        labels: of.labels.clone(),
        lease: of.lease.clone(),
        created_at: of.created_at,
        ..doc
    }
}

/// A document without what belongs to the conversation.
fn parked(doc: &SessionDoc) -> SessionDoc {
    SessionDoc {
        memory: Default::default(),
        context: Map::default(),
        turns: Vec::new(),
        usage: TokenUsage::default(),
        next_message: 0,
        archive: ArchiveMark::default(),
        owner: None,
        labels: Default::default(),
        lease: Lease::default(),
        expires_at: None,
        ..doc.clone()
    }
}

/// Whether a document waits for the user alone.
fn asks(doc: &SessionDoc) -> bool {
    match &doc.waiting {
        Some(Waiting::Message { .. }) => true,
        Some(Waiting::Interrupts { pending }) => pending.iter().all(Interrupt::is_message),
        _ => false,
    }
}

/// Parks the document of a session and puts the one of another flow in its place, in one
/// commit. The message of the request goes there.
pub(super) async fn digress(
    core: &Arc<Core>,
    mut ledger: Ledger,
    (to, request, turn): (HandOff, TurnRequest, Arc<str>),
    context: Map<String, Value>,
    events: &EventSink,
) -> Result<Worked, Error> {
    let doc = ledger.doc();
    let refused = |reason: String| TurnError::DigressionRefused {
        flow: doc.flow.id.clone(),
        session: doc.id.to_string(),
        to: to.flow().to_owned(),
        reason,
    };
    check_parkable(core, &doc, &to, refused)?;
    let flow = core.flows.get(to.flow()).cloned().ok_or_else(|| {
        refused(format!("it is not registered; known flows: {}", core.known_flows()))
    })?;
    let state = to.state().map_err(|reason| refused(reason.to_owned()))?.cloned();
    let (turn_id, message) = (request.turn_id.clone(), request.message.clone());
    let ready = flow.prepare(core.clone(), TurnRequest { state, ..request }, turn).await?;
    let now = core.clock.now();
    let next = ready.document(doc.revision, now).map_err(|error| match error {
        Unfit::State { path, reason } => {
            refused(format!("its state cannot be read: `{path}`: {reason}")).into()
        }
        Unfit::Other(error) => error,
    })?;
    let origin = doc.moves.as_ref().map_or(&doc.flow.id, |moves| &moves.origin);
    let trail = doc.moves.as_ref().map_or(&[][..], |moves| &moves.trail);
    let moves = FlowMoves {
        origin: origin.clone(),
        // What the user says is new input.
        trail: if message.is_some() { Vec::new() } else { trail.to_vec() },
        parked: Some(Box::new(parked(&doc))),
        ..FlowMoves::default()
    };
    let mut next = SessionDoc {
        context,
        visit: Visit {
            number: doc.last_visit() + 1,
            message: message.clone(),
            turn: turn_id,
            ..Visit::default()
        },
        superseded: doc.superseded,
        parent: Some(Parent {
            session: doc.id.clone(),
            flow: doc.flow.id.clone(),
            relation: Relation::Digression,
            depth: doc.parent.as_ref().map_or(0, |parent| parent.depth) + 1,
        }),
        moves: Some(moves),
        expires_at: core.session_ttl.map(|ttl| now.after(ttl)),
        ..conversation(&doc, SessionDoc { context: Map::new(), ..next })
    };
    if let Some(message) = message {
        let message = Message::text(next.next_message, Role::User, message, now);
        next.memory.entry(ready.namespace().to_owned()).or_default().messages.push(message);
        next.next_message += 1;
    }
    let (from, to) = (doc.flow.id.clone(), next.flow.id.clone());
    drop(doc);
    ledger.replace(next);
    ledger.commit(Delta::default(), &[], false).await?;
    events.emit(|| Event::DigressionStart { from, to });
    let entry = Entry { arrives: Arrives::Entered, says: false, carried: Carried::default() };
    Ok(Worked::Moved(Box::new(Moved { ready, ledger, entry })))
}

/// Checks that a session may be parked for another flow.
fn check_parkable(
    core: &Core,
    doc: &SessionDoc,
    to: &HandOff,
    refused: impl Fn(String) -> TurnError,
) -> Result<(), TurnError> {
    if let Some(parent) = doc.parent.as_ref().filter(|parent| parent.relation.is_child()) {
        let relation = parent.relation.as_str();
        return Err(refused(format!("it is the session of an action ({relation})")));
    }
    match &doc.waiting {
        Some(Waiting::Escalation { .. }) => {
            return Err(refused("a person takes over; release the session first".to_owned()));
        }
        Some(Waiting::Interrupts { pending }) if !asks(doc) => {
            let titles: Vec<&str> = pending.iter().map(|i| i.display.title.as_str()).collect();
            let titles = titles.join(", ");
            return Err(refused(format!("it waits for answers that have to find it: {titles}")));
        }
        _ => {}
    }
    let above: Vec<&SessionDoc> = doc.moves.iter().flat_map(FlowMoves::parked).collect();
    let limit = core.limits.digressions;
    if u32::try_from(above.len()).unwrap_or(u32::MAX) >= limit {
        let flows = above.iter().rev().chain([&doc]).map(|doc| doc.flow.id.as_str());
        return Err(TurnError::DigressionDepth {
            session: doc.id.to_string(),
            to: to.flow().to_owned(),
            limit,
            trail: flows.collect::<Vec<_>>().join(" > "),
        });
    }
    Ok(())
}

/// Finds the flow in which a session is that a host looks for in the one in which it began.
pub(super) async fn follow(
    core: &Core,
    session: &SessionId,
    named: &str,
    refusal: StoreError,
) -> Result<Arc<dyn super::build::Registered>, Error> {
    let doc = core.store.load(session).await?;
    match doc.filter(|doc| doc.moves.as_ref().is_some_and(|moves| moves.origin == named)) {
        Some(doc) => core.find(&doc.flow.id),
        None => Err(refusal.into()),
    }
}
