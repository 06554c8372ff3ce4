use std::error::Error as StdError;
use std::time::Duration;

use genai::webc::Error as WebError;
use reqwest::header::HeaderMap;
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::{ModelError, Target};

/// How much of what a provider says is kept, in bytes.
const MESSAGE_BYTES: usize = 500;

impl Target {
    /// What went wrong, without the key, the address and the headers of the request.
    pub(super) fn error(&self, error: genai::Error) -> ModelError {
        match error {
            genai::Error::HttpError { status, body, headers, .. }
            | genai::Error::WebModelCall {
                webc_error: WebError::ResponseFailedStatus { status, body, headers },
                ..
            } => self.status(status.as_u16(), &body, retry_after(&headers)),
            genai::Error::WebModelCall { webc_error: WebError::Reqwest(error), .. } => {
                self.transport(error)
            }
            genai::Error::WebModelCall {
                webc_error: WebError::ResponseFailedNotJson { content_type, body },
                ..
            } => self.malformed(format!("it is `{content_type}`, not JSON: {body}")),
            genai::Error::WebModelCall {
                webc_error: WebError::ResponseFailedInvalidJson { cause, body },
                ..
            } => self.malformed(format!("it is not JSON ({cause}): {body}")),
            genai::Error::ChatResponseGeneration { cause, .. } => self.malformed(cause),
            genai::Error::StreamParse { serde_error, .. } => {
                self.malformed(serde_error.to_string())
            }
            genai::Error::ChatResponse { body, .. } => self.told(&body),
            genai::Error::WebStream { error, cause, .. } => {
                match error.downcast::<genai::Error>() {
                    Ok(error) => self.error(*error),
                    Err(error) => match error.downcast::<reqwest::Error>() {
                        Ok(error) => self.transport(*error),
                        Err(_) => self.connection(cause),
                    },
                }
            }
            other => ModelError::Unsupported {
                model: self.model.clone(),
                reason: self.shorten(&other.to_string()),
            },
        }
    }

    /// An error that the provider tells in the body of an answer or in a stream.
    pub(super) fn told(&self, body: &Value) -> ModelError {
        let error = body.get("error").unwrap_or(body);
        let kind = [error.get("type"), error.get("code"), error.get("status")];
        let status = match error.get("code").and_then(Value::as_u64) {
            Some(status @ 400..=599) => u16::try_from(status).unwrap_or(500),
            _ => kind
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .find_map(status_of)
                .unwrap_or(500),
        };
        self.status(status, &body.to_string(), None)
    }

    fn status(&self, status: u16, body: &str, retry_after: Option<Duration>) -> ModelError {
        let json: Option<Value> = serde_json::from_str(body).ok();
        // Gemini's errors come in a list when a stream was asked for.
        let error = json.as_ref().map(|body| match body {
            Value::Array(list) => list.first().unwrap_or(body),
            _ => body,
        });
        let error = error.map(|body| body.get("error").unwrap_or(body));
        let message = error.and_then(|error| match error {
            Value::String(message) => Some(message.as_str()),
            _ => error.get("message").and_then(Value::as_str),
        });
        let message = self.shorten(message.unwrap_or(body));
        let codes = error.into_iter().flat_map(|error| {
            [error.get("code"), error.get("type"), error.pointer("/innererror/code")]
        });
        let blocked = codes.flatten().filter_map(Value::as_str).any(|code| {
            matches!(
                code,
                "content_filter" | "content_policy_violation" | "ResponsibleAIPolicyViolation"
            )
        });
        if blocked {
            return self.refused(message);
        }
        ModelError::Status { model: self.model.clone(), status, message, retry_after }
    }

    fn transport(&self, error: reqwest::Error) -> ModelError {
        let error = error.without_url();
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            message = format!("{message}: {error}");
            source = error.source();
        }
        self.connection(message)
    }

    pub(super) fn connection(&self, message: impl AsRef<str>) -> ModelError {
        ModelError::Connection {
            model: self.model.clone(),
            message: self.shorten(message.as_ref()),
        }
    }

    pub(super) fn malformed(&self, reason: impl AsRef<str>) -> ModelError {
        ModelError::Malformed { model: self.model.clone(), reason: self.shorten(reason.as_ref()) }
    }

    pub(super) fn refused(&self, reason: impl AsRef<str>) -> ModelError {
        ModelError::Refused { model: self.model.clone(), reason: self.shorten(reason.as_ref()) }
    }

    /// A provider's words, at most so many of them, without the key and what is secret in the
    /// base URL.
    fn shorten(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.key.iter().chain(&self.hidden) {
            let secret = secret.expose_secret();
            if !secret.is_empty() && text.contains(secret) {
                text = text.replace(secret, "[key]");
            }
        }
        let text = text.trim();
        if text.len() <= MESSAGE_BYTES {
            return text.to_owned();
        }
        format!("{}…", &text[..text.floor_char_boundary(MESSAGE_BYTES)])
    }
}

/// The status that a provider would have sent with an error that it tells by name.
fn status_of(kind: &str) -> Option<u16> {
    Some(match kind {
        "invalid_request_error" => 400,
        "authentication_error" | "invalid_api_key" => 401,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" | "rate_limit_exceeded" | "RESOURCE_EXHAUSTED" => 429,
        "overloaded_error" => 529,
        _ => return None,
    })
}

/// How long a provider asks to wait: in milliseconds, in seconds or until a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let read = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let seconds = |value: f64| Duration::try_from_secs_f64(value).ok();
    if let Some(value) = read("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()) {
        return seconds(value / 1000.0);
    }
    let value = read("retry-after")?;
    if let Ok(value) = value.parse::<f64>() {
        return seconds(value);
    }
    let until = jiff::fmt::rfc2822::DateTimeParser::new()
        .relaxed_weekday(true)
        .parse_timestamp(value)
        .ok()?;
    Some(Duration::try_from(until.duration_since(jiff::Timestamp::now())).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    fn asked(name: &'static str, value: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        retry_after(&headers)
    }

    #[test]
    fn waits_are_read_in_all_forms() {
        assert_eq!(asked("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(asked("retry-after", "0.5"), Some(Duration::from_millis(500)));
        assert_eq!(asked("retry-after-ms", "1500"), Some(Duration::from_millis(1500)));
        assert_eq!(asked("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        let far = asked("retry-after", "Fri, 31 Dec 9998 23:59:59 GMT").unwrap();
        assert!(far > Duration::from_secs(1_000_000_000));
        assert_eq!(asked("retry-after", "-3"), None);
        assert_eq!(asked("retry-after", "soon"), None);
    }
}
