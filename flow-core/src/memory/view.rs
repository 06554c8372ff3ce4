use crate::message::{Message, Role};
use crate::session::{ContextStart, Memory, Summary};

/// What decides which messages of a namespace count.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Marks {
    pub(crate) summary: Option<Summary>,
    pub(crate) start: Option<ContextStart>,
}

impl From<&Memory> for Marks {
    fn from(memory: &Memory) -> Self {
        Self { summary: memory.summary.clone(), start: memory.start.clone() }
    }
}

/// The messages of one namespace that are at hand, and its marks.
#[derive(Debug, Clone)]
pub(crate) struct View<'a> {
    /// Oldest first.
    pub(crate) messages: Vec<&'a Message>,
    pub(crate) marks: Marks,
    /// The seq of the next message.
    pub(crate) next: u64,
}

impl<'a> View<'a> {
    /// The messages that neither the summary nor the start has put behind.
    pub(super) fn visible(&self) -> Vec<&'a Message> {
        let summarized = self.marks.summary.as_ref().map_or(0, |summary| summary.through + 1);
        self.since(summarized)
    }

    /// The messages from the start on, summarised or not.
    pub(super) fn started(&self) -> Vec<&'a Message> {
        self.since(0)
    }

    fn since(&self, seq: u64) -> Vec<&'a Message> {
        let start = self.marks.start.as_ref();
        let from = start.map_or(0, |start| start.seq).max(seq);
        let kept = start.and_then(|start| start.kept);
        let counts = |message: &&&Message| message.seq >= from || kept == Some(message.seq);
        self.messages.iter().filter(counts).copied().collect()
    }
}

/// The place of the user's latest message.
pub(super) fn last_said(messages: &[&Message]) -> Option<usize> {
    messages.iter().rposition(|message| message.role == Role::User)
}
