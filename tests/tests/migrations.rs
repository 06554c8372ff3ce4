//! Documents of older versions of a flow, met by a newer program, on each store.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use flow_core::engine::{Engine, MigrateEvent, MigrateOptions, TurnRequest};
use flow_core::error::{BuildError, Error, SessionError, StepError, StoreError};
use flow_core::event::Event;
use flow_core::flow::{Flow, FlowMeta, Restore, Steps};
use flow_core::id::SessionId;
use flow_core::session::{Lease, Migrations, SessionDoc, Status};
use flow_core::step::{Action, ActionCx, Step, kind};
use flow_core::store::SessionStore;
use flow_core::store::memory::MemoryStore;
use flow_core::store::mongodb::MongoStore;
use flow_core::store::sqlite::SqliteStore;
use flow_core::testing::{ManualClock, assert_session_schema};
use flow_core::time::Timestamp;
use flow_core::transition::{Next, Payload, Target, Transition};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Where a step goes.
enum Way {
    Stay,
    To(&'static str),
}

impl Next for Way {}

/// The flow `hotel` at one point of its life, in a module of its own. A step is told what
/// the user said and says where to go.
macro_rules! hotel {
    (
        $module:ident, version = $version:literal, state = $state:ty, migrations = $migrations:expr,
        $($step:ident { $($field:ident: $type:ty),* } => $run:expr;)*
    ) => {
        mod $module {
            use super::*;

            #[derive(Clone, Default)]
            pub(super) struct Hotel {
                /// Sessions idle for longer start anew.
                pub(super) patience: Option<Duration>,
            }

            impl FlowMeta for Hotel {
                type State = $state;
                const ID: &'static str = "hotel";
                const VERSION: u32 = $version;

                fn steps() -> Steps<Self> {
                    Steps::new()$(.add::<$step>())*
                }
            }

            impl Flow for Hotel {
                fn migrations() -> Migrations {
                    $migrations
                }

                async fn on_restore_session_doc(
                    &self,
                    doc: SessionDoc,
                ) -> flow_core::Result<Restore> {
                    assert_eq!(doc.version, $version, "hooks see migrated documents alone");
                    Ok(match self.patience {
                        Some(patience) if doc.idle() > patience => Restore::fresh("idle"),
                        _ => Restore::keep(doc),
                    })
                }
            }

            $(
                #[derive(Default, Serialize, Deserialize, JsonSchema)]
                pub(super) struct $step { $(pub(super) $field: $type),* }

                impl Step for $step {
                    type Kind = kind::Action;
                    type Input = ();
                    type Next = Way;
                    const TARGETS: &'static [Target] = &[Target::Stay];
                    const NAME: &'static str = stringify!($step);

                    fn transition(way: Way) -> Transition {
                        match way {
                            Way::Stay => Transition::Stay,
                            Way::To(step) => {
                                Transition::Go { step: step.into(), input: Payload::default() }
                            }
                        }
                    }

                    fn is_stay(way: &Way) -> bool {
                        matches!(way, Way::Stay)
                    }
                }

                impl Action for $step {
                    type Flow = Hotel;

                    async fn run(
                        &mut self,
                        cx: &mut ActionCx<'_, Hotel>,
                    ) -> flow_core::Result<Way> {
                        let run: fn(&mut Self, &str) -> Way = $run;
                        let message = cx.take_message().unwrap_or_default();
                        Ok(run(self, &message))
                    }
                }
            )*
        }
    };
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Total {
    total: u32,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Money {
    cents: u64,
    currency: String,
}

fn one_to_three() -> Migrations {
    Migrations::new().from(1, |doc| doc.rename_step("Browse", "Explore")).from(2, |doc| {
        doc.remove_step("Lobby", "Explore")?;
        doc.rename_field("Explore", "seen", "shown")?;
        doc.set_default("Explore", "count", 0)?;
        doc.map_state(|state| {
            let total = state["total"]
                .as_u64()
                .ok_or_else(|| StepError::terminal("`state.total` is not a number of euros"))?;
            Ok(json!({ "cents": total * 100, "currency": "EUR" }))
        })
    })
}

fn nothing(_: &mut flow_core::session::RawDoc) -> flow_core::Result<()> {
    Ok(())
}

hotel!(
    first, version = 1, state = Total, migrations = Migrations::new(),
    Browse { seen: Vec<String> } => |step, message| match message {
        "lobby" => Way::To("Lobby"),
        "pay" => Way::To("Pay"),
        room => {
            step.seen.push(room.to_owned());
            Way::Stay
        }
    };
    Lobby { greeted: bool } => |step, _| {
        step.greeted = true;
        Way::Stay
    };
    Pay { asked: u32 } => |step, _| {
        step.asked += 1;
        Way::Stay
    };
);
hotel!(
    third, version = 3, state = Money, migrations = one_to_three(),
    Explore { shown: Vec<String>, count: u32 } => |step, message| match message {
        "pay" => Way::To("Pay"),
        room => {
            step.shown.push(room.to_owned());
            step.count += 1;
            Way::Stay
        }
    };
    Pay { asked: u32 } => |step, _| {
        step.asked += 1;
        Way::Stay
    };
);
hotel!(
    gap, version = 4, state = Money,
    migrations = Migrations::new().from(1, nothing).from(3, nothing),
    Pay { asked: u32 } => |_, _| Way::Stay;
);
hotel!(
    forgetful, version = 2, state = Total, migrations = Migrations::new().from(1, nothing),
    Pay { asked: u32 } => |_, _| Way::Stay;
);
hotel!(
    retyped, version = 2, state = Total, migrations = Migrations::new().from(1, nothing),
    Browse { seen: Vec<u32> } => |_, _| Way::Stay;
    Lobby { greeted: bool } => |_, _| Way::Stay;
    Pay { asked: u32 } => |_, _| Way::Stay;
);
hotel!(
    ancient, version = 3, state = Money, migrations = Migrations::new(),
    Explore { shown: Vec<String>, count: u32 } => |_, _| Way::Stay;
);

/// Every store, empty. MongoDB is left out when the environment says so.
async fn stores() -> Vec<(Arc<dyn SessionStore>, Option<tempfile::TempDir>)> {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(folder.path().join("sessions.db")).await.unwrap();
    let mut stores: Vec<(Arc<dyn SessionStore>, _)> =
        vec![(Arc::new(MemoryStore::new()), None), (Arc::new(sqlite), Some(folder))];
    if let Some(database) = tests::mongo_server::mongo().await {
        stores.push((Arc::new(MongoStore::new(database).await.unwrap()), None));
    }
    stores
}

fn engine<F: Flow>(store: &Arc<dyn SessionStore>, flow: F) -> Engine {
    Engine::builder().shared_store(store.clone()).flow(flow).build().unwrap()
}

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

async fn say<F: Flow>(engine: &Engine, session: &str, message: &str) -> Result<String, Error> {
    let outcome = engine.turn::<F>(TurnRequest::new(id(session)).message(message)).await?;
    Ok(outcome.step)
}

/// Four sessions as version 1 writes them: one at the step that is renamed, one at the step
/// that is removed, one beyond both, and one that has seen nothing but the start.
const SESSIONS: [(&str, &[&str]); 4] = [
    ("browsing", &["room 1", "room 2"]),
    ("lobby", &["room 1", "lobby", "hello"]),
    ("paying", &["room 1", "pay", "x"]),
    ("starting", &[]),
];

async fn write_version_1(store: &Arc<dyn SessionStore>) {
    let engine = engine(store, first::Hotel::default());
    for (session, messages) in SESSIONS {
        if messages.is_empty() {
            engine.turn::<first::Hotel>(TurnRequest::new(id(session))).await.unwrap();
        }
        for message in messages {
            say::<first::Hotel>(&engine, session, message).await.unwrap();
        }
    }
}

async fn load(store: &Arc<dyn SessionStore>, session: &str) -> SessionDoc {
    let doc = store.load(&id(session)).await.unwrap().unwrap();
    SessionDoc { lease: Lease::default(), ..doc }
}

async fn load_all(store: &Arc<dyn SessionStore>) -> Vec<SessionDoc> {
    let mut docs = Vec::new();
    for (session, _) in SESSIONS {
        docs.push(load(store, session).await);
    }
    docs
}

/// A document without what a failed turn records beside its content.
fn content(doc: SessionDoc) -> SessionDoc {
    SessionDoc {
        revision: 0,
        status: Status::Waiting,
        error: None,
        updated_at: doc.created_at,
        ..doc
    }
}

fn mentions(doc: &SessionDoc, name: &str) -> bool {
    serde_json::to_string(doc).unwrap().contains(&format!("\"{name}\""))
}

#[tokio::test]
async fn turns_go_on_in_documents_from_1_to_3() {
    for (store, _folder) in stores().await {
        write_version_1(&store).await;
        let engine = engine(&store, third::Hotel::default());
        for (session, step) in [
            ("browsing", "Explore"),
            ("lobby", "Explore"),
            ("paying", "Pay"),
            ("starting", "Explore"),
        ] {
            let before = load(&store, session).await;
            let request = TurnRequest::new(id(session)).message("room 9");
            let mut turn = engine.turn::<third::Hotel>(request);
            let mut migrated = Vec::new();
            while let Some(event) = turn.next_event().await {
                if let Event::SessionMigrated { from, to } = event {
                    migrated.push((from, to));
                }
            }
            assert_eq!(migrated, [(1, 3)], "{session}");
            let outcome = turn.await.unwrap();
            assert_eq!(outcome.step, step, "{session}");

            let doc = load(&store, session).await;
            assert_eq!((doc.version, &*doc.current_step), (3, step), "{session}");
            for gone in ["Browse", "Lobby", "seen", "total"] {
                assert!(!mentions(&doc, gone), "{session} holds {gone}");
            }
            assert_eq!(doc.state, json!({ "cents": 0, "currency": "EUR" }));
            assert_eq!(doc.created_at, before.created_at);
            assert!(doc.next_message > before.next_message);
        }
        let shown = load(&store, "browsing").await.steps["Explore"].clone();
        assert_eq!(shown, json!({ "shown": ["room 1", "room 2", "room 9"], "count": 1 }));
        // The one that stood at the removed step has entered its replacement anew.
        let moved = load(&store, "lobby").await;
        assert_eq!(moved.steps["Explore"], json!({ "shown": ["room 1", "room 9"], "count": 1 }));
        assert!(moved.visit.entered);
        assert_eq!(load(&store, "paying").await.steps["Pay"], json!({ "asked": 3 }));
    }
}

#[tokio::test]
async fn a_dry_run_tells_what_would_change_and_writes_nothing() {
    for (store, _folder) in stores().await {
        write_version_1(&store).await;
        let before = load_all(&store).await;
        let engine = engine(&store, third::Hotel::default());
        let mut events = Vec::new();
        let report = engine
            .migrate_all::<third::Hotel>(MigrateOptions::dry_run().batch(3), |event| {
                events.push(event.clone());
            })
            .await
            .unwrap();
        assert_eq!((report.migrated, report.failed.len(), report.busy.len()), (4, 0, 0));
        assert_eq!(load_all(&store).await, before);
        match &events[0] {
            MigrateEvent::Migrated { session, from: 1, to: 3, changed } => {
                assert_eq!(*session, id("browsing"));
                for part in ["current_step", "path", "state", "steps.Browse", "steps.Explore"] {
                    assert!(changed.iter().any(|changed| changed == part), "{part}: {changed:?}");
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn all_sessions_are_migrated_once_and_nothing_is_left_for_a_second_time() {
    for (store, _folder) in stores().await {
        write_version_1(&store).await;
        let before = load_all(&store).await;
        let engine = engine(&store, third::Hotel::default());
        let options = MigrateOptions::default().batch(3);
        let report = engine.migrate_all::<third::Hotel>(options, |_| {}).await.unwrap();
        assert_eq!((report.migrated, report.failed.len()), (4, 0));
        let once = load_all(&store).await;
        for (old, new) in before.iter().zip(&once) {
            assert_eq!((new.version, new.revision), (3, old.revision + 1));
            assert_eq!(new.updated_at, old.updated_at, "a migration is not a sign of life");
        }

        let report = engine.migrate_all::<third::Hotel>(options, |_| {}).await.unwrap();
        assert_eq!(report.migrated, 0);
        assert_eq!(load_all(&store).await, once);

        // A turn finds nothing to migrate either.
        assert_eq!(say::<third::Hotel>(&engine, "lobby", "room 9").await.unwrap(), "Explore");
        assert_eq!(load(&store, "lobby").await.revision, once[1].revision + 1);
    }
}

#[tokio::test]
async fn a_migrated_session_is_as_idle_as_it_was() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let day = Duration::from_secs(24 * 60 * 60);
    let clock = ManualClock::at(Timestamp::from_millis(1_000_000_000_000).unwrap());
    let old = Engine::builder()
        .shared_store(store.clone())
        .clock(clock)
        .flow(first::Hotel::default())
        .build()
        .unwrap();
    say::<first::Hotel>(&old, "s", "room 1").await.unwrap();

    let new = engine(&store, third::Hotel { patience: Some(day) });
    say::<third::Hotel>(&new, "s", "room 9").await.unwrap();
    let doc = load(&store, "s").await;
    assert_eq!(doc.superseded, 1);
    assert_eq!(doc.steps["Explore"], json!({ "shown": ["room 9"], "count": 1 }));
}

#[test]
fn a_gap_is_refused_when_the_engine_is_built() {
    let error = Engine::builder()
        .store(MemoryStore::new())
        .flow(gap::Hotel::default())
        .build()
        .unwrap_err();
    assert!(
        matches!(&error, Error::Build(BuildError::MigrationGap { gap: 2, next: 3, .. })),
        "{error}"
    );
    assert!(error.to_string().contains(".from(2, |doc| ..)"), "{error}");
}

#[tokio::test]
async fn a_document_from_the_future_is_refused_and_left_as_it_is() {
    for (store, _folder) in stores().await {
        let new = engine(&store, third::Hotel::default());
        say::<third::Hotel>(&new, "s", "room 1").await.unwrap();
        let before = store.load(&id("s")).await.unwrap();
        let old = engine(&store, first::Hotel::default());
        let error = say::<first::Hotel>(&old, "s", "room 2").await.unwrap_err();
        assert!(
            matches!(&error, Error::Store(StoreError::FromFuture { found: 3, supported: 1, .. })),
            "{error}"
        );
        assert_eq!(store.load(&id("s")).await.unwrap(), before);
    }
}

#[tokio::test]
async fn a_current_step_that_is_gone_is_named_with_how_to_migrate_it() {
    for (store, _folder) in stores().await {
        write_version_1(&store).await;
        let before = content(load(&store, "lobby").await);
        let engine = engine(&store, forgetful::Hotel::default());
        let error = say::<forgetful::Hotel>(&engine, "lobby", "x").await.unwrap_err();
        assert!(
            matches!(&error, Error::Session(SessionError::UnknownStep { step, .. }) if step == "Lobby"),
            "{error}"
        );
        let message = error.to_string();
        for part in
            ["`lobby`", "alias(\"Lobby\")", "rename_step(\"Lobby\"", "remove_step(\"Lobby\""]
        {
            assert!(message.contains(part), "{part}: {message}");
        }
        let after = content(load(&store, "lobby").await);
        assert_eq!((&after.current_step, &after.steps), (&before.current_step, &before.steps));
    }
}

#[tokio::test]
async fn a_field_that_does_not_read_is_an_error_and_never_a_default() {
    for (store, _folder) in stores().await {
        write_version_1(&store).await;
        let before = load(&store, "browsing").await;
        let engine = engine(&store, retyped::Hotel::default());
        let error = say::<retyped::Hotel>(&engine, "browsing", "x").await.unwrap_err();
        match &error {
            Error::Session(SessionError::Unreadable { session, version: 2, path, .. }) => {
                assert_eq!((session.as_str(), path.as_str()), ("browsing", "steps.Browse.seen[0]"));
            }
            other => panic!("{other}"),
        }
        assert_eq!(load(&store, "browsing").await.steps, before.steps);
    }
}

#[tokio::test]
async fn a_migration_that_fails_leaves_the_document_at_its_version() {
    for (store, _folder) in stores().await {
        write_version_1(&store).await;
        let broken = SessionDoc {
            id: id("broken"),
            state: json!({ "total": "many" }),
            ..load(&store, "browsing").await
        };
        store.create(&broken).await.unwrap();
        let engine = engine(&store, third::Hotel::default());
        let error = say::<third::Hotel>(&engine, "broken", "x").await.unwrap_err();
        assert!(
            matches!(&error, Error::Session(SessionError::Migration { from: 2, to: 3, .. })),
            "{error}"
        );
        assert!(error.to_string().contains("`state.total` is not a number of euros"), "{error}");
        assert_eq!(content(load(&store, "broken").await), content(broken));

        // In bulk it is reported, and the others are migrated.
        let options = MigrateOptions::default().batch(1);
        let report = engine.migrate_all::<third::Hotel>(options, |_| {}).await.unwrap();
        assert_eq!(report.migrated, 4);
        let [(session, error)] = report.failed.as_slice() else { panic!("{:?}", report.failed) };
        assert_eq!((session, error.code.as_str()), (&id("broken"), "migration-failed"));
    }
}

#[tokio::test]
async fn a_document_older_than_the_chain_is_refused_with_what_to_do() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    write_version_1(&store).await;
    let before = content(load(&store, "browsing").await);
    let engine = engine(&store, ancient::Hotel::default());
    let error = say::<ancient::Hotel>(&engine, "browsing", "x").await.unwrap_err();
    assert!(
        matches!(&error, Error::Session(SessionError::TooOld { found: 1, oldest: 3, .. })),
        "{error}"
    );
    assert_eq!(content(load(&store, "browsing").await), before);
}

/// The snapshot test of a user's crate, in a folder of this one.
#[test]
fn a_users_snapshots_hold_both_versions() {
    assert_session_schema::<first::Hotel>("schemas");
    assert_session_schema::<third::Hotel>("schemas");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas");
    for version in [1, 3] {
        assert!(fs::exists(format!("{folder}/hotel.v{version}.json")).unwrap());
    }
}
