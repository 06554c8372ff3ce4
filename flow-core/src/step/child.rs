use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use serde_json::Value;

use crate::error::Error;
use crate::event::EventSink;
use crate::id::SessionId;
use crate::outcome::Outcome;
use crate::session::{Parent, SessionDoc};

/// A turn of a session that an effect begins or goes on with.
#[derive(Debug, Clone)]
pub(crate) struct ChildTurn {
    pub(crate) flow: String,
    pub(crate) session: SessionId,
    pub(crate) parent: Parent,
    /// Who a new session belongs to, and its labels.
    pub(crate) owner: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    /// The state with which it begins.
    pub(crate) state: Value,
    /// Makes the turn idempotent: the same one is asked for again when the effect is repeated.
    pub(crate) turn_id: String,
    pub(crate) message: Option<String>,
}

/// What a turn of a child came to.
#[derive(Debug, Clone)]
pub(crate) struct ChildOutcome {
    pub(crate) outcome: Outcome,
    /// All that the user was told.
    pub(crate) replies: Vec<String>,
}

type Running<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Runs the sessions that effects begin. The engine implements it.
pub(crate) trait Children: Send + Sync {
    /// The most items that a batch may have.
    fn batch_items(&self) -> usize;

    /// Runs a turn of a child to its next pause. Its events go to a sink; dropping the future
    /// cancels the turn.
    fn turn(&self, turn: ChildTurn, events: EventSink) -> Running<'_, ChildOutcome>;

    /// The document of a child as it was last committed.
    fn load<'a>(&'a self, session: &'a SessionId) -> Running<'a, Option<SessionDoc>>;
}
