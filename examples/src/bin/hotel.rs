//! A hotel's assistant: a model speaks for the reply step and calls typed tools; the booking
//! itself is code.
//!
//! ```text
//! cargo run -p examples --bin hotel                                  # a recorded conversation
//! cargo run -p examples --bin hotel -- --model ollama::qwen3         # a real model
//! ```
//!
//! Keys come from the usual environment variables.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to a person")]

use std::process::ExitCode;

use clap::Parser;
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{ModelCatalog, ModelConfig, ModelSelection, provider};
use flow_core::prelude::*;
use flow_core::{Engine, TurnRequest};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

/// Finds a room with the guest and books it.
#[flow(id = "hotel", version = 1, steps(Explore, Checkout, Review, Book), state = Booking, tools)]
#[derive(Clone)]
struct Hotel {
    model: ModelSelection,
}

type Cx<'a> = StepCx<'a, Hotel>;

/// What the steps share.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Booking {
    room: u32,
    guest: String,
    nights: u8,
}

impl Flow for Hotel {
    fn config_model(&self) -> Option<ModelConfig> {
        Some(self.model.clone().into())
    }
}

/// A room as the model sees it.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Room {
    number: u32,
    beds: u8,
    euros_per_night: u32,
}

const ROOMS: [Room; 3] = [
    Room { number: 7, beds: 1, euros_per_night: 80 },
    Room { number: 12, beds: 2, euros_per_night: 120 },
    Room { number: 21, beds: 3, euros_per_night: 170 },
];

#[tools(flow)]
impl Hotel {
    /// Charges the guest and returns the booking number. An action calls it; a model sees the
    /// tools of its own step only.
    #[tool]
    async fn charge(&self, cx: &ToolCx, euros: u32) -> Result<String> {
        Ok(format!("bk_{euros}_{}", cx.idempotency_key().len()))
    }
}

/// Finds rooms with the guest.
#[step(reply, tools, memory = "explore", next(Checkout(Room), stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Explore {
    searches: u32,
}

impl Reply for Explore {
    type Flow = Hotel;

    fn instructions(&self, _: &Cx<'_>) -> Prompt {
        "You are the assistant of a small hotel. Answer in one or two short sentences. Find rooms \
         with `search_rooms`; never invent any. Call `choose_room` when the guest has decided."
            .into()
    }
}

#[tools]
impl Explore {
    /// Searches free rooms for a number of people.
    #[tool]
    async fn search_rooms(&mut self, people: u8) -> Vec<Room> {
        self.searches += 1;
        ROOMS.into_iter().filter(|room| room.beds >= people).collect()
    }

    /// The guest has decided on a room.
    #[tool]
    async fn choose_room(&mut self, number: u32) -> Result<ExploreNext> {
        let mut rooms = ROOMS.into_iter();
        let room = rooms.find(|room| room.number == number);
        room.map(ExploreNext::Checkout).ok_or_else(|| StepError::new("there is no such room"))
    }
}

/// Takes what the booking needs, in code.
#[step(collect, input = Room, memory = "checkout", next(Review))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Checkout {
    #[slot(whole_message, verbatim, ask = "Under which name shall I book?")]
    name: Option<String>,
    #[slot(range(1, 30), ask = "For how many nights?")]
    nights: Option<u8>,
}

impl Collect for Checkout {
    type Flow = Hotel;

    async fn on_enter(&mut self, room: Room, cx: &mut Cx<'_>) -> Result<()> {
        cx.state.room = room.number;
        Ok(())
    }

    async fn complete(&mut self, data: CheckoutData, cx: &mut Cx<'_>) -> Result<CheckoutNext> {
        cx.state.guest = data.name;
        cx.state.nights = data.nights;
        Ok(CheckoutNext::Review)
    }
}

/// Sends long stays to a person.
#[step(decide, next(Book, escalate))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Review;

impl Decide for Review {
    type Flow = Hotel;
    type Verdict = bool;

    async fn verdict(&mut self, cx: &mut Cx<'_>) -> Result<bool> {
        Ok(cx.state.nights > 14)
    }

    async fn decide(&mut self, long: bool, _: &mut Cx<'_>) -> Result<ReviewNext> {
        Ok(if long { ReviewNext::Escalate("a long stay".into()) } else { ReviewNext::Book })
    }
}

/// Charges and ends.
#[step(action, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Book;

impl Action for Book {
    type Flow = Hotel;

    async fn run(&mut self, cx: &mut ActionCx<'_, Hotel>) -> Result<BookNext> {
        let price = ROOMS.iter().find(|room| room.number == cx.state.room);
        let euros = price.map_or(0, |room| room.euros_per_night) * u32::from(cx.state.nights);
        let booking = cx.tool(Charge { euros }).await?;
        let Booking { guest, room, .. } = &cx.state;
        let text = format!("Room {room} is yours, {guest}: {euros} euros, booking {booking}.");
        cx.say(text);
        Ok(BookNext::End("booked".into()))
    }
}

/// Talks to a hotel.
#[derive(Parser)]
struct Args {
    /// The model, as provider::name; without it a recorded conversation is shown.
    #[arg(long)]
    model: Option<ModelSelection>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Err(error) = talk(Args::parse().model).await else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

async fn talk(model: Option<ModelSelection>) -> Result<()> {
    let recorded = model.is_none();
    let model = model.map_or_else(|| "recorded::conversation".parse(), Ok)?;
    let script = ScriptedModel::new()
        .tool_call("search_rooms", json!({ "people": "2" }))
        .text("Rooms 12 (120 euros) and 21 (170 euros) are free. Which one do you like?")
        .tool_call("choose_room", json!({ "number": 12 }));
    let models: ModelCatalog = provider::catalog().model("recorded::conversation", script);
    let store = flow_core::store::open("memory").await?;
    let builder = Engine::builder().shared_store(store).flow(Hotel { model });
    let engine = builder.models(models).build()?;

    let mut typed = BufReader::new(tokio::io::stdin()).lines();
    let mut script = ["A room for two, please.", "The first one.", "Ada Lovelace", "3"].into_iter();
    println!(
        "{}",
        if recorded { "(no --model: a recorded conversation)" } else { "(ask for a room)" }
    );
    loop {
        let text =
            if recorded { script.next().map(str::to_owned) } else { typed.next_line().await? };
        let Some(text) = text else { return Ok(()) };
        if recorded {
            println!("> {text}");
        }
        let request = TurnRequest::new(SessionId::new("guest")?).message(text);
        let outcome = engine.turn::<Hotel>(request).await?;
        for reply in &outcome.replies {
            println!("{reply}");
        }
        if outcome.is_ended() {
            return Ok(());
        }
    }
}
