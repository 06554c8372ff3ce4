//! The way of events from a turn to whoever listens: bounded, and never in the turn's way
//! for longer than its patience.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Event;

/// How many times the limit the events may take that are not text or a step's own.
const RESERVE: usize = 4;

/// A way for the events of one turn. At most `limit` of them wait to be read, and the turn
/// waits for the reader no longer than `patience` in all.
pub(crate) fn channel(limit: usize, patience: Duration) -> (EventSink, EventStream) {
    let state =
        State { queue: VecDeque::new(), patience, awaited: false, done: false, reader: None };
    let shared = Arc::new(Shared {
        limit: limit.max(1),
        closed: AtomicBool::new(false),
        state: Mutex::new(state),
        changed: Notify::new(),
    });
    let sender = Some(Arc::new(Sender(shared.clone())));
    (EventSink { sender, called: false }, EventStream(shared))
}

/// Where the events of a turn go. The default goes nowhere.
#[derive(Clone, Default)]
pub(crate) struct EventSink {
    sender: Option<Arc<Sender>>,
    /// Whether the events are those of a called session, and told as part of its caller's turn.
    called: bool,
}

/// Where the events of a turn come from.
pub(crate) struct EventStream(Arc<Shared>);

/// Ends the stream when the last sink is dropped.
struct Sender(Arc<Shared>);

struct Shared {
    limit: usize,
    /// The reader is gone.
    closed: AtomicBool,
    state: Mutex<State>,
    /// Wakes a turn that waits for room.
    changed: Notify,
}

struct State {
    queue: VecDeque<Event>,
    /// How long the turn may still wait.
    patience: Duration,
    /// The outcome is waited for, and not the events.
    awaited: bool,
    /// The turn is over.
    done: bool,
    reader: Option<Waker>,
}

impl EventSink {
    /// The same way for a called session: what is about its own turn as a whole is not told.
    pub(crate) fn of_called(&self) -> Self {
        Self { called: true, ..self.clone() }
    }

    /// Makes the event only when it can be read. This never waits: when there is no room,
    /// what may be left out is left out, and counted.
    pub(crate) fn emit(&self, event: impl FnOnce() -> Event) {
        let Some(Sender(shared)) = self.sender.as_deref() else { return };
        if shared.closed.load(Ordering::Relaxed) {
            return;
        }
        // Not under the lock: it may run code of users.
        let event = event();
        if self.called && event.is_frame() {
            return;
        }
        let mut state = shared.lock();
        state.push(event, shared.limit);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Waits until there is room for an event, nobody reads, or the patience is used up.
    /// Tells how long that took.
    pub(crate) async fn ready(&self) -> Duration {
        let Some(Sender(shared)) = self.sender.as_deref() else { return Duration::ZERO };
        if shared.has_room() {
            return Duration::ZERO;
        }
        let patience = shared.lock().patience;
        let begin = Instant::now();
        let room = async {
            loop {
                let mut changed = std::pin::pin!(shared.changed.notified());
                changed.as_mut().enable();
                if shared.has_room() {
                    return;
                }
                changed.await;
            }
        };
        let waited = tokio::time::timeout(patience, room).await;
        let elapsed = begin.elapsed();
        let mut state = shared.lock();
        state.patience = match waited {
            Ok(()) => state.patience.saturating_sub(elapsed),
            Err(_) => Duration::ZERO,
        };
        drop(state);
        if waited.is_err() {
            tracing::warn!(limit = shared.limit, "the listener of the turn lags behind");
        }
        elapsed
    }
}

impl EventStream {
    /// The next event, or nothing once the turn is over.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut state = self.0.lock();
        state.awaited = false;
        if let Some(event) = state.queue.pop_front() {
            drop(state);
            self.0.changed.notify_waiters();
            return Poll::Ready(Some(event));
        }
        if state.done {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The next event, if one waits.
    #[cfg(feature = "testing")]
    pub(crate) fn try_next(&self) -> Option<Event> {
        self.0.lock().queue.pop_front()
    }

    /// From now on only the outcome is waited for, until an event is asked for.
    pub(crate) fn skip(&self) {
        let skipped = std::mem::replace(&mut self.0.lock().awaited, true);
        if !skipped {
            self.0.changed.notify_waiters();
        }
    }
}

impl State {
    fn push(&mut self, event: Event, limit: usize) {
        let room = match &event {
            Event::TextDelta { .. } | Event::Custom { .. } => limit,
            Event::Error { .. } | Event::TurnEnd { .. } => usize::MAX,
            _ => limit.saturating_mul(RESERVE),
        };
        if self.queue.len() < room {
            self.queue.push_back(event);
            return;
        }
        if !matches!(self.queue.back(), Some(Event::Lagged { .. })) {
            let nothing = Event::Lagged { text_deltas: 0, custom_events: 0, other_events: 0 };
            self.queue.push_back(nothing);
        }
        if let Some(Event::Lagged { text_deltas, custom_events, other_events }) =
            self.queue.back_mut()
        {
            let count = match event {
                Event::TextDelta { .. } => text_deltas,
                Event::Custom { .. } => custom_events,
                _ => other_events,
            };
            *count += 1;
        }
    }
}

impl Shared {
    /// Whether there is no reason to wait.
    fn has_room(&self) -> bool {
        let state = self.lock();
        self.closed.load(Ordering::Relaxed)
            || state.awaited
            || state.patience.is_zero()
            || state.queue.len() < self.limit
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.done = true;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Relaxed);
        let unread = std::mem::take(&mut self.0.lock().queue);
        drop(unread);
        self.0.changed.notify_waiters();
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventSink").field(&self.sender.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(n: usize) -> Event {
        Event::Note { step: "S".into(), text: n.to_string() }
    }

    fn delta() -> Event {
        Event::TextDelta { step: "S".into(), text: "a".into() }
    }

    fn read(stream: &EventStream) -> Vec<Event> {
        let mut cx = Context::from_waker(Waker::noop());
        std::iter::from_fn(|| match stream.poll_next(&mut cx) {
            Poll::Ready(event) => event,
            Poll::Pending => None,
        })
        .collect()
    }

    #[test]
    fn what_is_left_out_is_counted_where_it_is_missing() {
        let (sink, stream) = channel(2, Duration::ZERO);
        for event in [note(0), delta(), delta(), note(1), delta(), delta()] {
            sink.emit(|| event);
        }
        let custom = || Event::Custom { name: "c".into(), payload: 1.into() };
        sink.emit(custom);
        let missed = |text_deltas, custom_events| Event::Lagged {
            text_deltas,
            custom_events,
            other_events: 0,
        };
        assert_eq!(read(&stream), [note(0), delta(), missed(1, 0), note(1), missed(2, 1)]);
        sink.emit(delta);
        assert_eq!(read(&stream), [delta()], "there is room again");
    }

    #[test]
    fn even_what_is_kept_is_bounded_and_the_end_is_always_told() {
        let (sink, stream) = channel(2, Duration::ZERO);
        for n in 0..1000 {
            sink.emit(|| note(n));
        }
        let end = Event::Error { code: "c".into(), message: "m".into(), retryable: false };
        sink.emit(|| end.clone());
        let events = read(&stream);
        assert_eq!(events.len(), 2 * RESERVE + 2, "{events:?}");
        let missed = Event::Lagged { text_deltas: 0, custom_events: 0, other_events: 992 };
        assert_eq!(events[2 * RESERVE..], [missed, end]);
    }

    #[test]
    fn events_are_not_made_for_a_reader_that_is_gone() {
        let (sink, stream) = channel(2, Duration::ZERO);
        drop(stream);
        sink.emit(|| unreachable!("nobody reads it"));
        EventSink::default().emit(|| unreachable!("nobody can read it"));
    }

    #[tokio::test(start_paused = true)]
    async fn patience_is_used_up_over_all_waits() {
        let (sink, stream) = channel(1, Duration::from_secs(5));
        assert_eq!(sink.ready().await, Duration::ZERO);
        sink.emit(delta);
        let reading = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            read(&stream)
        };
        let (waited, events) = tokio::join!(sink.ready(), reading);
        assert_eq!((waited, events), (Duration::from_secs(3), vec![delta()]));
        sink.emit(delta);
        assert_eq!(sink.ready().await, Duration::from_secs(2));
        assert_eq!(sink.ready().await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_the_reader_goes_or_turns_to_the_outcome() {
        for leave in [
            |stream: EventStream| drop(stream),
            |stream: EventStream| {
                stream.skip();
                std::mem::forget(stream);
            },
        ] {
            let (sink, stream) = channel(1, Duration::from_secs(5));
            sink.emit(delta);
            let waiting = async { tokio::join!(sink.ready(), async { leave(stream) }).0 };
            assert_eq!(waiting.await, Duration::ZERO);
        }
    }
}
