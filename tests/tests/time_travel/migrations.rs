//! Checkpoints that an older version of the flow has left.

use flow_core::session::Migrations;

use super::*;

mod v1 {
    use super::*;

    #[flow(id = "counter", version = 1, steps(Count))]
    #[derive(Clone)]
    pub(super) struct Counter;

    impl Flow for Counter {}

    #[step(action, next(stay))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(super) struct Count {
        count: u32,
    }

    impl Action for Count {
        type Flow = Counter;

        async fn run(&mut self, _: &mut ActionCx<'_, Counter>) -> Result<CountNext> {
            self.count += 1;
            Ok(CountNext::Stay)
        }
    }
}

mod v2 {
    use super::*;

    #[flow(id = "counter", version = 2, steps(Count))]
    #[derive(Clone)]
    pub(super) struct Counter;

    impl Flow for Counter {
        fn migrations() -> Migrations {
            Migrations::new().from(1, |doc| doc.rename_field("Count", "count", "total"))
        }
    }

    #[step(action, next(stay))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(super) struct Count {
        total: u32,
    }

    impl Action for Count {
        type Flow = Counter;

        async fn run(&mut self, _: &mut ActionCx<'_, Counter>) -> Result<CountNext> {
            self.total += 100;
            Ok(CountNext::Stay)
        }
    }
}

#[tokio::test]
async fn are_migrated_by_the_next_turn() {
    for (store, _kept) in stores().await {
        let builder = || {
            let builder = Engine::builder().shared_store(store.clone());
            builder.checkpoints(Checkpoints::keep_last(9))
        };
        let old = builder().flow(v1::Counter).build().unwrap();
        for _ in 0..3 {
            old.turn::<v1::Counter>(TurnRequest::new(id("s"))).await.unwrap();
        }
        let new = builder().flow(v2::Counter).build().unwrap();
        new.turn::<v2::Counter>(TurnRequest::new(id("s"))).await.unwrap();
        let s = new.session(id("s"));
        assert_eq!(s.load().await.unwrap().steps["Count"]["total"], 103);
        let versions: Vec<_> = s.history().await.unwrap().iter().map(|kept| kept.version).collect();
        assert_eq!(versions, [2, 2, 1, 1, 1]);

        let fork = s.fork(2, id("f")).await.unwrap();
        s.rewind(1).await.unwrap();
        for (session, count) in [(&fork, 2), (&s, 1)] {
            let doc = session.load().await.unwrap();
            assert_eq!((doc.version, doc.steps["Count"]["count"].as_u64()), (1, Some(count)));
            let turn = TurnRequest::new(session.id().clone());
            new.turn::<v2::Counter>(turn).await.unwrap();
            let doc = session.load().await.unwrap();
            assert_eq!((doc.version, doc.steps["Count"]["total"].as_u64()), (2, Some(count + 100)));
        }
    }
}
