use serde::{Deserialize, Serialize};

use crate::error::IdError;
use crate::id::SessionId;
use crate::session::{ErrorRecord, ItemGroup, ItemOutcome};

/// What the items of a batch have come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchReport {
    /// All items, in the order of the batch.
    pub items: Vec<ItemReport>,
    /// How many have ended.
    pub ended: usize,
    /// How many wait, for whomever or whatever, those that were escalated too.
    pub waiting: usize,
    /// How many have failed.
    pub failed: usize,
}

/// What one item of a batch has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ItemReport {
    /// Its place in the batch, counted from 0.
    pub index: usize,
    /// The session in which its flow runs.
    pub session: SessionId,
    /// What it has come to.
    pub outcome: ItemOutcome,
}

impl BatchReport {
    /// The items that have failed, with their errors.
    pub fn failures(&self) -> impl Iterator<Item = (&ItemReport, &ErrorRecord)> {
        self.items.iter().filter_map(|item| match &item.outcome {
            ItemOutcome::Failed { error } => Some((item, error)),
            _ => None,
        })
    }
}

/// A report as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BatchRecord {
    /// What the ids of the items' sessions begin with.
    pub(super) sessions: String,
    pub(super) items: Vec<ItemGroup>,
}

impl BatchRecord {
    pub(super) fn into_report(self) -> Result<BatchReport, IdError> {
        let mut report = BatchReport::default();
        for ItemGroup { items, outcome } in self.items {
            let count = match &outcome {
                outcome if outcome.is_ended() => &mut report.ended,
                outcome if outcome.is_failed() => &mut report.failed,
                _ => &mut report.waiting,
            };
            *count += items.len();
            for index in items.iter() {
                let session = SessionId::try_from(session_of(&self.sessions, index))?;
                report.items.push(ItemReport { index, session, outcome: outcome.clone() });
            }
        }
        report.items.sort_by_key(|item| item.index);
        Ok(report)
    }
}

/// The id of the session of an item.
pub(super) fn session_of(sessions: &str, index: usize) -> String {
    format!("{sessions}-{index}")
}
