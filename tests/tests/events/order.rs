//! The order of events that [`flow_core::event`] promises, checked for any turn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flow_core::event::Event;
use flow_core::outcome::Outcome;
use flow_core::session::GateVerdict;

/// Checks that the events of one turn are in the documented order.
pub(crate) fn check(events: &[Event]) -> Result<(), String> {
    for event in events {
        let written = serde_json::to_value(event).unwrap();
        if written["type"] != event.name() {
            return Err(format!("`{}` is written as {}", event.name(), written["type"]));
        }
        if serde_json::from_value::<Event>(written).ok().as_ref() != Some(event) {
            return Err(format!("`{}` is not read as it was written", event.name()));
        }
    }
    let mut turn = Turn::default();
    let mut before: Option<&Event> = None;
    for (place, event) in events.iter().enumerate() {
        let checked = turn.next(before, event);
        checked.map_err(|reason| format!("event {place}, `{}`: {reason}", event.name()))?;
        before = Some(event);
    }
    if turn.over { Ok(()) } else { Err("the turn has no end".to_owned()) }
}

/// How far a turn has come.
#[derive(Default)]
struct Turn {
    started: bool,
    /// Whether it is known what session it is.
    known: bool,
    /// The step that is entered and not left.
    step: Option<Arc<str>>,
    /// The step of a restored session that may still be to be entered.
    restored: Option<Arc<str>>,
    /// The step to which the flow goes.
    target: Option<Arc<str>>,
    visit: u64,
    /// The steps within an action that are entered and not left, by their levels. Some of one level
    /// run side by side.
    within: BTreeMap<u32, Vec<Arc<str>>>,
    /// The called flows that run, each with where its caller stands.
    called: Vec<(Event, Turn)>,
    /// Whether this is a called flow, of which it is not known yet where it stands.
    joins: bool,
    /// How many items of the latest batch are over, and how many there are.
    batch: (usize, usize),
    /// What the gates have said of this run.
    verdicts: Vec<GateVerdict>,
    /// The step whose model speaks.
    speaking: Option<Arc<str>>,
    /// The calls so far, and those without a result.
    calls: BTreeSet<String>,
    open: BTreeSet<String>,
    /// Whether calls of an earlier turn may get their results.
    takes_up: bool,
    handed: Option<String>,
    /// Whether a flow has come back, whose step is not known yet.
    back: bool,
    over: bool,
}

fn require(holds: bool, reason: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(reason.to_owned()) }
}

impl Turn {
    fn next(&mut self, before: Option<&Event>, event: &Event) -> Result<(), String> {
        require(!self.over, "something comes behind `turn-end`")?;
        let last = before.map_or("", Event::name);
        // What is followed by nothing else.
        match last {
            "error" => require(event.name() == "turn-end", "`error` is not followed by the end")?,
            "paused" => {
                require(matches!(event.name(), "turn-end" | "error"), "the turn was to end")?;
            }
            "flow-end" => {
                let next = if self.handed.is_some() { "flow-enter" } else { "digression-end" };
                let ends = self.handed.is_none() && event.name() == "turn-end";
                let fits = ends || event.name() == next || event.name() == "error";
                require(fits, "another flow was to go on, or the turn to end")?;
            }
            "digression-start" => require(event.name() == "flow-enter", "the other flow begins")?,
            "step-exit" if self.step.is_none() => {
                let way = matches!(event.name(), "flow-transition" | "handoff" | "flow-end");
                // What has become of a called flow its caller knows.
                let over = event.name() == "call-exit" && !self.called.is_empty();
                let told = way || over || event.name() == "error";
                require(told, "a step was left, and it is not told for what")?;
            }
            "gate-verdict" => require(
                matches!(event.name(), "gate-verdict" | "step-exit" | "feedback" | "turn-end")
                    || matches!(event.name(), "error" | "call-exit"),
                "the run was to end or to be held",
            )?,
            "handoff" => require(event.name() == "flow-end", "a hand-off ends the flow")?,
            "session-created" => require(event.name() == "flow-enter", "a new session begins")?,
            "session-superseded" => require(event.name() == "session-created", "another begins")?,
            _ => {}
        }
        match event.name() {
            "handoff" => require(last == "step-exit", "the step was not left")?,
            "flow-end" => {
                require(matches!(last, "step-exit" | "handoff"), "the step was not left")?;
            }
            _ => {}
        }
        let is_frame = matches!(event.name(), "turn-start" | "error" | "turn-end");
        let is_session = event.name().starts_with("session-") || event.name() == "flow-enter";
        require(self.started || is_frame, "the turn has not begun")?;
        require(self.known || is_frame || is_session, "it is not told what session it is")?;
        match event {
            Event::TurnStart { .. } => {
                require(last.is_empty(), "it is not the first")?;
                self.started = true;
            }
            Event::SessionMigrated { .. } => require(last == "turn-start", "it comes first")?,
            Event::SessionSuperseded { .. } => {
                require(matches!(last, "turn-start" | "session-migrated"), "it comes first")?;
            }
            Event::SessionCreated { .. } => {
                require(matches!(last, "turn-start" | "session-superseded"), "it comes first")?;
            }
            Event::FlowEnter { .. } => {
                let moved = last == "digression-start" || self.handed.take().is_some();
                require(last == "session-created" || moved, "no flow begins here")?;
                self.known = true;
                (self.step, self.restored) = (None, None);
                self.verdicts.clear();
            }
            Event::SessionRestored { step, .. } => {
                require(matches!(last, "turn-start" | "session-migrated"), "it comes first")?;
                self.known = true;
                self.restored = Some(step.clone());
                self.step = Some(step.clone());
            }
            Event::Resumed { .. } => {
                require(last == "session-restored", "what was waited for comes first")?;
                self.takes_up = true;
            }
            Event::StepEnter { step, visit, level: level @ 1.. } => {
                self.join(None);
                // The session stands there.
                self.restored = None;
                let around = match level {
                    1 => self.step.is_some() || self.joins,
                    level => self.within.get(&(level - 1)).is_some_and(|steps| !steps.is_empty()),
                };
                require(around, "no step runs around it")?;
                require(*visit >= self.visit, "it is of another visit")?;
                self.within.entry(*level).or_default().push(step.clone());
            }
            Event::StepExit { step, level: level @ 1.. } => {
                let entered = self.within.entry(*level).or_default();
                let place = entered.iter().position(|entered| entered == step);
                entered.remove(place.ok_or("the step is not entered")?);
                if entered.is_empty() {
                    // Those that have failed are not left.
                    self.within.retain(|deeper, _| deeper < level);
                }
            }
            Event::StepEnter { step, visit, .. } => {
                if self.joins || last == "call-enter" {
                    self.joins = false;
                    (self.step, self.visit) = (Some(step.clone()), *visit);
                    return Ok(());
                }
                match (self.target.take(), self.restored.take()) {
                    (Some(target), _) => {
                        require(target == *step, "the flow goes to another step")?;
                    }
                    (None, Some(restored)) => {
                        require(restored == *step, "the session stands at another step")?;
                    }
                    (None, None) => require(last == "flow-enter", "no step was left")?,
                }
                require(*visit > self.visit, "visits are counted up")?;
                self.visit = *visit;
                self.step = Some(step.clone());
                self.verdicts.clear();
            }
            Event::StepExit { step, .. } => {
                self.inside(step)?;
                require(self.open.is_empty(), "a call has no result")?;
                self.step = None;
                self.within.clear();
            }
            Event::FlowTransition { from, to } => {
                let left = matches!(before, Some(Event::StepExit { step, .. }) if step == from);
                require(left, "the step was not left")?;
                self.target = Some(to.clone());
            }
            Event::TextStart { step } => {
                self.inside(step)?;
                self.speaking = Some(step.clone());
            }
            Event::TextDelta { step, .. } => {
                require(self.speaking.as_ref() == Some(step), "no text was begun")?;
            }
            Event::TextEnd { step, .. } => {
                require(self.speaking.take().as_ref() == Some(step), "no text was begun")?;
            }
            Event::Message { step, .. } if std::mem::take(&mut self.back) => {
                self.step = Some(step.clone());
            }
            Event::Message { step, .. }
            | Event::Feedback { step, .. }
            | Event::Note { step, .. }
            | Event::CollectUpdate { step, .. } => self.inside(step)?,
            Event::Question(question) => {
                let said =
                    matches!(before, Some(Event::Message { text, .. }) if *text == question.text);
                require(said, "the question was not said")?;
            }
            Event::ToolCall { id, .. } => {
                require(self.step.is_some() || self.joins, "no step is entered")?;
                require(self.calls.insert(id.clone()), "the call was told before")?;
                self.open.insert(id.clone());
            }
            Event::ToolResult { id, .. } => {
                let known = self.open.remove(id);
                let waited = self.takes_up && !self.calls.contains(id);
                require(known || waited, "there is no such call, or it has a result")?;
            }
            Event::Paused { interrupts } => {
                require(!interrupts.is_empty(), "nothing is waited for")?;
                let own = interrupts.iter().all(|interrupt| {
                    // Of a called flow it is told what it has waited for since long ago.
                    !interrupt.path.is_empty() || self.is_entered(&interrupt.step)
                });
                require(own, "another step waits")?;
            }
            Event::Effect { .. } => {
                require(self.step.is_some() || self.joins, "no step is entered")?;
            }
            Event::BatchProgress { step, total, done, failed, running, .. } => {
                self.inside(step)?;
                let (before, all) = self.batch;
                require(before == all || (*done > before && *total == all), "it goes back")?;
                require(done + running <= *total && failed <= done, "that cannot be")?;
                self.batch = (*done, *total);
            }
            Event::CallEnter { depth, .. } => {
                require(self.step.is_some() || self.joins, "no step is entered")?;
                require(*depth as usize == self.called.len() + 1, "it is as deep as it is")?;
                let called = std::mem::take(&mut self.called);
                let calls = self.calls.clone();
                let inner =
                    Self { started: true, known: true, joins: true, calls, ..Self::default() };
                let caller = std::mem::replace(self, inner);
                self.called = called;
                self.called.push((event.clone(), caller));
            }
            Event::CallExit { flow, session, depth } => {
                let (enter, caller) = self.called.pop().ok_or("nothing is called")?;
                let called = Event::CallEnter {
                    flow: flow.clone(),
                    session: session.clone(),
                    depth: *depth,
                };
                require(enter == called, "another flow was called last")?;
                let called = std::mem::take(&mut self.called);
                let calls = std::mem::take(&mut self.calls);
                *self = Self { called, calls, ..caller };
            }
            Event::GateVerdict(verdict) => {
                require(self.step.is_some() || self.joins, "no step is entered")?;
                let asked = self.verdicts.iter().any(|other| other.gate == verdict.gate);
                require(!asked, "the gate was asked before")?;
                self.verdicts.push(verdict.clone());
            }
            Event::FlowEnd { gates, .. } => {
                require(*gates == self.verdicts, "the gates have said something else")?;
                self.verdicts.clear();
            }
            Event::Handoff { to } => self.handed = Some(to.clone()),
            Event::DigressionStart { .. } => {
                require(matches!(last, "session-restored" | "flow-enter"), "it comes first")?;
            }
            Event::DigressionEnd { .. } => {
                require(last == "flow-end", "no flow has ended")?;
                self.back = true;
            }
            Event::TurnEnd { outcome } => {
                self.end(before, outcome)?;
                self.over = true;
            }
            // A step's own events, costs, memory, and errors, which may come at any time.
            _ => {}
        }
        Ok(())
    }

    /// Whether a step is entered, or the session stands there, or it runs within that one.
    fn is_entered(&self, step: &str) -> bool {
        let within = self.within.values().flatten().any(|entered| **entered == *step);
        within || self.step.as_deref() == Some(step)
    }

    /// Takes the first step of which a called flow tells as the one where it stands.
    fn join(&mut self, step: Option<&Arc<str>>) {
        if let Some(step) = step.filter(|_| std::mem::take(&mut self.joins)) {
            self.step = Some(step.clone());
        }
    }

    /// Checks that the step is one that is entered.
    fn inside(&mut self, step: &Arc<str>) -> Result<(), String> {
        self.join(Some(step));
        require(self.is_entered(step), "another step is entered")
    }

    fn end(&self, before: Option<&Event>, outcome: &Outcome) -> Result<(), String> {
        if let Outcome::Failed { error } = outcome {
            let told = matches!(before, Some(Event::Error { code, message, retryable })
                if (code, message, *retryable) == (&error.code, &error.message, error.retryable));
            return require(told, "the error was not told");
        }
        require(self.started, "the turn has not begun")?;
        if !self.known {
            return require(
                matches!(before, Some(Event::TurnStart { .. })),
                "only a turn that is repeated ends like this",
            );
        }
        require(self.called.is_empty(), "a called flow is not left")?;
        require(self.open.is_empty(), "a call has no result")?;
        require(self.speaking.is_none(), "a text has no end")?;
        let told = match outcome {
            Outcome::Suspended { interrupts } => {
                matches!(before, Some(Event::Paused { interrupts: told }) if told == interrupts)
            }
            Outcome::Ended { reason } => {
                matches!(before, Some(Event::FlowEnd { reason: told, .. }) if told == reason)
            }
            Outcome::HandedOff { .. } => false,
            Outcome::Held { gates } => gates.iter().all(|gate| {
                self.verdicts.iter().any(|verdict| verdict.gate == *gate && !verdict.passed)
            }),
            Outcome::Waiting { question: Some(question) } => {
                matches!(before, Some(Event::Question(told)) if told == question)
            }
            _ => !matches!(before, Some(Event::Paused { .. } | Event::FlowEnd { .. })),
        };
        require(told, "it ends otherwise than was told")
    }
}
