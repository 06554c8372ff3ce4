//! The session document: everything about one conversation that persists.
//!
//! [`SessionDoc`] is the document, [`Delta`] what one commit changes in it, and
//! [`ArchiveEntry`] what has moved out of it so that it stays small. [`Migrations`] bring
//! documents of older versions of a flow up to date. How documents are kept is the
//! business of [`store`](crate::store).

mod batch;
mod call;
mod delta;
mod doc;
mod effect;
mod gate;
mod interrupt;
mod migration;
mod moves;
mod parent;
mod raw;
mod round;
#[cfg(feature = "testing")]
pub(crate) mod schema;

pub use batch::{ItemGroup, ItemOutcome, ItemSet, ItemSetError};
pub use call::{CallInput, PendingCall};
pub use delta::{Appended, Delta, MemoryDelta};
pub use doc::{
    ArchiveEntry, ArchiveMark, ArchivedMessage, ContextStart, EdgeCount, ErrorRecord, FlowRef,
    Lease, Memory, PathEntry, Question, ReadError, SessionDoc, Status, Summary, TurnRecord, Visit,
    Waiting,
};
pub use doc::{FORMAT, MAIN_MEMORY, PATH_WINDOW, TURN_WINDOW};
pub use effect::{EffectKind, EffectOutcome, EffectRecord, FrameRecord};
pub use gate::GateVerdict;
pub use interrupt::{Display, Interrupt, Operation};
pub use migration::Migrations;
pub use moves::FlowMoves;
pub use parent::{Parent, Relation};
pub use raw::RawDoc;
pub use round::{AskedCall, PendingRound};
