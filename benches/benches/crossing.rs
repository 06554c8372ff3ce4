//! What one crossing costs in memory: under each durability, with 0, 100 and 1,000 messages
//! of history; and turns per second with 1, 8 and 64 sessions at once.

use std::hint::black_box;

use benches::Bounce;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use flow_core::id::SessionId;
use flow_core::store::memory::MemoryStore;
use flow_core::{Durability, Engine, Limits, TurnRequest};
use tokio::runtime::Runtime;

/// Crossings in one turn, so that the turn's own cost disappears in them.
const CROSSINGS: u32 = 1000;

fn engine(durability: Durability) -> Engine {
    let limits = Limits::default().crossings(u32::MAX).edge_crossings(u32::MAX);
    let builder = Engine::builder().store(MemoryStore::new()).flow(Bounce);
    builder.limits(limits).durability(durability).build().expect("the flow is well declared")
}

async fn turn(engine: &Engine, session: &SessionId, crossings: u32) {
    let request = TurnRequest::new(session.clone()).message(crossings.to_string());
    black_box(engine.turn::<Bounce>(request).await.expect("the turn runs"));
}

fn crossings(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let mut group = c.benchmark_group("crossing");
    group.throughput(Throughput::Elements(u64::from(CROSSINGS)));
    let durabilities = [
        ("turn", Durability::Turn),
        ("crossing", Durability::Crossing),
        ("effect", Durability::Effect),
    ];
    for (name, durability) in durabilities {
        for history in [0, 100, 1000] {
            let engine = engine(durability);
            let session = SessionId::new("s").expect("a valid id");
            runtime.block_on(async {
                for _ in 0..history {
                    turn(&engine, &session, 0).await;
                }
            });
            group.bench_function(BenchmarkId::new(name, history), |b| {
                b.to_async(&runtime).iter(|| turn(&engine, &session, CROSSINGS));
            });
        }
    }
    group.finish();
}

fn sessions(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let mut group = c.benchmark_group("turns");
    for sessions in [1_u64, 8, 64] {
        let engine = engine(Durability::Crossing);
        group.throughput(Throughput::Elements(sessions));
        group.bench_function(BenchmarkId::new("sessions", sessions), |b| {
            b.to_async(&runtime).iter(|| {
                let turns: Vec<_> = (0..sessions)
                    .map(|n| {
                        let session = SessionId::new(format!("s-{n}")).expect("a valid id");
                        engine.turn::<Bounce>(TurnRequest::new(session).message("1"))
                    })
                    .collect();
                async {
                    for turn in turns {
                        black_box(turn.await.expect("the turn runs"));
                    }
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, crossings, sessions);
criterion_main!(benches);
