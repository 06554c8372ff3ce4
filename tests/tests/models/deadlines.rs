//! The time that one turn has for its models.

use tokio::time::Instant;

use super::*;

/// A hotel whose turns have 100 seconds for their models.
fn hurried() -> Hotel {
    let policy = CallPolicy::default()
        .turn_deadline(Duration::from_secs(100))
        .tool_timeout(Duration::from_secs(30));
    Hotel { policy, recover: false }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn all_calls_of_a_step_share_the_deadline_of_the_turn() {
    let main = ScriptedModel::new()
        .delay(seconds(55))
        .tool_call("search", json!({ "city": "Rome" }))
        .delay(seconds(55))
        .text("late");
    let talk = Talk::with(hurried(), main);
    let begin = Instant::now();
    let error = talk.say("rooms").await.unwrap_err();
    assert_eq!(begin.elapsed().as_secs(), 100);
    assert_eq!((error.code(), error.retryable()), ("model-deadline", true));
    assert_eq!(
        error.to_string(),
        "flow `hotel`: the model of step `Explore` cannot be used: `test::main` gave no answer within the 100s \
         that a turn has for its models; set `CallPolicy::turn_deadline` in the flow's `config_call_policy` to \
         give it more"
    );

    // The next turn has its own.
    let _ = talk.main.clone().delay(seconds(55)).text("Hello!");
    assert_eq!(talk.say("hi").await.unwrap().replies, ["Hello!"]);
}

#[tokio::test(start_paused = true)]
async fn the_steps_of_a_turn_share_it_too() {
    let main = ScriptedModel::new().delay(seconds(55)).tool_call("choose", json!({ "room": 12 }));
    let talk = Talk::with(hurried(), main);
    let _ = talk.desk.clone().delay(seconds(55)).text("late");
    let begin = Instant::now();
    let error = talk.say("room 12").await.unwrap_err();
    assert_eq!((error.code(), begin.elapsed().as_secs()), ("model-deadline", 100));
    assert!(error.to_string().contains("step `Desk`"), "{error}");
    assert_eq!(talk.doc().await.current_step, "Desk", "the session stands at its last commit");
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_not_cut_but_its_time_counts() {
    let hang = |main: ScriptedModel| main.tool_call("hang", json!({}));
    let main = hang(hang(hang(hang(ScriptedModel::new())))).text("late");
    let talk = Talk::with(hurried(), main);
    let begin = Instant::now();
    let error = talk.say("wait").await.unwrap_err();
    // Four tools of 30 seconds; the call after the last one does not begin.
    assert_eq!((error.code(), begin.elapsed().as_secs()), ("model-deadline", 120));
    assert_eq!((talk.main.requests().len(), talk.main.left()), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_the_provider_asks_for_beyond_it_fails_at_once() {
    let busy = ModelError::Status {
        model: "test::main".into(),
        status: 429,
        message: "slow down".into(),
        retry_after: Some(seconds(200)),
    };
    let talk = Talk::with(hurried(), ScriptedModel::new().error(busy).text("late"));
    let begin = Instant::now();
    let error = talk.say("hi").await.unwrap_err();
    assert_eq!((error.code(), begin.elapsed().as_secs()), ("model-deadline", 0));
    assert!(error.to_string().ends_with("answered with status 429: slow down)"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn attempts_and_waits_are_those_of_the_policy() {
    let failing = || ModelError::Connection { model: "test::main".into(), message: "no".into() };
    let policy = CallPolicy::default().attempts(4).first_wait(seconds(2)).longest_wait(seconds(3));
    let main = (0..4).fold(ScriptedModel::new(), |main, _| main.error(failing()));
    let talk = Talk::with(Hotel { policy, recover: true }, main);
    let begin = Instant::now();
    let outcome = talk.say("hi").await.unwrap();
    assert_eq!(outcome.replies, ["I cannot talk now (model-connection)."]);
    assert_eq!(talk.main.requests().len(), 4);
    // 2, 3 and 3 seconds, each with up to as much jitter.
    let waited = begin.elapsed().as_secs();
    assert!((8..=16).contains(&waited), "{waited}");
}
