//! What a flow's author needs: `use flow_core::prelude::*;`

pub use crate::effect::{Decision, Denied, Request};
pub use crate::error::{Result, StepError};
pub use crate::flow::{
    Drive, Flow, FlowMeta, Gates, Graph, InitCx, Judge, Restore, Steps, Verdict,
};
pub use crate::id::SessionId;
pub use crate::memory::{MemoryPolicy, SummaryPolicy};
pub use crate::session::{Migrations, Question, SessionDoc};
pub use crate::step::{
    Action, ActionCx, Branches, Check, Collect, Confirm, Crossing, Decide, FailurePolicy, Form,
    Gate, Prompt, Recovery, Reducers, Reply, Slot, Step, StepCx,
};
pub use crate::tool::{ToolCall, ToolCx, ToolOutcome, ToolPolicy, ToolReplay, ToolResult};
pub use crate::transition::{HandOff, Next, Transition};

pub use schemars::JsonSchema;
pub use serde::{Deserialize, Serialize};

#[cfg(feature = "macros")]
pub use flow_macros::{flow, step, tool, tools};
