//! The people, callers and sweepers of a session, and the processes that die under them.

use std::sync::Arc;
use std::time::Duration;

use flow_core::engine::{Delivery, WAKE_RETRY};
use flow_core::prelude::Flow;
use flow_core::session::{EffectKind, Interrupt, SessionDoc, Status, Waiting};
use flow_core::store::SessionStore;
use flow_core::testing::ManualClock;
use flow_core::time::Timestamp;
use flow_core::{Engine, Error, TurnRequest};
use serde_json::json;
use tests::failing_store::{FailingStore, Fault};

use super::{Done, Durability, Script, Trap, session};

/// How often a caller sends a turn before the test gives up.
const ATTEMPTS: usize = 8;

/// The error of a store that fails.
const UNAVAILABLE: &str = "store-unavailable";

/// What is between two effects in the list of what was done.
pub(super) const ANSWERED: &str = "(answered)";
pub(super) const CUT_OFF: &str = "(cut off)";

/// A flow that writes down what it does.
pub(super) trait Played: Flow + Default {
    fn done(&self) -> &Done;
}

impl Played for Script {
    fn done(&self) -> &Done {
        &self.done
    }
}

/// A small generator, so that a seed gives the same case everywhere.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }

    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// What cuts a run off.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cut {
    /// At a call of the store.
    Store { call: usize, fault: Fault },
    /// In an effect; the caller gives up, or the process is dead.
    Effect { trap: Trap, dies: bool },
}

/// Nothing hangs in front of SQLite, whose thread does not stop when the clock does.
pub(super) fn random_cut(random: &mut Random, calls: usize, effects: usize, hangs: bool) -> Cut {
    if random.below(3) == 0 && effects > 0 {
        let trap = Trap { after: random.below(effects), made: random.below(3) > 0 };
        return Cut::Effect { trap, dies: random.below(2) == 0 };
    }
    let faults = [
        Fault::FailBefore,
        Fault::FailAfter,
        Fault::StopBefore,
        Fault::StopAfter,
        Fault::HangBefore,
        Fault::HangAfter,
    ];
    let fault = random.pick(if hangs { &faults } else { &faults[..4] });
    Cut::Store { call: random.below(calls), fault }
}

/// One session, and the process that works on it now.
pub(super) struct World<F> {
    inner: Arc<dyn SessionStore>,
    pub(super) store: FailingStore,
    clock: ManualClock,
    durability: Durability,
    pub(super) flow: F,
    engine: Engine,
    /// How many calls the store got of the processes that are dead.
    calls: usize,
    dies_in_effect: bool,
}

impl<F: Played> World<F> {
    pub(super) fn new(inner: Arc<dyn SessionStore>, durability: Durability) -> Self {
        // Stores have a clock of their own, which is not ahead of this one.
        let clock = ManualClock::at(Timestamp::now().after(Duration::from_secs(3600)));
        let flow = F::default();
        let (store, engine) = begin(&inner, &clock, durability, &flow);
        Self { inner, store, clock, durability, flow, engine, calls: 0, dies_in_effect: false }
    }

    pub(super) fn arm(&mut self, cut: Cut) {
        match cut {
            Cut::Store { call, fault } => self.store.arm(call, fault),
            Cut::Effect { trap, dies } => {
                *self.flow.done().trap.lock().unwrap() = Some(trap);
                self.dies_in_effect = dies;
            }
        }
    }

    pub(super) async fn doc(&self) -> Option<SessionDoc> {
        self.inner.load(&session()).await.expect("the real store answers")
    }

    /// Does something that may be cut off.
    async fn attempt(&mut self, work: impl Future<Output = Result<bool, Error>>) -> bool {
        let done = self.flow.done().clone();
        let result = tokio::select! {
            result = work => result.map_err(|error| assert_eq!(error.code(), UNAVAILABLE, "{error}")),
            () = self.store.hangs() => Err(()),
            () = done.trapped.notified() => {
                if self.dies_in_effect {
                    self.store.stop();
                }
                Err(())
            }
        };
        match result {
            Ok(true) => done.push(ANSWERED),
            Ok(false) => {}
            Err(()) => done.push(CUT_OFF),
        }
        if self.store.is_stopped() {
            self.calls += self.store.calls();
            (self.store, self.engine) =
                begin(&self.inner, &self.clock, self.durability, &self.flow);
        }
        result.is_ok()
    }

    async fn sweep(&mut self) {
        let engine = self.engine.clone();
        let done = self.flow.done().clone();
        let sweep = async move {
            let report = engine.sweep().await?;
            if let Some((_, error)) = report.failed.first() {
                assert_eq!(error.code, UNAVAILABLE, "{error:?}");
                done.push(CUT_OFF);
            }
            Ok(!report.woken.is_empty())
        };
        self.attempt(sweep).await;
    }

    /// Sends a turn until it is answered. Sometimes a sweeper comes first.
    async fn send(&mut self, request: TurnRequest, random: &mut Random) {
        for _ in 0..ATTEMPTS {
            let turn = self.engine.turn::<F>(request.clone());
            if self.attempt(async move { turn.await.map(|_| true) }).await {
                return;
            }
            if random.below(2) == 0 {
                self.sweep().await;
            }
        }
        panic!("never answered: {request:?}, {:?}", self.doc().await);
    }

    /// Sweeps until the session does not wait for a time any more.
    async fn sleep(&mut self, request: &Interrupt) {
        let due = request.deadline.expect("a sleep has an end");
        let pause = due.since(flow_core::time::Clock::now(&self.clock));
        self.clock.advance(pause);
        for _ in 0..ATTEMPTS {
            self.sweep().await;
            let doc = self.doc().await.expect("the session exists");
            let settled = matches!(doc.status, Status::Waiting | Status::Completed);
            let waits = pending(&doc).iter().any(|i| i.request_id == request.request_id);
            if settled && !waits && doc.wake_at.is_none_or(|at| at > due) {
                return;
            }
            self.clock.advance(WAKE_RETRY);
        }
        panic!("sleeps for ever: {:?}", self.doc().await);
    }

    /// Takes the session to the end of the script.
    pub(super) async fn play(&mut self, script: &[String], random: &mut Random) {
        for (turn, text) in script.iter().enumerate() {
            let request = TurnRequest::new(session()).message(text);
            self.send(request.turn_id(format!("turn-{turn}")), random).await;
            loop {
                let doc = self.doc().await.expect("the session exists");
                let pending = pending(&doc);
                if pending.is_empty() {
                    break;
                }
                let request = &pending[random.below(pending.len())];
                let id = request.request_id.clone();
                let delivery = match request.kind {
                    EffectKind::Sleep => {
                        self.sleep(request).await;
                        continue;
                    }
                    EffectKind::Approval => Delivery::approve(&id).by("ada"),
                    EffectKind::Signal => Delivery::signal("paid", json!({ "cents": 7 })),
                    EffectKind::Choice => Delivery::payload(&id, "red"),
                    EffectKind::Message => {
                        let text = super::nested::answer(&request.display.title);
                        let request = TurnRequest::new(session()).message(text);
                        self.send(request.turn_id(format!("message-{id}")), random).await;
                        continue;
                    }
                    other => panic!("nobody answers {other:?}"),
                };
                let request = TurnRequest::new(session()).deliver(delivery.signal_id(id));
                self.send(request, random).await;
            }
        }
    }
}

fn begin<F: Flow>(
    inner: &Arc<dyn SessionStore>,
    clock: &ManualClock,
    durability: Durability,
    flow: &F,
) -> (FailingStore, Engine) {
    let store = FailingStore::shared(inner.clone());
    let builder = Engine::builder().store(store.clone()).clock(clock.clone());
    // The lease of a process that is dead is over at once.
    let builder = builder.durability(durability).lease(Duration::ZERO);
    (store, builder.flow(flow.clone()).build().expect("the flow is well declared"))
}

fn pending(doc: &SessionDoc) -> Vec<Interrupt> {
    match &doc.waiting {
        Some(Waiting::Interrupts { pending }) => pending.clone(),
        _ => Vec::new(),
    }
}
