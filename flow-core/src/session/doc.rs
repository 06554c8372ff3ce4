use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{EffectRecord, FlowMoves, GateVerdict, Interrupt, Parent, PendingRound};
use crate::id::SessionId;
use crate::message::Message;
use crate::model::TokenUsage;
use crate::outcome::Outcome;
use crate::time::Timestamp;

/// The version of the layout of [`SessionDoc`] that this program writes.
///
/// It is the framework's own and is migrated by the framework; a flow's
/// [`version`](SessionDoc::version) is the flow's.
pub const FORMAT: u32 = 1;

/// How many path entries stay in the document; older ones move to the archive.
pub const PATH_WINDOW: usize = 32;

/// How many outcomes of turns with a caller's id are kept, so that a repeated turn is
/// answered without running.
pub const TURN_WINDOW: usize = 32;

/// The memory namespace of steps that name none.
pub const MAIN_MEMORY: &str = "main";

/// One conversation, as it persists.
///
/// Everything in it has a stable name: no Rust type name or code path is stored. Dates are
/// RFC 3339 strings in JSON and real dates in stores that have them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionDoc {
    /// The session.
    #[serde(rename = "_id")]
    pub id: SessionId,
    /// The flow that the session runs.
    pub flow: FlowRef,
    /// The layout of this document, see [`FORMAT`].
    pub format: u32,
    /// The document version that the flow declares; what migrations move between.
    pub version: u32,
    /// Plus one with every commit; the compare-and-set token.
    pub revision: u64,
    /// What the session is doing.
    pub status: Status,
    /// The persisted name of the step at which the session stands.
    pub current_step: String,
    /// The stay at the current step.
    pub visit: Visit,
    /// The state that all steps share.
    pub state: Value,
    /// The fields of each step that has been visited, by persisted name.
    pub steps: BTreeMap<String, Value>,
    /// The latest messages, by namespace.
    pub memory: BTreeMap<String, Memory>,
    /// Values that the flow's `init` put there and that later turns may read.
    #[serde(default)]
    pub context: Map<String, Value>,
    /// The latest steps that were entered; at most [`PATH_WINDOW`] plus one batch.
    pub path: Vec<PathEntry>,
    /// The outcomes of the latest turns that had a caller's id; at most [`TURN_WINDOW`].
    pub turns: Vec<TurnRecord>,
    /// How often each edge was crossed since the user last said something.
    #[serde(default)]
    pub edges: Vec<EdgeCount>,
    /// The effects of the action that runs or waits, by their keys; empty once its run is
    /// over.
    #[serde(default)]
    pub effects: BTreeMap<String, EffectRecord>,
    /// What the session waits for.
    #[serde(default)]
    pub waiting: Option<Waiting>,
    /// When a sweeper takes the session up by itself: a timer that ends, or the moment at
    /// which the session was found with a dead worker. Stores list what is
    /// [due](crate::store::ListQuery::due). Nothing for a session that only waits for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Timestamp>,
    /// Why the session has ended, once it has.
    #[serde(default)]
    pub ended: Option<String>,
    /// What the gates of the flow said when it last came to an end, in their order. Empty
    /// again once the next turn that runs a step has committed something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateVerdict>,
    /// Why the last turn failed, if it did.
    #[serde(default)]
    pub error: Option<ErrorRecord>,
    /// What models have cost in this session.
    #[serde(default, skip_serializing_if = "TokenUsage::is_zero")]
    pub usage: TokenUsage,
    /// The seq of the next message.
    pub next_message: u64,
    /// What has moved to the archive.
    pub archive: ArchiveMark,
    /// How many documents this one has superseded.
    #[serde(default)]
    pub superseded: u32,
    /// The session that has begun this one; nothing for one that a host has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// How the conversation came to this flow; nothing while it is where it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<FlowMoves>,
    /// Who the session belongs to, for the host to set and to filter by.
    #[serde(default)]
    pub owner: Option<String>,
    /// Labels for the host to set.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Who works on the session. Written by the store alone.
    pub lease: Lease,
    /// When the session began.
    pub created_at: Timestamp,
    /// When the last commit was made, except that of a migration.
    pub updated_at: Timestamp,
    /// When the store may delete it.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
}

/// Why a stored value is not a session document that this program can use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The layout is newer than [`FORMAT`].
    #[error("the document has format {found}, this program knows up to {FORMAT}")]
    FromFuture {
        /// What the document says.
        found: u32,
    },
    /// A field is missing or has the wrong type.
    #[error("`{path}`: {reason}")]
    Invalid {
        /// Where.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

impl SessionDoc {
    /// Reads a document from what a store has kept, in this format or an earlier one.
    ///
    /// # Errors
    /// When the format is newer than [`FORMAT`], or the value is not a session document.
    pub fn read(value: Value) -> Result<Self, ReadError> {
        match value.get("format").and_then(Value::as_u64) {
            Some(found) if found > u64::from(FORMAT) => {
                return Err(ReadError::FromFuture { found: found.try_into().unwrap_or(u32::MAX) });
            }
            Some(_) => {}
            None => {
                return Err(ReadError::Invalid {
                    path: "format".into(),
                    reason: "missing or not an integer".into(),
                });
            }
        }
        serde_path_to_error::deserialize(value).map_err(|e| ReadError::Invalid {
            path: e.path().to_string(),
            reason: e.into_inner().to_string(),
        })
    }

    /// How long ago the last commit was made, by the system's clock.
    pub fn idle(&self) -> Duration {
        Timestamp::now().since(self.updated_at)
    }
}

/// The flow of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRef {
    /// The flow's persisted id.
    pub id: String,
    /// The digest of the flow's registry when the document was last written.
    pub digest: String,
}

/// What a session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Status {
    /// A turn is in progress, or its worker died.
    Running,
    /// It waits for input.
    Waiting,
    /// It has ended.
    Completed,
    /// Its last turn failed; the next one goes on from the last commit.
    Failed,
    /// A newer document has taken its place.
    Superseded,
}

impl Status {
    /// The status as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Superseded => "superseded",
        }
    }
}

/// One stay at a step, from entering it to leaving it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Visit {
    /// Its number, unique within the session, counted from 1. After a
    /// [rewind](crate::engine::SessionHandle::rewind) some are passed over.
    pub number: u64,
    /// Whether the step's entry hooks have run. False after a crossing that was committed
    /// before the step that it leads to was entered.
    pub entered: bool,
    /// The step that the flow came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The payload with which it is entered; kept until it has been.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// How many questions a collect step has asked in this visit.
    #[serde(default)]
    pub asked: u32,
    /// How many tools an action has called in those of its runs that were committed. The
    /// calls of the next run are counted on from here, so that their idempotency keys are
    /// new ones.
    #[serde(default, skip_serializing_if = "none")]
    pub calls: u32,
    /// How much of what the action says in its run was said already, before it waited. The
    /// run begins anew when it goes on, and does not say it again.
    #[serde(default, skip_serializing_if = "none")]
    pub said: u32,
    /// What the user said in the turn that led here and no step has consumed. Nothing once
    /// that turn is over, unless the step waits, or is an action that a gate of the flow holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the user said in that turn, when it is not the message: a step has consumed it,
    /// or was given something else by its `on_crossing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<String>,
    /// The caller's id of the turn that led here. Nothing once that turn is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The tool calls of a model that wait for approvals, and what the step needs to go on
    /// with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<PendingRound>,
}

/// Few visits have calls to count.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn none(calls: &u32) -> bool {
    *calls == 0
}

/// A payload may be null, which is not the same as none.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The messages of one namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// The latest messages; older ones are in the archive.
    pub messages: Vec<Message>,
    /// What models are shown in place of the oldest messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// Where the part that models are shown begins, when a step was entered with another
    /// context strategy than `append`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<ContextStart>,
}

/// The oldest messages of a namespace in the words of a model. It takes nothing away: the
/// messages are in the document or its archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The text.
    pub text: String,
    /// The seq up to which it stands for the messages, included.
    pub through: u64,
}

/// Where the part of a namespace that models are shown begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextStart {
    /// The seq of the first message that is shown.
    pub seq: u64,
    /// The seq of a message of the user that stands before it and is shown all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
}

/// One step that was entered. Those within an action are here once its run is over, in the order
/// of its code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathEntry {
    /// The step.
    pub step: String,
    /// How deep it was nested; 0 for the flow's own steps.
    pub level: u32,
    /// When.
    pub at: Timestamp,
}

/// How a turn with a caller's id ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// The caller's id.
    pub id: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What was said to the user.
    pub replies: Vec<String>,
    /// What the gates of the flow said, if it came to an end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateVerdict>,
    /// The revision of the commit that ended it.
    pub revision: u64,
    /// When it ended.
    pub at: Timestamp,
}

/// How often one edge was crossed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeCount {
    /// The step that is left.
    pub from: String,
    /// The step that is entered.
    pub to: String,
    /// The count.
    pub count: u32,
}

/// What a session waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Waiting {
    /// The next message of the user.
    Message {
        /// What was asked, if something was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<Question>,
    },
    /// A person who takes over.
    Escalation {
        /// Why.
        reason: String,
    },
    /// People, signals or times; the step goes on when one of them has come.
    Interrupts {
        /// What is waited for, in the order in which the step asked for it.
        pending: Vec<Interrupt>,
    },
}

/// Something that the user was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The text.
    pub text: String,
    /// The slots that it asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// The answers to choose from, where they are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl Question {
    /// A question of plain text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// The most bytes of the message of an [`ErrorRecord`].
const ERROR_BYTES: usize = 4096;

/// An error as it is kept in a document and told to a caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ErrorRecord {
    /// The stable code.
    pub code: String,
    /// What happened, where, and what to do. A long message is cut to its first 4 KiB.
    pub message: String,
    /// Whether sending the turn again may help.
    pub retryable: bool,
}

impl From<&crate::Error> for ErrorRecord {
    fn from(error: &crate::Error) -> Self {
        Self::new(error.code(), error.to_string(), error.retryable())
    }
}

impl ErrorRecord {
    fn new(code: &str, mut message: String, retryable: bool) -> Self {
        if message.len() > ERROR_BYTES {
            message.truncate(message.floor_char_boundary(ERROR_BYTES));
            message.push('…');
        }
        Self { code: code.to_owned(), message, retryable }
    }

    pub(crate) fn of_step(error: &crate::StepError) -> Self {
        Self::new(error.code(), error.to_string(), error.retryable())
    }
}

/// Which part of the archive belongs to a document.
///
/// Entries are written before the document that refers to them, so entries at `next` and
/// beyond are leftovers of commits that were never made, and readers leave them out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveMark {
    /// The seq of its first entry.
    pub from: u64,
    /// One more than the seq of its last entry.
    pub next: u64,
}

/// One batch of what has moved out of a document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchiveEntry {
    /// Its place in the archive of the session.
    pub seq: u64,
    /// The messages, oldest first.
    pub messages: Vec<ArchivedMessage>,
    /// The path entries, oldest first.
    pub path: Vec<PathEntry>,
}

/// A message in the archive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArchivedMessage {
    /// The memory namespace.
    pub namespace: String,
    /// The message.
    #[serde(flatten)]
    pub message: Message,
}

/// Who works on a session.
///
/// `token` is the fencing token: it grows with every acquisition and never falls, so a
/// worker that has lost the lease cannot commit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The holder, or nothing when the session is free.
    #[serde(default)]
    pub holder: Option<String>,
    /// The fencing token of the last acquisition.
    pub token: u64,
    /// When it ends, by the store's clock.
    #[serde(default)]
    pub until: Option<Timestamp>,
}
