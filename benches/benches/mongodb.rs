//! Counts what a turn costs on a MongoDB server: commands, and bytes of documents and archive
//! entries that are sent to be written. These are counts, not times: the same on every machine.
//!
//! The server is the one that the tests use; see `tests::mongo_server`.

#![allow(clippy::print_stdout, reason = "the table is what it is run for")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use benches::Bounce;
use flow_core::id::SessionId;
use flow_core::store::SessionStore as _;
use flow_core::store::mongodb::MongoStore;
use flow_core::{Durability, Engine, TurnRequest};
use mongodb::Client;
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;

/// Turns before the counted one: the first makes the session, the others fill its history.
const HISTORIES: [u32; 3] = [1, 100, 1000];

#[tokio::main]
async fn main() {
    let Some(uri) = tests::mongo_server::uri().await else {
        println!("skipped: there is no MongoDB server");
        return;
    };
    let commands = Arc::new(AtomicU64::new(0));
    let counter = commands.clone();
    let mut options = ClientOptions::parse(uri).await.expect("the address is well formed");
    options.command_event_handler = Some(EventHandler::callback(move |event| {
        if let CommandEvent::Started(_) = event {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let client = Client::with_options(options).expect("a client");
    println!("durability  messages  crossings  commands  bytes");
    for durability in [Durability::Crossing, Durability::Turn] {
        let database = client.database(&tests::mongo_server::fresh_database());
        let store = Arc::new(MongoStore::new(database.clone()).await.expect("the store opens"));
        let builder = Engine::builder().shared_store(store.clone()).flow(Bounce);
        let engine = builder.durability(durability).build().expect("the flow is well declared");
        let session = SessionId::new("s").expect("a valid id");
        let mut turns = 0;
        for history in HISTORIES {
            while turns < history {
                turn(&engine, &session, 0).await;
                turns += 1;
            }
            for crossings in [0, 1, 3] {
                let (sent, written) = (commands.load(Ordering::Relaxed), store.stats());
                turn(&engine, &session, crossings).await;
                turns += 1;
                let sent = commands.load(Ordering::Relaxed) - sent;
                let bytes = store.stats().bytes_written - written.bytes_written;
                let durability = format!("{durability:?}");
                println!("{durability:10}  {history:8}  {crossings:9}  {sent:8}  {bytes:5}");
            }
        }
        database.drop().await.expect("the database is dropped");
    }
}

async fn turn(engine: &Engine, session: &SessionId, crossings: u32) {
    let request = TurnRequest::new(session.clone()).message(crossings.to_string());
    engine.turn::<Bounce>(request).await.expect("the turn runs");
}
