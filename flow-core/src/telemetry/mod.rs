//! What the engine tells [`tracing`] and OpenTelemetry about models and tools, in the words
//! of the OpenTelemetry semantic conventions for generative AI (those of
//! `semantic-conventions-genai` as of autumn 2026, which are still in development).
//!
//! # Spans
//!
//! A layer such as that of `tracing-opentelemetry` exports them; the fields `otel.name`,
//! `otel.kind` and `otel.status_code` tell it their name, kind and status. Within the spans
//! of its turn and step, each call of a model is a span `chat {model}` of kind client, with
//! all its attempts, and each call of a tool a span `execute_tool {tool}`.
//!
//! | attribute | of | |
//! | --- | --- | --- |
//! | `gen_ai.operation.name` | both | `chat`, `execute_tool` |
//! | `gen_ai.conversation.id` | both | the session, within a turn |
//! | `error.type` | both | when it failed: the HTTP status, else the error's code; `cancelled` when its turn was |
//! | `gen_ai.provider.name` | chat | the provider, by the convention's name where it has one: `gcp.gemini`, `x_ai` |
//! | `gen_ai.request.model` | chat | the provider's name of the model |
//! | `gen_ai.request.temperature`, `.top_p`, `.max_tokens`, `.seed`, `.stop_sequences` | chat | when set |
//! | `gen_ai.request.stream` | chat | when it is streamed |
//! | `gen_ai.output.type` | chat | `json`, when a form is asked for |
//! | `gen_ai.response.model`, `.id` | chat | when the provider tells |
//! | `gen_ai.response.finish_reasons` | chat | one of `stop`, `tool_call`, `length`, `content_filter`, `other` |
//! | `gen_ai.usage.input_tokens`, `.output_tokens`, `.cache_read.input_tokens`, `.reasoning.output_tokens` | chat | when the provider tells |
//! | `gen_ai.tool.name`, `gen_ai.tool.call.id`, `gen_ai.tool.type` | tool | |
//!
//! Fields of spans have no lists, so `finish_reasons` and `stop_sequences` are written as
//! JSON.
//!
//! # Metrics
//!
//! With the feature `opentelemetry` these histograms are recorded by the global meter
//! provider, which has to be set before the first turn, with the buckets of the convention:
//! `gen_ai.client.token.usage`, `gen_ai.client.operation.duration` and
//! `gen_ai.execute_tool.duration`. The library has no exporter.
//!
//! # Content
//!
//! What users, models and tools say is in no span. It is when the environment variable
//! [`CAPTURE_CONTENT`] is `SPAN_ONLY`, `SPAN_AND_EVENT` or `true` at the first call: then
//! `gen_ai.system_instructions`, `gen_ai.input.messages`, `gen_ai.output.messages`,
//! `gen_ai.tool.definitions`, `gen_ai.tool.call.arguments` and `gen_ai.tool.call.result` are
//! written too, as JSON in the convention's forms. They hold whatever is personal or secret
//! in a conversation.

mod chat;
mod content;
#[cfg(feature = "opentelemetry")]
mod metrics;
mod tool;

use std::sync::LazyLock;

pub(crate) use chat::{ChatCall, chat};
pub(crate) use tool::{ToolSpan, execute_tool};

/// The environment variable that lets content into spans. It is the one of OpenTelemetry's
/// own instrumentations.
pub const CAPTURE_CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// What `error.type` is when the caller gives up.
const CANCELLED: &str = "cancelled";

static CAPTURES: LazyLock<bool> =
    LazyLock::new(|| std::env::var(CAPTURE_CONTENT).is_ok_and(|value| asks_for_content(&value)));

/// Whether content may be written to a span.
fn captures_content(span: &tracing::Span) -> bool {
    *CAPTURES && !span.is_disabled()
}

fn asks_for_content(value: &str) -> bool {
    ["span_only", "span_and_event", "true"].contains(&value.trim().to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_asked_for_in_so_many_words() {
        for value in ["SPAN_ONLY", "span_and_event", " true "] {
            assert!(asks_for_content(value), "{value}");
        }
        for value in ["", "NO_CONTENT", "EVENT_ONLY", "false", "0"] {
            assert!(!asks_for_content(value), "{value}");
        }
    }
}
