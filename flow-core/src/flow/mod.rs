//! Flows: the struct that owns the steps, its hooks, its registry and its graph.

mod digest;
mod graph;
mod hooks;

pub use digest::digest;
pub use graph::{Edge, Graph, Node};
pub use hooks::{Drive, Flow, InitCx, Restore};

pub use crate::memory::MemoryPolicy;
pub use crate::step::{FlowMeta, HasStep, StepEntry, StepInfo, Steps};
