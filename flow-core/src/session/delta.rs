use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    ArchiveMark, ContextStart, EdgeCount, EffectRecord, ErrorRecord, FlowMoves, FlowRef,
    GateVerdict, PathEntry, SessionDoc, Status, Summary, TurnRecord, Visit, Waiting,
};
use crate::message::Message;
use crate::model::TokenUsage;
use crate::time::Timestamp;

/// Items that a commit appends to a list, and how many of the list it keeps.
#[derive(Debug, Clone, PartialEq)]
pub struct Appended<T> {
    /// The new items, oldest first.
    pub push: Vec<T>,
    /// How many items stay, counted from the end, once the new ones are in.
    pub keep: usize,
}

impl<T: Clone> Appended<T> {
    /// Whether the list stays as it is.
    pub fn is_empty(&self) -> bool {
        self.push.is_empty() && self.keep == usize::MAX
    }

    fn apply(&self, list: &mut Vec<T>) {
        list.extend_from_slice(&self.push);
        if list.len() > self.keep {
            list.drain(..list.len() - self.keep);
        }
    }
}

impl<T> Default for Appended<T> {
    fn default() -> Self {
        Self { push: Vec::new(), keep: usize::MAX }
    }
}

/// What a commit changes in one memory namespace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemoryDelta {
    /// What is appended to and dropped from its messages.
    pub messages: Appended<Message>,
    /// The new summary; `Some(None)` for none.
    pub summary: Option<Option<Summary>>,
    /// The new start of what models are shown; `Some(None)` for the first message.
    pub start: Option<Option<ContextStart>>,
}

impl From<Appended<Message>> for MemoryDelta {
    fn from(messages: Appended<Message>) -> Self {
        Self { messages, ..Self::default() }
    }
}

/// What one commit changes in a document. A part that is not named stays as it is.
///
/// A store may write the parts one by one or the whole document that results; both must
/// read back the same.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delta {
    /// Nothing of the stored document stays: write the whole document.
    pub replace: bool,
    /// The new status.
    pub status: Option<Status>,
    /// The new flow reference.
    pub flow: Option<FlowRef>,
    /// The new cursor.
    pub current_step: Option<String>,
    /// The new visit.
    pub visit: Option<Visit>,
    /// The new shared state.
    pub state: Option<Value>,
    /// The new fields of the steps that changed.
    pub steps: BTreeMap<String, Value>,
    /// What changes in each memory namespace.
    pub memory: BTreeMap<String, MemoryDelta>,
    /// The new context.
    pub context: Option<Map<String, Value>>,
    /// What is appended to and dropped from the path.
    pub path: Appended<PathEntry>,
    /// What is appended to and dropped from the recorded turns.
    pub turns: Appended<TurnRecord>,
    /// The new edge counts.
    pub edges: Option<Vec<EdgeCount>>,
    /// The tool calls that were begun in this visit.
    pub effects: Option<BTreeMap<String, EffectRecord>>,
    /// Why the session has ended; `Some(None)` when it has not.
    pub ended: Option<Option<String>>,
    /// What the session waits for now; `Some(None)` for nothing.
    pub waiting: Option<Option<Waiting>>,
    /// When a sweeper takes the session up by itself; `Some(None)` for never.
    pub wake_at: Option<Option<Timestamp>>,
    /// What the gates of the flow have said; empty for nothing.
    pub gates: Option<Vec<GateVerdict>>,
    /// The new error record; `Some(None)` for none.
    pub error: Option<Option<ErrorRecord>>,
    /// What models have cost in this session.
    pub usage: Option<TokenUsage>,
    /// The seq of the next message.
    pub next_message: Option<u64>,
    /// The new archive mark.
    pub archive: Option<ArchiveMark>,
    /// How the conversation came to the flow; `Some(None)` when it is where it began.
    pub moves: Option<Option<FlowMoves>>,
    /// When the commit was made.
    pub updated_at: Option<Timestamp>,
    /// When the store may delete the document; `Some(None)` for never.
    pub expires_at: Option<Option<Timestamp>>,
}

impl Delta {
    /// A delta after which the stored document is the given one, whatever it was before.
    pub fn replace() -> Self {
        Self { replace: true, ..Self::default() }
    }

    /// Makes the changes in a document. The revision and the lease are the store's and are
    /// left alone, as is the document of a [`replace`](Self::replace).
    pub fn apply(&self, doc: &mut SessionDoc) {
        fn set<T: Clone>(field: &mut T, new: &Option<T>) {
            if let Some(new) = new {
                field.clone_from(new);
            }
        }
        set(&mut doc.status, &self.status);
        set(&mut doc.flow, &self.flow);
        set(&mut doc.current_step, &self.current_step);
        set(&mut doc.visit, &self.visit);
        set(&mut doc.state, &self.state);
        for (name, fields) in &self.steps {
            doc.steps.insert(name.clone(), fields.clone());
        }
        for (namespace, delta) in &self.memory {
            let memory = doc.memory.entry(namespace.clone()).or_default();
            delta.messages.apply(&mut memory.messages);
            set(&mut memory.summary, &delta.summary);
            set(&mut memory.start, &delta.start);
        }
        set(&mut doc.context, &self.context);
        self.path.apply(&mut doc.path);
        self.turns.apply(&mut doc.turns);
        set(&mut doc.edges, &self.edges);
        set(&mut doc.effects, &self.effects);
        set(&mut doc.ended, &self.ended);
        set(&mut doc.waiting, &self.waiting);
        set(&mut doc.wake_at, &self.wake_at);
        set(&mut doc.gates, &self.gates);
        set(&mut doc.error, &self.error);
        set(&mut doc.usage, &self.usage);
        set(&mut doc.next_message, &self.next_message);
        set(&mut doc.archive, &self.archive);
        set(&mut doc.moves, &self.moves);
        set(&mut doc.updated_at, &self.updated_at);
        set(&mut doc.expires_at, &self.expires_at);
    }
}
