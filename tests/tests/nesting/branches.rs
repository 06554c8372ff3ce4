//! Steps side by side.

use std::time::Duration;

use flow_core::engine::EngineBuilder;
use flow_core::session::EffectKind;

use super::*;

fn hold(name: &str) -> Word {
    Hold(name.to_owned())
}

#[tokio::test]
async fn thirty_branches_run_at_once_and_all_results_are_stored() {
    let flow = Nest { barrier: Arc::new(Barrier::new(30)), limit: 30, ..Nest::default() };
    let setup = setup_with(Durability::Crossing, flow);
    let scripts =
        (0..30).map(|i| vec![Gather, Add(1), log(&format!("{i}")), note(&format!("n{i}"))]);
    let outcome = setup.play(&[Steps(scripts.collect())]).await.unwrap();
    let said: Vec<String> = (0..30).map(|i| format!("n{i}")).collect();
    assert_eq!(outcome.replies, said);
    let state = setup.state().await;
    assert_eq!(state.total, 30);
    assert_eq!(state.log, (0..30).map(|i| i.to_string()).collect::<Vec<_>>());
    let notes: Vec<String> = (0..30).map(|i| format!("{i}: n{i}")).collect();
    assert_eq!(setup.notes().await, notes);
}

#[tokio::test]
async fn two_finish_orders_leave_equal_documents() {
    let mut docs = Vec::new();
    let start = Timestamp::now().after(Duration::from_secs(3600));
    for order in [["x", "y", "z"], ["z", "x", "y"], ["y", "z", "x"]] {
        let flow = Nest::default();
        let engine = Engine::builder()
            .store(MemoryStore::new())
            .flow(flow.clone())
            .clock(ManualClock::at(start))
            .build()
            .unwrap();
        let branch = |name: &str| vec![hold(name), Add(1), log(name), note(name), Charge(7)];
        let words = [Steps(vec![branch("x"), branch("y"), branch("z")]), Approve("go".into())];
        let turn = engine.turn::<Nest>(Setup::request(&words));
        for name in order {
            flow.gate(&format!("{name} holds")).notified().await;
        }
        for (nth, name) in order.iter().enumerate() {
            flow.gate(name).notify_one();
            while flow.holding.lock().unwrap().0 > 2 - nth {
                tokio::task::yield_now().await;
            }
        }
        turn.await.unwrap();
        let held: Vec<String> = flow.done.lock().unwrap().clone();
        let held = held.iter().filter(|line| line.starts_with("held"));
        assert_eq!(
            held.collect::<Vec<_>>(),
            order.map(|name| format!("held {name}")).iter().collect::<Vec<_>>()
        );
        let mut doc = engine.session(session()).load().await.unwrap();
        doc.lease = Default::default();
        docs.push(serde_json::to_value(doc).unwrap());
    }
    assert_eq!(docs[0], docs[1]);
    assert_eq!(docs[0], docs[2]);
}

#[tokio::test]
async fn no_more_run_at_once_than_the_limit_says_and_one_that_waits_does_not_count() {
    let flow = Nest { limit: 2, ..Nest::default() };
    let setup = setup_with(Durability::Crossing, flow.clone());
    let mut scripts = vec![vec![Approve("go".into()), note("approved")]];
    scripts.extend((0..5).map(|i| vec![hold(&i.to_string()), note(&i.to_string())]));
    let turn = setup.engine.turn::<Nest>(Setup::request(&[Steps(scripts)]));
    for name in ["0 holds", "1 holds"] {
        flow.gate(name).notified().await;
    }
    for i in 0..5 {
        flow.gate(&i.to_string()).notify_one();
    }
    let outcome = turn.await.unwrap();
    assert_eq!(outcome.interrupts().len(), 1);
    assert_eq!(setup.done().len(), 5, "the others have run to their ends");
    assert!(outcome.replies.is_empty(), "nothing counts before all are over");
    let over = setup.approve(&outcome, "go").await;
    assert_eq!(over.replies, ["go: yes by ada", "approved", "0", "1", "2", "3", "4"]);
    assert_eq!(setup.done().len(), 5, "none of them has run again");
    assert_eq!(flow.holding.lock().unwrap().1, 2);
}

#[tokio::test]
async fn approvals_of_two_branches_are_answered_in_any_order_each_once() {
    for order in [["left", "right"], ["right", "left"]] {
        for durability in DURABILITIES {
            let setup = setup(durability);
            let branch = |name: &str, cents| {
                vec![
                    note(&format!("ask {name}")),
                    Approve(name.into()),
                    Charge(cents),
                    Add(1),
                    note(name),
                ]
            };
            let words = [
                note("begin"),
                Steps(vec![branch("left", 1), vec![Charge(3)], branch("right", 2)]),
                note("end"),
            ];
            let first = setup.play(&words).await.unwrap();
            assert_eq!(first.replies, ["begin"]);
            let kinds: Vec<_> =
                first.interrupts().iter().map(|i| (i.kind, i.step.as_str())).collect();
            assert_eq!(kinds, [(EffectKind::Approval, "Inner"); 2]);
            let stale = request(&first, order[0]).request_id.clone();
            let second = setup.approve(&first, order[0]).await;
            assert!(second.replies.is_empty());
            assert_eq!(second.interrupts().len(), 1);
            let again = setup.engine.deliver(session(), Delivery::approve(stale)).await;
            assert_eq!(again.unwrap_err().code(), "not-waiting");
            let third = setup.approve(&second, order[1]).await;
            let expected = [
                "ask left",
                "left: yes by ada",
                "receipt for 1",
                "left",
                "receipt for 3",
                "ask right",
                "right: yes by ada",
                "receipt for 2",
                "right",
                "end",
            ];
            assert_eq!(third.replies, expected);
            assert_eq!(setup.state().await.total, 2);
            let mut done = setup.done();
            done.sort();
            assert_eq!(done.len(), 3, "{done:?}");
            assert!(done[0].starts_with("charge 1 s:1:0_0_1:"), "{done:?}");
            assert!(done[1].starts_with("charge 2 s:1:0_2_1:"), "{done:?}");
            assert!(done[2].starts_with("charge 3 s:1:0_1_0:"), "{done:?}");
        }
    }
}

#[tokio::test]
async fn two_writes_without_a_reducer_are_a_conflict_and_nothing_counts() {
    let setup = setup(Durability::Crossing);
    let words = [Steps(vec![
        vec![Name("ada".into()), Add(1), note("a")],
        vec![Add(1)],
        vec![Name("eve".into()), note("b")],
    ])];
    let error = setup.play(&words).await.unwrap_err();
    assert_eq!(error.code(), "branch-conflict");
    let text = error.to_string();
    for part in ["`name`", "0 (`Inner`) and 2 (`Inner`)", "config_reducers", "session `s`"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(setup.state().await, Shared::default());
    assert!(said(&setup).await.is_empty());
    let caught =
        setup.play(&[Try(words.to_vec()), Approve("go".into()), note("on")]).await.unwrap();
    assert_eq!(caught.replies, ["caught branch-conflict"]);
    assert_eq!(setup.approve(&caught, "go").await.replies, ["go: yes by ada", "on"]);
}

#[tokio::test]
async fn the_path_is_in_the_order_of_the_branches_whatever_finishes_first() {
    let paths = [["x", "y"], ["y", "x"]].map(async |order| {
        let flow = Nest::default();
        let setup = setup_with(Durability::Crossing, flow.clone());
        let words =
            [Steps(vec![vec![hold("x"), Step(vec![Step(vec![])])], vec![hold("y"), Step(vec![])]])];
        let turn = setup.engine.turn::<Nest>(Setup::request(&words));
        for name in order {
            flow.gate(&format!("{name} holds")).notified().await;
        }
        for (left, name) in [(1, order[0]), (0, order[1])] {
            flow.gate(name).notify_one();
            while flow.holding.lock().unwrap().0 > left {
                tokio::task::yield_now().await;
            }
            tokio::task::yield_now().await;
        }
        turn.await.unwrap();
        let path = setup.doc().await.path;
        path.into_iter().map(|entry| entry.level).collect::<Vec<_>>()
    });
    for path in paths {
        assert_eq!(path.await, [0, 1, 2, 3, 1, 2]);
    }
}

#[tokio::test]
async fn one_branch_may_write_a_field_alone() {
    let setup = setup_with(Durability::Crossing, Nest { reduces: false, ..Nest::default() });
    let words = [Steps(vec![vec![Name("ada".into())], vec![Add(4)], vec![log("x")]])];
    setup.play(&words).await.unwrap();
    let expected = Shared { total: 4, log: vec!["x".into()], name: Some("ada".into()) };
    assert_eq!(setup.state().await, expected);
}

#[tokio::test]
async fn a_branch_that_fails_fails_all_and_cancels_the_others() {
    let flow = Nest::default();
    let setup = setup_with(Durability::Crossing, flow.clone());
    flow.gate("slow").notify_one();
    let words = [Steps(vec![
        vec![Charge(1), note("a")],
        vec![Fail("broken".into())],
        vec![hold("slow"), Charge(2)],
    ])];
    let error = setup.play(&words).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("branch 1 (`Inner`)") && text.contains("broken"), "{text}");
    assert!(error.retryable());
    assert!(
        !setup.done().iter().any(|line| line.starts_with("charge 2")),
        "it began no other effect"
    );
    // What was done is not done again.
    let flow = Nest { fails: false, ..setup.flow.clone() };
    let store = setup.engine.store().clone();
    let engine = Engine::builder().shared_store(store).flow(flow.clone()).build().unwrap();
    flow.gate("slow").notify_one();
    let outcome = engine.turn::<Nest>(Setup::request(&words)).await.unwrap();
    assert_eq!(outcome.replies, ["receipt for 1", "a", "receipt for 2"]);
    let done = setup.done();
    assert_eq!(done.iter().filter(|line| line.starts_with("charge 1")).count(), 1, "{done:?}");
    assert_eq!(done.iter().filter(|line| line.starts_with("charge 2")).count(), 1, "{done:?}");
}

#[tokio::test]
async fn successes_are_kept_where_the_policy_says_so() {
    let flow = Nest { policy: FailurePolicy::RetainSuccesses, ..Nest::default() };
    let setup = setup_with(Durability::Crossing, flow);
    let words = [
        Steps(vec![
            vec![Add(1), note("a")],
            vec![Add(10), note("unsaid"), Fail("broken".into())],
            vec![Add(2), note("b")],
        ]),
        Approve("go".into()),
    ];
    let outcome = setup.play(&words).await.unwrap();
    assert_eq!(outcome.replies, ["a", "b"]);
    setup.approve(&outcome, "go").await;
    assert_eq!(setup.notes().await, ["0: a", "1: step-failed", "2: b"]);
    assert_eq!(setup.state().await.total, 3);
}

#[tokio::test]
async fn a_quorum_is_enough_or_missed() {
    let flow = Nest { policy: FailurePolicy::Quorum(2), ..Nest::default() };
    let setup = setup_with(Durability::Crossing, flow);
    let words = [Steps(vec![
        vec![hold("never"), Add(100)],
        vec![Fail("broken".into())],
        vec![Add(1), note("a")],
        vec![Add(2), note("b")],
    ])];
    let turn = setup.engine.turn::<Nest>(Setup::request(&words));
    tokio::time::pause();
    let outcome = turn.await.unwrap();
    assert_eq!(outcome.replies, ["a", "b"]);
    let notes = ["0: branch-cancelled", "1: step-failed", "2: a", "3: b"];
    assert_eq!(setup.notes().await, notes);
    assert_eq!(setup.state().await.total, 3);

    let setup = setup_with(Durability::Crossing, setup.flow.clone());
    let words = [Steps(vec![vec![Fail("one".into())], vec![note("a")], vec![Fail("two".into())]])];
    let error = setup.play(&words).await.unwrap_err();
    assert_eq!(error.code(), "quorum-missed");
    let text = error.to_string();
    assert!(text.contains("1 branches have succeeded, 2 are needed: one; two"), "{text}");
    let error = setup.play(&[Steps(vec![vec![note("a")]])]).await.unwrap_err();
    assert!(error.to_string().contains("there are only 1"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_first_success_cancels_the_others_which_finish_what_they_do() {
    let flow = Nest { policy: FailurePolicy::First, ..Nest::default() };
    let setup = setup_with(Durability::Crossing, flow.clone());
    let words = [
        Steps(vec![
            vec![hold("slow"), Charge(1)],
            vec![hold("never"), Charge(2)],
            vec![hold("fast"), note("won")],
            vec![Approve("unneeded".into())],
        ]),
        note("over"),
    ];
    let turn = setup.engine.turn::<Nest>(Setup::request(&words));
    for name in ["slow", "never", "fast"] {
        flow.gate(&format!("{name} holds")).notified().await;
    }
    flow.gate("fast").notify_one();
    while flow.holding.lock().unwrap().0 > 2 {
        tokio::task::yield_now().await;
    }
    flow.gate("slow").notify_one();
    let outcome = turn.await.unwrap();
    assert_eq!(outcome.replies, ["won", "over"]);
    assert!(outcome.is_ended(), "nobody waits for the approval");
    assert_eq!(setup.done(), ["held fast", "held slow"], "and no effect is begun any more");
    let notes = setup.notes().await;
    assert_eq!(notes[..3], ["0: branch-cancelled", "1: branch-cancelled", "2: won"]);
}

#[tokio::test]
async fn branches_within_branches_join() {
    let setup = setup(Durability::Crossing);
    let inner = |name: &str, cents| {
        Steps(vec![vec![Add(1), Approve(name.into()), note(name)], vec![Charge(cents), Add(1)]])
    };
    let words = [Steps(vec![vec![inner("p", 1), log("left")], vec![log("right"), inner("q", 2)]])];
    let first = setup.play(&words).await.unwrap();
    assert_eq!(first.interrupts().len(), 2);
    assert_eq!(setup.done().len(), 2);
    let second = setup.approve(&first, "q").await;
    let third = setup.approve(&second, "p").await;
    let expected = ["p: yes by ada", "p", "receipt for 1", "q: yes by ada", "q", "receipt for 2"];
    assert_eq!(third.replies, expected);
    let state = setup.state().await;
    assert_eq!((state.total, state.log), (4, vec!["left".to_owned(), "right".to_owned()]));
    assert_eq!(setup.done().len(), 2);
}

#[tokio::test]
async fn branches_sleep_and_are_woken_one_after_the_other() {
    let setup = setup(Durability::Crossing);
    let words = [Steps(vec![vec![Sleep(60), Charge(1)], vec![Sleep(30), Charge(2)]]), note("over")];
    let outcome = setup.play(&words).await.unwrap();
    assert_eq!(outcome.interrupts().len(), 2);
    setup.clock.advance(Duration::from_secs(31));
    assert_eq!(setup.engine.sweep().await.unwrap().woken.len(), 1);
    assert_eq!(setup.done().len(), 1);
    assert!(setup.engine.sweep().await.unwrap().woken.is_empty());
    setup.clock.advance(Duration::from_secs(30));
    assert_eq!(setup.engine.sweep().await.unwrap().woken.len(), 1);
    assert_eq!(setup.done().len(), 2);
    assert_eq!(said(&setup).await, ["receipt for 1", "receipt for 2", "over"]);
}

#[tokio::test]
async fn there_are_limits_and_things_that_a_branch_cannot_do() {
    let setup = setup(Durability::Crossing);
    let error = setup.play(&[Steps(vec![vec![]; 41])]).await.unwrap_err();
    assert_eq!(error.code(), "too-many-branches");
    let text = error.to_string();
    assert!(text.contains("41 steps") && text.contains("at most 40"), "{text}");
    assert!(text.contains("Limits::branches"), "{text}");
    let deep = (0..4).fold(vec![note("deep")], |words, _| vec![Steps(vec![words])]);
    assert_eq!(setup.play(&deep).await.unwrap_err().code(), "step-depth");
    let within = [Steps(vec![vec![Step(vec![Sure])], vec![Approve("go".into())]])];
    for asks in [&[Forms][..], &within] {
        let error = setup.play(asks).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("it runs beside others") && text.contains("cx.input"), "{text}");
    }
    let outcome = setup.play(&[Steps(vec![]), note("usable")]).await.unwrap();
    assert_eq!(outcome.replies, ["usable"]);
}

#[test]
fn a_reducer_for_a_field_that_the_state_does_not_have_is_found_when_the_engine_is_built() {
    #[flow(id = "typo", steps(Only), state = Shared)]
    #[derive(Clone)]
    struct Typo;

    impl Flow for Typo {
        fn config_reducers(&self) -> Reducers {
            Reducers::new().sum("totl")
        }
    }

    #[step(action, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Only;

    impl Action for Only {
        type Flow = Typo;
        async fn run(&mut self, _: &mut ActionCx<'_, Typo>) -> Result<OnlyNext> {
            Ok(OnlyNext::End("over".into()))
        }
    }

    let builder: EngineBuilder = Engine::builder().store(MemoryStore::new()).flow(Typo);
    let error = builder.build().unwrap_err();
    assert_eq!(error.code(), "unknown-field");
    let text = error.to_string();
    assert!(text.contains("`totl`") && text.contains("total"), "{text}");
}
