//! Items that run at the same time.

use flow_core::Durability;
use flow_core::session::SessionDoc;
use tests::batch_flow::{AtWork, Fate, Plan, Spreads};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{DURABILITIES, Duration, Setup, request, session};

/// Receives what is at work until nothing moves any more.
async fn receive(at_work: &mut mpsc::UnboundedReceiver<AtWork>) -> Vec<AtWork> {
    let mut all = Vec::new();
    while let Ok(Some(item)) = timeout(Duration::from_secs(1), at_work.recv()).await {
        all.push(item);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn as_many_run_at_once_as_the_limit_says() {
    for limit in [1, 3, 8] {
        let mut setup = Setup::new(Durability::Effect);
        let (gate, mut at_work) = mpsc::unbounded_channel();
        setup.jobs.gate = Some(gate);
        let engine = setup.engine();
        let plan = Plan { limit, ..Plan::new(20) };
        let turn = engine.turn::<Spreads>(request(&plan));
        let mut held = receive(&mut at_work).await;
        let mut begun = held.len();
        assert_eq!(begun, limit);
        while let Some((_, open)) = held.pop() {
            open.send(()).unwrap();
            let more = receive(&mut at_work).await;
            begun += more.len();
            held.extend(more);
            assert_eq!(held.len(), limit.min(20 - (begun - held.len())), "one more for each");
        }
        assert_eq!(begun, 20);
        turn.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_ends_first_the_document_is_the_same() {
    let fates = vec![
        (20, 3, Fate::Broken),
        (20, 11, Fate::Down),
        (20, 12, Fate::Asks),
        (20, 5, Fate::Talks),
    ];
    for durability in DURABILITIES {
        let mut docs: Vec<SessionDoc> = Vec::new();
        for last_first in [false, true] {
            let mut setup = Setup::new(durability);
            let (gate, mut at_work) = mpsc::unbounded_channel();
            setup.jobs.gate = Some(gate);
            let engine = setup.engine();
            let plan = Plan {
                fates: fates.clone(),
                limit: 40,
                retries: 0,
                approve: true,
                ..Plan::new(80)
            };
            let turn = engine.turn::<Spreads>(request(&plan));
            let mut order = Vec::new();
            loop {
                let mut held = receive(&mut at_work).await;
                if held.is_empty() {
                    break;
                }
                held.sort_by_key(|(n, _)| *n);
                if last_first {
                    held.reverse();
                }
                for (n, open) in held {
                    order.push(n);
                    open.send(()).unwrap();
                    tokio::task::yield_now().await;
                }
            }
            turn.await.unwrap();
            assert_eq!(order.len(), 80);
            assert_eq!(order[0], if last_first { 39 } else { 0 });
            docs.push(setup.doc(&session()).await);
        }
        assert_eq!(docs[0], docs[1], "{durability:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_cancelled_gives_the_items_back_and_the_next_one_goes_on() {
    for durability in DURABILITIES {
        let mut setup = Setup::new(durability);
        let (gate, mut at_work) = mpsc::unbounded_channel();
        setup.jobs.gate = Some(gate);
        let engine = setup.engine();
        let plan = Plan { limit: 4, ..Plan::new(12) };
        let turn = engine.turn::<Spreads>(request(&plan));
        let mut held = receive(&mut at_work).await;
        for (_, open) in held.drain(..2) {
            open.send(()).unwrap();
        }
        let more = receive(&mut at_work).await;
        assert_eq!(more.len(), 2);
        turn.cancel();
        assert_eq!(turn.await.unwrap_err().code(), "cancelled");
        for (_, open) in held.into_iter().chain(more) {
            assert!(open.send(()).is_err(), "nothing of it runs any more");
        }
        assert!(receive(&mut at_work).await.is_empty());
        for (n, doc) in setup.items().await {
            assert_eq!(doc.lease.holder, None, "item {n}");
        }
        let first = setup.done();
        assert_eq!(first.done.len(), 2);

        setup.jobs.gate = None;
        let begin = tokio::time::Instant::now();
        setup.run(&plan).await.unwrap();
        assert_eq!(begin.elapsed(), Duration::ZERO, "nobody waits for a lease");
        assert_eq!(setup.summary().await.counts, (12, 0, 0));
        let second = setup.done();
        assert_eq!(second.done.len(), 10, "what was over is not done again");
        assert!(second.done.keys().all(|n| !first.done.contains_key(n)));
    }
}
