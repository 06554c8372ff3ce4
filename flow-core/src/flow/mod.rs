//! Flows: the struct that owns the steps, its hooks, its registry and its graph.

mod digest;
pub mod gate;
mod graph;
mod hooks;

pub use digest::digest;
pub use gate::{Gates, Judge, Verdict};
pub use graph::{Edge, Graph, Node};
pub use hooks::{Drive, Flow, InitCx, Restore};

pub use crate::memory::MemoryPolicy;
pub use crate::step::{FlowMeta, HasStep, StepEntry, StepInfo, Steps};
