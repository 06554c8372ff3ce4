//! What checkpoints cost, and that those who keep none pay nothing.

use flow_core::store::StoreStats;
use mongodb::Client;
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;

use super::*;

const TURNS: [&str; 3] = ["add:a", "add:b over", "add:c"];

async fn stats(keep: usize) -> (StoreStats, u64) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("sessions.db")).await.unwrap();
    let engine = |engine: EngineBuilder| engine.checkpoints(Checkpoints::keep_last(keep));
    let talk = talk_on(Arc::new(store), Desk::default(), engine);
    for text in TURNS {
        talk.say("s", text).await;
    }
    (talk.store.stats(), talk.revision("s").await)
}

#[tokio::test]
async fn a_commit_with_a_checkpoint_writes_the_document_once_more() {
    let (without, revision) = stats(0).await;
    let (with, same_revision) = stats(2).await;
    assert_eq!(revision, same_revision);
    assert_eq!((without.commits, with.commits), (revision, revision));
    // The times of leases are of a few bytes more or less.
    let twice = 2 * without.bytes_written;
    assert!(with.bytes_written.abs_diff(twice) < 100, "{with:?} and {without:?}");
}

async fn commands(keep: usize) -> Option<Vec<String>> {
    let uri = tests::mongo_server::uri().await?;
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = sent.clone();
    let mut options = ClientOptions::parse(uri).await.unwrap();
    options.command_event_handler = Some(EventHandler::callback(move |event| {
        if let CommandEvent::Started(started) = event {
            seen.lock().unwrap().push(started.command_name);
        }
    }));
    let database = Client::with_options(options).unwrap();
    let database = database.database(&tests::mongo_server::fresh_database());
    let store = MongoStore::new(database.clone()).await.unwrap();
    let engine = |engine: EngineBuilder| engine.checkpoints(Checkpoints::keep_last(keep));
    let talk = talk_on(Arc::new(store), Desk::default(), engine);
    sent.lock().unwrap().clear();
    for text in TURNS {
        talk.say("s", text).await;
    }
    let commands = std::mem::take(&mut *sent.lock().unwrap());
    database.drop().await.unwrap();
    Some(commands)
}

#[tokio::test]
async fn on_mongodb_a_commit_with_a_checkpoint_costs_one_command_more() {
    let Some(without) = commands(0).await else { return };
    let turn = |commits: usize, with: &[&'static str]| {
        let commits = std::iter::repeat_n(with.to_vec(), commits).flatten();
        std::iter::once("findAndModify").chain(commits).collect::<Vec<_>>()
    };
    let wanted = |with| [turn(1, with), turn(2, with), turn(1, with)].concat();
    assert_eq!(without, wanted(&["update"]));
    assert_eq!(commands(20).await.unwrap(), wanted(&["insert", "update"]));
}
