//! Scripts that are cut off anywhere come to the same end, and do nothing more often than the
//! table of [`flow_core::effect`] says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use flow_core::engine::{Delivery, WAKE_RETRY};
use flow_core::message::{Message, Role};
use flow_core::session::{EffectKind, Interrupt, SessionDoc, Status, Waiting};
use flow_core::store::SessionStore;
use flow_core::store::memory::MemoryStore;
use flow_core::store::sqlite::SqliteStore;
use flow_core::testing::ManualClock;
use flow_core::time::Timestamp;
use flow_core::{Engine, Error, TurnRequest};
use serde_json::{Value, json};
use tests::failing_store::{FailingStore, Fault};
use tests::ordering;

use super::{Durability, Script, Trap, session};

/// How many runs are cut off, for each store and durability.
const CRASHES: usize = 500;

/// How many of them are of one script.
const CRASHES_PER_SCRIPT: usize = 10;

/// How often a caller sends a turn before the test gives up.
const ATTEMPTS: usize = 8;

/// The error of a store that fails.
const UNAVAILABLE: &str = "store-unavailable";

/// What is between two effects in the list of what was done.
const ANSWERED: &str = "(answered)";
const CUT_OFF: &str = "(cut off)";

/// A small generator, so that a seed gives the same case everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// The messages of a session.
fn random_script(random: &mut Random) -> Vec<String> {
    let turns = 1 + random.below(2);
    let mut place = 0;
    let mut script: Vec<Vec<String>> = Vec::new();
    for _ in 0..turns {
        let mut words = Vec::new();
        for _ in 0..1 + random.below(5) {
            place += 1;
            let word = random.pick(&[
                "note", "charge", "charge", "run", "approve", "ask", "sleep", "values", "decline",
                "both", "pair", "signal", "choose",
            ]);
            words.push(match word {
                "note" | "run" | "values" => format!("{word}:{place}"),
                "charge" => format!("charge:{}", 1 + random.below(4)),
                "sleep" => format!("sleep:{}", 1 + random.below(5000)),
                word => word.to_owned(),
            });
        }
        if random.below(3) == 0 {
            let place = random.below(words.len());
            words.insert(place, "again".to_owned());
        }
        script.push(words);
    }
    let last = random.pick(&["end", "over", "stay"]);
    script.last_mut().unwrap().push(last.to_owned());
    script.into_iter().map(|words| words.join(" ")).collect()
}

/// The charges that a script makes, in each visit, as its words say.
fn charges(script: &[String]) -> usize {
    let count = |text: &str| -> usize {
        let of = |word: &str| match word {
            "pair" => 2,
            "both" => 1,
            word => usize::from(word.starts_with("charge:")),
        };
        text.split_whitespace().map(of).sum()
    };
    let visits = |text: &String| match text.split_once("again") {
        Some((first, rest)) => count(first) * 2 + count(rest),
        None => count(text),
    };
    script.iter().map(visits).sum()
}

/// What cuts a run off.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// At a call of the store.
    Store { call: usize, fault: Fault },
    /// In an effect; the caller gives up, or the process is dead.
    Effect { trap: Trap, dies: bool },
}

/// Nothing hangs in front of SQLite, whose thread does not stop when the clock does.
fn random_cut(random: &mut Random, calls: usize, effects: usize, hangs: bool) -> Cut {
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

/// The people, callers and sweepers of one session, and the processes that die under them.
struct World {
    inner: Arc<dyn SessionStore>,
    store: FailingStore,
    clock: ManualClock,
    durability: Durability,
    flow: Script,
    engine: Engine,
    /// How many calls the store got of the processes that are dead.
    calls: usize,
    dies_in_effect: bool,
}

impl World {
    fn new(inner: Arc<dyn SessionStore>, durability: Durability) -> Self {
        // Stores have a clock of their own, which is not ahead of this one.
        let clock = ManualClock::at(Timestamp::now().after(Duration::from_secs(3600)));
        let flow = Script::default();
        let (store, engine) = begin(&inner, &clock, durability, &flow);
        Self { inner, store, clock, durability, flow, engine, calls: 0, dies_in_effect: false }
    }

    fn arm(&mut self, cut: Cut) {
        match cut {
            Cut::Store { call, fault } => self.store.arm(call, fault),
            Cut::Effect { trap, dies } => {
                *self.flow.done.trap.lock().unwrap() = Some(trap);
                self.dies_in_effect = dies;
            }
        }
    }

    async fn doc(&self) -> Option<SessionDoc> {
        self.inner.load(&session()).await.expect("the real store answers")
    }

    /// Does something that may be cut off.
    async fn attempt(&mut self, work: impl Future<Output = Result<bool, Error>>) -> bool {
        let done = self.flow.done.clone();
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
        let done = self.flow.done.clone();
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
            let turn = self.engine.turn::<Script>(request.clone());
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
    async fn play(&mut self, script: &[String], random: &mut Random) {
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
                    other => panic!("nobody answers {other:?}"),
                };
                let request = TurnRequest::new(session()).deliver(delivery.signal_id(id));
                self.send(request, random).await;
            }
        }
    }
}

fn begin(
    inner: &Arc<dyn SessionStore>,
    clock: &ManualClock,
    durability: Durability,
    flow: &Script,
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

/// What does not depend on when and how often something was tried.
fn lasting(doc: &SessionDoc) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, _| !key.ends_with("_at") && key != "at");
                map.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(doc).unwrap();
    for part in ["revision", "lease", "turns"] {
        value.as_object_mut().unwrap().remove(part);
    }
    strip(&mut value);
    value
}

/// What an effect is, whether it is repeated or not.
fn identity(line: &str) -> &str {
    line.strip_suffix(" true").or_else(|| line.strip_suffix(" false")).unwrap_or(line)
}

fn is_mark(line: &str) -> bool {
    line == ANSWERED || line == CUT_OFF || line.starts_with("values")
}

fn count(done: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for line in done.iter().filter(|line| !is_mark(line)) {
        *counts.entry(identity(line)).or_default() += 1;
    }
    counts
}

/// The effects that may be made again after the cut at a place of the list.
fn may_repeat(done: &[String], cut: usize, durability: Durability) -> Vec<&str> {
    let since = done[..cut].iter().rposition(|line| line == ANSWERED).map_or(0, |at| at + 1);
    let made: Vec<&str> =
        done[since..cut].iter().filter(|l| !is_mark(l)).map(|l| identity(l)).collect();
    match (durability, made.last()) {
        // Both of a pair may have been running.
        (Durability::Effect, Some(last)) if last.starts_with("charge 7") => {
            made.iter().copied().filter(|made| made.starts_with("charge 7")).collect()
        }
        (Durability::Effect, last) => last.copied().into_iter().collect(),
        // The visits before the last one are committed.
        (Durability::Crossing, _) => {
            let visit = |made: &str| made.split(':').nth(1).and_then(|v| v.parse::<u64>().ok());
            let last = made.iter().copied().filter_map(visit).max();
            made.iter().copied().filter(|m| visit(m).is_none_or(|v| Some(v) == last)).collect()
        }
        _ => made,
    }
}

fn check_counts(done: &[String], calm: &[String], durability: Durability) {
    let (counts, calm) = (count(done), count(calm));
    let names =
        |counts: &BTreeMap<&str, usize>| counts.keys().copied().map(str::to_owned).collect();
    let (made, expected): (BTreeSet<String>, BTreeSet<String>) = (names(&counts), names(&calm));
    assert_eq!(made, expected, "the same effects, with the same keys");
    let cuts: Vec<usize> =
        done.iter().enumerate().filter(|(_, line)| *line == CUT_OFF).map(|(at, _)| at).collect();
    for (effect, count) in counts {
        let repeated = cuts.iter().flat_map(|cut| may_repeat(done, *cut, durability));
        let allowed = repeated.filter(|repeated| *repeated == effect).count();
        let least = calm[effect];
        assert!(
            (least..=least + allowed).contains(&count),
            "`{effect}` was made {count} times, not {least} to {}",
            least + allowed
        );
    }
    if durability == Durability::Effect {
        let mut seen = BTreeSet::new();
        for (at, line) in done.iter().enumerate().filter(|(_, l)| l.starts_with("charge")) {
            let again = !seen.insert(identity(line));
            let told = line.ends_with(" true");
            assert!(told || !again, "`{line}` is not told that it was made");
            // Its intent may have been stored by a run that was cut off before it was made.
            assert!(!told || again || cuts.iter().any(|cut| *cut < at), "`{line}` was not made");
        }
    }
}

/// Times and random numbers change only where the run before was cut off, and never to what
/// they were.
fn check_values(done: &[String]) {
    let mut latest: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for (at, line) in done.iter().enumerate().filter(|(_, line)| line.starts_with("values")) {
        let (name, value) = line.split_once(' ').unwrap();
        if let Some((before, then)) = latest.insert(name, (value, at))
            && before != value
        {
            let since = &done[then..at];
            let cut = since.iter().position(|line| line == CUT_OFF);
            let answered = since.iter().position(|line| line == ANSWERED);
            let fresh = cut.is_some_and(|cut| answered.is_none_or(|answered| cut < answered));
            assert!(fresh, "{name} was {before}, is {value}");
        }
    }
}

struct Calm {
    doc: Value,
    done: Vec<String>,
    calls: usize,
}

/// Plays a script without a fault.
async fn play_calmly(script: &[String], durability: Durability, random: &mut Random) -> Calm {
    let mut world = World::new(Arc::new(MemoryStore::new()), durability);
    world.play(script, random).await;
    let doc = world.doc().await.unwrap();
    let done = world.flow.done.take();
    let charged = done.iter().filter(|line| line.starts_with("charge")).count();
    assert_eq!(charged, charges(script), "{script:?}: {done:?}");
    assert!(count(&done).iter().all(|(made, n)| *n == 1 || !made.starts_with("charge")));
    Calm { doc: lasting(&doc), done, calls: world.store.calls() }
}

async fn play_with_cuts(
    store: &Arc<dyn SessionStore>,
    durability: Durability,
    script: &[String],
    calm: &Calm,
    random: &mut Random,
    hangs: bool,
) {
    let effects = calm.done.iter().filter(|line| !is_mark(line)).count();
    let mut world = World::new(store.clone(), durability);
    let cut = random_cut(random, calm.calls, effects, hangs);
    world.arm(cut);
    if random.below(3) == 0 {
        // Another one while the first one is recovered from, or later.
        let (call, fault) = (random.below(calm.calls), Fault::FailAfter);
        if !matches!(cut, Cut::Store { .. }) {
            world.arm(Cut::Store { call, fault });
        }
    }
    println!("  {cut:?}");
    world.play(script, random).await;
    let doc = world.doc().await.unwrap();
    let done = world.flow.done.take();
    println!("  {done:#?}");
    assert_eq!(lasting(&doc), calm.doc);
    check_counts(&done, &calm.done, durability);
    if !script.iter().any(|text| text.contains("again")) {
        check_values(&done);
    }
    let mut messages: Vec<Message> = doc.memory["main"].messages.clone();
    assert_eq!(ordering::openai(&ordering::openai_body(&messages)), Ok(()));
    messages.push(Message { role: Role::User, ..messages[0].clone() });
    assert_eq!(ordering::anthropic(&ordering::anthropic_body(&messages)), Ok(()));
    assert!(store.delete(&session()).await.unwrap());
}

/// Each case prints its seed, which the harness shows of a test that fails.
async fn check_all(store: Arc<dyn SessionStore>, durability: Durability, hangs: bool) {
    for seed in 0..(CRASHES / CRASHES_PER_SCRIPT) as u64 {
        let mut random = Random(seed);
        let script = random_script(&mut random);
        println!("seed {seed}, {durability:?}: {script:?}");
        let calm = play_calmly(&script, durability, &mut random).await;
        for _ in 0..CRASHES_PER_SCRIPT {
            play_with_cuts(&store, durability, &script, &calm, &mut random, hangs).await;
        }
    }
}

async fn check_sqlite(durability: Durability) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("sessions.db")).await.unwrap();
    check_all(Arc::new(store), durability, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_script_ends_as_if_nothing_had_cut_it_off_in_memory() {
    for durability in super::DURABILITIES {
        check_all(Arc::new(MemoryStore::new()), durability, true).await;
    }
}

#[tokio::test]
async fn a_script_ends_as_if_nothing_had_cut_it_off_in_sqlite_by_crossing() {
    check_sqlite(Durability::Crossing).await;
}

#[tokio::test]
async fn a_script_ends_as_if_nothing_had_cut_it_off_in_sqlite_by_turn() {
    check_sqlite(Durability::Turn).await;
}

#[tokio::test]
async fn a_script_ends_as_if_nothing_had_cut_it_off_in_sqlite_by_effect() {
    check_sqlite(Durability::Effect).await;
}
