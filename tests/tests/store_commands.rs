//! What a turn costs on MongoDB, counted by the driver's command events: one command to open
//! the session, and one for each commit.

use std::sync::{Arc, Mutex};

use flow_core::engine::EngineBuilder;
use flow_core::prelude::*;
use flow_core::session::PATH_WINDOW;
use flow_core::store::mongodb::MongoStore;
use flow_core::{Durability, Engine, TurnRequest};
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use tests::route_flow::Route;

/// The names of the commands that the store has sent.
#[derive(Debug, Clone, Default)]
struct Commands(Arc<Mutex<Vec<String>>>);

impl Commands {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// An engine on a database of its own; nothing when tests with MongoDB are skipped.
async fn engine(
    change: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Option<(Engine, Commands, Database)> {
    let uri = tests::mongo_server::uri().await?;
    let commands = Commands::default();
    let sent = commands.clone();
    let mut options = ClientOptions::parse(uri).await.unwrap();
    options.command_event_handler = Some(EventHandler::callback(move |event| {
        if let CommandEvent::Started(started) = event {
            sent.0.lock().unwrap().push(started.command_name);
        }
    }));
    let client = Client::with_options(options).unwrap();
    let database = client.database(&tests::mongo_server::fresh_database());
    let store = MongoStore::new(database.clone()).await.unwrap();
    let engine = change(Engine::builder().store(store).flow(Route::default())).build().unwrap();
    commands.take();
    Some((engine, commands, database))
}

fn say(session: &str, text: &str) -> TurnRequest {
    TurnRequest::new(SessionId::new(session).unwrap()).message(text)
}

/// `findAndModify` once, then `update` for each commit.
fn expected(commits: usize) -> Vec<&'static str> {
    std::iter::once("findAndModify").chain(std::iter::repeat_n("update", commits)).collect()
}

#[tokio::test]
async fn a_turn_that_acts_on_n_transitions_costs_n_plus_one_commands() {
    let Some((engine, commands, database)) = engine(|builder| builder).await else { return };
    for (n, way) in [(1, "."), (2, "b ."), (4, "b c a .")] {
        let session = format!("way-{n}");
        engine.turn::<Route>(say(&session, way)).await.unwrap();
        assert_eq!(commands.take(), expected(n), "a new session, {way:?}");
        engine.turn::<Route>(say(&session, way)).await.unwrap();
        assert_eq!(commands.take(), expected(n), "a restored session, {way:?}");
        let doc = engine.session(SessionId::new(&session).unwrap()).load().await.unwrap();
        assert_eq!(commands.take(), ["find"]);
        assert_eq!(doc.revision, 2 * n as u64);
    }
    // The last one of these acts on the end. A hand-off is a commit that also writes the
    // document that it puts aside.
    for (n, way) in [(1, "end"), (5, "b c handoff"), (2, "b escalate")] {
        engine.turn::<Route>(say(&format!("out-{n}"), way)).await.unwrap();
        assert_eq!(commands.take(), expected(n), "{way:?}");
    }
    database.drop().await.unwrap();
}

#[tokio::test]
async fn the_durability_decides_how_many_commits_there_are() {
    let build = |durability| engine(move |builder| builder.durability(durability));
    let Some((turn, commands, database)) = build(Durability::Turn).await else { return };
    turn.turn::<Route>(say("s", "b tool c a .")).await.unwrap();
    assert_eq!(commands.take(), expected(1));
    database.drop().await.unwrap();

    let (effect, commands, database) = build(Durability::Effect).await.unwrap();
    effect.turn::<Route>(say("s", "b tool tool c .")).await.unwrap();
    assert_eq!(commands.take(), expected(3 + 1 + 2), "what was said, and two tool calls");
    database.drop().await.unwrap();
}

#[tokio::test]
async fn a_batch_that_moves_to_the_archive_costs_one_command_more() {
    let Some((engine, commands, database)) = engine(|builder| builder).await else { return };
    let policy = MemoryPolicy::default();
    let most = policy.window + policy.batch;
    assert!(PATH_WINDOW < most, "the path does not grow in turns that stay");
    let mut moved = Vec::new();
    // Each turn keeps one message and stays at its step.
    for turn in 1..=most + policy.batch {
        engine.turn::<Route>(say("s", ".")).await.unwrap();
        match commands.take() {
            names if names == expected(1) => {}
            names if names == expected(2) => moved.push(turn),
            names => panic!("turn {turn}: {names:?}"),
        }
    }
    assert_eq!(moved, [most, most + policy.batch]);
    let transcript = engine.session(SessionId::new("s").unwrap()).transcript().await.unwrap();
    assert_eq!(transcript.archive.len(), 2);
    assert_eq!(transcript.messages().len(), most + policy.batch);
    database.drop().await.unwrap();
}

#[tokio::test]
async fn a_turn_that_fails_or_is_repeated_has_its_price() {
    let Some((engine, commands, database)) = engine(|builder| builder).await else { return };
    engine.turn::<Route>(say("s", "b .").turn_id("one")).await.unwrap();
    commands.take();
    engine.turn::<Route>(say("s", "c .").turn_id("one")).await.unwrap();
    assert_eq!(commands.take(), ["findAndModify", "update"], "nothing runs, the lease goes back");
    engine.turn::<Route>(say("s", "c fail")).await.unwrap_err();
    assert_eq!(
        commands.take(),
        ["findAndModify", "update", "find", "update"],
        "the error is recorded in the document as it was last committed"
    );
    database.drop().await.unwrap();
}
