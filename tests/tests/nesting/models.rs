//! Steps within an action that speak through models.

use flow_core::message::{Message, Role};
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{ChatResponse, ModelCatalog, TokenUsage};
use flow_core::store::memory::MemoryStore;
use flow_core::{Engine, Error, TurnOutcome};
use serde_json::json;
use tests::ordering::{anthropic, anthropic_body, openai, openai_body};

use super::*;

/// Writes a letter by several steps.
#[flow(id = "press", steps(Desk, Writer, Editor, Clerk), model = "test::main", tools)]
#[derive(Clone, Default)]
struct Press {
    looked_up: Arc<Mutex<Vec<String>>>,
}

impl Flow for Press {}

#[tools(flow)]
impl Press {
    /// Looks up an address.
    #[tool]
    async fn look_up(&self, name: String) -> Result<String> {
        self.looked_up.lock().unwrap().push(name.clone());
        Ok(format!("{name}, Harbour Street"))
    }

    /// Posts the letter.
    #[tool(ask)]
    async fn post(&self) -> Result<String> {
        self.looked_up.lock().unwrap().push("posted".into());
        Ok("posted".into())
    }
}

/// Has a letter written and judged, in the way the message says.
#[step(action, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Desk {
    good: Option<bool>,
}

impl Action for Desk {
    type Flow = Press;

    async fn run(&mut self, cx: &mut ActionCx<'_, Press>) -> Result<DeskNext> {
        match cx.take_message().as_deref() {
            Some("post") => {
                let _: Clerk = cx.run_step(()).await?;
            }
            Some("both") => {
                let mut branches = Branches::new().limit(1);
                let first = branches.add::<Editor>(());
                let second = branches.add::<Editor>(());
                let mut results = cx.run_steps(branches).await?;
                let both = [results.take(first)?.good, results.take(second)?.good];
                self.good = Some(both == [Some(true); 2]);
            }
            _ => {
                let _: Writer = cx.run_step(()).await?;
                cx.approve("send it").await?;
                self.good = cx.run_step::<Editor>(()).await?.good;
            }
        }
        Ok(DeskNext::End("written".into()))
    }
}

/// Writes, and may look up addresses.
#[step(reply, flow_tools(LookUp), next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Writer {
    written: String,
}

impl Reply for Writer {
    type Flow = Press;

    async fn on_response(
        &mut self,
        text: &str,
        _: &mut StepCx<'_, Press>,
    ) -> Result<Option<WriterNext>> {
        self.written = text.to_owned();
        Ok(Some(WriterNext::End("written".into())))
    }
}

/// Posts by a call that a person has to approve.
#[step(reply, flow_tools(Post), next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Clerk;

impl Reply for Clerk {
    type Flow = Press;
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Opinion {
    good: bool,
}

/// Judges what was written.
#[step(decide, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Editor {
    good: Option<bool>,
}

impl Decide for Editor {
    type Flow = Press;
    type Verdict = Opinion;

    async fn decide(&mut self, verdict: Opinion, _: &mut StepCx<'_, Press>) -> Result<EditorNext> {
        self.good = Some(verdict.good);
        Ok(EditorNext::End("judged".into()))
    }
}

fn press(model: &ScriptedModel) -> (Engine, Press) {
    let flow = Press::default();
    let models = ModelCatalog::new().model("test::main", model.clone());
    let engine = Engine::builder().store(MemoryStore::new()).flow(flow.clone()).models(models);
    (engine.build().unwrap(), flow)
}

async fn say(engine: &Engine, text: &str) -> Result<TurnOutcome, Error> {
    engine.turn::<Press>(TurnRequest::new(session()).message(text)).await
}

#[tokio::test]
async fn a_model_speaks_for_a_step_within_an_action_once() {
    let model = ScriptedModel::new()
        .tool_call("look_up", json!({ "name": "Ada" }))
        .response(ChatResponse::new(vec![Part::text("Dear Ada,")]).usage(TokenUsage::new(7, 3)))
        .tool_call("submit_opinion", json!({ "good": true }));
    let (engine, flow) = press(&model);
    let first = say(&engine, "write").await.unwrap();
    assert_eq!(first.replies, ["Dear Ada,"]);
    let spent = engine.session(session()).load().await.unwrap().usage;
    let yes = Delivery::approve(first.interrupts()[0].request_id.clone());
    let second = engine.deliver(session(), yes).await.unwrap();
    assert!(second.is_ended() && second.replies.is_empty(), "{second:?}");
    assert_eq!(flow.looked_up.lock().unwrap().as_slice(), ["Ada"]);
    assert_eq!((model.requests().len(), model.left()), (3, 0), "the writer was asked once");

    let doc = engine.session(session()).load().await.unwrap();
    assert_eq!(doc.steps["Desk"]["good"], true);
    assert_eq!((spent, doc.usage), (TokenUsage::new(7, 3), TokenUsage::new(7, 3)), "paid once");
    let transcript = engine.session(session()).transcript().await.unwrap();
    let messages: Vec<&Message> = transcript.messages();
    let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Assistant]);
    for request in model.requests() {
        openai(&openai_body(&request.messages)).unwrap();
        anthropic(&anthropic_body(&request.messages)).unwrap();
    }
    let judged = &model.requests()[2].messages;
    assert!(format!("{judged:?}").contains("Dear Ada,"), "the editor sees what was written");
}

#[tokio::test]
async fn models_speak_for_steps_side_by_side() {
    let verdict = json!({ "good": true });
    let model = ScriptedModel::new()
        .tool_call("submit_opinion", verdict.clone())
        .tool_call("submit_opinion", verdict);
    let (engine, _) = press(&model);
    assert!(say(&engine, "both").await.unwrap().is_ended());
    let doc = engine.session(session()).load().await.unwrap();
    assert_eq!(doc.steps["Desk"]["good"], true);
}

#[tokio::test]
async fn a_call_that_needs_an_approval_is_refused_within_an_action_and_not_made() {
    let good = json!({ "good": true });
    let model = ScriptedModel::new()
        .tool_call("post", json!({}))
        .tool_call("submit_opinion", good.clone())
        .tool_call("submit_opinion", good);
    let (engine, flow) = press(&model);
    let error = say(&engine, "post").await.unwrap_err();
    assert_eq!(error.code(), "step-unfit");
    let text = error.to_string();
    for part in ["step `Clerk` runs within `Desk`", "wait for the approval"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(flow.looked_up.lock().unwrap().is_empty());
    assert!(say(&engine, "both").await.unwrap().is_ended(), "the session is usable");
}
