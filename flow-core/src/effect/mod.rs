//! Effects: what an action does on the outside, and how it is done once.
//!
//! An action is plain code that may be interrupted anywhere: by a crash, or because it waits
//! for a person for three days. When it goes on, it *runs again from its beginning*, with
//! the fields, the shared state and the message that it had. What it does through its
//! [`ActionCx`](crate::step::ActionCx) is kept in a journal, in the session document: an effect that
//! is over is not done again, its recorded outcome is given back. So the code comes to the
//! place where it was, and goes on from there.
//!
//! Effects are: calls of tools and other work, the time and what is random, pauses, requests to
//! people and signals, [steps within the action](#steps-within-an-action), and
//! [other flows](#flows-within-an-action), called or run for each of many items.
//!
//! # What is done how often
//!
//! | | [`Durability::Effect`] | [`Durability::Crossing`], [`Durability::Turn`] |
//! | --- | --- | --- |
//! | an effect that is over when the action waits | once | once |
//! | an effect that is over when the turn fails | once | once |
//! | an effect that is over when a [gate](crate::flow::gate) holds the flow | once | once |
//! | an effect that is over when the turn is cut off | once, if another effect has begun since; else again with the same key | again with the same key |
//! | an effect that runs when the turn is cut off | again with the same key | again with the same key |
//!
//! A turn is cut off when the process dies, when it is cancelled, when code panics, and when the
//! store fails.
//!
//! A tool that honours its [idempotency key](crate::tool::ToolCx::idempotency_key) is done
//! exactly once in every case, if its arguments are made of what is kept: a `cx.uuid()` or
//! `cx.now()` of a run that was cut off is kept once a later effect has begun with
//! [`Durability::Effect`], and with the others once the action waits.
//!
//! The key is made of the session, the number of the visit, the place of the effect among those
//! of the visit, its name and the digest of its arguments. Visits are never numbered twice in a
//! session, so the same tool with the same arguments in a later visit has another key, and is
//! called. A visit that is [put back](crate::engine::SessionHandle::rewind) gets a new number,
//! and what was made in it counts as made under that. The digest of the flow is not part of the
//! key: a program that was rebuilt while a call was under way must not make the call twice.
//!
//! A tool may say that this is not right for it, with `#[tool(replay = ..)]`
//! ([`ToolReplay`](crate::tool::ToolReplay)):
//!
//! | | `by_key` (default) | `never` | `always` |
//! | --- | --- | --- | --- |
//! | a call whose result is recorded | once | once | by each run |
//! | a call that failed, in a turn that is sent again | again with the same key, unless the action has handled the error | the same error | by each run |
//! | a call that is over when the turn is cut off | as above | once | by each run |
//! | a call that runs when the turn is cut off | again with the same key | not again, but [`EffectError::InDoubt`](crate::error::EffectError::InDoubt) | by each run |
//!
//! A tool that is called `never` again is called at most once whatever the durability: the call
//! is recorded before and after it is made. `always` is for what is to be fresh, and does
//! nothing on the outside.
//!
//! # Steps within an action
//!
//! [`run_step`](crate::step::ActionCx::run_step) and
//! [`run_steps`](crate::step::ActionCx::run_steps) run other steps of the flow within the run
//! of an action. Such a step is an effect: when it is over, its fields, what it has made of the
//! shared state and what it has said are recorded, and it does not run again. Until then its
//! own effects are recorded at places of their own (`3_1` is effect number 1 of the step that
//! is effect number 3), and the table holds for them. A step that has failed keeps what it has
//! done: when the turn is sent again it goes on with that. When the action has handled the
//! failure, the step fails in the same way in every further run.
//!
//! # Flows within an action
//!
//! [`call_flow`](crate::step::ActionCx::call_flow) runs another flow until it has ended,
//! [`concurrent`](crate::step::ActionCx::concurrent) one for each of some items. They run in
//! sessions of their own, which commit what they do themselves, so the table holds for the
//! actions of those flows as it does for any. For the action around them, each call and each
//! batch is one effect. When its turn is cut off and it comes to that effect again, it finds the
//! same sessions by their ids and goes on with them; one that has ended is not run again.
//!
//! | | a step within | a called flow | a batch |
//! | --- | --- | --- | --- |
//! | runs in | this session | a session of its own | one session for each item |
//! | is given, and gives back | its input, its fields | its first and its last state | a state for each item, a [report](crate::step::BatchReport) |
//! | works on the shared state | yes; side by side on copies | no | no |
//! | speaks to the user | yes | through the caller | no |
//! | when it waits | the action waits | the action waits | that item is reported as waiting |
//! | when it fails | the action may handle that | the action may handle that | the item is tried again, then reported as failed |
//! | is limited by | [`Limits::step_depth`], [`Limits::branches`] | [`Limits::call_depth`] | [`Limits::call_depth`], [`Limits::batch_items`] |
//!
//! # What the code of an action must keep to
//!
//! * It is deterministic between effects: what it does next depends on its fields, the
//!   shared state, the message and the outcomes of effects alone. Time, randomness and
//!   requests come through the context: `cx.now()`, `cx.uuid()`, `cx.run(..)`.
//! * When it does something else than the journal says, the turn fails with
//!   [`EffectError::Diverged`](crate::error::EffectError::Diverged), which names both; the session can be
//!   [restarted](crate::engine::SessionHandle::restart_step) or
//!   [abandoned](crate::engine::SessionHandle::abandon).
//! * Effects may be made side by side with `join!`. Their places are taken in the order of
//!   the calls in the code, whatever finishes first. Steps and calls of flows have the context to
//!   themselves, so they are made one after the other: `run_steps` runs steps side by side, a
//!   batch runs flows.
//! * When every effect that runs waits for somebody, the action is put aside. Whatever else
//!   it awaits at that moment is dropped.
//!
//! [`Durability::Effect`]: crate::engine::Durability::Effect
//! [`Durability::Crossing`]: crate::engine::Durability::Crossing
//! [`Durability::Turn`]: crate::engine::Durability::Turn
//! [`Limits::batch_items`]: crate::engine::Limits::batch_items
//! [`Limits::branches`]: crate::engine::Limits::branches
//! [`Limits::call_depth`]: crate::engine::Limits::call_depth
//! [`Limits::step_depth`]: crate::engine::Limits::step_depth

mod decision;
mod journal;
mod place;
mod request;

pub use decision::{Approved, Decision, Denied};
pub(crate) use journal::call::{message_request, under_way};
pub(crate) use journal::{Begun, Journal, Running};
pub(crate) use place::Place;
pub use request::Request;
