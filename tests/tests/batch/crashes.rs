//! Batches that are cut off.

use std::sync::Arc;

use flow_core::session::{EffectKind, Status};
use flow_core::{Durability, TurnRequest};
use tests::batch_flow::{Fate, Plan, Spreads};
use tests::failing_store::{FailingStore, Fault};

use super::{DURABILITIES, Duration, Progress, Setup, ended, progress, request, session};

/// The setup of a batch whose processes die: the lease of one that is dead is over at once.
fn mortal(durability: Durability) -> Setup {
    Setup { lease: Duration::ZERO, ..Setup::new(durability) }
}

/// How many sessions there are of items that failed in their first step: with other durabilities
/// than `Effect` nothing was committed before.
fn kept(durability: Durability, items: usize) -> usize {
    if durability == Durability::Effect { items } else { 0 }
}

/// Runs the batch in a process that dies at a call of the store. Returns the calls that it made,
/// and what it told first.
async fn run_until(setup: &Setup, plan: &Plan, call: usize, fault: Fault) -> (usize, Progress) {
    let store = FailingStore::shared(setup.store.clone());
    store.arm(call, fault);
    let engine = setup.engine_on(Arc::new(store.clone()));
    let left = setup.store.load(&session()).await.unwrap();
    // A turn that was cut off before its first commit is sent again, as its caller would.
    let turn = if left.is_some_and(|doc| doc.status == Status::Running) {
        TurnRequest::new(session())
    } else {
        request(plan)
    };
    let mut turn = engine.turn::<Spreads>(turn);
    let mut told = Vec::new();
    while let Some(event) = turn.next_event().await {
        told.extend(progress(&event));
    }
    let result = turn.await;
    if store.is_stopped() {
        // The last commit may have been made, and its answer lost.
        assert!(result.is_err(), "{result:?}");
    } else {
        assert_eq!(ended(&result.unwrap()), "spread");
    }
    (store.calls(), told[0])
}

#[tokio::test(start_paused = true)]
async fn a_thousand_items_killed_twice_run_once_each_or_are_reported() {
    for durability in DURABILITIES {
        let setup = mortal(durability);
        let plan = Plan::thousand();
        run_until(&setup, &plan, 1100, Fault::StopBefore).await;
        let first = setup.done();
        run_until(&setup, &plan, 1500, Fault::StopAfter).await;
        let second = setup.done();
        run_until(&setup, &plan, usize::MAX, Fault::StopBefore).await;
        let third = setup.done();

        let summary = setup.summary().await;
        assert_eq!(summary.counts, (975, 0, 25), "{durability:?}");
        let failed: Vec<usize> = summary.failures.iter().map(|(n, ..)| *n).collect();
        assert_eq!(failed, (27..1000).step_by(40).collect::<Vec<_>>());
        let runs = [&first, &second, &third].map(|tally| tally.done.len());
        assert!(runs.iter().all(|items| *items > 150), "each had its share: {runs:?}");
        let mut more = 0;
        for n in 0..1000 {
            let tallies = [&first, &second, &third];
            let count: usize = tallies.iter().filter_map(|tally| tally.done.get(&n)).sum();
            let keys: std::collections::BTreeSet<_> =
                tallies.iter().filter_map(|tally| tally.keys.get(&n)).flatten().collect();
            assert_eq!(keys.len(), 1, "one call in all, for a tool that honours its key: {keys:?}");
            if failed.contains(&n) {
                assert_eq!(count, 0, "{n}");
            } else {
                assert!(count >= 1, "{n} was not run ({durability:?})");
                more += count - 1;
            }
        }
        assert!(more <= 2 * plan.limit, "only what ran at a kill may run again: {more}");
        let items = setup.items().await;
        let over = items.values().filter(|doc| doc.status == Status::Completed);
        assert_eq!(over.count(), 975);
        assert_eq!(items.len(), 975 + kept(durability, 25), "no item has a second session");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_goes_on_does_not_ask_for_what_is_recorded() {
    let plan = Plan { fates: vec![(100, 50, Fate::Broken)], ..Plan::new(400) };
    let mut calls = Vec::new();
    for durability in [Durability::Effect, Durability::Crossing] {
        let setup = mortal(durability);
        // With `Effect` an item takes four calls, else two.
        let cut = if durability == Durability::Effect { 4 * 300 } else { 2 * 300 };
        run_until(&setup, &plan, cut, Fault::StopBefore).await;
        let first = setup.done();
        let doc = setup.store.load(&session()).await.unwrap();
        let recorded = doc.iter().flat_map(|doc| doc.effects.values());
        let recorded: Vec<_> = recorded.filter(|e| e.kind == EffectKind::Batch).collect();
        match durability {
            Durability::Effect => {
                let items = &recorded[0].items;
                let len: usize = items.iter().map(|group| group.items.len()).sum();
                assert_eq!(len % 32, 0, "{items:?}");
                assert!(len + 32 + plan.limit > first.done.len(), "{items:?}");
                assert!(len >= 256, "{items:?}");
                let failed = items.iter().filter(|group| group.outcome.is_failed());
                assert_eq!(failed.count(), 1);
            }
            _ => assert!(recorded.is_empty()),
        }
        let (made, told) = run_until(&setup, &plan, usize::MAX, Fault::StopBefore).await;
        let second = setup.done();
        let known = recorded.iter().flat_map(|effect| &effect.items);
        let known = known.map(|group| group.items.len()).sum::<usize>();
        assert_eq!((told.1, told.4), (known, None), "what is over is told at once");
        assert!(first.done.len() > 280 && second.done.len() < 130, "{first:?} {second:?}");
        assert_eq!(setup.summary().await.counts, (396, 0, 4));
        calls.push((made, 400 - first.done.len()));
    }
    let (recorded, left) = calls[0];
    assert!(recorded < 4 * (left + 32 + 2 * plan.limit) + 20, "{calls:?}");
    let (asked, left) = calls[1];
    assert!(asked >= 2 * 280 + 2 * left, "the sessions are asked: {calls:?}");
    assert!(asked < 2 * 400 + 60, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_cut_off_at_any_call_of_the_store_comes_to_the_same_end() {
    let fates = vec![(6, 1, Fate::Flaky), (6, 2, Fate::Broken), (6, 3, Fate::Asks)];
    let plan = Plan { fates, limit: 3, ..Plan::new(6) };
    for durability in DURABILITIES {
        for fault in [Fault::StopBefore, Fault::StopAfter, Fault::FailBefore, Fault::FailAfter] {
            for call in 0.. {
                let mut setup = mortal(durability);
                setup.spreads.sums = true;
                let store = FailingStore::shared(setup.store.clone());
                store.arm(call, fault);
                let engine = setup.engine_on(Arc::new(store.clone()));
                let first = engine.turn::<Spreads>(request(&plan).turn_id("t")).await;
                let case = format!("call {call}, {fault:?}, {durability:?}");
                let stopped = store.is_stopped();
                if store.disarm() {
                    assert!(call > 12, "{case}");
                    break;
                }
                if stopped {
                    assert!(first.is_err(), "{case}");
                }
                if first.is_err() {
                    let again = setup.engine();
                    let outcome = again.turn::<Spreads>(request(&plan).turn_id("t")).await;
                    let outcome = outcome.unwrap_or_else(|error| panic!("{case}: {error}"));
                    assert_eq!(ended(&outcome), "spread", "{case}");
                }
                let summary = setup.summary().await;
                assert_eq!(summary.counts, (4, 1, 1), "{case}");
                assert_eq!(summary.failures[0].0, 2, "{case}");
                assert_eq!(summary.sum, 55 - 4 - 9, "{case}");
                let done = setup.done();
                for (n, keys) in &done.keys {
                    assert_eq!(keys.len(), 1, "item {n}, {case}");
                }
                assert!(done.done.values().sum::<usize>() <= 5 + plan.limit, "{case}: {done:?}");
                assert_eq!(setup.items().await.len(), 5 + kept(durability, 1), "{case}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_items_than_before_are_a_divergence() {
    let plan = Plan { approve: true, ..Plan::new(5) };
    let mut setup = mortal(Durability::Effect);
    run_until(&setup, &plan, 12, Fault::StopBefore).await;
    let before = setup.done();
    setup.spreads.other = Some(Plan { approve: true, ..Plan::new(6) });
    let go_on = || TurnRequest::new(session());
    let error = setup.engine().turn::<Spreads>(go_on()).await.unwrap_err();
    assert_eq!(error.code(), "effect-diverged");
    assert!(error.to_string().contains("batch `job` with other arguments"), "{error}");
    assert!(setup.done().done.is_empty(), "nothing was done");
    // The code of before goes on.
    setup.spreads.other = None;
    setup.engine().turn::<Spreads>(go_on()).await.unwrap();
    assert_eq!(setup.summary().await.counts, (0, 0, 0), "it waits for the approval");
    assert!(before.done.len() + setup.done().done.len() <= 5 + plan.limit);
    assert_eq!(setup.items().await.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn another_message_after_a_cut_off_turn_begins_other_sessions() {
    let setup = mortal(Durability::Crossing);
    let plan = Plan { fates: vec![(2, 1, Fate::Asks)], ..Plan::new(6) };
    run_until(&setup, &plan, 9, Fault::StopBefore).await;
    let begun = setup.items_of_batch().await;
    assert!(begun > 0);
    // The user says something else: the items at the same places are others.
    let other = Plan::new(7);
    let outcome = setup.run(&other).await.unwrap();
    assert_eq!(ended(&outcome), "spread");
    assert_eq!(setup.summary().await.counts, (7, 0, 0));
    assert_eq!(setup.items_of_batch().await, begun + 7);
}

impl Setup {
    async fn items_of_batch(&self) -> usize {
        let flow = Some("job".to_owned());
        let query = flow_core::store::ListQuery {
            flow,
            limit: 1000,
            ..flow_core::store::ListQuery::default()
        };
        self.store.list(&query).await.unwrap().len()
    }
}
