//! What a flow that is held has done is not done again.

use flow_core::engine::Delivery;
use flow_core::outcome::Outcome;
use tests::failing_store::{FailingStore, Fault};

use super::*;

/// A gate that holds the first `count` runs.
fn holding(count: usize) -> impl Fn(Gates<Shop>) -> Gates<Shop> + Send + Sync + Copy + 'static {
    move |gates| {
        gates.check("patient", move |run| {
            run.flow.done.push("asked");
            let mut asked = run.flow.asked.lock().unwrap();
            *asked += 1;
            if *asked <= count { Verdict::fail("not yet") } else { Verdict::pass() }
        })
    }
}

const HELD: [&str; 1] = ["patient"];

fn assert_held(outcome: &TurnOutcome) {
    assert_eq!(outcome.outcome, Outcome::Held { gates: HELD.map(str::to_owned).to_vec() });
}

#[tokio::test]
async fn a_turn_without_a_message_tries_again_and_charges_nothing() {
    for durability in DURABILITIES {
        for setup in on_stores(holding(2), |b: EngineBuilder| b.durability(durability)).await {
            let outcome = setup.say("total:5 charge:5 name:ada end").await;
            assert_held(&outcome);
            assert_eq!(outcome.replies, ["receipt for 5", "not yet"]);
            assert_eq!(setup.done.take(), ["charge 5", "verify", "asked"]);

            let outcome = setup.go_on().await;
            assert_held(&outcome);
            assert_eq!(outcome.replies, ["not yet"], "what was said is not said again");
            assert_eq!(setup.done.take(), ["verify", "asked"]);

            let outcome = setup.go_on().await;
            assert_eq!(outcome.outcome, Outcome::Ended { reason: "done".into() });
            assert_eq!((outcome.replies.len(), outcome.gates.len()), (0, 1));
            assert_eq!(setup.done.take(), ["verify", "asked", "exit"]);
            let doc = setup.doc().await;
            // The run that ended the flow is the only one that counts.
            assert_eq!((&doc.state["runs"], &doc.steps["Desk"]["runs"]), (&1.into(), &1.into()));
            assert_eq!(
                (&doc.state["total"], &doc.steps["Desk"]["name"]),
                (&5.into(), &"ada".into())
            );
            assert_eq!((doc.effects.len(), doc.visit.message), (0, None));
            let said = ["total:5 charge:5 name:ada end", "receipt for 5"];
            assert_eq!(setup.said().await, said);
        }
    }
}

#[tokio::test]
async fn a_message_makes_another_run_that_charges_only_what_is_new() {
    for durability in DURABILITIES {
        let change = |b: EngineBuilder| b.durability(durability);
        let setup = setup_with(shop(holding(1)), Arc::new(MemoryStore::new()), change);
        assert_held(&setup.say("charge:5 end").await);
        assert_eq!(setup.done.take(), ["charge 5", "verify", "asked"]);
        let outcome = setup.say("charge:5 charge:6 end").await;
        assert!(outcome.is_ended());
        assert_eq!(outcome.replies, ["receipt for 5", "receipt for 6"]);
        assert_eq!(setup.done.take(), ["charge 6", "verify", "asked", "exit"]);
    }
}

#[tokio::test]
async fn what_an_action_has_done_is_kept_in_the_document_while_it_is_held() {
    let setup = setup(holding(1));
    setup.say("total:5 charge:5 end").await;
    let doc = setup.doc().await;
    let outcomes: Vec<_> =
        doc.effects.values().map(|e| (e.tool.as_str(), e.outcome.is_some())).collect();
    assert_eq!(outcomes, [("charge", true)]);
    assert_eq!(doc.visit.message.as_deref(), Some("total:5 charge:5 end"));
    // The run begins again with what it had.
    assert_eq!((&doc.state["total"], &doc.state["runs"]), (&0.into(), &0.into()));
}

#[tokio::test]
async fn an_effect_that_failed_is_not_tried_again_until_the_step_is_restarted() {
    let setup = setup(holding(2));
    assert_held(&setup.say("decline end").await);
    assert_held(&setup.go_on().await);
    assert_eq!(setup.done.take(), ["decline", "verify", "asked", "verify", "asked"]);
    setup.engine.session(session()).restart_step().await.unwrap();
    assert!(setup.go_on().await.is_ended());
    assert_eq!(setup.done.take(), ["decline", "verify", "asked", "exit"]);
}

#[tokio::test]
async fn an_approval_counts_for_the_runs_after_it() {
    let setup = setup(holding(1));
    let outcome = setup.say("charge:5 approve end").await;
    let request = outcome.interrupts()[0].request_id.clone();
    let outcome = setup.engine.deliver(session(), Delivery::approve(request)).await.unwrap();
    assert_held(&outcome);
    let outcome = setup.go_on().await;
    assert_eq!(outcome.outcome, Outcome::Ended { reason: "done".into() });
    let done = ["charge 5", "verify", "asked", "verify", "asked", "exit"];
    assert_eq!(setup.done.take(), done);
}

#[tokio::test]
async fn a_crash_between_a_gate_and_the_commit_asks_again_and_charges_once() {
    for fault in [Fault::FailBefore, Fault::FailAfter] {
        let store = FailingStore::new(MemoryStore::new());
        let change = |b: EngineBuilder| b.durability(Durability::Effect);
        let setup = setup_with(shop(holding(0)), Arc::new(store.clone()), change);
        // Open, the begin of the turn, the first and the second charge, the end.
        store.arm(4, fault);
        let error = setup.turn(say("charge:5 charge:6 end").turn_id("1")).await.unwrap_err();
        assert_eq!(error.code(), "store-unavailable");
        let done = ["charge 5", "charge 6", "verify", "asked", "exit"];
        assert_eq!(setup.done.take(), done);
        let again = setup.turn(say("charge:5 charge:6 end").turn_id("1")).await.unwrap();
        assert_eq!(again.outcome, Outcome::Ended { reason: "done".into() });
        assert_eq!(again.gates, [verdict("patient", true, true, None)]);
        let repeated = match fault {
            // The last effect is known to have begun, not to be over.
            Fault::FailBefore => &["charge 6", "verify", "asked", "exit"][..],
            _ => &[],
        };
        assert_eq!(
            (setup.done.take(), again.repeated),
            (repeated.iter().map(|s| (*s).to_owned()).collect(), repeated.is_empty())
        );
    }
}

#[tokio::test]
async fn a_reply_step_keeps_its_fields_and_its_words() {
    let model = ScriptedModel::new()
        .tool_call("finish", serde_json::json!({}))
        .tool_call("finish", serde_json::json!({}));
    let change = |b: EngineBuilder| b.models(models([("test::main", &model)]));
    let setup = setup_with(shop(holding(1)), Arc::new(MemoryStore::new()), change);
    assert_held(&setup.say("chat").await);
    let doc = setup.doc().await;
    assert_eq!((doc.current_step.as_str(), &doc.steps["Chat"]["finished"]), ("Chat", &1.into()));
    assert_eq!((doc.visit.message, doc.memory["main"].messages.len()), (None, 3));
    let outcome = setup.say("go on").await;
    assert_eq!(outcome.outcome, Outcome::Ended { reason: "chatted".into() });
    assert_eq!(setup.doc().await.steps["Chat"]["finished"], 2);
}
