use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Delivery;
use crate::id::SessionId;
use crate::outcome::Outcome;
use crate::session::{EffectOutcome, GateVerdict, Interrupt, Parent, Question};
use crate::transition::HandOff;

/// One turn to run.
///
/// ```
/// use flow_core::engine::TurnRequest;
/// use flow_core::id::SessionId;
///
/// let session = SessionId::new("user-17")?;
/// let request = TurnRequest::new(session).message("two parcels").turn_id("msg-000231");
/// # Ok::<(), flow_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TurnRequest {
    pub(crate) session: SessionId,
    pub(crate) message: Option<String>,
    pub(crate) turn_id: Option<String>,
    pub(crate) context: Map<String, Value>,
    pub(crate) owner: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) delivery: Option<Delivery>,
    /// Whether the turn is a sweeper's, for a session that is due.
    pub(crate) wakes: bool,
    /// The session that begins this one.
    pub(crate) parent: Option<Parent>,
    /// What the state of a new session is; nothing for the default.
    pub(crate) state: Option<Value>,
    /// What requests have come to, as the session that begins this one has learnt it.
    pub(crate) answers: Vec<(String, EffectOutcome)>,
    /// The flows that wait for the session, from the outermost one.
    pub(crate) callers: Vec<String>,
    /// Whether the session has to exist.
    pub(crate) goes_on: bool,
    /// Whether the session is taken back from the person who took over.
    pub(crate) releases: bool,
    /// Where the conversation goes for a while.
    pub(crate) digression: Option<HandOff>,
    /// The flow that the host has named, for a session that has gone to another one.
    pub(crate) named: Option<&'static str>,
}

impl TurnRequest {
    /// A turn without a message: it begins a conversation, or goes on with one that was
    /// interrupted, with what the user said then and no step has read.
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            message: None,
            turn_id: None,
            context: Map::new(),
            owner: None,
            labels: BTreeMap::new(),
            delivery: None,
            wakes: false,
            parent: None,
            state: None,
            answers: Vec::new(),
            callers: Vec::new(),
            goes_on: false,
            releases: false,
            digression: None,
            named: None,
        }
    }

    /// A turn for a session that is due.
    pub(super) fn wake(session: SessionId) -> Self {
        Self { wakes: true, ..Self::new(session) }
    }

    /// Delivers an answer in place of a message. Its
    /// [`signal_id`](Delivery::signal_id) is the id of the turn.
    #[must_use]
    pub fn deliver(mut self, delivery: Delivery) -> Self {
        self.message = None;
        self.digression = None;
        self.turn_id = delivery.turn_id();
        self.delivery = Some(delivery);
        self
    }

    /// Parks the flow in which the session is, and goes on in another one with what the user
    /// says: for a host that finds out what a message is about before it sends it.
    ///
    /// The other flow has the conversation for as many turns as it needs, with all that was
    /// said. When it ends, the parked flow comes back where it was, and in the same turn the
    /// user is asked again what was asked there. Give such turns a [`turn_id`](Self::turn_id):
    /// sent again without one, the turn digresses from the digression.
    ///
    /// A flow that waits for people, signals or times, or for a person who takes over, is not
    /// parked, since their answers have to find it: the turn ends with
    /// [`TurnError::DigressionRefused`](crate::error::TurnError::DigressionRefused) and has
    /// changed nothing. A flow that was parked is migrated when it comes back.
    ///
    /// ```
    /// use flow_core::engine::TurnRequest;
    /// use flow_core::id::SessionId;
    ///
    /// let session = SessionId::new("user-17")?;
    /// let request = TurnRequest::new(session).message("when do you open?").turn_id("m-9").digress("hours");
    /// # Ok::<(), flow_core::Error>(())
    /// ```
    #[must_use]
    pub fn digress(mut self, to: impl Into<HandOff>) -> Self {
        self.delivery = None;
        self.digression = Some(to.into());
        self
    }

    /// What the user says.
    #[must_use]
    pub fn message(mut self, text: impl Into<String>) -> Self {
        self.message = Some(text.into());
        self
    }

    /// An id that makes the turn idempotent: when a turn with this id has completed, its
    /// recorded outcome is returned and nothing runs. The session's latest 32 are kept.
    ///
    /// When a turn with this id was interrupted or failed after a crossing, it goes on from
    /// there: its message is neither recorded nor read a second time, and the outcome holds
    /// the replies since then.
    #[must_use]
    pub fn turn_id(mut self, id: impl Into<String>) -> Self {
        self.turn_id = Some(id.into());
        self
    }

    /// A value for the flow's `init` and its steps. It persists with the session, so keep
    /// secrets out.
    #[must_use]
    pub fn context(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.context.insert(key.into(), value.into());
        self
    }

    /// Who a new session belongs to. Has no effect on one that exists.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// A label of a new session. Has no effect on one that exists.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }
}

/// What a turn came to.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TurnOutcome {
    /// The session.
    pub session: SessionId,
    /// The turn: the caller's id, or a random one.
    pub turn: String,
    /// The revision of the document after the turn.
    pub revision: u64,
    /// The flow in which the session is.
    pub flow: String,
    /// The step at which the session stands.
    pub step: String,
    /// All that the user was told, in order: what steps said, feedback and questions.
    pub replies: Vec<String>,
    /// How the turn ended.
    pub outcome: Outcome,
    /// What the [gates](crate::flow::gate) of the flow said when it came to an end; empty for a
    /// flow that goes on.
    pub gates: Vec<GateVerdict>,
    /// Whether this is the recorded outcome of an earlier turn with the same id.
    pub repeated: bool,
}

impl TurnOutcome {
    /// What the user was asked, if the flow waits for an answer.
    pub fn question(&self) -> Option<&Question> {
        match &self.outcome {
            Outcome::Waiting { question } => question.as_ref(),
            _ => None,
        }
    }

    /// What the session waits for besides a message.
    pub fn interrupts(&self) -> &[Interrupt] {
        match &self.outcome {
            Outcome::Suspended { interrupts } => interrupts,
            _ => &[],
        }
    }

    /// Whether the flow is over.
    pub fn is_ended(&self) -> bool {
        matches!(self.outcome, Outcome::Ended { .. } | Outcome::HandedOff { .. })
    }
}
