//! Tools that are not called again, and tools that are called by each run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use flow_core::engine::Delivery;
use flow_core::error::{EffectError, Error, ToolError};
use flow_core::prelude::*;
use flow_core::session::{EffectKind, Interrupt, SessionDoc, Status, Waiting};
use flow_core::store::SessionStore;
use flow_core::store::memory::MemoryStore;
use flow_core::testing::ManualClock;
use flow_core::tool::ToolCx;
use flow_core::{Engine, TurnOutcome, TurnRequest};

use super::world::Played;
use super::{DURABILITIES, Done, Durability, Trap, session};

/// A flow with tools of all three kinds, whose action does what the message says.
///
/// | word | what it does |
/// | --- | --- |
/// | `note:x` | says `x` |
/// | `charge:n` | calls a tool that honours its key |
/// | `wire:n` | calls a tool that is not to be called again, and goes on when it is in doubt |
/// | `transfer:n` | the same, and fails when it is in doubt |
/// | `late:n` | begins a `transfer`, and waits for approval before it is made |
/// | `bounce` | calls a tool that is not to be called again, and that fails |
/// | `look` | calls a tool that is called by each run |
/// | `follow` | charges what `look` returns |
/// | `beside` | does three of them side by side |
/// | `ask`, `sleep:n`, `again`, `rest`, `end` | as in [`Script`](super::Script) |
#[flow(id = "bank", steps(Pay, Rest), tools)]
#[derive(Clone, Default)]
pub(super) struct Bank {
    done: Done,
    looks: Arc<AtomicU32>,
    /// Whether a call in doubt leads to the step `Rest`.
    gives_up: bool,
}

impl Played for Bank {
    fn done(&self) -> &Done {
        &self.done
    }
}

impl Flow for Bank {
    async fn on_error(
        &self,
        error: &StepError,
        cx: &mut StepCx<'_, Self>,
    ) -> Result<Option<Transition>> {
        if cx.flow.gives_up && error.code() == "effect-in-doubt" {
            cx.say("somebody has to look at it");
            return Ok(Some(Transition::go::<Rest>(())));
        }
        Ok(None)
    }
}

#[tools(flow)]
impl Bank {
    /// Charges through a service that honours keys.
    #[tool]
    async fn charge(&self, cx: &ToolCx, cents: u32) -> Result<()> {
        let made = format!("charge {cents} {} {}", cx.idempotency_key(), cx.is_repeated());
        self.done.make(made).await;
        Ok(())
    }

    /// Sends money through a bank that knows no keys.
    #[tool(replay = never)]
    async fn wire(&self, cx: &ToolCx, cents: u32) -> Result<u32> {
        self.done.make(format!("wire {cents} {}", cx.idempotency_key())).await;
        Ok(cents)
    }

    /// Is refused by such a bank.
    #[tool(replay = never)]
    async fn bounce(&self) -> Result<()> {
        self.done.make("bounce").await;
        Err(StepError::new("the account is closed"))
    }

    /// Looks at a price, which is another one each time.
    #[tool(replay = always)]
    async fn look(&self, cx: &ToolCx) -> u32 {
        self.done.make(format!("look {} {}", cx.idempotency_key(), cx.is_repeated())).await;
        self.looks.fetch_add(1, Ordering::Relaxed)
    }
}

#[step(action, next(Pay, Rest, stay, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Pay;

impl Action for Pay {
    type Flow = Bank;

    async fn run(&mut self, cx: &mut ActionCx<'_, Bank>) -> Result<PayNext> {
        let words = cx.take_message().unwrap_or_default();
        for word in words.split_whitespace() {
            let (word, rest) = word.split_once(':').unwrap_or((word, "0"));
            match word {
                "note" => cx.say(rest),
                "charge" => cx.tool(Charge { cents: rest.parse()? }).await?,
                "wire" => {
                    expect_doubt(cx.tool(Wire { cents: rest.parse()? }).await)?;
                    cx.say(format!("wire {rest} is over"));
                }
                "transfer" => {
                    cx.tool(Wire { cents: rest.parse()? }).await?;
                }
                "late" => {
                    let wire = cx.tool(Wire { cents: rest.parse()? });
                    cx.approve("now?").await?;
                    wire.await?;
                }
                "bounce" => cx.tool(Bounce).await?,
                "look" => drop(cx.tool(Look).await?),
                "follow" => {
                    let price = cx.tool(Look).await?;
                    cx.tool(Charge { cents: price }).await?;
                }
                "beside" => {
                    let (wire, look, charge) = futures_util::join!(
                        cx.tool(Wire { cents: 80 }),
                        cx.tool(Look),
                        cx.tool(Charge { cents: 81 }),
                    );
                    expect_doubt(wire)?;
                    look?;
                    charge?;
                }
                "ask" => {
                    let decision = cx.approve("may I?").decision().await?;
                    cx.say(format!("approved: {}", decision.is_approved()));
                }
                "sleep" => cx.sleep(std::time::Duration::from_secs(rest.parse()?)).await?,
                "again" => return Ok(PayNext::Pay),
                "rest" => return Ok(PayNext::Rest),
                "end" => return Ok(PayNext::End("done".into())),
                _ => {}
            }
        }
        Ok(PayNext::Stay)
    }

    async fn on_crossing(
        &mut self,
        crossing: flow_core::step::Crossing<'_>,
        _: &mut StepCx<'_, Bank>,
    ) -> Result<Option<String>> {
        Ok(Some(crossing.message.unwrap_or_default().replacen("again", "", 1)))
    }
}

/// Lets a call in doubt pass.
fn expect_doubt(wired: Result<u32>) -> Result<()> {
    match wired {
        Err(error) if error.code() != "effect-in-doubt" => Err(error),
        _ => Ok(()),
    }
}

#[step(action, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Rest;

impl Action for Rest {
    type Flow = Bank;

    async fn run(&mut self, _: &mut ActionCx<'_, Bank>) -> Result<RestNext> {
        Ok(RestNext::Stay)
    }
}

struct Setup {
    store: Arc<dyn SessionStore>,
    flow: Bank,
    engine: Engine,
}

fn setup(durability: Durability) -> Setup {
    setup_with(durability, Bank::default())
}

fn setup_with(durability: Durability, flow: Bank) -> Setup {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap());
    let builder = Engine::builder().shared_store(store.clone()).clock(clock);
    let engine = builder.durability(durability).flow(flow.clone()).build().unwrap();
    Setup { store, flow, engine }
}

impl Setup {
    async fn say(&self, text: &str) -> Result<TurnOutcome, Error> {
        self.engine.turn::<Bank>(TurnRequest::new(session()).message(text).turn_id(text)).await
    }

    async fn approve(&self) -> Result<TurnOutcome, Error> {
        let yes = Delivery::approve(self.request().await.request_id);
        self.engine.deliver(session(), yes).await
    }

    /// A turn that is cut off in an effect.
    async fn cut_off(&self, text: &str, after: usize, made: bool) {
        *self.flow.done.trap.lock().unwrap() = Some(Trap { after, made });
        let request = TurnRequest::new(session()).message(text).turn_id(text);
        let turn = self.engine.turn::<Bank>(request);
        self.flow.done.trapped.notified().await;
        turn.cancel();
        assert_eq!(turn.await.unwrap_err().code(), "cancelled");
    }

    async fn doc(&self) -> SessionDoc {
        self.store.load(&session()).await.unwrap().expect("the session exists")
    }

    async fn request(&self) -> Interrupt {
        match self.doc().await.waiting {
            Some(Waiting::Interrupts { pending }) => pending[0].clone(),
            other => panic!("waits for {other:?}"),
        }
    }

    fn done(&self) -> Vec<String> {
        self.flow.done.take()
    }
}

#[tokio::test]
async fn a_call_that_may_have_been_made_is_a_typed_error_until_somebody_decides() {
    for durability in DURABILITIES {
        for made in [true, false] {
            let setup = setup(durability);
            setup.cut_off("charge:1 transfer:2", 1, made).await;
            let done = setup.done();
            assert_eq!(done.len(), if made { 2 } else { 1 }, "{done:?}");
            for _ in 0..2 {
                let error = setup.say("charge:1 transfer:2").await.unwrap_err();
                let Error::Effect(EffectError::InDoubt(doubt)) = &error else {
                    panic!("{error:?}")
                };
                assert_eq!((&*doubt.session, &*doubt.step, &*doubt.tool), ("s", "Pay", "wire"));
                let digest = doubt.arguments.as_deref().unwrap();
                assert_eq!(digest.len(), 64);
                assert_eq!(doubt.key, format!("s:1:1:wire:{}", &digest[..12]));
                let facts = (error.code(), error.retryable(), error.status());
                assert_eq!(facts, ("effect-in-doubt", false, 409));
                let shown = error.to_string();
                assert!(!shown.contains("  "), "{shown}");
                for part in ["`s`", "`Pay`", "`wire`", &doubt.key, "restart_step", "abandon"] {
                    assert!(shown.contains(part), "{part}: {shown}");
                }
            }
            assert_eq!(setup.done(), [""; 0], "{durability:?}: the charge is recorded too");
            assert_eq!(setup.doc().await.status, Status::Failed);
            setup.engine.session(session()).restart_step().await.unwrap();
            setup.say("charge:1 transfer:2").await.unwrap();
            let again = setup.done();
            assert!(again[1].starts_with("wire 2 s:1:1:wire:"), "{again:?}");
        }
    }
}

#[tokio::test]
async fn the_action_may_handle_a_doubt_and_finds_it_again_in_each_run() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        setup.cut_off("wire:1 ask charge:2", 0, true).await;
        setup.say("wire:1 ask charge:2").await.unwrap();
        let outcome = setup.approve().await.unwrap();
        assert_eq!(outcome.replies, ["approved: true"], "the doubt was said before");
        let done = setup.done();
        assert_eq!(done.len(), 2, "{done:?}");
        assert!(setup.doc().await.effects.is_empty());
        // Another run is about another call.
        setup.say("wire:1").await.unwrap();
        assert!(setup.done()[0].starts_with("wire 1 s:1:3:"), "{durability:?}");
    }
}

#[tokio::test]
async fn a_message_about_something_else_does_not_put_a_doubt_aside() {
    for durability in DURABILITIES {
        for other in ["note:a", "charge:9", "transfer:3", "charge:9 transfer:2", "?"] {
            let setup = setup(durability);
            setup.cut_off("transfer:2", 0, true).await;
            setup.done();
            let error = setup.say(other).await.unwrap_err();
            let Error::Effect(EffectError::InDoubt(doubt)) = &error else { panic!("{error:?}") };
            assert!(doubt.key.starts_with("s:1:0:wire:"), "{other}: {doubt:?}");
            assert_eq!(setup.done(), [""; 0], "{other}: nothing was done");
        }
    }
}

#[tokio::test]
async fn the_flow_may_lead_out_of_a_doubt() {
    let setup = setup_with(Durability::Crossing, Bank { gives_up: true, ..Bank::default() });
    setup.cut_off("transfer:2", 0, true).await;
    setup.done();
    let outcome = setup.say("note:a").await.unwrap();
    assert_eq!(outcome.replies, ["somebody has to look at it"]);
    assert_eq!(outcome.step, "Rest");
    assert!(setup.doc().await.effects.is_empty());
    assert_eq!(setup.done(), [""; 0]);
}

#[tokio::test]
async fn a_doubt_is_found_in_a_later_visit_of_a_turn_that_commits_nothing_on_the_way() {
    let setup = setup(Durability::Turn);
    setup.cut_off("note:a again charge:1 transfer:2", 1, true).await;
    let doc = setup.doc().await;
    assert_eq!((doc.visit.number, doc.visit.entered), (2, true));
    setup.done();
    let error = setup.say("note:a again charge:1 transfer:2").await.unwrap_err();
    let Error::Effect(EffectError::InDoubt(doubt)) = &error else { panic!("{error:?}") };
    assert!(doubt.key.starts_with("s:2:1:wire:"), "{doubt:?}");
    assert_eq!(setup.done(), [""; 0], "nor is the charge made again");
}

#[tokio::test]
async fn a_call_that_was_over_is_not_in_doubt() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        setup.cut_off("transfer:1 charge:2", 1, true).await;
        setup.say("transfer:1 charge:2").await.unwrap();
        let wires = setup.done().iter().filter(|line| line.starts_with("wire")).count();
        assert_eq!(wires, 1, "{durability:?}");
    }
}

#[tokio::test]
async fn a_call_that_was_not_begun_is_not_in_doubt() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        setup.say("late:1").await.unwrap();
        assert_eq!(setup.done(), [""; 0]);
        setup.approve().await.unwrap();
        assert_eq!(setup.done().len(), 1, "{durability:?}");
    }
}

#[tokio::test]
async fn a_call_that_failed_is_not_made_again_either() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        for _ in 0..2 {
            let error = setup.say("bounce").await.unwrap_err();
            assert_eq!((error.code(), error.retryable()), ("tool-failed", false));
            assert!(error.to_string().contains("the account is closed"), "{error}");
        }
        assert_eq!(setup.done(), ["bounce"], "{durability:?}");
        // A run about something else goes on, and a later visit calls it.
        setup.say("note:a again bounce").await.unwrap_err();
        assert_eq!(setup.done(), ["bounce"]);
    }
}

#[tokio::test]
async fn a_tool_whose_result_is_to_be_fresh_is_called_by_each_run() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        setup.say("look charge:1 ask look").await.unwrap();
        let first = setup.done();
        assert!(first[0].starts_with("look s:1:0:look:"), "{first:?}");
        let looks = setup.doc().await.effects.into_values().filter(|e| e.tool == "look");
        let outcomes: Vec<_> = looks.map(|look| (look.kind, look.outcome)).collect();
        assert_eq!(outcomes, [(EffectKind::Tool, None)], "the result is not recorded");
        setup.approve().await.unwrap();
        let then = setup.done();
        assert_eq!(then[0], first[0].replace("false", "true"), "{durability:?}");
        assert!(then[1].starts_with("look s:1:3:look:"), "{then:?}");
        assert_eq!(then.len(), 2, "the charge is not made again");
    }
}

#[tokio::test]
async fn code_that_depends_on_a_fresh_result_diverges() {
    let setup = setup(Durability::Crossing);
    setup.say("follow ask").await.unwrap();
    let error = setup.approve().await.unwrap_err();
    let Error::Effect(EffectError::Diverged(divergence)) = &error else { panic!("{error:?}") };
    assert_eq!(divergence.found, "tool `charge` with other arguments");
}

/// A call of no tool that its flow declares.
#[derive(Serialize)]
struct Undeclared;

impl ToolCall<Lone> for Undeclared {
    type Output = ();
    const NAME: &'static str = "undeclared";
    const REPLAY: ToolReplay = ToolReplay::Never;

    async fn call(self, _: &Lone, _: &ToolCx) -> Result<(), ToolError> {
        panic!("it is not called")
    }
}

#[flow(id = "lone", steps(Call))]
#[derive(Clone)]
struct Lone;

impl Flow for Lone {}

#[step(action, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Call;

impl Action for Call {
    type Flow = Lone;

    async fn run(&mut self, cx: &mut ActionCx<'_, Lone>) -> Result<CallNext> {
        cx.tool(Undeclared).await?;
        Ok(CallNext::Stay)
    }
}

#[tokio::test]
async fn a_call_whose_intent_could_not_be_recorded_is_refused() {
    let engine = Engine::builder().store(MemoryStore::new()).flow(Lone).build().unwrap();
    let error = engine.turn::<Lone>(TurnRequest::new(session())).await.unwrap_err();
    let shown = error.to_string();
    assert!(shown.contains("`undeclared`") && shown.contains(".replay("), "{shown}");
    assert!(!error.retryable());
}
