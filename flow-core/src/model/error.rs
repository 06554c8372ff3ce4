use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cassette::CassetteError;

/// Why a model gave no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ModelError {
    /// The step has no model.
    #[error(
        "there is no model to speak; name one in `#[flow(model = \"provider::name\")]` or in `config_model`, \
         or override `response` to author the reply"
    )]
    Missing,
    /// No such provider or model is known.
    #[error("no model `{model}` is known; known: {known}")]
    Unknown {
        /// What was selected.
        model: String,
        /// What could be selected.
        known: String,
    },
    /// The provider needs a key and the environment has none.
    #[error("provider `{provider}` needs a key: set the environment variable `{variable}`")]
    MissingKey {
        /// The provider.
        provider: String,
        /// Where the key is looked for.
        variable: String,
    },
    /// The provider cannot be used as it is set up.
    #[error("provider `{provider}` is not set up: {reason}")]
    Setup {
        /// The provider.
        provider: String,
        /// What is missing or wrong, and where to set it.
        reason: String,
    },
    /// The provider has no way to be asked this. Nothing was sent.
    #[error("`{model}` cannot be asked this: {reason}")]
    Unsupported {
        /// The model.
        model: String,
        /// What it has no way for, and what to do instead.
        reason: String,
    },
    /// The provider answered with an error status.
    #[error("`{model}` answered with status {status}: {message}")]
    Status {
        /// The model.
        model: String,
        /// The HTTP status.
        status: u16,
        /// What the provider said, shortened.
        message: String,
        /// How long the provider asks to wait.
        retry_after: Option<Duration>,
    },
    /// The provider could not be reached, or the connection broke.
    #[error("`{model}` could not be reached: {message}")]
    Connection {
        /// The model.
        model: String,
        /// What happened.
        message: String,
    },
    /// The answer did not come in time.
    #[error("`{model}` did not answer within {limit:?}; raise `CallPolicy::attempt_timeout`")]
    Timeout {
        /// The model.
        model: String,
        /// The limit.
        limit: Duration,
    },
    /// The model refused, or its answer was blocked. Trying again does not help.
    #[error("`{model}` refused to answer: {reason}")]
    Refused {
        /// The model.
        model: String,
        /// Why, in the provider's words.
        reason: String,
    },
    /// The answer could not be read.
    #[error("`{model}` gave an answer that cannot be read: {reason}")]
    Malformed {
        /// The model.
        model: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The model went on calling tools.
    #[error(
        "the model called tools in {limit} rounds without an answer; raise `CallPolicy::tool_rounds`"
    )]
    ToolRounds {
        /// [`CallPolicy::tool_rounds`](super::CallPolicy::tool_rounds).
        limit: u32,
    },
    /// A recording cannot be made, or does not fit what is asked.
    #[error(transparent)]
    #[serde(skip)]
    Cassette(#[from] CassetteError),
}

impl ModelError {
    /// A stable kebab-case name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing => "no-model",
            Self::Unknown { .. } => "unknown-model",
            Self::MissingKey { .. } => "missing-key",
            Self::Setup { .. } => "provider-setup",
            Self::Unsupported { .. } => "model-unsupported",
            Self::Status { .. } => "model-status",
            Self::Connection { .. } => "model-connection",
            Self::Timeout { .. } => "model-timeout",
            Self::Refused { .. } => "model-refused",
            Self::Malformed { .. } => "model-malformed",
            Self::ToolRounds { .. } => "tool-rounds",
            Self::Cassette(error) => error.code(),
        }
    }

    /// Whether another attempt may succeed: too many requests, a failing server, a broken
    /// connection, a time-out, an answer that cannot be read.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 409 | 425 | 429 | 500..=599),
            Self::Connection { .. } | Self::Timeout { .. } | Self::Malformed { .. } => true,
            _ => false,
        }
    }

    /// How long the provider asks to wait before another attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
