//! What an answer becomes.

use flow_core::message::Part;
use flow_core::model::{FinishReason, ModelEvent};
use serde_json::json;
use tests::model_server::{Answer, ModelServer, anthropic, openai};

use super::{WIRES, Wire, call, hello, say};
use flow_core::message::Role;

#[tokio::test]
async fn text_comes_as_it_is_with_its_usage_and_metadata() {
    for wire in WIRES {
        let deltas = ["  Grüße", ", ", "wörld 🦀\n"];
        let (events, response) = wire.ask_one(wire.text(&deltas)).await.unwrap();
        assert_eq!(response.parts, [Part::text("  Grüße, wörld 🦀\n")], "{wire:?}");
        assert_eq!(response.finish, FinishReason::Stop);
        let usage = response.usage;
        let tokens = [usage.input, usage.output, usage.cached, usage.reasoning];
        assert_eq!(tokens, [20, 9, 16, 4], "{wire:?}");
        let (id, model) = match wire.anthropic {
            true => ("msg_1", "claude-test-2026"),
            false => ("chatcmpl-1", "gpt-test-2026"),
        };
        assert_eq!(json!(response.metadata), json!({ "id": id, "model": model }), "{wire:?}");
        if wire.streamed {
            let told: Vec<ModelEvent> =
                deltas.map(|text| ModelEvent::TextDelta(text.to_owned())).into();
            assert_eq!(events, told, "{wire:?}");
        }
    }
}

#[tokio::test]
async fn whole_and_streamed_answers_are_equal() {
    for anthropic in [false, true] {
        let (whole, streamed) =
            (Wire { anthropic, streamed: false }, Wire { anthropic, streamed: true });
        let calls: [super::Call<'_>; 1] = [("c1", "find", &["{\"q\":", "\"a\"}"])];
        let stop = if anthropic { "tool_use" } else { "tool_calls" };
        let (_, a) = whole.ask_one(whole.answer(&["One ", "two"], &calls, stop)).await.unwrap();
        let (_, b) =
            streamed.ask_one(streamed.answer(&["One ", "two"], &calls, stop)).await.unwrap();
        assert_eq!(a, b);
    }
}

#[tokio::test]
async fn pieces_may_cut_through_events_and_letters() {
    for wire in WIRES.into_iter().filter(|wire| wire.streamed) {
        for bytes in [1, 7, 1000] {
            let answer = wire.text(&["Grüße 🦀", " und mehr"]).in_pieces_of(bytes);
            let (_, response) = wire.ask_one(answer).await.unwrap();
            assert_eq!(response.text(), "Grüße 🦀 und mehr", "{wire:?} in pieces of {bytes}");
        }
    }
}

#[tokio::test]
async fn a_call_comes_in_fragments() {
    for wire in WIRES {
        let fragments = ["{\"ci", "ty\":\"Lis", "bon\",\"n\":2}"];
        let answer = wire.calls(&[("call_a", "search", &fragments)]);
        let (events, response) = wire.ask_one(answer).await.unwrap();
        let expected = call("call_a", "search", json!({ "city": "Lisbon", "n": 2 }));
        assert_eq!(response.parts, [expected], "{wire:?}");
        assert_eq!(response.finish, FinishReason::ToolCalls);
        if wire.streamed {
            let (id, name) = ("call_a".to_owned(), "search".to_owned());
            assert_eq!(events, [ModelEvent::ToolCallStart { id, name }], "{wire:?}");
        }
    }
}

#[tokio::test]
async fn parallel_calls_are_kept_apart() {
    for wire in WIRES {
        let answer = wire.calls(&[
            ("c1", "search", &["{\"city\":", "\"Lisbon\"}"]),
            ("c2", "search", &["{\"city\":", "\"Porto\"", "}"]),
            ("c3", "weather", &["{", "}"]),
        ]);
        let (events, response) = wire.ask_one(answer).await.unwrap();
        let expected = [
            call("c1", "search", json!({ "city": "Lisbon" })),
            call("c2", "search", json!({ "city": "Porto" })),
            call("c3", "weather", json!({})),
        ];
        assert_eq!(response.parts, expected, "{wire:?}");
        assert_eq!(events.len(), if wire.streamed { 3 } else { 0 }, "{events:?}");
    }
}

#[tokio::test]
async fn a_call_counts_whatever_the_stop_reason_says() {
    for wire in WIRES {
        let stop = if wire.anthropic { "end_turn" } else { "stop" };
        let answer = wire.answer(&["Wait. "], &[("c1", "search", &["{}"])], stop);
        let (_, response) = wire.ask_one(answer).await.unwrap();
        assert_eq!(response.finish, FinishReason::ToolCalls, "{wire:?}");
        assert_eq!(response.text(), "Wait. ");
    }
}

#[tokio::test]
async fn arguments_that_are_not_json_are_kept_as_text() {
    // Anthropic's whole answers hold the arguments as JSON, which cannot be broken.
    for wire in WIRES.into_iter().filter(|wire| !wire.anthropic || wire.streamed) {
        let answer = wire.calls(&[
            ("c1", "search", &["{\"city\": ", "Lisbon"]),
            ("c2", "search", &["{\"city\":\"Porto\"}"]),
        ]);
        let (_, response) = wire.ask_one(answer).await.unwrap();
        let expected = [
            call("c1", "search", json!("{\"city\": Lisbon")),
            call("c2", "search", json!({ "city": "Porto" })),
        ];
        assert_eq!(response.parts, expected, "{wire:?}");
        assert_eq!(response.usage.input, 20, "{wire:?}");
    }
}

#[tokio::test]
async fn calls_without_arguments_have_empty_ones() {
    for wire in WIRES.into_iter().filter(|wire| !wire.anthropic || wire.streamed) {
        let (_, response) = wire.ask_one(wire.calls(&[("c1", "now", &[""])])).await.unwrap();
        assert_eq!(response.parts, [call("c1", "now", json!({}))], "{wire:?}");
    }
}

#[tokio::test]
async fn calls_without_ids_get_unique_ones() {
    let function = json!({ "name": "now", "arguments": "{}" });
    let fragment = json!({ "tool_calls": [{ "index": 0, "function": function }] });
    let answers =
        [openai::stream([fragment.clone()], "tool_calls"), openai::stream([fragment], "stop")];
    let server = ModelServer::start(answers).await;
    let wire = WIRES[1];
    let mut ids = Vec::new();
    for _ in 0..2 {
        let (events, response) = wire.ask(&wire.model(&server), &hello()).await.unwrap();
        let id = response.tool_calls().next().unwrap().id.clone();
        let begun = ModelEvent::ToolCallStart { id: id.clone(), name: "now".to_owned() };
        assert_eq!(events, [begun]);
        ids.push(id);
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn empty_content_is_an_empty_answer() {
    for wire in WIRES {
        let (events, response) = wire.ask_one(wire.text(&[])).await.unwrap();
        assert_eq!((response.parts.as_slice(), response.finish), (&[][..], FinishReason::Stop));
        assert_eq!(events, [], "{wire:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_at_its_limit_says_so() {
    for wire in WIRES {
        let stop = if wire.anthropic { "max_tokens" } else { "length" };
        let (_, response) = wire.ask_one(wire.answer(&["Once upon"], &[], stop)).await.unwrap();
        assert_eq!(response.finish, FinishReason::Length, "{wire:?}");
        assert_eq!(response.text(), "Once upon");
    }
}

#[tokio::test]
async fn deltas_of_60_kb_arrive_whole() {
    let text = "wörd ".repeat(10_000);
    let arguments = format!("{{\"text\":\"{text}\"}}");
    assert!(text.len() >= 60_000);
    for wire in WIRES {
        let answer = wire.text(&[&text, &text]).in_pieces_of(4096);
        let (events, response) = wire.ask_one(answer).await.unwrap();
        assert_eq!(response.text(), text.repeat(2), "{wire:?}");
        if wire.streamed {
            assert_eq!(events[0], ModelEvent::TextDelta(text.clone()));
        }
        let (head, tail) = arguments.split_at(30_000);
        let answer = wire.calls(&[("c1", "write", &[head, tail])]);
        let (_, response) = wire.ask_one(answer).await.unwrap();
        assert_eq!(response.parts, [call("c1", "write", json!({ "text": text }))], "{wire:?}");
    }
}

#[tokio::test]
async fn reasoning_is_told_kept_and_sent_back_only_to_its_provider() {
    let blocks = vec![
        (
            json!({ "type": "thinking", "thinking": "", "signature": "" }),
            vec![
                json!({ "type": "thinking_delta", "thinking": "Let me " }),
                json!({ "type": "thinking_delta", "thinking": "see." }),
                json!({ "type": "signature_delta", "signature": "sig/1==" }),
            ],
        ),
        (json!({ "type": "redacted_thinking", "data": "opaque" }), vec![]),
        (
            json!({ "type": "text", "text": "" }),
            vec![json!({ "type": "text_delta", "text": "Yes." })],
        ),
    ];
    let content = json!([
        { "type": "thinking", "thinking": "Let me see.", "signature": "sig/1==" },
        { "type": "redacted_thinking", "data": "opaque" },
        { "type": "text", "text": "Yes." }
    ]);
    for (wire, answer) in [
        (WIRES[2], anthropic::message(&content, "end_turn")),
        (WIRES[3], anthropic::stream(blocks, "end_turn")),
    ] {
        let server = ModelServer::start([answer, wire.text(&["ok"])]).await;
        let model = wire.model(&server);
        let (events, response) = wire.ask(&model, &hello()).await.unwrap();
        let Part::Reasoning { text, signature } = &response.parts[0] else {
            panic!("{response:?}")
        };
        assert_eq!(
            (text.as_str(), signature.as_deref()),
            ("Let me see.", Some("anthropic:sig/1=="))
        );
        assert_eq!(response.parts.len(), 3, "{wire:?} {response:?}");
        if wire.streamed {
            assert_eq!(events[0], ModelEvent::ReasoningDelta("Let me ".to_owned()));
        }

        let mut request = hello();
        request.messages.push(say(Role::Assistant, response.parts));
        request.messages.push(say(Role::User, vec![Part::text("Sure?")]));
        wire.ask(&model, &request).await.unwrap();
        assert_eq!(server.last_body()["messages"][1]["content"], content, "{wire:?}");

        let openai = ModelServer::start([WIRES[0].text(&["ok"])]).await;
        WIRES[0].ask(&WIRES[0].model(&openai), &request).await.unwrap();
        let sent = openai.last_body();
        assert_eq!(sent["messages"][1], json!({ "role": "assistant", "content": "Yes." }));
    }
}

#[tokio::test]
async fn unsigned_reasoning_is_told_by_chat_completions() {
    for name in ["reasoning", "reasoning_content"] {
        let deltas = [json!({ name: "Hm" }), json!({ name: "m." }), json!({ "content": "Yes." })];
        let message = json!({ "role": "assistant", name: "Hmm.", "content": "Yes." });
        for (wire, answer) in [
            (WIRES[0], openai::completion(&message, "stop")),
            (WIRES[1], openai::stream(deltas, "stop")),
        ] {
            let (_, response) = wire.ask_one(answer).await.unwrap();
            let reasoning = Part::Reasoning { text: "Hmm.".to_owned(), signature: None };
            assert_eq!(response.parts, [reasoning, Part::text("Yes.")], "{wire:?} {name}");
        }
    }
}

#[tokio::test]
async fn a_server_without_a_content_type_is_told() {
    let answer = Answer::bytes(200, "text/html", "<html>login</html>");
    let error = WIRES[0].ask_one(answer).await.unwrap_err();
    assert_eq!(error.code(), "model-malformed");
    assert!(error.to_string().contains("text/html"), "{error}");
}
