use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};

use super::report::{BatchRecord, session_of};
use super::{
    BATCH_RECORD_ITEMS, BATCH_RECORDS, ITEM_BUSY_PATIENCE, ITEM_FIRST_WAIT, ITEM_LONGEST_WAIT,
    ITEM_TEXT_BYTES,
};
use crate::effect::Place;
use crate::error::{Error, SessionError, StoreError, TurnError};
use crate::event::{Event, EventSink};
use crate::id::SessionId;
use crate::session::{ErrorRecord, ItemGroup, ItemOutcome, Parent};
use crate::step::Scope;
use crate::step::call::callers;
use crate::step::child::{ChildTurn, Children};
use crate::time::Timestamp;

/// The turn of an item has the same id in each attempt and after each crash: one that is over
/// gives its recorded outcome, one that is not goes on.
const ITEM_TURN: &str = "item";

/// How many hexadecimal digits of the digest of the items stand in the ids of their sessions. An
/// action that failed may begin other items at the same place, when it hears something else.
const SESSION_DIGEST: usize = 8;

/// A batch tells its progress each time so many parts of it are over.
const PROGRESS_PARTS: usize = 100;

/// The wait before a busy session is asked for again. It doubles each time.
const BUSY_FIRST_WAIT: Duration = Duration::from_millis(50);
const BUSY_LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A batch that is to be run.
pub(super) struct Batch<'a> {
    pub(super) scope: &'a Scope,
    pub(super) children: Arc<dyn Children>,
    pub(super) flow: &'static str,
    /// How the sessions of the items belong to this one.
    pub(super) parent: Parent,
    /// What the sessions of the items begin with.
    pub(super) states: Vec<Value>,
    pub(super) digest: String,
    pub(super) limit: usize,
    pub(super) retries: u32,
}

/// What is known of the items.
struct Tally {
    outcomes: Vec<Option<ItemOutcome>>,
    done: usize,
    failed: usize,
    /// How many were over when the batch went on.
    before: usize,
    began: Timestamp,
}

impl Batch<'_> {
    /// Runs the items that are not over.
    pub(super) async fn run(mut self, place: Place) -> Result<BatchRecord, ErrorRecord> {
        let digest = u32::from_str_radix(&self.digest[..SESSION_DIGEST], 16).unwrap_or_default();
        let family = self.scope.session.child(self.scope.visit, &format!("{place}-{digest}"));
        let states = std::mem::take(&mut self.states);
        let recorded = self.scope.journal.items(&place);
        let mut tally = Tally::new(states.len(), recorded, self.scope.clock.now());
        self.tell(&tally);
        let turn = self.begin_turn(&family);
        let every = BATCH_RECORD_ITEMS.max(tally.total().div_ceil(BATCH_RECORDS));

        let left = states.into_iter().enumerate().filter(|(index, _)| tally.is_left(*index));
        let mut left = left.collect::<Vec<_>>().into_iter();
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < self.limit
                && let Some((index, state)) = left.next()
            {
                let session = SessionId::try_from(session_of(family.as_str(), index));
                let session = session.map_err(|error| ErrorRecord::from(&error.into()))?;
                let turn = ChildTurn { session, state, ..turn.clone() };
                running.push(run_item(&*self.children, index, turn, self.retries));
            }
            let Some((index, outcome)) = running.next().await else { break };
            // What is wrong with all items is wrong with the batch.
            let outcome = outcome.map_err(|error| ErrorRecord::from(&error))?;
            tally.finish(index, outcome);
            if tally.tells() {
                self.tell(&tally);
            }
            if tally.done.is_multiple_of(every) && tally.done < tally.total() {
                self.record(&place, &tally).await;
            }
        }
        Ok(BatchRecord { sessions: family.to_string(), items: tally.groups() })
    }

    /// What the turns of all items have in common.
    fn begin_turn(&self, family: &SessionId) -> ChildTurn {
        let doc = self.scope.ledger.as_ref().map(|ledger| ledger.doc());
        let (owner, labels, callers) = match &doc {
            Some(doc) => (doc.owner.clone(), doc.labels.clone(), callers(self.scope, doc)),
            None => Default::default(),
        };
        ChildTurn {
            flow: self.flow.to_owned(),
            session: family.clone(),
            parent: self.parent.clone(),
            callers,
            state: Value::Null,
            turn_id: ITEM_TURN.to_owned(),
            message: None,
            answers: Vec::new(),
            goes_on: false,
            releases: false,
            // What says that this session is a batch says nothing about an item.
            context: Map::new(),
            owner,
            labels,
        }
    }

    /// Keeps in the journal which items are over, and commits it if the durability asks for
    /// that.
    async fn record(&self, place: &Place, tally: &Tally) {
        self.scope.journal.set_items(place, tally.groups());
        self.scope.record_effects(false).await;
    }

    fn tell(&self, tally: &Tally) {
        let running = self.limit.min(tally.total() - tally.done);
        self.scope.events.emit(|| Event::BatchProgress {
            step: self.scope.step.clone(),
            flow: self.flow.to_owned(),
            total: tally.total(),
            done: tally.done,
            failed: tally.failed,
            running,
            eta_ms: tally.estimate(self.scope.clock.now()),
        });
    }
}

impl Tally {
    fn new(total: usize, recorded: Vec<ItemGroup>, began: Timestamp) -> Self {
        let outcomes = vec![None; total];
        let mut tally = Self { outcomes, done: 0, failed: 0, before: 0, began };
        for ItemGroup { items, outcome } in recorded {
            for index in items.iter().take_while(|index| *index < total) {
                tally.finish(index, outcome.clone());
            }
        }
        tally.before = tally.done;
        tally
    }

    fn total(&self) -> usize {
        self.outcomes.len()
    }

    fn is_left(&self, index: usize) -> bool {
        self.outcomes[index].is_none()
    }

    fn finish(&mut self, index: usize, outcome: ItemOutcome) {
        self.done += 1;
        self.failed += usize::from(outcome.is_failed());
        self.outcomes[index] = Some(outcome.cut(ITEM_TEXT_BYTES));
    }

    /// Whether the item that has just ended is one whose end is told.
    fn tells(&self) -> bool {
        let every = self.total().div_ceil(PROGRESS_PARTS).max(1);
        self.done.is_multiple_of(every) || self.done == self.total()
    }

    /// How long it will take until all are over, as fast as it went so far, in milliseconds.
    fn estimate(&self, now: Timestamp) -> Option<u64> {
        let done = u128::try_from(self.done - self.before).ok().filter(|done| *done > 0)?;
        let left = (self.total() - self.done) as u128;
        u64::try_from(now.since(self.began).as_millis() * left / done).ok()
    }

    /// The items that are over, those of the same outcome together, in an order that does not
    /// depend on which ended first.
    fn groups(&self) -> Vec<ItemGroup> {
        let mut groups: Vec<ItemGroup> = Vec::new();
        let mut places: HashMap<&ItemOutcome, usize> = HashMap::new();
        for (index, outcome) in self.outcomes.iter().enumerate() {
            let Some(outcome) = outcome else { continue };
            let place = *places.entry(outcome).or_insert_with(|| {
                let group = ItemGroup { items: Default::default(), outcome: outcome.clone() };
                groups.push(group);
                groups.len() - 1
            });
            groups[place].items.push(index);
        }
        groups
    }
}

/// Takes the turn of an item, as often as it may help. An error is one of the whole batch.
async fn run_item(
    children: &dyn Children,
    index: usize,
    turn: ChildTurn,
    retries: u32,
) -> (usize, Result<ItemOutcome, Error>) {
    let mut waits = ExponentialBuilder::default()
        .with_min_delay(ITEM_FIRST_WAIT)
        .with_max_delay(ITEM_LONGEST_WAIT)
        .with_max_times(retries as usize)
        .with_jitter()
        .build();
    let busy = ExponentialBuilder::default()
        .with_min_delay(BUSY_FIRST_WAIT)
        .with_max_delay(BUSY_LONGEST_WAIT)
        .without_max_times();
    let mut busy_waits = busy.build();
    let mut busy_since = None;
    loop {
        let error = match children.turn(turn.clone(), EventSink::default()).await {
            Ok(child) => return (index, Ok(child.outcome.into())),
            // The host has taken the session further, to its end.
            Err(Error::Session(SessionError::Ended { reason, .. })) => {
                return (index, Ok(ItemOutcome::Ended { reason }));
            }
            Err(error @ Error::Turn(TurnError::UnknownFlow { .. })) => return (index, Err(error)),
            Err(error) => error,
        };
        let is_busy = matches!(error, Error::Store(StoreError::Busy { .. }));
        if is_busy && busy_since.get_or_insert_with(Instant::now).elapsed() < ITEM_BUSY_PATIENCE {
            sleep(busy_waits.next().unwrap_or(BUSY_LONGEST_WAIT)).await;
            continue;
        }
        busy_since = None;
        busy_waits = busy.build();
        let wait = if error.retryable() { waits.next() } else { None };
        let Some(wait) = wait else {
            return (index, Ok(ItemOutcome::Failed { error: shorten(&error) }));
        };
        tracing::debug!(session = %turn.session, code = error.code(), "an item is tried again");
        sleep(wait).await;
    }
}

/// The error without what is the same for all items but their sessions.
fn shorten(error: &Error) -> ErrorRecord {
    match error {
        Error::Turn(TurnError::Step { error, .. }) => ErrorRecord::of_step(error),
        error => ErrorRecord::from(error),
    }
}
