use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::{CANCELLED, captures_content, content};
use crate::model::{ChatRequest, ChatResponse, FinishReason, ModelError};

/// A call of a model, with all its attempts.
#[derive(Clone, Copy)]
pub(crate) struct ChatCall<'a> {
    /// `provider::name`.
    pub(crate) model: &'a str,
    pub(crate) request: &'a ChatRequest,
    /// The session.
    pub(crate) conversation: Option<&'a str>,
    pub(crate) stream: bool,
}

/// Runs a call of a model in its span, and records how it ends.
pub(crate) async fn chat(
    call: ChatCall<'_>,
    running: impl Future<Output = Result<ChatResponse, ModelError>>,
) -> Result<ChatResponse, ModelError> {
    let span = call.span();
    let mut operation = Operation { span: span.clone(), call, begin: Instant::now(), over: false };
    let result = running.instrument(span).await;
    match &result {
        Ok(response) => operation.end(Some(response), None),
        Err(error) => operation.end(None, Some(&error_type(error))),
    }
    result
}

impl ChatCall<'_> {
    /// The provider by the convention's name, and the provider's name of the model.
    fn names(&self) -> (&str, &str) {
        let (provider, name) = self.model.split_once("::").unwrap_or(("unknown", self.model));
        let provider = match provider {
            "openai-responses" => "openai",
            "gemini" => "gcp.gemini",
            "xai" => "x_ai",
            other => other,
        };
        (provider, name)
    }

    fn span(&self) -> Span {
        let (provider, model) = self.names();
        let request = self.request;
        let sampling = &request.sampling;
        let stop = (!request.stop.is_empty()).then(|| json(&request.stop));
        let span = tracing::info_span!(
            "chat",
            "otel.name" = format!("chat {model}"),
            "otel.kind" = "client",
            "otel.status_code" = Empty,
            "gen_ai.operation.name" = "chat",
            "gen_ai.provider.name" = provider,
            "gen_ai.request.model" = model,
            "gen_ai.conversation.id" = self.conversation,
            "gen_ai.request.temperature" = sampling.temperature,
            "gen_ai.request.top_p" = sampling.top_p,
            "gen_ai.request.max_tokens" = sampling.max_output_tokens.map(i64::from),
            "gen_ai.request.seed" = sampling.seed.map(count),
            "gen_ai.request.stop_sequences" = stop,
            "gen_ai.request.stream" = self.stream.then_some(true),
            "gen_ai.output.type" = request.output.as_ref().map(|_| "json"),
            "gen_ai.response.model" = Empty,
            "gen_ai.response.id" = Empty,
            "gen_ai.response.finish_reasons" = Empty,
            "gen_ai.usage.input_tokens" = Empty,
            "gen_ai.usage.output_tokens" = Empty,
            "gen_ai.usage.cache_read.input_tokens" = Empty,
            "gen_ai.usage.reasoning.output_tokens" = Empty,
            "gen_ai.system_instructions" = Empty,
            "gen_ai.input.messages" = Empty,
            "gen_ai.output.messages" = Empty,
            "gen_ai.tool.definitions" = Empty,
            "error.type" = Empty,
        );
        if captures_content(&span) {
            if let Some(system) = &request.system {
                span.record("gen_ai.system_instructions", json(&content::instructions(system)));
            }
            span.record("gen_ai.input.messages", json(&content::input(&request.messages)));
            if !request.tools.is_empty() {
                span.record("gen_ai.tool.definitions", json(&content::tools(&request.tools)));
            }
        }
        span
    }
}

struct Operation<'a> {
    span: Span,
    call: ChatCall<'a>,
    begin: Instant,
    over: bool,
}

impl Operation<'_> {
    fn end(&mut self, response: Option<&ChatResponse>, error: Option<&str>) {
        self.over = true;
        if let Some(response) = response {
            self.record(response);
        }
        if let Some(error) = error {
            self.span.record("error.type", error);
            self.span.record("otel.status_code", "error");
        }
        #[cfg(feature = "opentelemetry")]
        {
            let (provider, model) = self.call.names();
            super::metrics::chat(provider, model, response, error, self.begin.elapsed());
        }
        #[cfg(not(feature = "opentelemetry"))]
        let _ = (self.begin, self.call);
    }

    fn record(&self, response: &ChatResponse) {
        let span = &self.span;
        if let Some(model) = told(response, "model") {
            span.record("gen_ai.response.model", model);
        }
        if let Some(id) = told(response, "id") {
            span.record("gen_ai.response.id", id);
        }
        let finish = finish_reason(response.finish);
        span.record("gen_ai.response.finish_reasons", json(&[finish]));
        let usage = response.usage;
        if !usage.is_zero() {
            span.record("gen_ai.usage.input_tokens", count(usage.input));
            span.record("gen_ai.usage.output_tokens", count(usage.output));
            span.record("gen_ai.usage.cache_read.input_tokens", count(usage.cached));
            span.record("gen_ai.usage.reasoning.output_tokens", count(usage.reasoning));
        }
        if captures_content(span) {
            let output = content::output(&response.parts, finish);
            span.record("gen_ai.output.messages", json(&output));
        }
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.end(None, Some(CANCELLED));
        }
    }
}

/// What the provider tells besides the answer.
pub(super) fn told<'a>(response: &'a ChatResponse, name: &str) -> Option<&'a str> {
    response.metadata.get(name)?.as_str()
}

fn error_type(error: &ModelError) -> String {
    match error {
        ModelError::Status { status, .. } => status.to_string(),
        error => error.code().to_owned(),
    }
}

fn finish_reason(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_call",
        FinishReason::Length => "length",
        FinishReason::Refusal => "content_filter",
        FinishReason::Other => "other",
    }
}

/// Exporters take signed numbers.
fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn json(value: &(impl serde::Serialize + ?Sized)) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
