//! Flows that are called by actions of other flows.

mod conversations;
#[allow(clippy::print_stdout, reason = "a case that fails prints how to run it again")]
mod crashes;
mod failures;
mod sessions;
mod time_travel;
mod waits;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use flow_core::engine::{Durability, Limits};
use flow_core::error::Error;
use flow_core::event::Event;
use flow_core::message::{Part, Role};
use flow_core::model::ModelCatalog;
use flow_core::model::scripted::ScriptedModel;
use flow_core::prelude::*;
use flow_core::session::{Interrupt, SessionDoc, Waiting};
use flow_core::step::Branches;
use flow_core::store::SessionStore;
use flow_core::store::memory::MemoryStore;
use flow_core::testing::ManualClock;
use flow_core::{Engine, TurnOutcome, TurnRequest};
use tokio::sync::Notify;

const DURABILITIES: [Durability; 3] = [Durability::Crossing, Durability::Turn, Durability::Effect];

/// What the flows share with the test.
#[derive(Debug, Clone, Default)]
struct World {
    /// The charges that were really made, with their idempotency keys.
    charges: Arc<Mutex<Vec<String>>>,
    /// Whether what fails works from now on.
    works: Arc<AtomicBool>,
    /// How often `flaky` was run.
    attempts: Arc<AtomicU32>,
    /// `stall` has begun.
    stalled: Arc<Notify>,
}

impl World {
    fn works(&self) -> bool {
        self.works.load(Ordering::Relaxed)
    }

    fn repair(&self) {
        self.works.store(true, Ordering::Relaxed);
    }

    fn take_charges(&self) -> Vec<String> {
        std::mem::take(&mut self.charges.lock().unwrap())
    }
}

/// A flow whose action does what the words of its state say, or those of the message where the
/// state has none.
///
/// | word | what it does |
/// | --- | --- |
/// | `call[..]` | calls this flow with the words in the brackets |
/// | `try[..]` | as `call`, and says the code of the error if it fails |
/// | `table` | calls `Table`, which asks two questions |
/// | `talk` | calls `Talk`, which speaks through a model |
/// | `missing` | calls a flow that is not registered |
/// | `step[..]`, `steps[..\|..]` | runs a step within the action that does so, several side by side |
/// | `dive` | calls this flow with the word `dive` |
/// | `again` | enters the step anew, without words |
/// | `charge:n`, `say:x` | calls a tool, says something |
/// | `approve`, `both`, `sleep:n`, `signal` | waits for one or two of these |
/// | `escalate`, `fail`, `break` | does so unless the world works |
/// | `stall` | never comes back unless the world works |
#[flow(id = "script", steps(Act, Inner), state = Shared, tools)]
#[derive(Clone, Default)]
struct Script {
    world: World,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Shared {
    words: String,
    results: Vec<String>,
}

impl Flow for Script {}

#[tools(flow)]
impl Script {
    /// Charges some cents and returns a receipt.
    #[tool]
    async fn charge(&self, cx: &ToolCx, cents: u32) -> Result<String> {
        let made = format!("{cents} {}", cx.idempotency_key());
        self.world.charges.lock().unwrap().push(made);
        Ok(format!("receipt for {cents}"))
    }
}

#[step(action, next(Act, stay, end, escalate))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Act;

/// The words of a script; brackets belong to one word.
fn split(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut depth = 0;
    for letter in text.chars() {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        match letter {
            ' ' if depth == 0 => words.push(String::new()),
            letter => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

impl Action for Act {
    type Flow = Script;

    async fn run(&mut self, cx: &mut ActionCx<'_, Script>) -> Result<ActNext> {
        let called = !cx.state.words.is_empty();
        let said = cx.take_message().unwrap_or_default();
        let text = if called { cx.state.words.clone() } else { said };
        let mut results = Vec::new();
        match play(&text, cx, &mut results).await? {
            Some(word) if word == "again" => return Ok(ActNext::Act),
            Some(reason) => return Ok(ActNext::Escalate(reason)),
            None => {}
        }
        cx.state.results.extend(results);
        if called { Ok(ActNext::End("done".into())) } else { Ok(ActNext::Stay) }
    }
}

/// A step within the action, which does what its words say.
#[step(action, input = String, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Inner {
    words: String,
    results: Vec<String>,
}

impl Action for Inner {
    type Flow = Script;

    async fn on_enter(&mut self, words: String, _: &mut StepCx<'_, Script>) -> Result<()> {
        self.words = words;
        Ok(())
    }

    async fn run(&mut self, cx: &mut ActionCx<'_, Script>) -> Result<InnerNext> {
        let words = self.words.clone();
        play(&words, cx, &mut self.results).await?;
        Ok(InnerNext::End("done".into()))
    }
}

type Playing<'a> = Pin<Box<dyn Future<Output = Result<Option<String>>> + Send + 'a>>;

/// Does what the words say. Comes back early with `again`, or with a reason to escalate.
fn play<'a>(
    text: &'a str,
    cx: &'a mut ActionCx<'_, Script>,
    results: &'a mut Vec<String>,
) -> Playing<'a> {
    Box::pin(async move {
        for word in split(text) {
            let (name, rest) = word.split_once(['[', ':']).unwrap_or((&word, ""));

            let inner = || Shared { words: inner_words(&word), results: Vec::new() };
            match name {
                "call" => {
                    let done = Box::pin(cx.call_flow::<Script>(inner())).await?;
                    cx.say(format!("{}: {}", done.reason, done.state.results.join(", ")));
                    results.extend(done.state.results);
                }
                "try" => match Box::pin(cx.call_flow::<Script>(inner())).await {
                    Ok(done) => cx.say(format!("{} after all", done.reason)),
                    Err(error) => cx.say(format!("went without it: {}", error.code())),
                },
                "step" => {
                    let inner: Inner = cx.run_step(inner_words(&word)).await?;
                    results.extend(inner.results);
                }
                "steps" => {
                    let mut branches = Branches::new();
                    let words = inner_words(&word);
                    let keys: Vec<_> = words
                        .split('|')
                        .map(|words| branches.add::<Inner>(words.to_owned()))
                        .collect();
                    let mut ended = cx.run_steps(branches).await?;
                    for key in keys {
                        results.extend(ended.take(key)?.results);
                    }
                    cx.say(results.join(", "));
                }
                "dive" => {
                    let again = Shared { words: "dive".into(), results: Vec::new() };
                    Box::pin(cx.call_flow::<Script>(again)).await?;
                }
                "table" => {
                    let order = Order { name: "Ada".into(), ..Order::default() };
                    let done = cx.call_flow::<Table>(order).await?;
                    let Order { guests, time, .. } = done.state;
                    cx.say(format!("{}: {guests} at {time}", done.reason));
                    results.push(format!("table for {guests}"));
                }
                "talk" => {
                    let done = cx.call_flow::<Talk>(()).await?;
                    cx.say(done.reason);
                }
                "missing" => {
                    cx.call_flow::<Missing>(()).await?;
                }
                "charge" => {
                    let receipt = cx.tool(Charge { cents: rest.parse()? }).await?;
                    results.push(receipt);
                }
                "again" => return Ok(Some(word)),
                "say" => cx.say(rest),
                "approve" => {
                    let by = cx.approve("may I?").await?.by;
                    results.push(format!("approved by {}", by.unwrap_or_default()));
                }
                "both" => {
                    let (first, second) = futures_util::join!(
                        cx.approve("first").decision(),
                        cx.approve("second").decision(),
                    );
                    let decided = (first?.is_approved(), second?.is_approved());
                    results.push(format!("{decided:?}"));
                }
                "sleep" => cx.sleep(std::time::Duration::from_secs(rest.parse()?)).await?,
                "signal" => {
                    let paid: u32 = cx.signal("paid").await?;
                    results.push(format!("paid {paid}"));
                }
                "escalate" if !cx.flow.world.works() => {
                    return Ok(Some("a person has to look".into()));
                }
                "fail" if !cx.flow.world.works() => {
                    cx.flow.world.attempts.fetch_add(1, Ordering::Relaxed);
                    return Err(StepError::new("as told"));
                }
                "break" if !cx.flow.world.works() => {
                    return Err(StepError::terminal("as told"));
                }
                "stall" if !cx.flow.world.works() => {
                    cx.flow.world.stalled.notify_one();
                    std::future::pending::<()>().await;
                }
                _ => {}
            }
        }
        Ok(None)
    })
}

fn inner_words(word: &str) -> String {
    let inner = word.split_once('[').map_or("", |(_, inner)| inner);
    inner.strip_suffix(']').unwrap_or(inner).to_owned()
}

/// Takes a reservation.
#[flow(id = "table", steps(Reserve, Thank), state = Order)]
#[derive(Clone)]
struct Table;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Order {
    name: String,
    guests: u32,
    time: String,
}

impl Flow for Table {}

#[step(collect, next(Thank))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Reserve {
    #[slot(range(1, 8), ask = "For how many?")]
    guests: Option<u32>,
    #[slot(one_of("noon", "evening"), ask = "At noon or in the evening?")]
    time: Option<String>,
}

impl Collect for Reserve {
    type Flow = Table;

    async fn complete(
        &mut self,
        data: ReserveData,
        cx: &mut StepCx<'_, Table>,
    ) -> Result<ReserveNext> {
        cx.state.guests = data.guests;
        cx.state.time = data.time;
        Ok(ReserveNext::Thank)
    }
}

#[step(action, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Thank;

impl Action for Thank {
    type Flow = Table;

    async fn run(&mut self, cx: &mut ActionCx<'_, Table>) -> Result<ThankNext> {
        let name = cx.state.name.clone();
        cx.say(format!("Thank you, {name}."));
        Ok(ThankNext::End("reserved".into()))
    }
}

/// Talks until the model says goodbye.
#[flow(id = "talk", steps(Chat), model = "test::main")]
#[derive(Clone)]
struct Talk;

impl Flow for Talk {}

#[step(reply, next(stay, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Chat;

impl Reply for Chat {
    type Flow = Talk;

    async fn on_response(
        &mut self,
        response: &str,
        _: &mut StepCx<'_, Talk>,
    ) -> Result<Option<ChatNext>> {
        Ok(response.contains("Goodbye").then(|| ChatNext::End("talked".into())))
    }
}

/// Not registered.
#[flow(id = "missing", steps(Nothing))]
#[derive(Clone)]
struct Missing;

impl Flow for Missing {}

#[step(action, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Nothing;

impl Action for Nothing {
    type Flow = Missing;

    async fn run(&mut self, _: &mut ActionCx<'_, Missing>) -> Result<NothingNext> {
        Ok(NothingNext::End("nothing".into()))
    }
}

/// One session of the script on a store that outlives its engines.
struct Setup {
    store: Arc<dyn SessionStore>,
    clock: ManualClock,
    world: World,
    engine: Engine,
}

fn session() -> SessionId {
    SessionId::new("s").expect("a valid id")
}

fn setup() -> Setup {
    setup_on(Arc::new(MemoryStore::new()), Durability::Crossing, ScriptedModel::new())
}

fn setup_on(store: Arc<dyn SessionStore>, durability: Durability, model: ScriptedModel) -> Setup {
    // Stores have a clock of their own, which is not ahead of this one.
    let hour = std::time::Duration::from_secs(3600);
    let clock = ManualClock::at(flow_core::time::Timestamp::now().after(hour));
    let world = World::default();
    let engine = Engine::builder()
        .shared_store(store.clone())
        .clock(clock.clone())
        .durability(durability)
        .limits(Limits::default().call_depth(3))
        .models(ModelCatalog::new().model("test::main", model))
        .flow(Script { world: world.clone() })
        .flow(Table)
        .flow(Talk)
        .build()
        .expect("the flows are well declared");
    Setup { store, clock, world, engine }
}

impl Setup {
    async fn say(&self, text: &str) -> Result<TurnOutcome, Error> {
        self.engine.turn::<Script>(TurnRequest::new(session()).message(text)).await
    }

    async fn go_on(&self) -> Result<TurnOutcome, Error> {
        self.engine.turn::<Script>(TurnRequest::new(session())).await
    }

    /// A turn with its events.
    async fn listen(&self, text: &str) -> (Vec<Event>, TurnOutcome) {
        let mut turn = self.engine.turn::<Script>(TurnRequest::new(session()).message(text));
        let mut events = Vec::new();
        while let Some(event) = turn.next_event().await {
            events.push(event);
        }
        (events, turn.await.expect("the turn goes well"))
    }

    async fn doc(&self) -> SessionDoc {
        self.store.load(&session()).await.unwrap().expect("the session exists")
    }

    /// The called sessions, outermost first.
    async fn called(&self) -> Vec<SessionDoc> {
        called(&self.store).await
    }

    /// The only called session.
    async fn child(&self) -> SessionDoc {
        let mut called = self.called().await;
        assert_eq!(called.len(), 1, "{called:?}");
        called.remove(0)
    }

    async fn pending(&self) -> Vec<Interrupt> {
        pending(&self.doc().await)
    }
}

async fn called(store: &Arc<dyn SessionStore>) -> Vec<SessionDoc> {
    let mut docs = Vec::new();
    let query = flow_core::store::ListQuery::default();
    for summary in store.list(&query).await.unwrap() {
        if summary.id.as_str().contains('~') {
            docs.push(store.load(&summary.id).await.unwrap().unwrap());
        }
    }
    docs
}

fn pending(doc: &SessionDoc) -> Vec<Interrupt> {
    match &doc.waiting {
        Some(Waiting::Interrupts { pending }) => pending.clone(),
        _ => Vec::new(),
    }
}

/// The texts of a history, with who has said them.
fn history(doc: &SessionDoc) -> Vec<String> {
    let Some(memory) = doc.memory.get("main") else { return Vec::new() };
    let text = |part: &Part| match part {
        Part::Text { text } => text.clone(),
        other => format!("{other:?}"),
    };
    let line = |message: &flow_core::message::Message| {
        let who = if message.role == Role::User { "user" } else { "flow" };
        let texts: Vec<String> = message.parts.iter().map(text).collect();
        format!("{who}: {}", texts.join(" "))
    };
    memory.messages.iter().map(line).collect()
}

fn names(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::name).collect()
}
