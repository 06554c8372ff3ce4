//! Turns of the sessions that an action of another one begins.

use std::future::Future;
use std::pin::Pin;

use tokio_util::sync::CancellationToken;

use super::{Engine, TurnRequest};
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
                ..TurnRequest::new(turn.session)
            };
            let running = flow.run(self.core.clone(), request, events, CancellationToken::new());
            let outcome = running.await?;
            Ok(ChildOutcome { outcome: outcome.outcome, replies: outcome.replies })
        })
    }

    fn load<'a>(&'a self, session: &'a SessionId) -> Running<'a, Option<SessionDoc>> {
        Box::pin(async move { Ok(self.core.store.load(session).await?) })
    }
}
