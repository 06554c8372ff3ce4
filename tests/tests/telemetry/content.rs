//! Content is in spans only when it is asked for. That is decided once for a process, so the
//! other case runs in one of its own.

use std::process::Command;

use flow_core::telemetry::CAPTURE_CONTENT;

use super::*;

/// Set for the process in which content is captured.
const CHILD: &str = "FLOW_TEST_CAPTURES_CONTENT";

/// A conversation with the canary in the prompt, in what is said, in arguments and results.
async fn converse(session: &str) {
    let model = ScriptedModel::new().tool_calls([
        ("search", json!({ "city": CANARY })),
        ("search", json!({ "city": "Atlantis" })),
        ("pay", json!({})),
    ]);
    let engine = engine(model);
    say(&engine, session, CANARY).await.unwrap();
    let answered = engine_that_says(CANARY);
    say(&answered, session, CANARY).await.unwrap();
}

fn engine_that_says(text: &str) -> Engine {
    engine(ScriptedModel::new().response(response(text)))
}

#[tokio::test]
async fn nothing_that_is_said_is_in_a_span_by_default() {
    if std::env::var_os(CAPTURE_CONTENT).is_some() {
        return;
    }
    converse("quiet").await;
    let spans = spans("quiet");
    assert_eq!(spans.len(), 6, "{spans:?}");
    for span in spans {
        let told = format!("{span:?}");
        assert!(!told.contains(CANARY), "{told}");
    }
}

#[test]
fn what_is_said_is_in_spans_when_it_is_asked_for() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    for (value, captured) in [("SPAN_ONLY", true), ("NO_CONTENT", false)] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "content::in_a_process_that_asks_for_it", "--nocapture"])
            .env(CAPTURE_CONTENT, value)
            .env(CHILD, captured.to_string())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && told.contains("1 passed"), "{value}: {child:?}");
    }
}

#[tokio::test]
async fn in_a_process_that_asks_for_it() {
    let Ok(captured) = std::env::var(CHILD) else { return };
    converse("loud").await;
    let spans = spans("loud");
    if captured == "false" {
        assert!(!format!("{spans:?}").contains(CANARY));
        return;
    }
    let read = |place: usize, name: &str| {
        let attributes = attributes(&spans[place]);
        let text = attributes.get(&format!("gen_ai.{name}")).map(|text| text.as_str().unwrap());
        text.map(|text| serde_json::from_str::<Value>(text).unwrap())
    };
    let call = |id: &str, name: &str, arguments: Value| json!({ "type": "tool_call", "id": id, "name": name, "arguments": arguments });
    let said = json!([{ "role": "user", "parts": [{ "type": "text", "content": CANARY }] }]);
    assert_eq!(read(0, "input.messages"), Some(said));
    let prompt = format!("You find rooms. {CANARY}");
    let system = json!([{ "type": "text", "content": prompt }]);
    assert_eq!(read(0, "system_instructions"), Some(system));
    let calls = [
        call("call-1", "search", json!({ "city": CANARY })),
        call("call-2", "search", json!({ "city": "Atlantis" })),
        call("call-3", "pay", json!({})),
    ];
    let answered = json!([{ "role": "assistant", "parts": calls, "finish_reason": "tool_call" }]);
    assert_eq!(read(0, "output.messages"), Some(answered));
    let tools = read(0, "tool.definitions").unwrap();
    assert_eq!((&tools[0]["type"], &tools[0]["name"]), (&json!("function"), &json!("search")));
    assert_eq!(read(1, "tool.call.arguments"), Some(json!({ "city": CANARY })));
    assert_eq!(read(1, "tool.call.result"), Some(json!({ "city": CANARY, "rooms": [7] })));
    assert_eq!(read(2, "tool.call.result"), None);
    assert_eq!(read(4, "tool.call.result"), Some(json!(format!("charged {CANARY}"))));
    let words = json!([{ "type": "text", "content": CANARY }]);
    let answer = json!([{ "role": "assistant", "parts": words, "finish_reason": "stop" }]);
    assert_eq!(read(5, "output.messages"), Some(answer));
}
