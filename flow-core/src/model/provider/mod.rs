//! Models of real providers.
//!
//! [`catalog`] has them all; a model is selected as `provider::name`:
//!
//! | provider | speaks | key | base URL |
//! | --- | --- | --- | --- |
//! | `openai` | chat completions | `OPENAI_API_KEY` | |
//! | `openai-responses` | responses | `OPENAI_API_KEY` | |
//! | `anthropic` | messages | `ANTHROPIC_API_KEY` | |
//! | `gemini` | generate content | `GEMINI_API_KEY` | |
//! | `ollama` | chat completions | | `OLLAMA_HOST`, else `http://localhost:11434` |
//! | `openrouter` | chat completions | `OPENROUTER_API_KEY` | |
//! | `deepseek` | chat completions | `DEEPSEEK_API_KEY` | |
//! | `groq` | chat completions | `GROQ_API_KEY` | |
//! | `xai` | chat completions | `XAI_API_KEY` | |
//! | `openai-compatible` | chat completions | `OPENAI_COMPATIBLE_API_KEY`, may be missing | `OPENAI_COMPATIBLE_BASE_URL` |
//!
//! ```no_run
//! use flow_core::model::provider::{self, ProviderModel};
//!
//! // From the environment.
//! let catalog = provider::catalog();
//! let model = catalog.find(&"anthropic::claude-sonnet-4-5".parse()?)?;
//!
//! // In code.
//! let local = ProviderModel::builder("openai-compatible", "qwen3-8b")
//!     .base_url("http://localhost:8080/v1")
//!     .build()?;
//! let catalog = catalog.model("local::qwen", local);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a request becomes
//!
//! * A message without anything to say (no parts, or blank texts) is left out: providers
//!   refuse empty ones.
//! * A conversation that the user has not begun gets an opening of theirs, and one to which
//!   they have added nothing since the model spoke gets a message that says so: providers want
//!   the user to speak first and last.
//! * With Anthropic, tools that were called before and are not offered any more are declared
//!   with the choice to call none, when no tool is offered: it wants them declared.
//! * Reasoning goes back only to the provider that it came from. Its signature carries the
//!   provider's name (`anthropic:..`), so that a conversation may change models. Unsigned
//!   reasoning goes back to `deepseek` and `openai-compatible`.
//! * Arguments of a call that are not a JSON object are sent as `{"arguments": ..}`, since
//!   most providers refuse anything else in a history.
//! * The schema of a tool is sent as it is. The schema of an output loses the keywords that
//!   the provider refuses; validate the answer against the whole schema.
//! * A file by URL is an error with providers of chat completions.
//! * [`Sampling::extra`](super::Sampling::extra) is laid over the request's body, key by key
//!   of the top level: an object there replaces the whole object.
//! * Ollama heeds no choice of tools: with [`ToolChoice::None`](super::ToolChoice::None) they
//!   are not offered, and it cannot be made to call one. Its `num_ctx` is set at the server.
//!   OpenAI's responses take no texts to stop at, which is an error.
//!
//! # Which parameters are taken
//!
//! What a provider's documentation rules out is refused before anything is sent, and in a turn
//! before its session is touched ([`ModelError::Parameter`]). What only some of its models take
//! is left to the provider to refuse.
//!
//! | provider | `temperature` | `seed` | `reasoning_effort` | said by |
//! | --- | --- | --- | --- | --- |
//! | `openai` | to 2 | yes | none, minimal, low, medium, high, xhigh, max | [chat completions](https://platform.openai.com/docs/api-reference/chat/create) |
//! | `openai-responses` | to 2 | no | as `openai` | [responses](https://platform.openai.com/docs/api-reference/responses/create) |
//! | `anthropic` | to 1 | no | as `openai`, or a number of tokens | [messages](https://docs.anthropic.com/en/api/messages), [effort](https://platform.claude.com/docs/en/build-with-claude/effort) |
//! | `gemini` | to 2 | yes | as `openai`, or a number of tokens | [generation config](https://ai.google.dev/api/generate-content#generationconfig) |
//! | `ollama` | to 2 | yes | the model's own words | [compatibility](https://docs.ollama.com/api/openai-compatibility) |
//! | `openrouter` | to 2 | yes | as `openai` | [parameters](https://openrouter.ai/docs/api_reference/parameters) |
//! | `deepseek` | to 2 | yes | minimal, low, medium, high, xhigh, max, ultra | [thinking mode](https://api-docs.deepseek.com/guides/thinking_mode) |
//! | `groq` | to 2 | yes | none, default, low, medium, high | [reasoning](https://console.groq.com/docs/reasoning) |
//! | `xai` | to 2 | yes | none, low, medium, high, xhigh | [reasoning](https://docs.x.ai/docs/guides/reasoning) |
//! | `openai-compatible` | to 2 | yes | any word | |
//!
//! Words that Anthropic and Gemini do not have are turned into the nearest that they have.
//!
//! # What a response becomes
//!
//! * Arguments that are not valid JSON are kept as a JSON string, for the tool loop to answer.
//!   (With `openai-responses` that holds for streams; else the answer is
//!   [`ModelError::Malformed`].)
//! * OpenRouter's signed reasoning is kept from whole answers, not from streams.
//! * Calls without an id of their own get one that is unique.
//! * A refusal and blocked content are [`ModelError::Refused`], also with status 400.
//! * `metadata` holds the provider's `id` of the response and its name of the `model`.
//!
//! The wire formats are those of the crate `genai`, none of whose types is seen outside; what
//! it lacks (ids of responses, refusals, exact text and broken arguments of chat completions,
//! images by URL and failed tools with Anthropic) is added here. It
//! retries nothing; see [`complete`](super::complete). Redirects are not followed, since keys
//! would go with them. The crate's own log is dropped: it holds whole bodies of answers.

mod error;
mod parameters;
mod reply;
mod request;
mod schema;
mod service;
mod stream;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, Headers, ModelIden, ServiceTarget, WebConfig};
use secrecy::{ExposeSecret as _, SecretString};
use tracing::Dispatch;
use tracing::instrument::{WithDispatch, WithSubscriber as _};

use super::{
    Capabilities, ChatModel, ChatRequest, ChatResponse, ModelCatalog, ModelError, ModelStream,
    Sampling,
};
use service::{Dialect, Service};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A catalog of all providers. Keys and base URLs are read from the environment when a model
/// is selected; the models share their connections.
pub fn catalog() -> ModelCatalog {
    let client: Arc<OnceLock<Client>> = Arc::default();
    service::SERVICES.iter().fold(ModelCatalog::new(), |catalog, service| {
        let client = client.clone();
        catalog.provider(service.name, move |name| {
            let mut builder = ProviderModel::builder(service.name, name);
            builder.client = Some(match client.get() {
                Some(client) => client.clone(),
                None => {
                    let made = http_client(service)?;
                    client.get_or_init(|| made).clone()
                }
            });
            Ok(Arc::new(builder.build()?))
        })
    })
}

/// A model of a provider.
///
/// Its `Debug` shows neither the key nor the base URL.
#[derive(Clone)]
pub struct ProviderModel {
    target: Target,
    client: Client,
    structured_output: bool,
}

/// Whom a request goes to.
#[derive(Clone)]
struct Target {
    service: Service,
    /// The provider's name of the model.
    name: String,
    /// What errors call the model: `provider::name`.
    model: String,
    base_url: String,
    key: Option<SecretString>,
    /// What is secret in the base URL.
    hidden: Vec<SecretString>,
}

/// Sets up a [`ProviderModel`].
#[must_use]
pub struct ProviderModelBuilder {
    provider: String,
    name: String,
    base_url: Option<String>,
    key: Option<SecretString>,
    structured_output: Option<bool>,
    client: Option<Client>,
}

impl ProviderModel {
    /// A model by its provider and its name, set up from the environment.
    ///
    /// # Errors
    /// As [`ProviderModelBuilder::build`].
    pub fn new(provider: &str, name: &str) -> Result<Self, ModelError> {
        Self::builder(provider, name).build()
    }

    /// Sets up a model by its provider and its name.
    pub fn builder(provider: impl Into<String>, name: impl Into<String>) -> ProviderModelBuilder {
        ProviderModelBuilder {
            provider: provider.into(),
            name: name.into(),
            base_url: None,
            key: None,
            structured_output: None,
            client: None,
        }
    }
}

impl ProviderModelBuilder {
    /// Where the provider is, e.g. `http://localhost:8080/v1`. Default: the provider's own
    /// address, or what the environment says.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// The key. Default: what the environment says.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(SecretString::from(key.into()));
        self
    }

    /// Whether the model's output follows a JSON Schema. Default: what is known of the
    /// provider; set it to false for a server that ignores schemas.
    pub fn structured_output(mut self, yes: bool) -> Self {
        self.structured_output = Some(yes);
        self
    }

    /// Makes the model. Nothing is sent.
    ///
    /// # Errors
    /// [`ModelError::Unknown`] for a provider that there is not, [`ModelError::MissingKey`],
    /// [`ModelError::Setup`] for a base URL that is missing or none.
    pub fn build(self) -> Result<ProviderModel, ModelError> {
        self.build_from(|variable| std::env::var(variable).ok())
    }

    fn build_from(
        self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<ProviderModel, ModelError> {
        let service = Service::find(&self.provider, &self.name)?;
        let read = |variable: Option<&str>| {
            variable.and_then(&environment).filter(|value| !value.trim().is_empty())
        };
        let key = self.key.filter(|key| !key.expose_secret().trim().is_empty());
        let key = key.or_else(|| read(service.key).map(SecretString::from));
        if let (None, true, Some(variable)) = (&key, service.key_needed, service.key) {
            return Err(ModelError::MissingKey {
                provider: service.name.to_owned(),
                variable: variable.to_owned(),
            });
        }
        let base_url = self
            .base_url
            .or_else(|| read(service.base_url))
            .or_else(|| service.default_url.map(str::to_owned))
            .ok_or_else(|| ModelError::Setup {
                provider: service.name.to_owned(),
                reason: format!(
                    "it has no base URL; set the environment variable `{}`",
                    service.base_url.unwrap_or_default()
                ),
            })?;
        let (base_url, hidden) = service.tidy_url(&base_url)?;
        let client = match self.client {
            Some(client) => client,
            None => http_client(&service)?,
        };
        let structured_output =
            self.structured_output.unwrap_or_else(|| service.structured_output(&self.name));
        let model = format!("{}::{}", service.name, self.name);
        let target = Target { service, name: self.name, model, base_url, key, hidden };
        Ok(ProviderModel { target, client, structured_output })
    }
}

/// Runs something of the provider crate without its log, which holds whole bodies: what was
/// said, and secrets that a provider repeats.
fn quiet<T: Future>(future: T) -> WithDispatch<T> {
    future.with_subscriber(Dispatch::none())
}

fn http_client(service: &Service) -> Result<Client, ModelError> {
    let config = WebConfig::default().with_connect_timeout(CONNECT_TIMEOUT);
    config
        .apply_to_builder(reqwest::Client::builder())
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| error.to_string())
        .and_then(|http| {
            Client::builder().with_reqwest(http).build().map_err(|error| error.to_string())
        })
        .map_err(|reason| ModelError::Setup { provider: service.name.to_owned(), reason })
}

impl Target {
    fn for_request(&self) -> ServiceTarget {
        // `::` would be taken for a namespace, which goes away.
        let name = match self.name.contains("::") {
            true => format!("model::{}", self.name),
            false => self.name.clone(),
        };
        let auth = match &self.key {
            Some(key) => AuthData::from_single(key.expose_secret()),
            // The adapter for chat completions insists on a key, or on a whole request.
            None if self.service.dialect == Dialect::Chat => {
                AuthData::RequestOverride { url: self.chat_url(), headers: Headers::default() }
            }
            None => AuthData::None,
        };
        ServiceTarget {
            endpoint: Endpoint::from_owned(self.base_url.as_str()),
            auth,
            model: ModelIden::new(self.service.adapter, name),
        }
    }

    fn chat_url(&self) -> String {
        match self.base_url.split_once('?') {
            Some((url, query)) => format!("{url}chat/completions?{query}"),
            None => format!("{}chat/completions", self.base_url),
        }
    }
}

#[async_trait]
impl ChatModel for ProviderModel {
    async fn complete(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        let (request, options) = request::to_genai(&self.target, request)?;
        let options = options.with_capture_raw_body(true);
        let result = self.client.exec_chat(self.target.for_request(), request, Some(&options));
        let result = quiet(result).await;
        reply::from_genai(&self.target, result)
    }

    async fn stream(&self, request: &ChatRequest) -> Result<ModelStream, ModelError> {
        let (request, options) = request::to_genai(&self.target, request)?;
        stream::open(&self.client, self.target.clone(), request, options).await
    }

    fn check_sampling(&self, sampling: &Sampling) -> Result<(), ModelError> {
        self.target.check_sampling(sampling)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default().structured_output(self.structured_output)
    }
}

impl fmt::Debug for ProviderModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderModel").field("model", &self.target.model).finish_non_exhaustive()
    }
}

impl fmt::Debug for ProviderModelBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderModelBuilder")
            .field("provider", &self.provider)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn a_missing_key_names_its_variable() {
        let variables = [
            ("openai", "OPENAI_API_KEY"),
            ("openai-responses", "OPENAI_API_KEY"),
            ("anthropic", "ANTHROPIC_API_KEY"),
            ("gemini", "GEMINI_API_KEY"),
            ("openrouter", "OPENROUTER_API_KEY"),
            ("deepseek", "DEEPSEEK_API_KEY"),
            ("groq", "GROQ_API_KEY"),
            ("xai", "XAI_API_KEY"),
        ];
        for (provider, variable) in variables {
            for environment in [nothing, |_: &str| Some(" ".to_owned())] {
                let error =
                    ProviderModel::builder(provider, "m").build_from(environment).unwrap_err();
                let missing = ModelError::MissingKey {
                    provider: provider.to_owned(),
                    variable: variable.to_owned(),
                };
                assert_eq!(error, missing);
            }
            let model = ProviderModel::builder(provider, "m")
                .build_from(|asked| (asked == variable).then(|| "key".to_owned()));
            assert!(model.is_ok(), "{provider}");
        }
    }

    #[test]
    fn local_providers_do_without_a_key() {
        let model = ProviderModel::builder("ollama", "qwen3").build_from(nothing).unwrap();
        assert_eq!(model.target.base_url, "http://localhost:11434/v1/");
        let host = |asked: &str| (asked == "OLLAMA_HOST").then(|| "10.0.0.7:11434".to_owned());
        let model = ProviderModel::builder("ollama", "qwen3").build_from(host).unwrap();
        assert_eq!(model.target.base_url, "http://10.0.0.7:11434/v1/");

        let error = ProviderModel::builder("openai-compatible", "m").build_from(nothing);
        let error = error.unwrap_err();
        assert_eq!(error.code(), "provider-setup");
        assert!(error.to_string().contains("OPENAI_COMPATIBLE_BASE_URL"), "{error}");
        let url = |asked: &str| {
            (asked == "OPENAI_COMPATIBLE_BASE_URL").then(|| "http://localhost:1/v1".to_owned())
        };
        let model = ProviderModel::builder("openai-compatible", "m").build_from(url).unwrap();
        assert_eq!(model.target.base_url, "http://localhost:1/v1/");
    }

    #[test]
    fn what_is_set_up_wrongly_is_said() {
        let error = ProviderModel::builder("acme", "m").build_from(nothing).unwrap_err();
        assert_eq!(error.code(), "unknown-model");
        assert!(error.to_string().contains("openai-compatible::*"), "{error}");
        let error = ProviderModel::builder("ollama", "m")
            .base_url("ftp://user:canary@host")
            .build_from(nothing)
            .unwrap_err();
        assert_eq!(error.code(), "provider-setup");
        assert!(!error.to_string().contains("canary"), "{error}");
    }

    #[test]
    fn secrets_of_a_base_url_are_known_as_they_stand_and_decoded() {
        let url = "http://tenant-4711:p%40ssw0rd-42@h/v1?api_key=sk%2Dcanary&api-version=2026-11-30&key=k";
        let builder = ProviderModel::builder("openai-compatible", "m").base_url(url);
        let target = builder.build_from(nothing).unwrap().target;
        let hidden: Vec<&str> = target.hidden.iter().map(|text| text.expose_secret()).collect();
        assert_eq!(
            hidden,
            [
                "tenant-4711",
                "tenant-4711",
                "p%40ssw0rd-42",
                "p@ssw0rd-42",
                "sk%2Dcanary",
                "sk-canary",
            ]
        );
    }

    #[test]
    fn debug_shows_no_secret() {
        let builder =
            ProviderModel::builder("openai", "m").key("canary").base_url("http://h/canary");
        assert!(!format!("{builder:?}").contains("canary"));
        let model = builder.build_from(nothing).unwrap();
        assert!(!format!("{model:?}").contains("canary"));
        assert!(format!("{model:?}").contains("openai::m"));
    }

    #[test]
    fn old_models_have_no_schemas() {
        let structured = |provider: &str, name: &str| {
            let builder = ProviderModel::builder(provider, name).key("k");
            builder.build_from(nothing).unwrap().capabilities().structured_output
        };
        assert!(structured("openai", "gpt-5.1-mini"));
        assert!(structured("anthropic", "claude-sonnet-4-5"));
        assert!(!structured("anthropic", "claude-3-5-haiku-latest"));
        assert!(!structured("anthropic", "claude-sonnet-4-20250514"));
        assert!(!structured("deepseek", "deepseek-chat"));
    }
}
