use std::time::Duration;

use serde_json::Value;

use crate::json;
use crate::session::{Display, Operation};
use crate::tool::ToolCall;

/// What a person is asked to approve.
///
/// A text is a request without a deadline.
///
/// ```
/// use std::time::Duration;
/// use flow_core::effect::ApprovalRequest;
///
/// let request = ApprovalRequest::new("Charge 120 euros")
///     .description("The limit without approval is 100 euros.")
///     .deadline(Duration::from_secs(3 * 24 * 3600));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRequest {
    pub(crate) display: Display,
    pub(crate) deadline: Option<Duration>,
    pub(crate) approve_on_expiry: bool,
    pub(crate) operation: Option<Operation>,
}

impl ApprovalRequest {
    /// A request of one line.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            display: Display { title: title.into(), description: String::new() },
            deadline: None,
            approve_on_expiry: false,
            operation: None,
        }
    }

    /// Says more.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.display.description = text.into();
        self
    }

    /// How long it waits for a decision. After that it is denied. Default: for ever.
    #[must_use]
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.deadline = Some(limit);
        self
    }

    /// Lets it be approved when nobody has decided until the deadline.
    #[must_use]
    pub fn approve_on_expiry(mut self) -> Self {
        self.approve_on_expiry = true;
        self
    }

    /// The tool call that is to be approved: it is shown with its arguments, and an answer
    /// may name their digest, so that nobody approves another call than they were shown.
    #[must_use]
    pub fn operation<F, T: ToolCall<F>>(mut self, call: &T) -> Self {
        let arguments = serde_json::to_value(call).unwrap_or(Value::Null);
        let argument_hash = json::digest(&arguments);
        self.operation = Some(Operation { tool: T::NAME.to_owned(), arguments, argument_hash });
        self
    }
}

impl<T: Into<String>> From<T> for ApprovalRequest {
    fn from(title: T) -> Self {
        Self::new(title)
    }
}
