//! Cassettes: recorded from a model, replayed without it.

mod files;
mod providers;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flow_core::message::{Message, Part, Role};
use flow_core::model::cassette::{RecordingModel, ReplayModel};
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{
    ChatModel, ChatRequest, ChatResponse, ModelError, ModelEvent, Sampling, TokenUsage,
};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

/// A file that is deleted with its folder.
struct File {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl File {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { path: folder.path().join("cassette.json"), _folder: folder }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text()).unwrap()
    }
}

fn ask(text: &str) -> ChatRequest {
    at("2026-11-30T12:00:00Z", 3, text)
}

fn at(time: &str, seq: u64, text: &str) -> ChatRequest {
    let (role, at) = (Role::User, time.parse().unwrap());
    let parts = vec![Part::text(text)];
    ChatRequest::new(vec![Message { seq, role, parts, at }]).system("You are short.")
}

async fn streamed(
    model: &dyn ChatModel,
    request: &ChatRequest,
) -> Result<Vec<Result<ModelEvent, ModelError>>, ModelError> {
    Ok(model.stream(request).await?.collect().await)
}
