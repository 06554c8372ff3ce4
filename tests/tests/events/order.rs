//! The order of events that [`flow_core::event`] promises, checked for any turn.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow_core::event::Event;
use flow_core::outcome::Outcome;

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
            "step-exit" => require(
                matches!(event.name(), "flow-transition" | "handoff" | "flow-end" | "error"),
                "a step was left, and it is not told for what",
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
            Event::StepEnter { step, visit, .. } => {
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
            }
            Event::StepExit { step, .. } => {
                self.inside(step)?;
                require(self.open.is_empty(), "a call has no result")?;
                self.step = None;
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
                require(self.step.is_some(), "no step is entered")?;
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
                let step = self.step.as_deref();
                let own = interrupts.iter().all(|interrupt| Some(&*interrupt.step) == step);
                require(own, "another step waits")?;
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

    /// Checks that the step is the one that is entered.
    fn inside(&self, step: &Arc<str>) -> Result<(), String> {
        require(self.step.as_ref() == Some(step), "another step is entered")
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
            Outcome::Waiting { question: Some(question) } => {
                matches!(before, Some(Event::Question(told)) if told == question)
            }
            _ => !matches!(before, Some(Event::Paused { .. } | Event::FlowEnd { .. })),
        };
        require(told, "it ends otherwise than was told")
    }
}
