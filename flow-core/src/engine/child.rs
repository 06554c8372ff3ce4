//! Turns of the sessions that an action of another one begins.

use std::future::Future;
use std::pin::Pin;

use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::turn::cancelled;
use super::{Engine, TurnOutcome, TurnRequest};
use crate::error::Error;
use crate::id::SessionId;
use crate::session::SessionDoc;
use crate::step::EventSink;
use crate::step::child::{ChildOutcome, ChildTurn, Children};

type Running<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

impl Children for Engine {
    fn turn(&self, turn: ChildTurn, events: EventSink) -> Running<'_, ChildOutcome> {
        Box::pin(async move {
            let flow = self.flow(&turn.flow)?;
            let request = TurnRequest {
                message: turn.message,
                turn_id: Some(turn.turn_id),
                parent: Some(turn.parent),
                state: Some(turn.state),
                answers: turn.answers,
                callers: turn.callers,
                goes_on: turn.goes_on,
                releases: turn.releases,
                context: turn.context,
                owner: turn.owner,
                labels: turn.labels,
                ..TurnRequest::new(turn.session)
            };
            let session = request.session.clone();
            // On a task of its own: dropped in the middle it still gives its lease back, and
            // the next turn of the session waits for that.
            let cancel = CancellationToken::new();
            let running = flow.run(self.core.clone(), request, events, cancel.clone());
            let running = tokio::spawn(running.in_current_span());
            let _guard = cancel.drop_guard();
            let ran = running.await.map_err(|_| cancelled(&session))??;
            let TurnOutcome { outcome, replies, repeated, .. } = ran;
            Ok(ChildOutcome { outcome, replies, repeated })
        })
    }

    fn load<'a>(&'a self, session: &'a SessionId) -> Running<'a, Option<SessionDoc>> {
        Box::pin(async move { Ok(self.core.store.load(session).await?) })
    }
}
