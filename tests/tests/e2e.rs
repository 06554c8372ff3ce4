//! The hotel example against a real model, in OpenAI's and in Anthropic's dialect.
//!
//! Ignored by default, since it needs a server:
//!
//! ```text
//! FLOW_TEST_BASE_URL=http://127.0.0.1:18080/v1 FLOW_TEST_MODEL=local \
//!     cargo test -p tests --test e2e -- --ignored --nocapture --test-threads 1
//! ```
//!
//! `FLOW_TEST_BASE_URL` is where the server has `/chat/completions`, and `/messages` for the
//! second test; `FLOW_TEST_KEY` is its key, if it wants one. What is asserted are facts, whatever
//! the model's words: which tools were called, where the session stands, and that every request
//! and the history keep the rules of the dialect. A small model may have to be told twice.

#![allow(clippy::print_stdout, reason = "what the model said is worth reading")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use async_trait::async_trait;
use examples::hotel::{Booking, Hotel};
use flow_core::message::{Message, Part};
use flow_core::model::provider::ProviderModel;
use flow_core::model::{
    ChatModel, ChatRequest, ChatResponse, ModelCatalog, ModelError, ModelStream,
};
use flow_core::outcome::Outcome;
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::{Engine, TurnOutcome, TurnRequest};
use tests::ordering;

/// A model that keeps what it is asked.
struct Heard {
    model: ProviderModel,
    requests: Arc<Mutex<Vec<ChatRequest>>>,
}

impl Heard {
    /// Keeps a request, and bounds its answer: a small model goes on and on once it has said
    /// what is asked for.
    fn hear(&self, request: &ChatRequest) -> ChatRequest {
        self.requests.lock().unwrap().push(request.clone());
        let mut request = request.clone();
        request.sampling = request.sampling.max_output_tokens(200);
        request
    }
}

#[async_trait]
impl ChatModel for Heard {
    async fn complete(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        self.model.complete(&self.hear(request)).await
    }

    async fn stream(&self, request: &ChatRequest) -> Result<ModelStream, ModelError> {
        self.model.stream(&self.hear(request)).await
    }

    fn capabilities(&self) -> flow_core::model::Capabilities {
        self.model.capabilities()
    }
}

struct Guest {
    engine: Engine,
    requests: Arc<Mutex<Vec<ChatRequest>>>,
    last: Option<TurnOutcome>,
}

impl Guest {
    fn new(provider: &str) -> Self {
        let wanted = |name: &str| {
            std::env::var(name).unwrap_or_else(|_| panic!("set {name}; see the head of this file"))
        };
        let (url, name) = (wanted("FLOW_TEST_BASE_URL"), wanted("FLOW_TEST_MODEL"));
        let key = std::env::var("FLOW_TEST_KEY").unwrap_or_else(|_| "none".to_owned());
        // Servers that speak Anthropic's dialect beside their own mostly ignore its schemas.
        let strict = provider != "anthropic";
        let model = ProviderModel::builder(provider, name).base_url(url).key(key);
        let model = model.structured_output(strict).build().unwrap();
        let requests: Arc<Mutex<Vec<ChatRequest>>> = Arc::default();
        let models =
            ModelCatalog::new().model("e2e::model", Heard { model, requests: requests.clone() });
        let hotel = Hotel { model: "e2e::model".parse().unwrap() };
        let builder = Engine::builder().store(MemoryStore::new()).flow(hotel).models(models);
        Self { engine: builder.build().unwrap(), requests, last: None }
    }

    async fn say(&mut self, text: &str) {
        println!("> {text}");
        let begin = Instant::now();
        let outcome = self.engine.turn::<Hotel>(TurnRequest::new(session()).message(text)).await;
        let outcome = outcome.unwrap_or_else(|error| panic!("the turn failed: {error}"));
        outcome.replies.iter().for_each(|reply| println!("{reply}"));
        println!("  [{} after {:.1} s]", outcome.step, begin.elapsed().as_secs_f32());
        self.last = Some(outcome);
    }

    /// Where the session stands.
    fn step(&self) -> &str {
        self.last.as_ref().map_or("", |outcome| &outcome.step)
    }

    /// Says one thing after the other, as long as the session stands at a step.
    async fn insist(&mut self, step: &str, texts: &[&str]) {
        for text in texts {
            if self.step() != step {
                return;
            }
            self.say(text).await;
        }
        assert_ne!(self.step(), step, "the model was told {} times", texts.len());
    }
}

fn session() -> SessionId {
    SessionId::new("guest").unwrap()
}

/// Talks to the hotel until a room is booked, and checks what was left.
async fn book(provider: &str) {
    let begin = Instant::now();
    let mut guest = Guest::new(provider);
    guest.say("Hello! I need a room for two people. Which ones are free?").await;
    guest
        .insist(
            "Explore",
            &[
                "Please search the free rooms for 2 people.",
                "I have decided: I take room 12.",
                "Please call choose_room with number 12 now.",
                "Room 12. Choose it with the tool.",
                "choose_room 12",
            ],
        )
        .await;
    // The nights are read in code, the name by the model.
    let answers = ["Ada Lovelace, for 3 nights.", "My name is Ada Lovelace.", "3 nights.", "3"];
    guest.insist("Checkout", &answers).await;

    // The model has decided whether there is a wish for the manager.
    let outcome = guest.last.clone().unwrap();
    let escalated = matches!(outcome.outcome, Outcome::Escalated { .. });
    assert!(outcome.is_ended() || escalated, "{outcome:?}");
    let transcript = guest.engine.session(session()).transcript().await.unwrap();
    let booking: Booking = serde_json::from_value(transcript.doc.state.clone()).unwrap();
    assert!(booking.room != 0 && booking.guest.contains("Ada"), "{}", transcript.doc.state);
    assert_eq!(booking.nights, 3);
    let parts = transcript.messages().into_iter().flat_map(|message| &message.parts);
    let called: BTreeSet<&str> = parts
        .filter_map(|part| match part {
            Part::ToolCall(call) => Some(call.name.as_str()),
            _ => None,
        })
        .collect();
    assert!(called.contains("search_rooms") && called.contains("choose_room"), "{called:?}");
    assert!(transcript.doc.usage.input > 0 && transcript.doc.usage.output > 0);

    let requests = guest.requests.lock().unwrap().clone();
    for request in &requests {
        check(&request.messages);
    }
    let usage = transcript.doc.usage;
    println!(
        "{provider}: {} model calls in {:.0} s, {} tokens in, {} out, called {called:?}",
        requests.len(),
        begin.elapsed().as_secs_f32(),
        usage.input,
        usage.output
    );
}

/// The rules of both dialects. (The server itself has checked what was sent.)
fn check(messages: &[Message]) {
    ordering::openai(&ordering::openai_body(messages)).unwrap();
    ordering::anthropic(&ordering::anthropic_body(messages)).unwrap();
}

#[tokio::test]
#[ignore = "needs a server: see the head of this file"]
async fn a_room_is_booked_in_openais_dialect() {
    book("openai-compatible").await;
}

#[tokio::test]
#[ignore = "needs a server: see the head of this file"]
async fn a_room_is_booked_in_anthropics_dialect() {
    book("anthropic").await;
}
