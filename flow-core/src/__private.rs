//! What the macros name. Not part of the public API: it may change in any release.

pub use crate::step::{get_slot, set_slot};
pub use {schemars, serde, serde_json, std};
