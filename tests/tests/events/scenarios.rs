//! Stories, each with the events of every turn as a snapshot, and the checks that hold
//! for all of them.

use std::time::Duration;

use flow_core::engine::Delivery;
use flow_core::event::Event;
use flow_core::message::{Part, ToolCallPart};
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{ChatResponse, FinishReason, TokenUsage};
use flow_core::session::EffectKind;
use serde_json::json;

use super::Act::{Again, Age, BeginAnew, Cancel, Deliver, Digress, GoOn, Repair, Say, Wake};
use super::{Act, Scenario, Told, order, play, session};

const MINUTE: Duration = Duration::from_secs(60);

fn silent() -> ScriptedModel {
    ScriptedModel::new()
}

fn scenario(start: &'static str, acts: &'static [Act]) -> Scenario {
    Scenario { start, model: silent, acts }
}

/// Plays a scenario and compares what is told with the snapshot of its name.
macro_rules! golden {
    ($name:ident: $scenario:expr) => {
        #[tokio::test]
        async fn $name() {
            let (_, turns) = play($scenario).await;
            insta::assert_json_snapshot!(stringify!($name), turns);
        }
    };
}

golden!(a_greeting_and_a_form_over_two_turns: scenario(
    "Party",
    &[Say("hello"), Say("we are many"), Say("4, in the evening")],
));

golden!(a_model_streams_and_calls_a_tool: Scenario {
    start: "Talk",
    model: || {
        let call = ToolCallPart {
            id: "call-1".into(),
            name: "find".into(),
            arguments: json!({ "city": "Ulm" }),
        };
        let mut first =
            ChatResponse::new(vec![Part::text("Let me look."), Part::ToolCall(call)]);
        first.finish = FinishReason::ToolCalls;
        first.usage = TokenUsage::new(20, 5);
        ScriptedModel::new().response(first).chunks(["Two ", "rooms."]).tool_call("leave", json!({}))
    },
    acts: &[Say("rooms in Ulm"), Say("thanks")],
});

golden!(a_model_waits_for_an_approval: Scenario {
    start: "Talk",
    model: || {
        ScriptedModel::new()
            .tool_calls([("find", json!({ "city": "Ulm" })), ("cancel", json!({ "room": 7 }))])
            .text("It is cancelled.")
            .tool_call("cancel", json!({ "room": 12 }))
            .text("Then not.")
    },
    acts: &[
        Say("cancel room 7"),
        Deliver(0, |id| Delivery::approve(id).by("ada")),
        Say("and 12"),
        Deliver(0, |id| Delivery::deny(id).by("eve").reason("it is paid")),
    ],
});

golden!(steps_follow_each_other_in_one_turn: scenario("First", &[Say("go"), GoOn]));

golden!(an_action_does_something_and_ends: scenario("Work", &[Say("charge measure pair end")]));

golden!(an_approval_is_asked_and_given: scenario(
    "Work",
    &[
        Say("hello charge approve measure end"),
        Say("are you there?"),
        GoOn,
        Deliver(0, |id| Delivery::approve(id).by("ada")),
    ],
));

golden!(an_approval_is_denied_and_nobody_handles_it: scenario(
    "Work",
    &[
        Say("charge approve end"),
        Deliver(0, |id| Delivery::deny(id).by("eve").reason("too much")),
        Say("charge approve end"),
        Deliver(0, Delivery::approve),
    ],
));

golden!(two_requests_are_answered_one_by_one: scenario(
    "Work",
    &[
        Say("choose"),
        Deliver(1, |id| Delivery::payload(id, 42)),
        Deliver(0, |id| Delivery::payload(id, "green")),
        Deliver(0, |id| Delivery::payload(id, "blue")),
    ],
));

golden!(a_sleep_ends: scenario("Work", &[Say("charge sleep measure rest"), Wake(MINUTE)]));

golden!(a_gate_holds_and_lets_pass: scenario("Held", &[Say("let me go"), Say("please")]));

golden!(a_step_fails: scenario(
    "Work",
    &[Say("hello charge fail rest"), Repair, Again, GoOn],
));

golden!(the_flow_handles_a_failure: scenario("Work", &[Say("hello jam"), GoOn]));

golden!(a_tool_of_an_action_fails: scenario("Work", &[Say("charge decline")]));

golden!(a_session_is_migrated_and_begun_anew: scenario(
    "Rest",
    &[Say("one"), Age, Say("two"), Age, BeginAnew, Say("three"), BeginAnew, Say("four")],
));

golden!(a_turn_is_cancelled: scenario("Work", &[Cancel("charge hang"), Say("charge")]));

golden!(steps_go_back_and_forth: scenario("Ping", &[Say("go"), Say("stop")]));

golden!(a_person_takes_over: scenario(
    "Work",
    &[Say("escalate"), Say("anybody?")],
));

golden!(a_conversation_is_handed_off: scenario("Work", &[Say("hello hand"), Say("hello?")]));

golden!(a_flow_is_parked_and_comes_back: scenario(
    "Party",
    &[Say("hello"), Digress("when do you open?"), Say("bye"), Say("4 at noon")],
));

golden!(the_gates_of_the_flow_hold_it_and_let_it_end: scenario(
    "Gated",
    &[Say("go"), Repair, Say("please")],
));

golden!(steps_run_within_an_action: scenario(
    "Work",
    &[
        Say("charge step(one,step(two)) try(charge,fail)"),
        Say("one step(charge,approve,charge) end"),
        Deliver(0, |id| Delivery::approve(id).by("ada")),
    ],
));

golden!(a_step_within_an_action_asks_the_user: scenario(
    "Work",
    &[Say("hello step(charge,form) end"), Say("4"), Say("at noon")],
));

golden!(steps_run_side_by_side: scenario(
    "Work",
    &[
        Say("steps(charge,a|approve,charge,b|measure,c) end"),
        Deliver(0, |id| Delivery::approve(id).by("ada")),
    ],
));

golden!(another_flow_is_called: scenario(
    "Work",
    &[Say("hello other charge end"), Say("well"), Say("bye")],
));

golden!(a_batch_of_three_items_is_run: scenario("Work", &[Say("batch end")]));

golden!(a_turn_is_repeated_or_refused: scenario(
    "Rest",
    &[
        Say("one"),
        Again,
        Say("a message that has more bytes than a message may have in this engine"),
    ],
));

#[tokio::test]
async fn a_pause_carries_what_is_needed_to_show_the_question() {
    let (told, _) = play(scenario("Work", &[Say("charge approve")])).await;
    let Some(Event::Paused { interrupts }) = told[0].events.iter().rev().nth(1) else {
        panic!("{:?}", told[0])
    };
    let [request] = &interrupts[..] else { panic!("{interrupts:?}") };
    assert_eq!(request.kind, EffectKind::Approval);
    assert_eq!(request.step, "Work");
    assert!(request.request_id.starts_with("1-1-"), "{}", request.request_id);
    assert_eq!(request.display.title, "Charge 12 euros?");
    assert_eq!(request.display.description, "The limit without approval is 10 euros.");
    assert_eq!(request.allowed, ["approved", "denied"]);
    assert_eq!(request.deadline.unwrap().to_string(), "2026-11-30T13:00:00Z");
    assert!(request.on_expiry.is_some());
    let operation = request.operation.as_ref().unwrap();
    assert_eq!((&*operation.tool, &operation.arguments), ("charge", &json!({ "cents": 1200 })));
    assert_eq!(operation.argument_hash, flow_core::json::digest(&operation.arguments));

    let (told, _) = play(scenario("Work", &[Say("choose")])).await;
    let Some(Event::Paused { interrupts }) = told[0].events.iter().rev().nth(1) else {
        panic!("{:?}", told[0])
    };
    let [choice, input] = &interrupts[..] else { panic!("{interrupts:?}") };
    assert_eq!((choice.kind, input.kind), (EffectKind::Choice, EffectKind::Input));
    assert_eq!((&*choice.display.title, &*input.display.title), ("Which colour?", "What size?"));
    assert_eq!(choice.allowed, ["red", "blue"]);
    assert_eq!(input.response_schema.as_ref().unwrap()["type"], "integer");
    assert_ne!(choice.request_id, input.request_id);

    let waits = || ScriptedModel::new().tool_call("cancel", json!({ "room": "7" }));
    let (told, _) = play(Scenario { start: "Talk", model: waits, acts: &[Say("go")] }).await;
    let Some(Event::Paused { interrupts }) = told[0].events.iter().rev().nth(1) else {
        panic!("{:?}", told[0])
    };
    let operation = interrupts[0].operation.as_ref().unwrap();
    assert_eq!(operation.arguments, json!({ "room": 7 }), "as the tool will read them");
    assert_eq!(interrupts[0].display.description, "Cancels the booking.");
}

/// The checks would find a trace that is out of order.
#[tokio::test]
async fn every_other_order_is_refused() {
    let stories = [
        scenario("Party", &[Say("hello"), Say("4, in the evening")]),
        scenario("First", &[Say("go")]),
        scenario("Work", &[Say("charge approve"), Deliver(0, Delivery::approve)]),
        scenario("Work", &[Say("charge fail")]),
        scenario("Work", &[Say("hand")]),
        scenario("Rest", &[Say("one"), Age, BeginAnew, Say("two")]),
        scenario("Gated", &[Say("go"), Repair, Say("please")]),
        scenario("Work", &[Say("step(charge,form) end"), Say("4"), Say("at noon")]),
        scenario("Work", &[Say("other end"), Say("bye")]),
        scenario("Work", &[Say("batch end")]),
    ];
    for story in stories {
        let (told, _) = play(story).await;
        for Told { events, .. } in told {
            refuse_changes(&events);
        }
    }
    let model = || ScriptedModel::new().chunks(["a", "b"]);
    let (told, _) = play(Scenario { start: "Talk", model, acts: &[Say("hi")] }).await;
    refuse_changes(&told[0].events);
    assert_eq!(session().as_str(), "s");
}

/// Events that have their place, each with what comes with it.
const PLACED: [&str; 17] = [
    "turn-start",
    "session-created",
    "session-superseded",
    "flow-enter",
    "gate-verdict",
    "call-enter",
    "call-exit",
    "session-restored",
    "step-exit",
    "flow-transition",
    "text-start",
    "text-end",
    "tool-call",
    "tool-result",
    "handoff",
    "error",
    "turn-end",
];

fn refuse_changes(events: &[Event]) {
    let names: Vec<&str> = events.iter().map(Event::name).collect();
    order::check(events).unwrap();
    for (place, name) in names.iter().enumerate() {
        let held = *name == "gate-verdict" && !names.contains(&"flow-end");
        // Where the flow is held, nothing else says which gates were asked, and in what order.
        if !PLACED.contains(name) || held {
            continue;
        }
        let within = matches!(&events[place], Event::StepExit { level: 1.., .. });
        let called = *name == "step-exit" && names.get(place + 1) == Some(&"call-exit");
        if within || called {
            // A step within an action that fails is not left, nor one of a called flow that waits.
            let mut doubled = events.to_vec();
            doubled.insert(place, events[place].clone());
            assert!(order::check(&doubled).is_err(), "twice `{name}` at {place}: {names:?}");
            continue;
        }
        let mut left_out = events.to_vec();
        left_out.remove(place);
        // What fails may leave a call without a result.
        let fits = *name == "tool-result" && names[place + 1] == "error";
        assert_eq!(order::check(&left_out).is_ok(), fits, "without `{name}` at {place}: {names:?}");
        let mut doubled = events.to_vec();
        doubled.insert(place, events[place].clone());
        // An attempt of a model may be made again.
        let fits = *name == "text-start";
        assert_eq!(order::check(&doubled).is_ok(), fits, "twice `{name}` at {place}: {names:?}");
        let Some(next) = names.get(place + 1) else { continue };
        let mut swapped = events.to_vec();
        swapped.swap(place, place + 1);
        let fits = matches!(*next, "usage" | "custom") || (*name == "tool-result");
        assert!(fits || order::check(&swapped).is_err(), "`{name}`, `{next}` swapped: {names:?}");
    }
}
