//! Panics of user code, made values.

use std::panic::AssertUnwindSafe;
use std::task::Poll;

use crate::error::panic_message;

/// Runs a future and turns a panic into its message.
pub(crate) async fn catch_panic<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(move |cx| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(panic_message(&*payload))),
        }
    })
    .await
}
