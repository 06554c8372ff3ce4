//! Faults of a declaration that are found when the engine is built.

use flow_core::Engine;
use flow_core::error::{BuildError, Error};
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;

/// A flow with a tool that one of its steps has too.
#[flow(id = "desk", version = 1, steps(Front), tools)]
#[derive(Debug, Clone)]
struct Desk;

impl Flow for Desk {}

#[tools(flow)]
impl Desk {
    /// Finds a guest.
    #[tool]
    async fn find(&self) -> Result<String> {
        Ok(String::new())
    }
}

/// Speaks with guests.
#[step(reply, tools, next(stay))]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Front;

impl Reply for Front {
    type Flow = Desk;
}

#[tools]
impl Front {
    /// Finds a room.
    #[tool(name = "find")]
    async fn find_room(&mut self) -> Result<String> {
        Ok(String::new())
    }
}

#[test]
fn a_tool_of_a_step_cannot_have_the_name_of_one_of_the_flow() {
    let error = Engine::builder().store(MemoryStore::new()).flow(Desk).build().unwrap_err();
    let Error::Build(BuildError::DuplicateTool { place, tool, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!((place.as_str(), tool.as_str()), ("step `Front`", "find"));
}
