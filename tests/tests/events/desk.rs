//! A flow that can do everything of which a listener is told.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flow_core::effect::ApprovalRequest;
use flow_core::prelude::*;
use serde_json::{Value, json};
use tests::other_flow::Other;
use tokio::sync::Notify;

/// Does what its steps say. Sessions begin where the test says.
#[flow(
    id = "desk",
    version = 2,
    steps(Party, Talk, First, Second, Third, Work, Inner, Gated, Held, Ping, Pong, Rest),
    tools
)]
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) start: &'static str,
    /// Whether what fails at first works.
    pub(crate) works: Arc<AtomicBool>,
    /// Whether stored sessions are put aside.
    pub(crate) begins_anew: Arc<AtomicBool>,
    /// Told when a tool hangs.
    pub(crate) hangs: Arc<Notify>,
}

impl Flow for Desk {
    fn initial_step(&self) -> Option<std::borrow::Cow<'static, str>> {
        Some(self.start.into())
    }

    fn define_gates(&self, gates: Gates<Self>) -> Gates<Self> {
        if self.start != "Gated" {
            return gates;
        }
        let check = |run: &flow_core::flow::gate::RunView<'_, Self>| match run
            .flow
            .works
            .load(Ordering::Relaxed)
        {
            true => Verdict::pass(),
            false => Verdict::fail("It does not work yet."),
        };
        gates.check("works", check).check("fast", |_| Verdict::fail("It is slow.")).advisory()
    }

    fn migrations() -> Migrations {
        Migrations::new().from(1, |_| Ok(()))
    }

    async fn on_restore_session_doc(&self, doc: SessionDoc) -> Result<Restore> {
        Ok(match self.begins_anew.swap(false, Ordering::Relaxed) {
            true => Restore::fresh("the test wants it"),
            false => Restore::keep(doc),
        })
    }

    async fn on_error(
        &self,
        error: &StepError,
        cx: &mut StepCx<'_, Self>,
    ) -> Result<Option<Transition>> {
        if !error.to_string().contains("jammed") {
            return Ok(None);
        }
        cx.say("Something is jammed.");
        Ok(Some(Transition::go::<Rest>(())))
    }
}

#[tools(flow)]
impl Desk {
    /// Charges some cents.
    #[tool]
    async fn charge(&self, cents: u32) -> Result<String> {
        Ok(format!("receipt for {cents}"))
    }

    /// Never returns.
    #[tool]
    async fn hang(&self) -> Result<()> {
        self.hangs.notify_one();
        std::future::pending().await
    }

    /// Fails.
    #[tool]
    async fn decline(&self) -> Result<()> {
        Err(StepError::new("declined"))
    }
}

/// Takes the size of a party.
#[step(collect, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Party {
    #[slot(range(1, 8), ask = "For how many?")]
    guests: Option<u8>,
    #[slot(one_of("noon", "evening"), ask = "At noon or in the evening?")]
    time: Option<String>,
}

impl Collect for Party {
    type Flow = Desk;

    async fn on_start(&mut self, cx: &mut StepCx<'_, Desk>) -> Result<()> {
        cx.say("Welcome.");
        Ok(())
    }

    async fn complete(&mut self, data: PartyData, cx: &mut StepCx<'_, Desk>) -> Result<PartyNext> {
        cx.say(format!("A table for {}, {}.", data.guests, data.time));
        Ok(PartyNext::End("reserved".into()))
    }
}

/// Talks.
#[step(reply, tools, model = "test::model", next(Rest, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Talk {
    found: u32,
}

impl Reply for Talk {
    type Flow = Desk;
}

#[tools]
impl Talk {
    /// Finds rooms.
    #[tool]
    async fn find(&mut self, cx: &mut StepCx<'_, Desk>, city: String) -> Result<Value> {
        self.found += 1;
        cx.emit("progress", json!({ "found": self.found }))?;
        Ok(json!({ "city": city, "rooms": [7, 12] }))
    }

    /// Cancels the booking.
    #[tool(ask)]
    async fn cancel(&mut self, room: u32) -> Result<String> {
        Ok(format!("room {room} is free"))
    }

    /// Goes to rest.
    #[tool]
    fn leave(&self) -> TalkNext {
        TalkNext::Rest
    }
}

/// The first of three.
#[step(action, next(Second))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct First;

impl Action for First {
    type Flow = Desk;

    async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<FirstNext> {
        cx.say("One.");
        cx.note("the user is in a hurry");
        cx.emit("progress", 1)?;
        Ok(FirstNext::Second)
    }
}

/// The second of three.
#[step(decide, next(Third(u32), end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Second;

impl Decide for Second {
    type Flow = Desk;
    type Verdict = bool;

    async fn verdict(&mut self, cx: &mut StepCx<'_, Desk>) -> Result<bool> {
        Ok(!cx.notes().is_empty())
    }

    async fn decide(&mut self, hurry: bool, _: &mut StepCx<'_, Desk>) -> Result<SecondNext> {
        Ok(if hurry { SecondNext::Third(3) } else { SecondNext::End("no hurry".into()) })
    }
}

/// The third of three.
#[step(action, input = u32, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Third;

impl Action for Third {
    type Flow = Desk;

    async fn on_enter(&mut self, count: u32, cx: &mut StepCx<'_, Desk>) -> Result<()> {
        cx.say(format!("{count}!"));
        Ok(())
    }

    async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<ThirdNext> {
        cx.feedback("That was quick.");
        Ok(ThirdNext::Stay)
    }
}

/// Does what the message says, word by word.
#[step(action, next(Rest, stay, end, hand_off, escalate))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Work;

impl Action for Work {
    type Flow = Desk;

    async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<WorkNext> {
        let text = cx.take_message().unwrap_or_default();
        Ok(perform(&text, cx).await?.unwrap_or(WorkNext::Stay))
    }
}

/// Does what its input says, within `Work`.
#[step(action, input = String, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Inner {
    text: String,
}

impl Action for Inner {
    type Flow = Desk;

    async fn on_enter(&mut self, text: String, _: &mut StepCx<'_, Desk>) -> Result<()> {
        self.text = text;
        Ok(())
    }

    async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<InnerNext> {
        let text = self.text.clone();
        perform(&text, cx).await?;
        Ok(InnerNext::End("done".into()))
    }
}

/// The words in brackets, which are parted by commas.
fn words_of(text: &str) -> String {
    text.trim_end_matches(')').replace(',', " ")
}

type Performing<'a> = Pin<Box<dyn Future<Output = Result<Option<WorkNext>>> + Send + 'a>>;

/// Does what a text says, up to the word that leaves the step.
fn perform<'a>(text: &'a str, cx: &'a mut ActionCx<'_, Desk>) -> Performing<'a> {
    Box::pin(async move {
        for word in text.split_whitespace() {
            match word {
                "charge" => {
                    let receipt = cx.tool(Charge { cents: 1200 }).await?;
                    cx.say(receipt);
                }
                "pair" => {
                    let (first, second) = futures_util::join!(
                        cx.tool(Charge { cents: 1 }),
                        cx.tool(Charge { cents: 2 }),
                    );
                    cx.say(format!("{}, {}", first?, second?));
                }
                "decline" => cx.tool(Decline).await?,
                "hang" => cx.tool(Hang).await?,
                "measure" => {
                    let size: u32 = cx.run("measure", || async { Ok::<_, StepError>(7) }).await?;
                    cx.say(format!("{size} metres"));
                }
                "approve" => {
                    let request = ApprovalRequest::new("Charge 12 euros?")
                        .description("The limit without approval is 10 euros.")
                        .operation(&Charge { cents: 1200 })
                        .deadline(Duration::from_secs(3600));
                    cx.approve(request).await?;
                }
                "choose" => {
                    let (color, size) = futures_util::join!(
                        cx.choose("Which colour?", ["red", "blue"]).into_future(),
                        cx.input::<u32>("What size?").into_future(),
                    );
                    cx.say(format!("{} in {}", color?, size?));
                }
                "sleep" => cx.sleep(Duration::from_secs(60)).await?,
                "jam" => return Err(StepError::new("it is jammed")),
                "fail" if !cx.flow.works.load(Ordering::Relaxed) => {
                    return Err(StepError::new("not yet"));
                }
                "rest" => return Ok(Some(WorkNext::Rest)),
                "end" => return Ok(Some(WorkNext::End("done".into()))),
                "hand" => return Ok(Some(WorkNext::HandOff("other".into()))),
                "escalate" => return Ok(Some(WorkNext::Escalate("I am lost".into()))),
                "form" => {
                    cx.run_step::<Party>(()).await?;
                }
                "other" => {
                    cx.call_flow::<Other>(()).await?;
                }
                "batch" => {
                    let report = cx.concurrent([1, 2, 3]).limit(1).each::<Quick>(|_| ()).await?;
                    cx.say(format!("{} of 3", report.ended));
                }
                word => match word.split_once('(') {
                    Some(("step", text)) => {
                        cx.run_step::<Inner>(words_of(text)).await?;
                    }
                    Some(("try", text)) => {
                        if let Err(error) = cx.run_step::<Inner>(words_of(text)).await {
                            cx.say(error.code());
                        }
                    }
                    Some((_, text)) => {
                        let mut branches = Branches::new();
                        for text in text.split('|') {
                            branches.add::<Inner>(words_of(text));
                        }
                        cx.run_steps(branches).await?;
                    }
                    None => cx.say(word),
                },
            }
        }
        Ok(None)
    })
}

/// Ends when the gates of the flow let it.
#[step(action, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Gated;

impl Action for Gated {
    type Flow = Desk;

    async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<GatedNext> {
        cx.say("I want to end.");
        Ok(GatedNext::End("done".into()))
    }
}

/// Is held until it is asked politely.
#[step(action, next(Rest))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Held;

impl Action for Held {
    type Flow = Desk;

    async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<HeldNext> {
        cx.say("I want to leave.");
        Ok(HeldNext::Rest)
    }

    async fn verify(&mut self, _: &HeldNext, cx: &mut StepCx<'_, Desk>) -> Result<Gate> {
        Ok(match cx.last_message() {
            Some("please") => Gate::Pass,
            _ => Gate::Hold("Say please.".into()),
        })
    }
}

/// Goes to `Pong`.
#[step(action, next(Pong))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Ping;

impl Action for Ping {
    type Flow = Desk;

    async fn run(&mut self, _: &mut ActionCx<'_, Desk>) -> Result<PingNext> {
        Ok(PingNext::Pong)
    }
}

/// Goes to `Ping`, until it is told not to.
#[step(action, next(Ping, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Pong;

impl Action for Pong {
    type Flow = Desk;

    async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<PongNext> {
        Ok(if cx.last_message() == Some("stop") { PongNext::Stay } else { PongNext::Ping })
    }
}

/// Rests.
#[step(action, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Rest;

impl Action for Rest {
    type Flow = Desk;

    async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<RestNext> {
        cx.say("I rest.");
        Ok(RestNext::Stay)
    }
}

/// Does one of many things.
#[flow(id = "quick", steps(Do))]
#[derive(Clone)]
pub(crate) struct Quick;

impl Flow for Quick {}

/// Ends at once.
#[step(action, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Do;

impl Action for Do {
    type Flow = Quick;

    async fn run(&mut self, cx: &mut ActionCx<'_, Quick>) -> Result<DoNext> {
        cx.say("One more.");
        Ok(DoNext::End("done".into()))
    }
}
