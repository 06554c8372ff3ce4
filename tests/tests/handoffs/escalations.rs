//! What a session that waits for a person answers.

use flow_core::outcome::Outcome;

use super::*;

#[tokio::test]
async fn a_message_while_a_person_takes_over_is_answered_and_nothing_runs() {
    let setup = setup();
    setup.say("escalate").await.unwrap();
    setup.done.take();
    let (events, outcome) = setup.events(request("charge:5")).await;
    let outcome = outcome.unwrap();
    assert!(matches!(outcome.outcome, Outcome::Escalated { .. }));
    assert_eq!(outcome.replies.len(), 1);
    assert!(outcome.replies[0].contains("person") && !outcome.replies[0].contains("secret"));
    assert_eq!(names(&events), ["turn-start", "session-restored", "message", "turn-end"]);
    assert_eq!(setup.done.take(), [""; 0]);
    // A turn without a message has nothing to answer.
    let silent = setup.engine.turn::<Desk>(TurnRequest::new(session())).await.unwrap();
    assert_eq!(silent.replies, [""; 0]);
    let said = setup.transcript().await;
    assert_eq!(said[2..], ["user: charge:5".to_owned(), format!("flow: {}", outcome.replies[0])]);
    setup.engine.session(session()).release().await.unwrap();
    assert_eq!(setup.say("say:back").await.unwrap().replies, ["back"]);
}

/// A flow with an answer of its own.
#[flow(id = "quiet", steps(Give))]
#[derive(Clone)]
struct Quiet;

impl Flow for Quiet {
    async fn on_message_while_escalated(
        &self,
        reason: &str,
        cx: &mut StepCx<'_, Self>,
    ) -> Result<Option<String>> {
        Ok(match cx.last_message() {
            Some("why") => Some(format!("Because: {reason}")),
            Some("break") => return Err(StepError::new("as told")),
            _ => None,
        })
    }
}

#[step(action, next(escalate))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Give;

impl Action for Give {
    type Flow = Quiet;

    async fn run(&mut self, _: &mut ActionCx<'_, Quiet>) -> Result<GiveNext> {
        Ok(GiveNext::Escalate("too hard".into()))
    }
}

#[tokio::test]
async fn a_flow_may_answer_otherwise_or_not_at_all() {
    let engine = Engine::builder().store(MemoryStore::new()).flow(Quiet).build().unwrap();
    let say = |text: &str| engine.turn::<Quiet>(request(text));
    say("hi").await.unwrap();
    assert_eq!(say("hello?").await.unwrap().replies, [""; 0]);
    assert_eq!(say("why").await.unwrap().replies, ["Because: too hard"]);
    assert_eq!(say("break").await.unwrap_err().code(), "step-failed");
    let outcome = say("why").await.unwrap();
    assert_eq!(outcome.outcome, Outcome::Escalated { reason: "too hard".into() });
}

#[tokio::test]
async fn an_escalation_after_a_hand_off_is_answered_by_the_flow_that_escalated() {
    let setup = setup();
    let outcome = setup.say("billing escalate").await.unwrap();
    assert_eq!(outcome.flow, "billing");
    assert_eq!(setup.say("hello?").await.unwrap().flow, "billing");
    setup.engine.session(session()).release().await.unwrap();
    assert_eq!(setup.say("say:back").await.unwrap().replies, ["back"]);
}
