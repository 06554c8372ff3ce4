//! Calls of a model that wait for approval.

use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{ModelCatalog, ModelConfig, ModelSelection};
use serde_json::json;

use super::*;

#[flow(id = "till", version = 1, steps(Counter), tools)]
#[derive(Clone, Default)]
struct Till {
    bank: Bank,
}

impl Flow for Till {
    fn config_model(&self) -> Option<ModelConfig> {
        Some("test::main".parse::<ModelSelection>().unwrap().into())
    }
}

#[tools(flow)]
impl Till {
    /// Gives money back.
    #[tool(ask)]
    async fn refund(&self, cx: &ToolCx, cents: u32) -> Result<String> {
        Ok(self.bank.charge(cx.idempotency_key(), cents))
    }
}

#[step(reply, flow_tools = open, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Counter;

impl Reply for Counter {
    type Flow = Till;
}

#[tokio::test]
async fn are_made_again_under_other_keys_once_they_are_approved_again() {
    for (store, _kept) in stores().await {
        let refund = || [("refund", json!({ "cents": 5 }))];
        let model = ScriptedModel::new().tool_calls(refund()).text("one").text("two").text("three");
        let flow = Till::default();
        let engine = Engine::builder()
            .shared_store(store)
            .flow(flow.clone())
            .models(ModelCatalog::new().model("test::main", model.clone()))
            .checkpoints(Checkpoints::keep_last(9))
            .build()
            .unwrap();
        let turn = TurnRequest::new(id("s")).message("refund");
        let outcome = engine.turn::<Till>(turn).await.unwrap();
        let old = outcome.interrupts()[0].request_id.clone();
        let approve =
            |session, request: &str| engine.deliver(id(session), Delivery::approve(request));
        assert_eq!(approve("s", &old).await.unwrap().replies, ["one"]);

        let s = engine.session(id("s"));
        s.fork(outcome.revision, id("f")).await.unwrap();
        s.rewind(outcome.revision).await.unwrap();
        assert_eq!(approve("s", &old).await.unwrap_err().code(), "not-waiting");
        let Some(Waiting::Interrupts { pending }) = s.load().await.unwrap().waiting else {
            panic!("it waits for approval");
        };
        assert_eq!(approve("s", &pending[0].request_id).await.unwrap().replies, ["two"]);
        assert_eq!(approve("f", &old).await.unwrap().replies, ["three"]);
        let made = flow.bank.take();
        assert_eq!(made.len(), 3, "{made:?}");
        assert_eq!(model.left(), 0);
    }
}
