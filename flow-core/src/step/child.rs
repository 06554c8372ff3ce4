use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use serde_json::{Map, Value};

use crate::error::Error;
use crate::event::EventSink;
use crate::id::SessionId;
use crate::outcome::Outcome;
use crate::session::{EffectOutcome, Parent, SessionDoc};

/// A turn of a session that an effect begins or goes on with.
#[derive(Debug, Clone)]
pub(crate) struct ChildTurn {
    pub(crate) flow: String,
    pub(crate) session: SessionId,
    pub(crate) parent: Parent,
    /// Who a new session belongs to, and its labels.
    pub(crate) owner: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    /// The flows that wait for it, from the outermost one.
    pub(crate) callers: Vec<String>,
    /// The state with which it begins.
    pub(crate) state: Value,
    /// Makes the turn idempotent: the same one is asked for again when the effect is repeated.
    pub(crate) turn_id: String,
    pub(crate) message: Option<String>,
    /// What requests of the session have come to, by its own request ids.
    pub(crate) answers: Vec<(String, EffectOutcome)>,
    /// Whether the session exists already.
    pub(crate) goes_on: bool,
    /// Whether a person who had taken the session over has given it back.
    pub(crate) releases: bool,
    /// The context of the session that begins it.
    pub(crate) context: Map<String, Value>,
}

/// What a turn of a child came to.
#[derive(Debug, Clone)]
pub(crate) struct ChildOutcome {
    pub(crate) outcome: Outcome,
    /// All that the user was told.
    pub(crate) replies: Vec<String>,
    /// Whether it is the recorded outcome of an earlier turn, so that no events were told.
    pub(crate) repeated: bool,
}

type Running<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Runs the sessions that effects begin. The engine implements it.
pub(crate) trait Children: Send + Sync {
    /// Runs a turn of a child to its next pause. Its events go to a sink; dropping the future
    /// cancels the turn.
    fn turn(&self, turn: ChildTurn, events: EventSink) -> Running<'_, ChildOutcome>;

    /// The document of a child as it was last committed.
    fn load<'a>(&'a self, session: &'a SessionId) -> Running<'a, Option<SessionDoc>>;
}
