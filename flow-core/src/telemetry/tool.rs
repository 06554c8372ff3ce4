use serde_json::Value;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::{CANCELLED, captures_content};
use crate::error::ToolError;

/// A call of a tool.
#[derive(Clone, Copy)]
pub(crate) struct ToolSpan<'a> {
    pub(crate) tool: &'a str,
    /// The id of the call.
    pub(crate) id: &'a str,
    pub(crate) arguments: &'a Value,
    /// The session.
    pub(crate) conversation: &'a str,
}

/// Runs a call of a tool in its span, and records how it ends. The result is written as a
/// value only when content is captured.
pub(crate) async fn execute_tool<T>(
    call: ToolSpan<'_>,
    running: impl Future<Output = Result<T, ToolError>>,
    result: impl FnOnce(&T) -> Value,
) -> Result<T, ToolError> {
    let span = call.span();
    let begin = Instant::now();
    let mut operation = Operation { span: span.clone(), tool: call.tool, begin, over: false };
    let returned = running.instrument(span).await;
    match &returned {
        Ok(output) => {
            if captures_content(&operation.span) {
                let result = result(output).to_string();
                operation.span.record("gen_ai.tool.call.result", result);
            }
            operation.end(None);
        }
        Err(error) => operation.end(Some(error.code())),
    }
    returned
}

impl ToolSpan<'_> {
    fn span(&self) -> Span {
        let span = tracing::info_span!(
            "execute_tool",
            "otel.name" = format!("execute_tool {}", self.tool),
            "otel.kind" = "internal",
            "otel.status_code" = Empty,
            "gen_ai.operation.name" = "execute_tool",
            "gen_ai.conversation.id" = self.conversation,
            "gen_ai.tool.name" = self.tool,
            "gen_ai.tool.call.id" = self.id,
            "gen_ai.tool.type" = "function",
            "gen_ai.tool.call.arguments" = Empty,
            "gen_ai.tool.call.result" = Empty,
            "error.type" = Empty,
        );
        if captures_content(&span) {
            span.record("gen_ai.tool.call.arguments", self.arguments.to_string());
        }
        span
    }
}

struct Operation<'a> {
    span: Span,
    tool: &'a str,
    begin: Instant,
    over: bool,
}

impl Operation<'_> {
    fn end(&mut self, error: Option<&str>) {
        self.over = true;
        if let Some(error) = error {
            self.span.record("error.type", error);
            self.span.record("otel.status_code", "error");
        }
        #[cfg(feature = "opentelemetry")]
        super::metrics::tool(self.tool, error, self.begin.elapsed());
        #[cfg(not(feature = "opentelemetry"))]
        let _ = (self.begin, self.tool);
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.end(Some(CANCELLED));
        }
    }
}
