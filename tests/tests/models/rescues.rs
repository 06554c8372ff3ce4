//! Decide and collect steps whose model fails.

use std::borrow::Cow;

use flow_core::message::Role;
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{CallPolicy, Capabilities, ModelCatalog, ModelError, ModelSelection};
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::{Engine, Error, TurnOutcome, TurnRequest};
use serde_json::json;

#[derive(Debug, Clone, Copy, PartialEq)]
enum How {
    Pass,
    Answer,
    Go,
    Retry,
}

/// Decides or fills a form, through a model that fails.
#[flow(id = "rescue", steps(Judge, Form, Over), model = "test::main")]
#[derive(Clone)]
struct Rescue {
    start: &'static str,
    step: How,
    flow: How,
}

impl Flow for Rescue {
    fn initial_step(&self) -> Option<Cow<'static, str>> {
        Some(self.start.into())
    }

    fn config_call_policy(&self) -> CallPolicy {
        CallPolicy::default().attempts(1)
    }

    async fn on_model_error(
        &self,
        _: &ModelError,
        _: &mut StepCx<'_, Self>,
    ) -> Result<Recovery<Transition>> {
        recovery(self.flow, || Transition::go::<Over>(()))
    }
}

fn recovery<N>(how: How, go: impl FnOnce() -> N) -> Result<Recovery<N>> {
    Ok(match how {
        How::Pass => Recovery::Pass,
        How::Answer => Recovery::Answer("Not now.".into()),
        How::Go => Recovery::Go(go()),
        How::Retry => Recovery::Retry("test::backup".parse::<ModelSelection>()?.into()),
    })
}

/// Whether the guest is in a hurry.
#[step(decide, next(Over, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Judge;

impl Decide for Judge {
    type Flow = Rescue;
    type Verdict = bool;

    async fn decide(&mut self, hurry: bool, _: &mut StepCx<'_, Rescue>) -> Result<JudgeNext> {
        Ok(JudgeNext::End(format!("hurry: {hurry}")))
    }

    async fn on_model_error(
        &mut self,
        _: &ModelError,
        cx: &mut StepCx<'_, Rescue>,
    ) -> Result<Recovery<JudgeNext>> {
        recovery(cx.flow.step, || JudgeNext::Over)
    }
}

#[step(collect, next(Over, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Form {
    #[slot(range(1, 8))]
    guests: Option<u8>,
    /// The name of the guest.
    #[slot(ask = "Who are you?")]
    name: Option<String>,
}

impl Collect for Form {
    type Flow = Rescue;

    async fn complete(&mut self, data: FormData, _: &mut StepCx<'_, Rescue>) -> Result<FormNext> {
        Ok(FormNext::End(format!("{} for {}", data.name, data.guests)))
    }

    async fn on_model_error(
        &mut self,
        _: &ModelError,
        cx: &mut StepCx<'_, Rescue>,
    ) -> Result<Recovery<FormNext>> {
        recovery(cx.flow.step, || FormNext::Over)
    }
}

#[step(reply, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Over;

impl Reply for Over {
    type Flow = Rescue;

    fn response(&self, _: &StepCx<'_, Rescue>) -> Option<String> {
        Some("Over.".into())
    }
}

struct Rescued {
    engine: Engine,
    backup: ScriptedModel,
    outcome: Result<TurnOutcome, Error>,
}

async fn run(start: &'static str, step: How, flow: How) -> Rescued {
    let down = || ModelError::Refused { model: "test::main".into(), reason: "no".into() };
    let main = ScriptedModel::new().error(down()).error(down());
    let backup = match start {
        "Judge" => {
            ScriptedModel::new().text("true").capabilities(Capabilities::default().tools(false))
        }
        _ => ScriptedModel::new().tool_call("submit_form_data", json!({ "name": "Ada" })),
    };
    let models = ModelCatalog::new().model("test::main", main);
    let models = models.model("test::backup", backup.clone());
    let builder = Engine::builder().store(MemoryStore::new()).models(models);
    let engine = builder.flow(Rescue { start, step, flow }).build().unwrap();
    let request = TurnRequest::new(SessionId::new("s").unwrap()).message("Ada, we are 3");
    let outcome = engine.turn::<Rescue>(request).await;
    Rescued { engine, backup, outcome }
}

#[tokio::test]
async fn the_step_and_then_the_flow_say_what_becomes_of_it() {
    for start in ["Judge", "Form"] {
        for (step, flow) in [(How::Answer, How::Pass), (How::Pass, How::Answer)] {
            let outcome = run(start, step, flow).await.outcome.unwrap();
            assert_eq!(outcome.replies, ["Not now."], "{start} {step:?}");
            assert_eq!(outcome.step, start);
        }
        for (step, flow) in [(How::Go, How::Pass), (How::Pass, How::Go)] {
            let outcome = run(start, step, flow).await.outcome.unwrap();
            assert_eq!(outcome.replies, ["Over."], "{start} {step:?}");
        }
        let error = run(start, How::Pass, How::Pass).await.outcome.unwrap_err();
        assert_eq!(error.code(), "model-refused", "{start}: {error}");
    }
}

#[tokio::test]
async fn another_model_is_asked_once_about_the_same() {
    for (step, flow) in [(How::Retry, How::Pass), (How::Pass, How::Retry)] {
        for (start, end) in [("Judge", "hurry: true"), ("Form", "Ada for 3")] {
            let Rescued { engine, backup, outcome } = run(start, step, flow).await;
            assert!(outcome.unwrap().is_ended(), "{start}");
            let doc = engine.session(SessionId::new("s").unwrap()).load().await.unwrap();
            assert_eq!(doc.ended.as_deref(), Some(end), "{step:?}");
            let requests = backup.requests();
            assert_eq!(requests.len(), 1);
            let said = requests[0].messages.iter().filter(|m| m.role == Role::User);
            assert_eq!(said.map(|m| m.to_text()).collect::<Vec<_>>(), ["Ada, we are 3"]);
        }
    }
}
