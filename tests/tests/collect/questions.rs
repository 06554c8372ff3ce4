//! What is asked, in which order, and what listeners are told.

use flow_core::event::{Event, Rendered};
use flow_core::prelude::*;
use flow_core::session::Waiting;
use flow_core::store::memory::MemoryStore;
use flow_core::testing::StepHarness;
use flow_core::{Engine, TurnRequest};
use serde_json::json;
use std::sync::Arc;

use super::trip::{Travel, Trip};
use super::{Chat, session};

#[tokio::test]
async fn questions_come_in_the_order_of_the_slots() {
    let mut chat = Chat::with(Travel::default());
    let outcome = chat.start().await;
    let question = outcome.question().unwrap();
    assert_eq!((&*question.text, &*question.fields), ("Who travels?", &["name".to_owned()][..]));
    assert_eq!(chat.say("Ada Lovelace").await, ["How many guests?"]);
    assert_eq!(chat.say("3").await, ["How many nights do you stay?"]);
    assert_eq!(chat.say("12").await, ["Please tell me: class."]);
    assert_eq!(chat.say("Business, please").await, ["Ada Lovelace, 3 guests, 12 nights: right?"]);
    let outcome = chat.turn(TurnRequest::new(session()).message("yes")).await;
    assert!(outcome.is_ended() && outcome.replies.is_empty(), "{outcome:?}");
    assert_eq!(
        chat.state().await["trips"],
        json!([{ "name": "Ada Lovelace", "guests": 3, "nights": 12, "class": "business", "seat": null }])
    );
}

#[tokio::test]
async fn a_question_names_its_fields_and_options_and_is_kept() {
    let mut chat = Chat::with(Travel::default());
    for text in ["", "Ada", "3"] {
        chat.say(text).await;
    }
    let outcome = chat.turn(TurnRequest::new(session()).message("12")).await;
    let question = Question {
        text: "Please tell me: class.".into(),
        fields: vec!["class".into()],
        options: vec!["economy".into(), "business".into()],
    };
    assert_eq!(outcome.question(), Some(&question));
    assert!(chat.events.contains(&Event::Question(question.clone())));
    let doc = chat.engine.session(session()).load().await.unwrap();
    assert_eq!(doc.waiting, Some(Waiting::Message { question: Some(question) }));
    let last = doc.memory["main"].messages.last().unwrap();
    assert_eq!(last.to_text(), "Please tell me: class.");
}

#[tokio::test]
async fn an_update_tells_what_is_collected_and_what_is_missing() {
    let mut chat = Chat::with(Travel::default());
    chat.start().await;
    assert!(chat.updates().is_empty(), "nothing was said");
    chat.say("Ada").await;
    chat.say("3 guests in business, window seat").await;
    assert_eq!(
        chat.updates(),
        [json!({
            "type": "collect-update",
            "step": "Trip",
            "collected": { "name": "Ada", "guests": 3, "class": "business", "seat": "window" },
            "missing": ["nights"],
            "sources": [
                ["guests", "deterministic"],
                ["class", "deterministic"],
                ["seat", "deterministic"],
            ],
        })]
    );
    let said: Vec<_> = chat.events.iter().filter(|event| event.name() == "message").collect();
    let expected = Event::Message {
        step: "Trip".into(),
        text: "How many nights do you stay?".into(),
        rendered: Rendered::Engine,
    };
    assert_eq!(said, [&expected], "the question is said once");
}

#[tokio::test]
async fn what_is_missing_is_named_once() {
    let travel = Travel::default();
    let asked = travel.asked.clone();
    let mut chat = Chat::with(travel);
    chat.start().await;
    assert_eq!(asked.take(), ["name guests nights class"]);
    chat.say("Ada").await;
    asked.take();
    // Ambiguous for two slots that are missing too.
    chat.say("2 or 3").await;
    assert_eq!(asked.take(), ["guests nights class"]);
}

#[tokio::test]
async fn one_message_is_read_by_one_form() {
    let mut chat = Chat::with(Travel::default());
    for text in ["", "Ada", "3", "12"] {
        chat.say(text).await;
    }
    // The confirmation asks and waits, whatever else the message says.
    let outcome = chat.turn(TurnRequest::new(session()).message("economy, and yes")).await;
    assert_eq!(outcome.replies, ["Ada, 3 guests, 12 nights: right?"]);
    assert_eq!(outcome.question().unwrap().options, ["yes", "no"]);
    assert_eq!(chat.updates().len(), 1);
    assert_eq!(chat.fields("Check").await, json!({ "answer": null }));
}

#[tokio::test]
async fn on_crossing_passes_the_message_on() {
    let mut chat = Chat::with(Travel { pass_on: true, ..Travel::default() });
    for text in ["", "Ada", "3", "12"] {
        chat.say(text).await;
    }
    let outcome = chat.turn(TurnRequest::new(session()).message("economy, and yes")).await;
    assert!(outcome.is_ended(), "{outcome:?}");
    let steps: Vec<_> = chat.updates().iter().map(|update| update["step"].clone()).collect();
    assert_eq!(steps, ["Trip", "Check"]);
}

#[tokio::test]
async fn a_form_is_taken_up_by_another_process_at_its_question() {
    let store = Arc::new(MemoryStore::new());
    let builder = || Engine::builder().shared_store(store.clone());
    assert_eq!(Chat::on(builder(), Travel::default()).say("").await, ["Who travels?"]);
    // `whole_message` needs to know what was asked.
    let mut chat = Chat::on(builder(), Travel::default());
    assert_eq!(chat.say("Ada").await, ["How many guests?"]);
    // A turn without a message asks again, and the answer is read for that question.
    let mut chat = Chat::on(builder(), Travel::default());
    assert_eq!(chat.start().await.replies, ["How many guests?"]);
    assert_eq!(chat.say("5").await, ["How many nights do you stay?"]);
}

#[test]
fn a_default_question_shows_no_internal_name() {
    let question = Slot {
        name: "delivery_date",
        doc: "",
        ask: None,
        optional: false,
        verbatim: false,
        resolver: None,
    }
    .question();
    assert_eq!(question.text, "Please tell me: delivery date.");
}

#[tokio::test]
async fn an_overridden_ask_may_ask_for_several_at_once() {
    let harness = &mut StepHarness::new(Travel::default());
    let missing: Vec<&'static Slot> = Trip::slots().iter().collect();
    let question = Trip::default().ask(&missing, &harness.cx());
    assert_eq!(question.text, "Who travels?");

    let mut chat = Chat::with(Pairs);
    assert_eq!(chat.say("").await, ["A title and a count, please."]);
    // Two were asked, so the message is not the title.
    assert_eq!(chat.say("7").await, ["A title, please."]);
    assert_eq!(chat.fields("Pair").await, json!({ "title": null, "count": 7 }));
    let outcome = chat.turn(TurnRequest::new(session()).message("  8 days  ")).await;
    assert!(outcome.is_ended());
    assert_eq!(chat.fields("Pair").await, json!({ "title": "8 days", "count": 7 }));
}

#[flow(id = "pairs", version = 1, steps(Pair))]
#[derive(Clone)]
struct Pairs;

impl Flow for Pairs {}

#[step(collect, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Pair {
    #[slot(whole_message)]
    title: Option<String>,
    #[slot(range(1, 9))]
    count: Option<u8>,
}

impl Collect for Pair {
    type Flow = Pairs;

    fn ask(&self, missing: &[&'static Slot], _: &StepCx<'_, Pairs>) -> Question {
        let names: Vec<_> = missing.iter().map(|slot| slot.name.to_owned()).collect();
        Question {
            text: format!("A {}, please.", names.join(" and a ")),
            fields: names,
            options: Vec::new(),
        }
    }

    async fn complete(&mut self, _: PairData, _: &mut StepCx<'_, Pairs>) -> Result<PairNext> {
        Ok(PairNext::End("done".into()))
    }
}
