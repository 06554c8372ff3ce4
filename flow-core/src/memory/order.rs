//! Puts a conversation into an order that every provider takes.

use crate::message::{Message, Part, Role, ToolResultPart};
use crate::time::Timestamp;

/// What the user says in a request where the assistant would speak first. Never stored.
pub const OPENING: &str = "(The conversation so far.)";

/// What the user says in a request where the assistant has spoken last, or nobody has: a step
/// is to speak, and nothing new was said in its memory. Never stored.
pub const GO_ON: &str = "(Please go on.)";

/// The result of a tool call that has none in the document. Never stored.
pub const NO_RESULT: &str = "there is no result: the call was interrupted";

/// The messages of a group as a provider takes them.
pub(super) fn put_in_order(group: &[&Message]) -> Vec<Message> {
    let Some((first, rest)) = group.split_first() else { return Vec::new() };
    let Some(first) = clean(first) else { return Vec::new() };
    let mut results = Vec::new();
    for part in &first.parts {
        let Part::ToolCall(call) = part else { continue };
        let answer = rest.iter().filter(|message| message.role == Role::Tool);
        let answer = answer.flat_map(|message| &message.parts).find(|part| match part {
            Part::ToolResult(result) => result.id == call.id,
            _ => false,
        });
        results.push(answer.cloned().unwrap_or_else(|| {
            Part::ToolResult(ToolResultPart {
                id: call.id.clone(),
                name: call.name.clone(),
                content: NO_RESULT.to_owned(),
                is_error: true,
            })
        }));
    }
    let told = rest.iter().find(|message| message.role == Role::Tool).unwrap_or(&group[0]);
    let told = (!results.is_empty()).then_some(Message {
        seq: told.seq,
        role: Role::Tool,
        parts: results,
        at: told.at,
    });
    let others = rest.iter().filter_map(|message| clean(message));
    std::iter::once(first).chain(told).chain(others).collect()
}

/// A message without what its role cannot say; nothing if nothing is left. A result of a tool
/// stands only behind its call.
fn clean(message: &Message) -> Option<Message> {
    let mut parts: Vec<Part> = Vec::with_capacity(message.parts.len());
    for part in &message.parts {
        let fits = match (message.role, part) {
            (Role::User | Role::Assistant, Part::Text { text }) => !text.trim().is_empty(),
            (Role::User, Part::Image(_) | Part::File(_))
            | (Role::Assistant, Part::Reasoning { .. }) => true,
            (Role::Assistant, Part::ToolCall(call)) => !parts
                .iter()
                .any(|other| matches!(other, Part::ToolCall(other) if other.id == call.id)),
            _ => false,
        };
        if fits {
            parts.push(part.clone());
        }
    }
    let says = parts.iter().any(|part| !matches!(part, Part::Reasoning { .. }));
    says.then_some(Message { seq: message.seq, role: message.role, parts, at: message.at })
}

/// Adds a message, to the one before it if that has the same role: some providers and most
/// local models take turns only.
pub(crate) fn join(messages: &mut Vec<Message>, message: Message) {
    match messages.last_mut() {
        Some(last) if last.role == message.role => last.parts.extend(message.parts),
        _ => messages.push(message),
    }
}

/// Lets the user speak first, and the assistant not last.
pub(crate) fn frame(messages: &mut Vec<Message>, now: Timestamp) {
    let says = |text| Message::text(0, Role::User, text, now);
    if messages.first().is_some_and(|message| message.role != Role::User) {
        messages.insert(0, says(OPENING));
    }
    if messages.last().is_none_or(|message| message.role == Role::Assistant) {
        messages.push(says(GO_ON));
    }
}
