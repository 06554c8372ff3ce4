use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ErrorRecord;
use crate::outcome::Outcome;

/// What an item of a batch has come to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ItemOutcome {
    /// Its flow has ended.
    Ended {
        /// Why, in the words of the flow.
        reason: String,
    },
    /// Its flow waits for a person who takes over.
    Escalated {
        /// Why.
        reason: String,
    },
    /// Its flow waits: for the user, since it has asked or since a gate holds it, for an answer, a
    /// signal or a time. The session is one as any other, and goes on when that has come.
    Waiting,
    /// Its flow has failed, and is not tried again by the batch.
    Failed {
        /// The error of the last attempt. The whole one is in the item's session.
        error: ErrorRecord,
    },
}

impl ItemOutcome {
    /// Whether the item has failed.
    pub fn is_failed(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }

    /// Whether the item's flow has ended.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }

    /// Texts of it are cut to this many bytes.
    pub(crate) fn cut(mut self, bytes: usize) -> Self {
        let text = match &mut self {
            Self::Ended { reason } | Self::Escalated { reason } => reason,
            Self::Failed { error } => &mut error.message,
            Self::Waiting => return self,
        };
        if text.len() > bytes {
            text.truncate(text.floor_char_boundary(bytes));
            text.push('…');
        }
        self
    }
}

impl From<Outcome> for ItemOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Waiting { .. } | Outcome::Suspended { .. } | Outcome::Held { .. } => {
                Self::Waiting
            }
            Outcome::Escalated { reason } => Self::Escalated { reason },
            // A flow that is an item cannot hand off.
            Outcome::HandedOff { to } => Self::Ended { reason: format!("handed off to {to}") },
            Outcome::Ended { reason } => Self::Ended { reason },
            Outcome::Failed { error } => Self::Failed { error },
        }
    }
}

/// The items of a batch that have come to the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemGroup {
    /// The items.
    pub items: ItemSet,
    /// What they have come to.
    pub outcome: ItemOutcome,
}

/// Some items of a batch, by their places in it. Written as text that stays short when most
/// items come to the same.
///
/// ```
/// use flow_core::session::ItemSet;
///
/// let items: ItemSet = "0-2,5".parse()?;
/// assert_eq!(items.iter().collect::<Vec<_>>(), [0, 1, 2, 5]);
/// assert_eq!(items.to_string(), "0-2,5");
/// # Ok::<(), flow_core::session::ItemSetError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ItemSet(Vec<(usize, usize)>);

/// A text that does not name items of a batch in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not name items of a batch, as `0-2,5` does")]
pub struct ItemSetError(String);

impl ItemSet {
    /// The items in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.0.iter().fold(0, |len, (first, last)| len.saturating_add(last - first + 1))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an item that comes after all that it has.
    pub(crate) fn push(&mut self, item: usize) {
        match self.0.last_mut() {
            Some((_, last)) if *last + 1 == item => *last = item,
            _ => self.0.push((item, item)),
        }
    }
}

impl fmt::Display for ItemSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (first, last)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for ItemSet {
    type Err = ItemSetError;

    fn from_str(text: &str) -> Result<Self, ItemSetError> {
        let refuse = || ItemSetError(text.chars().take(64).collect());
        // Beyond this, ranges could not be counted any more.
        let read = |text: &str| text.parse::<u32>().map(|item| item as usize).map_err(|_| refuse());
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for range in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (read(first)?, read(last)?);
            if first > last || ranges.last().is_some_and(|(_, before)| *before >= first) {
                return Err(refuse());
            }
            ranges.push((first, last));
        }
        Ok(Self(ranges))
    }
}

impl TryFrom<String> for ItemSet {
    type Error = ItemSetError;

    fn try_from(text: String) -> Result<Self, ItemSetError> {
        text.parse()
    }
}

impl From<ItemSet> for String {
    fn from(items: ItemSet) -> Self {
        items.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_items_are_written_as_ranges_and_read_back() {
        let mut items = ItemSet::default();
        for item in [0, 1, 2, 4, 7, 8] {
            items.push(item);
        }
        assert_eq!(serde_json::to_string(&items).unwrap(), r#""0-2,4,7-8""#);
        assert_eq!("0-2,4,7-8".parse::<ItemSet>().unwrap(), items);
        assert_eq!(items.len(), 6);
        assert_eq!("".parse::<ItemSet>().unwrap(), ItemSet::default());
        for bad in ["a", "1-", "-1", "3-2", "1,1", "0-2,2", "2,1", ",", "1,", "99999999999"] {
            assert!(bad.parse::<ItemSet>().is_err(), "{bad}");
        }
    }

    #[test]
    fn long_texts_of_outcomes_are_cut_at_a_letter() {
        let outcome = ItemOutcome::Ended { reason: "äöü".into() };
        assert_eq!(outcome.clone().cut(3), ItemOutcome::Ended { reason: "ä…".into() });
        assert_eq!(outcome.clone().cut(6), outcome);
    }
}
