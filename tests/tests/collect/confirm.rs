//! Questions of yes or no: when they are asked, and what counts as an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flow_core::event::Event;
use flow_core::outcome::Outcome;
use flow_core::prelude::*;
use flow_core::session::Waiting;
use flow_core::step::Kind;
use flow_core::step::confirm::Language;
use flow_core::{TurnOutcome, TurnRequest};

use super::{Chat, session};

/// Books what the user has said, if they confirm it.
#[flow(id = "orders", version = 1, steps(Hear, Check, Change), state = Order)]
#[derive(Clone, Default)]
struct Orders {
    german: bool,
    /// Whether the step gets the message that led to it.
    pass_on: bool,
    /// Whether the next entry fails.
    broken: Arc<AtomicBool>,
}

impl Flow for Orders {}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Order {
    text: String,
}

/// Keeps what the user has said, and leaves it unread.
#[step(action, next(Check, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Hear;

impl Action for Hear {
    type Flow = Orders;

    async fn run(&mut self, cx: &mut ActionCx<'_, Orders>) -> Result<HearNext> {
        let Some(message) = cx.message().map(str::to_owned) else { return Ok(HearNext::Stay) };
        cx.state.text = message;
        Ok(HearNext::Check)
    }
}

#[step(decide, confirm, next(Change, stay, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Check {
    answers: Vec<bool>,
}

impl Confirm for Check {
    type Flow = Orders;

    fn question(&self, cx: &StepCx<'_, Orders>) -> String {
        format!("Order `{}`?", cx.state.text)
    }

    fn options(&self, cx: &StepCx<'_, Orders>) -> [String; 2] {
        if cx.flow.german { ["Kaufen", "Ändern"] } else { ["yes", "no"] }.map(str::to_owned)
    }

    async fn confirmed(&mut self, yes: bool, cx: &mut StepCx<'_, Orders>) -> Result<CheckNext> {
        self.answers.push(yes);
        if yes && cx.state.text.is_empty() {
            cx.feedback("There is nothing to order.");
            return Ok(CheckNext::Stay);
        }
        Ok(if yes { CheckNext::End("ordered".into()) } else { CheckNext::Change })
    }

    async fn on_enter(&mut self, _: (), cx: &mut StepCx<'_, Orders>) -> Result<()> {
        if cx.flow.broken.swap(false, Ordering::Relaxed) {
            return Err(StepError::terminal("the door is stuck"));
        }
        Ok(())
    }

    async fn on_crossing(
        &mut self,
        crossing: Crossing<'_>,
        cx: &mut StepCx<'_, Orders>,
    ) -> Result<Option<String>> {
        Ok(crossing.message.filter(|_| cx.flow.pass_on).map(str::to_owned))
    }

    async fn verify(&mut self, next: &CheckNext, cx: &mut StepCx<'_, Orders>) -> Result<Gate> {
        let much = matches!(next, CheckNext::End(_)) && cx.state.text == "too much";
        Ok(if much { Gate::Hold("That is too much.".into()) } else { Gate::Pass })
    }
}

#[step(collect, next(Check))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Change {
    #[slot(whole_message, ask = "What else?")]
    text: Option<String>,
}

impl Collect for Change {
    type Flow = Orders;

    async fn complete(
        &mut self,
        data: ChangeData,
        cx: &mut StepCx<'_, Orders>,
    ) -> Result<ChangeNext> {
        cx.state.text = data.text;
        Ok(ChangeNext::Check)
    }
}

fn say(text: &str) -> TurnRequest {
    TurnRequest::new(session()).message(text)
}

fn is_question(outcome: &TurnOutcome, text: &str) {
    assert_eq!(outcome.replies.last().map(String::as_str), Some(text));
    let question = outcome.question().unwrap();
    assert_eq!((&*question.text, question.options.len()), (text, 2));
}

#[tokio::test]
async fn the_question_is_shown_and_the_message_that_led_to_it_is_no_answer() {
    for flow in [Orders::default(), Orders { pass_on: true, ..Orders::default() }] {
        let mut chat = Chat::with(flow);
        let outcome = chat.turn(say("yes")).await;
        assert_eq!(outcome.replies, ["Order `yes`?"]);
        let question = Question {
            text: "Order `yes`?".into(),
            fields: Vec::new(),
            options: vec!["yes".into(), "no".into()],
        };
        assert_eq!(outcome.question(), Some(&question));
        assert!(chat.events.contains(&Event::Question(question.clone())));
        let doc = chat.engine.session(session()).load().await.unwrap();
        assert_eq!(doc.waiting, Some(Waiting::Message { question: Some(question) }));
        let outcome = chat.turn(say("Yes, please.")).await;
        assert_eq!(outcome.outcome, Outcome::Ended { reason: "ordered".into() });
        assert!(outcome.replies.is_empty(), "{outcome:?}");
    }
}

#[tokio::test]
async fn no_leads_elsewhere_and_the_next_visit_asks_anew() {
    let mut chat = Chat::with(Orders::default());
    chat.say("tea").await;
    assert_eq!(chat.say("yes, no wait").await, ["What else?"]);
    // Whatever the new order says, it is not an answer.
    is_question(&chat.turn(say("yes")).await, "Order `yes`?");
    assert_eq!(chat.fields("Check").await["answers"], serde_json::json!([false]));
    assert!(chat.turn(say("👍")).await.is_ended());
}

#[tokio::test]
async fn an_unclear_answer_is_explained_and_asked_again() {
    let mut chat = Chat::with(Orders::default());
    chat.say("tea").await;
    for unclear in ["yes but with milk", "is that ok?", "maybe", " "] {
        let outcome = chat.turn(say(unclear)).await;
        assert_eq!(outcome.replies, ["Please answer with yes or no.", "Order `tea`?"]);
        is_question(&outcome, "Order `tea`?");
        let feedback =
            Event::Feedback { step: "Check".into(), text: "Please answer with yes or no.".into() };
        assert!(chat.events.contains(&feedback), "{unclear}");
    }
    // Who says nothing is asked again, and not corrected.
    let outcome = chat.start().await;
    assert_eq!(outcome.replies, ["Order `tea`?"]);
    assert!(chat.turn(say("oui")).await.is_ended());
}

#[tokio::test]
async fn an_option_is_an_answer_whatever_its_words() {
    let german = || Chat::with(Orders { german: true, ..Orders::default() });
    let mut chat = german();
    let outcome = chat.turn(say("Tee")).await;
    assert_eq!(outcome.question().unwrap().options, ["Kaufen", "Ändern"]);
    assert_eq!(chat.say("Kaufen?").await, ["Please answer with Kaufen or Ändern.", "Order `Tee`?"]);
    assert_eq!(chat.say("ändern!").await, ["What else?"]);
    let mut chat = german();
    chat.say("Tee").await;
    assert!(chat.turn(say("KAUFEN")).await.is_ended());
}

/// Asks twice, in German.
#[flow(id = "short", steps(Ask))]
#[derive(Clone)]
struct Short;

impl Flow for Short {}

#[step(decide, confirm, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Ask;

impl Confirm for Ask {
    type Flow = Short;

    fn question(&self, _: &StepCx<'_, Short>) -> String {
        "Weiter?".into()
    }

    fn hint(&self, _: &StepCx<'_, Short>) -> String {
        "Ja oder nein?".into()
    }

    fn languages(&self) -> &[Language] {
        &[Language::German]
    }

    fn max_turns(&self) -> Option<u32> {
        Some(2)
    }

    async fn confirmed(&mut self, yes: bool, _: &mut StepCx<'_, Short>) -> Result<AskNext> {
        Ok(AskNext::End(yes.to_string()))
    }
}

#[tokio::test]
async fn a_step_may_read_fewer_languages_and_ask_a_number_of_times() {
    let mut chat = Chat::with(Short);
    // The first message of a session is no answer either.
    assert_eq!(chat.say("ja").await, ["Weiter?"]);
    assert_eq!(chat.say("oui").await, ["Ja oder nein?", "Weiter?"]);
    let outcome = chat.turn(say("si")).await;
    let reason = "no clear answer after 2 questions".to_owned();
    assert_eq!(outcome.outcome, Outcome::Escalated { reason });
    assert!(outcome.replies.is_empty(), "{outcome:?}");
    // A person gives the session back: it asks afresh.
    chat.engine.session(session()).release().await.unwrap();
    assert_eq!(chat.say("ja").await, ["Weiter?"]);
    assert_eq!(chat.say("hm").await, ["Ja oder nein?", "Weiter?"]);
    let outcome = chat.turn(say("nein")).await;
    assert_eq!(outcome.outcome, Outcome::Ended { reason: "false".into() });
}

#[tokio::test]
async fn a_step_that_stays_asks_again() {
    let mut chat = Chat::with(Orders::default());
    chat.say("").await;
    let outcome = chat.turn(say("yes")).await;
    assert_eq!(outcome.replies, ["There is nothing to order.", "Order ``?"]);
    is_question(&outcome, "Order ``?");
    assert_eq!(chat.say("no").await, ["What else?"]);
}

#[tokio::test]
async fn a_gate_that_holds_is_told_and_the_next_answer_counts() {
    let mut chat = Chat::with(Orders::default());
    chat.say("too much").await;
    assert_eq!(chat.say("yes").await, ["That is too much."]);
    assert_eq!(chat.say("no").await, ["What else?"]);
}

#[tokio::test]
async fn a_question_that_was_never_shown_is_shown_whatever_comes() {
    for again in [say("tea").turn_id("t1"), say("yes")] {
        let broken = Arc::new(AtomicBool::new(true));
        let mut chat = Chat::with(Orders { broken, ..Orders::default() });
        let failed = chat.engine.turn::<Orders>(say("tea").turn_id("t1")).await;
        assert!(failed.unwrap_err().to_string().contains("the door is stuck"));
        // The step was reached, and not entered.
        let doc = chat.engine.session(session()).load().await.unwrap();
        assert_eq!((&*doc.current_step, doc.visit.entered), ("Check", false));
        is_question(&chat.turn(again).await, "Order `tea`?");
        assert!(chat.turn(say("yes")).await.is_ended());
    }
}

#[tokio::test]
async fn it_is_a_decide_step_for_all_who_look_at_the_flow() {
    let info = Orders::steps();
    let info = info.get("Check").unwrap().info();
    assert_eq!(info.kind, Kind::Decide);
    assert_eq!(info.targets.len(), 3);
}
