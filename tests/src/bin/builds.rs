//! A process that runs one of several builds of one program, at a time of its own.
//!
//! ```text
//! builds STORE JOURNAL BUILD TIME start|approve|go-on|sweep|restart|abandon
//! ```
//!
//! It does one thing with the session `order` and prints what that came to: a line for each
//! reply, and a last one. Each tool appends its name and its idempotency key to the journal.

#![allow(clippy::print_stdout, reason = "the parent process reads it")]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flow_core::engine::Delivery;
use flow_core::outcome::Outcome;
use flow_core::prelude::*;
use flow_core::session::Waiting;
use flow_core::testing::ManualClock;
use flow_core::{Engine, Error, TurnOutcome, TurnRequest};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn record(journal: &Path, tool: &str, cx: &ToolCx) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(journal)?;
    file.write_all(format!("{tool} {}\n", cx.idempotency_key()).as_bytes())?;
    Ok(())
}

/// One build of the shop: it takes a deposit, waits for an approval, waits a day, and sends.
macro_rules! build {
    (
        $(#[doc = $doc:literal])*
        $name:ident, flow($($flow:tt)*), step($($step:tt)*), $field:ident,
        $migrations:expr, |$self:ident, $cx:ident| $run:block, $($more:item)*
    ) => {
        $(#[doc = $doc])*
        mod $name {
            use super::*;

            #[flow(id = "shop", tools, $($flow)*)]
            #[derive(Clone)]
            pub(super) struct Shop {
                pub(super) journal: PathBuf,
            }

            impl Flow for Shop {
                fn migrations() -> Migrations {
                    $migrations
                }
            }

            #[tools(flow)]
            impl Shop {
                /// Takes a deposit.
                #[tool]
                async fn charge(&self, cx: &ToolCx, cents: u32) -> Result<String> {
                    record(&self.journal, "charge", cx)?;
                    Ok(format!("{cents} cents"))
                }

                /// Looks whether it is there.
                #[tool]
                async fn check(&self, cx: &ToolCx) -> Result<()> {
                    record(&self.journal, "check", cx)
                }

                /// Sends it.
                #[tool]
                async fn send(&self, cx: &ToolCx) -> Result<()> {
                    record(&self.journal, "send", cx)
                }
            }

            #[step($($step)*)]
            #[derive(Default, Serialize, Deserialize, JsonSchema)]
            pub(super) struct Order {
                $field: u32,
            }

            impl Action for Order {
                type Flow = Shop;

                async fn on_start(&mut self, _: &mut StepCx<'_, Shop>) -> Result<()> {
                    self.$field = 2;
                    Ok(())
                }

                async fn run(&mut $self, $cx: &mut ActionCx<'_, Shop>) -> Result<OrderNext> $run
            }

            $($more)*
        }
    };
}

build! {
    /// The build with which every session begins.
    first, flow(steps(Order)), step(action, next(end)), copies, Migrations::new(),
    |self, cx| {
        let deposit = cx.tool(Charge { cents: 100 }).await?;
        cx.approve("send it").await?;
        cx.sleep(DAY).await?;
        cx.tool(Send {}).await?;
        cx.say(format!("{} copies, {deposit}", self.copies));
        Ok(OrderNext::End("sent".into()))
    },
}

build! {
    /// Another graph, and more after what has been done: it fits.
    longer, flow(steps(Order, Thank)), step(action, next(Thank)), copies, Migrations::new(),
    |self, cx| {
        let deposit = cx.tool(Charge { cents: 100 }).await?;
        let approved = cx.approve("send it").await?;
        cx.tool(Check {}).await?;
        cx.sleep(DAY).await?;
        cx.tool(Send {}).await?;
        let by = approved.by.unwrap_or_default();
        cx.say(format!("{} copies, {deposit}, approved by {by}", self.copies));
        Ok(OrderNext::Thank)
    },

    #[step(action, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(super) struct Thank;

    impl Action for Thank {
        type Flow = Shop;

        async fn run(&mut self, cx: &mut ActionCx<'_, Shop>) -> Result<ThankNext> {
            cx.say("Thank you.");
            Ok(ThankNext::End("thanked".into()))
        }
    }
}

build! {
    /// The step has another name and says which one it had, the document has another version,
    /// the field another name: it fits.
    newer, flow(version = 2, steps(Order)), step(action, id = "Purchase", alias("Order"), next(end)),
    count, Migrations::new().from(1, |doc| doc.rename_field("Order", "copies", "count")),
    |self, cx| {
        let deposit = cx.tool(Charge { cents: 100 }).await?;
        cx.approve("send it").await?;
        cx.sleep(DAY).await?;
        cx.tool(Send {}).await?;
        cx.say(format!("{} pieces, {deposit}", self.count));
        Ok(OrderNext::End("sent".into()))
    },
}

build! {
    /// The same graph, another deposit: it does not fit.
    dearer, flow(steps(Order)), step(action, next(end)), copies, Migrations::new(),
    |self, cx| {
        let deposit = cx.tool(Charge { cents: 150 }).await?;
        cx.approve("send it").await?;
        cx.tool(Send {}).await?;
        cx.say(format!("{} copies, {deposit}", self.copies));
        Ok(OrderNext::End("sent".into()))
    },
}

build! {
    /// Another graph, and something else before what has been done: it does not fit.
    careful, flow(steps(Order)), step(action, next(stay, end)), copies, Migrations::new(),
    |self, cx| {
        cx.tool(Check {}).await?;
        let deposit = cx.tool(Charge { cents: 100 }).await?;
        cx.approve("send it").await?;
        cx.tool(Send {}).await?;
        cx.say(format!("{} copies, {deposit}", self.copies));
        Ok(OrderNext::End("sent".into()))
    },
}

build! {
    /// The step has another name and does not say which one it had: it does not fit.
    renamed, flow(steps(Order)), step(action, id = "Purchase", next(end)), copies,
    Migrations::new(),
    |self, cx| {
        cx.say(self.copies.to_string());
        Ok(OrderNext::End("sent".into()))
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, journal, build, time, command] = &args[..] else {
        return Err("STORE JOURNAL BUILD TIME COMMAND".into());
    };
    let journal = PathBuf::from(journal);
    let store = flow_core::store::open(address).await?;
    let builder = Engine::builder().shared_store(store).clock(ManualClock::at(time.parse()?));
    let builder = match build.as_str() {
        "first" => builder.flow(first::Shop { journal }),
        "longer" => builder.flow(longer::Shop { journal }),
        "newer" => builder.flow(newer::Shop { journal }),
        "dearer" => builder.flow(dearer::Shop { journal }),
        "careful" => builder.flow(careful::Shop { journal }),
        "renamed" => builder.flow(renamed::Shop { journal }),
        other => return Err(format!("there is no build `{other}`").into()),
    };
    match run(&builder.build()?, command).await {
        Ok(line) => println!("{line}"),
        Err(error) => println!("error {}: {error}", error.code()),
    }
    Ok(())
}

async fn run(engine: &Engine, command: &str) -> Result<String, Error> {
    let session = SessionId::new("order")?;
    let handle = engine.session(session.clone());
    match command {
        "start" | "go-on" => Ok(show(engine.turn_of("shop", TurnRequest::new(session)).await?)),
        "approve" => {
            let request = match handle.load().await?.waiting {
                Some(Waiting::Interrupts { pending }) => pending[0].request_id.clone(),
                other => return Ok(format!("nothing to approve: {other:?}")),
            };
            Ok(show(engine.deliver(session, Delivery::approve(request).by("ada")).await?))
        }
        "sweep" => {
            let report = engine.sweep().await?;
            let failed: Vec<&str> = report.failed.iter().map(|(_, e)| &*e.code).collect();
            Ok(format!("woken {} failed {failed:?}", report.woken.len()))
        }
        "restart" => handle.restart_step().await.map(|()| "restarted".to_owned()),
        "abandon" => handle.abandon("the build has changed").await.map(|()| "abandoned".into()),
        other => Ok(format!("there is no command `{other}`")),
    }
}

fn show(outcome: TurnOutcome) -> String {
    for reply in &outcome.replies {
        println!("{reply}");
    }
    match &outcome.outcome {
        Outcome::Suspended { interrupts } => {
            let kinds: Vec<&str> = interrupts.iter().map(|i| i.kind.as_str()).collect();
            format!("waits for {}", kinds.join(", "))
        }
        Outcome::Ended { reason } => format!("ended: {reason}"),
        other => format!("{other:?}"),
    }
}
