//! Turns of the sessions that an action of another one begins.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio_util::sync::CancellationToken;

use super::{Engine, TurnOutcome, TurnRequest};
use crate::error::Error;
use crate::id::SessionId;
use crate::session::SessionDoc;
use crate::step::EventSink;
use crate::step::child::{ChildOutcome, ChildTurn, Children};

type Turn<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A turn that is cancelled when it is dropped: it then gives its session back on a task of its
/// own, and until it has, the next turn of the session waits for it.
struct Running {
    /// Nothing once it is over.
    turn: Option<Turn<'static, TurnOutcome>>,
    cancel: CancellationToken,
}

impl Future for Running {
    type Output = Result<TurnOutcome, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(turn) = &mut self.turn else { return Poll::Pending };
        let outcome = ready!(turn.as_mut().poll(cx));
        self.turn = None;
        Poll::Ready(outcome)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.cancel();
        if let Some(turn) = self.turn.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(turn);
        }
    }
}

impl Children for Engine {
    fn batch_items(&self) -> usize {
        self.core.limits.batch_items
    }

    fn turn(&self, turn: ChildTurn, events: EventSink) -> Turn<'_, ChildOutcome> {
        Box::pin(async move {
            let flow = self.flow(&turn.flow)?;
            let request = TurnRequest {
                message: turn.message,
                turn_id: Some(turn.turn_id),
                parent: Some(turn.parent),
                owner: turn.owner,
                labels: turn.labels,
                state: Some(turn.state),
                ..TurnRequest::new(turn.session)
            };
            let cancel = CancellationToken::new();
            let turn = flow.run(self.core.clone(), request, events, cancel.clone());
            let outcome = Running { turn: Some(turn), cancel }.await?;
            Ok(ChildOutcome { outcome: outcome.outcome, replies: outcome.replies })
        })
    }

    fn load<'a>(&'a self, session: &'a SessionId) -> Turn<'a, Option<SessionDoc>> {
        Box::pin(async move { Ok(self.core.store.load(session).await?) })
    }
}
