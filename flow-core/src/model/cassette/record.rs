use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};

use super::{CASSETTE_FORMAT, Cassette, CassetteError, End, Interaction, visible};
use crate::model::{
    Capabilities, ChatModel, ChatRequest, ChatResponse, ModelError, ModelEvent, ModelStream,
};

/// A model that passes every call on to another one and records it in a cassette.
///
/// Calls may be made at once; they are recorded in the order in which they began.
///
/// # Errors
/// Besides what the other model says: [`ModelError::Cassette`] when the file cannot be
/// written.
pub struct RecordingModel {
    model: Arc<dyn ChatModel>,
    tape: Arc<Tape>,
}

/// The calls so far, by their number.
struct Tape {
    path: PathBuf,
    capabilities: Capabilities,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    begun: u64,
    ended: BTreeMap<u64, Interaction>,
}

/// A call that has begun.
struct Call {
    tape: Arc<Tape>,
    number: u64,
    interaction: Option<(serde_json::Value, Vec<ModelEvent>)>,
}

impl RecordingModel {
    /// Records the calls of a model in a file. The first call replaces a file that is there.
    pub fn new(model: impl ChatModel, path: impl Into<PathBuf>) -> Self {
        let capabilities = model.capabilities();
        let tape = Tape { path: path.into(), capabilities, calls: Mutex::default() };
        Self { model: Arc::new(model), tape: Arc::new(tape) }
    }

    fn begin(&self, request: &ChatRequest) -> Result<Call, ModelError> {
        let request = visible(request)?;
        let mut calls = self.tape.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.begun += 1;
        let interaction = Some((request, Vec::new()));
        Ok(Call { tape: self.tape.clone(), number: calls.begun, interaction })
    }
}

impl Call {
    fn piece(&mut self, piece: &ModelEvent) {
        if let Some((_, pieces)) = &mut self.interaction {
            pieces.push(piece.clone());
        }
    }

    /// Writes the call down.
    async fn end(&mut self, result: &Result<ChatResponse, ModelError>) -> Result<(), ModelError> {
        let Some((request, pieces)) = self.interaction.take() else { return Ok(()) };
        let interaction = Interaction { request, pieces, end: End::from(result.clone()) };
        let (tape, number) = (self.tape.clone(), self.number);
        let writing = tokio::task::spawn_blocking(move || tape.add(number, interaction));
        let written = writing.await.unwrap_or_else(|error| {
            let path = self.tape.path.display().to_string();
            Err(CassetteError::File { path, action: "written", reason: error.to_string() })
        });
        Ok(written?)
    }
}

impl Tape {
    fn add(&self, number: u64, interaction: Interaction) -> Result<(), CassetteError> {
        // Held while the file is written, so that an older state never replaces a newer one.
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.ended.insert(number, interaction);
        let cassette = Cassette {
            format: CASSETTE_FORMAT,
            capabilities: self.capabilities,
            interactions: calls.ended.values().cloned().collect(),
        };
        cassette.write(&self.path)
    }
}

#[async_trait]
impl ChatModel for RecordingModel {
    async fn complete(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        let mut call = self.begin(request)?;
        let result = self.model.complete(request).await;
        call.end(&result).await?;
        result
    }

    async fn stream(&self, request: &ChatRequest) -> Result<ModelStream, ModelError> {
        let mut call = self.begin(request)?;
        let pieces = match self.model.stream(request).await {
            Ok(pieces) => pieces,
            Err(error) => {
                let result = Err(error);
                call.end(&result).await?;
                return result.map(|_| unreachable!("it is an error"));
            }
        };
        let recorded = stream::unfold(Some((pieces, call)), |state| async move {
            let (mut pieces, mut call) = state?;
            let written = match pieces.next().await? {
                Ok(ModelEvent::Done(response)) => {
                    let result = Ok(*response);
                    call.end(&result).await.and(result.map(Box::new).map(ModelEvent::Done))
                }
                Ok(piece) => {
                    call.piece(&piece);
                    return Some((Ok(piece), Some((pieces, call))));
                }
                Err(error) => {
                    let result = Err(error);
                    let written = call.end(&result).await;
                    written.and(result.map(Box::new).map(ModelEvent::Done))
                }
            };
            Some((written, None))
        });
        Ok(recorded.boxed())
    }

    fn capabilities(&self) -> Capabilities {
        self.tape.capabilities
    }
}

impl fmt::Debug for RecordingModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingModel").field("path", &self.tape.path).finish_non_exhaustive()
    }
}
