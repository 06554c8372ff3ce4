//! Calls of a model that a person has to approve: the step waits, and goes on.

use std::sync::{Arc, Mutex};

use flow_core::effect::{Approved, Decision};
use flow_core::engine::Delivery;
use flow_core::event::Event;
use flow_core::message::{Message, Part, Role, ToolCallPart, ToolResultPart};
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{
    CallPolicy, ChatResponse, ModelCatalog, ModelConfig, ModelError, ModelSelection, ToolChoice,
};
use flow_core::outcome::Outcome;
use flow_core::prelude::*;
use flow_core::session::{EffectKind, Interrupt, SessionDoc, Status, Waiting};
use flow_core::store::SessionStore;
use flow_core::store::memory::MemoryStore;
use flow_core::store::sqlite::SqliteStore;
use flow_core::testing::ManualClock;
use flow_core::tool::ToolDefinition;
use flow_core::{Engine, TurnOutcome, TurnRequest};
use serde_json::{Value, json};
use tests::failing_store::{FailingStore, Fault};
use tests::ordering::{anthropic, anthropic_body, openai, openai_body};

use super::errands::{assert_valid, results};

/// A till at which a person has to approve what is given back.
#[flow(id = "till", version = 1, steps(Desk, Closed), state = Shared, tools)]
#[derive(Clone, Default)]
struct Till {
    log: Arc<Mutex<Vec<String>>>,
    policy: CallPolicy,
    /// Tools that another build does not have.
    removed: Vec<&'static str>,
    /// Tools that another build denies.
    denied: Vec<&'static str>,
    /// Whether another build reads the amount of a refund as a text.
    as_text: bool,
    /// Whether another build has no model.
    mute: bool,
    /// Whether refunds need no approval.
    allows: bool,
    /// Whether errors let the step stay.
    recovers: bool,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Shared {
    counted: Vec<u32>,
}

impl Flow for Till {
    fn config_call_policy(&self) -> CallPolicy {
        self.policy.clone()
    }

    fn config_model(&self) -> Option<ModelConfig> {
        (!self.mute).then(|| "test::main".parse::<ModelSelection>().unwrap().into())
    }

    fn define_tools(&self, mut tools: Vec<ToolDefinition>) -> Vec<ToolDefinition> {
        tools.retain(|tool| !self.removed.contains(&tool.name.as_str()));
        for tool in &mut tools {
            if self.denied.contains(&tool.name.as_str()) {
                tool.policy = ToolPolicy::deny("not on a Sunday");
            }
            if self.allows && tool.name == "refund" {
                tool.policy = ToolPolicy::Allow;
            }
            if self.as_text && tool.name == "refund" {
                tool.parameters["properties"]["cents"] = json!({ "type": "string" });
            }
        }
        tools
    }

    async fn on_error(
        &self,
        _: &StepError,
        _: &mut StepCx<'_, Self>,
    ) -> Result<Option<Transition>> {
        Ok(self.recovers.then_some(Transition::Stay))
    }
}

#[tools(flow)]
impl Till {
    /// Gives money back.
    #[tool(ask)]
    async fn refund(&self, cx: &ToolCx, cents: u32) -> Result<String> {
        let key = cx.idempotency_key();
        self.log.lock().unwrap().push(format!("refund {cents} {key}"));
        if cents == 13 { Err(StepError::new("no coins")) } else { Ok(format!("gave {cents}")) }
    }

    /// Sends a parcel.
    #[tool(ask, parallel)]
    async fn ship(&self, parcel: u32) -> Result<u32> {
        self.log.lock().unwrap().push(format!("ship {parcel}"));
        Ok(parcel)
    }

    /// Looks a price up.
    #[tool(parallel)]
    async fn price(&self, cx: &ToolCx, item: u32) -> Result<u32> {
        let key = cx.idempotency_key();
        self.log.lock().unwrap().push(format!("price {item} {key}"));
        Ok(item * 10)
    }
}

/// Serves customers.
#[step(reply, tools, flow_tools = open, next(Closed, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Desk {
    count: u32,
}

impl Reply for Desk {
    type Flow = Till;

    fn response(&self, _: &StepCx<'_, Till>) -> Option<String> {
        (self.count >= 100).then(|| "The desk is full.".to_owned())
    }

    fn instructions(&self, _: &StepCx<'_, Till>) -> Prompt {
        format!("Counted {}.", self.count).into()
    }

    fn check_response(&self, response: &str, _: &StepCx<'_, Till>) -> Check {
        if response.contains("darn") { Check::Retry("Do not swear.".into()) } else { Check::Accept }
    }
}

#[tools]
impl Desk {
    /// Counts and says so.
    #[tool]
    async fn count(&mut self, cx: &mut StepCx<'_, Till>, by: u32) -> Result<u32> {
        self.count += by;
        cx.state.counted.push(by);
        cx.say(format!("counted {}", self.count));
        Ok(self.count)
    }

    /// Forgets the count.
    #[tool(ask)]
    async fn erase(&mut self, cx: &mut StepCx<'_, Till>) -> Result<u32> {
        cx.say(format!("erased {}", self.count));
        Ok(std::mem::take(&mut self.count))
    }

    /// Closes the desk.
    #[tool]
    fn close(&self) -> DeskNext {
        DeskNext::Closed
    }

    /// Leaves the desk.
    #[tool(ask)]
    fn leave(&self) -> DeskNext {
        DeskNext::Closed
    }
}

/// Is closed, until somebody opens it.
#[step(action, next(Desk, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Closed;

impl Action for Closed {
    type Flow = Till;

    async fn run(&mut self, cx: &mut ActionCx<'_, Till>) -> Result<ClosedNext> {
        if cx.message() == Some("open") { Ok(ClosedNext::Desk) } else { Ok(ClosedNext::Stay) }
    }
}

/// One session on a store that outlives its engines.
struct Talk {
    store: Arc<dyn SessionStore>,
    flow: Till,
    model: ScriptedModel,
    engine: Engine,
}

fn build(store: &Arc<dyn SessionStore>, flow: &Till, model: &ScriptedModel) -> Engine {
    let models = ModelCatalog::new().model("test::main", model.clone());
    let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap());
    let builder = Engine::builder().shared_store(store.clone()).clock(clock);
    builder.flow(flow.clone()).models(models).build().unwrap()
}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

fn refund(cents: u32) -> (&'static str, Value) {
    ("refund", json!({ "cents": cents }))
}

fn count(by: u32) -> (&'static str, Value) {
    ("count", json!({ "by": by }))
}

/// Checks a history as it is in the document or in a request.
fn check(history: &[Message]) {
    assert_valid(history);
    openai(&openai_body(history)).unwrap();
}

impl Talk {
    fn new(model: ScriptedModel) -> Self {
        Self::on(Arc::new(MemoryStore::new()), Till::default(), model)
    }

    fn on(store: Arc<dyn SessionStore>, flow: Till, model: ScriptedModel) -> Self {
        let engine = build(&store, &flow, &model);
        Self { store, flow, model, engine }
    }

    /// Another process, perhaps with another build of the flow.
    fn restart(&mut self, change: impl FnOnce(&mut Till)) {
        change(&mut self.flow);
        self.engine = build(&self.store, &self.flow, &self.model);
    }

    async fn say(&self, text: &str) -> TurnOutcome {
        let request = TurnRequest::new(session()).message(text);
        let outcome = self.engine.turn::<Till>(request).await.unwrap();
        self.check().await;
        outcome
    }

    async fn deliver(&self, delivery: Delivery) -> TurnOutcome {
        let outcome = self.engine.deliver(session(), delivery).await.unwrap();
        self.check().await;
        outcome
    }

    async fn doc(&self) -> SessionDoc {
        self.engine.session(session()).load().await.unwrap()
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.flow.log.lock().unwrap())
    }

    /// The history and each request are what every provider takes, and no request shows a call
    /// that waits.
    async fn check(&self) {
        let doc = self.doc().await;
        check(&doc.memory["main"].messages);
        for request in self.model.requests() {
            check(&request.messages);
            anthropic(&anthropic_body(&request.messages)).unwrap();
        }
        let pending = match &doc.waiting {
            Some(Waiting::Interrupts { pending }) => pending.clone(),
            _ => Vec::new(),
        };
        let asked = doc.visit.round.iter().flat_map(|round| &round.asked);
        let asked: Vec<Interrupt> = asked.map(|asked| asked.request.clone()).collect();
        assert_eq!(asked, pending, "the round waits for what the session waits for");
    }

    /// What the last request told the model of its calls.
    fn told(&self) -> Vec<ToolResultPart> {
        let requests = self.model.requests();
        results(requests.last().unwrap().messages.last().unwrap())
    }

    fn contents(&self) -> Vec<String> {
        self.told().into_iter().map(|result| result.content).collect()
    }
}

fn ids(outcome: &TurnOutcome) -> Vec<String> {
    assert!(matches!(outcome.outcome, Outcome::Suspended { .. }), "{outcome:?}");
    outcome.interrupts().iter().map(|interrupt| interrupt.request_id.clone()).collect()
}

#[tokio::test]
async fn an_approved_call_is_made_with_the_key_that_it_would_have_had() {
    let script = || ScriptedModel::new().tool_calls([refund(5)]).text("Done.");
    let talk = Talk::new(script());
    let outcome = talk.say("refund").await;
    let [interrupt] = outcome.interrupts() else { panic!("{outcome:?}") };
    assert_eq!((interrupt.kind, &*interrupt.step), (EffectKind::Approval, "Desk"));
    assert_eq!(interrupt.display.description, "Gives money back.");
    assert_eq!((interrupt.deadline, interrupt.allowed.len()), (None, 2));
    let operation = interrupt.operation.clone().unwrap();
    assert_eq!((&*operation.tool, &operation.arguments), ("refund", &json!({ "cents": 5 })));
    assert_eq!(operation.argument_hash, flow_core::json::digest(&operation.arguments));
    let doc = talk.doc().await;
    assert_eq!((doc.status, doc.memory["main"].messages.len()), (Status::Waiting, 1));
    assert!(doc.visit.round.is_some());
    assert_eq!((talk.log(), talk.model.left()), (vec![], 1));

    let yes = Delivery::approve(&interrupt.request_id).argument_hash(operation.argument_hash);
    let outcome = talk.deliver(yes.by("ada")).await;
    assert_eq!(outcome.replies, ["Done."]);
    assert_eq!(talk.contents(), ["gave 5"]);
    let made = talk.log();
    let doc = talk.doc().await;
    assert!(doc.visit.round.is_none());
    assert!(matches!(doc.waiting, Some(Waiting::Message { .. })));
    let roles: Vec<_> = doc.memory["main"].messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant]);

    // The same call of a flow that allows it.
    let flow = Till { allows: true, ..Till::default() };
    let talk = Talk::on(Arc::new(MemoryStore::new()), flow, script());
    assert_eq!(talk.say("refund").await.replies, ["Done."]);
    assert_eq!((made.len(), talk.log()), (1, made));
}

#[tokio::test]
async fn a_denied_call_is_not_made_and_the_model_is_told_who_denied_it_and_why() {
    let talk = Talk::new(ScriptedModel::new().tool_calls([refund(5)]).text("Sorry."));
    let [request] = &ids(&talk.say("refund").await)[..] else { panic!() };
    let no = Delivery::deny(request).by("eve").reason("too much");
    assert_eq!(talk.deliver(no).await.replies, ["Sorry."]);
    let told = &talk.told()[0];
    let expected = "tool `refund` was not called: denied by eve: too much";
    assert_eq!((told.is_error, &*told.content), (true, expected));
    assert!(talk.log().is_empty());
}

#[tokio::test]
async fn two_requests_are_answered_in_either_order_and_the_documents_are_equal() {
    let mut documents = Vec::new();
    for order in [[0, 1], [1, 0]] {
        let model = ScriptedModel::new()
            .tool_calls([refund(5), ("price", json!({ "item": 2 })), refund(7), count(1)])
            .text("Done.");
        let talk = Talk::new(model);
        let first = talk.say("refund").await;
        let requests = ids(&first);
        assert_eq!(requests.len(), 2);
        assert_ne!(requests[0], requests[1]);
        assert_eq!(first.replies, ["counted 1"]);
        assert!(talk.log()[0].starts_with("price 2 "), "calls that need no approval are made");

        let outcome = talk.deliver(Delivery::approve(&requests[order[0]])).await;
        assert_eq!(ids(&outcome), [requests[order[1]].clone()]);
        assert_eq!((outcome.replies.len(), talk.log().len()), (0, 1), "approved, so made");
        assert_eq!(talk.model.requests().len(), 1, "the model is asked when all are answered");
        let again = talk.engine.deliver(session(), Delivery::deny(&requests[order[0]])).await;
        assert_eq!(again.unwrap_err().code(), "not-waiting");

        let outcome = talk.deliver(Delivery::approve(&requests[order[1]])).await;
        assert_eq!(outcome.replies, ["Done."]);
        assert_eq!(talk.contents(), ["gave 5", "20", "gave 7", "1"]);
        let doc = talk.doc().await;
        assert_eq!(doc.state["counted"], json!([1]), "what was made is not made again");
        documents.push(serde_json::to_string_pretty(&doc).unwrap());
    }
    assert_eq!(documents[0], documents[1]);
}

#[tokio::test]
async fn of_parallel_calls_those_that_need_no_approval_are_made() {
    let ship = |parcel: u32| ("ship", json!({ "parcel": parcel }));
    let price = |item: u32| ("price", json!({ "item": item }));
    let model = ScriptedModel::new().tool_calls([ship(1), price(1), ship(2), price(2)]);
    let talk = Talk::new(model.text("Done."));
    let requests = ids(&talk.say("ship").await);
    assert_eq!(talk.log().len(), 2);
    talk.deliver(Delivery::deny(&requests[1])).await;
    talk.deliver(Delivery::approve(&requests[0])).await;
    assert_eq!(talk.log(), ["ship 1"]);
    assert_eq!(talk.contents(), ["1", "10", "tool `ship` was not called: denied", "20"]);
}

#[tokio::test]
async fn what_was_said_and_changed_before_the_wait_stays_and_comes_before_the_round() {
    let calls = vec![
        Part::text("Let me see."),
        Part::ToolCall(ToolCallPart {
            id: "a".into(),
            name: "count".into(),
            arguments: json!({ "by": 3 }),
        }),
        Part::ToolCall(ToolCallPart { id: "b".into(), name: "erase".into(), arguments: json!({}) }),
    ];
    let model = ScriptedModel::new().response(ChatResponse::new(calls));
    let talk = Talk::new(model.text("Done.").text("Bye."));
    let outcome = talk.say("erase").await;
    assert_eq!(outcome.replies, ["Let me see.", "counted 3"]);
    assert_eq!(talk.doc().await.steps["Desk"]["count"], 3);
    let outcome = talk.deliver(Delivery::approve(&ids(&outcome)[0])).await;
    assert_eq!(outcome.replies, ["erased 3", "Done."], "nothing is said twice");
    let doc = talk.doc().await;
    assert_eq!((&doc.steps["Desk"]["count"], &doc.state["counted"]), (&json!(0), &json!([3])));
    let told = talk.model.requests()[1].system.clone().unwrap();
    assert_eq!(told, "Counted 0.", "the model sees what the approved call has changed");
    let texts: Vec<_> = doc.memory["main"].messages.iter().map(Message::to_text).collect();
    assert_eq!(texts, ["erase", "counted 3", "Let me see.", "", "erased 3", "Done."]);
    assert_eq!(talk.say("bye").await.replies, ["Bye."]);
}

#[tokio::test]
async fn a_message_while_it_waits_gets_its_answer_and_stands_before_the_round() {
    let talk = Talk::new(ScriptedModel::new().tool_calls([refund(5)]).text("Done."));
    let requests = ids(&talk.say("refund").await);
    let outcome = talk.say("hello?").await;
    assert_eq!(outcome.replies, ["I am still waiting: call of `refund`."]);
    assert_eq!(ids(&outcome), requests);
    let outcome = talk.engine.turn::<Till>(TurnRequest::new(session())).await.unwrap();
    assert_eq!((ids(&outcome), outcome.replies.len()), (requests.clone(), 0));
    assert_eq!((talk.model.requests().len(), talk.log().len()), (1, 0));
    talk.deliver(Delivery::approve(&requests[0])).await;
    let texts: Vec<_> =
        talk.doc().await.memory["main"].messages.iter().map(Message::to_text).collect();
    let answer = "I am still waiting: call of `refund`.";
    assert_eq!(texts, ["refund", "hello?", answer, "", "", "Done."]);
}

#[tokio::test]
async fn an_answer_about_another_call_is_rejected_and_changes_nothing() {
    let talk = Talk::new(ScriptedModel::new().tool_calls([refund(5)]).text("Done."));
    let requests = ids(&talk.say("refund").await);
    let before = talk.doc().await;
    let other = flow_core::json::digest(&json!({ "cents": 500 }));
    for (delivery, code) in [
        (Delivery::approve(&requests[0]).argument_hash(other), "answer-rejected"),
        (Delivery::payload(&requests[0], "approved"), "answer-rejected"),
        (Delivery::approve("1-0-7"), "not-waiting"),
    ] {
        let error = talk.engine.deliver(session(), delivery).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
    let after = talk.doc().await;
    assert_eq!((after.revision, after.visit, talk.log().len()), (before.revision, before.visit, 0));
}

#[tokio::test]
async fn once_a_tool_has_moved_the_flow_nobody_is_asked() {
    let model = ScriptedModel::new().tool_calls([refund(5), ("close", json!({})), refund(7)]);
    let talk = Talk::new(model);
    let outcome = talk.say("close").await;
    assert!(matches!(outcome.outcome, Outcome::Waiting { .. }), "{outcome:?}");
    let doc = talk.doc().await;
    assert_eq!((&*doc.current_step, doc.visit.round), ("Closed", None));
    let told = results(&doc.memory["main"].messages[2]);
    assert!(told[0].content.starts_with("not called:") && told[0].is_error, "{told:?}");
    assert!(!told[1].is_error && told[2].content.starts_with("not called:"), "{told:?}");
    assert!(talk.log().is_empty());
}

#[tokio::test]
async fn an_approved_call_may_move_the_flow_and_the_rest_is_not_made() {
    let model = ScriptedModel::new().tool_calls([refund(5), ("leave", json!({})), refund(7)]);
    let talk = Talk::new(model);
    let requests = ids(&talk.say("leave").await);
    assert_eq!(requests.len(), 3);
    let outcome = talk.deliver(Delivery::approve(&requests[1])).await;
    assert!(matches!(outcome.outcome, Outcome::Waiting { .. }), "{outcome:?}");
    let doc = talk.doc().await;
    assert_eq!((&*doc.current_step, doc.visit.round), ("Closed", None));
    let told = results(&doc.memory["main"].messages[2]);
    let made: Vec<bool> = told.iter().map(|result| !result.is_error).collect();
    assert_eq!((made, talk.log().len()), (vec![false, true, false], 0));
}

#[tokio::test]
async fn rounds_are_counted_on_and_later_rounds_have_keys_and_requests_of_their_own() {
    let flow = Till { policy: CallPolicy::default().tool_rounds(3), ..Till::default() };
    let model = ScriptedModel::new()
        .tool_calls([refund(1)])
        .tool_calls([refund(1)])
        .tool_calls([refund(1)])
        .text("Done.");
    let talk = Talk::on(Arc::new(MemoryStore::new()), flow, model);
    let mut outcome = talk.say("refund").await;
    let mut requests = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let [request] = &ids(&outcome)[..] else { panic!("{outcome:?}") };
        assert!(requests.insert(request.clone()), "{request} is there twice");
        outcome = talk.deliver(Delivery::approve(request)).await;
    }
    assert_eq!(outcome.replies, ["Done."]);
    let choices: Vec<_> =
        talk.model.requests().iter().map(|request| request.tool_choice.clone()).collect();
    assert_ne!(choices[2], ToolChoice::None);
    assert_eq!(choices[3], ToolChoice::None, "the fourth answer has to be in words");
    let mut keys = talk.log();
    keys.dedup();
    assert_eq!(keys.len(), 3);
}

#[tokio::test]
async fn answers_that_the_step_refuses_are_counted_on() {
    let model = ScriptedModel::new()
        .text("darn")
        .text("darn")
        .tool_calls([refund(1)])
        .text("darn")
        .text("Never asked for.");
    let talk = Talk::new(model);
    let requests = ids(&talk.say("refund").await);
    let error = talk.engine.deliver(session(), Delivery::approve(&requests[0])).await.unwrap_err();
    assert!(error.to_string().contains("refused 3 answers"), "{error}");
}

#[tokio::test]
async fn another_process_goes_on_from_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let open = || async {
        let store = SqliteStore::open(directory.path().join("s.db")).await.unwrap();
        Arc::new(store) as Arc<dyn SessionStore>
    };
    let model = ScriptedModel::new().tool_calls([refund(5), refund(7), count(2)]).text("Done.");
    let mut talk = Talk::on(open().await, Till::default(), model);
    let requests = ids(&talk.say("refund").await);
    for (request, pending) in requests.iter().zip([1, 0]) {
        talk.store = open().await;
        talk.restart(|_| {});
        let outcome = talk.deliver(Delivery::approve(request)).await;
        assert_eq!(outcome.interrupts().len(), pending);
    }
    assert_eq!(talk.contents(), ["gave 5", "gave 7", "2"]);
    assert_eq!(talk.log().len(), 2);
}

#[tokio::test]
async fn a_decision_is_kept_whatever_fails_after_it_and_the_call_has_the_same_key() {
    let failed = || ModelError::Missing;
    let model = ScriptedModel::new().tool_calls([refund(5), refund(7)]).error(failed());
    let mut talk = Talk::new(model.text("Done."));
    let requests = ids(&talk.say("refund").await);
    talk.deliver(Delivery::deny(&requests[1]).by("eve")).await;
    let yes = Delivery::approve(&requests[0]).signal_id("mail-1");
    let error = talk.engine.deliver(session(), yes.clone()).await.unwrap_err();
    assert_eq!(error.code(), "no-model", "{error}");
    let doc = talk.doc().await;
    assert_eq!((doc.status, &doc.waiting), (Status::Failed, &None));
    let round = doc.visit.round.unwrap();
    let approved = Some(Decision::Approved(Approved::default()));
    assert_eq!((round.asked.len(), &round.asked[0].decision), (1, &approved));
    let first = talk.log();
    talk.restart(|_| {});
    assert_eq!(talk.deliver(yes).await.replies, ["Done."]);
    assert_eq!((first.len(), talk.log()), (1, first));
    assert_eq!(talk.contents(), ["gave 5", "tool `refund` was not called: denied by eve"]);
}

#[tokio::test]
async fn whichever_commit_fails_the_decision_is_made_or_can_be_made_again() {
    // After `load` and `open` comes the commit of the decision, then that of what it came to.
    for (fault, call) in [
        (Fault::FailBefore, 2),
        (Fault::FailAfter, 2),
        (Fault::FailBefore, 3),
        (Fault::FailAfter, 3),
    ] {
        let store = FailingStore::new(MemoryStore::new());
        let model = ScriptedModel::new().tool_calls([refund(5), count(1)]);
        let model = model.text("Done.").text("Done.");
        let mut talk = Talk::on(Arc::new(store.clone()), Till::default(), model);
        let requests = ids(&talk.say("refund").await);
        let before = talk.doc().await.visit;
        store.arm(call, fault);
        let yes = Delivery::approve(&requests[0]).signal_id("mail-1");
        talk.engine.deliver(session(), yes.clone()).await.unwrap_err();
        assert!(!store.disarm(), "{fault:?} at {call}: the fault has come");
        let unknown = (fault, call) == (Fault::FailBefore, 2);
        assert_eq!(talk.doc().await.visit == before, unknown, "{fault:?} at {call}");
        talk.restart(|_| {});
        assert_eq!(talk.deliver(yes).await.replies, ["Done."], "{fault:?} at {call}");
        let doc = talk.doc().await;
        assert_eq!((&doc.visit.round, &doc.state["counted"]), (&None, &json!([1])));
        let mut made = talk.log();
        let repeated = (fault, call) == (Fault::FailBefore, 3);
        assert_eq!(made.len(), 1 + usize::from(repeated), "{fault:?} at {call}");
        made.dedup();
        assert_eq!(made.len(), 1, "{fault:?} at {call}: one key");
    }
}

#[tokio::test]
async fn another_build_does_not_make_a_call_that_it_denies_or_does_not_have_or_reads_otherwise() {
    type Change = fn(&mut Till);
    let changes: [(Change, &str); 3] = [
        (|flow| flow.removed = vec!["refund"], "there is no tool `refund`"),
        (|flow| flow.denied = vec!["refund"], "not on a Sunday"),
        (|flow| flow.as_text = true, "reads other arguments now"),
    ];
    for (change, reason) in changes {
        let mut talk = Talk::new(ScriptedModel::new().tool_calls([refund(5)]).text("No."));
        let requests = ids(&talk.say("refund").await);
        talk.restart(change);
        assert_eq!(talk.deliver(Delivery::approve(&requests[0])).await.replies, ["No."]);
        assert!(talk.contents()[0].contains(reason), "{:?}", talk.contents());
        assert!(talk.log().is_empty());
    }
}

#[tokio::test]
async fn a_call_that_fails_after_its_approval_is_told_to_the_model() {
    let talk = Talk::new(ScriptedModel::new().tool_calls([refund(13)]).text("No coins."));
    let requests = ids(&talk.say("refund").await);
    talk.deliver(Delivery::approve(&requests[0])).await;
    assert_eq!(talk.contents(), ["tool `refund` failed: no coins"]);
}

#[tokio::test]
async fn an_authored_response_waits_until_the_round_is_over() {
    let model = ScriptedModel::new().tool_calls([count(100), refund(5)]).text("Done.");
    let talk = Talk::new(model);
    let requests = ids(&talk.say("count").await);
    let outcome = talk.deliver(Delivery::approve(&requests[0])).await;
    assert_eq!((outcome.replies, talk.log().len()), (vec!["Done.".to_owned()], 1));
    assert_eq!(talk.say("hi").await.replies, ["The desk is full."]);
}

#[tokio::test]
async fn an_error_handler_that_goes_on_ends_the_round() {
    let model = ScriptedModel::new().tool_calls([refund(5), refund(7)]).text("Hello.");
    let mut talk = Talk::new(model);
    let requests = ids(&talk.say("refund").await);
    // Another build has no model for the step, and handles that.
    talk.restart(|flow| (flow.mute, flow.recovers) = (true, true));
    let outcome = talk.deliver(Delivery::approve(&requests[0])).await;
    assert!(matches!(outcome.outcome, Outcome::Waiting { .. }), "{outcome:?}");
    let told = results(&talk.doc().await.memory["main"].messages[2]);
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|result| result.content.starts_with("not called:")), "{told:?}");
    talk.restart(|flow| flow.mute = false);
    assert_eq!(talk.say("hi").await.replies, ["Hello."]);
}

#[tokio::test]
async fn an_action_before_it_in_the_turn_is_not_run_again_and_undoes_nothing() {
    let model = ScriptedModel::new().tool_call("close", json!({}));
    let model = model.tool_calls([count(3), ("erase", json!({}))]).text("Done.");
    let talk = Talk::new(model);
    talk.say("close").await;
    let outcome = talk.say("open").await;
    let requests = ids(&outcome);
    assert_eq!(outcome.replies, ["counted 3"]);
    let doc = talk.doc().await;
    assert_eq!((&*doc.current_step, &doc.steps["Desk"]["count"]), ("Desk", &json!(3)));
    assert_eq!((&doc.state["counted"], doc.visit.message), (&json!([3]), None));
    let outcome = talk.deliver(Delivery::approve(&requests[0])).await;
    assert_eq!(outcome.replies, ["erased 3", "Done."]);
}

#[tokio::test]
async fn a_step_that_is_restarted_forgets_the_round() {
    let talk = Talk::new(ScriptedModel::new().tool_calls([refund(5)]).text("Hello."));
    let requests = ids(&talk.say("refund").await);
    talk.engine.session(session()).restart_step().await.unwrap();
    talk.check().await;
    let late = talk.engine.deliver(session(), Delivery::approve(&requests[0])).await;
    assert_eq!(late.unwrap_err().code(), "not-waiting");
    assert_eq!(talk.say("hi").await.replies, ["Hello."]);
    assert!(talk.log().is_empty());
}

#[tokio::test]
async fn events_tell_calls_when_they_are_made_and_one_result_for_each() {
    let model = ScriptedModel::new().tool_calls([refund(5), count(1), refund(7)]).text("Done.");
    let talk = Talk::new(model);
    let mut trace = Vec::new();
    let mut requests = Vec::new();
    for turn in 0..3 {
        let request = TurnRequest::new(session());
        let request = match turn {
            0 => request.message("refund"),
            1 => request.deliver(Delivery::approve(&requests[0])),
            _ => request.deliver(Delivery::deny(&requests[1])),
        };
        let mut turn = talk.engine.turn::<Till>(request);
        while let Some(event) = turn.next_event().await {
            match event {
                Event::ToolCall { id, .. } => trace.push(format!("call {id}")),
                Event::ToolResult { id, failed, .. } => trace.push(format!("result {id} {failed}")),
                Event::Paused { interrupts } => trace.push(format!("paused {}", interrupts.len())),
                Event::Resumed { requests } => trace.push(format!("resumed {}", requests.len())),
                Event::Message { text, .. } => trace.push(text),
                _ => {}
            }
        }
        let outcome = turn.await.unwrap();
        if requests.is_empty() {
            requests = ids(&outcome);
        }
    }
    let expected = [
        "call call-2",
        "result call-2 false",
        "counted 1",
        "paused 2",
        "resumed 1",
        "call call-1",
        "result call-1 false",
        "paused 1",
        "resumed 1",
        "result call-3 true",
        "Done.",
    ];
    assert_eq!(trace, expected);
}
