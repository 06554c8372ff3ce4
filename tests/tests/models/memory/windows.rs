//! What stays in the document, and how much of it is shown.

use super::*;

#[tokio::test]
async fn a_thousand_messages_leave_a_small_document_and_none_is_lost() {
    let policy = summaries(40, 10);
    let room = Room::new(policy.clone());
    let mut sizes = Vec::new();
    for turn in 0..500 {
        let _ = room.summary.clone().text(format!("summary of turn {turn}"));
        room.say(&format!("message number {turn:04}")).await;
        let doc = room.doc().await;
        let kept = doc.memory["talk"].messages.len();
        assert!(kept < policy.window + policy.batch, "turn {turn}: {kept}");
        sizes.push(serde_json::to_vec(&doc).unwrap().len());
    }
    // The first summary is made of 41 messages, since a turn adds two, and leaves 10; each of
    // the others is made when there are 40 again.
    let summarised = room.summary.requests().len();
    assert_eq!(summarised, 1 + (999 - 41) / 30);
    let longest = room.main.requests().iter().map(|request| request.messages.len()).max();
    assert_eq!(longest, Some(39), "one less than the threshold");
    let (early, late) = (sizes[100..200].iter().max(), sizes[400..].iter().max());
    assert!(late.unwrap() - early.unwrap() < 200, "{early:?} {late:?}");

    let transcript = room.transcript().await;
    let said: Vec<_> = transcript.messages().iter().map(|message| message.to_text()).collect();
    assert_eq!(said.len(), 1_000);
    for (turn, pair) in said.chunks(2).enumerate() {
        let text = format!("message number {turn:04}");
        assert_eq!(pair, [text.clone(), text.to_uppercase()]);
    }
}

#[tokio::test]
async fn the_system_prompt_and_what_only_fills_a_request_are_never_stored() {
    let room = Room::new(summaries(3, 1));
    let _ = room.summary.clone().text("They greet.").text("They greet again.");
    room.say_all(&["hi", "hello"]).await;
    // The side has no messages, so the user says something that is not stored.
    room.go("side", "aside, please").await;
    assert_eq!(room.asked(), "[system] You are Side.\n[user] (Please go on.)");
    let transcript = room.transcript().await;
    let stored = serde_json::to_string(&transcript.doc).unwrap();
    assert!(stored.contains("They greet again."), "{stored}");
    for text in ["You are", "You keep the memory", "(Please go on.)", "(The conversation"] {
        assert!(!stored.contains(text), "{text} in {stored}");
        let said = transcript.messages();
        assert!(said.iter().all(|message| !message.to_text().contains(text)), "{text}");
    }
}

#[tokio::test]
async fn a_window_never_parts_a_call_from_its_result() {
    let policy = MemoryPolicy::default().window(4).batch(1).shown_messages(4);
    let room = Room::new(policy);
    for turn in 0..30 {
        for call in 0..turn % 4 {
            let _ = room.main.clone().tool_call("look", json!({ "what": call.to_string() }));
        }
        room.say(&format!("turn {turn}")).await;
        let doc = room.doc().await;
        let kept = &doc.memory["talk"].messages;
        assert_ne!(kept[0].role, Role::Tool, "turn {turn}");
        // One more than the window where a group stands across it.
        assert!((4.min(2 * turn + 2)..=5).contains(&kept.len()), "turn {turn}: {}", kept.len());
    }
    for request in room.main.requests() {
        let shown = show(&request);
        assert_eq!(request.messages[0].role, Role::User, "{shown}");
        for (before, message) in request.messages.iter().zip(&request.messages[1..]) {
            let calls = before.parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
            assert_eq!(calls, message.role == Role::Tool, "{shown}");
        }
    }
    let transcript = room.transcript().await;
    let seqs: Vec<_> = transcript.messages().iter().map(|message| message.seq).collect();
    assert_eq!(seqs, (0..transcript.doc.next_message).collect::<Vec<_>>());
    assert!(transcript.archive.len() > 10);
}

#[tokio::test]
async fn a_call_that_is_no_longer_shown_keeps_its_id_to_itself() {
    let room = Room::new(MemoryPolicy::default().shown_messages(1));
    let look = |id: &str| {
        let call = flow_core::message::ToolCallPart {
            id: id.to_owned(),
            name: "look".to_owned(),
            arguments: json!({ "what": "up" }),
        };
        flow_core::model::ChatResponse::new(vec![Part::ToolCall(call)])
    };
    for text in ["first", "second"] {
        let _ = room.main.clone().response(look("same"));
        room.say(text).await;
    }
    assert!(room.asked().contains("same-2 look("), "{}", room.asked());
}

#[tokio::test]
async fn a_lower_window_moves_what_is_beyond_it_in_several_entries() {
    let room = Room::new(MemoryPolicy::default().window(200));
    for turn in 0..100 {
        room.say(&format!("message {turn:03}")).await;
    }
    assert!(room.transcript().await.archive.is_empty());
    let room = room.restart(MemoryPolicy::default().window(8).batch(4));
    room.say("lower").await;
    let transcript = room.transcript().await;
    let sizes: Vec<_> = transcript.archive.iter().map(|entry| entry.messages.len()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 202 - 8);
    assert!(sizes.iter().all(|size| (4..=8).contains(size)), "{sizes:?}");
    let entries: Vec<_> = transcript.archive.iter().map(|entry| entry.seq).collect();
    assert_eq!(entries, (0..transcript.doc.archive.next).collect::<Vec<_>>());
    let archived = transcript.archive.iter().flat_map(|entry| &entry.messages);
    let live = &transcript.doc.memory["talk"].messages;
    let seqs: Vec<_> = archived.map(|m| m.message.seq).chain(live.iter().map(|m| m.seq)).collect();
    assert_eq!(seqs, (0..202).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_policy_of_the_flow_limits_what_is_shown() {
    let room = Room::new(MemoryPolicy::default().shown_messages(3));
    room.say_all(&["one", "two", "three"]).await;
    insta::assert_snapshot!(room.asked(), @r"
    [system] You are the chat.
    [user] two
    [assistant] TWO
    [user] three
    ");
    // Each message has 4 tokens and its text; the words of the user are too long by far.
    let room = room.restart(MemoryPolicy::default().shown_tokens(100));
    let long = "please ".repeat(100);
    room.say(&long).await;
    assert_eq!(room.asked(), format!("[system] You are the chat.\n[user] {long}"));
}
