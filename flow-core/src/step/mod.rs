//! Steps: the stages of a flow.
//!
//! A step is a struct with `#[step]`; its fields are its persisted state. There are four
//! kinds, each a trait that the step implements:
//!
//! | kind | trait | what it does |
//! | --- | --- | --- |
//! | reply | [`Reply`] | speaks |
//! | collect | [`Collect`] | fills a form |
//! | action | [`Action`] | does work |
//! | decide | [`Decide`] | branches on structured data |
//! | decide, confirm | [`Confirm`] | asks a question of yes or no, and branches on the answer |
//!
//! [`Step`] is what `#[step]` implements: names, input, ways out. The kind's trait holds
//! what a user overrides. Each method gets a [`StepCx`], an action an [`ActionCx`].

mod action;
mod action_cx;
mod answer;
mod approval;
mod batch;
mod call;
pub(crate) mod child;
mod collect;
pub mod confirm;
mod cx;
mod decide;
mod driver;
mod effect;
mod erased;
mod extract;
pub(crate) mod frame;
mod generate;
mod hooks;
mod meta;
mod parallel;
pub(crate) mod recall;
mod recovery;
mod reducer;
mod registry;
mod reply;
pub mod resolve;
mod round;
mod slot;
mod speaker;
mod structured;

pub(crate) use crate::event::EventSink;
pub use action::Action;
pub use action_cx::ActionCx;
pub use answer::{Answer, Approve};
pub use batch::{
    BATCH_CONCURRENCY, BATCH_RECORD_ITEMS, BATCH_RECORDS, BATCH_RETRIES, BatchReport, Concurrent,
    ITEM_BUSY_PATIENCE, ITEM_FIRST_WAIT, ITEM_LONGEST_WAIT, ITEM_TEXT_BYTES, ItemReport,
};
pub use call::Finished;
pub(crate) use child::Children;
pub use collect::Collect;
pub use confirm::Confirm;
pub use cx::StepCx;
pub(crate) use cx::{Effect, Scope};
pub use decide::Decide;
pub use driver::{FlowOf, StepKind};
pub(crate) use driver::{Ran, run_until_stuck};
pub(crate) use erased::{Arrival, DynStep, arrive, dispatch};
pub(crate) use frame::FrameLimits;
pub use generate::CHECK_RETRIES;

pub use hooks::{Crossing, Gate};
pub use meta::{
    Exposure, FlowMeta, HasStep, Kind, Prompt, Step, StepTools, ToolFuture, ToolHost,
    ToolsRegistered, kind,
};
pub use parallel::{
    BRANCH_CONCURRENCY, BRANCH_GRACE, BranchKey, BranchResults, Branches, FailurePolicy,
};
pub(crate) use recovery::AskFlow;
pub use recovery::Recovery;
pub use reducer::Reducers;
pub(crate) use registry::{Misfit, read};
pub use registry::{StepEntry, StepInfo, Steps};
pub use reply::{Check, Reply};
pub use slot::{Form, Pattern, Resolver, Slot, SlotField};
pub(crate) use speaker::{Models, Speaker, Speakers};
pub(crate) use structured::judge;
