//! What a model is shown of a conversation, and what stays of it in the document.
//!
//! A conversation is kept by memory namespaces (`#[step(memory = "..")]`); steps that name
//! the same one share it. Nothing that was said is ever deleted. Three things decide what a
//! model is shown of it:
//!
//! * [`MemoryPolicy`] says how many messages and how many tokens at most. The latest message
//!   of the user is always shown, also when it alone is more than that.
//! * With a [`SummaryPolicy`] the oldest messages are shown as a summary that a model has
//!   written of them.
//! * The [`ContextStrategy`] of a step says what it sees of the time before it was entered.
//!
//! The system prompt is not part of a conversation: it is made anew for each request and
//! never stored.
//!
//! # Order
//!
//! Providers refuse a conversation out of order: one that begins or ends with the words of
//! the assistant, a tool call without its result, a result without its call. So a tool call
//! and its results are one group, and no cut goes through a group, be it that of a window, a
//! summary or a strategy. What is out of order in a document all the same, after a crash or
//! in one that was written by hand, is put in order when it is shown and stays in the
//! document as it is: a result without its call is left out, a call without a result gets
//! one that says so, messages of one role that follow each other are joined. Where the
//! assistant would speak first or last, the user says [`OPENING`] or [`GO_ON`].
//!
//! # Summaries
//!
//! A summary is made when a reply step is about to ask its model, before the request, so that
//! its answer already builds on it. It is shown as the user's first message, not as part of
//! the system prompt, since it is made of what users and tools have said and has no more
//! authority than they have. Each one takes in the one before. A summary that fails is told
//! by an event, loses nothing, and is not tried again in the same turn.

mod group;
mod order;
mod policy;
mod shown;
mod strategy;
mod summary;
#[cfg(test)]
mod tests;
mod tokens;
mod view;

pub use order::{GO_ON, NO_RESULT, OPENING};
pub use policy::{MemoryPolicy, SummaryPolicy};
pub use strategy::ContextStrategy;
pub use summary::SUMMARY_BYTES;
pub use tokens::{BYTES_PER_TOKEN, FILE_TOKENS, IMAGE_TOKENS, MESSAGE_TOKENS, estimate_tokens};

pub(crate) use group::cut_at;
pub(crate) use order::{frame, join};
pub(crate) use shown::{recalled, shown};
pub(crate) use strategy::{keep_last, reset, reset_with_summary};
pub(crate) use summary::{Fold, fold_due, read_summary};
pub(crate) use view::{Marks, View};
