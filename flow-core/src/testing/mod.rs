//! What tests of flows and of their surroundings need.

pub mod conformance;

#[doc(inline)]
pub use crate::__store_conformance as store_conformance;
mod harness;
pub use harness::{ManualClock, StepHarness};
