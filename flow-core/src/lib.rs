//! Class-style flows with typed steps and durable, versioned session documents.

// The macros name this crate `::flow_core`, in its own tests and examples too.
#[allow(unused_extern_crates, reason = "only expanded code names it")]
extern crate self as flow_core;

pub mod engine;
pub mod error;
pub mod event;
pub mod flow;
pub mod id;
pub mod json;
mod ledger;
pub mod message;
pub mod model;
pub mod outcome;
pub mod session;
pub mod step;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod tool;
pub mod transition;

pub use {schemars, serde, serde_json};

pub use engine::{Durability, Engine, Limits, TurnHandle, TurnOutcome, TurnRequest};
pub use error::{Error, Result, StepError};

#[cfg(feature = "macros")]
pub use flow_macros::{flow, step, tool, tools};

#[doc(hidden)]
pub mod __private;
pub mod prelude;
