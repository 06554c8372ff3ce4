//! What the macros make of valid input.

#[path = "macros/flows.rs"]
mod flows;
#[path = "macros/generics.rs"]
mod generics;
#[path = "macros/lints.rs"]
mod lints;
#[path = "macros/names.rs"]
mod names;
#[path = "macros/registry.rs"]
mod registry;
#[path = "macros/renamed.rs"]
mod renamed;
#[path = "macros/tools.rs"]
mod tools;
