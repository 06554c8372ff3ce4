//! What is taken from an answer, and what is asked again.

use flow_core::event::Event;
use flow_core::prelude::*;
use serde_json::{Value, json};

use super::Chat;
use super::trip::Travel;

const GUESTS_HINT: &str = "Please answer with one number from 1 to 8.";
const GUESTS: &str = "How many guests?";
const NIGHTS: &str = "How many nights do you stay?";
const CLASS: &str = "Please tell me: class.";

async fn after(texts: &[&str]) -> Chat<Travel> {
    let mut chat = Chat::with(Travel::default());
    chat.start().await;
    for text in texts {
        chat.say(text).await;
    }
    chat
}

async fn slots(chat: &Chat<Travel>) -> Value {
    let mut fields = chat.fields("Trip").await;
    let fields = fields.as_object_mut().unwrap();
    fields.retain(|name, value| name != "completed" && !value.is_null());
    Value::Object(fields.clone())
}

#[tokio::test]
async fn the_whole_message_is_taken_only_as_the_answer_to_its_question() {
    // Nothing was asked yet.
    let mut chat = Chat::with(Travel::default());
    assert_eq!(chat.say("business for Ada").await, ["Who travels?"]);
    assert_eq!(slots(&chat).await, json!({ "class": "business" }));
    // Now it was: no other slot reads the message.
    assert_eq!(chat.say(" 3 in economy ").await, [GUESTS]);
    assert_eq!(slots(&chat).await, json!({ "name": "3 in economy", "class": "business" }));
    // Another question was asked: the name stays.
    chat.say("Grace").await;
    assert_eq!(slots(&chat).await, json!({ "name": "3 in economy", "class": "business" }));
}

#[tokio::test]
async fn one_message_fills_several_slots() {
    let mut chat = after(&["Ada"]).await;
    assert_eq!(chat.say("4 of us, business, on the aisle").await, [NIGHTS]);
    assert_eq!(
        slots(&chat).await,
        json!({ "name": "Ada", "guests": 4, "class": "business", "seat": "aisle" })
    );
}

#[tokio::test]
async fn the_slot_that_was_asked_has_the_first_claim_on_a_number() {
    let mut chat = after(&["Ada"]).await;
    assert_eq!(chat.say("5").await, [NIGHTS]);
    assert_eq!(slots(&chat).await, json!({ "name": "Ada", "guests": 5 }));
    // It fits the filled one too, which keeps its own.
    assert_eq!(chat.say("6").await, [CLASS]);
    assert_eq!(slots(&chat).await, json!({ "name": "Ada", "guests": 5, "nights": 6 }));
}

#[tokio::test]
async fn a_number_that_fits_two_slots_of_which_none_was_asked_is_for_neither() {
    let mut chat = Chat::with(Travel::default());
    assert_eq!(chat.say("3").await, [GUESTS_HINT, GUESTS]);
    assert_eq!(slots(&chat).await, json!({}));
    // One that fits a single slot is taken.
    let mut chat = Chat::with(Travel::default());
    assert_eq!(chat.say("14").await, ["Who travels?"]);
    assert_eq!(slots(&chat).await, json!({ "nights": 14 }));
}

#[tokio::test]
async fn what_could_mean_two_values_is_asked_again_with_feedback() {
    let mut chat = after(&["Ada"]).await;
    for unclear in ["2-3", "2 or 3", "between 2 and 3"] {
        assert_eq!(chat.say(unclear).await, [GUESTS_HINT, GUESTS], "{unclear}");
        assert_eq!(slots(&chat).await, json!({ "name": "Ada" }));
        assert!(
            chat.events
                .contains(&Event::Feedback { step: "Trip".into(), text: GUESTS_HINT.into() })
        );
    }
    chat.say("3").await;
    chat.say("9").await;
    let hint = "Please answer with one of: economy, business.";
    for unclear in ["economy or business", "not economy"] {
        assert_eq!(chat.say(unclear).await, [hint, CLASS], "{unclear}");
    }
    // Feedback is not part of the history, the question is.
    let transcript = chat.engine.session(super::session()).transcript().await.unwrap();
    assert!(transcript.messages().iter().all(|message| !message.to_text().contains(hint)));
}

#[tokio::test]
async fn a_value_for_another_slot_is_kept_while_an_unclear_one_is_asked_again() {
    let mut chat = after(&["Ada"]).await;
    assert_eq!(chat.say("2 or 3 in business").await, [GUESTS]);
    assert_eq!(slots(&chat).await, json!({ "name": "Ada", "class": "business" }));
}

#[tokio::test]
async fn a_filled_slot_is_corrected_by_a_message_that_fits_no_empty_one() {
    let mut chat = Chat::with(Travel::default());
    chat.say("business").await;
    chat.say("Ada").await;
    assert_eq!(chat.say("economy instead").await, [GUESTS]);
    assert_eq!(slots(&chat).await, json!({ "name": "Ada", "class": "economy" }));
    assert_eq!(chat.updates()[0]["sources"], json!([["class", "deterministic"]]));
    // The same value again corrects nothing: the question is still open.
    assert_eq!(chat.say("economy").await, [GUESTS_HINT, GUESTS]);
    assert_eq!(chat.updates()[0]["sources"], json!([]));
}

#[tokio::test]
async fn a_correction_that_fits_two_filled_slots_is_asked_about() {
    let mut chat = after(&["Ada", "5", "7"]).await;
    assert_eq!(chat.say("6 I meant").await, [GUESTS_HINT, GUESTS]);
    assert_eq!(slots(&chat).await, json!({ "name": "Ada", "guests": 5, "nights": 7 }));
    // The answer is for the slot that was asked about.
    assert_eq!(chat.say("6").await, [CLASS]);
    assert_eq!(slots(&chat).await, json!({ "name": "Ada", "guests": 6, "nights": 7 }));
}

#[tokio::test]
async fn an_optional_value_is_kept_and_does_not_leak_into_the_next_visit() {
    let mut chat = Chat::with(Travel::default());
    for text in ["window", "Ada", "3", "12", "economy"] {
        chat.say(text).await;
    }
    assert_eq!(chat.say("no").await, ["Who travels?"]);
    let fields = chat.fields("Trip").await;
    let empty = json!({
        "name": null, "guests": null, "nights": null, "class": null, "seat": null, "completed": 1
    });
    assert_eq!(fields, empty, "the slots are empty, the other fields are not touched");
    for text in ["Grace", "1", "2", "business"] {
        chat.say(text).await;
    }
    let trips = chat.state().await["trips"].clone();
    assert_eq!((&trips[0]["seat"], &trips[1]["seat"]), (&json!("window"), &json!(null)));
    assert_eq!(trips[1]["name"], "Grace");
}

#[tokio::test]
async fn an_empty_message_is_no_answer() {
    let mut chat = after(&[]).await;
    for nothing in ["", "   ", "\n\t"] {
        assert_eq!(chat.say(nothing).await, ["Who travels?"], "{nothing:?}");
    }
    chat.say("Ada").await;
    for nothing in ["", "   "] {
        assert_eq!(chat.say(nothing).await, [GUESTS_HINT, GUESTS], "{nothing:?}");
    }
    assert_eq!(slots(&chat).await, json!({ "name": "Ada" }));
}

#[tokio::test]
async fn an_unclear_confirmation_is_asked_again_and_never_silent() {
    let mut chat = after(&["Ada", "3", "12", "economy"]).await;
    let question = "Ada, 3 guests, 12 nights: right?";
    let hint = "Please answer with one of: yes, no.";
    for unclear in ["maybe", "yes and no", "", "not yes"] {
        assert_eq!(chat.say(unclear).await, [hint, question], "{unclear:?}");
    }
    // A turn without a message shows the question again.
    assert_eq!(chat.start().await.replies, [question]);
    assert_eq!(chat.say("No!").await, ["Who travels?"]);
    for text in ["Ada", "3", "12", "economy"] {
        chat.say(text).await;
    }
    let outcome = chat.turn(flow_core::TurnRequest::new(super::session()).message("YES")).await;
    assert!(outcome.is_ended());
}

/// Slots whose resolvers find values that their types do not take.
#[flow(id = "odd", version = 1, steps(Odd))]
#[derive(Clone)]
struct Oddities;

impl Flow for Oddities {}

#[step(collect, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Odd {
    #[slot(range(1, 300))]
    small: Option<u8>,
    #[slot(pattern("#(\\d+)"))]
    code: Option<u8>,
    #[slot(one_of("I agree"), verbatim)]
    consent: Option<String>,
    #[slot(whole_message)]
    age: Option<u8>,
}

impl Collect for Odd {
    type Flow = Oddities;

    async fn complete(&mut self, data: OddData, _: &mut StepCx<'_, Oddities>) -> Result<OddNext> {
        let OddData { small, code, consent, age } = data;
        Ok(OddNext::End(format!("{small} {code} {consent} {age}")))
    }
}

#[tokio::test]
async fn a_value_that_the_type_does_not_take_is_asked_again() {
    let mut chat = Chat::with(Oddities);
    chat.start().await;
    let small = "Please tell me: small.";
    let feedback = "Please answer with one number from 1 to 300.";
    assert_eq!(chat.say("300").await, [feedback, small]);
    assert_eq!(chat.say("1.5").await, [feedback, small]);
    assert_eq!(chat.fields("Odd").await["small"], json!(null));
    assert_eq!(chat.say("30").await, ["Please tell me: code."]);
    let feedback = "That does not have the form I need.";
    assert_eq!(chat.say("#999").await, [feedback, "Please tell me: code."]);
    assert_eq!(
        chat.fields("Odd").await,
        json!({ "small": 30, "code": null, "consent": null, "age": null })
    );
    assert_eq!(chat.say("it is #99").await, ["Please tell me: consent."]);
    // What stands for the consent has to be the user's own words.
    let feedback = "Please answer with one of: I agree.";
    assert_eq!(chat.say("i AGREE").await, [feedback, "Please tell me: consent."]);
    assert_eq!(chat.fields("Odd").await["consent"], json!(null));
    assert_eq!(chat.say("Well, I agree.").await, ["Please tell me: age."]);
    assert_eq!(chat.say("old enough").await, ["Please tell me: age."]);
    let outcome = chat.turn(flow_core::TurnRequest::new(super::session()).message("42")).await;
    let doc = chat.engine.session(super::session()).load().await.unwrap();
    assert_eq!((outcome.is_ended(), doc.ended.as_deref()), (true, Some("30 99 I agree 42")));
}
