use super::group::cut_at;
use super::policy::MemoryPolicy;
use super::summary::Fold;
use super::view::{Marks, View, last_said};
use crate::session::ContextStart;
use crate::time::Timestamp;

/// What a step sees of the conversation in its memory namespace from before it was entered:
/// `#[step(context = ..)]`.
///
/// It is applied each time the flow goes to the step, also from that step itself, and is
/// committed with the crossing. What is put behind is no longer shown to any step of the
/// namespace; it stays in the document, its archive and the transcript.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContextStrategy {
    /// All of it: the conversation goes on. `append`, the default.
    #[default]
    Append,
    /// The latest message of the user alone. A summary is dropped. `reset`.
    Reset,
    /// A summary of it, and the latest message of the user. The model that writes it is that of
    /// the [`SummaryPolicy`](super::SummaryPolicy), or else the one that speaks for the step.
    /// When there is no model, or its summary fails, an event says so and the step begins as
    /// with [`Reset`](Self::Reset). `reset_with_summary`.
    ResetWithSummary,
    /// The latest so many messages, or a few more, since a tool call and its results stay
    /// together; and the latest message of the user. A summary is dropped. `last(6)`.
    Last(usize),
}

/// The marks of a conversation that begins anew with the latest message of the user. Nothing
/// when it is there already.
pub(crate) fn reset(view: &View<'_>) -> Option<Marks> {
    let visible = view.visible();
    let kept = last_said(&visible);
    let behind = visible.len() - usize::from(kept.is_some());
    if behind == 0 && view.marks.summary.is_none() {
        return None;
    }
    let kept = kept.map(|place| visible[place].seq);
    Some(Marks { summary: None, start: Some(ContextStart { seq: view.next, kept }) })
}

/// The summary that is to be written before a conversation begins anew. Nothing when all of
/// it is the latest message of the user.
pub(crate) fn reset_with_summary(
    view: &View<'_>,
    policy: &MemoryPolicy,
    now: Timestamp,
) -> Option<Fold> {
    let visible = view.visible();
    let kept = last_said(&visible);
    if visible.len() == usize::from(kept.is_some()) {
        return None;
    }
    let start = ContextStart { seq: view.next, kept: kept.map(|place| visible[place].seq) };
    let through = view.next.saturating_sub(1);
    Some(Fold::new(view, &visible, (through, Some(start)), policy, now))
}

/// The marks of a conversation that goes on with its latest messages. Nothing when that is
/// all of it.
pub(crate) fn keep_last(view: &View<'_>, count: usize) -> Option<Marks> {
    let started = view.started();
    let cut = cut_at(&started, started.len().saturating_sub(count));
    if cut == 0 {
        let dropped = view.marks.summary.is_some();
        return dropped.then(|| Marks { summary: None, start: view.marks.start.clone() });
    }
    let (behind, kept) = started.split_at(cut);
    let seq = kept.first().map_or(view.next, |message| message.seq);
    let said = match last_said(kept) {
        Some(_) => None,
        None => last_said(behind).map(|place| behind[place].seq),
    };
    Some(Marks { summary: None, start: Some(ContextStart { seq, kept: said }) })
}
