//! Values instead of words: how a model is asked for one, and what becomes of its answer.

use std::collections::BTreeMap;

use flow_core::message::{Part, Role};
use flow_core::model::{Capabilities, ChatResponse, FinishReason, TokenUsage};

use super::*;

/// Sorts what is said at a desk.
#[flow(id = "desk", version = 1, steps(Listen, Triage, Judge), model = "test::main")]
#[derive(Clone)]
struct Desk {
    start: &'static str,
}

impl Flow for Desk {
    fn initial_step(&self) -> Option<std::borrow::Cow<'static, str>> {
        Some(self.start.into())
    }
}

/// Looks something up and says it.
#[step(reply, tools, next(Triage))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Listen;

impl Reply for Listen {
    type Flow = Desk;

    async fn on_response(
        &mut self,
        _: &str,
        _: &mut StepCx<'_, Desk>,
    ) -> Result<Option<ListenNext>> {
        Ok(Some(ListenNext::Triage))
    }
}

#[tools]
impl Listen {
    /// Looks up a room.
    #[tool]
    async fn look_up(&self, room: u32) -> Result<String> {
        Ok(format!("room {room} is wet"))
    }
}

/// Says what the user's last message is about.
#[step(decide, next(end, escalate))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Triage;

/// A complaint.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Ticket {
    /// In one word.
    topic: String,
    urgency: Urgency,
    rooms: Vec<Room>,
    phone: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Urgency {
    High,
    Low,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Room {
    number: u32,
}

impl Decide for Triage {
    type Flow = Desk;
    type Verdict = Ticket;

    async fn decide(&mut self, ticket: Ticket, cx: &mut StepCx<'_, Desk>) -> Result<TriageNext> {
        let rooms: Vec<_> = ticket.rooms.iter().map(|room| room.number).collect();
        cx.say(format!("{} in {rooms:?}", ticket.topic));
        Ok(match ticket.urgency {
            Urgency::High => TriageNext::Escalate(ticket.topic),
            Urgency::Low => TriageNext::End(ticket.topic),
        })
    }
}

/// Asks for values of the type that the context names.
#[step(action, memory = "judge", next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Judge;

impl Action for Judge {
    type Flow = Desk;

    async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<JudgeNext> {
        let prompt = "Judge it.";
        let said = match cx.context("type").and_then(Value::as_str).unwrap_or("bool") {
            "bool" => cx.extract::<bool>(prompt).await?.to_string(),
            "urgency" => format!("{:?}", cx.extract::<Urgency>(prompt).await?),
            "map" => format!("{:?}", cx.extract::<BTreeMap<String, u8>>(prompt).await?),
            other => panic!("{other}"),
        };
        cx.say(said);
        Ok(JudgeNext::Stay)
    }
}

fn desk(start: &'static str, model: &ScriptedModel) -> Engine {
    let models = ModelCatalog::new().model("test::main", model.clone());
    let builder = Engine::builder().store(MemoryStore::new()).flow(Desk { start });
    builder.models(models).build().unwrap()
}

async fn say(engine: &Engine, text: &str) -> Result<TurnOutcome, flow_core::Error> {
    engine.turn::<Desk>(TurnRequest::new(session()).message(text)).await
}

/// A verdict on a message, and what the model was asked.
async fn judged(kind: &str, model: ScriptedModel) -> (Vec<String>, Vec<ChatRequest>) {
    let engine = desk("Judge", &model);
    let request = TurnRequest::new(session()).message("It burns!").context("type", kind);
    let outcome = engine.turn::<Desk>(request).await.unwrap();
    (outcome.replies, model.requests())
}

fn ticket() -> Value {
    json!({ "topic": "water", "urgency": "high", "rooms": [{ "number": 7 }], "phone": null })
}

fn can(structured_output: bool, tools: bool) -> Capabilities {
    Capabilities::default().structured_output(structured_output).tools(tools)
}

#[tokio::test]
async fn a_model_that_keeps_to_schemas_gets_the_schema_as_the_form_of_its_answer() {
    let model = ScriptedModel::new().capabilities(can(true, true)).text(ticket().to_string());
    let engine = desk("Triage", &model);
    let outcome = say(&engine, "Water drips into room 7").await.unwrap();
    assert_eq!(outcome.replies, ["water in [7]"]);
    insta::assert_json_snapshot!("native", shown(&model.requests()[0]));
}

#[tokio::test]
async fn a_model_that_does_not_is_made_to_call_a_tool() {
    let model = ScriptedModel::new().tool_call("submit_ticket", ticket());
    let engine = desk("Triage", &model);
    let outcome = say(&engine, "Water drips into room 7").await.unwrap();
    assert_eq!(outcome.replies, ["water in [7]"]);
    insta::assert_json_snapshot!("tool", shown(&model.requests()[0]));
}

#[tokio::test]
async fn a_model_without_tools_is_asked_for_a_fenced_block() {
    let answer = format!("Of course:\n```json\n{:#}\n```\nAnything else?", ticket());
    let model = ScriptedModel::new().capabilities(can(false, false)).text(answer);
    let engine = desk("Triage", &model);
    let outcome = say(&engine, "Water drips into room 7").await.unwrap();
    assert_eq!(outcome.replies, ["water in [7]"]);
    insta::assert_json_snapshot!("prompt", shown(&model.requests()[0]));
}

#[tokio::test]
async fn an_object_with_free_keys_is_asked_for_by_a_tool_since_no_strict_form_can_say_it() {
    let model = ScriptedModel::new().capabilities(can(true, true));
    let (said, requests) =
        judged("map", model.tool_call("submit_map_of_uint8", json!({ "value": { "a": "1" } })))
            .await;
    assert_eq!(said, [r#"{"a": 1}"#]);
    assert!(requests[0].output.is_none());
}

#[tokio::test]
async fn the_conversation_is_shown_in_words_and_the_answer_leaves_no_trace() {
    let usage = |response: ChatResponse| response.usage(TokenUsage::new(10, 2));
    let text = |text: &str| usage(ChatResponse::new(vec![Part::text(text)]));
    let model = ScriptedModel::new()
        .capabilities(can(true, true))
        .tool_call("look_up", json!({ "room": 7 }))
        .response(text("Oh dear."))
        .response(text(&ticket().to_string()));
    let engine = desk("Listen", &model);
    let mut turn = engine.turn::<Desk>(TurnRequest::new(session()).message("Room 7 drips"));
    let mut events = Vec::new();
    while let Some(event) = turn.next_event().await {
        events.push(event);
    }
    turn.await.unwrap();

    insta::assert_json_snapshot!("conversation", shown(&model.requests()[2])["messages"]);
    let after = events.iter().rposition(|event| matches!(event, Event::StepEnter { .. })).unwrap();
    let names: Vec<_> = events[after..].iter().map(Event::name).collect();
    assert_eq!(names, ["step-enter", "usage", "message", "turn-end"]);
    let doc = engine.session(session()).load().await.unwrap();
    assert_eq!(doc.usage, TokenUsage::new(20, 4));
    let roles: Vec<_> = doc.memory["main"].messages.iter().map(|m| m.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant, Role::Assistant]);
}

#[tokio::test]
async fn an_answer_that_does_not_fit_goes_back_once_with_what_is_wrong() {
    let bad = json!({ "topic": "water", "urgency": "extreme", "rooms": [{ "number": "seven" }] });
    for (name, capabilities) in
        [("tool", can(false, true)), ("native", can(true, true)), ("prompt", can(false, false))]
    {
        let model = ScriptedModel::new().capabilities(capabilities);
        let model = match name {
            "tool" => {
                model.tool_call("submit_ticket", bad.clone()).tool_call("submit_ticket", ticket())
            }
            _ => model.text(bad.to_string()).text(ticket().to_string()),
        };
        let engine = desk("Triage", &model);
        let outcome = say(&engine, "Water drips into room 7").await.unwrap();
        assert_eq!(outcome.replies, ["water in [7]"]);
        let request = shown(&model.requests()[1]);
        insta::assert_json_snapshot!(format!("corrected_{name}"), request["messages"]);
        let doc = engine.session(session()).load().await.unwrap();
        let kept: Vec<_> = doc.memory["main"].messages.iter().map(|m| m.to_text()).collect();
        assert_eq!(kept, ["Water drips into room 7", "water in [7]"]);
    }
}

#[tokio::test]
async fn a_model_that_calls_no_tool_or_another_one_is_told_so() {
    let model =
        ScriptedModel::new().tool_call("shout", json!({})).tool_call("submit_ticket", ticket());
    let engine = desk("Triage", &model);
    say(&engine, "Water drips into room 7").await.unwrap();
    let messages = model.requests()[1].messages.clone();
    let told: Vec<_> = messages.iter().map(|m| (m.role, m.to_text())).skip(1).collect();
    let text =
        "This does not fit: at `.`: the tool `submit_ticket` was not called. Give all of it again.";
    assert_eq!(told, [(Role::Assistant, "(no answer)".to_owned()), (Role::User, text.to_owned())]);
}

#[tokio::test]
async fn a_second_answer_that_does_not_fit_fails_the_turn_and_names_the_place() {
    let bad = json!({ "topic": "my secret", "urgency": "low", "rooms": [{ "number": 7 }, {}] });
    let model = ScriptedModel::new()
        .tool_call("submit_ticket", bad.clone())
        .tool_call("submit_ticket", bad);
    let engine = desk("Triage", &model);
    let error = say(&engine, "Water drips into room 7").await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("model-output", true));
    let message = error.to_string();
    assert!(message.contains("at `rooms[1]`: \"number\" is a required property"), "{message}");
    assert!(!message.contains("secret"), "{message}");
    assert_eq!(model.requests().len(), 2);
    // The turn may be sent again.
    let _ = model.tool_call("submit_ticket", ticket());
    assert_eq!(say(&engine, "Water drips into room 7").await.unwrap().replies, ["water in [7]"]);
}

#[tokio::test]
async fn a_value_that_is_no_object_is_asked_for_in_one() {
    let model = ScriptedModel::new().tool_call("submit_urgency", json!({ "value": "HIGH" }));
    let (said, requests) = judged("urgency", model).await;
    assert_eq!(said, ["High"]);
    insta::assert_json_snapshot!("scalar", shown(&requests[0]));
    // The bare value means the same.
    for bare in ["true", "```\ntrue\n```", "{\"value\": \"true\"}"] {
        let model = ScriptedModel::new().capabilities(can(false, false)).text(bare);
        assert_eq!(judged("bool", model).await.0, ["true"], "{bare}");
    }
}

#[tokio::test]
async fn a_refusal_is_an_error_of_its_own_and_is_not_corrected() {
    let refused = ChatResponse::new(vec![Part::text("No.")]).finish(FinishReason::Refusal);
    let model = ScriptedModel::new().response(refused);
    let engine = desk("Triage", &model);
    let error = say(&engine, "Water drips into room 7").await.unwrap_err();
    assert_eq!(error.code(), "model-refused");
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn what_the_user_says_now_is_shown_once_whichever_memory_keeps_it() {
    // Triage speaks of the main memory, Judge of its own.
    let model = ScriptedModel::new().text("true").text("false").text("true");
    let model = model.capabilities(can(false, false));
    let engine = desk("Judge", &model);
    for text in ["yes", "yes"] {
        say(&engine, text).await.unwrap();
    }
    engine.turn::<Desk>(TurnRequest::new(session())).await.unwrap();
    let texts = |request: &ChatRequest| -> Vec<String> {
        request.messages.iter().map(|m| m.to_text()).collect()
    };
    let requests = model.requests();
    assert_eq!(texts(&requests[0]), ["yes"]);
    assert_eq!(texts(&requests[1]), ["yes", "true", "yes"]);
    // Nothing is said now: the request ends with the user all the same.
    assert_eq!(texts(&requests[2]), ["yes", "true", "yes", "false", "(Please go on.)"]);
}

#[tokio::test]
async fn without_a_model_there_is_no_verdict() {
    /// No model.
    #[flow(id = "mute", version = 1, steps(Think))]
    #[derive(Clone)]
    struct Mute;
    impl Flow for Mute {}

    #[step(decide, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Think;

    impl Decide for Think {
        type Flow = Mute;
        type Verdict = bool;

        async fn decide(&mut self, _: bool, _: &mut StepCx<'_, Mute>) -> Result<ThinkNext> {
            Ok(ThinkNext::End("done".into()))
        }
    }

    let engine = Engine::builder().store(MemoryStore::new()).flow(Mute).build().unwrap();
    let error = engine.turn::<Mute>(TurnRequest::new(session()).message("hm")).await.unwrap_err();
    assert_eq!(error.code(), "no-model");
    assert!(error.to_string().contains("`verdict`"), "{error}");
}
