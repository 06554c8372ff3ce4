//! A hotel's assistant: a model speaks for the reply step and calls typed tools; the booking
//! itself is code.

use std::time::Duration;

use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{CallPolicy, ModelSelection};
use flow_core::prelude::*;
use serde_json::json;

/// Finds a room with the guest and books it.
#[flow(id = "hotel", version = 1, steps(Explore, Checkout, Review, Book), state = Booking, tools)]
#[derive(Clone)]
pub struct Hotel {
    /// The model that speaks.
    pub model: ModelSelection,
}

type Cx<'a> = StepCx<'a, Hotel>;

/// What the steps share.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub struct Booking {
    /// The number of the room.
    pub room: u32,
    /// The name of the guest.
    pub guest: String,
    /// How many nights.
    pub nights: u8,
}

impl Flow for Hotel {
    fn config_model(&self) -> Option<ModelSelection> {
        Some(self.model.clone())
    }

    fn config_call_policy(&self) -> CallPolicy {
        // A model on the guest's own machine may take its time.
        CallPolicy::default().attempt_timeout(Duration::from_secs(300))
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

/// What the guest says in the recorded conversation.
pub const RECORDED: [&str; 4] = ["A room for two, please.", "The first one.", "Ada Lovelace", "3"];

/// What the model answers in it.
pub fn recorded() -> ScriptedModel {
    ScriptedModel::new()
        .tool_call("search_rooms", json!({ "people": "2" }))
        .text("Rooms 12 (120 euros) and 21 (170 euros) are free. Which one do you like?")
        .tool_call("choose_room", json!({ "number": 12 }))
}
