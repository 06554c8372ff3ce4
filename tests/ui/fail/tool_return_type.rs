//! A result is something that serialises.

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
    async fn search(&self) -> Vec<Room> {
        Vec::new()
    }

    /// Finds.
    #[tool]
    fn find(&self) -> Result<Room> {
        Ok(Room)
    }
}

fn main() {}
