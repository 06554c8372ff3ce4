//! A model sees the schema of the arguments.

use flow_core::prelude::*;

#[flow(steps(Talk))]
#[derive(Clone)]
struct Hotel;

#[step(reply, tools, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk;

impl Reply for Talk {
    type Flow = Hotel;
}

#[derive(Deserialize)]
struct Room;

#[tools]
impl Talk {
    /// Searches.
    #[tool]
    async fn search(&self, room: Room, nights: u8) -> u8 {
        let _ = room;
        nights
    }
}

fn main() {}
