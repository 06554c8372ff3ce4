//! What listeners are told of a batch.

use flow_core::Durability;
use flow_core::event::Event;
use tests::batch_flow::{Fate, Plan, Spreads};
use tokio::sync::mpsc;

use super::{Duration, Progress, Setup, progress, request};

async fn told(setup: &Setup, plan: &Plan) -> Vec<Progress> {
    let engine = setup.engine();
    let mut turn = engine.turn::<Spreads>(request(plan));
    let mut told = Vec::new();
    while let Some(event) = turn.next_event().await {
        told.extend(progress(&event));
    }
    turn.await.unwrap();
    told
}

#[tokio::test(start_paused = true)]
async fn a_small_batch_tells_each_item() {
    let setup = Setup::new(Durability::Effect);
    let plan = Plan { fates: vec![(3, 1, Fate::Broken)], limit: 2, ..Plan::new(4) };
    let zero = Some(0);
    assert_eq!(
        told(&setup, &plan).await,
        [
            (4, 0, 0, 2, None),
            (4, 1, 0, 2, zero),
            (4, 2, 1, 2, zero),
            (4, 3, 1, 1, zero),
            (4, 4, 1, 0, zero),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_large_batch_tells_each_hundredth() {
    let setup = Setup::new(Durability::Crossing);
    let told = told(&setup, &Plan::new(250)).await;
    let done: Vec<usize> = told.iter().map(|(_, done, ..)| *done).collect();
    let expected: Vec<usize> = (0..250).step_by(3).chain([250]).collect();
    assert_eq!(done, expected);
}

#[tokio::test(start_paused = true)]
async fn the_estimate_is_the_time_so_far_for_each_item_that_is_left() {
    let mut setup = Setup::new(Durability::Crossing);
    let (gate, mut at_work) = mpsc::unbounded_channel();
    setup.jobs.gate = Some(gate);
    let engine = setup.engine();
    let plan = Plan { limit: 1, ..Plan::new(4) };
    let mut turn = engine.turn::<Spreads>(request(&plan));
    let mut estimates = Vec::new();
    for seconds in [10, 30, 5, 0] {
        let (_, open) = at_work.recv().await.unwrap();
        setup.clock.advance(Duration::from_secs(seconds));
        open.send(()).unwrap();
        while let Some(event) = turn.next_event().await {
            if let Some((.., done, _, _, estimate)) = progress(&event)
                && done > 0
            {
                estimates.push(estimate.unwrap());
                break;
            }
        }
    }
    turn.await.unwrap();
    // 10 s for each of 3; 20 s for each of 2; 15 s for the last one.
    assert_eq!(estimates, [30_000, 40_000, 15_000, 0]);
}

#[test]
fn progress_is_written_for_any_client() {
    let event = Event::BatchProgress {
        step: "Spread".into(),
        flow: "job".into(),
        total: 4,
        done: 1,
        failed: 0,
        running: 2,
        eta_ms: Some(7),
    };
    let written = r#"{"type":"batch-progress","step":"Spread","flow":"job","total":4,"done":1,"failed":0,"running":2,"etaMs":7}"#;
    assert_eq!(serde_json::to_string(&event).unwrap(), written);
    assert_eq!(serde_json::from_str::<Event>(written).unwrap(), event);
    assert_eq!(event.name(), "batch-progress");
}
