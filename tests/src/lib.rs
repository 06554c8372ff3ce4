//! What the integration tests share.

pub mod batch_flow;
pub mod failing_store;
pub mod lasting;
pub mod model_server;
pub mod mongo_server;
pub mod ordering;
pub mod other_flow;
#[cfg(test)]
mod readme;
pub mod recording_store;
pub mod route_flow;
mod test_tools;

/// The examples of the project's README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
