use super::group::groups;
use super::order::{frame, join, put_in_order};
use super::policy::MemoryPolicy;
use super::summary::shown_summary;
use super::tokens::estimate_tokens;
use super::view::{View, last_said};
use crate::message::{Message, Part, Role};
use crate::time::Timestamp;

/// What a model is shown of a conversation: the summary, and the latest groups that fit, with
/// the user at both ends.
pub(crate) fn shown(view: &View<'_>, policy: &MemoryPolicy, now: Timestamp) -> Vec<Message> {
    let mut messages = recalled(view, policy, now);
    frame(&mut messages, now);
    messages
}

/// As [`shown`], whoever speaks first and last.
pub(crate) fn recalled(view: &View<'_>, policy: &MemoryPolicy, now: Timestamp) -> Vec<Message> {
    let visible = view.visible();
    let groups = groups(&visible);
    let said = last_said(&visible);
    let asking = said.and_then(|said| groups.iter().position(|group| group.contains(&said)));
    let summary = view.marks.summary.as_ref().map(|summary| {
        let text = shown_summary(&summary.text);
        Message { seq: summary.through, role: Role::User, parts: vec![Part::text(text)], at: now }
    });

    let cost = |place: usize| {
        let group = &visible[groups[place].clone()];
        (group.len(), group.iter().map(|message| estimate_tokens(message)).sum::<usize>())
    };
    let mut room = policy.shown_messages;
    let mut tokens =
        policy.shown_tokens.saturating_sub(summary.as_ref().map_or(0, estimate_tokens));
    let always = asking.map_or((0, 0), cost);
    room = room.saturating_sub(always.0);
    tokens = tokens.saturating_sub(always.1);
    let mut first = groups.len();
    for place in (0..groups.len()).rev() {
        if asking != Some(place) {
            let needs = cost(place);
            if needs.0 > room || needs.1 > tokens {
                break;
            }
            room -= needs.0;
            tokens -= needs.1;
        }
        first = place;
    }

    let mut messages: Vec<Message> = summary.into_iter().collect();
    let asking = asking.filter(|asking| *asking < first);
    for place in asking.into_iter().chain(first..groups.len()) {
        for message in put_in_order(&visible[groups[place].clone()]) {
            join(&mut messages, message);
        }
    }
    messages
}
