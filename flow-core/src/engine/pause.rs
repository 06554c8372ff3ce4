//! Turns that wait: for what a step has asked for, or for a person.

use super::call::escalation;
use super::moves::Worked;
use super::run::Run;
use crate::error::{Error, Result, TurnError};
use crate::event::{Event, Rendered};
use crate::flow::Flow;
use crate::outcome::Outcome;
use crate::session::Interrupt;
use crate::step::{Effect, StepCx};

impl<F: Flow> Run<F> {
    /// Keeps the message of a session that waits for a person, answers it, and runs nothing.
    pub(super) async fn park(
        mut self: Box<Self>,
        reason: String,
        answers: bool,
    ) -> Result<Worked, Error> {
        if answers {
            let flow = self.flow.clone();
            let mut cx = StepCx::new(&*flow, &mut self.state, &mut self.scope);
            let answer = flow.on_message_while_escalated(&reason, &mut cx).await;
            self.answer_aside("on_message_while_escalated", answer)?;
        }
        self.pause = Some(Outcome::Escalated { reason });
        self.close().await
    }

    /// Says what a hook answers while no step runs.
    fn answer_aside(
        &mut self,
        hook: &'static str,
        answer: Result<Option<String>>,
    ) -> Result<(), Error> {
        let answer = answer.map_err(|error| TurnError::Hook {
            flow: F::ID.to_owned(),
            session: self.scope.session.to_string(),
            hook,
            error,
        })?;
        if let Some(text) = answer {
            self.scope.effects.push(Effect::Say { text, rendered: Rendered::Engine });
        }
        self.flush_aside();
        Ok(())
    }

    /// Does to the conversation what was asked for while no step runs: what a run of the step
    /// has said stays said.
    pub(super) fn flush_aside(&mut self) {
        let said = std::mem::take(&mut self.scope.said);
        self.flush_effects();
        self.scope.said = said;
    }

    /// Answers the user while a step waits, and runs nothing.
    pub(super) async fn hold(
        mut self: Box<Self>,
        interrupts: Vec<Interrupt>,
        answers: bool,
    ) -> Result<Worked, Error> {
        if answers {
            let flow = self.flow.clone();
            let mut cx = StepCx::new(&*flow, &mut self.state, &mut self.scope);
            let answer = flow.on_message_while_waiting(&interrupts, &mut cx).await;
            self.answer_aside("on_message_while_waiting", answer)?;
        }
        self.suspend(interrupts);
        // The step has not run in this build of the flow.
        self.digest = self.ledger().doc().flow.digest.as_str().into();
        self.close().await
    }

    /// Pauses the turn until what the step waits for has come. A step that waits for the
    /// user's message alone waits as any other step that has asked.
    pub(super) fn suspend(&mut self, interrupts: Vec<Interrupt>) {
        self.interrupts.clone_from(&interrupts);
        self.scope.journal.await_calls();
        if let Some(reason) = escalation(&interrupts) {
            self.pause = Some(Outcome::Escalated { reason });
            return;
        }
        let asks = interrupts.first().filter(|_| interrupts.iter().all(Interrupt::is_message));
        self.pause = Some(match asks {
            Some(asks) => {
                let mut question = asks.question();
                question.fields = self.scope.journal.asked_fields(&asks.request_id);
                let question = Some(question).filter(|asked| !asked.text.is_empty());
                Outcome::Waiting { question }
            }
            None => {
                self.scope.events.emit(|| Event::Paused { interrupts: interrupts.clone() });
                Outcome::Suspended { interrupts }
            }
        });
    }
}
