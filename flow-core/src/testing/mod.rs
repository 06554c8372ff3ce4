//! What tests of flows and of their surroundings need.

pub mod conformance;
mod flow_test;
mod harness;
pub mod schema;

#[doc(inline)]
pub use crate::__store_conformance as store_conformance;
pub use flow_test::FlowTest;
pub use harness::{ManualClock, StepHarness};
pub use schema::assert_session_schema;
