use genai::adapter::AdapterKind;
use secrecy::SecretString;

use super::ModelError;
use crate::model::sampling::is_credential;

/// How a provider is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// OpenAI's chat completions, which many others speak too.
    Chat,
    /// OpenAI's responses.
    Responses,
    Anthropic,
    Gemini,
}

/// What differs between providers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Service {
    pub(super) name: &'static str,
    pub(super) adapter: AdapterKind,
    pub(super) dialect: Dialect,
    /// The environment variable of the key.
    pub(super) key: Option<&'static str>,
    pub(super) key_needed: bool,
    /// The environment variable of the base URL.
    pub(super) base_url: Option<&'static str>,
    /// Where the provider is, without one.
    pub(super) default_url: Option<&'static str>,
    /// Whether output by JSON Schema works with any current model of the provider.
    structured_output: bool,
    /// Whether the provider heeds a choice of tools.
    pub(super) tool_choice: bool,
    /// Whether the provider takes unsigned reasoning of earlier answers.
    pub(super) takes_reasoning: bool,
    /// What the provider takes as parameters; see [`parameters`](super::parameters).
    pub(super) takes: Takes,
}

/// The parameters that a provider takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Takes {
    pub(super) temperature: f64,
    pub(super) seed: bool,
    /// The words for an effort; nothing where each model has its own.
    pub(super) efforts: Option<&'static [&'static str]>,
    /// Whether an effort may be a number of tokens.
    pub(super) budget: bool,
}

/// What is taken where the provider says nothing else.
const ANY: Takes = Takes { temperature: 2.0, seed: true, efforts: None, budget: false };
const OPENAI: Takes = Takes { efforts: Some(&LEVELS), ..ANY };
const LEVELS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

const fn chat(
    name: &'static str,
    adapter: AdapterKind,
    key: &'static str,
    url: &'static str,
) -> Service {
    Service {
        name,
        adapter,
        dialect: Dialect::Chat,
        key: Some(key),
        key_needed: true,
        base_url: None,
        default_url: Some(url),
        structured_output: false,
        tool_choice: true,
        takes_reasoning: false,
        takes: ANY,
    }
}

/// All providers.
pub(super) const SERVICES: [Service; 10] = [
    Service {
        structured_output: true,
        takes: OPENAI,
        ..chat("openai", AdapterKind::OpenAI, "OPENAI_API_KEY", "https://api.openai.com/v1/")
    },
    Service {
        dialect: Dialect::Responses,
        structured_output: true,
        takes: Takes { seed: false, ..OPENAI },
        ..chat(
            "openai-responses",
            AdapterKind::OpenAIResp,
            "OPENAI_API_KEY",
            "https://api.openai.com/v1/",
        )
    },
    Service {
        dialect: Dialect::Anthropic,
        structured_output: true,
        takes: Takes { temperature: 1.0, seed: false, budget: true, ..OPENAI },
        ..chat(
            "anthropic",
            AdapterKind::Anthropic,
            "ANTHROPIC_API_KEY",
            "https://api.anthropic.com/v1/",
        )
    },
    Service {
        dialect: Dialect::Gemini,
        structured_output: true,
        takes: Takes { budget: true, ..OPENAI },
        ..chat(
            "gemini",
            AdapterKind::Gemini,
            "GEMINI_API_KEY",
            "https://generativelanguage.googleapis.com/v1beta/",
        )
    },
    Service {
        // Its chat completions: the crate's adapter of Ollama's own format sends neither
        // schemas nor extra parameters.
        name: "ollama",
        adapter: AdapterKind::OpenAI,
        dialect: Dialect::Chat,
        key: None,
        key_needed: false,
        base_url: Some("OLLAMA_HOST"),
        default_url: Some("http://localhost:11434/v1/"),
        structured_output: true,
        tool_choice: false,
        takes_reasoning: false,
        takes: ANY,
    },
    Service {
        takes: OPENAI,
        ..chat(
            "openrouter",
            AdapterKind::OpenRouter,
            "OPENROUTER_API_KEY",
            "https://openrouter.ai/api/v1/",
        )
    },
    Service {
        takes_reasoning: true,
        takes: Takes {
            efforts: Some(&["minimal", "low", "medium", "high", "xhigh", "max", "ultra"]),
            ..ANY
        },
        ..chat(
            "deepseek",
            AdapterKind::DeepSeek,
            "DEEPSEEK_API_KEY",
            "https://api.deepseek.com/v1/",
        )
    },
    Service {
        takes: Takes { efforts: Some(&["none", "default", "low", "medium", "high"]), ..ANY },
        ..chat("groq", AdapterKind::Groq, "GROQ_API_KEY", "https://api.groq.com/openai/v1/")
    },
    Service {
        structured_output: true,
        takes: Takes { efforts: Some(&["none", "low", "medium", "high", "xhigh"]), ..ANY },
        ..chat("xai", AdapterKind::Xai, "XAI_API_KEY", "https://api.x.ai/v1/")
    },
    Service {
        name: "openai-compatible",
        adapter: AdapterKind::OpenAI,
        dialect: Dialect::Chat,
        key: Some("OPENAI_COMPATIBLE_API_KEY"),
        key_needed: false,
        base_url: Some("OPENAI_COMPATIBLE_BASE_URL"),
        default_url: None,
        structured_output: true,
        tool_choice: true,
        takes_reasoning: true,
        takes: ANY,
    },
];

impl Service {
    pub(super) fn find(name: &str, model: &str) -> Result<Self, ModelError> {
        SERVICES.into_iter().find(|service| service.name == name).ok_or_else(|| {
            let known: Vec<String> =
                SERVICES.iter().map(|service| format!("{}::*", service.name)).collect();
            ModelError::Unknown { model: format!("{name}::{model}"), known: known.join(", ") }
        })
    }

    /// Whether a model's output follows a JSON Schema.
    pub(super) fn structured_output(&self, model: &str) -> bool {
        // Anthropic's models before 4.1 refuse a request with a schema.
        let old = model.contains("claude-3")
            || [
                "claude-opus-4-0",
                "claude-sonnet-4-0",
                "claude-opus-4-2025",
                "claude-sonnet-4-2025",
            ]
            .iter()
            .any(|old| model.starts_with(old));
        self.structured_output && !(self.dialect == Dialect::Anthropic && old)
    }

    /// The base URL as the provider crate wants it: with a scheme and a slash at the end. And
    /// what of it may be a secret.
    pub(super) fn tidy_url(&self, url: &str) -> Result<(String, Vec<SecretString>), ModelError> {
        let url = url.trim();
        let url = match url.contains("://") {
            true => url.to_owned(),
            false => format!("http://{url}"),
        };
        let parsed = reqwest::Url::parse(&url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(mut url) = parsed else {
            return Err(ModelError::Setup {
                provider: self.name.to_owned(),
                reason: "its base URL is not an HTTP address".to_owned(),
            });
        };
        if self.name == "ollama" && url.path() == "/" {
            url.set_path("/v1/");
        }
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        let hidden = secrets_of(&url);
        Ok((url.into(), hidden))
    }
}

/// What is secret in a base URL: who logs in, and the values of its query that are credentials;
/// as they stand there, and decoded.
fn secrets_of(url: &reqwest::Url) -> Vec<SecretString> {
    let is_secret = |name: &str| {
        is_credential(name) || ["key", "sig", "signature"].iter().any(|end| name.ends_with(end))
    };
    let query = url.query().unwrap_or_default().split('&');
    let values = query.filter_map(|pair| pair.split_once('=')).filter(|(name, _)| is_secret(name));
    let raw = [Some(url.username()), url.password()].into_iter().flatten();
    let mut found = Vec::new();
    for text in raw.chain(values.map(|(_, value)| value)) {
        let mut probe = url.clone();
        probe.set_query(Some(&format!("value={text}")));
        let decoded = probe.query_pairs().next().map(|(_, value)| value.into_owned());
        // A shorter text would tear words apart, and is no secret.
        let texts = [Some(text.to_owned()), decoded].into_iter().flatten();
        found.extend(texts.filter(|text| text.len() >= 8).map(SecretString::from));
    }
    found
}
