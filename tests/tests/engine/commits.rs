//! The exact count and content of commits.

use flow_core::Durability;
use flow_core::session::{SessionDoc, Status, Waiting};
use flow_core::store::{ListQuery, SessionStore};
use tests::recording_store::Call;
use tests::route_flow::Route;

use super::{Setup, say, session, setup, setup_with};

fn commits(
    calls: Vec<Call>,
) -> Vec<(flow_core::session::Delta, flow_core::session::SessionDoc, bool)> {
    calls
        .into_iter()
        .filter_map(|call| match call {
            Call::Commit { delta, doc, release, .. } => Some((*delta, *doc, release)),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn a_new_session_that_stays_is_one_commit_of_a_whole_document() {
    let setup = setup();
    setup.turn(".").await.unwrap();
    let calls = setup.store.take();
    assert_eq!(calls.iter().map(Call::name).collect::<Vec<_>>(), ["open", "commit+release"]);
    let [(delta, doc, true)] = &commits(calls)[..] else { panic!("one commit that releases") };
    assert!(delta.replace);
    assert_eq!(doc.revision, 1);
    assert_eq!(doc.status, Status::Waiting);
    assert_eq!(doc.current_step, "A");
    assert_eq!(doc.waiting, Some(Waiting::Message { question: None }));
    assert_eq!(doc.path.len(), 1);
    assert_eq!(doc.memory["main"].messages[0].to_text(), ".");
}

#[tokio::test]
async fn staying_writes_what_changed_and_nothing_else() {
    let setup = setup();
    setup.turn(".").await.unwrap();
    setup.store.take();
    setup.turn(".").await.unwrap();
    let calls = setup.store.take();
    assert_eq!(calls.iter().map(Call::name).collect::<Vec<_>>(), ["open", "commit+release"]);
    let [(delta, doc, _)] = &commits(calls)[..] else { panic!("one commit") };
    assert!(!delta.replace);
    assert_eq!(doc.revision, 2);
    assert!(delta.state.is_some(), "the step counts its runs in the state");
    assert!(delta.steps.is_empty(), "the step's fields are as they were");
    assert_eq!((delta.current_step.as_ref(), delta.visit.as_ref()), (None, None));
    assert!(delta.path.is_empty());
    assert_eq!(delta.memory["main"].messages.push.len(), 1);
}

#[tokio::test]
async fn one_crossing_is_a_commit_of_the_cursor_before_the_next_step_runs() {
    let setup = setup();
    setup.turn(".").await.unwrap();
    setup.store.take();
    setup.turn("b").await.unwrap();
    let calls = setup.store.take();
    assert_eq!(
        calls.iter().map(Call::name).collect::<Vec<_>>(),
        ["open", "commit", "commit+release"]
    );
    let commits = commits(calls);
    let (delta, doc, _) = &commits[0];
    assert_eq!(delta.current_step.as_deref(), Some("B"));
    assert!(!doc.visit.entered, "the next step is still to be entered");
    assert_eq!(doc.visit.from.as_deref(), Some("A"));
    assert_eq!(doc.status, Status::Running);
    assert!(!doc.steps.contains_key("B") || doc.steps["B"]["entered"] == 0);
    let (_, doc, _) = &commits[1];
    assert!(doc.visit.entered);
    assert_eq!(doc.steps["B"]["entered"], 1);
    assert_eq!(doc.status, Status::Waiting);
}

#[tokio::test]
async fn three_crossings_and_the_end_are_four_commits() {
    let setup = setup();
    setup.turn("b c a end").await.unwrap();
    assert_eq!(setup.store.take_names(), ["open", "commit", "commit", "commit", "commit+release"]);
    let doc = setup.engine.session(session()).load().await.unwrap();
    assert_eq!(doc.revision, 4);
    let path: Vec<_> = doc.path.iter().map(|entry| entry.step.as_str()).collect();
    assert_eq!(path, ["A", "B", "C", "A"]);
    assert_eq!(doc.state["ran"], 4);
}

#[tokio::test]
async fn an_error_in_the_middle_leaves_the_last_crossing_and_records_the_error() {
    let setup = setup();
    setup.turn("b fail").await.unwrap_err();
    assert_eq!(setup.store.take_names(), ["open", "commit", "load", "commit+release"]);
    let doc = setup.engine.session(session()).load().await.unwrap();
    assert_eq!(doc.status, Status::Failed);
    assert_eq!(doc.current_step, "B");
    assert!(!doc.visit.entered);
    assert_eq!(doc.state["ran"], 1, "what the failed step did to the state is gone");
    let error = doc.error.unwrap();
    assert_eq!((error.code.as_str(), error.retryable), ("step-failed", true));
    // The next turn goes on from there.
    setup.log.take();
    let outcome = setup.turn("c").await.unwrap();
    assert_eq!(outcome.step, "C");
    let doc = setup.engine.session(session()).load().await.unwrap();
    assert_eq!((doc.error, doc.status), (None, Status::Waiting));
}

#[tokio::test]
async fn an_error_before_the_first_commit_leaves_nothing() {
    let setup = setup();
    setup.turn("fail").await.unwrap_err();
    assert_eq!(setup.store.take_names(), ["open", "load", "release"]);
    assert!(setup.store.load(&session()).await.unwrap().is_none());
}

#[tokio::test]
async fn durability_turn_is_one_commit_whatever_happens_before() {
    let setup = setup_with(Route::default(), |b| b.durability(Durability::Turn));
    setup.turn("b c tool a .").await.unwrap();
    assert_eq!(setup.store.take_names(), ["open", "commit+release"]);
    setup.turn("b fail").await.unwrap_err();
    let doc = setup.engine.session(session()).load().await.unwrap();
    assert_eq!(doc.current_step, "A", "the whole turn is undone");
}

#[tokio::test]
async fn durability_effect_commits_what_was_said_and_before_each_tool_call() {
    let setup = setup_with(Route::default(), |b| b.durability(Durability::Effect));
    setup.turn("tool tool b .").await.unwrap();
    let calls = setup.store.take();
    assert_eq!(
        calls.iter().map(Call::name).collect::<Vec<_>>(),
        ["open", "commit", "commit", "commit", "commit", "commit+release"]
    );
    let commits = commits(calls);
    let message = commits[0].1.visit.message.as_deref();
    assert_eq!(message, Some("tool tool b ."), "whoever goes on knows what was said");
    assert_eq!(commits[1].1.effects.keys().collect::<Vec<_>>(), ["s:1:0:touch:44136fa355b3"]);
    assert_eq!(commits[2].1.effects.len(), 2);
    assert!(commits[3].1.effects.is_empty(), "the step is left");
}

#[tokio::test]
async fn a_migrated_or_superseded_document_costs_one_write() {
    let route = Route { fresh: Some("as told"), ..Route::default() };
    let Setup { engine, store, .. } = setup_with(route, |b| b);
    engine.turn::<Route>(say("b .")).await.unwrap();
    store.take();
    engine.turn::<Route>(say(".")).await.unwrap();
    assert_eq!(store.take_names(), ["open", "commit+release"]);
    let doc = engine.session(session()).load().await.unwrap();
    assert_eq!((doc.current_step.as_str(), doc.superseded, doc.revision), ("A", 1, 3));
    assert_eq!(doc.visit.number, 3, "idempotency keys of the old document are not used again");
    let old = store.load(&serde_json::from_str("\"s~1\"").unwrap()).await.unwrap().unwrap();
    assert_eq!((old.status, old.current_step.as_str()), (Status::Superseded, "B"));
}

#[tokio::test]
async fn a_session_that_had_a_turn_or_was_superseded_is_not_due() {
    for fresh in [None, Some("as told")] {
        let Setup { engine, store, .. } = setup_with(Route { fresh, ..Route::default() }, |b| b);
        engine.turn::<Route>(say("b .")).await.unwrap();
        let doc = engine.session(session()).load().await.unwrap();
        assert!(store.delete(&doc.id).await.unwrap());
        let wake_at = Some(doc.created_at);
        store.create(&SessionDoc { wake_at, ..doc.clone() }).await.unwrap();
        let query = ListQuery { due: wake_at, ..ListQuery::default() };
        assert_eq!(store.list(&query).await.unwrap().len(), 1);
        engine.turn::<Route>(say(".")).await.unwrap();
        assert_eq!(store.list(&query).await.unwrap(), [], "{fresh:?}");
        let now = engine.session(session()).load().await.unwrap();
        assert_eq!((now.wake_at, now.superseded), (None, fresh.map_or(0, |_| 1)));
    }
}
