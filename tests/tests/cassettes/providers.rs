//! Whole conversations with a real provider's wire format on loopback, recorded, and replayed
//! with the server gone.

use flow_core::event::Event;
use flow_core::model::provider::ProviderModel;
use flow_core::model::{CallPolicy, ModelCatalog};
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::testing::ManualClock;
use flow_core::{Engine, TurnRequest};
use tests::model_server::{Answer, ModelServer, anthropic, openai};

use super::*;

const KEY: &str = "sk-canary-31b7";

/// Finds rooms.
#[flow(id = "hotel", version = 1, steps(Explore), model = "cassette::main")]
#[derive(Clone)]
struct Hotel;

impl Flow for Hotel {
    fn config_call_policy(&self) -> CallPolicy {
        let mut policy = CallPolicy::default();
        policy.first_wait = Duration::ZERO;
        policy.longest_wait = Duration::ZERO;
        policy
    }
}

#[step(reply, tools, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Explore {
    searches: u32,
}

impl Reply for Explore {
    type Flow = Hotel;

    fn instructions(&self, _: &StepCx<'_, Hotel>) -> Prompt {
        format!("You find rooms. Searches so far: {}.", self.searches).into()
    }
}

#[tools]
impl Explore {
    /// Searches free rooms.
    #[tool]
    async fn search(&mut self, city: String) -> Result<Value> {
        self.searches += 1;
        Ok(json!({ "city": city, "rooms": [7, 12] }))
    }
}

/// What became of the conversation: outcomes, text deltas, the document.
async fn converse(model: impl ChatModel) -> (Vec<String>, Vec<String>, String) {
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .flow(Hotel)
        .models(ModelCatalog::new().model("cassette::main", model))
        .clock(ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap()))
        .build()
        .unwrap();
    let session = SessionId::new("s").unwrap();
    let (mut outcomes, mut deltas) = (Vec::new(), Vec::new());
    for (turn, text) in [("1", "rooms in Rome?"), ("2", "and in Oslo?"), ("3", "thanks")] {
        let request = TurnRequest::new(session.clone()).message(text).turn_id(turn);
        let mut turn = engine.turn::<Hotel>(request);
        while let Some(event) = turn.next_event().await {
            if let Event::TextDelta { text, .. } = event {
                deltas.push(text);
            }
        }
        outcomes.push(match turn.await {
            Ok(outcome) => outcome.replies.join("|"),
            Err(error) => error.to_string(),
        });
    }
    let doc = engine.session(session).load().await.unwrap();
    (outcomes, deltas, serde_json::to_string_pretty(&doc).unwrap())
}

fn openai_script() -> Vec<Answer> {
    let call = |arguments: &str| {
        let function = json!({ "name": "search", "arguments": arguments });
        json!({ "tool_calls": [{ "index": 0, "id": "c1", "type": "function", "function": function }] })
    };
    let more = |arguments: &str| json!({ "tool_calls": [{ "index": 0, "function": { "arguments": arguments } }] });
    let text = |text: &str| json!({ "content": text });
    vec![
        Answer::error(429, "slow down").header("retry-after", "2"),
        openai::stream([call("{\"ci"), more("ty\": \"Rome\"}")], "tool_calls"),
        openai::stream([text("Rooms "), text("7 and "), text("12.")], "stop"),
        openai::stream([text("One mo"), text("ment")], "stop").cut_before("ment"),
        openai::stream([text("None.")], "stop"),
        Answer::error(401, &format!("wrong key: {KEY}")),
    ]
}

fn anthropic_script() -> Vec<Answer> {
    let words = |pieces: &[&str]| {
        let deltas = pieces.iter().map(|text| json!({ "type": "text_delta", "text": text }));
        (json!({ "type": "text", "text": "" }), deltas.collect::<Vec<_>>())
    };
    let input = |json: &str| json!({ "type": "input_json_delta", "partial_json": json });
    let call = json!({ "type": "tool_use", "id": "c1", "name": "search", "input": {} });
    let pieces = vec![input("{\"ci"), input("ty\": \"Rome\"}")];
    vec![
        Answer::error(529, "overloaded").header("retry-after", "2"),
        anthropic::stream([words(&["Let me", " see."]), (call, pieces)], "tool_use"),
        anthropic::stream([words(&["Rooms ", "7 and ", "12."])], "end_turn"),
        anthropic::stream([words(&["One mo", "ment"])], "end_turn").cut_before("ment"),
        anthropic::stream([words(&["None."])], "end_turn"),
        Answer::error(401, &format!("wrong key: {KEY}")),
    ]
}

#[tokio::test]
async fn a_conversation_with_a_provider_is_replayed_with_the_provider_gone() {
    for (provider, script) in [("openai", openai_script()), ("anthropic", anthropic_script())] {
        let file = File::new();
        let server = ModelServer::start(script).await;
        let real = ProviderModel::builder(provider, "test")
            .base_url(server.url("/v1"))
            .key(KEY)
            .build()
            .unwrap();
        let recorded = converse(RecordingModel::new(real, &file.path)).await;
        assert_eq!(server.left(), 0, "{provider}: {recorded:?}");
        drop(server);

        let (outcomes, deltas, doc) = &recorded;
        assert_eq!(outcomes[1], "None.", "{provider}");
        assert!(outcomes[0].ends_with("Rooms 7 and 12."), "{provider}: {outcomes:?}");
        assert!(outcomes[2].contains("status 401"), "{provider}: {outcomes:?}");
        assert!(deltas.contains(&"One mo".to_owned()), "{provider}: {deltas:?}");
        assert!(doc.contains("search"), "{provider}: {doc}");

        let cassette = file.json();
        let interactions = cassette["interactions"].as_array().unwrap();
        assert_eq!(interactions.len(), 6, "{provider}");
        assert_eq!(interactions[0]["error"]["retry_after"], json!({ "secs": 2, "nanos": 0 }));
        let text = file.text();
        for secret in [KEY, "authorization", "x-api-key", "127.0.0.1"] {
            assert!(!text.contains(secret), "{provider} {secret}: {text}");
        }

        let replay = ReplayModel::open(&file.path).unwrap();
        let replayed = converse(replay.clone()).await;
        assert_eq!(replayed, recorded, "{provider}");
        assert_eq!(replay.left(), 0);
    }
}
