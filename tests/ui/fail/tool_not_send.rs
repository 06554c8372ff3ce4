//! The engine may run a tool on any thread.

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

use std::rc::Rc;

#[tools]
impl Talk {
    /// Searches.
    #[tool]
    async fn search(&self, city: String) -> u8 {
        let shared = Rc::new(city);
        std::future::ready(()).await;
        shared.len() as u8
    }
}

fn main() {}
