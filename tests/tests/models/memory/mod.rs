//! What a model is shown of a conversation: windows, summaries, context strategies.

mod strategies;
mod summaries;
mod windows;

use std::sync::Arc;

use flow_core::event::Event;
use flow_core::memory::SummaryPolicy;
use flow_core::message::{Part, Role};
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{CallPolicy, ChatRequest, ModelCatalog, ModelSelection};
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::store::{SessionStore, Transcript};
use flow_core::testing::ManualClock;
use flow_core::time::Timestamp;
use flow_core::{Durability, Engine, TurnOutcome, TurnRequest};
use serde_json::{Value, json};

/// A conversation that can go on in other steps.
#[flow(
    id = "salon",
    version = 1,
    steps(Chat, Fresh, Brief, Tail, Shared, Side),
    model = "test::main"
)]
#[derive(Clone, Default)]
struct Salon {
    memory: MemoryPolicy,
}

impl Flow for Salon {
    fn config_memory(&self) -> MemoryPolicy {
        self.memory.clone()
    }

    fn config_call_policy(&self) -> CallPolicy {
        CallPolicy::default().attempts(2)
    }
}

#[step(reply, tools, memory = "talk", next(Chat, Fresh, Brief, Tail, Shared, Side, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Chat;

impl Reply for Chat {
    type Flow = Salon;

    fn instructions(&self, _: &StepCx<'_, Salon>) -> Prompt {
        "You are the chat.".into()
    }
}

#[tools]
impl Chat {
    /// Looks something up.
    #[tool]
    async fn look(&mut self, what: String) -> Result<Value> {
        Ok(json!({ "found": what }))
    }

    /// Goes to another step.
    #[tool]
    async fn go(&mut self, to: String) -> Result<ChatNext> {
        Ok(match to.as_str() {
            "chat" => ChatNext::Chat,
            "fresh" => ChatNext::Fresh,
            "brief" => ChatNext::Brief,
            "tail" => ChatNext::Tail,
            "shared" => ChatNext::Shared,
            "side" => ChatNext::Side,
            other => return Err(StepError::new(format!("there is no step {other}"))),
        })
    }
}

macro_rules! listener {
    ($(#[$attribute:meta])* $name:ident { $($also:item)* }) => {
        $(#[$attribute])*
        #[derive(Default, Serialize, Deserialize, JsonSchema)]
        struct $name;

        impl Reply for $name {
            type Flow = Salon;

            fn instructions(&self, _: &StepCx<'_, Salon>) -> Prompt {
                concat!("You are ", stringify!($name), ".").into()
            }

            $($also)*
        }
    };
}

listener! {
    #[step(reply, memory = "talk", context = reset, next(Fresh, stay))]
    Fresh {
        async fn on_response(
            &mut self,
            response: &str,
            _: &mut StepCx<'_, Salon>,
        ) -> Result<Option<FreshNext>> {
            Ok((response == "AGAIN").then_some(FreshNext::Fresh))
        }
    }
}
listener! { #[step(reply, memory = "talk", context = reset_with_summary, next(stay))] Brief {} }
listener! { #[step(reply, memory = "talk", context = last(3), next(stay))] Tail {} }
listener! { #[step(reply, memory = "talk", next(stay))] Shared {} }
listener! { #[step(reply, memory = "side", next(stay))] Side {} }

struct Room {
    engine: Engine,
    store: Arc<dyn SessionStore>,
    main: ScriptedModel,
    summary: ScriptedModel,
}

impl Room {
    fn new(memory: MemoryPolicy) -> Self {
        Self::on(Arc::new(MemoryStore::new()), memory)
    }

    fn on(store: Arc<dyn SessionStore>, memory: MemoryPolicy) -> Self {
        Self::with(store, memory, Durability::default())
    }

    fn with(store: Arc<dyn SessionStore>, memory: MemoryPolicy, durability: Durability) -> Self {
        let (main, summary) = (ScriptedModel::new(), ScriptedModel::new());
        let models = ModelCatalog::new()
            .model("test::main", main.clone())
            .model("test::summary", summary.clone());
        let engine = Engine::builder()
            .shared_store(store.clone())
            .flow(Salon { memory })
            .durability(durability)
            .models(models)
            .clock(ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap()))
            .build()
            .unwrap();
        Self { engine, store, main, summary }
    }

    /// Another process on the same store.
    fn restart(&self, memory: MemoryPolicy) -> Self {
        Self::on(self.store.clone(), memory)
    }

    /// Says something, to which the model answers the same in capitals.
    async fn say(&self, text: &str) -> TurnOutcome {
        let _ = self.main.clone().text(text.to_uppercase());
        self.turn(text).await.unwrap()
    }

    async fn say_all(&self, texts: &[&str]) {
        for text in texts {
            self.say(text).await;
        }
    }

    /// Says something that makes the chat go to another step, which answers in capitals.
    async fn go(&self, to: &str, text: &str) -> TurnOutcome {
        let _ = self.main.clone().tool_call("go", json!({ "to": to }));
        self.say(text).await
    }

    async fn turn(&self, text: &str) -> Result<TurnOutcome, flow_core::Error> {
        self.engine.turn::<Salon>(TurnRequest::new(session()).message(text)).await
    }

    /// The events of the memory in a turn.
    async fn events(&self, text: &str) -> Vec<Event> {
        let mut turn = self.engine.turn::<Salon>(TurnRequest::new(session()).message(text));
        let mut events = Vec::new();
        while let Some(event) = turn.next_event().await {
            if event.name().starts_with("memory-") {
                events.push(event);
            }
        }
        turn.await.unwrap();
        events
    }

    async fn doc(&self) -> SessionDoc {
        self.engine.session(session()).load().await.unwrap()
    }

    async fn transcript(&self) -> Transcript {
        self.engine.session(session()).transcript().await.unwrap()
    }

    /// What the model was asked last.
    fn asked(&self) -> String {
        show(self.main.requests().last().expect("a request"))
    }
}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

/// Summaries by a model of their own.
fn summaries(least: usize, recent: usize) -> MemoryPolicy {
    let model: ModelSelection = "test::summary".parse().unwrap();
    let policy = SummaryPolicy::default().min_messages(least).keep_recent(recent).model(model);
    MemoryPolicy::default().summary(policy)
}

/// A request as text: the system prompt, and a paragraph for each message.
fn show(request: &ChatRequest) -> String {
    let mut out = format!("[system] {}", request.system.as_deref().unwrap_or("-"));
    for message in &request.messages {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            _ => "tool",
        };
        let parts = message.parts.iter().map(|part| match part {
            Part::Text { text } => text.clone(),
            Part::ToolCall(call) => format!("{} {}({})", call.id, call.name, call.arguments),
            Part::ToolResult(result) => format!("{} = {}", result.id, result.content),
            other => panic!("{other:?}"),
        });
        out.push_str(&format!("\n[{role}] {}", parts.collect::<Vec<_>>().join("\n     + ")));
    }
    out
}
