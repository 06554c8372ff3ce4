use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::build::Registered;
use super::{Core, TurnOutcome, TurnRequest};
use crate::error::{Error, TurnError, panic_message};
use crate::event::Event;
use crate::id::SessionId;
use crate::step::EventSink;

/// A turn that runs.
///
/// It is a stream of the turn's [`Event`]s and a future of its [`TurnOutcome`]. The turn runs
/// on a task of its own, whether the handle is polled or not; events wait for whoever reads
/// them, and their number is bounded by the turn's budgets. Dropping the handle cancels the
/// turn at its next await: the session stays at its last commit.
///
/// ```no_run
/// # async fn run(engine: flow_core::Engine, request: flow_core::TurnRequest) -> Result<(), flow_core::Error> {
/// let mut turn = engine.turn_of("hotel", request);
/// while let Some(event) = turn.next_event().await {
///     println!("{}", event.name());
/// }
/// let outcome = turn.await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a turn is cancelled when its handle is dropped"]
pub struct TurnHandle {
    session: SessionId,
    events: mpsc::UnboundedReceiver<Event>,
    task: JoinHandle<Result<TurnOutcome, Error>>,
    cancel: CancellationToken,
}

impl TurnHandle {
    pub(super) fn spawn(
        core: Arc<Core>,
        flow: Result<Arc<dyn Registered>, Error>,
        request: TurnRequest,
    ) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let cancel = CancellationToken::new();
        let session = request.session.clone();
        let token = cancel.clone();
        let turn = async move { flow?.run(core, request, EventSink(Some(sender)), token).await };
        let task = tokio::spawn(turn.in_current_span());
        Self { session, events, task, cancel }
    }

    /// The session.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The next event, or nothing once the turn is over.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Stops the turn at its next await. The future then gives
    /// [`TurnError::Cancelled`], unless the turn was over before.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }
}

impl Stream for TurnHandle {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.poll_recv(cx)
    }
}

impl Future for TurnHandle {
    type Output = Result<TurnOutcome, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let joined = ready!(Pin::new(&mut self.task).poll(cx));
        Poll::Ready(joined.unwrap_or_else(|_| {
            // Panics are caught within the task, so this is the end of the runtime.
            Err(TurnError::Cancelled { session: self.session.to_string() }.into())
        }))
    }
}

impl Drop for TurnHandle {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl fmt::Debug for TurnHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnHandle").field("session", &self.session).finish_non_exhaustive()
    }
}

/// Runs a future and turns a panic into its message.
pub(super) async fn catch_panic<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(move |cx| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(panic_message(&*payload))),
        }
    })
    .await
}
