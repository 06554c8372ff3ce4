//! Whole turns through a real provider crate: what a bad answer does to the conversation, and
//! what the next request is.

use std::sync::Arc;

use async_trait::async_trait;
use flow_core::event::Event;
use flow_core::message::Message;
use flow_core::model::{
    CallPolicy, ChatModel, ChatRequest, ChatResponse, ModelCatalog, ModelConfig, ModelError,
    ModelSelection,
};
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::{Engine, TurnOutcome, TurnRequest};
use serde_json::{Value, json};
use tests::model_server::{Answer, ModelServer, anthropic};

use super::{Call, WIRES, Wire, at_once};

/// Finds rooms.
#[flow(id = "desk", steps(Desk, Goodbye))]
#[derive(Clone)]
struct Hotel {
    model: ModelSelection,
}

impl Flow for Hotel {
    fn config_model(&self) -> Option<ModelConfig> {
        Some(self.model.clone().into())
    }

    fn config_call_policy(&self) -> CallPolicy {
        at_once()
    }
}

#[step(reply, tools, next(Goodbye, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Desk;

impl Reply for Desk {
    type Flow = Hotel;
}

#[tools]
impl Desk {
    /// Searches rooms.
    #[tool]
    async fn search(&mut self, city: String) -> Result<String> {
        if city == "Atlantis" {
            return Err(StepError::new("there is no such city"));
        }
        Ok(format!("rooms in {city}"))
    }

    /// The guest leaves.
    #[tool]
    async fn leave(&mut self) -> DeskNext {
        DeskNext::Goodbye
    }
}

/// Has no tools, and shares the memory of the step that has.
#[step(reply, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Goodbye;

impl Reply for Goodbye {
    type Flow = Hotel;
}

/// A model that is asked for whole answers.
struct Whole(Arc<dyn ChatModel>);

#[async_trait]
impl ChatModel for Whole {
    async fn complete(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        self.0.complete(request).await
    }
}

/// A conversation over a server.
struct Talk {
    server: ModelServer,
    engine: Engine,
}

impl Talk {
    async fn new(wire: Wire, script: impl IntoIterator<Item = Answer>) -> Self {
        Self::over(Arc::new(MemoryStore::new()), wire, script).await
    }

    async fn over(
        store: Arc<MemoryStore>,
        wire: Wire,
        script: impl IntoIterator<Item = Answer>,
    ) -> Self {
        let server = ModelServer::start(script).await;
        let model = wire.model(&server);
        let models = match wire.streamed {
            true => ModelCatalog::new().model("wire::m", model),
            false => ModelCatalog::new().model("wire::m", Whole(Arc::new(model))),
        };
        let hotel = Hotel { model: "wire::m".parse().unwrap() };
        let builder = Engine::builder().shared_store(store).flow(hotel).models(models);
        Self { server, engine: builder.build().unwrap() }
    }

    async fn say(&self, text: &str) -> Result<TurnOutcome, flow_core::Error> {
        self.engine.turn::<Hotel>(TurnRequest::new(session()).message(text)).await
    }

    async fn doc(&self) -> SessionDoc {
        self.engine.session(session()).load().await.unwrap()
    }

    /// What was said, without what differs between two runs.
    async fn history(&self) -> Vec<Value> {
        let messages = self.doc().await.memory["main"].messages.clone();
        messages.iter().map(|Message { role, parts, .. }| json!([role, parts])).collect()
    }
}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

/// The results of tools in the last request: the id, the text, and whether it is marked as
/// failed where the dialect has a mark.
fn results(wire: Wire, server: &ModelServer) -> Vec<(String, String, Option<bool>)> {
    let body = server.last_body();
    let messages = body["messages"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    if !wire.anthropic {
        let tool = messages.iter().filter(|message| message["role"] == "tool");
        return tool.map(|m| (text(&m["tool_call_id"]), text(&m["content"]), None)).collect();
    }
    let blocks = messages.iter().flat_map(|message| message["content"].as_array().into_iter());
    blocks
        .flatten()
        .filter(|block| block["type"] == "tool_result")
        .map(|block| {
            let failed = block["is_error"].as_bool().unwrap_or(false);
            (text(&block["tool_use_id"]), text(&block["content"]), Some(failed))
        })
        .collect()
}

/// A call whose arguments are no JSON, in every wire that can say so.
fn malformed(wire: Wire) -> Answer {
    if wire.anthropic && !wire.streamed {
        // A whole answer is JSON, but its input may still be a text.
        let call =
            json!({ "type": "tool_use", "id": "c1", "name": "search", "input": "{\"city\": " });
        return anthropic::message(&json!([call]), "tool_use");
    }
    wire.calls(&[("c1", "search", &["{\"city\"", ": "])])
}

#[tokio::test]
async fn malformed_arguments_are_told_to_the_model_which_tries_again() {
    for wire in WIRES {
        let again: [Call<'_>; 1] = [("c2", "search", &["{\"city\":", "\"Lisbon\"}"])];
        let script = [malformed(wire), wire.calls(&again), wire.text(&["Two rooms."])];
        let talk = Talk::new(wire, script).await;
        let outcome = talk.say("rooms").await.unwrap();
        assert_eq!(outcome.replies, ["Two rooms."], "{wire:?}");
        let results = results(wire, &talk.server);
        assert_eq!(results.len(), 2, "{wire:?} {results:?}");
        let (id, told, failed) = &results[0];
        assert!(id == "c1" && told.starts_with("invalid arguments for tool `search`"), "{told}");
        assert_ne!(*failed, Some(false), "{wire:?}");
        let (id, told, failed) = &results[1];
        assert_eq!((id.as_str(), told.as_str()), ("c2", "rooms in Lisbon"));
        assert_ne!(*failed, Some(true), "{wire:?}");
        assert_eq!(talk.history().await.len(), 6, "{wire:?}");
        // The broken arguments are sent with every later request.
        talk.server.push(wire.text(&["Yes."]));
        talk.say("really?").await.unwrap();
    }
}

#[tokio::test]
async fn parallel_calls_in_fragments_are_all_answered_at_once() {
    for wire in WIRES {
        let calls: [Call<'_>; 3] = [
            ("c1", "search", &["{\"ci", "ty\":\"Porto\"}"]),
            ("c2", "search", &["{\"city\"", ":\"Atlan", "tis\"}"]),
            ("c3", "fly", &["{}"]),
        ];
        let talk = Talk::new(wire, [wire.calls(&calls), wire.text(&["Porto."])]).await;
        talk.say("rooms").await.unwrap();
        assert_eq!(talk.server.requests().len(), 2);
        let results = results(wire, &talk.server);
        let ids: Vec<&str> = results.iter().map(|(id, ..)| id.as_str()).collect();
        assert_eq!(ids, ["c1", "c2", "c3"], "{wire:?}");
        assert_eq!(results[0].1, "rooms in Porto");
        assert!(results[1].1.contains("no such city"), "{results:?}");
        assert!(results[2].1.contains("there is no tool `fly`"), "{results:?}");
        if wire.anthropic {
            let failed: Vec<_> = results.iter().filter_map(|(.., failed)| *failed).collect();
            assert_eq!(failed, [false, true, true]);
        }
    }
}

#[tokio::test]
async fn attempts_that_fail_leave_no_trace_in_the_conversation() {
    for wire in WIRES {
        let script = [
            Answer::error(429, "slow down").header("retry-after", "0"),
            Answer::error(500, "oops"),
            wire.text(&["Here ", "you are."]),
        ];
        let talk = Talk::new(wire, script).await;
        assert_eq!(talk.say("rooms").await.unwrap().replies, ["Here you are."]);
        let requests = talk.server.requests();
        assert_eq!(requests.len(), 3, "{wire:?}");
        assert!(requests.iter().all(|request| request.body == requests[0].body));
        assert_eq!(talk.history().await.len(), 2, "{wire:?}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_asked_for_again_and_kept_once() {
    for wire in WIRES {
        let texts = ["One ", "two ", "three."];
        let script = [wire.text(&texts).cut_before("three"), wire.text(&texts)];
        let talk = Talk::new(wire, script).await;
        let mut turn = talk.engine.turn::<Hotel>(TurnRequest::new(session()).message("count"));
        let mut heard = Vec::new();
        while let Some(event) = turn.next_event().await {
            match event {
                Event::TextStart { .. } => heard.clear(),
                Event::TextDelta { text, .. } => heard.push(text),
                _ => {}
            }
        }
        assert_eq!(turn.await.unwrap().replies, ["One two three."], "{wire:?}");
        assert_eq!(
            heard.concat(),
            "One two three.",
            "who starts again with the text hears it once"
        );
        assert_eq!(talk.history().await.len(), 2, "{wire:?}");
    }
}

#[tokio::test]
async fn a_turn_without_an_answer_fails_and_the_next_one_is_as_if_it_had_not_been() {
    for wire in WIRES {
        let broken = || wire.text(&["One ", "two"]).cut_before("two");
        type Failure<'a> = (&'a str, usize, Box<dyn Fn() -> Answer + 'a>);
        let failures: [Failure<'_>; 6] = [
            ("model-status", 1, Box::new(|| Answer::error(400, "no"))),
            ("model-status", 3, Box::new(|| Answer::error(429, "no").header("retry-after", "0"))),
            ("model-status", 3, Box::new(|| Answer::error(500, "no"))),
            ("model-connection", 3, Box::new(broken)),
            ("model-refused", 1, Box::new(|| wire.refusal("No, I will not."))),
            ("model-malformed", 1, Box::new(|| wire.text(&[]))),
        ];
        for (code, attempts, answer) in failures {
            let talk = Talk::new(wire, [wire.text(&["Hello."])]).await;
            talk.say("hi").await.unwrap();
            // It fails in the second round, with a tool called.
            talk.server.push(wire.calls(&[("c1", "search", &["{\"city\":\"Porto\"}"])]));
            (0..attempts).for_each(|_| talk.server.push(answer()));
            let error = talk.say("rooms").await.unwrap_err();
            assert_eq!(error.code(), code, "{wire:?} {error}");
            assert_eq!(talk.server.left(), 0, "{wire:?} {code}: all attempts are made");
            assert_eq!(talk.history().await.len(), 2, "{wire:?} {code}");
            talk.server.push(wire.text(&["Porto has two."]));
            assert_eq!(talk.say("rooms!").await.unwrap().replies, ["Porto has two."]);
            let sent = talk.server.last_body()["messages"].to_string();
            assert!(!sent.contains("c1"), "{wire:?} {code} {sent}");
        }
    }
}

#[tokio::test]
async fn deltas_of_60_kb_are_said_kept_and_sent_again() {
    let text = "wörd ".repeat(10_000);
    for wire in WIRES {
        let script = [wire.text(&[&text, "The end."]).in_pieces_of(4096), wire.text(&["Yes."])];
        let talk = Talk::new(wire, script).await;
        let said = format!("{text}The end.");
        let outcome = talk.say("tell me all").await.unwrap();
        assert_eq!(outcome.replies, std::slice::from_ref(&said));
        talk.say("all?").await.unwrap();
        let sent = talk.server.last_body()["messages"].to_string();
        assert!(sent.contains(&said), "{wire:?} {}", sent.len());
    }
}

#[tokio::test]
async fn streamed_and_whole_answers_leave_the_same_conversation() {
    for anthropic in [false, true] {
        let mut left = Vec::new();
        for streamed in [false, true] {
            let wire = Wire { anthropic, streamed };
            let calls: [Call<'_>; 2] =
                [("c1", "search", &["{\"city\":", "\"Porto\"}"]), ("c2", "fly", &["{}"])];
            let stop = if anthropic { "tool_use" } else { "tool_calls" };
            let script = [wire.answer(&["Let me ", "see."], &calls, stop), wire.text(&["Porto."])];
            let talk = Talk::new(wire, script).await;
            let outcome = talk.say("rooms").await.unwrap();
            left.push((talk.history().await, talk.doc().await.usage, outcome.replies));
        }
        assert_eq!(left[0], left[1]);
        assert_eq!(left[0].2, ["Let me see.", "Porto."]);
        assert_eq!(left[0].1.input, 40);
    }
}

#[tokio::test]
async fn a_conversation_may_change_providers() {
    let store = Arc::new(MemoryStore::new());
    let ids = ["call:1", "toolu_2", "call:3", "toolu_4"];
    for (turn, wire) in [WIRES[1], WIRES[3], WIRES[0], WIRES[2]].into_iter().enumerate() {
        let calls: [Call<'_>; 1] = [(ids[turn], "search", &["{\"city\":\"Porto\"}"])];
        let script = [wire.calls(&calls), wire.text(&["Porto."])];
        let talk = Talk::over(store.clone(), wire, script).await;
        talk.say("rooms").await.unwrap();
        assert_eq!(results(wire, &talk.server).len(), turn + 1, "{wire:?}");
    }
}

#[tokio::test]
async fn a_conversation_that_the_user_has_not_begun_is_one_all_the_same() {
    for wire in WIRES {
        let talk = Talk::new(wire, [wire.text(&["Welcome!"]), wire.text(&["Anyone?"])]).await;
        for said in ["Welcome!", "Anyone?"] {
            let outcome = talk.engine.turn::<Hotel>(TurnRequest::new(session())).await.unwrap();
            assert_eq!(outcome.replies, [said], "{wire:?}");
        }
        let sent = talk.server.last_body()["messages"].clone();
        let roles: Vec<_> = sent.as_array().unwrap().iter().map(|m| m["role"].clone()).collect();
        assert_eq!(roles, ["user", "assistant", "user"], "{wire:?}");
        // What stands for the user is no part of the conversation.
        assert_eq!(talk.history().await.len(), 2);
    }
}

#[tokio::test]
async fn a_step_without_tools_goes_on_with_a_conversation_that_has_called_some() {
    for wire in WIRES {
        let leave: [Call<'_>; 2] =
            [("c1", "leave", &["{}"]), ("c2", "search", &["{\"city\":\"Porto\"}"])];
        let talk = Talk::new(wire, [wire.calls(&leave), wire.text(&["Goodbye."])]).await;
        let outcome = talk.say("I am off").await.unwrap();
        assert_eq!(
            (outcome.step.as_str(), outcome.replies.concat()),
            ("Goodbye", "Goodbye.".into())
        );
        let body = talk.server.last_body();
        if wire.anthropic {
            let names = body["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone());
            assert_eq!(names.collect::<Vec<_>>(), ["leave", "search"]);
            assert_eq!(body["tool_choice"], json!({ "type": "none" }));
        } else {
            assert_eq!(body.get("tools"), None);
        }
    }
}
