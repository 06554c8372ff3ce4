//! A batch whose processes are killed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use flow_core::id::SessionId;
use flow_core::session::Status;
use flow_core::store::ListQuery;
use tests::batch_flow::{Plan, Summary};

use super::stores;

/// The server that the tests start is slow.
const ITEMS_ON_MONGODB: usize = 200;

fn run(args: &[&str], line: &str) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_batcher"));
    let mut child = command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the process starts");
    writeln!(child.stdin.take().unwrap(), "{line}").unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_killed_twice_runs_each_item_once_or_reports_it() {
    for (address, _keep) in stores().await {
        let on_mongodb = address.starts_with("mongodb");
        let total = if on_mongodb { ITEMS_ON_MONGODB } else { 1000 };
        let plan = Plan { total, ..Plan::thousand() };
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("done");
        let path = journal.to_str().unwrap();
        let args = [&*address, "batch", path];
        // An item takes four calls, so each process gets about a third of them.
        let third = 4 * total / 3;
        let (before, after) = (format!("{third}-"), format!("{third}+"));
        let (alive, told) = run(&[&args[..], &[&before]].concat(), &plan.message());
        assert!(!alive && told.is_empty(), "{told} ({address})");
        let (alive, told) = run(&[&args[..], &[&after]].concat(), "");
        assert!(!alive && told.is_empty(), "{told} ({address})");
        let (alive, told) = run(&args, "");
        assert!(alive && told.starts_with("done "), "{told} ({address})");

        let store = flow_core::store::open(&address).await.unwrap();
        let id = SessionId::new("batch").unwrap();
        let doc = store.load(&id).await.unwrap().unwrap();
        let summary: Summary = serde_json::from_value(doc.state).unwrap();
        let broken: Vec<usize> = (27..total).step_by(40).collect();
        let failed: Vec<usize> = summary.failures.iter().map(|(n, ..)| *n).collect();
        assert_eq!(failed, broken, "{address}");
        assert_eq!(summary.counts, (total - broken.len(), 0, broken.len()), "{address}");
        let squares = (0..total).filter(|n| !broken.contains(n)).map(|n| n * n);
        assert_eq!(summary.sum, squares.sum::<usize>(), "{address}");

        let mut calls: BTreeMap<usize, Vec<(String, String)>> = BTreeMap::new();
        for line in std::fs::read_to_string(&journal).unwrap().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let call = (words[0].to_owned(), words[1].to_owned());
            calls.entry(words[2].parse().unwrap()).or_default().push(call);
        }
        let mut more = 0;
        for n in 0..total {
            let calls = &calls[&n];
            assert!(calls.iter().all(|(_, key)| *key == calls[0].1), "one key: {calls:?}");
            let done = calls.iter().filter(|(how, _)| how == "done").count();
            assert_eq!(done == 0, broken.contains(&n), "item {n} ({address})");
            more += done.saturating_sub(1);
        }
        assert!(more <= 2 * plan.limit, "only what ran at a kill ran again: {more} ({address})");

        let flow = Some("job".to_owned());
        let query = ListQuery { flow, limit: 2 * total, ..ListQuery::default() };
        let items = store.list(&query).await.unwrap();
        assert_eq!(items.len(), total, "{address}");
        let over = items.iter().filter(|item| item.status == Status::Completed).count();
        assert_eq!(over, total - broken.len(), "{address}");
    }
}
