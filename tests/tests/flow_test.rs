//! `FlowTest`: conversations written down as they are expected to go.

use flow_core::model::scripted::ScriptedModel;
use flow_core::prelude::*;
use flow_core::testing::FlowTest;
use serde_json::json;

#[flow(id = "desk", steps(Ask, Done), state = Seen, model = "test::desk")]
#[derive(Clone)]
struct Desk;

impl Flow for Desk {}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Seen {
    room: u32,
}

#[step(reply, tools, next(Done, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Ask;

impl Reply for Ask {
    type Flow = Desk;
}

#[tools]
impl Ask {
    /// The guest took a room.
    #[tool]
    async fn take(&mut self, cx: &mut StepCx<'_, Desk>, room: u32) -> AskNext {
        cx.state.room = room;
        AskNext::Done
    }
}

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Done;

impl Reply for Done {
    type Flow = Desk;

    fn response(&self, cx: &StepCx<'_, Desk>) -> Option<String> {
        Some(format!("Room {} is yours.", cx.state.room))
    }
}

fn conversation() -> FlowTest<Desk> {
    let script = ScriptedModel::new().text("Which room?").tool_call("take", json!({ "room": 7 }));
    FlowTest::new(Desk).model(script).say("hello")
}

#[tokio::test]
async fn a_conversation_that_goes_as_expected() {
    conversation()
        .expect_reply("Which room?")
        .expect_step::<Ask>()
        .say("seven")
        .expect_step::<Done>()
        .expect_reply_contains("Room 7")
        .expect_state(|state| state.room == 7)
        .run()
        .await;
}

#[tokio::test]
async fn a_turn_that_fails_as_expected() {
    conversation()
        .say("seven")
        .say_expecting_error("x".repeat(2 << 20), "message-too-large")
        .run()
        .await;
}

#[tokio::test]
#[should_panic(expected = "flow_test.rs:79:20: stands at `Ask`, not at `Done`")]
async fn an_expectation_that_is_not_met_names_its_line() {
    conversation().expect_step::<Done>().run().await;
}

#[tokio::test]
#[should_panic(expected = "the turn failed: flow `desk`: the model of step `Ask`")]
async fn a_turn_that_fails_without_being_expected_to() {
    FlowTest::new(Desk).model(ScriptedModel::new()).say("hello").run().await;
}
