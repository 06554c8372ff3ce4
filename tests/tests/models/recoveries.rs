//! What a step, and then its flow, makes of a model that gives no answer.

use std::sync::{Arc, Mutex};

use flow_core::message::{Message, Part, Role};
use flow_core::model::{ChatResponse, FinishReason, ModelConfig, ModelSelection};

use super::*;

/// A flow whose hooks are chosen by the test, and which writes down who was asked.
#[flow(id = "clinic", steps(Talk, Done), model = "test::main", sampling(temperature = 0.5))]
#[derive(Clone)]
struct Clinic {
    step: fn() -> Recovery<TalkNext>,
    flow: fn() -> Recovery<Transition>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Flow for Clinic {
    fn config_call_policy(&self) -> CallPolicy {
        CallPolicy::default().attempts(1)
    }

    async fn on_model_error(
        &self,
        error: &ModelError,
        cx: &mut StepCx<'_, Self>,
    ) -> Result<Recovery<Transition>> {
        self.asked.lock().unwrap().push(format!("flow: {}", error.code()));
        cx.say("(the flow)");
        Ok((self.flow)())
    }
}

#[step(reply, tools, sampling(seed = 7), next(Done, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk {
    searches: u32,
    heard: Vec<String>,
}

impl Reply for Talk {
    type Flow = Clinic;

    async fn on_response(
        &mut self,
        response: &str,
        _: &mut StepCx<'_, Clinic>,
    ) -> Result<Option<TalkNext>> {
        self.heard.push(response.to_owned());
        Ok((response == "Goodbye.").then_some(TalkNext::Done))
    }

    async fn on_model_error(
        &mut self,
        error: &ModelError,
        cx: &mut StepCx<'_, Clinic>,
    ) -> Result<Recovery<TalkNext>> {
        cx.flow.asked.lock().unwrap().push(format!("step: {}", error.code()));
        Ok((cx.flow.step)())
    }

    async fn verify(&mut self, _: &TalkNext, _: &mut StepCx<'_, Clinic>) -> Result<Gate> {
        Ok(if self.searches == 2 { Gate::Hold("not yet".into()) } else { Gate::Pass })
    }
}

#[tools]
impl Talk {
    /// Searches.
    #[tool]
    async fn search(&mut self, cx: &mut StepCx<'_, Clinic>) -> u32 {
        cx.say("Searching ...");
        self.searches += 1;
        self.searches
    }
}

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Done;

impl Reply for Done {
    type Flow = Clinic;

    fn response(&self, _: &StepCx<'_, Clinic>) -> Option<String> {
        Some("Done.".into())
    }

    async fn on_response(
        &mut self,
        _: &str,
        _: &mut StepCx<'_, Clinic>,
    ) -> Result<Option<DoneNext>> {
        Ok(Some(DoneNext::End("done".into())))
    }
}

struct Visit {
    engine: Engine,
    main: ScriptedModel,
    backup: ScriptedModel,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Visit {
    fn new(step: fn() -> Recovery<TalkNext>, flow: fn() -> Recovery<Transition>) -> Self {
        let (main, backup) = (ScriptedModel::new(), ScriptedModel::new());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let models = ModelCatalog::new()
            .model("test::main", main.clone())
            .model("test::backup", backup.clone());
        let flow = Clinic { step, flow, asked: asked.clone() };
        let store = MemoryStore::new();
        let engine = Engine::builder().store(store).flow(flow).models(models).build().unwrap();
        Self { engine, main, backup, asked }
    }

    async fn say(&self, text: &str) -> Result<TurnOutcome, flow_core::Error> {
        self.engine.turn::<Clinic>(TurnRequest::new(session()).message(text)).await
    }

    async fn doc(&self) -> SessionDoc {
        self.engine.session(session()).load().await.unwrap()
    }

    async fn messages(&self) -> Vec<Message> {
        self.doc().await.memory["main"].messages.clone()
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn down(model: &str) -> ModelError {
    ModelError::Status {
        model: model.into(),
        status: 400,
        message: "down".into(),
        retry_after: None,
    }
}

fn pass<N>() -> Recovery<N> {
    Recovery::Pass
}

fn backup<N>() -> Recovery<N> {
    let backup: ModelSelection = "test::backup".parse().unwrap();
    Recovery::Retry(backup.into())
}

#[tokio::test]
async fn the_step_is_asked_first_then_the_flow_and_then_the_turn_fails() {
    let visit = Visit::new(pass, pass);
    let _ = visit.main.clone().error(down("test::main"));
    let error = visit.say("hi").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "flow `clinic`: the model of step `Talk` cannot be used: `test::main` answered with status 400: down"
    );
    assert_eq!(visit.asked(), ["step: model-status", "flow: model-status"]);
}

#[tokio::test]
async fn an_answer_is_said_as_if_the_model_had_given_it() {
    let visit = Visit::new(|| Recovery::Answer("Goodbye.".into()), pass);
    let _ = visit.main.clone().tool_call("search", json!({})).error(down("test::main"));
    let outcome = visit.say("hi").await.unwrap();
    // What was called before the failure stays; the answer goes on as any other does.
    assert_eq!(outcome.replies, ["Goodbye.", "Done."]);
    assert!(outcome.is_ended());
    assert_eq!(visit.asked(), ["step: model-status"]);
    assert_eq!(visit.doc().await.steps["Talk"]["heard"], json!(["Goodbye."]));
    let kept: Vec<_> = visit.messages().await.iter().map(|m| (m.role, m.to_text())).collect();
    let said = |text: &str| (Role::Assistant, text.to_owned());
    let called = [said(""), (Role::Tool, String::new())];
    assert_eq!(kept[0], (Role::User, "hi".into()));
    assert_eq!(kept[1..3], called);
    assert_eq!(kept[3..], [said("Goodbye."), said("Done.")]);

    let visit = Visit::new(pass, || Recovery::Answer("Please wait.".into()));
    let _ = visit.main.clone().error(down("test::main"));
    let outcome = visit.say("hi").await.unwrap();
    assert_eq!(outcome.replies, ["(the flow)", "Please wait."]);
    assert_eq!((outcome.step.as_str(), outcome.is_ended()), ("Talk", false));
}

#[tokio::test]
async fn a_way_out_of_the_step_passes_its_gate_and_one_of_the_flow_does_not() {
    let visit = Visit::new(|| Recovery::Go(TalkNext::Done), pass);
    let _ = visit.main.clone().error(down("test::main"));
    assert!(visit.say("hi").await.unwrap().is_ended());

    let twice = |main: ScriptedModel| {
        let main = main.tool_call("search", json!({})).tool_call("search", json!({}));
        drop(main.error(down("test::main")));
    };
    let visit = Visit::new(|| Recovery::Go(TalkNext::Done), pass);
    twice(visit.main.clone());
    let outcome = visit.say("hi").await.unwrap();
    assert_eq!((outcome.step.as_str(), outcome.replies), ("Talk", vec!["not yet".to_owned()]));

    let visit = Visit::new(pass, || Recovery::Go(Transition::End("closed".into())));
    twice(visit.main.clone());
    let outcome = visit.say("hi").await.unwrap();
    assert_eq!((outcome.is_ended(), outcome.replies), (true, vec!["(the flow)".to_owned()]));
}

#[tokio::test]
async fn another_model_goes_on_where_the_first_one_failed() {
    let visit = Visit::new(backup, pass);
    let _ = visit.main.clone().tool_call("search", json!({})).error(down("test::main"));
    let _ = visit.backup.clone().text("One room.");
    let outcome = visit.say("rooms").await.unwrap();
    assert_eq!(outcome.replies, ["Searching ...", "One room."]);
    assert_eq!(visit.doc().await.steps["Talk"]["searches"], 1, "the tool is called once");
    let asked = &visit.backup.requests()[0];
    let roles: Vec<_> = asked.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool]);
    // Parameters of the flow and the step are for their own model.
    assert_eq!(asked.sampling, Sampling::default());
    let own = Sampling::default().temperature(0.5).seed(7);
    assert_eq!(visit.main.requests()[0].sampling, own);

    // The next turn speaks through the step's own model again.
    let _ = visit.main.clone().text("Hello!");
    assert_eq!(visit.say("hi").await.unwrap().replies, ["Hello!"]);
    assert_eq!((visit.main.requests().len(), visit.backup.requests().len()), (3, 1));
}

#[tokio::test]
async fn the_same_model_is_asked_again_with_its_parameters_and_new_ones() {
    let again = || {
        let main: ModelSelection = "test::main".parse().unwrap();
        Recovery::Retry(ModelConfig::new(main).sampling(Sampling::default().temperature(1.0)))
    };
    let visit = Visit::new(again, pass);
    let _ = visit.main.clone().error(down("test::main")).text("Hello!");
    assert_eq!(visit.say("hi").await.unwrap().replies, ["Hello!"]);
    let merged = Sampling::default().temperature(1.0).seed(7);
    assert_eq!(visit.main.requests()[1].sampling, merged);
}

#[tokio::test]
async fn there_is_one_retry_whoever_asks_for_it() {
    let both = ["step: model-status", "step: model-malformed", "flow: model-malformed"];
    let flow_first = [
        "step: model-status",
        "flow: model-status",
        "step: model-malformed",
        "flow: model-malformed",
    ];
    type Hook<N> = fn() -> Recovery<N>;
    let table: [(Hook<TalkNext>, Hook<Transition>, &[&str]); 3] =
        [(backup, pass, &both), (backup, backup, &both), (pass, backup, &flow_first)];
    for (step, flow, asked) in table {
        let visit = Visit::new(step, flow);
        let _ = visit.main.clone().error(down("test::main")).text("late");
        // The backup has no answer either.
        let error = visit.say("hi").await.unwrap_err();
        assert_eq!(error.code(), "model-malformed", "{error}");
        assert_eq!(visit.asked(), asked);
        assert_eq!((visit.main.requests().len(), visit.backup.requests().len()), (1, 1));
    }

    let visit = Visit::new(backup, || Recovery::Answer("Please wait.".into()));
    let _ = visit.main.clone().error(down("test::main"));
    let outcome = visit.say("hi").await.unwrap();
    assert_eq!(outcome.replies, ["(the flow)", "Please wait."]);
    let _ = visit.main.clone().text("Hello!");
    assert_eq!(visit.say("hi").await.unwrap().replies, ["Hello!"], "the next turn has its own");
}

#[tokio::test]
async fn a_model_that_cannot_be_had_for_a_retry_is_a_typed_error() {
    let unknown = || {
        let model: ModelSelection = "acme::m".parse().unwrap();
        Recovery::Retry(model.into())
    };
    let visit = Visit::new(unknown, pass);
    let _ = visit.main.clone().error(down("test::main"));
    let error = visit.say("hi").await.unwrap_err();
    assert_eq!(error.code(), "unknown-model");
    assert!(error.to_string().contains("step `Talk`"), "{error}");

    let wrong = || {
        let model: ModelSelection = "test::backup".parse().unwrap();
        Recovery::Retry(ModelConfig::new(model).sampling(Sampling::default().top_p(2.0)))
    };
    let visit = Visit::new(pass, wrong);
    let _ = visit.main.clone().error(down("test::main"));
    assert_eq!(visit.say("hi").await.unwrap_err().code(), "model-parameter");
    assert_eq!(visit.backup.requests().len(), 0);
}

#[tokio::test]
async fn a_refusal_is_not_tried_again_but_reaches_the_hooks() {
    let refusal =
        || ChatResponse::new(vec![Part::text("I will not.")]).finish(FinishReason::Refusal);
    let visit = Visit::new(pass, pass);
    let _ = visit.main.clone().response(refusal()).text("late");
    let error = visit.say("hi").await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("model-refused", false));
    assert_eq!(visit.asked(), ["step: model-refused", "flow: model-refused"]);
    assert_eq!(visit.main.left(), 1);

    let visit = Visit::new(backup, pass);
    let _ = visit.main.clone().response(refusal());
    let _ = visit.backup.clone().text("Of course.");
    assert_eq!(visit.say("hi").await.unwrap().replies, ["Of course."]);
}

#[tokio::test]
async fn streamed_and_plain_turns_leave_the_same_conversation() {
    let mut docs = Vec::new();
    for streamed in [false, true] {
        let visit = Visit::new(backup, pass);
        let _ = visit.main.clone().tool_call("search", json!({})).error(down("test::main"));
        let _ = visit.backup.clone().chunks(["One ", "room."]);
        let mut turn = visit.engine.turn::<Clinic>(TurnRequest::new(session()).message("rooms"));
        if streamed {
            while turn.next_event().await.is_some() {}
        }
        turn.await.unwrap();
        let doc = visit.doc().await;
        let parts: Vec<_> = doc.memory["main"].messages.iter().map(|m| m.parts.clone()).collect();
        docs.push((parts, doc.steps.clone(), doc.usage, doc.revision));
    }
    assert_eq!(docs[0], docs[1]);
}
