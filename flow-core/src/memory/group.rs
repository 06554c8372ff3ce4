use std::borrow::Borrow;
use std::ops::Range;

use crate::message::{Message, Part, Role};

/// The parts into which a conversation may be cut: a message, or a message of the assistant
/// with tool calls together with all that stands up to the last of their results.
pub(super) fn groups<M: Borrow<Message>>(messages: &[M]) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let mut begin = 0;
    while begin < messages.len() {
        let end = end_of_group(messages, begin);
        groups.push(begin..end);
        begin = end;
    }
    groups
}

fn end_of_group<M: Borrow<Message>>(messages: &[M], begin: usize) -> usize {
    if !has_calls(messages[begin].borrow()) {
        return begin + 1;
    }
    let rest = &messages[begin + 1..];
    let turn = rest.iter().position(|message| message.borrow().role == Role::Assistant);
    let turn = &rest[..turn.unwrap_or(rest.len())];
    let last = turn.iter().rposition(|message| message.borrow().role == Role::Tool);
    begin + 1 + last.map_or(0, |last| last + 1)
}

fn has_calls(message: &Message) -> bool {
    message.role == Role::Assistant
        && message.parts.iter().any(|part| matches!(part, Part::ToolCall(_)))
}

/// The last place at or before this one at which a conversation may be cut.
pub(crate) fn cut_at<M: Borrow<Message>>(messages: &[M], place: usize) -> usize {
    let groups = groups(messages);
    let ends = groups.iter().map(|group| group.end);
    ends.take_while(|end| *end <= place).last().unwrap_or(0)
}
