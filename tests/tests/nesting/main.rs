//! Steps within steps: one after the other, and side by side.

mod branches;
mod models;
mod steps;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use flow_core::engine::{Delivery, Durability};
use flow_core::message::Part;
use flow_core::prelude::*;
use flow_core::session::Interrupt;
use flow_core::step::BranchKey;
use flow_core::store::memory::MemoryStore;
use flow_core::testing::ManualClock;
use flow_core::time::Timestamp;
use flow_core::{Engine, Error, Limits, TurnOutcome, TurnRequest};
use tokio::sync::{Barrier, Notify};

const DURABILITIES: [Durability; 3] = [Durability::Crossing, Durability::Turn, Durability::Effect];

/// What an action does, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Word {
    /// Writes to the step's field and says it.
    Note(String),
    /// Adds to a number of the shared state.
    Add(i64),
    /// Appends to a list of the shared state.
    Log(String),
    /// Writes a field of the shared state that has no reducer.
    Name(String),
    /// Calls a tool.
    Charge(u32),
    /// Waits for approval.
    Approve(String),
    /// Sleeps for seconds.
    Sleep(u64),
    /// Fails, as long as the flow does.
    Fail(String),
    /// Goes on when as many have come here as the barrier takes.
    Gather,
    /// Does an effect that is over when it is told so.
    Hold(String),
    /// Says which step runs, and which the session stands at.
    Where,
    /// Runs a step that does this.
    Step(Vec<Word>),
    /// Runs steps side by side that do this, and says what came of them.
    Steps(Vec<Vec<Word>>),
    /// Does this, and says the code of its error.
    Try(Vec<Word>),
    /// Runs a step that fills a form.
    Form,
    /// Runs a step that asks yes or no.
    Sure,
    /// Runs steps side by side that ask the user.
    Forms,
}

use Word::*;

fn note(text: &str) -> Word {
    Note(text.to_owned())
}

fn log(text: &str) -> Word {
    Log(text.to_owned())
}

/// A flow whose actions do what they are told.
#[flow(id = "nest", steps(Outer, Inner, Form, Sure), state = Shared, tools)]
#[derive(Clone)]
struct Nest {
    /// What the tool and the effects have really done, in order.
    done: Arc<Mutex<Vec<String>>>,
    fails: bool,
    policy: FailurePolicy,
    limit: usize,
    barrier: Arc<Barrier>,
    gates: Arc<Mutex<BTreeMap<String, Arc<Notify>>>>,
    /// How many effects that hold run now, and at most at once.
    holding: Arc<Mutex<(usize, usize)>>,
    reduces: bool,
}

impl Default for Nest {
    fn default() -> Self {
        Self {
            done: Arc::default(),
            fails: true,
            policy: FailurePolicy::All,
            limit: 8,
            barrier: Arc::new(Barrier::new(1)),
            gates: Arc::default(),
            holding: Arc::default(),
            reduces: true,
        }
    }
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Shared {
    total: i64,
    log: Vec<String>,
    name: Option<String>,
}

impl Flow for Nest {
    fn config_reducers(&self) -> Reducers {
        if self.reduces { Reducers::new().sum("total").append("log") } else { Reducers::new() }
    }
}

impl Nest {
    fn gate(&self, name: &str) -> Arc<Notify> {
        self.gates.lock().unwrap().entry(name.to_owned()).or_default().clone()
    }

    async fn hold(&self, name: &str) {
        {
            let mut holding = self.holding.lock().unwrap();
            holding.0 += 1;
            holding.1 = holding.1.max(holding.0);
        }
        self.gate(&format!("{name} holds")).notify_one();
        self.gate(name).notified().await;
        self.holding.lock().unwrap().0 -= 1;
        self.done.lock().unwrap().push(format!("held {name}"));
    }
}

#[tools(flow)]
impl Nest {
    /// Charges some cents and returns a receipt.
    #[tool]
    async fn charge(&self, cx: &ToolCx, cents: u32) -> Result<String> {
        self.done.lock().unwrap().push(format!("charge {cents} {}", cx.idempotency_key()));
        Ok(format!("receipt for {cents}"))
    }
}

/// Does what the message says.
#[step(action, next(stay, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Outer {
    notes: Vec<String>,
}

impl Action for Outer {
    type Flow = Nest;

    async fn run(&mut self, cx: &mut ActionCx<'_, Nest>) -> Result<OuterNext> {
        let Some(message) = cx.take_message() else { return Ok(OuterNext::Stay) };
        let words: Vec<Word> = serde_json::from_str(&message)?;
        play(&words, &mut self.notes, cx).await?;
        Ok(OuterNext::End("done".into()))
    }
}

/// Does what its input says.
#[step(action, input = Vec<Word>, next(end))]
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Inner {
    words: Vec<Word>,
    notes: Vec<String>,
}

impl Action for Inner {
    type Flow = Nest;

    async fn on_enter(&mut self, words: Vec<Word>, _: &mut StepCx<'_, Nest>) -> Result<()> {
        self.words = words;
        Ok(())
    }

    async fn run(&mut self, cx: &mut ActionCx<'_, Nest>) -> Result<InnerNext> {
        let words = self.words.clone();
        play(&words, &mut self.notes, cx).await?;
        Ok(InnerNext::End("done".into()))
    }
}

/// Asks for a city and a number of guests.
#[step(collect, next(end))]
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Form {
    /// Which city?
    #[slot(one_of("Hamburg", "Lisbon"))]
    city: Option<String>,
    /// How many guests?
    #[slot(range(1, 8))]
    guests: Option<u8>,
}

impl Collect for Form {
    type Flow = Nest;

    fn extracts(&self) -> bool {
        false
    }

    async fn complete(&mut self, _: FormData, cx: &mut StepCx<'_, Nest>) -> Result<FormNext> {
        cx.state.log.push("form".into());
        Ok(FormNext::End("complete".into()))
    }
}

/// Asks yes or no.
#[step(decide, confirm, next(end))]
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Sure {
    yes: Option<bool>,
}

impl Confirm for Sure {
    type Flow = Nest;

    fn question(&self, _: &StepCx<'_, Nest>) -> String {
        "Are you sure?".into()
    }

    async fn confirmed(&mut self, yes: bool, _: &mut StepCx<'_, Nest>) -> Result<SureNext> {
        self.yes = Some(yes);
        Ok(SureNext::End("answered".into()))
    }
}

type Playing<'a> = std::pin::Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

fn play<'a>(
    words: &'a [Word],
    notes: &'a mut Vec<String>,
    cx: &'a mut ActionCx<'_, Nest>,
) -> Playing<'a> {
    Box::pin(async move {
        for word in words {
            match word {
                Note(text) => {
                    notes.push(text.clone());
                    cx.say(text.clone());
                }
                Add(number) => cx.state.total += number,
                Log(text) => cx.state.log.push(text.clone()),
                Name(text) => cx.state.name = Some(text.clone()),
                Charge(cents) => {
                    let receipt = cx.tool(self::Charge { cents: *cents }).await?;
                    cx.say(receipt);
                }
                Approve(title) => {
                    let approved = cx.approve(title.as_str()).await?;
                    cx.say(format!("{title}: yes by {}", approved.by.unwrap_or_default()));
                }
                Sleep(seconds) => cx.sleep(std::time::Duration::from_secs(*seconds)).await?,
                Fail(text) if cx.flow.fails => return Err(StepError::new(text.clone())),
                Fail(_) => {}
                Gather => {
                    let barrier = cx.flow.barrier.clone();
                    cx.run("gather", || async move {
                        barrier.wait().await;
                        Ok::<_, StepError>(())
                    })
                    .await?;
                }
                Hold(name) => {
                    let flow = cx.flow.clone();
                    cx.run("hold", || async move {
                        flow.hold(name).await;
                        Ok::<_, StepError>(())
                    })
                    .await?;
                }
                Where => {
                    let text = format!("{} at {}", cx.step(), cx.current_step());
                    cx.say(text);
                }
                Step(words) => {
                    let inner: Inner = cx.run_step(words.clone()).await?;
                    notes.extend(inner.notes);
                }
                Steps(scripts) => {
                    let mut branches =
                        Branches::new().limit(cx.flow.limit).on_failure(cx.flow.policy);
                    let keys: Vec<BranchKey<Inner>> =
                        scripts.iter().map(|words| branches.add(words.clone())).collect();
                    let mut results = cx.run_steps(branches).await?;
                    for key in keys {
                        notes.push(match results.take(key) {
                            Ok(inner) => format!("{}: {}", key.index(), inner.notes.join(",")),
                            Err(error) => format!("{}: {}", key.index(), error.code()),
                        });
                    }
                }
                Try(words) => {
                    if let Err(error) = play(words, notes, cx).await {
                        cx.say(format!("caught {}", error.code()));
                    }
                }
                Form => {
                    let form: self::Form = cx.run_step(()).await?;
                    notes.push(format!("{form:?}"));
                }
                Sure => {
                    let sure: self::Sure = cx.run_step(()).await?;
                    notes.push(format!("{sure:?}"));
                }
                Forms => {
                    let mut branches = Branches::new();
                    branches.add::<self::Form>(());
                    cx.run_steps(branches).await?;
                }
            }
        }
        Ok(())
    })
}

/// An engine over a memory store, with one session.
struct Setup {
    engine: Engine,
    flow: Nest,
    clock: ManualClock,
}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

fn setup_with(durability: Durability, flow: Nest) -> Setup {
    let clock = ManualClock::at(Timestamp::now().after(std::time::Duration::from_secs(3600)));
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .flow(flow.clone())
        .durability(durability)
        .limits(Limits::default().step_depth(3).branches(40))
        .clock(clock.clone())
        .build()
        .unwrap();
    Setup { engine, flow, clock }
}

fn setup(durability: Durability) -> Setup {
    setup_with(durability, Nest::default())
}

impl Setup {
    fn request(words: &[Word]) -> TurnRequest {
        TurnRequest::new(session()).message(serde_json::to_string(words).unwrap())
    }

    async fn play(&self, words: &[Word]) -> Result<TurnOutcome, Error> {
        self.engine.turn::<Nest>(Self::request(words)).await
    }

    async fn say(&self, text: &str) -> TurnOutcome {
        self.engine.turn::<Nest>(TurnRequest::new(session()).message(text)).await.unwrap()
    }

    async fn approve(&self, outcome: &TurnOutcome, title: &str) -> TurnOutcome {
        let yes = Delivery::approve(request(outcome, title).request_id.clone()).by("ada");
        self.engine.deliver(session(), yes).await.unwrap()
    }

    async fn doc(&self) -> SessionDoc {
        self.engine.session(session()).load().await.unwrap()
    }

    async fn state(&self) -> Shared {
        serde_json::from_value(self.doc().await.state).unwrap()
    }

    async fn notes(&self) -> Vec<String> {
        let fields = self.doc().await.steps["Outer"].clone();
        serde_json::from_value::<Outer>(fields).unwrap().notes
    }

    /// What was really done so far.
    fn done(&self) -> Vec<String> {
        self.flow.done.lock().unwrap().clone()
    }
}

fn request<'a>(outcome: &'a TurnOutcome, title: &str) -> &'a Interrupt {
    let mut interrupts = outcome.interrupts().iter();
    interrupts.find(|interrupt| interrupt.display.title == title).unwrap()
}

/// All that the assistant has said, in order.
async fn said(setup: &Setup) -> Vec<String> {
    let transcript = setup.engine.session(session()).transcript().await.unwrap();
    let messages = transcript.messages();
    let said = messages.iter().filter(|m| m.role == flow_core::message::Role::Assistant);
    said.flat_map(|message| &message.parts)
        .filter_map(|part| match part {
            Part::Text { text } => Some(text.clone()),
            _ => None,
        })
        .collect()
}
