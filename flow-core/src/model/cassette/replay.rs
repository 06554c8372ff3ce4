use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};

use super::diff::difference;
use super::{Cassette, CassetteError, End, Interaction, visible};
use crate::model::{
    Capabilities, ChatModel, ChatRequest, ChatResponse, ModelError, ModelEvent, ModelStream,
};

/// A model that gives the answers of a cassette, without a network.
///
/// The requests have to come in the recorded order, and each has to be the recorded one;
/// times and sequence numbers of messages are not compared. Whether an answer is streamed is
/// free: a recorded stream gives its pieces again, or the whole answer. Clones share the
/// place on the tape.
///
/// # Errors
/// Besides the recorded errors: [`ModelError::Cassette`] when something else is asked, or
/// more.
#[derive(Clone)]
pub struct ReplayModel {
    path: PathBuf,
    cassette: Arc<Cassette>,
    next: Arc<Mutex<usize>>,
}

impl ReplayModel {
    /// Opens a cassette.
    ///
    /// # Errors
    /// When the file cannot be read, is no cassette, or has another format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CassetteError> {
        let path = path.as_ref().to_owned();
        let cassette = Arc::new(Cassette::read(&path)?);
        Ok(Self { path, cassette, next: Arc::default() })
    }

    /// How many recorded answers are left.
    pub fn left(&self) -> usize {
        self.cassette.interactions.len() - *self.place()
    }

    fn place(&self) -> MutexGuard<'_, usize> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, request: &ChatRequest) -> Result<Interaction, ModelError> {
        let asked = visible(request)?;
        let mut place = self.place();
        let path = || self.path.display().to_string();
        let Some(interaction) = self.cassette.interactions.get(*place) else {
            let recorded = self.cassette.interactions.len();
            return Err(CassetteError::Exhausted { path: path(), recorded }.into());
        };
        if interaction.request != asked {
            let difference = difference(&interaction.request, &asked);
            let number = *place + 1;
            return Err(CassetteError::Mismatch { path: path(), number, difference }.into());
        }
        *place += 1;
        Ok(interaction.clone())
    }
}

#[async_trait]
impl ChatModel for ReplayModel {
    async fn complete(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        match self.next(request)?.end {
            End::Response(response) => Ok(response),
            End::Error(error) => Err(error),
        }
    }

    async fn stream(&self, request: &ChatRequest) -> Result<ModelStream, ModelError> {
        let Interaction { mut pieces, end, .. } = self.next(request)?;
        let last = match end {
            End::Response(response) => {
                let text = response.text();
                if pieces.is_empty() && !text.is_empty() {
                    pieces.push(ModelEvent::TextDelta(text));
                }
                Ok(ModelEvent::Done(Box::new(response)))
            }
            End::Error(error) if pieces.is_empty() => return Err(error),
            End::Error(error) => Err(error),
        };
        Ok(stream::iter(pieces.into_iter().map(Ok).chain([last])).boxed())
    }

    fn capabilities(&self) -> Capabilities {
        self.cassette.capabilities
    }
}

impl fmt::Debug for ReplayModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayModel")
            .field("path", &self.path)
            .field("left", &self.left())
            .finish_non_exhaustive()
    }
}
