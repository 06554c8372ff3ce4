//! The queue of turns of one session within the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::id::SessionId;

type Places = Mutex<HashMap<SessionId, Arc<tokio::sync::Mutex<()>>>>;

/// One fair lock per session that has turns. Sessions without turns take no room.
#[derive(Debug, Default)]
pub(super) struct Queue {
    places: Arc<Places>,
}

/// The turn's place at the head of the queue; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    session: SessionId,
    places: Arc<Places>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Queue {
    /// Waits for the turns of the session that came before.
    pub(super) async fn enter(&self, session: &SessionId) -> Place {
        let lock = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            places.entry(session.clone()).or_default().clone()
        };
        let mut place =
            Place { session: session.clone(), places: self.places.clone(), guard: None };
        place.guard = Some(lock.lock_owned().await);
        place
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.guard = None;
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever waits holds a reference besides the map's own.
        if places.get(&self.session).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            places.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_of_one_session_follow_each_other_and_leave_nothing_behind() {
        let queue = Arc::new(Queue::default());
        let session = SessionId::new("a").unwrap();
        let first = queue.enter(&session).await;
        let waiting = tokio::spawn({
            let (queue, session) = (queue.clone(), session.clone());
            async move { queue.enter(&session).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        let other = queue.enter(&SessionId::new("b").unwrap()).await;
        drop((first, other));
        drop(waiting.await.unwrap());
        assert!(queue.places.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_turn_that_gives_up_waiting_leaves_nothing_behind() {
        let queue = Queue::default();
        let session = SessionId::new("a").unwrap();
        let first = queue.enter(&session).await;
        let waiting = queue.enter(&session);
        let mut waiting = std::pin::pin!(waiting);
        let waits = std::future::poll_fn(|cx| {
            std::task::Poll::Ready(waiting.as_mut().poll(cx).is_pending())
        });
        assert!(waits.await);
        drop(first);
    }
}
