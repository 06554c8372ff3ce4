use proptest::prelude::*;

use super::order::{GO_ON, NO_RESULT, OPENING};
use super::*;
use crate::message::{Media, MediaSource, Message, Part, Role, ToolCallPart, ToolResultPart};
use crate::session::{ContextStart, Summary};
use crate::time::Timestamp;

fn now() -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000).unwrap()
}

fn part(word: &str) -> (Role, Part) {
    let (kind, rest) = word.split_at(1);
    let call = |id: &str| ToolCallPart {
        id: id.to_owned(),
        name: "t".to_owned(),
        arguments: serde_json::json!({}),
    };
    let result = |id: &str| ToolResultPart {
        id: id.to_owned(),
        name: "t".to_owned(),
        content: format!("r{id}"),
        is_error: false,
    };
    match kind {
        "u" => (Role::User, Part::text(word)),
        "a" => (Role::Assistant, Part::text(word)),
        "c" => (Role::Assistant, Part::ToolCall(call(rest))),
        "r" => (Role::Tool, Part::ToolResult(result(rest))),
        "_" => (Role::User, Part::text(" \n")),
        "~" => (Role::Assistant, Part::Reasoning { text: "hm".to_owned(), signature: None }),
        other => panic!("{other}"),
    }
}

/// A conversation: messages by words, their parts by `+`. `u` is a text of the user, `a` one
/// of the assistant, `c1` a call with the id 1, `r1` its result, `~` reasoning, `_` blank.
fn talk(words: &str) -> Vec<Message> {
    let messages = words.split_whitespace().enumerate();
    let message = |(seq, word): (usize, &str)| {
        let parts: Vec<_> = word.split('+').map(part).collect();
        let role = parts[0].0;
        let parts = parts.into_iter().map(|(_, part)| part).collect();
        Message { seq: seq as u64, role, parts, at: now() }
    };
    messages.map(message).collect()
}

/// The same words for messages.
fn words<'a>(messages: impl IntoIterator<Item = &'a Message>) -> String {
    let word = |part: &Part| match part {
        Part::Text { text } if text == OPENING => "OPENING".to_owned(),
        Part::Text { text } if text == GO_ON => "GO_ON".to_owned(),
        Part::Text { text } if text.contains("<summary>") => "SUMMARY".to_owned(),
        Part::Text { text } => text.clone(),
        Part::ToolCall(call) => format!("c{}", call.id),
        Part::ToolResult(result) if result.content == NO_RESULT => format!("x{}", result.id),
        Part::ToolResult(result) => format!("r{}", result.id),
        Part::Reasoning { .. } => "~".to_owned(),
        other => panic!("{other:?}"),
    };
    let messages = messages.into_iter();
    let messages = messages.map(|m| m.parts.iter().map(word).collect::<Vec<_>>().join("+"));
    messages.collect::<Vec<_>>().join(" ")
}

fn view(messages: &[Message], marks: Marks) -> View<'_> {
    let next = messages.last().map_or(0, |message| message.seq + 1);
    View { messages: messages.iter().collect(), marks, next }
}

fn show(words_of: &str, policy: &MemoryPolicy) -> String {
    let messages = talk(words_of);
    words(&shown(&view(&messages, Marks::default()), policy, now()))
}

fn all() -> MemoryPolicy {
    MemoryPolicy::default()
}

#[test]
fn what_is_in_order_is_shown_as_it_is() {
    for same in ["u1", "u1 a1 u2", "u1 c1 r1 a1 u2 a2+c2+c3 r2+r3 u3", "u1 ~+a1 u2"] {
        assert_eq!(show(same, &all()), same);
    }
}

#[test]
fn what_is_out_of_order_is_put_in_order() {
    for (stored, shown) in [
        // Nobody has spoken; the assistant first, last, alone.
        ("", "GO_ON"),
        ("a1 u1", "OPENING a1 u1"),
        ("u1 a1", "u1 a1 GO_ON"),
        ("a1", "OPENING a1 GO_ON"),
        // Results without a call, calls without a result, others, results too late or twice.
        ("r1 u1", "u1"),
        ("u1 r1 a1 u2", "u1 a1 u2"),
        ("u1 c1", "u1 c1 x1"),
        ("u1 c1 u2", "u1 c1 x1 u2"),
        ("u1 c1+c2 r2 a1 u2", "u1 c1+c2 x1+r2 a1 u2"),
        ("u1 c1 r2 a1 u2", "u1 c1 x1 a1 u2"),
        ("u1 c1 u2 r1 u3", "u1 c1 r1 u2+u3"),
        ("u1 c1 r1 r1 u3", "u1 c1 r1 u3"),
        ("u1 c1+c2 r2 r1 u3", "u1 c1+c2 r1+r2 u3"),
        ("u1 c1+c1 r1 u3", "u1 c1 r1 u3"),
        ("u1 c1 a1 r1 u2", "u1 c1 x1 a1 u2"),
        // Ids may come again, each with its own result.
        ("u1 c1 r1 c1 r1 u2", "u1 c1 r1 c1 r1 u2"),
        // Those that follow each other; those that say nothing; what a role cannot say.
        ("u1 u2 a1 a2 c1 r1 u3", "u1+u2 a1+a2+c1 r1 u3"),
        ("u1 ~ _ a1 u2", "u1 a1 u2"),
        ("u1+r1 a1+r2 u2+c3", "u1 a1 u2"),
    ] {
        assert_eq!(show(stored, &all()), shown, "{stored:?}");
    }
}

#[test]
fn the_latest_messages_are_shown_and_no_group_is_parted() {
    let shown = |messages| show("u1 a1 u2 c1 r1 a2 u3", &all().shown_messages(messages));
    let expected = [
        "u3",
        "u3",
        "OPENING a2 u3",
        // The call and its result are two.
        "OPENING a2 u3",
        "OPENING c1 r1 a2 u3",
        "u2 c1 r1 a2 u3",
        "OPENING a1 u2 c1 r1 a2 u3",
        "u1 a1 u2 c1 r1 a2 u3",
    ];
    for (messages, expected) in expected.into_iter().enumerate() {
        assert_eq!(shown(messages), expected, "{messages}");
    }
}

#[test]
fn tokens_are_a_limit_too_and_the_latest_words_of_the_user_are_always_shown() {
    let mut messages = talk("u1 a1 u2 a2 u3 c1 r1");
    let cost: usize = messages.iter().map(estimate_tokens).sum();
    let shown_of = |messages: &[Message], tokens| {
        words(&shown(&view(messages, Marks::default()), &all().shown_tokens(tokens), now()))
    };
    assert_eq!(shown_of(&messages, cost), "u1 a1 u2 a2 u3 c1 r1");
    assert_eq!(shown_of(&messages, cost - 1), "OPENING a1 u2 a2 u3 c1 r1");
    // The words of the user come before what came after them.
    let said = estimate_tokens(&messages[4]);
    let called = estimate_tokens(&messages[5]) + estimate_tokens(&messages[6]);
    assert_eq!(shown_of(&messages, said + called), "u3 c1 r1");
    assert_eq!(shown_of(&messages, said + called - 1), "u3");
    assert_eq!(shown_of(&messages, 0), "u3");
    messages[4].parts = vec![Part::text("x".repeat(1_000_000))];
    messages.truncate(5);
    assert_eq!(shown_of(&messages, 32_000).len(), 1_000_000);
}

#[test]
fn the_summary_counts_and_stands_first() {
    let messages = talk("u1 a1 u2 a2 u3");
    let summary = |text: &str| Summary { text: text.to_owned(), through: 1 };
    let marks = |text| Marks { summary: Some(summary(text)), start: None };
    let shown_of = |text, tokens| {
        words(&shown(&view(&messages, marks(text)), &all().shown_tokens(tokens), now()))
    };
    assert_eq!(shown_of("s", 1_000), "SUMMARY+u2 a2 u3");
    assert_eq!(shown_of(&"s".repeat(4_000), 1_000), "SUMMARY+u3");
}

#[test]
fn an_estimate_counts_every_part() {
    let message = |parts| Message { seq: 0, role: Role::User, parts, at: now() };
    let media = || Media {
        media_type: "image/png".into(),
        source: MediaSource::Base64("A".repeat(1_000_000)),
        name: None,
    };
    let (_, call) = part("c12345678");
    let (_, result) = part("r1234567");
    for (parts, tokens) in [
        (vec![], 0),
        (vec![Part::text("12345")], 2),
        (vec![Part::text("1234"), Part::text("5678")], 2),
        (vec![Part::text("日本語")], 3),
        (vec![Part::Image(media())], IMAGE_TOKENS),
        (vec![Part::File(media())], FILE_TOKENS),
        // id 8, name 1, arguments 2; id 7, content 8.
        (vec![call], 3),
        (vec![result], 4),
        (vec![Part::Reasoning { text: "1234".into(), signature: Some("5678".into()) }], 2),
    ] {
        assert_eq!(estimate_tokens(&message(parts.clone())), MESSAGE_TOKENS + tokens, "{parts:?}");
    }
}

#[test]
fn a_cut_is_moved_to_where_a_group_begins() {
    let messages = talk("u1 c1+c2 r1 r2 a1 u2 c3");
    let cuts: Vec<_> = (0..=7).map(|place| cut_at(&messages, place)).collect();
    assert_eq!(cuts, [0, 1, 1, 1, 4, 5, 6, 7]);
    assert_eq!(cut_at(&talk(""), 3), 0);
}

fn summarised(policy: SummaryPolicy) -> MemoryPolicy {
    all().summary(policy)
}

#[test]
fn a_summary_is_due_at_the_threshold_and_leaves_whole_groups() {
    let due = |words: &str, least, recent| {
        let messages = talk(words);
        let policy = SummaryPolicy::default().min_messages(least).keep_recent(recent);
        let policy = summarised(policy);
        fold_due(&view(&messages, Marks::default()), &policy, now())
            .map(|fold| (fold.count, fold.through))
    };
    let six = "u1 a1 u2 a2 u3 a3";
    assert_eq!(due(six, 7, 2), None);
    // The latest words of the user are left out, whatever is to be kept.
    assert_eq!(due(six, 6, 2), Some((4, 3)));
    assert_eq!(due(six, 6, 0), Some((4, 3)));
    assert_eq!(due(six, 6, 4), Some((2, 1)));
    assert_eq!(due(six, 6, 5), Some((1, 0)));
    // More than that would never leave anything to summarise.
    assert_eq!(due(six, 6, 6), Some((1, 0)));
    assert_eq!(due("u1 c1 r1 a1 u2", 5, 3), Some((1, 0)), "a call stays with its result");
    assert_eq!(due("c1 r1 a1 u1", 4, 3), None, "there is no group to fold");
    assert_eq!(due("u1", 1, 0), None);
    assert_eq!(due("a1 a2", 2, 0), Some((2, 1)));
    // The window counts when it is smaller: what has left it cannot be summarised.
    let policy = summarised(SummaryPolicy::default().min_messages(99)).window(6);
    let messages = talk(six);
    assert!(fold_due(&view(&messages, Marks::default()), &policy, now()).is_some());
}

fn marks(summary: Option<u64>, start: Option<(u64, Option<u64>)>) -> Marks {
    Marks {
        summary: summary.map(|through| Summary { text: "before".into(), through }),
        start: start.map(|(seq, kept)| ContextStart { seq, kept }),
    }
}

#[test]
fn a_summary_takes_in_the_one_before_and_what_a_reset_has_kept() {
    let messages = talk("u0 a1 u2 a3 u4 a5 u6");
    let policy = summarised(SummaryPolicy::default().min_messages(3).keep_recent(1));
    let fold = |marks| fold_due(&view(&messages, marks), &policy, now());
    let first = fold(Marks::default()).unwrap();
    let asked = first.request.messages[0].to_text();
    assert_eq!((first.count, first.through, asked.contains("earlier")), (6, 5, false));

    let second = fold(marks(Some(3), None)).unwrap();
    let asked = second.request.messages[0].to_text();
    assert_eq!((second.count, second.through), (2, 5));
    assert!(asked.contains("<earlier-summary>\nbefore\n</earlier-summary>"), "{asked}");
    assert!(asked.contains("User: u4\nAssistant: a5\n") && !asked.contains("a3"), "{asked}");

    // What was kept before the start is folded like the rest, and the start is over.
    let third = fold(marks(None, Some((5, Some(2))))).unwrap();
    assert_eq!((third.count, third.through), (2, 5));
    assert_eq!(third.into_marks("s".into()).start, None);
    let messages = talk("u0 a1 u2 a3 a4 a5");
    let kept = fold_due(&view(&messages, marks(Some(4), Some((5, Some(2))))), &policy, now());
    assert_eq!(kept, None, "nothing but the latest words of the user stands before the cut");
}

#[test]
fn a_long_text_loses_its_middle_before_it_is_summarised() {
    let mut messages = talk("u1 a1 c1 r1 u2");
    messages[0].parts = vec![Part::text("ü".repeat(100_000))];
    let policy =
        summarised(SummaryPolicy::default().min_messages(5).keep_recent(0)).shown_tokens(1_000);
    let fold = fold_due(&view(&messages, Marks::default()), &policy, now()).unwrap();
    let asked = fold.request.messages[0].to_text();
    assert!(asked.len() < 4_200 && asked.contains("ü [..] ü"), "{}", asked.len());
    assert!(asked.contains("Assistant called the tool t with {}\nThe tool t returned: r1\n"));
}

#[test]
fn an_answer_that_is_no_summary_is_an_error() {
    use crate::model::{ChatResponse, FinishReason};
    let read = |text: &str, finish| {
        read_summary("m", &ChatResponse::new(vec![Part::text(text)]).finish(finish))
    };
    assert_eq!(read(" It rains.\n", FinishReason::Stop).unwrap(), "It rains.");
    assert_eq!(read("It rai", FinishReason::Length).unwrap(), "It rai");
    let error = |text, finish| read(text, finish).unwrap_err().code();
    assert_eq!(error(" \n", FinishReason::Stop), "model-malformed");
    assert_eq!(error("I will not.", FinishReason::Refusal), "model-refused");
    let long = read(&"ü".repeat(SUMMARY_BYTES), FinishReason::Stop).unwrap();
    assert_eq!(long.len(), SUMMARY_BYTES);
}

#[test]
fn each_strategy_decides_what_is_seen_of_the_time_before() {
    let messages = talk("u0 a1 u2 c3 r3 a5");
    let seen = |marks: Option<Marks>, before: &Marks| {
        let marks = marks.unwrap_or_else(|| before.clone());
        words(view(&messages, marks).visible())
    };
    let fresh = Marks::default();
    let at = |marks: &Marks| view(&messages, marks.clone());
    assert_eq!(seen(reset(&at(&fresh)), &fresh), "u2");
    for (count, expected) in [
        (7, "u0 a1 u2 c3 r3 a5"),
        (6, "u0 a1 u2 c3 r3 a5"),
        (5, "a1 u2 c3 r3 a5"),
        (4, "u2 c3 r3 a5"),
        // Less than that has no words of the user, so the latest ones are kept.
        (3, "u2 c3 r3 a5"),
        (2, "u2 c3 r3 a5"),
        (1, "u2 a5"),
        (0, "u2"),
    ] {
        assert_eq!(seen(keep_last(&at(&fresh), count), &fresh), expected, "{count}");
    }
    let fold = reset_with_summary(&at(&fresh), &all(), now()).unwrap();
    assert_eq!((fold.count, fold.through), (6, 5));
    let after = fold.into_marks("s".into());
    assert_eq!(seen(None, &after), "u2");

    // A summary is dropped, or folded in; what was put behind stays behind.
    let summed = marks(Some(1), None);
    assert_eq!(reset(&at(&summed)).unwrap(), marks(None, Some((6, Some(2)))));
    assert_eq!(keep_last(&at(&summed), 6).unwrap(), Marks::default());
    assert_eq!(seen(keep_last(&at(&summed), 5), &summed), "a1 u2 c3 r3 a5");
    let fold = reset_with_summary(&at(&summed), &all(), now()).unwrap();
    assert!(fold.request.messages[0].to_text().contains("before"));
    let begun = marks(None, Some((5, Some(2))));
    assert_eq!(seen(keep_last(&at(&begun), 9), &begun), "u2 a5");
    assert_eq!(seen(keep_last(&at(&begun), 1), &begun), "u2 a5");
}

#[test]
fn a_conversation_that_is_where_it_would_begin_is_left_alone() {
    for (stored, marks) in [
        ("", Marks::default()),
        ("u0", Marks::default()),
        ("u0 a1 u2", marks(None, Some((3, Some(2))))),
    ] {
        let messages = talk(stored);
        let view = view(&messages, marks);
        assert_eq!(reset(&view), None, "{stored}");
        assert_eq!(keep_last(&view, 3), None, "{stored}");
        assert!(reset_with_summary(&view, &all(), now()).is_none(), "{stored}");
    }
    // The summary of a conversation that is otherwise behind stays.
    let messages = talk("u0 a1 u2");
    let view = view(&messages, marks(Some(2), Some((3, Some(2)))));
    assert!(reset_with_summary(&view, &all(), now()).is_none());
    assert_eq!(reset(&view).unwrap().summary, None);
}

/// The rules of OpenAI and Anthropic, and those of local models that take turns only.
fn check_order(messages: &[Message]) -> Result<(), String> {
    let fail = |place: usize, why: &str| Err(format!("{why} at {place}: {}", words(messages)));
    if messages.first().is_none_or(|message| message.role != Role::User) {
        return fail(0, "the user does not speak first");
    }
    if messages.last().is_none_or(|message| message.role == Role::Assistant) {
        return fail(messages.len(), "the assistant speaks last");
    }
    for (place, message) in messages.iter().enumerate() {
        let before = place.checked_sub(1).map(|before| &messages[before]);
        if before.is_some_and(|before| before.role == message.role) {
            return fail(place, "one role twice");
        }
        if message.parts.is_empty() {
            return fail(place, "nothing is said");
        }
        let calls = |message: &Message| -> Vec<String> {
            let calls = message.parts.iter().filter_map(|part| match part {
                Part::ToolCall(call) => Some(call.id.clone()),
                _ => None,
            });
            calls.collect()
        };
        let results = message.parts.iter().filter_map(|part| match part {
            Part::ToolResult(result) => Some(result.id.clone()),
            _ => None,
        });
        let wanted = before.map(calls).unwrap_or_default();
        if results.collect::<Vec<_>>() != wanted {
            return fail(place, "the results are not those of the calls before");
        }
        let mut unique = calls(message);
        unique.sort();
        unique.dedup();
        if unique.len() != calls(message).len() {
            return fail(place, "two calls with one id");
        }
        if wanted.is_empty() == (message.role == Role::Tool) {
            return fail(place, "a tool speaks out of turn");
        }
    }
    Ok(())
}

/// Any conversation, also one that no engine would write.
fn any_talk() -> impl Strategy<Value = Vec<Message>> {
    let word = prop_oneof![
        3 => Just("u"), 3 => Just("a"), 1 => Just("_"), 1 => Just("~"),
        2 => Just("c1"), 1 => Just("c2"), 2 => Just("c1+c2"), 1 => Just("c1+c1"), 1 => Just("a+c2"),
        2 => Just("r1"), 1 => Just("r2"), 2 => Just("r1+r2"), 1 => Just("u+r1"), 1 => Just("~+c2"),
    ];
    proptest::collection::vec(word, 0..24).prop_map(|words| {
        let mut messages = talk(&words.join(" "));
        for message in &mut messages {
            for part in &mut message.parts {
                if let Part::Text { text } = part
                    && is_own(text)
                {
                    *text = format!("{text}{}", message.seq);
                }
            }
        }
        messages
    })
}

/// Whether a text was said, and is not one of the framework's.
fn is_own(text: &str) -> bool {
    text.starts_with(['u', 'a'])
}

fn any_marks() -> impl Strategy<Value = Marks> {
    let start = proptest::option::of((0..24_u64, proptest::option::of(0..24_u64)));
    (proptest::option::of(0..24_u64), start).prop_map(|(summary, start)| marks(summary, start))
}

proptest! {
    #[test]
    fn what_is_shown_is_in_order_and_within_the_limits(
        messages in any_talk(), marks in any_marks(), most in 0..20_usize, tokens in 0..200_usize,
    ) {
        let policy = all().shown_messages(most).shown_tokens(tokens);
        let view = view(&messages, marks);
        let shown = shown(&view, &policy, now());
        prop_assert_eq!(check_order(&shown), Ok(()));
        let visible = view.visible();
        let said = visible.iter().rposition(|message| message.role == Role::User);
        let text = said.map(|said| &visible[said].parts[0]);
        if let Some(Part::Text { text }) = text && !text.trim().is_empty() {
            let mut parts = shown.iter().flat_map(|message| &message.parts);
            prop_assert!(parts.any(|part| *part == Part::text(text)), "{text} is not shown");
        }
        // Only what the user said last, with its group, may be more than the limit.
        let groups = super::group::groups(&visible);
        let asking = groups.iter().find(|group| said.is_some_and(|said| group.contains(&said)));
        let most = most.max(asking.map_or(0, |group| group.len()));
        let parts = shown.iter().flat_map(|message| &message.parts);
        let texts = parts.filter(|part| matches!(part, Part::Text { text } if is_own(text)));
        prop_assert!(texts.count() <= most);
    }

    #[test]
    fn no_cut_parts_a_call_from_its_result(messages in any_talk(), place in 0..24_usize) {
        let cut = cut_at(&messages, place);
        prop_assert!(cut <= place);
        let (behind, kept) = messages.split_at(cut);
        let marks = Marks::default;
        let both = [behind, kept].map(|part| shown(&view(part, marks()), &all(), now()));
        let whole = shown(&view(&messages, marks()), &all(), now());
        let results = |shown: &[Message]| {
            let parts = shown.iter().flat_map(|message| message.parts.clone());
            parts.filter(|part| matches!(part, Part::ToolResult(_))).collect::<Vec<_>>()
        };
        prop_assert_eq!([results(&both[0]), results(&both[1])].concat(), results(&whole));
    }

    #[test]
    fn strategies_and_summaries_never_bring_back_what_is_behind(
        messages in any_talk(), marks in any_marks(), count in 0..20_usize, least in 1..20_usize,
    ) {
        let before = view(&messages, marks);
        let policy = summarised(SummaryPolicy::default().min_messages(least).keep_recent(count));
        let seqs = |messages: Vec<&Message>| messages.iter().map(|m| m.seq).collect::<Vec<_>>();
        let folded = fold_due(&before, &policy, now()).map(|fold| fold.into_marks("s".into()));
        let summed = reset_with_summary(&before, &policy, now());
        let summed = summed.map(|fold| fold.into_marks("s".into()));
        for after in [folded, summed, reset(&before), keep_last(&before, count)] {
            let Some(after) = after else { continue };
            let after = view(&messages, after);
            let started = seqs(before.started());
            prop_assert!(seqs(after.visible()).iter().all(|seq| started.contains(seq)));
            let said = |view: &View<'_>| {
                view.visible().iter().rfind(|m| m.role == Role::User).map(|m| m.seq)
            };
            if said(&before).is_some() {
                prop_assert!(said(&after) >= said(&before), "the words of the user stay");
            }
        }
    }
}
