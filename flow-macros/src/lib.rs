//! The attribute macros of `flow-core`.
