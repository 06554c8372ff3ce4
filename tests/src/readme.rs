//! The examples of the README that are parts of a program, each within a whole one.

use std::time::Duration;

use flow_core::engine::{Checkpoints, Delivery};
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::testing::ManualClock;
use flow_core::time::Timestamp;
use flow_core::{Engine, TurnRequest};

const README: &str = include_str!("../../README.md");
const SOURCE: &str = include_str!("readme.rs");

/// Code without what the layout of a page and that of a file do differently.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<String>().split_whitespace().collect::<String>().replace(",)", ")")
}

#[test]
fn every_part_of_a_program_in_the_readme_is_in_this_file() {
    let source = code(SOURCE);
    let parts: Vec<&str> = README.split("```rust,ignore\n").skip(1).collect();
    assert!(parts.len() >= 5, "{} parts", parts.len());
    for part in parts {
        let part = part.split("```").next().unwrap();
        assert!(source.contains(&code(part)), "this is not compiled:\n{part}");
    }
}

fn session(id: &str) -> SessionId {
    SessionId::new(id).unwrap()
}

mod pay {
    use super::*;

    #[flow(id = "expenses", steps(Pay), tools)]
    #[derive(Clone)]
    pub(super) struct Expenses;

    impl Flow for Expenses {}

    #[tools(flow)]
    impl Expenses {
        /// Pays.
        #[tool]
        async fn charge(&self, cents: u32) -> String {
            format!("receipt for {cents} cents")
        }
    }

    #[step(action, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Pay;

    impl Action for Pay {
        type Flow = Expenses;

        async fn run(&mut self, cx: &mut ActionCx<'_, Expenses>) -> Result<PayNext> {
            let charge = Charge { cents: 12_000 };
            cx.approve(Request::new("Pay 120 euros").operation(&charge)).await?;
            cx.sleep(Duration::from_secs(3600)).await?;
            let receipt = cx.tool(charge).await?;
            cx.say(format!("Paid: {receipt}"));
            Ok(PayNext::End("paid".into()))
        }
    }
}

#[tokio::test]
async fn the_action_that_waits_waits_and_pays() {
    let clock = ManualClock::at(Timestamp::now());
    let engine =
        Engine::builder().store(MemoryStore::new()).flow(pay::Expenses).clock(clock.clone());
    let engine = engine.build().unwrap();
    let asked = engine.turn::<pay::Expenses>(TurnRequest::new(session("a"))).await.unwrap();
    let request_id = &*asked.interrupts()[0].request_id;
    let delivery = Delivery::approve(request_id).by("ada");
    let asleep = engine.deliver(session("a"), delivery).await.unwrap();
    assert_eq!((asleep.interrupts().len(), asleep.is_ended()), (1, false));
    clock.advance(Duration::from_secs(3600));
    assert_eq!(engine.sweep().await.unwrap().woken, [session("a")]);
    let doc = engine.session(session("a")).load().await.unwrap();
    assert_eq!(doc.ended.as_deref(), Some("paid"));
    let said = doc.memory["main"].messages.last().unwrap().to_text();
    assert_eq!(said, "Paid: receipt for 12000 cents");
}

mod party {
    use super::*;

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(super) struct Plans {
        guests: Vec<String>,
        cents: u64,
        offers: Vec<Offer>,
    }

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Offer {
        id: String,
    }

    #[flow(id = "party", steps(Plan, Quote, Search), state = Plans)]
    #[derive(Clone)]
    pub(super) struct Party;

    impl Flow for Party {
        fn config_reducers(&self) -> Reducers {
            Reducers::new().sum("cents").append_unique_by("offers", "id")
        }
    }

    #[step(action, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Plan;

    impl Action for Plan {
        type Flow = Party;

        async fn on_enter(&mut self, (): (), cx: &mut StepCx<'_, Party>) -> Result<()> {
            cx.state.guests = vec!["ada".into(), "eve".into()];
            Ok(())
        }

        async fn run(&mut self, cx: &mut ActionCx<'_, Party>) -> Result<PlanNext> {
            let quote: Quote = cx.run_step(3).await?;
            let mut branches = Branches::new().limit(4).on_failure(FailurePolicy::RetainSuccesses);
            let food = branches.add::<Search>("food".into());
            let music = branches.add::<Search>("music".into());
            let mut found = cx.run_steps(branches).await?;
            cx.say(format!("{}; {}", found.take(food)?.best, found.take(music)?.best));
            let card =
                cx.call_flow::<Cards>(Card { cents: quote.cents, ..Card::default() }).await?;
            let sent = cx
                .concurrent(&cx.state.guests)
                .each::<Letters>(|guest| Letter { to: guest.to_string() })
                .await?;
            Ok(PlanNext::End(format!(
                "{:?}, {} of {} letters",
                card.state.number,
                sent.ended,
                sent.items.len()
            )))
        }
    }

    #[step(action, input = u32, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Quote {
        cents: u32,
    }

    impl Action for Quote {
        type Flow = Party;

        async fn on_enter(&mut self, guests: u32, _: &mut StepCx<'_, Party>) -> Result<()> {
            self.cents = 900 * guests;
            Ok(())
        }

        async fn run(&mut self, _: &mut ActionCx<'_, Party>) -> Result<QuoteNext> {
            Ok(QuoteNext::End("quoted".into()))
        }
    }

    #[step(action, input = String, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Search {
        best: String,
    }

    impl Action for Search {
        type Flow = Party;

        async fn on_enter(&mut self, kind: String, _: &mut StepCx<'_, Party>) -> Result<()> {
            self.best = format!("good {kind}");
            Ok(())
        }

        async fn run(&mut self, cx: &mut ActionCx<'_, Party>) -> Result<SearchNext> {
            cx.state.cents += 100;
            cx.state.offers.push(Offer { id: self.best.clone() });
            Ok(SearchNext::End("searched".into()))
        }
    }

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(super) struct Card {
        cents: u32,
        number: Option<String>,
    }

    #[flow(id = "cards", steps(Read), state = Card)]
    #[derive(Clone)]
    pub(super) struct Cards;

    impl Flow for Cards {}

    #[step(collect, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Read {
        #[slot(whole_message, verbatim, ask = "Which card?")]
        number: Option<String>,
    }

    impl Collect for Read {
        type Flow = Cards;

        async fn complete(
            &mut self,
            data: ReadData,
            cx: &mut StepCx<'_, Cards>,
        ) -> Result<ReadNext> {
            cx.state.number = Some(format!("{}/{}", data.number, cx.state.cents));
            Ok(ReadNext::End("read".into()))
        }
    }

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(super) struct Letter {
        to: String,
    }

    #[flow(id = "letters", steps(Post), state = Letter)]
    #[derive(Clone)]
    pub(super) struct Letters;

    impl Flow for Letters {}

    #[step(action, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Post;

    impl Action for Post {
        type Flow = Letters;

        async fn run(&mut self, cx: &mut ActionCx<'_, Letters>) -> Result<PostNext> {
            Ok(PostNext::End(format!("to {}", cx.state.to)))
        }
    }
}

#[tokio::test]
async fn the_action_that_runs_steps_and_flows_comes_to_its_end() {
    use party::{Cards, Letters, Party};

    let engine = Engine::builder().store(MemoryStore::new()).flow(Party).flow(Cards).flow(Letters);
    let engine = engine.build().unwrap();
    let say = |text| engine.turn::<Party>(TurnRequest::new(session("a")).message(text));
    let asked = say("hello").await.unwrap();
    assert_eq!(asked.replies, ["good food; good music", "Which card?"]);
    let ended = say("17").await.unwrap();
    assert!(ended.is_ended(), "{ended:?}");
    let doc = engine.session(session("a")).load().await.unwrap();
    assert_eq!(doc.ended.as_deref(), Some(r#"Some("17/2700"), 2 of 2 letters"#));
    assert_eq!(
        (&doc.state["cents"], doc.state["offers"].as_array().unwrap().len()),
        (&200.into(), 2)
    );
}

mod order {
    use super::*;

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(super) struct Totals {
        cents: u64,
    }

    #[flow(id = "order", steps(Buy), state = Totals, model = "scripted::judge")]
    #[derive(Clone)]
    pub(super) struct Order {
        pub(super) budget: u64,
    }

    impl Flow for Order {
        fn define_gates(&self, gates: Gates<Self>) -> Gates<Self> {
            gates
                .check("within-budget", |run| match run.state.cents <= run.flow.budget {
                    true => Verdict::pass(),
                    false => Verdict::fail("That is more than may be spent."),
                })
                .judge("polite", Judge::new("The assistant has been polite.").show(["memory.main"]))
                .advisory()
        }
    }

    #[step(action, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Buy;

    impl Action for Buy {
        type Flow = Order;

        async fn run(&mut self, cx: &mut ActionCx<'_, Order>) -> Result<BuyNext> {
            cx.state.cents = 500;
            Ok(BuyNext::End("bought".into()))
        }
    }
}

#[test]
fn the_flow_with_gates_is_one_that_an_engine_takes() {
    let order = order::Order { budget: 400 };
    Engine::builder().store(MemoryStore::new()).flow(order).build().unwrap();
}

mod desk {
    use super::*;

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(super) struct Invoice {
        number: u64,
    }

    #[flow(id = "desk", steps(Sort))]
    #[derive(Clone)]
    pub(super) struct Desk;

    impl Flow for Desk {}

    #[step(action, next(stay, hand_off))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Sort;

    impl Action for Sort {
        type Flow = Desk;

        async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<SortNext> {
            if cx.take_message().is_none() {
                return Ok(SortNext::Stay);
            }
            Ok(SortNext::HandOff(HandOff::to::<Billing>(Invoice { number: 17 })))
        }
    }

    #[flow(id = "billing", steps(Explain), state = Invoice)]
    #[derive(Clone)]
    pub(super) struct Billing;

    impl Flow for Billing {}

    #[step(action, next(stay))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Explain;

    impl Action for Explain {
        type Flow = Billing;

        async fn run(&mut self, cx: &mut ActionCx<'_, Billing>) -> Result<ExplainNext> {
            let number = cx.state.number;
            cx.say(format!("invoice {number}"));
            Ok(ExplainNext::Stay)
        }
    }

    #[flow(id = "hours", steps(Tell))]
    #[derive(Clone)]
    pub(super) struct Hours;

    impl Flow for Hours {}

    #[step(action, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Tell;

    impl Action for Tell {
        type Flow = Hours;

        async fn run(&mut self, cx: &mut ActionCx<'_, Hours>) -> Result<TellNext> {
            cx.say("until six");
            Ok(TellNext::End("told".into()))
        }
    }
}

/// What the tables of the README name is written here as it stands there.
#[tokio::test]
async fn conversations_go_from_flow_to_flow_and_back_in_time() {
    use desk::{Billing, Desk, Hours};

    let engine = Engine::builder()
        .store(MemoryStore::new())
        .flow(Desk)
        .flow(Billing)
        .flow(Hours)
        .checkpoints(Checkpoints::keep_last(20))
        .build()
        .unwrap();
    let (id, text) = (session("a"), "when do you open?");
    engine.turn::<Desk>(TurnRequest::new(id.clone())).await.unwrap();
    let told = TurnRequest::new(id.clone()).message(text).digress("hours");
    let told = engine.turn::<Desk>(told).await.unwrap();
    assert_eq!((told.replies[0].as_str(), told.flow.as_str()), ("until six", "desk"));
    let moved = engine.turn::<Desk>(TurnRequest::new(id.clone()).message("17")).await.unwrap();
    assert_eq!((moved.replies[0].as_str(), moved.flow.as_str()), ("invoice 17", "billing"));
    let (before, other) = travel(&engine, id.clone()).await.unwrap();
    let doc = engine.session(id).load().await.unwrap();
    assert_eq!((doc.flow.id.as_str(), other.flow.id), ("desk", doc.flow.id.clone()));
    assert!(doc.revision > before);
}

async fn travel(engine: &Engine, id: SessionId) -> Result<(u64, SessionDoc)> {
    let session = engine.session(id);
    let history = session.history().await?;
    let other = session.fork(history[3].revision, SessionId::random()).await?;
    session.rewind(history[3].revision).await?;
    Ok((history[0].revision, other.load().await?))
}

mod trip {
    use super::*;

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Cart {}

    #[flow(id = "trip", version = 3, steps(Explore, Checkout), state = Cart)]
    #[derive(Clone)]
    struct Trip;

    impl Flow for Trip {
        fn migrations() -> Migrations {
            Migrations::new()
                .from(1, |doc| doc.rename_step("Browse", "Explore"))
                .from(2, |doc| doc.rename_field("Checkout", "method", "payment"))
        }
    }

    #[step(action, next(Checkout))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Explore;

    impl Action for Explore {
        type Flow = Trip;

        async fn run(&mut self, _: &mut ActionCx<'_, Trip>) -> Result<ExploreNext> {
            Ok(ExploreNext::Checkout)
        }
    }

    #[step(action, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Checkout {
        payment: String,
    }

    impl Action for Checkout {
        type Flow = Trip;

        async fn run(&mut self, _: &mut ActionCx<'_, Trip>) -> Result<CheckoutNext> {
            Ok(CheckoutNext::End(self.payment.clone()))
        }
    }

    #[test]
    fn the_migrations_leave_no_gap() {
        Engine::builder().store(MemoryStore::new()).flow(Trip).build().unwrap();
    }
}
