use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::build::Registered;
use super::{Core, TurnOutcome, TurnRequest};
use crate::error::{Error, TurnError};
use crate::event::{Event, EventStream, channel};
use crate::id::SessionId;

/// A turn that runs.
///
/// It is a stream of the turn's [`Event`]s and a future of its [`TurnOutcome`]. The turn runs
/// on a task of its own, whether the handle is polled or not. Dropping the handle cancels the
/// turn at its next await: the session stays at its last commit.
///
/// # A listener that is slow
///
/// At most [`Limits::events`] events wait to be read. When there are as many, the turn waits
/// for the listener before the next call of a model, the next piece of its answer, the next
/// tool call of an action and the next step, but not longer than [`Limits::listener_patience`]
/// in the whole turn, and an attempt's time-out does not run meanwhile. After that the turn goes
/// on as fast as it can, and text deltas and a step's own events for which there is no room are left out: an
/// [`Event::Lagged`] in their place says how many. All other events are kept, up to four times
/// the limit, and the last ones (`error`, `turn-end`) always.
///
/// A handle that is awaited and not read is no listener: its turn waits for nobody, and what
/// was told can still be read afterwards, up to the limit. One that is neither may be about to
/// be read, so it is waited for. The outcome and the session document are the same whoever
/// listens.
///
/// [`Limits::events`]: super::Limits::events
/// [`Limits::listener_patience`]: super::Limits::listener_patience
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
    events: EventStream,
    task: JoinHandle<Result<TurnOutcome, Error>>,
    cancel: CancellationToken,
}

impl TurnHandle {
    pub(super) fn spawn(
        core: Arc<Core>,
        flow: Result<Arc<dyn Registered>, Error>,
        request: TurnRequest,
    ) -> Self {
        let limits = core.limits;
        let (sink, events) = channel(limits.events, limits.listener_patience);
        let cancel = CancellationToken::new();
        let session = request.session.clone();
        let token = cancel.clone();
        let turn = async move { flow?.run(core, request, sink, token).await };
        let task = tokio::spawn(turn.in_current_span());
        Self { session, events, task, cancel }
    }

    /// The session.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The next event, or nothing once the turn is over.
    pub async fn next_event(&mut self) -> Option<Event> {
        poll_fn(|cx| self.events.poll_next(cx)).await
    }

    /// Stops the turn at its next await. The future then gives
    /// [`TurnError::Cancelled`], unless the turn was over before.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }
}

impl Stream for TurnHandle {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.events.poll_next(cx)
    }
}

impl Future for TurnHandle {
    type Output = Result<TurnOutcome, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.events.skip();
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
