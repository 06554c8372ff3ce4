//! Values that flows ask a model for, in the wire formats of real providers.

use flow_core::model::ModelCatalog;
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::{Engine, TurnOutcome, TurnRequest};

use super::*;

/// Sorts and reserves.
#[flow(id = "desk", version = 1, steps(Triage, Reserve), model = "test::main")]
#[derive(Clone)]
struct Desk;

impl Flow for Desk {
    fn config_call_policy(&self) -> CallPolicy {
        // A real model on a busy machine takes its time.
        CallPolicy::default().attempt_timeout(Duration::from_secs(1200))
    }
}

/// Says what the user's last message is about.
#[step(decide, next(Reserve, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Triage;

#[derive(Serialize, Deserialize, JsonSchema)]
struct Wish {
    /// In one word.
    topic: String,
    guests: Option<u8>,
    reserve: bool,
}

impl Decide for Triage {
    type Flow = Desk;
    type Verdict = Wish;

    async fn decide(&mut self, wish: Wish, cx: &mut StepCx<'_, Desk>) -> Result<TriageNext> {
        if wish.reserve {
            return Ok(TriageNext::Reserve);
        }
        cx.say(format!("{} {:?}", wish.topic, wish.guests));
        Ok(TriageNext::End(wish.topic))
    }
}

/// A reservation.
#[step(collect, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Reserve {
    /// The name to reserve under.
    #[slot(verbatim)]
    name: Option<String>,
    #[slot(range(1, 8), ask = "For how many?")]
    guests: Option<u8>,
    #[slot(one_of("noon", "evening"), optional)]
    time: Option<String>,
}

impl Collect for Reserve {
    type Flow = Desk;

    async fn on_crossing(
        &mut self,
        crossing: Crossing<'_>,
        _: &mut StepCx<'_, Desk>,
    ) -> Result<Option<String>> {
        Ok(crossing.message.map(str::to_owned))
    }

    async fn complete(
        &mut self,
        data: ReserveData,
        cx: &mut StepCx<'_, Desk>,
    ) -> Result<ReserveNext> {
        cx.say(format!("{} {} {:?}", data.name, data.guests, data.time));
        Ok(ReserveNext::End("reserved".into()))
    }
}

/// A turn, with a model of the server.
async fn turn(server: &ModelServer, provider: &str, name: &str, text: &str) -> TurnOutcome {
    let builder = ProviderModel::builder(provider, name);
    let model = builder.base_url(server.url("/v1")).key("sk-test").build().unwrap();
    let models = ModelCatalog::new().model("test::main", model);
    let builder = Engine::builder().store(MemoryStore::new()).flow(Desk).models(models);
    let request = TurnRequest::new(SessionId::new("s").unwrap()).message(text);
    builder.build().unwrap().turn::<Desk>(request).await.unwrap()
}

fn bodies(server: &ModelServer) -> Vec<Value> {
    server.requests().into_iter().map(|request| request.body).collect()
}

#[tokio::test]
async fn openai_answers_in_the_form_of_a_verdict_and_calls_the_tool_of_a_form() {
    let [openai, ..] = WIRES;
    let wish = json!({ "topic": "table", "guests": null, "reserve": true }).to_string();
    let server = ModelServer::start([
        openai.text(&["{\"topic\": 1}"]),
        openai.text(&[&wish]),
        openai.calls(&[(
            "call_1",
            "submit_reserve_data",
            &[r#"{"name": "Ada", "guests": "#, r#""4", "time": "Noon"}"#],
        )]),
    ])
    .await;
    let outcome = turn(&server, "openai", "gpt-5.1-mini", "Ada wants a table for four").await;
    assert_eq!(outcome.replies, [r#"Ada 4 Some("noon")"#]);
    insta::assert_json_snapshot!("structured_openai", bodies(&server));
}

#[tokio::test]
async fn anthropic_is_made_to_call_a_tool_where_it_keeps_to_no_form() {
    let [.., anthropic, _] = WIRES;
    let wish = json!({ "topic": "table", "reserve": true }).to_string();
    let server = ModelServer::start([
        anthropic.calls(&[(
            "toolu_1",
            "submit_wish",
            &[r#"{"topic": "table", "reserve": "perhaps"}"#],
        )]),
        anthropic.calls(&[("toolu_2", "submit_wish", &[&wish])]),
        anthropic.calls(&[(
            "toolu_3",
            "submit_reserve_data",
            &[r#"{"name": "Ada", "guests": 4}"#],
        )]),
    ])
    .await;
    let model = "claude-3-5-haiku-latest";
    let outcome = turn(&server, "anthropic", model, "Ada wants a table for four").await;
    assert_eq!(outcome.replies, ["Ada 4 None"]);
    insta::assert_json_snapshot!("structured_anthropic", bodies(&server));
}
