//! Conversations that go from one flow to another in one session, and come back.

mod crashes;
mod digressions;
mod escalations;
mod guards;
mod mongodb;
mod moves;

use std::sync::{Arc, Mutex};

use flow_core::engine::{Durability, EngineBuilder, Limits};
use flow_core::error::Error;
use flow_core::event::Event;
use flow_core::message::{Part, Role};
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{ChatResponse, ModelCatalog, TokenUsage};
use flow_core::prelude::*;
use flow_core::store::SessionStore;
use flow_core::store::memory::MemoryStore;
use flow_core::testing::ManualClock;
use flow_core::time::Timestamp;
use flow_core::{Engine, TurnOutcome, TurnRequest};

/// What was really done, in order. Clones share it.
#[derive(Debug, Clone, Default)]
struct Done(Arc<Mutex<Vec<String>>>);

impl Done {
    fn push(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// What is handed from flow to flow.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Ticket {
    topic: String,
    /// Words that are still to be followed.
    plan: Vec<String>,
}

/// What a step does with the next word.
enum Word {
    Form,
    Talk,
    Stay,
    End(String),
    To(HandOff),
    Escalate(String),
}

/// Flows of one shape. Their first step greets, then does what the message or the plan says,
/// word by word.
///
/// | word | what it does |
/// | --- | --- |
/// | `say:x` | says `x` |
/// | `charge:n` | calls the tool `charge` |
/// | `approve`, `reply` | waits for an approval; for the user's message |
/// | `form` | goes to a form that asks for an order |
/// | `again` | goes to itself |
/// | `desk`, `billing`, `faq` | hands the rest of the words to that flow, with its topic |
/// | `lost`, `other` | hands off to a flow that is not there; whose state is another |
/// | `end`, `escalate` | ends, escalates |
macro_rules! flow {
    ($module:ident, $flow:ident, $id:tt, $version:tt) => {
        mod $module {
            use super::*;

            #[flow(id = $id, version = $version, steps(Talk, Form), state = Ticket, tools)]
            #[derive(Clone, Default)]
            pub(super) struct $flow {
                pub(super) done: Done,
                pub(super) memory: MemoryPolicy,
                /// Whether a session that has ended starts anew with the next turn.
                pub(super) again: bool,
            }

            impl Flow for $flow {
                fn config_memory(&self) -> MemoryPolicy {
                    self.memory.clone()
                }

                async fn init(&mut self, cx: &mut InitCx<'_>) -> Result<()> {
                    if cx.context("broken").is_some_and(|flow| flow == $id) {
                        return Err(StepError::new("init fails as told"));
                    }
                    Ok(())
                }

                fn migrations() -> Migrations {
                    (1..$version).fold(Migrations::new(), |chain, version| {
                        chain.from(version, |doc| {
                            doc.map_state(|mut state| {
                                state["topic"] = "migrated".into();
                                Ok(state)
                            })
                        })
                    })
                }

                async fn on_restore_session_doc(&self, doc: SessionDoc) -> Result<Restore> {
                    Ok(match &doc.ended {
                        Some(_) if self.again => Restore::fresh("it had ended"),
                        _ => Restore::keep(doc),
                    })
                }
            }

            #[tools(flow)]
            impl $flow {
                /// Charges some cents and returns a receipt.
                #[tool]
                async fn charge(&self, cx: &ToolCx, cents: u32) -> Result<String> {
                    self.done.push(format!("charge {cents} {}", cx.idempotency_key()));
                    Ok(format!("receipt for {cents}"))
                }
            }

            /// Does what the words say.
            #[step(action, next(Form, Talk, stay, end, hand_off, escalate))]
            #[derive(Default, Serialize, Deserialize, JsonSchema)]
            pub(super) struct Talk {
                entered: u32,
            }

            impl Action for Talk {
                type Flow = $flow;

                async fn run(&mut self, cx: &mut ActionCx<'_, $flow>) -> Result<TalkNext> {
                    if let Some(message) = cx.take_message() {
                        cx.state.plan = message.split_whitespace().map(str::to_owned).collect();
                    }
                    Ok(match follow(cx).await? {
                        Word::Form => TalkNext::Form,
                        Word::Talk => TalkNext::Talk,
                        Word::Stay => TalkNext::Stay,
                        Word::End(reason) => TalkNext::End(reason),
                        Word::To(to) => TalkNext::HandOff(to),
                        Word::Escalate(reason) => TalkNext::Escalate(reason),
                    })
                }

                async fn on_start(&mut self, cx: &mut StepCx<'_, $flow>) -> Result<()> {
                    let text = format!("This is {} ({}).", $id, cx.state.topic);
                    cx.flow.done.push(format!("{} starts", $id));
                    cx.say(text);
                    Ok(())
                }

                async fn on_enter(&mut self, (): (), _: &mut StepCx<'_, $flow>) -> Result<()> {
                    self.entered += 1;
                    Ok(())
                }
            }

            async fn follow(cx: &mut ActionCx<'_, $flow>) -> Result<Word> {
                loop {
                    let plan = &mut cx.state.plan;
                    let word = if plan.is_empty() { ".".to_owned() } else { plan.remove(0) };
                    let (word, rest) = word.split_once(':').unwrap_or((&word, ""));
                    let mut ticket = || Ticket {
                        topic: format!("from {}", $id),
                        plan: std::mem::take(&mut cx.state.plan),
                    };
                    match word {
                        "say" => cx.say(rest),
                        "charge" => {
                            let receipt = cx.tool(Charge { cents: rest.parse()? }).await?;
                            cx.say(receipt);
                        }
                        "approve" => {
                            let decision = cx.approve("may I?").decision().await?;
                            cx.say(format!("approved: {}", decision.is_approved()));
                        }
                        "fail" => return Err(StepError::new("as told")),
                        "form" => return Ok(Word::Form),
                        "again" => return Ok(Word::Talk),
                        "desk" => return Ok(Word::To(HandOff::to::<Desk>(ticket()))),
                        "billing" => return Ok(Word::To(HandOff::to::<Billing>(ticket()))),
                        "faq" => return Ok(Word::To(HandOff::to::<Faq>(ticket()))),
                        "lost" => return Ok(Word::To("nowhere".into())),
                        "other" => {
                            let state = other::Amount { cents: 7 };
                            return Ok(Word::To(HandOff::to::<other::Billing>(state)));
                        }
                        "advisor" => return Ok(Word::To("advisor".into())),
                        "end" => return Ok(Word::End(format!("{} is done", $id))),
                        "escalate" => return Ok(Word::Escalate("the secret reason".into())),
                        _ => return Ok(Word::Stay),
                    }
                }
            }

            /// Asks for an order.
            #[step(collect, next(Talk, end))]
            #[derive(Default, Serialize, Deserialize, JsonSchema)]
            pub(super) struct Form {
                #[slot(pattern("#(\\d+)"), ask = "Which order?")]
                order: Option<String>,
            }

            impl Collect for Form {
                type Flow = $flow;

                async fn complete(
                    &mut self,
                    data: FormData,
                    cx: &mut StepCx<'_, $flow>,
                ) -> Result<FormNext> {
                    cx.say(format!("Order {}.", data.order));
                    cx.take_message();
                    if cx.state.topic == "close" {
                        return Ok(FormNext::End("ordered".into()));
                    }
                    Ok(FormNext::Talk)
                }
            }
        }
    };
}

flow!(desk, Desk, "desk", 1);
flow!(billing, Billing, "billing", 1);
flow!(faq, Faq, "faq", 1);
flow!(desk2, Desk2, "desk", 2);

use billing::Billing;
use desk::Desk;
use faq::Faq;

/// A flow with the id of another one, as another program has it.
mod other {
    use super::*;

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(super) struct Amount {
        pub(super) cents: u32,
    }

    #[flow(id = "billing", version = 1, steps(Bill), state = Amount)]
    #[derive(Clone)]
    pub(super) struct Billing;

    impl Flow for Billing {}

    #[step(reply, next(stay))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(super) struct Bill;

    impl Reply for Bill {
        type Flow = Billing;
    }
}

/// A flow that speaks through a model.
#[flow(id = "advisor", version = 1, steps(Advise), model = "test::main")]
#[derive(Clone, Default)]
struct Advisor;

impl Flow for Advisor {}

#[step(reply, next(stay, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Advise;

impl Reply for Advise {
    type Flow = Advisor;

    fn instructions(&self, _: &StepCx<'_, Advisor>) -> Prompt {
        "You advise.".into()
    }

    async fn on_response(
        &mut self,
        response: &str,
        _: &mut StepCx<'_, Advisor>,
    ) -> Result<Option<AdviseNext>> {
        Ok(response.contains("Bye").then(|| AdviseNext::End("advised".into())))
    }
}

/// The answers of a model, each of which costs 7 and 5 tokens.
fn answers(texts: &[&str]) -> ScriptedModel {
    texts.iter().fold(ScriptedModel::new(), |model, text| {
        let response = ChatResponse::new(vec![Part::text(*text)]).usage(TokenUsage::new(7, 5));
        model.response(response)
    })
}

/// One session on a store that outlives its engines.
struct Setup {
    store: Arc<dyn SessionStore>,
    clock: ManualClock,
    done: Done,
    engine: Engine,
}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

fn clock() -> ManualClock {
    ManualClock::at(Timestamp::now())
}

fn builder(store: &Arc<dyn SessionStore>, clock: &ManualClock, done: &Done) -> EngineBuilder {
    Engine::builder()
        .shared_store(store.clone())
        .clock(clock.clone())
        .flow(Desk { done: done.clone(), ..Desk::default() })
        .flow(Billing { done: done.clone(), ..Billing::default() })
        .flow(Faq { done: done.clone(), ..Faq::default() })
}

fn setup() -> Setup {
    setup_with(|builder| builder)
}

fn setup_with(change: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Setup {
    setup_on(Arc::new(MemoryStore::new()), change)
}

fn setup_on(
    store: Arc<dyn SessionStore>,
    change: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Setup {
    let (clock, done) = (clock(), Done::default());
    let engine = change(builder(&store, &clock, &done)).build().unwrap();
    Setup { store, clock, done, engine }
}

fn request(text: &str) -> TurnRequest {
    TurnRequest::new(session()).message(text)
}

impl Setup {
    async fn say(&self, text: &str) -> Result<TurnOutcome, Error> {
        self.engine.turn::<Desk>(request(text)).await
    }

    async fn digress(&self, text: &str, to: impl Into<HandOff>) -> Result<TurnOutcome, Error> {
        self.engine.turn::<Desk>(request(text).digress(to)).await
    }

    async fn doc(&self) -> SessionDoc {
        self.engine.session(session()).load().await.unwrap()
    }

    /// The document that was put aside as the `n`th one.
    async fn aside(&self, n: u32) -> Option<SessionDoc> {
        let id = serde_json::from_value(serde_json::json!(format!("s~{n}"))).unwrap();
        self.store.load(&id).await.unwrap()
    }

    /// Who said what, in order.
    async fn transcript(&self) -> Vec<String> {
        let transcript = self.engine.session(session()).transcript().await.unwrap();
        let shown = |message: &flow_core::message::Message| {
            let who = if message.role == Role::User { "user" } else { "flow" };
            format!("{who}: {}", message.to_text())
        };
        transcript.messages().into_iter().map(shown).collect()
    }

    /// The names of the events of a turn, and how it went.
    async fn events(&self, request: TurnRequest) -> (Vec<Event>, Result<TurnOutcome, Error>) {
        let mut turn = self.engine.turn::<Desk>(request);
        let mut events = Vec::new();
        while let Some(event) = turn.next_event().await {
            events.push(event);
        }
        (events, turn.await)
    }
}

fn names(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::name).collect()
}
