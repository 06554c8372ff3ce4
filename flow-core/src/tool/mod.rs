//! Tools: typed functions that a model may call, or an action through its context.
//!
//! A tool is described by a [`ToolDefinition`], whose parameters are the JSON Schema of the
//! type that also reads the arguments, so that description and validation cannot differ.
//! [`arguments`] repairs what models get wrong where that is safe. `#[tools]` writes all of
//! this for the methods of an `impl` block. A [`ToolPolicy`] says whether a call that a model
//! asks for is made, and a [`ToolReplay`] what becomes of a call of an action that runs again.

pub mod arguments;
mod cache;
mod definition;
mod policy;
#[doc(hidden)]
pub mod returns;
pub mod signature;

pub(crate) use cache::declared;
pub use definition::{
    FlowTools, ToolCall, ToolCx, ToolDefinition, ToolOutcome, ToolOutput, ToolResult, WayOut,
};
pub use policy::{ToolPolicy, ToolReplay};
