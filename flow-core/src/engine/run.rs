//! The steps of one turn: dispatch, verify, act, commit, repeat until a pause.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Map, Value};
use tracing::Instrument as _;

use super::commit::Changes;
use super::failure::Failure;
use super::gates::Gatekeepers;
use super::moves::{Moving, Worked, handed_off};
use super::{Core, Durability, TurnOutcome};
use crate::error::{Error, Result, StepError, TurnError};
use crate::event::Event;
use crate::flow::gate::Ending;
use crate::flow::{Drive, Flow, Steps};
use crate::id::SessionId;
use crate::ledger::Ledger;
use crate::outcome::Outcome;
use crate::session::{
    FlowMoves, GateVerdict, Interrupt, MAIN_MEMORY, PathEntry, Question, Waiting,
};
use crate::step::recall;
use crate::step::{
    ActionCx, Arrival, DynStep, Kind, Ran, Scope, StepCx, arrive, dispatch, read, run_until_stuck,
};
use crate::transition::{Payload, Transition};

/// How many of the last steps an error about a runaway turn names.
const TRAIL: usize = 8;

/// A turn that runs.
pub(super) struct Run<F: Flow> {
    pub(super) core: Arc<Core>,
    pub(super) flow: Arc<F>,
    pub(super) steps: Steps<F>,
    pub(super) digest: Arc<str>,
    pub(super) state: F::State,
    /// The steps that this turn has touched, by their place in the registry.
    pub(super) live: Vec<Option<Box<dyn DynStep<F>>>>,
    pub(super) cursor: usize,
    pub(super) visit: VisitState,
    pub(super) scope: Scope,
    pub(super) changes: Changes,
    /// How often each edge was crossed since the user last said something.
    pub(super) edges: Vec<(usize, usize, u32)>,
    /// Nothing while the turn runs.
    pub(super) pause: Option<Outcome>,
    /// What the step waits for, once the turn has paused for it.
    pub(super) interrupts: Vec<Interrupt>,
    pub(super) question: Option<Question>,
    /// What the user was told, in the parts of the turn in other flows too.
    pub(super) replies: Vec<String>,
    pub(super) crossings: u32,
    /// How the conversation came to this flow.
    pub(super) moves: Option<FlowMoves>,
    /// Where it goes from here, made ready.
    pub(super) moving: Option<Moving>,
    /// What the caller has put into the context of this turn.
    pub(super) passed: Map<String, Value>,
    /// Whether the session begins with this turn.
    created: bool,
    /// Whether the current step is still to be told that it was taken up again.
    restored: bool,
    /// The caller's id of the turn.
    pub(super) turn_id: Option<String>,
    /// What an action began its run with.
    pub(super) before: Option<Before>,
    /// The gates of the flow.
    pub(super) gatekeepers: Arc<Gatekeepers<F>>,
    /// What they said when the flow came to an end; what they said last as long as no step runs.
    pub(super) verdicts: Vec<GateVerdict>,
    /// Whether they hold an action, which runs again in the next turn.
    pub(super) runs_again: bool,
}

/// What an action begins a run with, and begins it with again when it has waited.
pub(super) struct Before {
    state: Value,
    fields: Value,
    message: Option<String>,
    /// How many effects on the conversation the hooks of the step have left before the run.
    pub(super) hooks: u32,
    /// How many steps were entered since the last commit.
    path: usize,
}

/// The stay at the current step, with its payload as a value.
#[derive(Debug, Default)]
pub(super) struct VisitState {
    pub(super) number: u64,
    pub(super) entered: bool,
    pub(super) from: Option<String>,
    pub(super) input: Payload,
}

impl<F: Flow> Run<F> {
    pub(super) fn new(
        core: Arc<Core>,
        flow: F,
        steps: Steps<F>,
        digest: Arc<str>,
        cursor: usize,
        scope: Scope,
        created: bool,
    ) -> Result<Self, Error> {
        let mut run = Self {
            core,
            flow: Arc::new(flow),
            live: std::iter::repeat_with(|| None).take(steps.len()).collect(),
            steps,
            digest,
            state: F::State::default(),
            cursor,
            visit: VisitState::default(),
            scope,
            changes: Changes::default(),
            edges: Vec::new(),
            pause: None,
            interrupts: Vec::new(),
            question: None,
            replies: Vec::new(),
            crossings: 0,
            moves: None,
            moving: None,
            passed: Map::new(),
            created,
            restored: false,
            turn_id: None,
            before: None,
            gatekeepers: Arc::default(),
            verdicts: Vec::new(),
            runs_again: false,
        };
        let doc = run.ledger().doc();
        run.moves.clone_from(&doc.moves);
        let visit = doc.visit.clone();
        run.verdicts.clone_from(&doc.gates);
        // A session that another one begins is given its state.
        if !created || doc.parent.is_some() {
            let state = doc.state.clone();
            run.state = read(state).map_err(|misfit| run.unreadable("state", misfit))?;
        }
        run.visit = VisitState {
            number: visit.number,
            entered: visit.entered,
            from: visit.from,
            input: visit.input.map_or_else(Payload::default, Payload::new::<Value>),
        };
        Ok(run)
    }

    /// Counts crossings on from the last turn, since the user has said nothing new.
    pub(super) fn keep_edges(&mut self) {
        let doc = self.ledger().doc();
        let edges = doc.edges.iter().filter_map(|edge| {
            let from = self.steps.position(&edge.from)?;
            Some((from, self.steps.position(&edge.to)?, edge.count))
        });
        self.edges = edges.collect();
    }

    pub(super) fn flow(&self) -> &Arc<F> {
        &self.flow
    }

    pub(super) fn session(&self) -> &SessionId {
        &self.scope.session
    }

    pub(super) fn ledger(&self) -> &Ledger {
        // A turn has a ledger from its beginning; only steps outside of turns have none.
        self.scope.ledger.as_ref().expect("a turn has a ledger")
    }

    /// Why the session waits for a person, if it does.
    pub(super) fn escalation(&self) -> Option<String> {
        match &self.ledger().doc().waiting {
            Some(Waiting::Escalation { reason }) => Some(reason.clone()),
            _ => None,
        }
    }

    /// Gives the current step its memory and its model.
    pub(super) fn set_voice(&mut self) {
        let info = self.steps.at(self.cursor).info();
        self.scope.namespace = info.memory.unwrap_or(MAIN_MEMORY);
        let speaker = self.scope.speakers.get(self.cursor);
        self.scope.speaker = speaker.and_then(|(_, speaker)| speaker.clone());
    }

    /// Makes the last commit of the flow's part of the turn: the one that gives the lease
    /// back, or the one with which the conversation goes to another flow.
    pub(super) async fn close(mut self: Box<Self>) -> Result<Worked, Error> {
        let outcome = self.pause.clone().ok_or_else(|| TurnError::Hook {
            flow: F::ID.to_owned(),
            session: self.scope.session.to_string(),
            hook: "run",
            error: StepError::terminal(
                "it returned before the flow paused; call `turn.run_to_pause()`",
            ),
        })?;
        let leaves = matches!(outcome, Outcome::Ended { .. } | Outcome::HandedOff { .. });
        if let Some(moving) = self.moving.take().filter(|_| leaves) {
            return Box::pin(self.leave_flow(moving)).await;
        }
        let replies = std::mem::take(&mut self.replies);
        let now = self.core.clock.now();
        self.commit_end(&outcome, &replies, now, self.core.session_ttl).await?;
        let doc = self.ledger().doc();
        Ok(Worked::Over(Box::new(TurnOutcome {
            session: doc.id.clone(),
            turn: self.scope.turn.to_string(),
            flow: doc.flow.id.clone(),
            revision: doc.revision,
            step: doc.current_step.clone(),
            replies,
            outcome,
            gates: doc.gates.clone(),
            repeated: false,
        })))
    }

    /// Runs steps until a pause.
    async fn drive(&mut self) -> Result<(), Error> {
        self.wake(self.cursor)?;
        self.restored = self.visit.entered && !self.created;
        while self.pause.is_none() {
            self.verdicts.clear();
            let transition = match self.step_once().await {
                Ok(transition) => transition,
                Err(error) => self.handle_error(error).await?,
            };
            if let Err(error) = self.act(transition).await {
                match error {
                    Failure::Turn(error) => return Err(error),
                    Failure::Step(error) => {
                        let transition = self.handle_error(error).await?;
                        self.act(transition).await.map_err(|error| error.into_error(self))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Enters the current step if that is still to be done, and dispatches it.
    async fn step_once(&mut self) -> Result<Transition> {
        let name = self.scope.step.clone();
        let span = tracing::debug_span!("step", step = %name, visit = self.visit.number);
        async {
            self.scope.events.ready().await;
            if std::mem::take(&mut self.restored) {
                self.restore().await?;
            }
            if !self.visit.entered {
                let visit = self.visit.number;
                self.scope.events.emit(|| Event::StepEnter { step: name, visit, level: 0 });
                self.arrive().await?;
                self.visit.entered = true;
                self.record_path();
            }
            let is_batch = self.flow.is_batch(&self.scope.context);
            let runs_again = is_batch || self.steps.at(self.cursor).info().kind == Kind::Action;
            if runs_again {
                let begun = self.commit_begin().await;
                self.scope.unrecorded.fetch_or(begun.is_err(), Ordering::Relaxed);
                begun?;
            }
            self.before = if runs_again { Some(self.remember()?) } else { None };
            if is_batch {
                let flow = self.flow.clone();
                let journal = self.scope.journal.clone();
                let cx = StepCx::new(&*flow, &mut self.state, &mut self.scope);
                let mut cx = ActionCx::new(cx);
                return match run_until_stuck(&journal, flow.spawn_steps(&mut cx)).await? {
                    Ran::Over(transition) => Ok(transition),
                    Ran::Waits(interrupts) => {
                        self.scope.interrupts = interrupts;
                        Ok(Transition::Suspend)
                    }
                };
            }
            let (step, mut cx) = self.current()?;
            dispatch(step, &mut cx).await
        }
        .instrument(span)
        .await
    }

    /// What the action at the cursor begins its run with.
    fn remember(&self) -> Result<Before> {
        let fields = match &self.live[self.cursor] {
            Some(step) => step.save()?,
            None => Value::Null,
        };
        let state = serde_json::to_value(&self.state)?;
        let hooks = self.scope.effects.iter().filter(|effect| effect.is_counted()).count();
        let hooks = u32::try_from(hooks).unwrap_or(u32::MAX);
        let path = self.changes.path.len();
        Ok(Before { state, fields, message: self.scope.message.clone(), hooks, path })
    }

    /// Undoes what a run of the action at the cursor has done to its fields, to the shared
    /// state and to the message, since it runs again from its beginning.
    pub(super) fn put_back(&mut self) -> Result<(), Error> {
        let Some(Before { state, fields, message, path, hooks: _ }) = self.before.take() else {
            return Ok(());
        };
        // Its next run enters the same steps.
        self.changes.path.truncate(path);
        self.state = read(state).map_err(|misfit| self.unreadable("state", misfit))?;
        let entry = self.steps.at(self.cursor);
        let step = entry
            .load(fields)
            .map_err(|misfit| self.unreadable(&format!("steps.{}", entry.info().name), misfit))?;
        self.live[self.cursor] = Some(step);
        self.scope.message = message;
        Ok(())
    }

    /// Runs the entry hooks of the current step. When they fail, the payload is still there
    /// for the next attempt.
    async fn arrive(&mut self) -> Result<()> {
        let doc = self.ledger().doc();
        let nowhere = doc.path.is_empty() && self.changes.path.is_empty();
        let committed = doc.visit.number == self.visit.number;
        let spare = if committed { None } else { self.visit.input.to_json().ok().flatten() };
        let arrival = Arrival {
            from: self.visit.from.clone(),
            input: std::mem::take(&mut self.visit.input),
            start: nowhere && self.visit.from.is_none(),
        };
        let (step, mut cx) = self.current()?;
        let arrived = arrive(step, arrival, &mut cx).await;
        if arrived.is_err() {
            let committed = committed.then(|| self.ledger().doc().visit.input.clone()).flatten();
            let input = committed.or(spare);
            self.visit.input = input.map_or_else(Payload::default, Payload::new::<Value>);
        }
        arrived
    }

    /// The current step, and what it works with.
    fn current(&mut self) -> Result<(&mut dyn DynStep<F>, StepCx<'_, F>)> {
        let Some(step) = &mut self.live[self.cursor] else {
            return Err(StepError::terminal("the step is not loaded"));
        };
        let mut cx = StepCx::new(&*self.flow, &mut self.state, &mut self.scope);
        cx.ask_flow = Some(|flow, error, cx| Box::pin(flow.on_model_error(error, cx)));
        Ok((&mut **step, cx))
    }

    async fn restore(&mut self) -> Result<()> {
        let (step, mut cx) = self.current()?;
        step.restore(&mut cx).await
    }

    /// Does what a transition says.
    async fn act(&mut self, transition: Transition) -> Result<(), Failure> {
        // Before anything is said or left.
        self.moving = Box::pin(self.find_way(&transition)).await?;
        self.changes.path.append(&mut self.scope.entered);
        self.verdicts.clear();
        let suspends = matches!(transition, Transition::Suspend);
        if !suspends {
            self.scope.drop_round();
        }
        let said = self.flush_effects();
        // A reply step that has waited goes on; an action runs again from its beginning.
        self.scope.said = if suspends && self.before.is_some() { said } else { 0 };
        let name = self.scope.step.clone();
        match transition {
            Transition::Suspend => {
                self.put_back()?;
                let interrupts = std::mem::take(&mut self.scope.interrupts);
                self.suspend(interrupts);
            }
            Transition::Stay => {
                self.scope.journal.complete_run();
                self.pause = Some(Outcome::Waiting { question: self.question.take() });
            }
            Transition::End(reason) => {
                if self.is_held(Ending::End(&reason), said).await? {
                    return Ok(());
                }
                self.leave().await?;
                self.scope.journal.enter(self.visit.number, name.clone());
                let gates = self.verdicts.clone();
                self.scope.events.emit(|| Event::FlowEnd { reason: reason.clone(), gates });
                self.pause = Some(Outcome::Ended { reason });
            }
            Transition::HandOff(to) => {
                if self.is_held(Ending::HandOff(to.flow()), said).await? {
                    return Ok(());
                }
                self.leave().await?;
                self.scope.journal.enter(self.visit.number, name.clone());
                let to = to.flow().to_owned();
                self.scope.events.emit(|| Event::Handoff { to: to.clone() });
                let (reason, gates) = (handed_off(&to), self.verdicts.clone());
                self.scope.events.emit(|| Event::FlowEnd { reason, gates });
                self.pause = Some(Outcome::HandedOff { to });
            }
            Transition::Escalate(reason) => {
                self.is_held(Ending::Escalate(&reason), said).await?;
                self.scope.journal.complete_run();
                self.pause = Some(Outcome::Escalated { reason });
            }
            Transition::Go { step, input } => {
                let to = self.steps.position(&step).ok_or_else(|| TurnError::UnknownTarget {
                    flow: F::ID.to_owned(),
                    from: name.to_string(),
                    to: step.to_string(),
                    known: self.steps.names(),
                })?;
                if self.crossings >= self.core.limits.crossings {
                    return Err(Failure::Turn(self.runaway()));
                }
                self.crossings += 1;
                self.count_edge(to)?;
                self.leave().await?;
                let target = self.steps.at(to).info().name.clone();
                self.scope
                    .events
                    .emit(|| Event::FlowTransition { from: name.clone(), to: target.clone() });
                self.wake(to)?;
                self.visit = VisitState {
                    number: self.last_visit() + 1,
                    entered: false,
                    from: Some(name.to_string()),
                    input,
                };
                self.cursor = to;
                self.scope.step = target;
                self.set_voice();
                self.scope.visit = self.visit.number;
                self.scope.journal.enter(self.visit.number, self.scope.step.clone());
                self.scope.asked = 0;
                self.scope.asked_fields.clear();
                let strategy = self.steps.at(to).info().context;
                recall::enter(&mut self.scope, strategy).await;
                if self.core.durability != Durability::Turn {
                    let now = self.core.clock.now();
                    self.commit_crossing(now, self.core.session_ttl).await?;
                }
            }
        }
        Ok(())
    }

    /// Leaves the current step.
    async fn leave(&mut self) -> Result<(), Failure> {
        let (step, mut cx) = self.current().map_err(Failure::Step)?;
        step.exit(&mut cx).await.map_err(Failure::Step)?;
        self.flush_effects();
        let step = self.scope.step.clone();
        self.scope.events.emit(|| Event::StepExit { step, level: 0 });
        Ok(())
    }

    /// Loads a step, unless this turn has touched it already.
    fn wake(&mut self, place: usize) -> Result<(), Error> {
        if self.live[place].is_some() {
            return Ok(());
        }
        let entry = self.steps.at(place);
        let step = match self.ledger().doc().steps.get(&*entry.info().name) {
            Some(fields) => entry.load(fields.clone()).map_err(|misfit| {
                self.unreadable(&format!("steps.{}", entry.info().name), misfit)
            })?,
            None => entry.make(),
        };
        self.live[place] = Some(step);
        Ok(())
    }

    fn record_path(&mut self) {
        let entry =
            PathEntry { step: self.scope.step.to_string(), level: 0, at: self.core.clock.now() };
        self.changes.path.push(entry);
    }

    /// Counts a crossing of the edge from the current step, and stops at the limit.
    fn count_edge(&mut self, to: usize) -> Result<(), TurnError> {
        let limit = self.core.limits.edge_crossings;
        let from = self.cursor;
        let edge = self.edges.iter_mut().find(|(a, b, _)| (*a, *b) == (from, to));
        let count = match edge {
            Some((_, _, count)) => {
                *count += 1;
                *count
            }
            None => {
                self.edges.push((from, to, 1));
                1
            }
        };
        if count > limit {
            return Err(TurnError::Oscillation {
                flow: F::ID.to_owned(),
                session: self.scope.session.to_string(),
                from: self.scope.step.to_string(),
                to: self.steps.at(to).info().name.to_string(),
                limit,
            });
        }
        Ok(())
    }

    fn runaway(&self) -> Error {
        let doc = self.ledger().doc();
        let path = doc.path.iter().chain(&self.changes.path);
        let names: Vec<&str> = path.map(|entry| entry.step.as_str()).collect();
        let trail = names[names.len().saturating_sub(TRAIL)..].join(" > ");
        TurnError::CrossingBudget {
            flow: F::ID.to_owned(),
            session: self.scope.session.to_string(),
            limit: self.core.limits.crossings,
            trail,
        }
        .into()
    }
}

impl<F: Flow> Drive for Run<F> {
    fn current_step(&self) -> &str {
        &self.scope.step
    }

    fn run_to_pause(&mut self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>> {
        Box::pin(self.drive())
    }
}
