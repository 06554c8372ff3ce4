//! Asks the gates of a flow when it comes to an end.

use std::collections::HashSet;

use tracing::Instrument as _;

use super::failure::Failure;
use super::run::Run;
use crate::error::{BuildError, Error, StepError, TurnError};
use crate::event::Event;
use crate::flow::gate::{Ending, FlowGate, GateKind, RunView};
use crate::flow::{Flow, Gates, Judge, Verdict};
use crate::id::check_name;
use crate::json;
use crate::model::ModelError;
use crate::outcome::Outcome;
use crate::panic::catch_panic;
use crate::session::{GateVerdict, SessionDoc};
use crate::step::{self, Effect, Models, Speaker};

/// The gates of a flow in a turn, each with the model of its judge.
pub(super) struct Gatekeepers<F: Flow> {
    gates: Gates<F>,
    judges: Vec<Option<Speaker>>,
}

impl<F: Flow> Default for Gatekeepers<F> {
    fn default() -> Self {
        Self { gates: Gates::default(), judges: Vec::new() }
    }
}

impl<F: Flow> Gatekeepers<F> {
    /// Finds the models of the judges of a flow.
    pub(super) fn find(models: &Models, flow: &F) -> Result<Self, Error> {
        let gates = check_gates(flow)?;
        let find = |gate: &FlowGate<F>| match &gate.kind {
            GateKind::Check(_) => Ok(None),
            GateKind::Judge(judge) => find_judge(models, flow, judge).map(Some).map_err(|error| {
                let place = format!("the gate `{}`", gate.name);
                let error = Box::new(error);
                TurnError::Model { flow: F::ID.to_owned(), place, error }
            }),
        };
        let judges = gates.as_slice().iter().map(find).collect::<Result<_, _>>()?;
        Ok(Self { gates, judges })
    }
}

/// The gates of a flow, once nothing is wrong with them.
pub(super) fn check_gates<F: Flow>(flow: &F) -> Result<Gates<F>, BuildError> {
    let id = || F::ID.to_owned();
    let gates = flow.define_gates(Gates::default());
    let mut names = HashSet::new();
    for gate in gates.as_slice() {
        let name = || gate.name.clone();
        check_name("gate name", &gate.name)
            .map_err(|error| BuildError::Name { flow: id(), error })?;
        if !names.insert(gate.name.as_str()) {
            return Err(BuildError::DuplicateGate { flow: id(), gate: name() });
        }
        let GateKind::Judge(judge) = &gate.kind else { continue };
        let reason = match judge.paths.iter().find(|path| !json::is_path(path)) {
            Some(path) => format!("{path:?} is not a path into the session document"),
            None if judge.paths.is_empty() => "it is shown nothing; call `Judge::show`".to_owned(),
            None if judge.rubric.trim().is_empty() => "its rubric is empty".to_owned(),
            None => continue,
        };
        return Err(BuildError::Gate { flow: id(), gate: name(), reason });
    }
    Ok(gates)
}

fn find_judge<F: Flow>(models: &Models, flow: &F, judge: &Judge) -> Result<Speaker, ModelError> {
    let config = match (judge.model.clone(), flow.config_model()) {
        (Some(own), Some(shared)) => own.over(&shared),
        (Some(config), None) | (None, Some(config)) => config,
        (None, None) => return Err(ModelError::Missing),
    };
    models.find(config)
}

impl<F: Flow> Run<F> {
    /// Asks the gates whether the run may end so. When it may not, and nobody takes over, the
    /// flow keeps its position; `said` is how much the step has said.
    pub(super) async fn is_held(&mut self, ending: Ending<'_>, said: u32) -> Result<bool, Failure> {
        self.ask_gates(ending).await?;
        let held = self.verdicts.iter().any(GateVerdict::holds);
        if !held || matches!(ending, Ending::Escalate(_)) {
            return Ok(false);
        }
        let names = self.verdicts.iter().filter(|verdict| verdict.holds());
        let gates = names.map(|verdict| verdict.gate.clone()).collect();
        self.runs_again = self.before.is_some();
        self.put_back()?;
        let feedback = self.verdicts.iter().filter(|verdict| verdict.holds()).map(explain);
        self.scope.effects.extend(feedback.map(Effect::Feedback));
        self.flush_effects();
        self.scope.said = if self.runs_again { said } else { 0 };
        self.pause = Some(Outcome::Held { gates });
        Ok(true)
    }

    async fn ask_gates(&mut self, ending: Ending<'_>) -> Result<(), Error> {
        let keepers = self.gatekeepers.clone();
        if keepers.gates.as_slice().is_empty() {
            return Ok(());
        }
        let doc = self.preview()?;
        for (gate, speaker) in keepers.gates.as_slice().iter().zip(&keepers.judges) {
            self.scope.events.ready().await;
            let span = tracing::debug_span!("gate", gate = %gate.name);
            let verdict = self.ask_gate(gate, speaker.as_ref(), &doc, ending).instrument(span);
            let verdict = gate.conclude(verdict.await);
            if !verdict.passed {
                let GateVerdict { gate, blocking, ran, .. } = &verdict;
                tracing::info!(gate, blocking, ran, "the run does not pass a gate");
            }
            self.scope.events.emit(|| Event::GateVerdict(verdict.clone()));
            self.verdicts.push(verdict);
        }
        Ok(())
    }

    async fn ask_gate(
        &mut self,
        gate: &FlowGate<F>,
        speaker: Option<&Speaker>,
        doc: &SessionDoc,
        ending: Ending<'_>,
    ) -> Result<Verdict, StepError> {
        let asked = match &gate.kind {
            GateKind::Check(check) => {
                let run = RunView::new(&*self.flow, &self.state, doc, ending);
                catch_panic(async { check(&run) }).await
            }
            GateKind::Judge(judge) => {
                let Judge { rubric, paths, .. } = &**judge;
                let speaker = speaker.ok_or_else(|| Error::from(ModelError::Missing))?;
                let value = serde_json::to_value(doc)?;
                let parts = paths.iter().map(|path| (&**path, json::find(&value, path).cloned()));
                let parts: Vec<_> = parts.collect();
                let judged =
                    catch_panic(step::judge(&mut self.scope, speaker, rubric, &parts)).await;
                judged.map(|judged| judged.map(|j| Verdict::of_judge(j.passed, j.reason)))
            }
        };
        asked.unwrap_or_else(|message| Err(StepError::terminal(format!("it panicked: {message}"))))
    }

    /// The document with what is not committed yet.
    fn preview(&self) -> Result<SessionDoc, Error> {
        let (delta, _) = self.build_delta(self.core.clock.now(), self.core.session_ttl)?;
        let mut doc = SessionDoc::clone(&self.ledger().doc());
        delta.apply(&mut doc);
        Ok(doc)
    }
}

/// What the user is told of a gate that holds the flow. What went wrong with one that could not
/// run is for the operator.
fn explain(verdict: &GateVerdict) -> String {
    let gate = &verdict.gate;
    match &verdict.reason {
        _ if !verdict.ran => format!("The check `{gate}` could not be made. Please try again."),
        Some(reason) => reason.clone(),
        None => format!("The check `{gate}` was not passed."),
    }
}
