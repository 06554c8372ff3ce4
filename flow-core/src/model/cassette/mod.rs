//! Cassettes: what a model was asked and what it answered, in a file, to be replayed without
//! the model.
//!
//! A [`RecordingModel`] passes every call on to another model and writes it down; a
//! [`ReplayModel`] gives the recorded answers, in order, to the recorded requests. A test or
//! an example that was recorded once from a real provider runs ever after without a network.
//!
//! ```no_run
//! # #[cfg(feature = "providers")] {
//! use flow_core::model::ModelCatalog;
//! use flow_core::model::cassette::{RecordingModel, ReplayModel};
//! use flow_core::model::provider;
//!
//! let name = "anthropic::claude-sonnet-4-5";
//! let real = provider::catalog().find(&name.parse()?)?;
//! let record = ModelCatalog::new().model(name, RecordingModel::new(real, "hotel.json"));
//! // and from then on
//! let replay = ModelCatalog::new().model(name, ReplayModel::open("hotel.json")?);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The file
//!
//! A cassette is one JSON object, made to be read and reviewed: its `format`, the
//! `capabilities` of the model, and the `interactions`, each with its `request`, the `pieces`
//! of a streamed answer, and the whole `response` or the `error`. Times, sequence numbers and
//! headers are not in it, and so no keys of providers; values under credential-like names in
//! [`Sampling::extra`](super::Sampling::extra) are replaced. What users and models say is, so
//! do not record what must not be read.
//!
//! One file holds the calls of one model; give each model of a flow its own. A call that its
//! caller gives up (a time-out, a cancelled turn) is not recorded. The file is replaced as a
//! whole after each call, so that a crash leaves the calls before it.

mod diff;
mod record;
mod replay;

use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Capabilities, ChatRequest, ChatResponse, ModelError, ModelEvent};

pub use record::RecordingModel;
pub use replay::ReplayModel;

/// The version of the layout of cassettes that this crate writes, and the only one it reads.
pub const CASSETTE_FORMAT: u32 = 1;

/// Stands for a value that must not be recorded.
const REDACTED: &str = "[redacted]";

/// Why a cassette cannot be used, or does not fit what is asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CassetteError {
    /// The file cannot be read or written.
    #[error("cassette `{path}` cannot be {action}: {reason}")]
    File {
        /// The file.
        path: String,
        /// `read` or `written`.
        action: &'static str,
        /// What the system says.
        reason: String,
    },
    /// The file is no cassette.
    #[error("`{path}` is not a cassette: {reason}")]
    Malformed {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file has another format.
    #[error(
        "cassette `{path}` has format {found}, and this program reads format {expected}; record it again"
    )]
    Format {
        /// The file.
        path: String,
        /// Its format.
        found: u64,
        /// [`CASSETTE_FORMAT`].
        expected: u32,
    },
    /// The model is asked something else than what was recorded.
    #[error(
        "cassette `{path}`: request {number} is not the recorded one; record it again if that is meant:\n{difference}"
    )]
    Mismatch {
        /// The file.
        path: String,
        /// The request, counted from 1.
        number: usize,
        /// What differs, one line each: where, what was recorded, what is asked.
        difference: String,
    },
    /// The model is asked more often than was recorded.
    #[error(
        "cassette `{path}` has only {recorded} interactions, and the model is asked once more; record it again"
    )]
    Exhausted {
        /// The file.
        path: String,
        /// How many interactions it has.
        recorded: usize,
    },
}

impl CassetteError {
    /// A stable kebab-case name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File { .. } => "cassette-file",
            Self::Malformed { .. } => "cassette-malformed",
            Self::Format { .. } => "cassette-format",
            Self::Mismatch { .. } => "cassette-mismatch",
            Self::Exhausted { .. } => "cassette-exhausted",
        }
    }
}

/// What is in the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Cassette {
    format: u32,
    #[serde(default)]
    capabilities: Capabilities,
    interactions: Vec<Interaction>,
}

/// One call of a model.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Interaction {
    request: Value,
    /// What came before the whole answer, or before the error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pieces: Vec<ModelEvent>,
    #[serde(flatten)]
    end: End,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum End {
    Response(ChatResponse),
    Error(ModelError),
}

impl From<Result<ChatResponse, ModelError>> for End {
    fn from(result: Result<ChatResponse, ModelError>) -> Self {
        match result {
            Ok(response) => Self::Response(response),
            Err(error) => Self::Error(error),
        }
    }
}

impl Cassette {
    fn read(path: &Path) -> Result<Self, CassetteError> {
        let text = std::fs::read_to_string(path).map_err(|error| file(path, "read", &error))?;
        let malformed = |error: serde_json::Error| CassetteError::Malformed {
            path: path.display().to_string(),
            reason: error.to_string(),
        };
        // The format comes first, since another one may look different in all else.
        let head: Head = serde_json::from_str(&text).map_err(malformed)?;
        if head.format != u64::from(CASSETTE_FORMAT) {
            return Err(CassetteError::Format {
                path: path.display().to_string(),
                found: head.format,
                expected: CASSETTE_FORMAT,
            });
        }
        serde_json::from_str(&text).map_err(malformed)
    }

    /// Replaces the file in one step.
    fn write(&self, path: &Path) -> Result<(), CassetteError> {
        let failed = |error: std::io::Error| file(path, "written", &error);
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.tmp", uuid::Uuid::now_v7().simple()));
        let draft = path.with_file_name(name);
        let written = std::fs::File::create_new(&draft).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&draft, path)
        });
        written.map_err(|error| {
            let _ = std::fs::remove_file(&draft);
            failed(error)
        })
    }
}

#[derive(Deserialize)]
struct Head {
    format: u64,
}

fn file(path: &Path, action: &'static str, error: &std::io::Error) -> CassetteError {
    CassetteError::File { path: path.display().to_string(), action, reason: error.to_string() }
}

/// A request as it is recorded and compared: what a model can see of it, without secrets.
fn visible(request: &ChatRequest) -> Result<Value, ModelError> {
    let mut value = serde_json::to_value(request).map_err(|error| ModelError::Unsupported {
        model: "cassette".to_owned(),
        reason: format!("the request cannot be written as JSON: {error}"),
    })?;
    for message in value["messages"].as_array_mut().into_iter().flatten() {
        if let Some(message) = message.as_object_mut() {
            message.remove("seq");
            message.remove("at");
        }
    }
    if let Some(extra) = value.pointer_mut("/sampling/extra") {
        redact(extra);
    }
    // One order, whatever features of serde_json are on.
    value.sort_all_objects();
    Ok(value)
}

/// Replaces values under credential-like names.
fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if is_credential(name) {
                    *value = REDACTED.into();
                } else {
                    redact(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        _ => {}
    }
}

/// Whether a name is that of a key, a secret, a password, or a token that is no count of
/// tokens.
fn is_credential(name: &str) -> bool {
    let name: String =
        name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let parts = ["apikey", "accesskey", "privatekey", "secret", "password", "authorization"];
    parts.iter().any(|part| name.contains(part))
        || name.contains("credential")
        || name.ends_with("token")
        || name == "key"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_known_by_their_names() {
        for name in ["api_key", "Authorization", "x-api-key", "accessToken", "client_secret", "key"]
        {
            assert!(is_credential(name), "{name}");
        }
        for name in ["max_tokens", "top_k", "keep_alive", "keyword", "token_count"] {
            assert!(!is_credential(name), "{name}");
        }
    }
}
