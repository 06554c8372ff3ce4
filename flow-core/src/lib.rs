//! Class-style flows with typed steps and durable, versioned session documents.

pub mod error;
pub mod event;
pub mod id;
pub mod json;
pub mod message;
pub mod outcome;
pub mod session;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;

pub use error::{Error, Result, StepError};
