//! Ships parcels in a conversation, without a model and without a server.
//!
//! ```text
//! cargo run -p examples --bin shipping
//! ```
//!
//! Stop it at any point (Ctrl-C, or even `kill -9`) and start it again: it goes on where it was.
//! The session lives in `shipping.sqlite`; see `--help` for other stores and conversations.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to a person")]

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use flow_core::error::StoreError;
use flow_core::prelude::*;
use flow_core::{Engine, Error, TurnRequest};
use tokio::io::{AsyncBufReadExt, BufReader};

/// Ships parcels: asks for what it needs, lets the sender confirm, books, tells the tracking id.
#[flow(id = "shipping", version = 1, steps(Details, Check, Book, Receipt), state = Shipment, tools)]
#[derive(Clone)]
struct Shipping;

type Cx<'a> = StepCx<'a, Shipping>;

/// What the steps share.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Shipment {
    address: String,
    parcels: u8,
    speed: Speed,
    tracking: String,
}

impl Flow for Shipping {
    /// A shipment that is on its way is not touched again: the next one starts afresh.
    async fn on_restore_session_doc(&self, doc: SessionDoc) -> Result<Restore> {
        if doc.ended.is_some() {
            return Ok(Restore::fresh("the shipment before is booked"));
        }
        Ok(Restore::keep(doc))
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Speed {
    #[default]
    Standard,
    Express,
}

/// Collects the shipment: each field is asked for until it is there.
#[step(collect, next(Check))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Details {
    #[slot(whole_message, verbatim, ask = "Where shall the parcels go?")]
    address: Option<String>,
    #[slot(range(1, 20), ask = "How many parcels? (1 to 20)")]
    parcels: Option<u8>,
    #[slot(one_of("standard", "express"), ask = "How fast: standard or express?")]
    speed: Option<Speed>,
}

impl Collect for Details {
    type Flow = Shipping;

    async fn complete(&mut self, data: DetailsData, cx: &mut Cx<'_>) -> Result<DetailsNext> {
        cx.state.address = data.address;
        cx.state.parcels = data.parcels;
        cx.state.speed = data.speed;
        Ok(DetailsNext::Check)
    }
}

/// Lets the sender check the shipment before it costs money.
#[step(decide, confirm, next(Book, Details))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Check;

impl Confirm for Check {
    type Flow = Shipping;

    fn question(&self, cx: &Cx<'_>) -> String {
        let Shipment { address, parcels, speed, .. } = &cx.state;
        format!("{parcels} parcel(s) to {address}, {speed:?}. Book them? (yes or no)")
    }

    async fn confirmed(&mut self, yes: bool, cx: &mut Cx<'_>) -> Result<CheckNext> {
        if !yes {
            cx.say("All right, from the beginning.");
            return Ok(CheckNext::Details);
        }
        Ok(CheckNext::Book)
    }
}

#[tools(flow)]
impl Shipping {
    /// Books the parcels with the carrier and returns the tracking id.
    #[tool]
    async fn book_parcels(&self, cx: &ToolCx, parcels: u8, address: String) -> Result<String> {
        println!("(the carrier is told: {parcels} parcel(s) to {address})");
        // A carrier that honours the key books once, however often this call is made: here
        // the tracking id itself is made from the key.
        let id = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, cx.idempotency_key().as_bytes());
        Ok(format!("trk_{}{parcels:02}", &id.simple().to_string()[..10]))
    }
}

/// Books the shipment.
#[step(action, next(Receipt))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Book;

impl Action for Book {
    type Flow = Shipping;

    async fn run(&mut self, cx: &mut ActionCx<'_, Shipping>) -> Result<BookNext> {
        let call = BookParcels { parcels: cx.state.parcels, address: cx.state.address.clone() };
        cx.state.tracking = cx.tool(call).await?;
        Ok(BookNext::Receipt)
    }
}

/// Tells the tracking id.
#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Receipt;

impl Reply for Receipt {
    type Flow = Shipping;

    fn response(&self, cx: &Cx<'_>) -> Option<String> {
        Some(format!("Booked. Your tracking id is\n{}", cx.state.tracking))
    }

    async fn on_response(&mut self, _: &str, _: &mut Cx<'_>) -> Result<Option<ReceiptNext>> {
        Ok(Some(ReceiptNext::End("booked".into())))
    }
}

/// Ships parcels in a conversation.
#[derive(Parser)]
struct Args {
    /// The conversation to go on with.
    #[arg(long, default_value = "shipping")]
    session: SessionId,
    /// memory, sqlite:PATH or mongodb://HOST/DATABASE.
    #[arg(long, default_value = "sqlite:shipping.sqlite")]
    store: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Err(error) = talk(Args::parse()).await else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

async fn talk(args: Args) -> Result<()> {
    let store = flow_core::store::open(&args.store).await?;
    // A short lease: a run that was killed in the middle of a turn blocks the next one as long.
    let lease = Duration::from_secs(5);
    let engine = Engine::builder().shared_store(store).flow(Shipping).lease(lease).build()?;

    let mut lines = BufReader::new(tokio::io::stdin()).split(b'\n');
    let mut request = TurnRequest::new(args.session.clone());
    loop {
        let outcome = match engine.turn::<Shipping>(request.clone()).await {
            Err(Error::Store(busy @ StoreError::Busy { .. })) => {
                println!("({busy})");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            outcome => outcome?,
        };
        for reply in &outcome.replies {
            println!("{reply}");
        }
        if outcome.is_ended() {
            return Ok(());
        }
        let text = loop {
            let Some(line) = lines.next_segment().await? else { return Ok(()) };
            match String::from_utf8(line) {
                Ok(text) => break text,
                Err(_) => println!("That line is not valid UTF-8; please type it again."),
            }
        };
        request = TurnRequest::new(args.session.clone()).message(text.trim());
    }
}
