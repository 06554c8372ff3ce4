//! What the macros make of valid input.

#[path = "macros/flows.rs"]
mod flows;
#[path = "macros/tools.rs"]
mod tools;
