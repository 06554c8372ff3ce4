//! The calls of one answer: which run at the same time, and what becomes of each.

use std::sync::atomic::Ordering;

use flow_core::event::Event;
use flow_core::message::{Part, Role, ToolCallPart};
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{CallPolicy, ChatResponse};
use flow_core::prelude::*;
use serde_json::{Value, json};

use super::errands::{Errands, Talk, assert_valid};

/// The ids of the calls that were begun and of those that were finished, in this order.
fn told_ids(events: &[Event]) -> (Vec<String>, Vec<String>) {
    let mut calls = Vec::new();
    let mut results = Vec::new();
    for event in events {
        match event {
            Event::ToolCall { id, .. } => calls.push(id.clone()),
            Event::ToolResult { id, .. } => results.push(id.clone()),
            _ => {}
        }
    }
    (calls, results)
}

#[tokio::test(start_paused = true)]
async fn of_twenty_parallel_calls_eight_run_at_once_and_three_may_fail() {
    let calls = (0..20).map(|number| ("fetch", json!({ "number": number })));
    let model = ScriptedModel::new().tool_calls(calls).text("Done.");
    let talk = Talk::new(Errands::at("Open"), model);
    let events = talk.events("fetch all").await;
    // Eight meet at a barrier, so eight run at once; none more does.
    assert_eq!(talk.stage.peak.load(Ordering::SeqCst), 8);
    for (number, result) in talk.told().iter().enumerate() {
        let lost = [3, 7, 11].contains(&number);
        let expected = if lost {
            format!("tool `fetch` failed: parcel {number} is lost")
        } else {
            format!("parcel {number}")
        };
        assert_eq!((&result.content, result.is_error), (&expected, lost));
        assert_eq!(result.id, format!("call-{}", number + 1));
    }
    let (calls, mut results) = told_ids(&events);
    let expected: Vec<String> = (1..=20).map(|n| format!("call-{n}")).collect();
    assert_eq!(calls, expected);
    results.sort_by_key(|id| id["call-".len()..].parse::<usize>().unwrap());
    assert_eq!(results, expected, "one result for each call");
    assert_valid(&talk.doc().await.memory["main"].messages);
}

#[tokio::test(start_paused = true)]
async fn the_policy_says_how_many_calls_run_at_once() {
    let calls = |from: usize| (from..from + 9).map(|number| ("fetch", json!({ "number": number })));
    for (limit, peak) in [(1, 1), (3, 3)] {
        let mut flow = Errands::at("Open");
        flow.policy = CallPolicy::default().parallel_tools(limit);
        let model = ScriptedModel::new().tool_calls(calls(20)).text("Done.");
        let talk = Talk::new(flow, model);
        talk.say("fetch").await.unwrap();
        assert_eq!(talk.stage.peak.load(Ordering::SeqCst), peak);
    }
    assert_eq!(CallPolicy::default().parallel_tools(0).parallel_tools, 1);
}

#[tokio::test]
async fn whatever_finishes_first_the_document_is_the_same() {
    let names = ["anna", "bo", "cyd"];
    let mut documents = Vec::new();
    for (order, streamed) in
        [([0, 1, 2], false), ([2, 1, 0], true), ([1, 2, 0], false), ([2, 0, 1], true)]
    {
        let order = order.map(|i| names[i]);
        let calls = names.map(|name| ("race", json!({ "name": name })));
        let model = ScriptedModel::new().tool_calls(calls).text("Done.");
        let talk = Talk::new(Errands::in_order(&order), model);
        if streamed {
            let (calls, results) = told_ids(&talk.events("race").await);
            assert_eq!(calls, ["call-1", "call-2", "call-3"]);
            let finished: Vec<&str> = results
                .iter()
                .map(|id| names[id["call-".len()..].parse::<usize>().unwrap() - 1])
                .collect();
            assert_eq!(finished, order, "results are told as they come");
        } else {
            talk.say("race").await.unwrap();
        }
        documents.push(serde_json::to_string(&talk.doc().await).unwrap());
    }
    assert!(documents[0].contains(r#"\"length\":4"#), "{}", documents[0]);
    documents.dedup();
    assert_eq!(documents.len(), 1, "{documents:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_parallel_waits_for_those_before_it_and_holds_up_those_behind_it() {
    let call = |tool, name: &str| (tool, json!({ "name": name }));
    let model = ScriptedModel::new()
        .tool_calls([
            call("meet", "a"),
            call("unknown", "x"),
            call("meet", "b"),
            call("work", "c"),
            call("meet", "d"),
            call("meet", "e"),
        ])
        .text("Done.");
    let talk = Talk::new(Errands::at("Open"), model);
    talk.say("go").await.unwrap();
    let log = talk.stage.take_log();
    assert_eq!(log[..2], ["begin a", "begin b"]);
    assert_eq!(log[4..6], ["begin c", "end c"]);
    assert_eq!(log[6..8], ["begin d", "begin e"]);
    let told: Vec<_> = talk.told().into_iter().map(|result| result.content).collect();
    assert_eq!([&told[0], &told[2], &told[3], &told[4], &told[5]], ["a", "b", "c", "d", "e"]);
    assert!(told[1].starts_with("there is no tool `unknown`"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_parallel_tool_of_a_step_runs_with_those_of_the_flow() {
    let model = ScriptedModel::new()
        .tool_calls([("look", json!({ "name": "a" })), ("meet", json!({ "name": "b" }))])
        .text("Done.");
    let talk = Talk::new(Errands::at("Open"), model);
    talk.say("go").await.unwrap();
    let told: Vec<_> = talk.told().into_iter().map(|result| result.content).collect();
    assert_eq!(told, ["a Open 0", "b"], "alone each would wait until its limit");
}

#[tokio::test(start_paused = true)]
async fn parallel_calls_that_hang_panic_or_make_no_sense_leave_the_others_alone() {
    let model = ScriptedModel::new()
        .tool_calls([
            ("hang", json!({})),
            ("crash", json!({})),
            ("fetch", json!({ "number": "many" })),
            ("fetch", json!({ "number": "9" })),
            ("hang", json!({})),
        ])
        .text("Done.");
    let talk = Talk::new(Errands::at("Open"), model);
    let begin = tokio::time::Instant::now();
    talk.say("go").await.unwrap();
    assert_eq!(begin.elapsed().as_secs(), 5, "both hang at the same time");
    let told: Vec<_> = talk.told().into_iter().map(|result| result.content).collect();
    assert_eq!(told[0], "tool `hang` failed: it did not return within 5s");
    assert_eq!(told[1], "tool `crash` failed: it panicked: out of petrol");
    assert!(told[2].starts_with("invalid arguments for tool `fetch` at `number`"), "{told:?}");
    assert_eq!(told[3], "parcel 9");
    assert_eq!(told[4], told[0]);
}

#[tokio::test]
async fn once_a_tool_has_moved_the_flow_the_calls_behind_it_are_answered_and_not_made() {
    let model = ScriptedModel::new().tool_calls([
        ("work", json!({ "name": "a" })),
        ("go_home", json!({})),
        ("work", json!({ "name": "b" })),
        ("fetch", json!({ "number": 9 })),
    ]);
    let talk = Talk::new(Errands::at("Open"), model);
    let events = talk.events("go").await;
    assert_eq!(talk.stage.take_log(), ["begin a", "end a"]);
    let (calls, results) = told_ids(&events);
    assert_eq!((calls.len(), &results), (4, &calls));
    let doc = talk.doc().await;
    assert_eq!(doc.current_step, "Done");
    let history = &doc.memory["main"].messages;
    assert_valid(history);
    let told = super::errands::results(&history[2]);
    assert!(told[2].is_error && told[3].content.starts_with("not called:"), "{told:?}");
}

#[tokio::test]
async fn what_a_tool_says_comes_behind_the_results_and_a_failed_one_says_nothing() {
    let count = |by: u32, fail: bool| ("count", json!({ "by": by, "fail": fail }));
    let model = ScriptedModel::new().tool_calls([count(1, false), count(2, true), count(4, false)]);
    let talk = Talk::new(Errands::at("Open"), model.text("Done."));
    let outcome = talk.say("count").await.unwrap();
    assert_eq!(outcome.replies, ["counted 1", "counted 7", "Done."]);
    let doc = talk.doc().await;
    let history = &doc.memory["main"].messages;
    assert_valid(history);
    let roles: Vec<_> = history.iter().map(|message| message.role).collect();
    let (user, assistant, tool) = (Role::User, Role::Assistant, Role::Tool);
    assert_eq!(roles, [user, assistant, tool, assistant, assistant, assistant]);
}

#[tokio::test]
async fn names_and_arguments_that_no_provider_takes_do_not_get_into_the_history() {
    let deep = (0..100).fold(json!(1), |value, _| json!([value]));
    let call = |name: &str, arguments: Value| {
        Part::ToolCall(ToolCallPart { id: "same".into(), name: name.into(), arguments })
    };
    let calls = vec![
        call("fetch parcels!", json!({})),
        call("", json!({})),
        call("fetch", deep),
        call("fetch", json!({ "number": 9 })),
    ];
    let model = ScriptedModel::new().response(ChatResponse::new(calls)).text("Done.").text("Hi.");
    let talk = Talk::new(Errands::at("Open"), model);
    talk.say("fetch").await.unwrap();
    let told: Vec<_> = talk.told().into_iter().map(|result| result.content).collect();
    assert!(told[0].starts_with("there is no tool `fetch parcels!`; known tools: "), "{told:?}");
    assert!(told[1].starts_with("there is no tool ``"), "{told:?}");
    assert!(told[2].ends_with("nested deeper than 64 levels"), "{told:?}");
    assert_eq!(told[3], "parcel 9");
    talk.say("again").await.unwrap();
    assert_valid(&talk.model.requests()[2].messages);
}

#[tokio::test]
async fn a_turn_that_is_cancelled_in_a_round_leaves_a_valid_history() {
    let model = ScriptedModel::new()
        .text("Hello!")
        .tool_calls([
            ("pay", json!({ "cents": 5 })),
            ("fetch", json!({ "number": 9 })),
            ("hang", json!({})),
            ("pay", json!({ "cents": 6 })),
        ])
        .text("Welcome back.");
    let talk = Talk::new(Errands::at("Open"), model);
    talk.say("hi").await.unwrap();
    let before = talk.doc().await;
    let turn = talk.engine.turn::<Errands>(Talk::request("go"));
    talk.stage.hangs.notified().await;
    turn.cancel();
    assert_eq!(turn.await.unwrap_err().code(), "cancelled");
    let after = talk.doc().await;
    assert_eq!((&after.memory, &after.steps), (&before.memory, &before.steps));
    assert_eq!(talk.stage.take_log().len(), 1, "the call behind the hanging one is not made");

    assert_eq!(talk.say("still there?").await.unwrap().replies, ["Welcome back."]);
    let asked = &talk.model.requests()[2].messages;
    assert_valid(asked);
    let texts: Vec<_> = asked.iter().map(|message| message.to_text()).collect();
    assert_eq!(texts, ["hi", "Hello!", "still there?"]);
}

#[tokio::test]
async fn calls_that_were_made_before_the_model_failed_stay_in_the_history_if_the_turn_goes_on() {
    // After the round the script is at its end, which is an error.
    let script = || ScriptedModel::new().tool_call("pay", json!({ "cents": 5 }));
    for (recover, replies) in
        [("step", vec!["Sorry: model-malformed."]), ("flow", Vec::<&str>::new())]
    {
        let mut flow = Errands::at("Open");
        flow.recover = Some(recover);
        let talk = Talk::new(flow, script());
        assert_eq!(talk.say("pay").await.unwrap().replies, replies);
        let history = talk.doc().await.memory["main"].messages.clone();
        assert_valid(&history);
        assert_eq!(history[2].role, Role::Tool, "{history:#?}");
    }
    let talk = Talk::new(Errands::at("Open"), script());
    let mut turn = talk.engine.turn::<Errands>(Talk::request("pay"));
    let mut names = Vec::new();
    while let Some(event) = turn.next_event().await {
        names.push(event.name());
    }
    turn.await.unwrap_err();
    assert!(names.contains(&"tool-call") && names.contains(&"tool-result"), "{names:?}");
    let session = talk.engine.session(SessionId::new("s").unwrap());
    assert!(session.load().await.is_err(), "a turn that fails leaves nothing else");
}

#[tokio::test]
async fn a_call_that_is_made_again_has_its_key_and_every_other_call_one_of_its_own() {
    // Some servers count their calls from the start in each answer.
    let pay = |model: ScriptedModel, cents: &[u32]| {
        let parts = cents.iter().map(|cents| {
            Part::ToolCall(ToolCallPart {
                id: "call_0".into(),
                name: "pay".into(),
                arguments: json!({ "cents": cents }),
            })
        });
        model.response(ChatResponse::new(parts.collect()))
    };
    let mut script = pay(ScriptedModel::new(), &[5, 5]);
    script = pay(script, &[5]).text("Paid.");
    // This turn fails behind its round, and is made again.
    script = pay(script, &[5]).response(ChatResponse::new(Vec::new()));
    script = pay(script, &[5]).text("Paid.");
    let talk = Talk::new(Errands::at("Open"), script);
    talk.say("pay").await.unwrap();
    talk.say("pay").await.unwrap_err();
    talk.say("pay").await.unwrap();
    let keys: Vec<String> = talk.stage.take_log();
    assert_eq!(keys.len(), 5);
    assert_eq!(keys[3], keys[4], "the same call, made again");
    let distinct: std::collections::HashSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), 4, "{keys:#?}");
}
