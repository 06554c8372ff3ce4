//! The MongoDB store on a real server.

mod commands;
mod conformance;
mod contract;
mod faults;
mod indexes;
mod values;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use flow_core::id::SessionId;
use flow_core::message::{Message, Role};
use flow_core::session::{Delta, FlowRef, Lease, SessionDoc, Status, Visit};
use flow_core::store::mongodb::MongoStore;
use flow_core::store::{Commit, Grant, OpenRequest, Opened, SessionStore as _};
use flow_core::time::Timestamp;
use mongodb::bson::Document;
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use serde_json::json;

const FLOW: &str = "hotel";
const LONG: Duration = Duration::from_secs(600);

async fn store() -> Option<(MongoStore, Database)> {
    let database = tests::mongo_server::mongo().await?;
    Some((MongoStore::new(database.clone()).await.unwrap(), database))
}

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + millis).unwrap()
}

fn message(seq: u64) -> Message {
    Message::text(seq, Role::User, format!("message {seq}"), at(seq as i64))
}

/// A document at revision 1.
fn document(session: &SessionId) -> SessionDoc {
    SessionDoc {
        id: session.clone(),
        flow: FlowRef { id: FLOW.into(), digest: "d".into() },
        format: flow_core::session::FORMAT,
        version: 2,
        revision: 1,
        status: Status::Running,
        current_step: "Explore".into(),
        visit: Visit { number: 1, ..Visit::default() },
        state: json!({ "guests": 2 }),
        steps: [("Explore".to_owned(), json!({ "shown": [] }))].into(),
        memory: Default::default(),
        context: Default::default(),
        path: Vec::new(),
        turns: Vec::new(),
        edges: Vec::new(),
        effects: Default::default(),
        waiting: None,
        wake_at: None,
        ended: None,
        gates: Vec::new(),
        error: None,
        usage: flow_core::model::TokenUsage::default(),
        next_message: 0,
        archive: Default::default(),
        superseded: 0,
        parent: None,
        moves: None,
        owner: None,
        labels: Default::default(),
        lease: Lease::default(),
        created_at: at(0),
        updated_at: at(0),
        expires_at: None,
    }
}

fn request<'a>(session: &'a SessionId, holder: &'a str, ttl: Duration) -> OpenRequest<'a> {
    OpenRequest { id: session, flow: FLOW, version: 2, holder, ttl }
}

async fn open(store: &MongoStore, session: &SessionId, holder: &str) -> Opened {
    store.open(&request(session, holder, LONG)).await.unwrap()
}

/// A commit of a whole document.
fn whole<'a>(grant: &'a Grant, doc: &'a SessionDoc, delta: &'a Delta) -> Commit<'a> {
    let base = doc.revision - 1;
    let (release, checkpoints) = (false, 0);
    Commit { grant, base, doc, delta, archive: &[], supersede: None, release, checkpoints }
}

/// Commits a session at revision 1 and keeps its lease.
async fn begin(store: &MongoStore, session: &SessionId, holder: &str) -> (Grant, SessionDoc) {
    let grant = open(store, session, holder).await.grant;
    let doc = document(session);
    store.commit(&whole(&grant, &doc, &Delta::replace())).await.unwrap();
    (grant, doc)
}

/// The next revision of a document, in which one delta has been applied.
fn next(doc: &SessionDoc, delta: &Delta) -> SessionDoc {
    let mut next = doc.clone();
    delta.apply(&mut next);
    next.revision += 1;
    next
}

/// What is stored, without the lease.
async fn stored(store: &MongoStore, session: &SessionId) -> Option<SessionDoc> {
    let doc = store.load(session).await.unwrap()?;
    Some(SessionDoc { lease: Lease::default(), ..doc })
}

/// The commands that a client has sent, by name and in full.
#[derive(Debug, Clone, Default)]
struct Recorder(Arc<Mutex<Vec<(String, Document)>>>);

impl Recorder {
    fn take(&self) -> Vec<(String, Document)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn names(&self) -> Vec<String> {
        self.take().into_iter().map(|(name, _)| name).collect()
    }

    /// A database of its own, and the store in it, whose commands are recorded.
    async fn store() -> Option<(Self, MongoStore, Database)> {
        let uri = tests::mongo_server::uri().await?;
        let recorder = Self::default();
        let commands = Arc::clone(&recorder.0);
        let mut options = ClientOptions::parse(uri).await.unwrap();
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            if let CommandEvent::Started(started) = event {
                commands.lock().unwrap().push((started.command_name, started.command));
            }
        }));
        let client = Client::with_options(options).unwrap();
        let database = client.database(&tests::mongo_server::fresh_database());
        let store = MongoStore::new(database.clone()).await.unwrap();
        recorder.take();
        Some((recorder, store, database))
    }
}
