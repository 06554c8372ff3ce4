//! What a step sees of the time before it was entered.

use flow_core::session::ContextStart;

use super::*;

/// A room in which some things were said.
async fn talked() -> Room {
    let room = Room::new(summaries(100, 1));
    let _ = room.main.clone().tool_call("look", json!({ "what": "rooms" }));
    room.say_all(&["hello", "a room"]).await;
    room
}

/// What is shown on entering, and in the turn after that.
async fn enter(room: &Room, to: &str) -> String {
    room.go(to, "room 7 then").await;
    let first = room.asked();
    room.say("and breakfast").await;
    format!("{first}\n\n{}", room.asked())
}

#[tokio::test]
async fn append_goes_on() {
    let room = talked().await;
    insta::assert_snapshot!(enter(&room, "shared").await);
    assert_eq!(room.doc().await.memory["talk"].start, None);
}

#[tokio::test]
async fn reset_keeps_the_latest_message_of_the_user() {
    let room = talked().await;
    insta::assert_snapshot!(enter(&room, "fresh").await);
    let doc = room.doc().await;
    assert_eq!(doc.memory["talk"].start, Some(ContextStart { seq: 9, kept: Some(6) }));
    assert_eq!(doc.memory["talk"].messages.len(), 12, "nothing is deleted");
}

#[tokio::test]
async fn last_keeps_whole_groups() {
    let room = talked().await;
    insta::assert_snapshot!(enter(&room, "tail").await);
    assert_eq!(room.doc().await.memory["talk"].messages.len(), 12, "nothing is deleted");
}

#[tokio::test]
async fn reset_with_summary_keeps_a_summary_too() {
    let room = talked().await;
    let _ = room.summary.clone().text("They want a room.");
    insta::assert_snapshot!(enter(&room, "brief").await);
    insta::assert_snapshot!("what_is_summarised_on_entering", show(&room.summary.requests()[0]));
    let doc = room.doc().await;
    assert_eq!(doc.memory["talk"].messages.len(), 12, "nothing is deleted");
    assert_eq!(doc.memory["talk"].summary.as_ref().unwrap().through, 8);
}

#[tokio::test]
async fn reset_with_summary_folds_an_earlier_summary_in() {
    let room = Room::new(summaries(5, 1));
    let _ = room.summary.clone().text("They greet.").text("They greet and want a room.");
    room.say_all(&["hello", "good day", "a room"]).await;
    room.go("brief", "room 7 then").await;
    let requests = room.summary.requests();
    let asked = requests.last().unwrap().messages[0].to_text();
    assert!(asked.starts_with("<earlier-summary>\nThey greet.\n</earlier-summary>"), "{asked}");
    let doc = room.doc().await;
    assert_eq!(doc.memory["talk"].summary.as_ref().unwrap().text, "They greet and want a room.");
}

#[tokio::test]
async fn reset_with_summary_begins_anew_without_one_when_it_fails() {
    for answers in [1, 0] {
        let room = talked().await;
        // The answer is empty, or there is none.
        for _ in 0..answers {
            let _ = room.summary.clone().text("");
        }
        let _ = room.main.clone().tool_call("go", json!({ "to": "brief" })).text("SEVEN");
        let events = room.events("room 7 then").await;
        let event = serde_json::to_value(&events).unwrap();
        assert_eq!(
            json!([event[0]["type"], event[0]["step"], event[0]["code"], event[0]["reset"]]),
            json!(["memory-summary-failed", "Brief", "model-malformed", true])
        );
        assert_eq!(room.asked(), "[system] You are Brief.\n[user] room 7 then");
        let doc = room.doc().await;
        assert_eq!(doc.memory["talk"].summary, None);
        assert_eq!(doc.memory["talk"].messages.len(), 10);
    }
}

#[tokio::test]
async fn a_strategy_is_committed_with_the_crossing() {
    for to in ["fresh", "brief", "tail"] {
        let room = talked().await;
        let _ = room.summary.clone().text("They want a room.");
        // The step is entered, and its model has no answer.
        let _ = room.main.clone().tool_call("go", json!({ "to": to }));
        room.turn("room 7 then").await.unwrap_err();
        let shown = room.asked();
        let entered = room.doc().await;
        assert_eq!(entered.current_step.to_lowercase(), to);
        assert!(entered.memory["talk"].start.is_some(), "{to}");

        let room = room.restart(summaries(100, 1));
        room.say("still there?").await;
        let joined = if shown.contains("[tool]") { "\n[user] " } else { "\n     + " };
        assert_eq!(room.asked(), format!("{shown}{joined}still there?"), "{to}");
        let doc = room.doc().await;
        assert_eq!(doc.memory["talk"].start, entered.memory["talk"].start);
        assert_eq!(room.summary.requests().len(), 0);
    }
}

#[tokio::test]
async fn a_summary_that_has_failed_is_not_tried_again_on_entering_in_the_same_turn() {
    let room = Room::new(summaries(5, 1));
    room.say_all(&["one", "two"]).await;
    let _ = room.main.clone().tool_call("go", json!({ "to": "brief" })).text("THREE");
    let events = serde_json::to_value(room.events("three").await).unwrap();
    assert_eq!(json!([events[0]["reset"], events[1]["reset"]]), json!([false, true]));
    assert_eq!(room.summary.requests().len(), 1);
    assert_eq!(room.asked(), "[system] You are Brief.\n[user] three");
}

#[tokio::test]
async fn a_strategy_counts_before_it_is_committed() {
    let store = Arc::new(MemoryStore::new());
    let room = Room::with(store, summaries(100, 1), Durability::Turn);
    room.say("hello").await;
    room.go("fresh", "anew").await;
    assert_eq!(room.asked(), "[system] You are Fresh.\n[user] anew");
    let doc = room.doc().await;
    assert_eq!(doc.memory["talk"].start, Some(ContextStart { seq: 5, kept: Some(2) }));
}

#[tokio::test]
async fn a_strategy_is_applied_each_time_the_step_is_entered() {
    let room = talked().await;
    let _ = room.main.clone().tool_call("go", json!({ "to": "fresh" })).text("AGAIN").text("DONE");
    let outcome = room.turn("once more").await.unwrap();
    assert_eq!(outcome.replies, ["AGAIN", "DONE"]);
    assert_eq!(room.asked(), "[system] You are Fresh.\n[user] once more");
    let start = room.doc().await.memory["talk"].start.clone().unwrap();
    assert_eq!((start.seq, start.kept), (10, Some(6)));
}

#[tokio::test]
async fn a_strategy_of_one_namespace_leaves_others_alone() {
    let room = Room::new(summaries(100, 1));
    room.say("hello").await;
    room.go("fresh", "anew").await;
    let doc = room.doc().await;
    assert_eq!(doc.memory.keys().collect::<Vec<_>>(), ["talk"]);
    assert!(doc.memory["talk"].start.is_some());

    let room = Room::new(summaries(100, 1));
    room.say("hello").await;
    room.go("side", "aside").await;
    assert_eq!(room.doc().await.memory["talk"].start, None);
}

#[tokio::test]
async fn a_registry_knows_the_strategies() {
    use flow_core::memory::ContextStrategy;
    let strategies: Vec<_> = Salon::steps().iter().map(|step| step.info().context).collect();
    assert_eq!(
        strategies,
        [
            ContextStrategy::Append,
            ContextStrategy::Reset,
            ContextStrategy::ResetWithSummary,
            ContextStrategy::Last(3),
            ContextStrategy::Append,
            ContextStrategy::Append,
        ]
    );
}
