//! What a called flow waits for its caller waits for.

use std::time::Duration;

use flow_core::engine::Delivery;
use flow_core::outcome::Outcome;
use flow_core::session::{EffectKind, Status};
use serde_json::json;

use super::*;

#[tokio::test]
async fn an_approval_is_delivered_through_the_caller() {
    for durability in DURABILITIES {
        let setup = setup_on(Arc::new(MemoryStore::new()), durability, ScriptedModel::new());
        let outcome = setup.say("call[charge:1 approve charge:2] say:end").await.unwrap();
        let [request] = outcome.interrupts() else { panic!("{outcome:?}") };
        assert_eq!(
            (request.kind, &request.path[..]),
            (EffectKind::Approval, &["script".to_owned()][..])
        );
        let own = pending(&setup.child().await).remove(0);
        assert!(request.request_id.ends_with(&format!("/{}", own.request_id)), "{request:?}");
        assert!(request.request_id.starts_with("1-0-"), "{request:?}");

        let waiting = setup.say("well?").await.unwrap();
        assert_eq!(waiting.replies, ["I am still waiting: may I?."]);
        let delivery = Delivery::approve(&request.request_id).by("ada").signal_id("mail-1");
        for repeated in [false, true] {
            let outcome = setup.engine.deliver(session(), delivery.clone()).await.unwrap();
            assert_eq!(outcome.repeated, repeated);
            let results = "done: receipt for 1, approved by ada, receipt for 2";
            assert_eq!(outcome.replies, [results, "end"]);
        }
        assert_eq!(setup.world.take_charges().len(), 2);
        let late = setup.engine.deliver(session(), Delivery::approve(&request.request_id)).await;
        assert_eq!(late.unwrap_err().code(), "not-waiting");
    }
}

#[tokio::test]
async fn a_call_within_a_call_shows_its_path_and_is_answered_at_the_top() {
    let setup = setup();
    let outcome = setup.say("call[call[approve charge:5] charge:6] charge:7").await.unwrap();
    let [request] = outcome.interrupts() else { panic!("{outcome:?}") };
    assert_eq!(request.path, ["script", "script"]);
    assert_eq!(request.request_id.matches('/').count(), 2, "{request:?}");
    let depths: Vec<u32> =
        setup.called().await.iter().map(|doc| doc.parent.as_ref().unwrap().depth).collect();
    assert_eq!(depths, [1, 2]);
    let denied = Delivery::deny(&request.request_id);
    let error = setup.engine.deliver(session(), denied).await.unwrap_err();
    assert!(error.retryable(), "a denial that nobody handles can be asked again: {error}");
    let request = setup.go_on().await.unwrap().interrupts()[0].request_id.clone();
    let outcome = setup.engine.deliver(session(), Delivery::approve(request)).await.unwrap();
    assert_eq!(
        outcome.replies,
        ["done: approved by , receipt for 5", "done: approved by , receipt for 5, receipt for 6",]
    );
    assert_eq!(setup.world.take_charges().len(), 3);
}

#[tokio::test]
async fn two_requests_of_a_called_flow_are_answered_in_any_order() {
    for first in [0, 1] {
        let setup = setup();
        let outcome = setup.say("call[both charge:1]").await.unwrap();
        let both: Vec<Interrupt> = outcome.interrupts().to_vec();
        assert_eq!(both.len(), 2);
        let deny = Delivery::deny(&both[first].request_id);
        let outcome = setup.engine.deliver(session(), deny).await.unwrap();
        assert_eq!(outcome.interrupts(), [both[1 - first].clone()]);
        let approve = Delivery::approve(&both[1 - first].request_id);
        let outcome = setup.engine.deliver(session(), approve).await.unwrap();
        let decided = if first == 0 { "(false, true)" } else { "(true, false)" };
        assert_eq!(outcome.replies, [format!("done: {decided}, receipt for 1")]);
    }
}

#[tokio::test]
async fn a_called_flow_that_sleeps_is_woken_through_its_caller() {
    for durability in DURABILITIES {
        let setup = setup_on(Arc::new(MemoryStore::new()), durability, ScriptedModel::new());
        let outcome = setup.say("call[call[sleep:60] charge:1]").await.unwrap();
        assert!(matches!(outcome.outcome, Outcome::Suspended { .. }));
        let due = outcome.interrupts()[0].deadline;
        assert_eq!(setup.doc().await.wake_at, due);
        for child in setup.called().await {
            assert_eq!(child.wake_at, None, "its caller wakes it");
        }
        assert!(setup.engine.sweep().await.unwrap().woken.is_empty());
        setup.clock.advance(Duration::from_secs(60));
        let report = setup.engine.sweep().await.unwrap();
        assert_eq!((report.woken, report.failed), (vec![session()], vec![]));
        assert_eq!(setup.world.take_charges().len(), 1);
        for child in setup.called().await {
            assert_eq!(child.status, Status::Completed);
        }
        assert!(setup.engine.sweep().await.unwrap().woken.is_empty());
    }
}

#[tokio::test]
async fn a_signal_reaches_a_called_flow_by_its_name_and_is_checked() {
    let setup = setup();
    setup.say("call[signal]").await.unwrap();
    let wrong = setup.engine.deliver(session(), Delivery::signal("paid", json!("much"))).await;
    assert_eq!(wrong.unwrap_err().code(), "answer-rejected");
    let outcome = setup.engine.deliver(session(), Delivery::signal("paid", 7)).await.unwrap();
    assert_eq!(outcome.replies, ["done: paid 7"]);
}

#[tokio::test]
async fn a_called_flow_that_escalates_takes_its_caller_along_and_both_come_back() {
    for durability in DURABILITIES {
        let setup = setup_on(Arc::new(MemoryStore::new()), durability, ScriptedModel::new());
        let outcome = setup.say("say:a call[call[escalate charge:1 table]] say:b").await.unwrap();
        let reason = "script: script: a person has to look".to_owned();
        assert_eq!(outcome.outcome, Outcome::Escalated { reason: reason.clone() });
        assert_eq!(setup.say("hello?").await.unwrap().outcome, Outcome::Escalated { reason });
        assert_eq!(setup.child_of_depth(2).await.status, Status::Waiting);
        setup.engine.session(session()).release().await.unwrap();
        setup.world.repair();
        let outcome = setup.say("so").await.unwrap();
        assert_eq!(outcome.replies, ["For how many?"]);
        assert_eq!(setup.say("4").await.unwrap().replies, ["At noon or in the evening?"]);
        let outcome = setup.say("noon").await.unwrap();
        let done = "done: receipt for 1, table for 4".to_owned();
        let replies = ["Thank you, Ada.", "reserved: 4 at noon", &done, &done, "b"];
        assert_eq!(outcome.replies, replies);
        assert_eq!(setup.world.take_charges().len(), 1);
        let doc = setup.doc().await;
        let said = history(&doc);
        assert_eq!(said.iter().filter(|line| *line == "flow: a").count(), 1, "{said:?}");
    }
}

#[tokio::test]
async fn an_escalation_is_released_without_a_message_too() {
    let setup = setup();
    setup.say("call[escalate charge:1]").await.unwrap();
    setup.engine.session(session()).release().await.unwrap();
    let again = setup.go_on().await.unwrap();
    assert!(matches!(again.outcome, Outcome::Escalated { .. }), "it escalates again");
    setup.engine.session(session()).release().await.unwrap();
    setup.world.repair();
    assert_eq!(setup.go_on().await.unwrap().replies, ["done: receipt for 1"]);
}

#[tokio::test]
async fn steps_within_an_action_call_flows_too() {
    for durability in DURABILITIES {
        let setup = setup_on(Arc::new(MemoryStore::new()), durability, ScriptedModel::new());
        let first = setup.say("say:a step[say:b table charge:1 approve] say:c").await.unwrap();
        assert_eq!(first.replies, ["a", "b", "For how many?"]);
        assert_eq!(setup.say("4").await.unwrap().replies, ["At noon or in the evening?"]);
        let asked = setup.say("noon").await.unwrap();
        assert_eq!(asked.replies, ["Thank you, Ada.", "reserved: 4 at noon"]);
        let [request] = asked.interrupts() else { panic!("{asked:?}") };
        let delivery = Delivery::approve(&request.request_id);
        let outcome = setup.engine.deliver(session(), delivery).await.unwrap();
        assert_eq!(outcome.replies, ["c"]);
        let said = history(&setup.doc().await);
        assert_eq!(said.len(), 10, "{said:?}");
        assert_eq!(setup.world.take_charges().len(), 1);
    }
}

#[tokio::test]
async fn calls_side_by_side_wait_at_once_and_are_answered_in_any_order() {
    for first in [0, 1] {
        let setup = setup();
        let text = "steps[call[say:a approve charge:1]|call[say:b approve charge:2]|charge:3]";
        let outcome = setup.say(text).await.unwrap();
        assert_eq!(outcome.replies, ["a", "b"]);
        let both: Vec<Interrupt> = outcome.interrupts().to_vec();
        assert_eq!(both.iter().filter(|i| i.path == ["script"]).count(), 2, "{both:?}");
        let approve = Delivery::approve(&both[first].request_id);
        let outcome = setup.engine.deliver(session(), approve).await.unwrap();
        assert_eq!(outcome.interrupts(), [both[1 - first].clone()]);
        let approve = Delivery::approve(&both[1 - first].request_id);
        let (last, done) = (outcome, setup.engine.deliver(session(), approve).await.unwrap());
        let told: Vec<String> = last.replies.into_iter().chain(done.replies).collect();
        let of = |n: u32| format!("done: approved by , receipt for {n}");
        let all = "approved by , receipt for 1, approved by , receipt for 2, receipt for 3";
        assert_eq!(told, [of(1), of(2), all.to_owned()]);
        assert_eq!(setup.world.take_charges().len(), 3);
    }
}

#[tokio::test]
async fn what_calls_side_by_side_say_is_said_once_and_in_the_order_of_the_branches() {
    let setup = setup();
    let outcome = setup.say("steps[call[say:a]|call[say:b charge:1]]").await.unwrap();
    assert_eq!(outcome.replies, ["a", "done: ", "b", "done: receipt for 1", "receipt for 1"]);
    assert_eq!(history(&setup.doc().await).len(), 6);
}

impl Setup {
    async fn child_of_depth(&self, depth: u32) -> SessionDoc {
        let mut called = self.called().await;
        called.retain(|doc| doc.parent.as_ref().is_some_and(|parent| parent.depth == depth));
        assert_eq!(called.len(), 1);
        called.remove(0)
    }
}

/// A call that asks the user, beside one that waits for approval: whoever answers first.
#[tokio::test]
async fn a_message_and_an_approval_each_find_the_branch_that_waits_for_them() {
    for durability in DURABILITIES {
        for approved_after in 0..3 {
            let setup = setup_on(Arc::new(MemoryStore::new()), durability, ScriptedModel::new());
            let words = "say:a steps[table charge:1|approve charge:2|call[approve charge:3]] say:z";
            let mut replies = setup.say(words).await.unwrap().replies;
            let mut texts = ["4", "noon"].iter();
            for n in 0..3 {
                if n == approved_after {
                    for _ in 0..2 {
                        let pending = setup.pending().await;
                        let request =
                            pending.iter().find(|i| i.kind != EffectKind::Message).unwrap();
                        let delivery = Delivery::approve(&request.request_id).by("ada");
                        let delivery = delivery.signal_id(&request.request_id);
                        for _ in 0..2 {
                            let outcome =
                                setup.engine.deliver(session(), delivery.clone()).await.unwrap();
                            if !outcome.repeated {
                                replies.extend(outcome.replies);
                            }
                        }
                    }
                }
                if let Some(text) = texts.next() {
                    replies.extend(setup.say(text).await.unwrap().replies);
                }
            }
            let doc = setup.doc().await;
            assert!(pending(&doc).is_empty(), "{doc:?}");
            let state: Shared = serde_json::from_value(doc.state.clone()).unwrap();
            let results = [
                "table for 4",
                "receipt for 1",
                "approved by ada",
                "receipt for 2",
                "approved by ada",
                "receipt for 3",
            ];
            assert_eq!(state.results, results, "{approved_after}");
            assert_eq!(setup.world.take_charges().len(), 3);
            for once in ["For how many?", "At noon or in the evening?", "Thank you, Ada.", "z"] {
                let count = replies.iter().filter(|reply| *reply == once).count();
                assert_eq!(count, 1, "{once}: {replies:?}, {approved_after}");
            }
            let said: Vec<String> =
                history(&doc).into_iter().filter(|l| l.starts_with("flow")).collect();
            let replied: Vec<String> =
                replies.iter().map(|reply| format!("flow: {reply}")).collect();
            assert_eq!(said, replied);
        }
    }
}
