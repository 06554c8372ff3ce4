//! A call gives the value, so a `Result` is called one.

use flow_core::prelude::*;

#[flow(steps(Bye), tools)]
#[derive(Clone)]
struct Hotel;

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bye;

impl Reply for Bye {
    type Flow = Hotel;
}

type Maybe<T> = std::result::Result<T, String>;

#[tools(flow)]
impl Hotel {
    /// Charges.
    #[tool]
    fn charge(&self) -> Maybe<u8> {
        Ok(1)
    }
}

fn main() {}
