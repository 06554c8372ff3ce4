//! A flow made ready for a turn, before its session is known.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value};

use super::build::{FlowSlot, check_steps};
use super::gates::Gatekeepers;
use super::restore::new_doc;
use super::{Core, TurnRequest};
use crate::error::{Error, TurnError};
use crate::flow::{Flow, InitCx, StepInfo, Steps, digest};
use crate::model::{ModelConfig, ModelError, ModelSelection, Sampling};
use crate::session::SessionDoc;
use crate::step::recall::Recall;
use crate::step::{Models, Reducers, Speakers};
use crate::time::Timestamp;

/// A turn for which nothing has been read yet.
pub(super) struct Prepared<F: Flow> {
    pub(super) slot: Arc<FlowSlot<F>>,
    pub(super) flow: F,
    pub(super) steps: Steps<F>,
    pub(super) models: Models,
    pub(super) speakers: Speakers,
    pub(super) recall: Recall,
    pub(super) reducers: Arc<Reducers>,
    pub(super) gatekeepers: Gatekeepers<F>,
    pub(super) digest: Arc<str>,
    pub(super) context: Map<String, Value>,
    pub(super) turn: Arc<str>,
    pub(super) request: TurnRequest,
    pub(super) closing: Arc<AtomicBool>,
}

/// Finds the models of a flow and of its steps and checks their parameters, before any session
/// is touched. A step without a model of its own speaks through the flow's.
fn find_speakers<F: Flow>(
    models: &Models,
    flow: &F,
    steps: &Steps<F>,
) -> Result<Speakers, TurnError> {
    let refuse = |place: String, error: ModelError| TurnError::Model {
        flow: F::ID.to_owned(),
        place,
        error: Box::new(error),
    };
    let shared = flow.config_model();
    let shared = shared.map(|config| models.find(config)).transpose();
    let shared = shared.map_err(|error| refuse("the flow".to_owned(), error))?;
    let of_step = |info: &StepInfo| {
        let sampling = info.sampling();
        let own = info.model.map(str::parse::<ModelSelection>);
        let model = match (own, &shared) {
            (Some(Ok(model)), _) => model,
            (None, Some(shared)) if sampling != Sampling::default() => shared.config.model.clone(),
            // A selection that cannot be read is refused when the engine is built.
            (None | Some(Err(_)), _) => return Ok(shared.clone()),
        };
        let config = ModelConfig::new(model).sampling(sampling);
        let config = match &shared {
            Some(shared) => config.over(&shared.config),
            None => config,
        };
        let speaker = models.find(config);
        speaker.map(Some).map_err(|error| refuse(format!("step `{}`", info.name), error))
    };
    let steps = steps.iter().map(|entry| entry.info());
    steps.map(|info| Ok((info.name.clone(), of_step(info)?))).collect()
}

/// Reads the memory policy of a flow, and finds the model that it names for summaries.
fn find_recall<F: Flow>(models: &Models, flow: &F) -> Result<Recall, TurnError> {
    let policy = flow.config_memory();
    let config = policy.summary.as_ref().and_then(|summary| summary.model.clone());
    let summarizer = config.map(|config| models.find(config)).transpose();
    let summarizer = summarizer.map_err(|error| TurnError::Model {
        flow: F::ID.to_owned(),
        place: "the summaries (`config_memory`)".to_owned(),
        error: Box::new(error),
    })?;
    Ok(Recall { policy, summarizer, ..Recall::default() })
}

/// Makes the flow ready for the turn, before its session is known.
pub(super) async fn prepare<F: Flow>(
    core: &Core,
    slot: Arc<FlowSlot<F>>,
    request: TurnRequest,
    turn: Arc<str>,
) -> Result<Prepared<F>, Error> {
    let mut flow = slot.flow.clone();
    let mut context = request.context.clone();
    let mut init = InitCx {
        session: &request.session,
        turn: &turn,
        message: request.message.as_deref(),
        context: &mut context,
    };
    flow.init(&mut init).await.map_err(|error| TurnError::Hook {
        flow: F::ID.to_owned(),
        session: request.session.to_string(),
        hook: "init",
        error,
    })?;
    let steps = flow.define_steps(slot.declared.clone());
    let (steps, digest) = if steps.is_same(&slot.checked) {
        (steps, slot.digest.clone())
    } else {
        check_steps(&flow, &steps)?;
        let digest = digest(&steps).into();
        (steps, digest)
    };
    let models = Models::begin(core.models.clone(), flow.config_call_policy());
    let speakers = find_speakers(&models, &flow, &steps)?;
    let recall = find_recall(&models, &flow)?;
    let reducers = Arc::new(flow.config_reducers());
    let gatekeepers = Gatekeepers::find(&models, &flow)?;
    let closing = Arc::default();
    Ok(Prepared {
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
        request,
        closing,
    })
}

impl<F: Flow> Prepared<F> {
    /// The place of the step at which a new session begins.
    pub(super) fn start(&self) -> Result<usize, TurnError> {
        let Some(name) = self.flow.initial_step() else { return Ok(0) };
        self.steps.position(&name).ok_or_else(|| TurnError::UnknownTarget {
            flow: F::ID.to_owned(),
            from: "initial_step".to_owned(),
            to: name.to_string(),
            known: self.steps.names(),
        })
    }

    /// The document of a new session.
    pub(super) fn begin(&self, revision: u64, now: Timestamp) -> Result<SessionDoc, Error> {
        let start = &self.steps.at(self.start()?).info().name;
        Ok(new_doc::<F>(&self.request, &self.digest, start, revision, now)?)
    }
}
