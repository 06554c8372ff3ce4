use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ModelError;

/// How a model picks its words. What is not set is left to the provider.
///
/// Read from data, an unknown field is an error. Credentials are no parameters: a key of
/// [`extra`](Self::extra) that looks like one is refused by [`check`](Self::check), and its
/// value is not shown by `Debug`.
///
/// ```
/// use flow_core::model::Sampling;
///
/// let sampling = Sampling::default().temperature(0.2).extra("service_tier", "flex");
/// assert!(sampling.check("openai::gpt-5.1-mini").is_ok());
/// assert!(serde_json::from_str::<Sampling>(r#"{ "temprature": 0.2 }"#).is_err());
/// ```
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Sampling {
    /// How much chance there is: 0 for none, up to 2; some providers take less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The share of the probability mass from which a word is picked: above 0, up to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The most tokens of an answer; at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// How much the model thinks, in the provider's words, e.g. `low`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// A seed for the chance, where the provider takes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whatever else the provider takes, sent as it is.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// What every provider takes at most.
const TEMPERATURE: RangeInclusive<f64> = 0.0..=2.0;

impl Sampling {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Sets [`temperature`](Self::temperature).
    #[must_use]
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// Sets [`top_p`](Self::top_p).
    #[must_use]
    pub fn top_p(mut self, top_p: f64) -> Self {
        self.top_p = Some(top_p);
        self
    }

    /// Sets [`max_output_tokens`](Self::max_output_tokens).
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: u32) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }

    /// Sets [`reasoning_effort`](Self::reasoning_effort).
    #[must_use]
    pub fn reasoning_effort(mut self, effort: impl Into<String>) -> Self {
        self.reasoning_effort = Some(effort.into());
        self
    }

    /// Sets [`seed`](Self::seed).
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets a key of [`extra`](Self::extra).
    #[must_use]
    pub fn extra(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extra.insert(key.into(), value.into());
        self
    }

    /// These parameters over others: what is set here wins, field by field, and the keys of
    /// [`extra`](Self::extra) one by one. An object there is one value: it replaces the other.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        let mut extra = base.extra.clone();
        extra.extend(self.extra.clone());
        Self {
            temperature: self.temperature.or(base.temperature),
            top_p: self.top_p.or(base.top_p),
            max_output_tokens: self.max_output_tokens.or(base.max_output_tokens),
            reasoning_effort: self
                .reasoning_effort
                .as_ref()
                .or(base.reasoning_effort.as_ref())
                .cloned(),
            seed: self.seed.or(base.seed),
            extra,
        }
    }

    /// Checks what holds for every model: the ranges, and that no credential is among the
    /// parameters. `model` is what the error calls the model.
    ///
    /// A key of [`extra`](Self::extra) looks like a credential when it is, or ends in, a word
    /// like `api_key`, `token`, `secret`, `password`, `authorization` or `bearer`, however it
    /// is spelled; objects and lists are searched too.
    ///
    /// # Errors
    /// [`ModelError::Parameter`], which names the parameter.
    pub fn check(&self, model: &str) -> Result<(), ModelError> {
        let refuse = |parameter: &str, reason: &str| {
            Err(ModelError::Parameter {
                model: model.to_owned(),
                parameter: parameter.to_owned(),
                reason: reason.to_owned(),
            })
        };
        if self.temperature.is_some_and(|value| !TEMPERATURE.contains(&value)) {
            return refuse("temperature", "it is a number from 0 to 2");
        }
        if self.top_p.is_some_and(|value| !(value > 0.0 && value <= 1.0)) {
            return refuse("top_p", "it is a number above 0 and up to 1");
        }
        if self.max_output_tokens == Some(0) {
            return refuse("max_output_tokens", "an answer has at least 1 token");
        }
        if self.reasoning_effort.as_ref().is_some_and(|effort| effort.trim().is_empty()) {
            return refuse("reasoning_effort", "it is empty; leave it out instead");
        }
        if let Some(path) = find_credential("extra", &self.extra) {
            return refuse(
                &path,
                "it looks like a credential, and parameters are logged and sent in plain; set the \
                 provider's environment variable, or `ProviderModel::builder(..).key(..)`",
            );
        }
        Ok(())
    }
}

impl fmt::Debug for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A credential has no business here, but may be here until it is refused.
        let mut extra = self.extra.clone();
        hide_in_map(&mut extra);
        f.debug_struct("Sampling")
            .field("temperature", &self.temperature)
            .field("top_p", &self.top_p)
            .field("max_output_tokens", &self.max_output_tokens)
            .field("reasoning_effort", &self.reasoning_effort)
            .field("seed", &self.seed)
            .field("extra", &extra)
            .finish()
    }
}

/// The path of the first key that looks like a credential.
fn find_credential(path: &str, map: &Map<String, Value>) -> Option<String> {
    map.iter().find_map(|(key, value)| {
        let path = format!("{path}.{key}");
        if is_credential(key) { Some(path) } else { find_in(&path, value) }
    })
}

fn find_in(path: &str, value: &Value) -> Option<String> {
    match value {
        Value::Object(map) => find_credential(path, map),
        Value::Array(list) => list.iter().find_map(|value| find_in(path, value)),
        _ => None,
    }
}

fn hide_in_map(map: &mut Map<String, Value>) {
    for (key, value) in map {
        if is_credential(key) {
            *value = Value::from("[redacted]");
        } else {
            hide_credentials(value);
        }
    }
}

/// Hides the values of keys that look like credentials.
pub(super) fn hide_credentials(value: &mut Value) {
    match value {
        Value::Object(map) => hide_in_map(map),
        Value::Array(list) => list.iter_mut().for_each(hide_credentials),
        _ => {}
    }
}

/// Whether a key looks like that of a credential. `flow-macros` has the same rule.
pub(super) fn is_credential(key: &str) -> bool {
    const ENDS: [&str; 13] = [
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "authkey",
        "token",
        "secret",
        "password",
        "passwd",
        "authorization",
        "bearer",
        "credential",
        "credentials",
    ];
    let key: String = key.chars().filter(|c| c.is_alphanumeric()).collect();
    let key = key.to_lowercase();
    ENDS.iter().any(|end| key.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(sampling: Sampling) -> String {
        match sampling.check("test::m") {
            Err(ModelError::Parameter { parameter, .. }) => parameter,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let none = Sampling::default;
        for value in [-0.1, 2.1, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(none().temperature(value)), "temperature");
        }
        for value in [0.0, -1.0, 1.1, f64::NAN] {
            assert_eq!(refused(none().top_p(value)), "top_p");
        }
        assert_eq!(refused(none().max_output_tokens(0)), "max_output_tokens");
        assert_eq!(refused(none().reasoning_effort(" ")), "reasoning_effort");
        let all = none().temperature(0.0).top_p(1.0).max_output_tokens(1).reasoning_effort("low");
        assert_eq!(all.clone().temperature(2.0).seed(u64::MAX).check("test::m"), Ok(()));
    }

    #[test]
    fn keys_that_look_like_credentials_are_refused_and_their_values_never_told() {
        for key in [
            "api_key",
            "apiKey",
            "API-KEY",
            "x-api-key",
            "openai_api_key",
            "authorization",
            "Proxy-Authorization",
            "token",
            "access_token",
            "authToken",
            "secret",
            "clientSecret",
            "password",
            "bearer",
            "credentials",
            "private_key",
        ] {
            let sampling = Sampling::default().extra(key, "canary");
            let error = sampling.check("test::m").unwrap_err();
            assert!(error.to_string().contains(&format!("`extra.{key}`")), "{error}");
            let told = format!("{error} {error:?} {sampling:?}");
            assert!(!told.contains("canary"), "{told}");
            let nested = json!([{ "headers": { key: "canary" } }]);
            let sampling = Sampling::default().extra("more", nested);
            assert_eq!(refused(sampling.clone()), format!("extra.more.headers.{key}"));
            assert!(!format!("{sampling:?}").contains("canary"), "{sampling:?}");
        }
        for key in [
            "max_tokens",
            "stop_token_ids",
            "prompt_cache_key",
            "top_k",
            "budget_tokens",
            "tokenizer",
            "service_tier",
            "logit_bias",
            "secretary",
        ] {
            assert_eq!(Sampling::default().extra(key, 1).check("test::m"), Ok(()), "{key}");
        }
    }

    #[test]
    fn an_unknown_field_of_data_is_refused() {
        let error = serde_json::from_value::<Sampling>(json!({ "temprature": 0.2 })).unwrap_err();
        assert!(error.to_string().contains("unknown field `temprature`"), "{error}");
        let read: Sampling =
            serde_json::from_value(json!({ "top_p": 0.5, "extra": { "a": 1 } })).unwrap();
        assert_eq!(read, Sampling::default().top_p(0.5).extra("a", 1));
    }
}
