//! How long a form asks, and what happens when it is not satisfied.

use flow_core::outcome::Outcome;
use flow_core::prelude::*;
use flow_core::session::Waiting;
use serde_json::json;

use super::trip::Travel;
use super::{Chat, session};

/// Asks twice.
#[flow(id = "short", version = 1, steps(Form))]
#[derive(Clone)]
struct Short;

impl Flow for Short {}

#[step(collect, next(Form, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Form {
    #[slot(whole_message, ask = "Your name?")]
    name: Option<String>,
    #[slot(range(1, 9), ask = "How many?")]
    count: Option<u8>,
    #[slot(one_of("red", "blue"), optional)]
    colour: Option<String>,
}

impl Collect for Form {
    type Flow = Short;

    fn max_turns(&self) -> Option<u32> {
        Some(2)
    }

    async fn complete(&mut self, data: FormData, _: &mut StepCx<'_, Short>) -> Result<FormNext> {
        Ok(if data.count == 9 { FormNext::Form } else { FormNext::End(data.name) })
    }
}

#[tokio::test]
async fn a_form_that_has_asked_enough_escalates_and_names_what_is_missing() {
    let mut chat = Chat::with(Short);
    assert_eq!(chat.say("").await, ["Your name?"]);
    assert_eq!(chat.say(" ").await, ["Your name?"]);
    let outcome = chat.turn(flow_core::TurnRequest::new(session()).message(" ")).await;
    let reason = "still missing after 2 questions: name, count".to_owned();
    assert_eq!(outcome.outcome, Outcome::Escalated { reason: reason.clone() });
    assert_eq!(outcome.step, "Form");
    let doc = chat.engine.session(session()).load().await.unwrap();
    assert_eq!(doc.waiting, Some(Waiting::Escalation { reason }));
}

#[tokio::test]
async fn the_last_answer_still_counts() {
    let mut chat = Chat::with(Short);
    chat.start().await;
    chat.say("Ada").await;
    let outcome = chat.turn(flow_core::TurnRequest::new(session()).message("7")).await;
    assert!(outcome.is_ended(), "{outcome:?}");
}

#[tokio::test]
async fn each_visit_has_its_own_questions() {
    let mut chat = Chat::with(Short);
    for text in ["", "Ada", "9", "Ada"] {
        chat.say(text).await;
    }
    let outcome = chat.turn(flow_core::TurnRequest::new(session()).message("many")).await;
    assert!(matches!(outcome.outcome, Outcome::Escalated { .. }), "{outcome:?}");
    assert_eq!(chat.fields("Form").await["name"], "Ada");
}

#[tokio::test]
async fn a_form_that_was_given_back_by_a_person_asks_afresh() {
    let mut chat = Chat::with(Short);
    for text in ["", " ", " "] {
        chat.say(text).await;
    }
    let handle = chat.engine.session(session());
    handle.release().await.unwrap();
    assert_eq!(chat.say("hello?").await, ["Your name?"]);
    assert_eq!(chat.say("Ada").await, ["How many?"]);
    let outcome = chat.turn(flow_core::TurnRequest::new(session()).message("7")).await;
    assert!(outcome.is_ended(), "{outcome:?}");
}

#[tokio::test]
async fn a_form_that_empties_a_slot_and_stays_asks_for_it() {
    let mut chat = Chat::with(Travel::default());
    for text in ["", "Ada", "5", "economy"] {
        chat.say(text).await;
    }
    assert_eq!(
        chat.say("25").await,
        ["Groups stay 20 nights at most.", "How many nights do you stay?"]
    );
    let fields = chat.fields("Trip").await;
    assert_eq!((&fields["nights"], &fields["completed"]), (&json!(null), &json!(1)));
    assert_eq!(chat.say("18").await, ["Ada, 5 guests, 18 nights: right?"]);
    assert_eq!(chat.state().await["trips"].as_array().unwrap().len(), 1);
}
