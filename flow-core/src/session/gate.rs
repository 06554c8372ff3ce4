use serde::{Deserialize, Serialize};

/// What a [gate](crate::flow::Gates) of the flow said when the flow would have ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateVerdict {
    /// The gate.
    pub gate: String,
    /// Whether the run passes.
    pub passed: bool,
    /// Whether the flow does not end unless the run passes. True for every gate that could not
    /// run, an advisory one too.
    pub blocking: bool,
    /// Whether the gate could run. One that could not has not passed.
    pub ran: bool,
    /// Why: the words of the gate, or why it could not run; at most
    /// [`REASON_BYTES`](crate::flow::gate::REASON_BYTES). Nothing for one that gave no reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl GateVerdict {
    /// Whether it holds the flow.
    pub fn holds(&self) -> bool {
        self.blocking && !self.passed
    }
}
