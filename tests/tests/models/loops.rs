//! The tool loop: every call gets exactly one result.

use flow_core::message::{Part, Role, ToolCallPart, ToolResultPart};
use flow_core::model::{ChatResponse, ToolChoice};

use super::*;

/// The results that the model was told in its last request.
fn results(model: &ScriptedModel) -> Vec<ToolResultPart> {
    let requests = model.requests();
    let last = requests.last().unwrap().messages.last().unwrap().clone();
    assert_eq!(last.role, Role::Tool);
    last.parts
        .into_iter()
        .map(|part| match part {
            Part::ToolResult(result) => result,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[tokio::test]
async fn a_result_goes_back_to_the_model_and_the_history_holds_both() {
    let main = ScriptedModel::new()
        .tool_call("search", json!({ "city": "Lisbon", "nights": "2" }))
        .text("Two rooms.");
    let talk = Talk::new(main);
    assert_eq!(talk.say("rooms in Lisbon").await.unwrap().replies, ["Two rooms."]);
    let told = results(&talk.main);
    assert_eq!(told[0].content, r#"{"city":"Lisbon","nights":2,"rooms":[7,12]}"#);
    let doc = talk.doc().await;
    let roles: Vec<_> = doc.memory["explore"].messages.iter().map(|m| m.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant]);
    assert_eq!(doc.steps["Explore"]["searches"], 1);
}

#[tokio::test]
async fn a_tool_of_the_flow_is_called_by_its_name_with_an_idempotency_key() {
    let main = ScriptedModel::new().tool_call("weather", json!({ "city": "Oslo" })).text("Sunny.");
    let talk = Talk::new(main);
    talk.say("weather?").await.unwrap();
    let told = &results(&talk.main)[0].content;
    assert!(told.starts_with("Oslo is sunny (s:1:1:0:weather:"), "{told}");
}

#[tokio::test]
async fn a_tool_of_the_flow_that_the_step_does_not_offer_cannot_be_called() {
    let main = ScriptedModel::new().tool_call("charge", json!({ "cents": 1 })).text("No.");
    let talk = Talk::new(main);
    talk.say("charge me").await.unwrap();
    assert!(!talk.main.requests()[0].tools.iter().any(|tool| tool.name == "charge"));
    let told = &results(&talk.main)[0];
    assert!(told.is_error && told.content.starts_with("there is no tool `charge`"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_are_told_to_the_model_and_the_others_are_made() {
    let main = ScriptedModel::new()
        .tool_calls([
            ("fly", json!({})),
            ("search", json!({ "city": 7.5 })),
            ("hang", json!({})),
            ("crash", json!({})),
            ("search", json!({ "city": "Rome" })),
        ])
        .text("Sorry.");
    let talk = Talk::with(quick(), main);
    talk.say("do everything").await.unwrap();
    let told = results(&talk.main);
    let contents: Vec<_> = told.iter().map(|result| result.content.as_str()).collect();
    assert!(
        contents[0].starts_with("there is no tool `fly`; known tools: search, choose"),
        "{contents:?}"
    );
    assert!(
        contents[1].starts_with("invalid arguments for tool `search` at `city`"),
        "{contents:?}"
    );
    assert!(contents[2].contains("did not return within 5s"), "{contents:?}");
    assert!(contents[3].contains("it panicked: no such room"), "{contents:?}");
    assert!(contents[4].contains("Rome"), "{contents:?}");
    assert_eq!(told.iter().filter(|result| result.is_error).count(), 4);
}

#[tokio::test]
async fn a_huge_result_loses_its_middle() {
    let talk = Talk::new(ScriptedModel::new().tool_call("dump", json!({})).text("Long."));
    talk.say("dump").await.unwrap();
    let told = &results(&talk.main)[0].content;
    assert!(told.len() < 33 * 1024 && told.contains("bytes left out"), "{}", told.len());
}

#[tokio::test]
async fn in_the_last_round_the_model_has_to_answer_in_words() {
    let search = |main: ScriptedModel| main.tool_call("search", json!({ "city": "Rome" }));
    let main = search(search(ScriptedModel::new())).text("Enough.");
    let talk = Talk::with(quick(), main);
    assert_eq!(talk.say("rooms").await.unwrap().replies, ["Enough."]);
    let choices: Vec<_> = talk.main.requests().into_iter().map(|r| r.tool_choice).collect();
    assert_eq!(choices, [ToolChoice::Auto, ToolChoice::Auto, ToolChoice::None]);
}

#[tokio::test]
async fn a_model_that_only_calls_tools_is_stopped_and_the_session_goes_on() {
    for rounds in [2, CallPolicy::default().tool_rounds] {
        let policy = CallPolicy::default().tool_rounds(rounds);
        let script = (0..=rounds).fold(ScriptedModel::new(), |model, _| {
            model.tool_call("search", json!({ "city": "Rome" }))
        });
        let talk = Talk::with(Hotel { policy, recover: false }, script);
        let error = talk.say("rooms").await.unwrap_err();
        assert_eq!((error.code(), error.retryable()), ("tool-rounds", false));
        let shown = error.to_string();
        assert!(shown.contains(&format!("{rounds} ")), "{shown}");
        assert!(shown.contains("CallPolicy::tool_rounds"), "{shown}");
        assert_eq!(talk.main.left(), 0, "it was asked no more");
        let _ = talk.main.clone().text("Two rooms.");
        assert_eq!(talk.say("rooms, please").await.unwrap().replies, ["Two rooms."]);
    }
}

#[tokio::test]
async fn calls_with_one_id_get_ids_of_their_own() {
    let call = |room: u32| {
        Part::ToolCall(ToolCallPart {
            id: "same".into(),
            name: "search".into(),
            arguments: json!({ "city": room.to_string() }),
        })
    };
    let main =
        ScriptedModel::new().response(ChatResponse::new(vec![call(1), call(2)])).text("Done.");
    let talk = Talk::new(main);
    talk.say("twice").await.unwrap();
    let ids: Vec<_> = results(&talk.main).into_iter().map(|result| result.id).collect();
    assert_eq!(ids, ["same", "same-2"]);
}

#[tokio::test]
async fn a_turn_that_fails_in_the_loop_leaves_no_call_without_a_result() {
    let main = ScriptedModel::new().text("Hello!").tool_call("search", json!({ "city": "Rome" }));
    let talk = Talk::new(main);
    talk.say("hi").await.unwrap();
    // The script has no answer to the result, so the turn fails after the call.
    let hotel = talk.say("rooms").await.unwrap_err();
    assert_eq!(hotel.code(), "model-malformed");
    let doc = talk.doc().await;
    assert_eq!(doc.memory["explore"].messages.len(), 2, "the history is as it was");
}

#[tokio::test]
async fn a_way_out_that_a_tool_takes_has_to_pass_the_gate_of_the_step() {
    let main = ScriptedModel::new().tool_call("choose", json!({ "room": 13 })).text("Another one?");
    let talk = Talk::new(main);
    let outcome = talk.say("room 13").await.unwrap();
    assert_eq!(
        (outcome.step.as_str(), outcome.replies.join("|")),
        ("Explore", "Another one?".into())
    );
    let told = &results(&talk.main)[0];
    assert!(told.is_error && told.content.ends_with("room 13 is being painted"), "{told:?}");
}
