//! Ships parcels in a conversation, without a model and without a server.
//!
//! ```text
//! cargo run -p examples --bin shipping
//! ```
//!
//! Stop it at any point (Ctrl-C, or even `kill -9`) and start it again: it goes on where it
//! was. The session lives in `shipping.sqlite`; `--store` takes `memory` or a MongoDB
//! address instead, `--session` another conversation. Piped input works the same.

use std::time::Duration;

use clap::Parser;
use flow_core::error::StoreError;
use flow_core::prelude::*;
use flow_core::{Engine, Error, TurnRequest};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// Ships parcels: asks for what it needs, lets the sender confirm, books, and tells the
/// tracking id.
#[flow(id = "shipping", version = 1, steps(Details, Confirm, Book, Receipt), state = Shipment, tools)]
#[derive(Clone)]
struct Shipping;

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
#[step(collect, next(Confirm))]
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

    async fn complete(
        &mut self,
        data: DetailsData,
        cx: &mut StepCx<'_, Shipping>,
    ) -> Result<DetailsNext> {
        cx.state.address = data.address;
        cx.state.parcels = data.parcels;
        cx.state.speed = data.speed;
        Ok(DetailsNext::Confirm)
    }
}

#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Yes,
    No,
}

/// Lets the sender check the shipment before it costs money.
#[step(collect, next(Book, Details))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Confirm {
    #[slot(one_of("yes", "no"))]
    answer: Option<Answer>,
}

impl Collect for Confirm {
    type Flow = Shipping;

    fn ask(&self, missing: &[&'static Slot], cx: &StepCx<'_, Shipping>) -> Question {
        let Shipment { address, parcels, speed, .. } = &cx.state;
        let text = format!("{parcels} parcel(s) to {address}, {speed:?}. Book them? (yes or no)");
        Question { text, ..missing[0].question() }
    }

    async fn complete(
        &mut self,
        data: ConfirmData,
        cx: &mut StepCx<'_, Shipping>,
    ) -> Result<ConfirmNext> {
        match data.answer {
            Answer::Yes => Ok(ConfirmNext::Book),
            Answer::No => {
                cx.say("All right, from the beginning.");
                Ok(ConfirmNext::Details)
            }
        }
    }
}

#[tools(flow)]
impl Shipping {
    /// Books the parcels with the carrier and returns the tracking id.
    #[tool]
    async fn book_parcels(&self, cx: &ToolCx, parcels: u8, address: String) -> Result<String> {
        if address.is_empty() {
            return Err(StepError::terminal("the carrier refuses a shipment without an address"));
        }
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

    fn response(&self, cx: &StepCx<'_, Shipping>) -> Option<String> {
        Some(format!("Booked. Your tracking id is\n{}", cx.state.tracking))
    }

    async fn on_response(
        &mut self,
        _: &str,
        _: &mut StepCx<'_, Shipping>,
    ) -> Result<Option<ReceiptNext>> {
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
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let store = flow_core::store::open(&args.store).await?;
    let engine = Engine::builder()
        .shared_store(store)
        .flow(Shipping)
        .lease(Duration::from_secs(5))
        .build()?;

    let mut lines = BufReader::new(tokio::io::stdin()).split(b'\n');
    let mut request = TurnRequest::new(args.session.clone());
    loop {
        let outcome = match engine.turn::<Shipping>(request.clone()).await {
            Ok(outcome) => outcome,
            Err(Error::Store(busy @ StoreError::Busy { .. })) => {
                // A run that was killed in the middle of a turn holds the lease for a while.
                tell(&format!("({busy})")).await?;
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for reply in &outcome.replies {
            tell(reply).await?;
        }
        if outcome.is_ended() {
            return Ok(());
        }
        let text = loop {
            let Some(line) = lines.next_segment().await? else { return Ok(()) };
            match String::from_utf8(line) {
                Ok(text) => break text,
                Err(_) => tell("That line is not valid UTF-8; please type it again.").await?,
            }
        };
        request = TurnRequest::new(args.session.clone()).message(text.trim());
    }
}

async fn tell(text: &str) -> std::io::Result<()> {
    let mut out = tokio::io::stdout();
    out.write_all(text.as_bytes()).await?;
    out.write_all(b"\n").await?;
    out.flush().await
}
