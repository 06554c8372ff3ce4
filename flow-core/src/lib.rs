//! Class-style flows with typed steps and durable, versioned session documents.
//!
//! A *flow* is a struct with [`#[flow]`](macro@flow), its *steps* are structs with
//! [`#[step]`](macro@step). What a step may return is an enum of exactly the ways out that it
//! declares. An [`Engine`] takes one input at a time (a *turn*) to its next pause and keeps
//! the conversation (a *session*) in one document of a [store].
//!
//! ```
//! use flow_core::prelude::*;
//! use flow_core::store::memory::MemoryStore;
//! use flow_core::{Engine, TurnRequest};
//!
//! /// Counts what it hears.
//! #[flow(id = "counter", steps(Count))]
//! #[derive(Clone)]
//! struct Counter;
//!
//! impl Flow for Counter {}
//!
//! #[step(action, next(stay))]
//! #[derive(Default, Serialize, Deserialize, JsonSchema)]
//! struct Count {
//!     heard: u32, // persisted with the session
//! }
//!
//! impl Action for Count {
//!     type Flow = Counter;
//!
//!     async fn run(&mut self, cx: &mut ActionCx<'_, Counter>) -> Result<CountNext> {
//!         self.heard += u32::from(cx.take_message().is_some());
//!         cx.say(format!("{} so far", self.heard));
//!         Ok(CountNext::Stay)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! let engine = Engine::builder().store(MemoryStore::new()).flow(Counter).build()?;
//! let session = SessionId::new("ada")?;
//! for expected in ["1 so far", "2 so far"] {
//!     let turn = engine.turn::<Counter>(TurnRequest::new(session.clone()).message("hi"));
//!     assert_eq!(turn.await?.replies, [expected]);
//! }
//! # Ok(()) }
//! ```
//!
//! # Where things are
//!
//! | module | holds |
//! | --- | --- |
//! | [`prelude`] | what a flow's author needs |
//! | [`engine`] | turns, limits, durability, bulk migration, sweeps |
//! | [`flow`](mod@flow) | the hooks of a flow, its registry and its picture |
//! | [`step`](mod@step) | the four kinds of steps and their contexts |
//! | [`transition`] | what moves a flow |
//! | [`effect`] | what an action does on the outside, once |
//! | [`tool`](mod@tool) | tools, their arguments and the repair of those |
//! | [`session`] | the session document and its migrations |
//! | [`model`] | models, providers, how they are called |
//! | [`store`] | where documents live |
//! | [`event`], [`outcome`] | what a turn tells, and how it ends |
//! | [`telemetry`] | spans and metrics of models and tools |
//! | [`error`] | all errors |
//! | `testing` (feature) | store conformance, schema snapshots, steps without an engine |
//!
//! # Features
//!
//! `macros` and `sqlite` are on by default; `mongodb` adds the MongoDB store, `providers` the
//! models of real providers, `opentelemetry` metrics, and `testing` what tests need.

// The macros name this crate `::flow_core`, in its own tests and examples too.
#[allow(unused_extern_crates, reason = "only expanded code names it")]
extern crate self as flow_core;

pub mod effect;
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
mod panic;
pub mod session;
pub mod step;
pub mod store;
pub mod telemetry;
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
