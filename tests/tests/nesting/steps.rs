//! A step within a step.

use flow_core::event::Event;
use flow_core::session::{Status, Waiting};
use futures_util::StreamExt as _;

use super::*;

#[tokio::test]
async fn a_step_within_a_step_gives_its_fields_and_moves_nothing() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        let words = [note("a"), Step(vec![note("b"), Where, Add(2)]), note("c"), Where, Add(3)];
        let outcome = setup.play(&words).await.unwrap();
        assert_eq!(outcome.replies, ["a", "b", "Inner at Outer", "c", "Outer at Outer"]);
        assert_eq!(setup.notes().await, ["a", "b", "c"]);
        assert_eq!(setup.state().await.total, 5);
        let doc = setup.doc().await;
        assert_eq!(doc.current_step, "Outer");
        assert!(!doc.steps.contains_key("Inner"), "its frame is its own");
        let path: Vec<_> = doc.path.iter().map(|e| (e.step.as_str(), e.level)).collect();
        assert_eq!(path, [("Outer", 0), ("Inner", 1)]);
        assert!(doc.effects.is_empty());
    }
}

#[tokio::test]
async fn its_events_say_how_deep_it_is() {
    let setup = setup(Durability::Crossing);
    let words = [Step(vec![Step(vec![note("deep")])])];
    let events = setup.engine.turn::<Nest>(Setup::request(&words));
    let events: Vec<Event> = events.collect().await;
    let steps = events.iter().filter_map(|event| match event {
        Event::StepEnter { step, level, .. } => Some(format!("enter {step} {level}")),
        Event::StepExit { step, level } => Some(format!("exit {step} {level}")),
        _ => None,
    });
    let steps: Vec<_> = steps.collect();
    let expected = [
        "enter Outer 0",
        "enter Inner 1",
        "enter Inner 2",
        "exit Inner 2",
        "exit Inner 1",
        "exit Outer 0",
    ];
    assert_eq!(steps, expected);
    let top = serde_json::to_value(&events[3]).unwrap();
    assert!(top.get("level").is_none(), "{top}");
}

#[tokio::test]
async fn what_it_has_done_before_it_waits_is_done_and_said_once() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        let words = [
            note("a"),
            Step(vec![note("b"), Charge(1), Add(1), Approve("first".into()), note("c"), Charge(2)]),
            note("d"),
            Charge(3),
            Approve("second".into()),
            note("e"),
            Add(10),
        ];
        let first = setup.play(&words).await.unwrap();
        assert_eq!(first.replies, ["a", "b", "receipt for 1"]);
        assert_eq!(request(&first, "first").step, "Inner");
        let doc = setup.doc().await;
        assert_eq!((doc.current_step.as_str(), &doc.status), ("Outer", &Status::Waiting));
        assert_eq!(setup.state().await, Shared::default(), "a run that waits has changed nothing");
        let second = setup.approve(&first, "first").await;
        let expected = ["first: yes by ada", "c", "receipt for 2", "d", "receipt for 3"];
        assert_eq!(second.replies, expected);
        let third = setup.approve(&second, "second").await;
        assert_eq!(third.replies, ["second: yes by ada", "e"]);
        assert!(third.is_ended());
        assert_eq!(setup.state().await.total, 11);
        assert_eq!(setup.notes().await, ["a", "b", "c", "d", "e"]);
        let keys: Vec<String> = setup.done();
        let starts =
            ["charge 1 s:1:0_0:charge:", "charge 2 s:1:0_2:charge:", "charge 3 s:1:1:charge:"];
        assert_eq!(keys.len(), starts.len(), "{keys:?}");
        for (key, start) in keys.iter().zip(starts) {
            assert!(key.starts_with(start), "{key} is not {start}");
        }
        let all = [first.replies, second.replies, third.replies].concat();
        assert_eq!(said(&setup).await, all);
    }
}

#[tokio::test]
async fn a_form_within_an_action_asks_over_turns() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        let words = [note("a"), Add(1), Form, note("b"), Charge(1)];
        let first = setup.play(&words).await.unwrap();
        assert_eq!(first.replies, ["a", "Which city?"]);
        assert_eq!(first.question().unwrap().text, "Which city?");
        assert_eq!(first.question().unwrap().fields, ["city"]);
        let second = setup.say("to Lisbon").await;
        assert_eq!(second.replies, ["How many guests?"]);
        let doc = setup.doc().await;
        assert_eq!(doc.current_step, "Outer");
        let Some(Waiting::Interrupts { pending }) = &doc.waiting else { panic!("{doc:?}") };
        assert_eq!(pending.len(), 1);
        let third = setup.say("3").await;
        assert_eq!(third.replies, ["b", "receipt for 1"]);
        let form = r#"Form { city: Some("Lisbon"), guests: Some(3) }"#;
        assert_eq!(setup.notes().await, ["a", form, "b"]);
        assert_eq!(setup.state().await, Shared { total: 1, log: vec!["form".into()], name: None });
        assert_eq!(setup.done().len(), 1);
    }
}

#[tokio::test]
async fn a_question_within_an_action_that_waited_before_is_asked_again_when_unclear() {
    let setup = setup(Durability::Crossing);
    let words = [Approve("go".into()), Sure, Sure, note("over")];
    let outcome = setup.play(&words).await.unwrap();
    let asked = setup.approve(&outcome, "go").await;
    assert_eq!(asked.replies, ["go: yes by ada", "Are you sure?"]);
    let unclear = setup.say("what do you mean?").await;
    assert_eq!(unclear.replies.last().unwrap(), "Are you sure?");
    let again = setup.say("yes").await;
    assert_eq!(again.replies, ["Are you sure?"]);
    let over = setup.say("no").await;
    assert_eq!(over.replies, ["over"]);
    assert_eq!(
        setup.notes().await,
        ["Sure { yes: Some(true) }", "Sure { yes: Some(false) }", "over"]
    );
}

#[tokio::test]
async fn a_turn_without_a_message_leaves_the_question_open() {
    let setup = setup(Durability::Crossing);
    let asked = setup.play(&[Sure]).await.unwrap();
    let revision = setup.doc().await.revision;
    let outcome = setup.engine.turn::<Nest>(TurnRequest::new(session())).await.unwrap();
    assert_eq!(outcome.outcome, asked.outcome);
    assert!(outcome.replies.is_empty());
    assert!(setup.doc().await.revision > revision);
    assert!(setup.say("yes").await.is_ended());
}

#[tokio::test]
async fn a_message_that_is_sent_again_is_heard_once() {
    let setup = setup(Durability::Crossing);
    setup.play(&[Sure, Charge(1)]).await.unwrap();
    let yes = TurnRequest::new(session()).message("yes").turn_id("m-1");
    let first = setup.engine.turn::<Nest>(yes.clone()).await.unwrap();
    let second = setup.engine.turn::<Nest>(yes).await.unwrap();
    assert!(second.repeated);
    assert_eq!((first.replies, first.outcome), (second.replies, second.outcome));
    assert_eq!(setup.done().len(), 1);
}

#[tokio::test]
async fn steps_are_as_deep_as_the_limit_says() {
    let setup = setup(Durability::Crossing);
    let nested = |depth: usize| (0..depth).fold(vec![note("deep")], |words, _| vec![Step(words)]);
    let error = setup.play(&nested(4)).await.unwrap_err();
    assert_eq!(error.code(), "step-depth");
    let text = error.to_string();
    assert!(
        text.contains("more than 3 steps deep") && text.contains("Limits::step_depth"),
        "{text}"
    );
    assert!(text.contains("session `s`") && text.contains("`Inner`"), "{text}");
    let outcome = setup.play(&nested(3)).await.unwrap();
    assert_eq!(outcome.replies, ["deep"]);
}

#[tokio::test]
async fn the_failure_of_a_step_that_is_handled_is_the_same_in_every_run() {
    for durability in DURABILITIES {
        let setup = setup(durability);
        let words = [
            Try(vec![Step(vec![note("unsaid"), Charge(1), Fail("broken".into())])]),
            Charge(2),
            Approve("go".into()),
            note("over"),
        ];
        let outcome = setup.play(&words).await.unwrap();
        assert_eq!(outcome.replies, ["caught step-failed", "receipt for 2"]);
        let over = setup.approve(&outcome, "go").await;
        assert_eq!(over.replies, ["go: yes by ada", "over"]);
        assert_eq!(setup.done().len(), 2, "{:?}", setup.done());
    }
}

#[tokio::test]
async fn what_was_said_before_a_wait_stays_said_when_the_step_fails_later() {
    let setup = setup(Durability::Crossing);
    let words = [
        note("a"),
        Try(vec![Step(vec![note("b"), Approve("go".into()), note("unsaid"), Fail("no".into())])]),
        note("c"),
        Approve("on".into()),
        note("d"),
    ];
    let outcome = setup.play(&words).await.unwrap();
    assert_eq!(outcome.replies, ["a", "b"]);
    let outcome = setup.approve(&outcome, "go").await;
    assert_eq!(outcome.replies, ["caught step-failed", "c"]);
    let outcome = setup.approve(&outcome, "on").await;
    assert_eq!(outcome.replies, ["on: yes by ada", "d"]);
}

#[tokio::test]
async fn a_step_that_fails_the_turn_goes_on_with_what_it_has_done() {
    for durability in DURABILITIES {
        let mut setup = setup(durability);
        let words = [
            Step(vec![note("a"), Charge(1)]),
            Step(vec![note("b"), Charge(2), Fail("broken".into())]),
        ];
        let error = setup.play(&words).await.unwrap_err();
        assert!(error.retryable(), "{error}");
        assert_eq!(setup.doc().await.status, Status::Failed);
        let store = setup.engine.store().clone();
        let flow = Nest { fails: false, ..setup.flow.clone() };
        setup.engine = Engine::builder().shared_store(store).flow(flow).build().unwrap();
        let outcome = setup.play(&words).await.unwrap();
        assert_eq!(outcome.replies, ["a", "receipt for 1", "b", "receipt for 2"]);
        assert_eq!(setup.done().len(), 2, "{:?}", setup.done());
    }
}

#[tokio::test]
async fn a_denial_is_one_of_the_step_that_has_asked() {
    let setup = setup(Durability::Crossing);
    let words = [Try(vec![Step(vec![Approve("go".into())])]), Charge(1), Approve("on".into())];
    let outcome = setup.play(&words).await.unwrap();
    let no = Delivery::deny(request(&outcome, "go").request_id.clone()).by("eve");
    let outcome = setup.engine.deliver(session(), no).await.unwrap();
    assert_eq!(outcome.replies, ["caught step-failed", "receipt for 1"]);
    let over = setup.approve(&outcome, "on").await;
    assert_eq!(over.replies, ["on: yes by ada"]);
    assert_eq!(setup.done().len(), 1);
}

#[tokio::test]
async fn an_action_that_never_ends_meets_a_limit() {
    let limits = Limits::default().effects(10);
    let flow = Nest::default();
    let engine = Engine::builder().store(MemoryStore::new()).flow(flow.clone()).limits(limits);
    let engine = engine.build().unwrap();
    let charges = |count| (0..count).map(Charge).collect::<Vec<_>>();
    let error = engine.turn::<Nest>(Setup::request(&charges(11))).await.unwrap_err();
    assert_eq!(error.code(), "too-many-effects");
    let text = error.to_string();
    for part in ["session `s`", "step `Outer`", "10 effects", "Limits::effects", "restart_step"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!error.retryable());
    assert_eq!(flow.done.lock().unwrap().len(), 10);
    engine.session(session()).restart_step().await.unwrap();
    let outcome = engine.turn::<Nest>(Setup::request(&charges(10))).await.unwrap();
    assert!(outcome.is_ended(), "the session is usable");
    // Those of a step that is over count no more.
    let steps = (0..8).map(|_| Step(charges(2))).collect::<Vec<_>>();
    let other = TurnRequest::new(SessionId::new("t").unwrap());
    let other = other.message(serde_json::to_string(&steps).unwrap());
    assert!(engine.turn::<Nest>(other).await.unwrap().is_ended());
}

/// What was entered, in the order of the path.
async fn path(setup: &Setup) -> Vec<(String, u32)> {
    setup.doc().await.path.into_iter().map(|entry| (entry.step, entry.level)).collect()
}

#[tokio::test]
async fn steps_that_go_on_after_a_crash_or_a_wait_are_in_the_path_once() {
    for durability in DURABILITIES {
        let flow = Nest::default();
        let mut setup = setup_with(durability, flow.clone());
        let words = [
            Step(vec![Charge(1), Step(vec![Hold("x".into())]), Approve("go".into()), Form]),
            Steps(vec![vec![Step(vec![])], vec![]]),
        ];
        let turn = setup.engine.turn::<Nest>(Setup::request(&words).turn_id("t"));
        flow.gate("x holds").notified().await;
        // The process dies while the inner step is at work.
        drop(turn);
        let store = setup.engine.store().clone();
        let builder = Engine::builder().shared_store(store).durability(durability);
        setup.engine = builder.flow(flow.clone()).build().unwrap();
        flow.gate("x").notify_one();
        let turn = Setup::request(&words).turn_id("t");
        let outcome = setup.engine.turn::<Nest>(turn).await.unwrap();
        assert_eq!(path(&setup).await, [("Outer".to_owned(), 0)], "the run is not over");
        setup.approve(&outcome, "go").await;
        setup.say("to Lisbon").await;
        assert!(setup.say("3").await.is_ended());
        let expected = [("Outer", 0), ("Inner", 1), ("Inner", 2), ("Form", 2)];
        let expected = expected.into_iter().chain([("Inner", 1), ("Inner", 2), ("Inner", 1)]);
        let expected: Vec<_> = expected.map(|(step, level)| (step.to_owned(), level)).collect();
        assert_eq!(path(&setup).await, expected, "{durability:?}");
    }
}

#[tokio::test]
async fn a_step_that_fails_has_changed_nothing_of_the_state() {
    for durability in DURABILITIES {
        let fails = || vec![Add(1), log("lost"), Step(vec![Add(1)]), Fail("broken".into())];
        let setup = setup(durability);
        setup.play(&[Add(10), Try(vec![Step(fails())]), Add(100)]).await.unwrap();
        let waits = self::setup(durability);
        let words = [Add(10), Try(vec![Step(fails())]), Add(100), Approve("go".into())];
        let outcome = waits.play(&words).await.unwrap();
        assert!(waits.approve(&outcome, "go").await.is_ended());
        for setup in [setup, waits] {
            assert_eq!(setup.state().await, Shared { total: 110, ..Shared::default() });
            let steps: Vec<u32> = path(&setup).await.into_iter().map(|(_, level)| level).collect();
            assert_eq!(steps, [0, 1, 2], "it was entered all the same");
        }
    }
}

#[tokio::test]
async fn a_step_that_goes_on_is_entered_and_left_in_the_events_of_the_turn() {
    let setup = setup(Durability::Crossing);
    let levels = async |turn: TurnRequest| {
        let events: Vec<Event> = setup.engine.turn::<Nest>(turn).collect().await;
        let steps = events.iter().filter_map(|event| match event {
            Event::StepEnter { step, level, .. } => Some(format!("enter {step} {level}")),
            Event::StepExit { step, level } => Some(format!("exit {step} {level}")),
            _ => None,
        });
        steps.collect::<Vec<_>>()
    };
    let words = [Step(vec![Step(vec![]), Approve("go".into()), Sure])];
    let first = levels(Setup::request(&words)).await;
    assert_eq!(first, ["enter Outer 0", "enter Inner 1", "enter Inner 2", "exit Inner 2"]);
    let Some(Waiting::Interrupts { pending }) = setup.doc().await.waiting else { panic!() };
    let yes = Delivery::approve(&pending[0].request_id).by("ada");
    let second = levels(TurnRequest::new(session()).deliver(yes)).await;
    assert_eq!(second, ["enter Inner 1", "enter Sure 2"]);
    let third = levels(TurnRequest::new(session()).message("yes")).await;
    let expected = ["enter Inner 1", "enter Sure 2", "exit Sure 2", "exit Inner 1", "exit Outer 0"];
    assert_eq!(third, expected);
}
