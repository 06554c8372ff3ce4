//! What becomes of a step that has failed.

use std::sync::atomic::Ordering;

use super::run::Run;
use crate::error::{EffectError, Error, SessionError, StepError, TurnError};
use crate::flow::Flow;
use crate::step::{Misfit, StepCx};
use crate::transition::Transition;

/// Why a transition was not made.
pub(super) enum Failure {
    /// The step's exit hook failed; the flow may handle it.
    Step(StepError),
    /// The turn cannot go on.
    Turn(Error),
}

impl Failure {
    pub(super) fn into_error<F: Flow>(self, run: &Run<F>) -> Error {
        match self {
            Self::Step(error) => run.step_error(error),
            Self::Turn(error) => error,
        }
    }
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Turn(error.into())
    }
}

impl<F: Flow> Run<F> {
    /// Lets the flow turn the error of a step into a transition.
    pub(super) async fn handle_error(&mut self, error: StepError) -> Result<Transition, Error> {
        // A failed commit is not the step's failure: no transition can be committed either.
        if self.scope.unrecorded.load(Ordering::Relaxed) {
            return Err(self.step_error(error));
        }
        self.scope.drop_undone();
        let flow = self.flow.clone();
        let mut cx = StepCx::new(&*flow, &mut self.state, &mut self.scope);
        match flow.on_error(&error, &mut cx).await {
            Ok(Some(transition)) => {
                tracing::warn!(step = %self.scope.step, error = %error, "step failed, the flow goes on");
                self.scope.journal.fail_run();
                Ok(transition)
            }
            Ok(None) => {
                self.keep_effects().await?;
                Err(self.step_error(error))
            }
            Err(error) => {
                self.keep_effects().await?;
                Err(TurnError::Hook {
                    flow: F::ID.to_owned(),
                    session: self.scope.session.to_string(),
                    hook: "on_error",
                    error,
                }
                .into())
            }
        }
    }

    pub(super) fn step_error(&self, error: StepError) -> Error {
        // What the engine itself has found keeps its type. The same types may come from
        // stores and engines that the step uses on its own.
        let unrecorded = self.scope.unrecorded.load(Ordering::Relaxed);
        match error.into_source::<Error>() {
            Ok(error @ (Error::Store(_) | Error::Session(_))) if unrecorded => error,
            Ok(Error::Effect(EffectError::Diverged(divergence)))
                if self.ledger().doc().flow.digest != *self.digest =>
            {
                let before = self.ledger().doc().flow.digest.clone();
                let after = self.digest.to_string();
                EffectError::Drifted { before, after, divergence }.into()
            }
            Ok(Error::Effect(error @ (EffectError::Diverged(_) | EffectError::InDoubt(_)))) => {
                error.into()
            }
            Ok(Error::Model(error)) => {
                let place = format!("step `{}`", self.scope.step);
                let error = Box::new(error);
                TurnError::Model { flow: F::ID.to_owned(), place, error }.into()
            }
            Ok(other) => self.failed_step(other.into()),
            Err(error) => self.failed_step(error),
        }
    }

    fn failed_step(&self, error: StepError) -> Error {
        TurnError::Step {
            flow: F::ID.to_owned(),
            step: self.scope.step.to_string(),
            session: self.scope.session.to_string(),
            error,
        }
        .into()
    }

    pub(super) fn unreadable(&self, part: &str, misfit: Misfit) -> Error {
        let doc = self.ledger().doc();
        let path = match misfit.path.as_str() {
            "." => part.to_owned(),
            path => format!("{part}.{path}"),
        };
        SessionError::Unreadable {
            session: doc.id.to_string(),
            version: doc.version,
            path,
            reason: misfit.reason,
        }
        .into()
    }
}
