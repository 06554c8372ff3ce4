//! What items come to, where they run, and what is tried again.

use flow_core::engine::{Delivery, Limits};
use flow_core::error::{Error, StoreError};
use flow_core::id::SessionId;
use flow_core::outcome::Outcome;
use flow_core::session::{Relation, Status, Waiting};
use flow_core::store::OpenRequest;
use flow_core::{Durability, Engine, TurnRequest};
use serde_json::json;
use tests::batch_flow::{Fate, Jobs, Plan, Spreads};

use super::{DURABILITIES, Duration, Setup, ended, progress, request, session};

#[tokio::test(start_paused = true)]
async fn each_item_runs_in_a_session_of_its_own_with_its_state() {
    for durability in DURABILITIES {
        let mut setup = Setup::new(durability);
        setup.spreads.sums = true;
        let request = request(&Plan::new(12)).owner("ada").label("channel", "web");
        let outcome = setup.engine().turn::<Spreads>(request).await.unwrap();
        assert_eq!(ended(&outcome), "spread");
        let summary = setup.summary().await;
        assert_eq!((summary.counts, summary.sum), ((12, 0, 0), 506), "read from their sessions");
        let items = setup.items().await;
        assert_eq!(items.len(), 12);
        for (n, doc) in &items {
            assert_eq!(doc.state, json!({ "n": n, "fate": "Ends", "square": n * n }));
            assert_eq!(doc.status, Status::Completed);
            let parent = doc.parent.as_ref().unwrap();
            assert_eq!((&parent.session, parent.flow.as_str()), (&session(), "spread"));
            assert_eq!((parent.relation, parent.depth), (Relation::Item, 1));
            assert_eq!(doc.owner.as_deref(), Some("ada"));
            assert_eq!(doc.labels["channel"], "web");
            assert!(doc.id.as_str().starts_with("s~c1-0-"), "{}", doc.id);
            assert!(doc.id.as_str().ends_with(&format!("-{n}")), "{}", doc.id);
        }
        let done = setup.done();
        assert_eq!((done.done.len(), done.repeated()), (12, vec![]));
        assert_eq!(done.keys.values().map(|keys| keys.len()).sum::<usize>(), 12);
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_and_the_rest_is_reported() {
    let fates = vec![
        (10, 1, Fate::Flaky),
        (10, 2, Fate::Down),
        (10, 3, Fate::Broken),
        (10, 4, Fate::Asks),
        (10, 5, Fate::Sleeps),
        (10, 6, Fate::Escalates),
        (10, 7, Fate::Panics),
    ];
    for durability in DURABILITIES {
        let setup = Setup::new(durability);
        let begin = tokio::time::Instant::now();
        let plan = Plan { fates: fates.clone(), retries: 3, ..Plan::new(10) };
        setup.run(&plan).await.unwrap();
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(3500), "0.5 + 1 + 2 seconds and jitter: {took:?}");
        assert!(took < Duration::from_secs(8), "{took:?}");
        let summary = setup.summary().await;
        assert_eq!(summary.counts, (4, 3, 3));
        let failures: Vec<_> = summary.failures.iter().map(|(n, code, _)| (*n, &**code)).collect();
        assert_eq!(failures, [(2, "tool-failed"), (3, "tool-failed"), (7, "panicked")]);
        let texts: Vec<_> = summary.failures.iter().map(|(_, _, text)| text).collect();
        assert!(texts[0].contains("the job is down"), "{texts:?}");
        assert!(texts[2].contains("job 7 panics as told"), "{texts:?}");

        let done = setup.done();
        assert_eq!(done.failed, [(1, 1), (2, 4), (3, 1)].into_iter().collect());
        assert_eq!(done.repeated(), [0; 0], "the panic comes after the tool");
        assert_eq!(done.done.len(), 8);

        // What waits goes on as any other session.
        let items = setup.items().await;
        assert!(matches!(items[&4].waiting, Some(Waiting::Message { .. })));
        assert!(matches!(items[&6].waiting, Some(Waiting::Escalation { .. })));
        assert!(items[&5].wake_at.is_some());
        let engine = setup.engine();
        let answer = TurnRequest::new(items[&4].id.clone()).message("the usual");
        assert_eq!(ended(&engine.turn::<Jobs>(answer).await.unwrap()), "answered");
        setup.clock.advance(Duration::from_secs(3600));
        assert_eq!(engine.sweep().await.unwrap().woken, [items[&5].id.clone()]);
        assert_eq!(setup.items().await[&5].ended.as_deref(), Some("awake"));
    }
}

#[tokio::test(start_paused = true)]
async fn without_retries_the_first_failure_is_the_last() {
    let setup = Setup::new(Durability::Crossing);
    let plan = Plan { fates: vec![(2, 1, Fate::Flaky)], retries: 0, ..Plan::new(4) };
    setup.run(&plan).await.unwrap();
    assert_eq!(setup.summary().await.counts, (2, 0, 2));
    assert_eq!(setup.done().failed.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_empty_batch_is_over_at_once() {
    let setup = Setup::new(Durability::Effect);
    setup.run(&Plan::new(0)).await.unwrap();
    assert_eq!(setup.summary().await.counts, (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_too_many_items_begins_none() {
    let mut setup = Setup::new(Durability::Effect);
    setup.limits = Limits::default().batch_items(4);
    setup.run(&Plan::new(4)).await.unwrap();
    assert_eq!(setup.summary().await.counts, (4, 0, 0));
    let mut setup = Setup::new(Durability::Effect);
    setup.limits = Limits::default().batch_items(4);
    let error = setup.run(&Plan::new(5)).await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("batch-too-large", false));
    let text = error.to_string();
    assert!(text.contains("`job` has 5 items, over the limit of 4"), "{text}");
    assert!(text.contains("Limits::batch_items"), "{text}");
    assert!(setup.items().await.is_empty());
    assert_eq!(Limits::default().batch_items, 10_000);
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_is_not_registered_fails_the_batch_and_not_each_item() {
    let setup = Setup::new(Durability::Effect);
    let engine = Engine::builder().shared_store(setup.store.clone()).flow(Spreads::default());
    let engine = engine.build().unwrap();
    let error = engine.turn::<Spreads>(request(&Plan::new(5))).await.unwrap_err();
    assert_eq!(error.code(), "unknown-flow");
    assert!(setup.run(&Plan::new(5)).await.is_ok(), "the next program has it");
}

#[tokio::test(start_paused = true)]
async fn reports_of_long_texts_are_cut_and_grouped_ones_are_small() {
    let setup = Setup::new(Durability::Effect);
    let approve = Plan { approve: true, ..Plan::thousand() };
    setup.run(&approve).await.unwrap();
    let doc = setup.doc(&session()).await;
    assert!(matches!(doc.waiting, Some(Waiting::Interrupts { .. })), "{:?}", doc.waiting);
    let size = serde_json::to_string(&doc).unwrap().len();
    assert!(size < 8 * 1024, "a thousand items with 25 failures take {size} bytes");
    let batch = doc.effects.values().find(|effect| effect.tool == "job").unwrap();
    assert!(batch.outcome.is_some() && batch.items.is_empty(), "{batch:?}");

    // The report is read from there when the action goes on.
    let engine = setup.engine();
    let Some(Waiting::Interrupts { pending }) = &doc.waiting else { unreachable!() };
    let calls = setup.done();
    assert_eq!(calls.done.len(), 975);
    let yes = Delivery::approve(&pending[0].request_id);
    assert_eq!(ended(&engine.deliver(session(), yes).await.unwrap()), "spread");
    assert_eq!(setup.summary().await.counts, (975, 0, 25));
    assert!(setup.done().done.is_empty(), "no item runs again");

    let setup = Setup::new(Durability::Effect);
    let plan = Plan { fates: vec![(1, 0, Fate::Talks)], approve: true, ..Plan::new(1000) };
    setup.run(&plan).await.unwrap();
    let size = serde_json::to_string(&setup.doc(&session()).await).unwrap().len();
    assert!(size > 250_000, "each has a reason of its own: {size}");
    assert!(size < 400_000, "of at most 256 bytes: {size}");
}

#[tokio::test(start_paused = true)]
async fn an_item_waits_for_whoever_works_on_its_session() {
    for gives_back in [true, false] {
        let setup = Setup::new(Durability::Crossing);
        let plan = Plan { retries: 0, ..Plan::new(3) };
        // The ids are the same in each store.
        let twin = Setup::new(Durability::Crossing);
        twin.run(&plan).await.unwrap();
        let id = twin.items().await[&1].id.clone();
        let ttl = Duration::from_secs(3600);
        let open = OpenRequest { id: &id, flow: "job", version: 1, holder: "another", ttl };
        let opened = setup.store.open(&open).await.unwrap();
        let begin = tokio::time::Instant::now();
        let engine = setup.engine();
        let mut turn = engine.turn::<Spreads>(request(&plan));
        while let Some(event) = turn.next_event().await {
            if progress(&event).is_some_and(|(_, done, ..)| done == 2) && gives_back {
                setup.store.release(&id, &opened.grant).await.unwrap();
            }
        }
        turn.await.unwrap();
        let summary = setup.summary().await;
        let waited = begin.elapsed();
        if gives_back {
            assert_eq!(summary.counts, (3, 0, 0), "waiting is no attempt");
        } else {
            assert_eq!(summary.failures[0].1, "session-busy");
            assert!(waited >= Duration::from_secs(60), "{waited:?}");
            assert!(waited < Duration::from_secs(70), "{waited:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_that_the_host_has_ended_is_over() {
    let mut setup = Setup::new(Durability::Crossing);
    let plan = Plan { fates: vec![(1, 0, Fate::Down)], retries: 0, ..Plan::new(1) };
    // The action fails after the batch, so that the batch is asked for again.
    setup.spreads.other = Some(plan.clone());
    let twin = Setup::new(Durability::Crossing);
    twin.run(&Plan { fates: vec![(1, 0, Fate::Asks)], ..plan.clone() }).await.unwrap();
    let asks = twin.items().await[&0].clone();
    setup.store.create(&asks).await.unwrap();
    setup.engine().session(asks.id.clone()).abandon("not needed").await.unwrap();
    // Its turn is not recorded any more once the host has run many.
    let mut doc = setup.doc(&asks.id).await;
    setup.store.delete(&asks.id).await.unwrap();
    doc.turns.clear();
    setup.store.create(&doc).await.unwrap();
    setup.run(&plan).await.unwrap();
    assert_eq!(setup.summary().await.counts, (1, 0, 0));
    assert!(setup.done().failed.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_state_of_an_item_that_was_deleted_is_an_error() {
    let mut setup = Setup::new(Durability::Effect);
    let plan = Plan { approve: true, ..Plan::new(2) };
    setup.run(&plan).await.unwrap();
    let id = setup.items().await[&1].id.clone();
    setup.store.delete(&id).await.unwrap();
    setup.spreads.sums = true;
    let doc = setup.doc(&session()).await;
    let Some(Waiting::Interrupts { pending }) = &doc.waiting else { panic!("{:?}", doc.waiting) };
    let yes = Delivery::approve(&pending[0].request_id);
    let error = setup.engine().deliver(session(), yes).await.unwrap_err();
    assert_eq!(error.code(), "session-not-found", "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_flow_is_a_batch_when_the_context_or_the_flow_says_so() {
    let plan = Plan::new(3);
    let setup = Setup::new(Durability::Crossing);
    assert_eq!(ended(&setup.run(&plan).await.unwrap()), "spread", "the step runs by default");

    let setup = Setup::new(Durability::Crossing);
    let concurrent = |value| request(&plan).context("concurrent", value);
    let outcome = setup.engine().turn::<Spreads>(concurrent(true)).await.unwrap();
    assert_eq!(ended(&outcome), "spread by the flow");
    assert_eq!(setup.summary().await.counts, (3, 0, 0));
    for doc in setup.items().await.values() {
        assert!(doc.context.is_empty(), "the items are no batches: {:?}", doc.context);
    }

    let setup = Setup::new(Durability::Crossing);
    let outcome = setup.engine().turn::<Spreads>(concurrent(false)).await.unwrap();
    assert_eq!(ended(&outcome), "spread");

    let mut setup = Setup::new(Durability::Crossing);
    setup.spreads.is_batch = Some(false);
    let outcome = setup.engine().turn::<Spreads>(concurrent(true)).await.unwrap();
    assert_eq!(ended(&outcome), "spread", "the flow has the last word");

    let mut setup = Setup::new(Durability::Crossing);
    setup.spreads.is_batch = Some(true);
    assert_eq!(ended(&setup.run(&plan).await.unwrap()), "spread by the flow");
}

#[tokio::test(start_paused = true)]
async fn a_flow_without_spawn_steps_says_so() {
    use flow_core::flow::Flow as _;
    let setup = Setup::new(Durability::Crossing);
    let context = serde_json::Map::from_iter([("concurrent".to_owned(), json!(true))]);
    assert!(setup.jobs.is_batch(&context), "by default the context says it");
    assert!(!setup.jobs.is_batch(&serde_json::Map::new()));
    let other = serde_json::Map::from_iter([("concurrent".to_owned(), json!("true"))]);
    assert!(!setup.jobs.is_batch(&other));
    let id = SessionId::new("job").unwrap();
    let turn = TurnRequest::new(id).context("concurrent", true);
    let error = setup.engine().turn::<Jobs>(turn).await.unwrap_err();
    assert!(error.to_string().contains("does not override `spawn_steps`"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_once_fails_no_item() {
    use tests::failing_store::{FailingStore, Fault};
    for call in 1..24 {
        let setup = Setup::new(Durability::Crossing);
        let store = FailingStore::shared(setup.store.clone());
        store.arm(call, Fault::FailBefore);
        let engine = setup.engine_on(std::sync::Arc::new(store.clone()));
        let result = engine.turn::<Spreads>(request(&Plan::new(8))).await;
        match result {
            Ok(outcome) => {
                assert_eq!(outcome.outcome, Outcome::Ended { reason: "spread".into() });
                assert_eq!(setup.summary().await.counts, (8, 0, 0), "call {call}");
            }
            // The call was one of the batch's own session.
            Err(Error::Store(StoreError::Unavailable { .. })) => {}
            Err(error) => panic!("call {call}: {error}"),
        }
    }
}
