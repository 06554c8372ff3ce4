use serde::{Deserialize, Serialize};

use super::SessionDoc;

/// How a conversation came to the flow in which it is, once it has left the one in which it
/// began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowMoves {
    /// The flow in which the session began. A turn that names it finds the session in
    /// whichever flow it is.
    pub origin: String,
    /// The flows that have handed off since the user last said something, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trail: Vec<String>,
    /// The highest visit number of the session, while it stays at a step with a lower one:
    /// the step was parked and has come back.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub visits: u64,
    /// Whether the flow has come back, and the user is still to be asked again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returned: bool,
    /// What comes back when this flow has ended: the document of the flow that is parked, but
    /// what belongs to the whole conversation, such as its messages. It may have a parked one
    /// of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<Box<SessionDoc>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(visits: &u64) -> bool {
    *visits == 0
}

impl FlowMoves {
    /// The parked documents, the one that comes back first in front.
    pub fn parked(&self) -> impl Iterator<Item = &SessionDoc> {
        std::iter::successors(self.parked.as_deref(), |doc| doc.moves.as_ref()?.parked.as_deref())
    }
}

impl SessionDoc {
    /// The highest number that a visit of the session has had.
    pub(crate) fn last_visit(&self) -> u64 {
        self.visit.number.max(self.moves.as_ref().map_or(0, |moves| moves.visits))
    }
}
