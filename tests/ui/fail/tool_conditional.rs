//! What is wrong with a tool is said where it is compiled, and a tool that is not there does not count.

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

#[tools]
impl Talk {
    /// Searches.
    #[cfg(all())]
    #[tool]
    fn search(&self) -> std::thread::ThreadId {
        std::thread::current().id()
    }

    /// Never there.
    #[cfg(any())]
    #[tool]
    fn gone(&self) -> Missing {
        Missing
    }
}

fn main() {}
