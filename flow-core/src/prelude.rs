//! What a flow's author needs: `use flow_core::prelude::*;`

pub use crate::error::{Result, StepError};
pub use crate::flow::{Drive, Flow, FlowMeta, Graph, InitCx, Restore, Steps};
pub use crate::id::SessionId;
pub use crate::memory::{MemoryPolicy, SummaryPolicy};
pub use crate::session::{Migrations, Question, SessionDoc};
pub use crate::step::{
    Action, ActionCx, Check, Collect, Confirm, Crossing, Decide, Form, Gate, Prompt, Recovery,
    Reply, Slot, Step, StepCx,
};
pub use crate::tool::{ToolCall, ToolCx, ToolOutcome, ToolPolicy, ToolResult};
pub use crate::transition::{HandOff, Next, Transition};

pub use schemars::JsonSchema;
pub use serde::{Deserialize, Serialize};

#[cfg(feature = "macros")]
pub use flow_macros::{flow, step, tool, tools};
