//! Checks: what they are shown, and what becomes of the flow.

use flow_core::flow::gate::Ending;
use flow_core::outcome::Outcome;
use flow_core::session::{Status, Waiting};
use flow_core::store::StoreLimits;
use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn a_run_that_passes_ends_with_its_verdicts_on_record() {
    let define = |gates| within_budget(gates).check("named", |_| Verdict::pass()).advisory();
    for setup in on_stores(define, |builder| builder).await {
        let (events, outcome) = setup.events(say("total:100 end")).await;
        let verdicts =
            [verdict("within-budget", true, true, None), verdict("named", true, false, None)];
        assert_eq!(outcome.outcome, Outcome::Ended { reason: "done".into() });
        assert_eq!(outcome.gates, verdicts);
        let names: Vec<_> = events.iter().map(Event::name).collect();
        let told = ["gate-verdict", "gate-verdict", "step-exit", "flow-end", "turn-end"];
        assert_eq!(names[names.len() - 5..], told);
        let told: Vec<Value> = events.iter().map(|e| serde_json::to_value(e).unwrap()).collect();
        let passed =
            json!({ "gate": "within-budget", "passed": true, "blocking": true, "ran": true });
        let named = json!({ "gate": "named", "passed": true, "blocking": false, "ran": true });
        let end = json!({ "type": "flow-end", "reason": "done", "gates": [passed, named] });
        assert_eq!(told[told.len() - 2], end);
        let mut event = passed.clone();
        event["type"] = "gate-verdict".into();
        assert_eq!(told[told.len() - 5], event);
        let doc = setup.doc().await;
        assert_eq!((doc.status, doc.gates.as_slice()), (Status::Completed, &verdicts[..]));
        assert_eq!(serde_json::to_value(&doc).unwrap()["gates"], json!([passed, named]));
    }
}

#[tokio::test]
async fn a_flow_without_gates_leaves_no_trace_of_them() {
    let setup = setup(|gates| gates);
    let (events, outcome) = setup.events(say("end")).await;
    assert_eq!((outcome.is_ended(), outcome.gates.len()), (true, 0));
    let end = events.iter().find(|event| event.name() == "flow-end").unwrap();
    assert_eq!(serde_json::to_value(end).unwrap(), json!({ "type": "flow-end", "reason": "done" }));
    let doc = serde_json::to_value(setup.doc().await).unwrap();
    assert_eq!(doc.get("gates"), None);
}

#[tokio::test]
async fn a_blocking_gate_holds_the_flow_and_the_next_run_begins_with_a_clean_verdict() {
    for setup in on_stores(within_budget, |builder| builder).await {
        let (events, outcome) = setup.events(say("total:120 say:bye end")).await;
        let failed = verdict("within-budget", false, true, Some("120 is over the budget"));
        assert_eq!(outcome.outcome, Outcome::Held { gates: vec!["within-budget".into()] });
        assert_eq!(outcome.gates, std::slice::from_ref(&failed));
        assert_eq!(outcome.replies, ["bye", "120 is over the budget"]);
        let names: Vec<_> = events.iter().map(Event::name).collect();
        assert_eq!(names[names.len() - 4..], ["message", "gate-verdict", "feedback", "turn-end"]);
        assert_eq!(setup.done.take(), ["verify"], "the step is not left");
        let doc = setup.doc().await;
        assert_eq!((doc.status, doc.current_step.as_str()), (Status::Waiting, "Desk"));
        assert_eq!(doc.waiting, Some(Waiting::Message { question: None }));
        assert_eq!((doc.ended, doc.error, doc.visit.number), (None, None, 1));
        assert_eq!(doc.gates, [failed]);

        let outcome = setup.say("hello").await;
        assert_eq!(outcome.outcome, Outcome::Waiting { question: None });
        assert_eq!((outcome.gates.len(), setup.doc().await.gates.len()), (0, 0));

        let outcome = setup.say("total:80 end").await;
        assert_eq!(outcome.outcome, Outcome::Ended { reason: "done".into() });
        assert_eq!(outcome.gates, [verdict("within-budget", true, true, None)]);
        assert_eq!(setup.doc().await.gates, outcome.gates);
        assert_eq!(setup.said().await, ["total:120 say:bye end", "bye", "hello", "total:80 end"]);
    }
}

#[tokio::test]
async fn the_verdict_is_cleared_before_the_next_run_does_anything() {
    let define = |gates| within_budget(gates);
    let change = |builder: EngineBuilder| builder.durability(Durability::Effect);
    let setup = setup_with(shop(define), Arc::new(MemoryStore::new()), change);
    setup.say("total:120 end").await;
    // The action is put aside in the middle of its run.
    setup.say("approve").await;
    assert_eq!(setup.doc().await.gates, []);
}

#[tokio::test]
async fn an_advisory_gate_lets_the_flow_end_with_its_verdict() {
    let setup = setup(|gates| within_budget(gates).advisory().check("named", |_| Verdict::pass()));
    let outcome = setup.say("total:120 end").await;
    assert!(outcome.is_ended());
    assert_eq!(outcome.replies, [""; 0]);
    let failed = verdict("within-budget", false, false, Some("120 is over the budget"));
    assert_eq!(setup.doc().await.gates, [failed, verdict("named", true, true, None)]);
}

#[tokio::test]
async fn a_gate_that_could_not_run_blocks_also_when_it_is_advisory() {
    let define = |gates: Gates<Shop>| {
        gates
            .check("breaks", |run| -> Result<Verdict> {
                run.state.items.first().ok_or_else(|| StepError::new("no item, key 4711"))?;
                Ok(Verdict::pass())
            })
            .advisory()
            .check("panics", |run| {
                if run.state.total > 100 { panic!("at the disco") } else { Verdict::pass() }
            })
            .advisory()
            .check("passes", |_| Verdict::pass())
    };
    let setup = setup(define);
    let outcome = setup.say("total:120 end").await;
    let held = Outcome::Held { gates: vec!["breaks".into(), "panics".into()] };
    assert_eq!(outcome.outcome, held);
    let verdicts = [
        broken("breaks", "no item, key 4711"),
        broken("panics", "it panicked: at the disco"),
        verdict("passes", true, true, None),
    ];
    assert_eq!(setup.doc().await.gates, verdicts);
    // What went wrong is not for the user.
    let told = ["breaks", "panics"]
        .map(|gate| format!("The check `{gate}` could not be made. Please try again."));
    assert_eq!(outcome.replies, told);
    assert_eq!(
        setup.say("total:1 end").await.outcome,
        Outcome::Held { gates: vec!["breaks".into()] }
    );
}

#[tokio::test]
async fn a_gate_without_a_reason_is_told_by_its_name() {
    let setup = setup(|gates| gates.check("quiet", |_| Verdict::fail(" ")));
    let outcome = setup.say("end").await;
    assert_eq!(outcome.replies, ["The check `quiet` was not passed."]);
    assert_eq!(outcome.gates, [verdict("quiet", false, true, None)]);
}

#[tokio::test]
async fn a_hand_off_is_held_like_an_end() {
    let setup = setup(within_budget);
    let outcome = setup.say("total:120 hand").await;
    assert_eq!(outcome.outcome, Outcome::Held { gates: vec!["within-budget".into()] });
    let (events, outcome) = setup.events(say("total:20 hand")).await;
    assert_eq!((outcome.flow.as_str(), outcome.gates), ("other", Vec::new()));
    let ends = events.iter().find_map(|event| match event {
        Event::FlowEnd { reason, gates } => Some((reason.as_str(), gates.clone())),
        _ => None,
    });
    let passed = vec![verdict("within-budget", true, true, None)];
    assert_eq!(ends, Some(("handed off to other", passed.clone())));
    let left = serde_json::from_value(serde_json::json!("s~1")).unwrap();
    let left = setup.engine.session(left).load().await.unwrap();
    assert_eq!((left.flow.id.as_str(), left.gates), ("shop", passed));
}

#[tokio::test]
async fn no_gate_keeps_a_person_away() {
    for setup in on_stores(within_budget, |builder| builder).await {
        let outcome = setup.say("total:120 escalate").await;
        let escalated = Outcome::Escalated { reason: "too hard".into() };
        assert_eq!((&outcome.outcome, outcome.replies.len()), (&escalated, 0));
        let failed = [verdict("within-budget", false, true, Some("120 is over the budget"))];
        assert_eq!((&outcome.gates[..], &setup.doc().await.gates[..]), (&failed[..], &failed[..]));
        // Nothing runs, so the verdicts stay.
        let parked = setup.say("hello?").await;
        assert_eq!((parked.outcome, &parked.gates[..]), (escalated, &failed[..]));
        setup.engine.session(session()).release().await.unwrap();
        assert_eq!(setup.say("total:1").await.gates, []);
        assert_eq!(setup.doc().await.gates, []);
        assert!(setup.say("end").await.is_ended());
    }
}

#[tokio::test]
async fn a_check_is_shown_the_run_as_it_would_be_committed() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = seen.clone();
    let setup = setup(move |gates| {
        let keep = keep.clone();
        gates.check("sees", move |run| -> Result<Verdict> {
            let desk: Desk = run.step()?.ok_or_else(|| StepError::new("not visited"))?;
            let chat: Option<Chat> = run.step()?;
            let ending = match run.ending {
                Ending::End(reason) => format!("end: {reason}"),
                Ending::HandOff(to) => format!("hand-off: {to}"),
                Ending::Escalate(reason) => format!("escalate: {reason}"),
                _ => "?".into(),
            };
            let said = run.doc.memory["main"].messages.last().map(|m| m.to_text());
            assert_eq!(run.doc.state["total"], run.state.total);
            let shown = (run.doc.revision, run.doc.current_step.clone(), run.doc.status);
            run.flow.done.push("asked");
            keep.lock()
                .unwrap()
                .push(((run.state.total, desk.name, chat.is_some()), (ending, said, shown)));
            Ok(Verdict::pass())
        })
    });
    setup.say("total:7 name:ada say:bye escalate").await;
    setup.engine.session(session()).release().await.unwrap();
    setup.say("total:8 say:ciao hand").await;
    let last = |text: &str| Some(text.to_owned());
    let shown = |revision| (revision, "Desk".to_owned(), Status::Running);
    assert_eq!(
        *seen.lock().unwrap(),
        [
            ((7, "ada".to_owned(), false), ("escalate: too hard".into(), last("bye"), shown(0))),
            ((8, "ada".to_owned(), false), ("hand-off: other".into(), last("ciao"), shown(2))),
        ]
    );
    assert_eq!(setup.done.take(), ["verify", "asked", "verify", "asked", "exit"]);
}

#[tokio::test]
async fn fields_that_do_not_fit_are_an_error_of_the_gate_with_their_place() {
    /// As `Desk`, of another build.
    #[step(action, id = "Desk", next(stay))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Desk2 {
        runs: String,
    }
    impl Action for Desk2 {
        type Flow = Shop;
        async fn run(&mut self, _: &mut ActionCx<'_, Shop>) -> Result<Desk2Next> {
            Ok(Desk2Next::Stay)
        }
    }
    let setup =
        setup(|gates| gates.check("reads", |run| run.step::<Desk2>().map(|_| Verdict::pass())));
    let outcome = setup.say("end").await;
    let reason = outcome.gates[0].reason.as_deref().unwrap();
    assert!(reason.starts_with("`steps.Desk`, at `runs`: invalid type"), "{reason}");
}

#[tokio::test]
async fn the_gate_of_the_step_comes_first() {
    let setup = setup(|gates| {
        gates.check("counts", |run| {
            run.flow.done.push("asked");
            Verdict::pass()
        })
    });
    let outcome = setup.say("name:nobody end").await;
    assert_eq!((outcome.replies, outcome.gates), (vec!["nobody may not leave".into()], vec![]));
    assert_eq!(setup.done.take(), ["verify"]);
}

#[tokio::test]
async fn an_end_that_the_flow_makes_of_an_error_passes_the_gates_too() {
    let setup = setup(within_budget);
    let outcome = setup.say("total:120 fail").await;
    assert_eq!(outcome.outcome, Outcome::Held { gates: vec!["within-budget".into()] });
    assert_eq!(
        setup.say("total:10 fail").await.outcome,
        Outcome::Ended { reason: "failed".into() }
    );
}

#[tokio::test]
async fn a_repeated_turn_gives_the_recorded_verdicts() {
    for setup in on_stores(within_budget, |builder| builder).await {
        let held = setup.turn(say("total:120 end").turn_id("1")).await.unwrap();
        let ended = setup.turn(say("total:20 end").turn_id("2")).await.unwrap();
        for (id, first) in [("1", held), ("2", ended)] {
            let again = setup.turn(say("other").turn_id(id)).await.unwrap();
            assert!(again.repeated);
            assert_eq!((again.gates, again.outcome), (first.gates, first.outcome));
        }
    }
}

#[tokio::test]
async fn a_long_reason_is_cut_in_the_document_and_to_the_user() {
    use flow_core::flow::gate::REASON_BYTES;
    let setup = setup(|gates| gates.check("long", |_| Verdict::fail("x".repeat(2 * REASON_BYTES))));
    let outcome = setup.say("end").await;
    assert_eq!(outcome.replies[0].len(), REASON_BYTES);
    assert_eq!(setup.doc().await.gates[0].reason.as_ref().map(String::len), Some(REASON_BYTES));
}

#[tokio::test]
async fn the_verdict_about_an_end_that_is_not_made_is_dropped() {
    let setup = setup(within_budget);
    let (events, outcome) = setup.events(say("name:stuck end")).await;
    assert_eq!(outcome.outcome, Outcome::Waiting { question: None });
    assert!(events.iter().any(|event| event.name() == "gate-verdict"));
    assert_eq!((outcome.gates, setup.doc().await.gates), (vec![], vec![]));
}

#[tokio::test]
async fn verdicts_count_for_the_size_of_the_document() {
    let define = |gates: Gates<Shop>| {
        let names = (0..8).map(|n| format!("gate-{n}"));
        names.fold(gates, |gates, name| gates.check(name, |_| Verdict::fail("x".repeat(1000))))
    };
    let limits = StoreLimits { document_bytes: 8 * 1024 };
    let setup = setup_with(shop(define), Arc::new(MemoryStore::with_limits(limits)), |b| b);
    let error = setup.turn(say("end")).await.unwrap_err();
    assert_eq!(error.code(), "document-too-large");
    assert!(error.to_string().contains("`gates` with 8"), "{error}");
    assert_eq!(setup.say("hello").await.outcome, Outcome::Waiting { question: None });
}
