/// A tool call that did not give a result.
///
/// [`Arguments`](Self::Arguments) and [`Unknown`](Self::Unknown) are the caller's fault and
/// are answered to the model; [`Failed`](Self::Failed) is what the tool itself returned, or
/// that it panicked or took too long.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// No tool has this name.
    #[error("there is no tool `{tool}`; known tools: {known}")]
    Unknown {
        /// The name that was called.
        tool: String,
        /// The tools that exist.
        known: String,
    },
    /// The arguments do not fit the tool's schema and could not be repaired.
    #[error("invalid arguments for tool `{tool}` at `{path}`: {reason}")]
    Arguments {
        /// The tool.
        tool: String,
        /// Where in the arguments, e.g. `rooms[1].guests`; `.` is the whole.
        path: String,
        /// What does not fit.
        reason: String,
    },
    /// The result of the tool cannot be written as JSON.
    #[error("the result of tool `{tool}` cannot be written as JSON: {reason}")]
    Result {
        /// The tool.
        tool: String,
        /// What does not fit.
        reason: String,
    },
    /// The [policy](crate::tool::ToolPolicy) does not let a model make the call.
    #[error("tool `{tool}` was not called: {reason}")]
    Denied {
        /// The tool.
        tool: String,
        /// Why.
        reason: String,
    },
    /// The tool returned an error.
    #[error("tool `{tool}` failed: {reason}")]
    Failed {
        /// The tool.
        tool: String,
        /// What the tool said.
        reason: String,
        /// Whether calling it again may help.
        retryable: bool,
    },
}

impl ToolError {
    /// A stable kebab-case name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "unknown-tool",
            Self::Arguments { .. } => "invalid-arguments",
            Self::Result { .. } => "invalid-result",
            Self::Denied { .. } => "tool-denied",
            Self::Failed { .. } => "tool-failed",
        }
    }

    /// Whether the same call may succeed when it is made again.
    pub fn retryable(&self) -> bool {
        matches!(self, Self::Failed { retryable: true, .. })
    }
}
