//! What the store costs, counted by the driver's command events, and that no command of it
//! reads a collection from end to end.

use flow_core::session::{Appended, ArchiveEntry, ArchiveMark};
use flow_core::store::ListQuery;
use mongodb::bson::{Bson, doc};

use super::*;

#[tokio::test]
async fn a_turn_with_n_commits_costs_n_plus_one_commands() {
    let Some((recorder, store, _)) = Recorder::store().await else { return };
    let session = id("a");
    for turn in 0..2 {
        let opened = open(&store, &session, "one").await;
        assert_eq!(recorder.names(), ["findAndModify"]);
        let mut doc =
            opened.doc.unwrap_or_else(|| SessionDoc { revision: 0, ..document(&session) });
        for crossing in 0..3 {
            let delta = Delta {
                current_step: Some(format!("Step{crossing}")),
                memory: [(
                    "main".to_owned(),
                    Appended { push: vec![message(crossing)], keep: 4 }.into(),
                )]
                .into(),
                ..Delta::default()
            };
            doc = next(&doc, &delta);
            let release = crossing == 2;
            let commit = Commit { release, ..whole(&opened.grant, &doc, &delta) };
            store.commit(&commit).await.unwrap();
            assert_eq!(recorder.names(), ["update"], "turn {turn}");
        }
    }
}

#[tokio::test]
async fn each_other_call_has_its_price() {
    let Some((recorder, store, _)) = Recorder::store().await else { return };
    let session = id("a");
    let (grant, doc) = begin(&store, &session, "one").await;
    recorder.take();

    assert!(store.open(&request(&session, "two", LONG)).await.is_err());
    assert_eq!(recorder.names(), ["findAndModify"], "a refused open");
    store.renew(&session, &grant, LONG).await.unwrap();
    assert_eq!(recorder.names(), ["findAndModify"], "renew");
    store.load(&session).await.unwrap();
    assert_eq!(recorder.names(), ["find"], "load");
    let mut second = next(&doc, &Delta::default());
    second.archive = ArchiveMark { from: 0, next: 1 };
    let archive = [ArchiveEntry { seq: 0, messages: Vec::new(), path: Vec::new() }];
    let delta = Delta { archive: Some(second.archive.clone()), ..Delta::default() };
    store.commit(&Commit { archive: &archive, ..whole(&grant, &second, &delta) }).await.unwrap();
    assert_eq!(recorder.names(), ["update", "update"], "a commit with one archive entry");
    store.transcript(&session).await.unwrap();
    assert_eq!(recorder.names(), ["find", "find"], "a transcript with an archive");
    store.release(&session, &grant).await.unwrap();
    assert_eq!(recorder.names(), ["update"], "release");
    store.list(&ListQuery { limit: 5, ..Default::default() }).await.unwrap();
    assert_eq!(recorder.names(), ["find"], "list");
    store.delete(&session).await.unwrap();
    assert_eq!(recorder.names(), ["findAndModify", "delete", "delete", "delete"], "delete");
}

#[tokio::test]
async fn a_checkpoint_costs_one_command_more_and_the_old_ones_two_now_and_then() {
    let Some((recorder, store, database)) = Recorder::store().await else { return };
    let session = id("a");
    let (grant, mut doc) = begin(&store, &session, "one").await;
    recorder.take();
    store.checkpoints(&session).await.unwrap();
    store.checkpoint(&session, 1).await.unwrap();
    assert_eq!(recorder.names(), ["find", "find"], "a session without checkpoints");
    for _ in 0..9 {
        let delta = Delta { state: Some(json!(doc.revision)), ..Delta::default() };
        doc = next(&doc, &delta);
        let commit = Commit { checkpoints: 3, ..whole(&grant, &doc, &delta) };
        store.commit(&commit).await.unwrap();
        let mut wanted = vec!["insert", "update"];
        if doc.revision.is_multiple_of(3) {
            wanted.extend(["find", "delete"]);
        }
        assert_eq!(recorder.names(), wanted, "revision {}", doc.revision);
        let written = database.collection::<Document>("session_checkpoints");
        let written = written.count_documents(doc! { "session": "a" }).await.unwrap();
        assert!(written < 6, "{written}");
        recorder.take();
    }
    store.checkpoints(&session).await.unwrap();
    assert_eq!(recorder.names(), ["find", "find"], "a list");
    store.checkpoint(&session, doc.revision).await.unwrap().unwrap();
    assert_eq!(recorder.names(), ["find", "find"], "a checkpoint without an archive");
}

#[tokio::test]
async fn writes_wait_for_a_majority() {
    let Some((recorder, store, _)) = Recorder::store().await else { return };
    let session = id("a");
    let (grant, _) = begin(&store, &session, "one").await;
    store.release(&session, &grant).await.unwrap();
    store.delete(&session).await.unwrap();
    let commands = recorder.take();
    assert_eq!(commands.len(), 7);
    for (name, command) in commands {
        let concern = command.get_document("writeConcern").unwrap();
        assert_eq!(concern.get_str("w").unwrap(), "majority", "{name}");
    }
}

#[tokio::test]
async fn every_command_uses_an_index() {
    let Some((recorder, store, database)) = Recorder::store().await else { return };
    let session = id("a");
    let (grant, doc) = begin(&store, &session, "one").await;
    for n in 0..50 {
        store.create(&document(&id(&format!("other-{n}")))).await.unwrap();
    }
    recorder.take();
    assert!(store.open(&request(&session, "two", LONG)).await.is_err());
    store.renew(&session, &grant, LONG).await.unwrap();
    store.load(&session).await.unwrap();
    let mut second = next(&doc, &Delta::default());
    second.archive = ArchiveMark { from: 0, next: 1 };
    let archive = [ArchiveEntry { seq: 0, messages: Vec::new(), path: Vec::new() }];
    let delta = Delta { archive: Some(second.archive.clone()), ..Delta::default() };
    let mut old = document(&serde_json::from_value(json!("a~1")).unwrap());
    old.status = Status::Superseded;
    let commit =
        Commit { archive: &archive, supersede: Some(&old), ..whole(&grant, &second, &delta) };
    store.commit(&commit).await.unwrap();
    assert!(store.commit(&commit).await.is_err());
    store.transcript(&session).await.unwrap();
    for revision in 3..7 {
        let doc = SessionDoc { revision, ..second.clone() };
        let delta = Delta { replace: revision == 3, ..Delta::default() };
        let commit = Commit { checkpoints: 2, ..whole(&grant, &doc, &delta) };
        store.commit(&commit).await.unwrap();
    }
    assert_eq!(store.checkpoints(&session).await.unwrap().len(), 2);
    let kept = store.checkpoint(&session, 6).await.unwrap().unwrap();
    assert_eq!(kept.archive.len(), 1);
    let all = ListQuery { limit: 5, ..Default::default() };
    store.list(&all).await.unwrap();
    store.list(&ListQuery { flow: Some(FLOW.into()), ..all.clone() }).await.unwrap();
    store
        .list(&ListQuery { owner: Some("o".into()), after: Some(id("b")), ..all.clone() })
        .await
        .unwrap();
    store
        .list(&ListQuery { status: Some(Status::Failed), below_version: Some(2), ..all.clone() })
        .await
        .unwrap();
    let due = ListQuery { due: Some(at(0)), ..all };
    store.list(&due).await.unwrap();
    store.list(&ListQuery { flow: Some(FLOW.into()), after: Some(id("b")), ..due }).await.unwrap();
    store.renew(&session, &grant, Duration::ZERO).await.unwrap();
    store.sweep(10).await.unwrap();
    store.release(&session, &grant).await.unwrap();
    store.delete(&session).await.unwrap();
    // An archive without a session, so that the sweep looks for it.
    let orphan = doc! { "_id": "x:0", "session": "x", "seq": 0_i64, "token": 1_i64 };
    database.collection::<Document>("session_archive").insert_one(orphan).await.unwrap();
    let orphan = doc! { "_id": "x", "session": "x", "revision": 1_i64, "token": 1_i64 };
    database.collection::<Document>("session_checkpoints").insert_one(orphan).await.unwrap();
    store.sweep(10).await.unwrap();

    let (mut explained, mut due) = (0, 0);
    for (name, command) in recorder.take() {
        for command in explainable(&name, &command) {
            let plan =
                database.run_command(doc! { "explain": &command, "verbosity": "queryPlanner" });
            let plan = plan.await.unwrap_or_else(|e| panic!("{command}: {e}"));
            let mut stages = Vec::new();
            collect_stages(&plan.clone().into(), &mut stages);
            assert!(!stages.is_empty(), "{command}: {plan}");
            assert!(!stages.iter().any(|stage| stage == "COLLSCAN"), "{command}: {plan}");
            if command.get_document("filter").is_ok_and(|filter| filter.contains_key("wake_at")) {
                let plan = plan.to_string();
                assert!(
                    plan.contains("wake_at_1") && !plan.contains("_id_\""),
                    "{command}: {plan}"
                );
                due += 1;
            }
            explained += 1;
        }
    }
    assert!(explained >= 48, "{explained}");
    assert_eq!(due, 2);
}

/// The commands that `explain` takes, without what belongs to the session of the driver.
fn explainable(name: &str, command: &Document) -> Vec<Document> {
    let parts = match name {
        "update" => "updates",
        "delete" => "deletes",
        "find" | "findAndModify" => "",
        _ => return Vec::new(),
    };
    let mut command = command.clone();
    for field in
        ["lsid", "txnNumber", "$db", "$clusterTime", "$readPreference", "writeConcern", "ordered"]
    {
        command.remove(field);
    }
    match command.get_array(parts).cloned() {
        // `explain` takes one statement.
        Ok(statements) => statements
            .into_iter()
            .map(|statement| {
                let mut command = command.clone();
                command.insert(parts, vec![statement]);
                command
            })
            .collect(),
        Err(_) => vec![command],
    }
}

fn collect_stages(plan: &Bson, stages: &mut Vec<String>) {
    match plan {
        Bson::Document(document) => {
            for (name, value) in document {
                match value {
                    Bson::String(stage) if name == "stage" => stages.push(stage.clone()),
                    // Not what was chosen.
                    _ if name == "rejectedPlans" || name == "command" => {}
                    value => collect_stages(value, stages),
                }
            }
        }
        Bson::Array(items) => items.iter().for_each(|item| collect_stages(item, stages)),
        _ => {}
    }
}
