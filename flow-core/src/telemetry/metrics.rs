//! The histograms of the convention, made by the global meter provider.

use std::sync::LazyLock;
use std::time::Duration;

use opentelemetry::metrics::Histogram;
use opentelemetry::{KeyValue, global};

use super::chat::told;
use crate::model::ChatResponse;

struct Instruments {
    tokens: Histogram<u64>,
    duration: Histogram<f64>,
    tool_duration: Histogram<f64>,
}

static INSTRUMENTS: LazyLock<Instruments> = LazyLock::new(|| {
    let meter = global::meter("flow-core");
    let tokens: Vec<f64> = (0..14).map(|n| 4_f64.powi(n)).collect();
    let seconds: Vec<f64> = (0..14).map(|n| 0.01 * 2_f64.powi(n)).collect();
    Instruments {
        tokens: meter
            .u64_histogram("gen_ai.client.token.usage")
            .with_description("Number of input and output tokens used.")
            .with_unit("{token}")
            .with_boundaries(tokens)
            .build(),
        duration: meter
            .f64_histogram("gen_ai.client.operation.duration")
            .with_description("GenAI operation duration.")
            .with_unit("s")
            .with_boundaries(seconds.clone())
            .build(),
        tool_duration: meter
            .f64_histogram("gen_ai.execute_tool.duration")
            .with_description("The duration of a single tool execution.")
            .with_unit("s")
            .with_boundaries(seconds)
            .build(),
    }
});

pub(super) fn chat(
    provider: &str,
    model: &str,
    response: Option<&ChatResponse>,
    error: Option<&str>,
    duration: Duration,
) {
    let mut attributes = vec![
        KeyValue::new("gen_ai.operation.name", "chat"),
        KeyValue::new("gen_ai.provider.name", provider.to_owned()),
        KeyValue::new("gen_ai.request.model", model.to_owned()),
    ];
    if let Some(model) = response.and_then(|response| told(response, "model")) {
        attributes.push(KeyValue::new("gen_ai.response.model", model.to_owned()));
    }
    if let Some(response) = response {
        let usage = response.usage;
        for (kind, tokens) in [("input", usage.input), ("output", usage.output)] {
            // Zero where the provider does not say.
            if tokens > 0 {
                let kind = KeyValue::new("gen_ai.token.type", kind);
                let attributes = [attributes.as_slice(), &[kind]].concat();
                INSTRUMENTS.tokens.record(tokens, &attributes);
            }
        }
    }
    if let Some(error) = error {
        attributes.push(KeyValue::new("error.type", error.to_owned()));
    }
    INSTRUMENTS.duration.record(duration.as_secs_f64(), &attributes);
}

pub(super) fn tool(tool: &str, error: Option<&str>, duration: Duration) {
    let mut attributes = vec![
        KeyValue::new("gen_ai.tool.name", tool.to_owned()),
        KeyValue::new("gen_ai.tool.type", "function"),
    ];
    if let Some(error) = error {
        attributes.push(KeyValue::new("error.type", error.to_owned()));
    }
    INSTRUMENTS.tool_duration.record(duration.as_secs_f64(), &attributes);
}
