//! How a turn ends.

use serde::{Deserialize, Serialize};

use crate::session::{ErrorRecord, Interrupt, Question};

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Outcome {
    /// The flow waits for the user.
    Waiting {
        /// What it asked, if it asked something.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<Question>,
    },
    /// The flow is over.
    Ended {
        /// Why, in the words of the step.
        reason: String,
    },
    /// The conversation has gone to another flow. No turn ends so: the other flow goes on in
    /// the same turn, and this is how its part of it ends. Documents hold it that were written
    /// when a hand-off ended the session.
    HandedOff {
        /// The id of that flow.
        to: String,
    },
    /// A person has to take over; the session takes messages and runs nothing until it is
    /// released.
    Escalated {
        /// Why, in the words of the step.
        reason: String,
    },
    /// The step waits for people, signals or times; it goes on when one of them has come.
    Suspended {
        /// What it waits for.
        interrupts: Vec<Interrupt>,
    },
    /// The flow was to end, and a [gate](crate::flow::gate) of it does not let it: it waits for
    /// the user at the step that was to end it.
    Held {
        /// The gates that hold it; their verdicts are in the session document.
        gates: Vec<String>,
    },
    /// The turn failed; the session stays at its last commit and can go on from there.
    Failed {
        /// What happened.
        error: ErrorRecord,
    },
}
