//! Forms that a model reads where the resolvers do not.

use flow_core::message::{Part, Role};
use flow_core::model::{Capabilities, ChatResponse, FinishReason, TokenUsage};
use flow_core::outcome::Outcome;

use super::*;

/// Takes reservations.
#[flow(id = "table", version = 1, steps(Reserve), model = "test::main")]
#[derive(Clone)]
struct Table;

impl Flow for Table {}

/// A reservation in a restaurant.
#[step(collect, id = "TableData", memory = "form", next(stay, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Reserve {
    #[slot(range(1, 8), ask = "For how many?")]
    guests: Option<u8>,
    #[slot(one_of("noon", "evening"), ask = "At noon or in the evening?")]
    time: Option<Time>,
    /// The day of the week.
    #[slot]
    day: Option<Day>,
    #[slot(verbatim, whole_message, ask = "Under which name?")]
    guest_name: Option<String>,
    /// Anything we should know.
    #[slot(optional)]
    wish: Option<String>,
    #[slot(optional, pattern("#(\\d{4})"))]
    voucher: Option<u32>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Time {
    Noon,
    Evening,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
enum Day {
    Tuesday,
    Friday,
}

impl Collect for Reserve {
    type Flow = Table;

    fn ask(&self, missing: &[&'static Slot], _: &StepCx<'_, Table>) -> Question {
        let names: Vec<_> = missing.iter().map(|slot| slot.name).collect();
        Question { text: format!("{}?", names.join(", ")), ..missing[0].question() }
    }

    fn max_turns(&self) -> Option<u32> {
        Some(3)
    }

    async fn complete(
        &mut self,
        data: ReserveData,
        cx: &mut StepCx<'_, Table>,
    ) -> Result<ReserveNext> {
        let ReserveData { guest_name, guests, time, day, wish, voucher } = data;
        cx.say(format!("{guest_name} {guests} {time:?} {day:?} {wish:?} {voucher:?}"));
        Ok(ReserveNext::Stay)
    }
}

/// A conversation with a form, whose model answers from a script.
struct Form {
    engine: Engine,
    model: ScriptedModel,
}

impl Form {
    fn new() -> Self {
        Self::with(ScriptedModel::new())
    }

    fn with(model: ScriptedModel) -> Self {
        let models = ModelCatalog::new().model("test::main", model.clone());
        let store = MemoryStore::new();
        let builder = Engine::builder().store(store).flow(Table);
        Self { engine: builder.models(models).build().unwrap(), model }
    }

    /// A form that has been filled as the model says.
    async fn filled(given: Value) -> Self {
        let form = Self::new();
        form.reads(given, "Ada here, you know what I want").await;
        form
    }

    async fn say(&self, text: &str) -> Result<TurnOutcome, flow_core::Error> {
        self.engine.turn::<Table>(TurnRequest::new(session()).message(text)).await
    }

    /// A turn in which the model hands these values in; what the user is told, and the last
    /// `collect-update`.
    async fn reads(&self, given: Value, text: &str) -> (Vec<String>, Value) {
        let before = self.model.requests().len();
        let _ = self.model.clone().tool_call("submit_table_data_data", given);
        let mut turn = self.engine.turn::<Table>(TurnRequest::new(session()).message(text));
        let mut update = Value::Null;
        while let Some(event) = turn.next_event().await {
            assert!(!event.name().starts_with("text-"), "the extraction does not speak");
            if event.name() == "collect-update" {
                update = serde_json::to_value(event).unwrap();
            }
        }
        let replies = turn.await.unwrap().replies;
        assert_eq!(self.model.requests().len(), before + 1, "the model is asked once");
        (replies, update)
    }

    /// A turn without a call of the model.
    async fn says(&self, text: &str) -> Vec<String> {
        let before = self.model.requests().len();
        let replies = self.say(text).await.unwrap().replies;
        assert_eq!(self.model.requests().len(), before, "no model is asked");
        replies
    }

    async fn doc(&self) -> SessionDoc {
        self.engine.session(session()).load().await.unwrap()
    }

    /// The slots that have a value.
    async fn slots(&self) -> Value {
        let mut fields = self.doc().await.steps.remove("TableData").unwrap_or_default();
        fields.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        fields
    }

    fn last(&self) -> ChatRequest {
        self.model.requests().pop().unwrap()
    }

    /// The slots that the model was offered last.
    fn offered(&self) -> Vec<String> {
        let tools = self.last().tools;
        tools[0].parameters["properties"].as_object().unwrap().keys().cloned().collect()
    }
}

#[tokio::test]
async fn the_model_is_asked_for_what_no_resolver_has_found() {
    let form = Form::new();
    let given = json!({ "guestName": "Ada", "day": " friday ", "wish": null });
    let (said, update) = form.reads(given, "Ada here, on Friday in the evening").await;
    assert_eq!(said, ["guests?"]);
    assert_eq!(
        form.slots().await,
        json!({ "guestName": "Ada", "time": "evening", "day": "Friday" })
    );
    assert_eq!(
        update["sources"],
        json!([["time", "deterministic"], ["day", "model"], ["guestName", "model"]])
    );
    assert_eq!(update["missing"], json!(["guests"]));
    insta::assert_json_snapshot!("collect_missing", shown(&form.last()));
}

#[tokio::test]
async fn a_filled_slot_is_offered_with_its_value_and_overwritten_by_a_correction() {
    let form = Form::filled(json!({ "day": "Friday", "time": "noon" })).await;
    let given = json!({ "day": "Tuesday", "guestName": null, "time": "noon", "guests": 8 });
    let (_, update) = form.reads(given, "4 of us, no, on Tuesday").await;
    // What the resolver found is final, and what is the same is no correction.
    assert_eq!(update["sources"], json!([["guests", "deterministic"], ["day", "model"]]));
    assert_eq!(form.slots().await, json!({ "guests": 4, "time": "noon", "day": "Tuesday" }));
    insta::assert_json_snapshot!("collect_correction", shown(&form.last()));
}

#[tokio::test]
async fn a_complete_form_that_stays_can_be_corrected() {
    let whole = json!({ "guestName": "Ada", "day": "Friday", "time": "noon", "guests": 2 });
    let form = Form::filled(whole).await;
    let (said, _) = form.reads(json!({ "day": "Tuesday" }), "no, the day before Wednesday").await;
    assert_eq!(said, ["Ada 2 Noon Tuesday None None"]);
    // A correction that a resolver reads needs no model.
    assert_eq!(form.says("make it 3").await, ["Ada 3 Noon Tuesday None None"]);
}

#[tokio::test]
async fn a_verbatim_value_that_the_user_did_not_write_is_dropped() {
    let form = Form::new();
    let (_, update) = form.reads(json!({ "guestName": "Ada Lovelace" }), "It's Ada").await;
    assert_eq!((&update["sources"], form.slots().await), (&json!([]), json!({})));
    let form = Form::filled(json!({ "guestName": "Ada" })).await;
    form.reads(json!({ "guestName": "Grace" }), "hm, let me see").await;
    assert_eq!(form.slots().await, json!({ "guestName": "Ada" }), "the old value stays");
}

#[tokio::test]
async fn a_value_that_a_slot_cannot_have_makes_it_missing() {
    let form = Form::new();
    let given = json!({
        "guests": 12, "time": "midnight", "day": "Someday", "wish": ["a", "b"], "voucher": 17
    });
    let (said, update) = form.reads(given, "a dozen of us at midnight some day").await;
    assert_eq!(form.slots().await, json!({}));
    assert_eq!(update["sources"], json!([]));
    let hint = "Please answer with one number from 1 to 8.";
    assert_eq!(said, [hint, "guests, time, day, guestName?"]);
    // A slot that was filled is missing again: what the user said is not what it holds.
    let form = Form::filled(json!({ "guests": 2, "day": "Friday" })).await;
    form.reads(json!({ "guests": 12 }), "no, a dozen").await;
    assert_eq!(form.slots().await, json!({ "day": "Friday" }));
}

#[tokio::test]
async fn a_value_has_the_form_that_the_capture_of_a_pattern_takes() {
    let form = Form::new();
    form.reads(json!({ "voucher": "1234" }), "my voucher is one two three four").await;
    assert_eq!(form.slots().await, json!({ "voucher": 1234 }));
}

#[tokio::test]
async fn a_message_that_is_used_up_costs_no_call() {
    let form = Form::filled(json!({ "guestName": "Ada", "day": "Friday" })).await;
    // One slot's value and nothing else.
    assert_eq!(form.says("4!").await, ["time?"]);
    // More than one meaning.
    assert_eq!(form.says("noon or evening").await.len(), 2);
    // Nothing is missing any more.
    assert_eq!(form.says("let us say noon then").await, ["Ada 4 Noon Friday None None"]);

    // Nothing is said, and then the whole message is taken.
    let form = Form::new();
    form.says(" ").await;
    form.reads(json!({ "day": "Friday", "time": "noon", "guests": 4 }), "Friday as always").await;
    assert_eq!(
        form.says("Ada, on Tuesday at noon").await[0].split(" 4 ").next(),
        Some("Ada, on Tuesday at noon")
    );
}

#[tokio::test]
async fn a_slot_that_a_resolver_has_found_is_not_offered() {
    let form = Form::new();
    form.reads(json!({}), "voucher #1234, around noon").await;
    assert_eq!(form.offered(), ["guests", "day", "guestName", "wish"]);
}

#[tokio::test]
async fn a_step_says_no_to_the_model() {
    /// Reads by itself.
    #[flow(id = "plain", version = 1, steps(Plain), model = "test::main")]
    #[derive(Clone)]
    struct Alone;
    impl Flow for Alone {}

    #[step(collect, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Plain {
        #[slot(range(1, 8), ask = "For how many?")]
        guests: Option<u8>,
    }

    impl Collect for Plain {
        type Flow = Alone;

        fn extracts(&self) -> bool {
            false
        }

        async fn complete(&mut self, _: PlainData, _: &mut StepCx<'_, Alone>) -> Result<PlainNext> {
            Ok(PlainNext::End("done".into()))
        }
    }

    let model = ScriptedModel::new();
    let models = ModelCatalog::new().model("test::main", model.clone());
    let builder = Engine::builder().store(MemoryStore::new()).flow(Alone);
    let engine = builder.models(models).build().unwrap();
    let request = TurnRequest::new(session()).message("a few of us");
    engine.turn::<Alone>(request).await.unwrap();
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_model_that_fails_loses_neither_the_form_nor_the_message() {
    let form = Form::filled(json!({ "guestName": "Ada" })).await;
    let before = form.doc().await;
    let _ = form
        .model
        .clone()
        .error(ModelError::Unsupported { model: "test::main".into(), reason: "no".into() });
    let error = form.say("4 on a Friday").await.unwrap_err();
    assert_eq!(error.code(), "model-unsupported");
    let after = form.doc().await;
    assert_eq!((&after.steps, &after.memory), (&before.steps, &before.memory));
    form.reads(json!({ "day": "Friday" }), "4 on a Friday").await;
    assert_eq!(form.slots().await, json!({ "guestName": "Ada", "guests": 4, "day": "Friday" }));
}

#[tokio::test]
async fn a_model_that_does_not_hand_in_the_form_is_told_so_once() {
    let form = Form::new();
    let _ = form
        .model
        .clone()
        .text("What a nice day!")
        .tool_call("submit_table_data_data", json!({ "day": "Friday" }));
    form.say("Friday?").await.unwrap();
    assert_eq!(form.slots().await, json!({ "day": "Friday" }));
    let _ = form.model.clone().text("Hm.").tool_call("submit_table_data_data", json!([1]));
    let error = form.say("or not?").await.unwrap_err();
    assert_eq!(error.code(), "model-output");
    assert!(error.to_string().contains("`submit_table_data_data`"), "{error}");

    let refused = ChatResponse::new(vec![Part::text("No.")]).finish(FinishReason::Refusal);
    let _ = form.model.clone().response(refused);
    assert_eq!(form.say("well?").await.unwrap_err().code(), "model-refused");
}

#[tokio::test]
async fn a_form_that_the_model_cannot_fill_escalates_and_names_what_is_missing() {
    let form = Form::new();
    for _ in 0..3 {
        form.reads(json!({ "day": "Friday" }), "Friday, I said").await;
    }
    let _ = form.model.clone().tool_call("submit_table_data_data", json!({}));
    let outcome = form.say("Friday, I said").await.unwrap().outcome;
    let reason = "still missing after 3 questions: guests, time, guestName".to_owned();
    assert_eq!(outcome, Outcome::Escalated { reason });
}

#[tokio::test]
async fn the_history_holds_what_was_said_and_the_tokens_are_counted() {
    let call = |given: Value| {
        let call = flow_core::message::ToolCallPart {
            id: "a".into(),
            name: "submit_table_data_data".into(),
            arguments: given,
        };
        ChatResponse::new(vec![Part::text("Let me see."), Part::ToolCall(call)])
            .usage(TokenUsage::new(10, 2))
    };
    let model = ScriptedModel::new().response(call(json!({ "day": "Friday" })));
    let form = Form::with(model);
    form.say("on a Friday").await.unwrap();
    let doc = form.doc().await;
    let kept: Vec<_> = doc.memory["form"].messages.iter().map(|m| (m.role, m.to_text())).collect();
    let question = "guests, time, guestName?".to_owned();
    assert_eq!(kept, [(Role::User, "on a Friday".to_owned()), (Role::Assistant, question)]);
    assert_eq!(doc.usage, TokenUsage::new(10, 2));
}

#[tokio::test]
async fn a_model_without_tools_hands_the_form_in_as_it_can() {
    for (structured, name) in [(true, "native"), (false, "prompt")] {
        let can = Capabilities::default().tools(false).structured_output(structured);
        let answer = json!({ "day": "Friday", "guests": null }).to_string();
        let form = Form::with(ScriptedModel::new().capabilities(can).text(answer));
        form.say("on a Friday").await.unwrap();
        assert_eq!(form.slots().await, json!({ "day": "Friday" }), "{name}");
        assert_eq!(form.last().output.is_some(), structured);
    }
}
