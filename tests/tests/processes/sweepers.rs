//! Four processes sweep one store.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use flow_core::session::Status;
use flow_core::store::ListQuery;

use super::stores;

const SWEEPERS: usize = 4;
const SESSIONS: usize = 1000;
/// The server that the tests start takes about 40 ms for a session that four sweepers want, so
/// there it is fewer.
const SESSIONS_ON_MONGODB: usize = 250;

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sweeper"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("the sweeper starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn four_sweepers_wake_each_session_once() {
    for (address, _keep) in stores().await {
        let on_mongodb = address.starts_with("mongodb");
        let sessions = if on_mongodb { SESSIONS_ON_MONGODB } else { SESSIONS };
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("woken");
        let journal = journal.to_str().unwrap();
        let filled = start(&[&address, journal, "fill", &sessions.to_string()]).wait().unwrap();
        assert!(filled.success(), "{address}");
        assert!(!std::path::Path::new(journal).exists(), "they all sleep ({address})");

        let mut sweepers: Vec<_> = (0..SWEEPERS)
            .map(|_| {
                let mut child = start(&[&address, journal, "sweep"]);
                let lines = BufReader::new(child.stdout.take().unwrap()).lines();
                (child, lines)
            })
            .collect();
        for (_, lines) in &mut sweepers {
            assert_eq!(lines.next().unwrap().unwrap(), "ready");
        }
        for (child, _) in &mut sweepers {
            writeln!(child.stdin.as_mut().unwrap(), "go").unwrap();
        }
        let mut woken = Vec::new();
        for (mut child, mut lines) in sweepers {
            let line = lines.next().expect("a report").unwrap();
            assert!(child.wait().unwrap().success());
            let (count, failed) = line.split_once(' ').unwrap();
            assert_eq!(failed, "0", "{address}");
            woken.push(count.parse::<usize>().unwrap());
        }
        assert_eq!(woken.iter().sum::<usize>(), sessions, "{woken:?} ({address})");
        let busy = woken.iter().filter(|count| **count > 0).count();
        assert!(busy > 1, "they raced: {woken:?} ({address})");

        let journal = std::fs::read_to_string(journal).unwrap();
        let lines: Vec<&str> = journal.lines().collect();
        let different: BTreeSet<&str> = lines.iter().copied().collect();
        assert_eq!((lines.len(), different.len()), (sessions, sessions), "{address}");
        let store = flow_core::store::open(&address).await.unwrap();
        let query = ListQuery { limit: 2 * sessions, ..ListQuery::default() };
        let over = store.list(&query).await.unwrap();
        let over = over.iter().filter(|s| s.status == Status::Completed && s.wake_at.is_none());
        assert_eq!(over.count(), sessions, "{address}");
    }
}
