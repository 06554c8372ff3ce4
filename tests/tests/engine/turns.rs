//! Idempotent turns, the queue, sessions that have ended, transcripts.

use flow_core::error::{Error, SessionError};
use flow_core::outcome::Outcome;
use flow_core::session::TURN_WINDOW;
use flow_core::store::{ListQuery, SessionStore};
use tests::route_flow::Route;

use super::{say, session, setup};

#[tokio::test]
async fn a_repeated_turn_gives_the_recorded_outcome_and_runs_nothing() {
    let setup = setup();
    let first = setup.engine.turn::<Route>(say("say b").turn_id("m-1")).await.unwrap();
    setup.log.take();
    setup.store.take();
    let again = setup.engine.turn::<Route>(say("say b").turn_id("m-1")).await.unwrap();
    assert!(again.repeated && !first.repeated);
    assert_eq!(again.replies, ["hello"]);
    assert_eq!((again.outcome, again.revision), (first.outcome, first.revision));
    assert!(!setup.log.take().iter().any(|entry| entry.ends_with(".run")));
    assert_eq!(setup.store.take_names(), ["open", "release"]);
}

#[tokio::test]
async fn a_failed_turn_is_not_recorded_so_that_it_can_be_sent_again() {
    let setup = setup();
    setup.turn(".").await.unwrap();
    setup.engine.turn::<Route>(say("fail").turn_id("m-1")).await.unwrap_err();
    let outcome = setup.engine.turn::<Route>(say("b").turn_id("m-1")).await.unwrap();
    assert!(!outcome.repeated);
    assert_eq!(outcome.step, "B");
}

#[tokio::test]
async fn the_latest_outcomes_are_kept() {
    let setup = setup();
    for n in 0..TURN_WINDOW + 3 {
        setup.engine.turn::<Route>(say(".").turn_id(format!("m-{n}"))).await.unwrap();
    }
    let doc = setup.engine.session(session()).load().await.unwrap();
    assert_eq!(doc.turns.len(), TURN_WINDOW);
    assert_eq!(doc.turns[0].id, "m-3");
}

#[tokio::test]
async fn turns_of_one_session_queue_up_in_the_order_in_which_they_came() {
    let setup = setup();
    let turns: Vec<_> =
        ["b", "c", "a", "b"].map(|text| setup.engine.turn::<Route>(say(text))).into();
    let mut steps = Vec::new();
    for turn in turns {
        steps.push(turn.await.unwrap().step);
    }
    assert_eq!(steps, ["B", "C", "A", "B"]);
}

#[tokio::test]
async fn a_session_that_has_ended_takes_no_turns_and_is_as_it_was() {
    let setup = setup();
    setup.turn("end").await.unwrap();
    let before = setup.engine.session(session()).load().await.unwrap();
    let error = setup.turn("b").await.unwrap_err();
    let Error::Session(SessionError::Ended { reason, .. }) = &error else { panic!("{error}") };
    assert_eq!(reason, "the way ends");
    let mut after = setup.engine.session(session()).load().await.unwrap();
    after.lease = before.lease.clone();
    assert_eq!(after, before);
}

#[tokio::test]
async fn handing_off_goes_on_in_the_other_flow() {
    let setup = setup();
    let outcome = setup.turn("b handoff say c .").await.unwrap();
    assert_eq!(outcome.outcome, Outcome::Waiting { question: None });
    assert_eq!((outcome.step.as_str(), &*outcome.replies), ("C", &["hello".to_owned()][..]));
}

#[tokio::test]
async fn a_session_can_be_looked_at_listed_and_deleted() {
    let setup = setup();
    setup.engine.turn::<Route>(say("say b").owner("ada").label("channel", "web")).await.unwrap();
    let listed =
        setup.engine.sessions(&ListQuery { limit: 10, ..ListQuery::default() }).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].current_step.as_str(), listed[0].owner.as_deref()), ("B", Some("ada")));
    let handle = setup.engine.session(session());
    let transcript = handle.transcript().await.unwrap();
    let texts: Vec<_> = transcript.messages().iter().map(|message| message.to_text()).collect();
    assert_eq!(texts, ["say b", "hello"]);
    handle.delete().await.unwrap();
    assert_eq!(handle.load().await.unwrap_err().code(), "session-not-found");
    assert_eq!(handle.delete().await.unwrap_err().status(), 404);
    assert!(setup.store.load(&session()).await.unwrap().is_none());
}

#[tokio::test]
async fn the_same_script_leaves_the_same_document_read_as_a_stream_or_awaited() {
    use flow_core::testing::ManualClock;
    use flow_core::time::Timestamp;
    let clock = || ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
    let mut docs = Vec::new();
    for stream in [false, true] {
        let setup = super::setup_with(Route::default(), |b| b.clock(clock()));
        for text in ["say b", "say tool c say", "a ."] {
            if stream {
                setup.events(say(text).turn_id(text)).await.1.unwrap();
            } else {
                setup.engine.turn::<Route>(say(text).turn_id(text)).await.unwrap();
            }
        }
        docs.push(
            serde_json::to_string(&setup.engine.session(session()).load().await.unwrap()).unwrap(),
        );
    }
    assert_eq!(docs[0], docs[1]);
}
