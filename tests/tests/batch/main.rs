//! Batches: one flow for each of many items, in sessions of their own.

mod crashes;
mod outcomes;
mod progress;
mod side_by_side;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use flow_core::engine::Limits;
use flow_core::error::Error;
use flow_core::event::Event;
use flow_core::id::SessionId;
use flow_core::outcome::Outcome;
use flow_core::session::SessionDoc;
use flow_core::store::memory::MemoryStore;
use flow_core::store::{ListQuery, SessionStore};
use flow_core::testing::ManualClock;
use flow_core::{Durability, Engine, TurnOutcome, TurnRequest};
use tests::batch_flow::{Done, Jobs, Plan, Spreads, Summary};

const DURABILITIES: [Durability; 3] = [Durability::Crossing, Durability::Turn, Durability::Effect];

/// A batch in a store that outlives its engines.
struct Setup {
    store: Arc<dyn SessionStore>,
    clock: ManualClock,
    durability: Durability,
    limits: Limits,
    lease: Duration,
    spreads: Spreads,
    jobs: Jobs,
}

impl Setup {
    fn new(durability: Durability) -> Self {
        Self {
            store: Arc::new(MemoryStore::new()),
            clock: ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap()),
            durability,
            limits: Limits::default(),
            lease: Duration::from_secs(30),
            spreads: Spreads::default(),
            jobs: Jobs::default(),
        }
    }

    fn engine(&self) -> Engine {
        self.engine_on(self.store.clone())
    }

    fn engine_on(&self, store: Arc<dyn SessionStore>) -> Engine {
        let builder = Engine::builder().shared_store(store).clock(self.clock.clone());
        let builder = builder.durability(self.durability).limits(self.limits).lease(self.lease);
        builder.flow(self.spreads.clone()).flow(self.jobs.clone()).build().unwrap()
    }

    async fn run(&self, plan: &Plan) -> Result<TurnOutcome, Error> {
        self.engine().turn::<Spreads>(request(plan)).await
    }

    async fn doc(&self, id: &SessionId) -> SessionDoc {
        self.store.load(id).await.unwrap().expect("the session exists")
    }

    async fn summary(&self) -> Summary {
        serde_json::from_value(self.doc(&session()).await.state).unwrap()
    }

    /// The sessions of the items, by their numbers.
    async fn items(&self) -> BTreeMap<usize, SessionDoc> {
        let flow = Some("job".to_owned());
        let query = ListQuery { flow, limit: 20_000, ..ListQuery::default() };
        let mut items = BTreeMap::new();
        for summary in self.store.list(&query).await.unwrap() {
            let doc = self.doc(&summary.id).await;
            let n = doc.state["n"].as_u64().unwrap() as usize;
            assert!(items.insert(n, doc).is_none(), "item {n} has two sessions");
        }
        items
    }

    fn done(&self) -> Tally {
        Tally::of(&self.jobs.done)
    }
}

/// How often the tool of each item was called, and with how many keys.
#[derive(Debug, Default)]
struct Tally {
    done: BTreeMap<usize, usize>,
    failed: BTreeMap<usize, usize>,
    keys: BTreeMap<usize, BTreeSet<String>>,
}

impl Tally {
    fn of(done: &Done) -> Self {
        let mut tally = Self::default();
        for line in done.take() {
            let words: Vec<&str> = line.split(' ').collect();
            let [how, key, n] = words[..] else { panic!("{line}") };
            let n = n.parse().unwrap();
            let count = if how == "done" { &mut tally.done } else { &mut tally.failed };
            *count.entry(n).or_default() += 1;
            tally.keys.entry(n).or_default().insert(key.to_owned());
        }
        tally
    }

    /// The items that were done another number of times than once.
    fn repeated(&self) -> Vec<usize> {
        self.done.iter().filter(|(_, count)| **count != 1).map(|(n, _)| *n).collect()
    }
}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

fn request(plan: &Plan) -> TurnRequest {
    TurnRequest::new(session()).message(plan.message())
}

fn ended(outcome: &TurnOutcome) -> &str {
    match &outcome.outcome {
        Outcome::Ended { reason } => reason,
        other => panic!("{other:?}"),
    }
}

/// `total done failed running eta` of a progress event.
type Progress = (usize, usize, usize, usize, Option<u64>);

fn progress(event: &Event) -> Option<Progress> {
    match event {
        Event::BatchProgress { step, flow, total, done, failed, running, eta_ms } => {
            assert_eq!((&**step, flow.as_str()), ("Spread", "job"));
            Some((*total, *done, *failed, *running, *eta_ms))
        }
        _ => None,
    }
}
