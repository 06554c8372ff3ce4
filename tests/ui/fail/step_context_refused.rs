//! A context strategy is one of four words, and `last` says how many messages.

use flow_core::prelude::*;

macro_rules! step {
    ($name:ident: $($context:tt)*) => {
        #[step(action, $($context)*, next(end))]
        #[derive(Default, Serialize, Deserialize, JsonSchema)]
        struct $name;
    };
}

step!(A: context);
step!(B: context = "reset");
step!(C: context = resett);
step!(D: context = forget);
step!(E: context = reset(2));
step!(F: context = last);
step!(G: context = last(0));
step!(H: context = last(few));
step!(I: context = last(1, 2));

fn main() {}
