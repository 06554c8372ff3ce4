//! The flow that all benchmarks run: two steps that do nothing but go to each other.

use flow_core::prelude::*;

/// Goes back and forth as often as the message says, then waits.
#[flow(id = "bounce", steps(Ping, Pong), state = Left)]
#[derive(Clone)]
pub struct Bounce;

impl Flow for Bounce {}

/// How many crossings are left.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub struct Left {
    /// The number.
    pub crossings: u32,
}

fn take(cx: &mut ActionCx<'_, Bounce>) -> Result<bool> {
    if let Some(message) = cx.take_message() {
        cx.state.crossings = message.parse().unwrap_or(0);
    }
    let go = cx.state.crossings > 0;
    cx.state.crossings = cx.state.crossings.saturating_sub(1);
    Ok(go)
}

/// Goes to [`Pong`].
#[step(action, next(Pong, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub struct Ping;

impl Action for Ping {
    type Flow = Bounce;

    async fn run(&mut self, cx: &mut ActionCx<'_, Bounce>) -> Result<PingNext> {
        Ok(if take(cx)? { PingNext::Pong } else { PingNext::Stay })
    }
}

/// Goes to [`Ping`].
#[step(action, next(Ping, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub struct Pong;

impl Action for Pong {
    type Flow = Bounce;

    async fn run(&mut self, cx: &mut ActionCx<'_, Bounce>) -> Result<PongNext> {
        Ok(if take(cx)? { PongNext::Ping } else { PongNext::Stay })
    }
}
