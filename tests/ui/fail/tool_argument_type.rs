//! A model sends arguments as JSON.

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

struct Room;

#[tools]
impl Talk {
    /// Searches.
    #[tool]
    async fn search(&self, room: Room, nights: u8) -> u8 {
        let _ = room;
        nights
    }

    /// Finds.
    #[tool]
    fn find(&self, room: Room) {
        let _ = room;
    }
}

fn main() {}
