//! A hotel's assistant: a model speaks, reads forms and decides; the booking itself is code.
//!
//! | step | kind | memory | what happens |
//! | --- | --- | --- | --- |
//! | `Explore` | reply | `explore` | the model finds a room with the guest, with tools of the step and one of the flow; older messages become a summary |
//! | `Checkout` | collect | `checkout` | takes name, nights and a wish: the nights in code where they can be, the rest by the model |
//! | `Review` | decide | `checkout` | the model says whether a person has to see to the wish |
//! | `Book` | action | | charges and ends |

use std::time::Duration;

use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{CallPolicy, ModelConfig, ModelSelection};
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
    /// What somebody has to see to.
    pub wish: Option<String>,
}

impl Flow for Hotel {
    fn config_model(&self) -> Option<ModelConfig> {
        Some(self.model.clone().into())
    }

    fn config_call_policy(&self) -> CallPolicy {
        // A model on the guest's own machine may take its time.
        CallPolicy::default().attempt_timeout(Duration::from_secs(300))
    }

    fn config_memory(&self) -> MemoryPolicy {
        // Early, so that the recorded conversation shows it.
        MemoryPolicy::default().summary(SummaryPolicy::default().min_messages(8).keep_recent(4))
    }
}

/// A room as the model sees it.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct Room {
    number: u32,
    beds: u8,
    euros_per_night: u32,
}

const ROOMS: [Room; 3] = [
    Room { number: 7, beds: 1, euros_per_night: 80 },
    Room { number: 12, beds: 2, euros_per_night: 120 },
    Room { number: 21, beds: 3, euros_per_night: 170 },
];

/// What guests ask about.
#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    /// When it is served.
    Breakfast,
    /// Whether they may come.
    Pets,
    /// Where, and for how much.
    Parking,
}

#[tools(flow)]
impl Hotel {
    /// Tells about the house.
    #[tool]
    async fn about_house(&self, topic: Topic) -> Result<String> {
        Ok(match topic {
            Topic::Breakfast => "Breakfast is from 7 to 10 and costs 15 euros.",
            Topic::Pets => "Dogs are welcome, without a fee.",
            Topic::Parking => "There is free parking behind the house.",
        }
        .into())
    }

    /// Charges the guest and returns the booking number. Only the action calls it: no step
    /// offers it to its model.
    #[tool]
    async fn charge(&self, cx: &ToolCx, euros: u32) -> Result<String> {
        Ok(format!("bk_{euros}_{}", cx.idempotency_key().len()))
    }
}

/// Finds rooms with the guest.
#[step(reply, tools, flow_tools(AboutHouse), memory = "explore", next(Checkout(Room), stay))]
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

/// Takes what the booking needs.
#[step(collect, input = Room, memory = "checkout", next(Review))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Checkout {
    /// The guest's name.
    #[slot(verbatim, ask = "Under which name shall I book?")]
    name: Option<String>,
    /// How many nights the guest stays.
    #[slot(range(1, 30), ask = "For how many nights?")]
    nights: Option<u8>,
    /// What somebody of the hotel has to see to, in a few words, e.g. a cot.
    #[slot(optional)]
    wish: Option<String>,
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
        cx.state.wish = data.wish;
        Ok(CheckoutNext::Review)
    }
}

/// Says who can see to the guest's wish.
#[step(decide, memory = "checkout", next(Book, escalate))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Review;

/// Who sees to a wish.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Care {
    /// The house does that every day: cots, late arrivals, quiet rooms. Also when there is no
    /// wish.
    House,
    /// Only the manager can say whether it is possible.
    Manager,
}

impl Decide for Review {
    type Flow = Hotel;
    type Verdict = Care;

    fn instructions(&self, cx: &Cx<'_>) -> Prompt {
        let wish = cx.state.wish.as_deref().unwrap_or("none");
        format!("A guest books a hotel room. Say who sees to the guest's wish: {wish}").into()
    }

    async fn decide(&mut self, care: Care, cx: &mut Cx<'_>) -> Result<ReviewNext> {
        Ok(match care {
            Care::House => ReviewNext::Book,
            Care::Manager => {
                cx.say("I have asked our manager, who will be with you soon.");
                ReviewNext::Escalate("a wish for the manager".into())
            }
        })
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
        let Booking { guest, room, wish, .. } = &cx.state;
        let wish = wish.as_ref().map_or(String::new(), |wish| format!(" Noted: {wish}."));
        let text =
            format!("Room {room} is yours, {guest}: {euros} euros, booking {booking}.{wish}");
        cx.say(text);
        Ok(BookNext::End("booked".into()))
    }
}

/// What the guest says in the recorded conversation.
pub const RECORDED: [&str; 5] = [
    "Hello, a room for two, please.",
    "Is there breakfast, and may my dog come?",
    "Then the first one, please.",
    "Ada Lovelace. And please put a cot in the room.",
    "3",
];

/// What the model answers in it.
pub fn recorded() -> ScriptedModel {
    ScriptedModel::new()
        .tool_call("search_rooms", json!({ "people": "2" }))
        .text("Rooms 12 (120 euros) and 21 (170 euros) are free. Which one do you like?")
        .tool_calls([
            ("about_house", json!({ "topic": "breakfast" })),
            ("about_house", json!({ "topic": "pets" })),
        ])
        .text("Breakfast is from 7 to 10, and your dog is welcome.")
        // The summary of what was said before the third turn.
        .text("The guest wants a room for two. Rooms 12 (120 euros) and 21 (170 euros) are free.")
        .tool_call("choose_room", json!({ "number": 12 }))
        .tool_call("submit_checkout_data", json!({ "name": "Ada Lovelace", "wish": "a cot" }))
        .tool_call("submit_care", json!({ "value": "house" }))
}
