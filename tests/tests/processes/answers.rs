//! Two processes answer one request at once.

use std::process::Command;

use flow_core::id::SessionId;
use flow_core::session::Status;

use super::{Worker, stores};

const ROUNDS: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn of_two_answers_at_once_one_is_accepted() {
    for (address, _keep) in stores().await {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("opened");
        let names = ["ada", "eve"];
        let mut approvers = names.map(|name| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_approver"));
            command.arg(&address).arg(&journal).arg(name);
            Worker::of(command)
        });
        let store = flow_core::store::open(&address).await.unwrap();
        for round in 0..ROUNDS {
            let session = format!("vault-{round}");
            approvers[0].say(&format!("ask {session}"));
            let request = approvers[0].hear().expect("the id of a request");
            for approver in &mut approvers {
                approver.say(&format!("approve {session} {request}"));
            }
            let heard: Vec<String> =
                approvers.iter_mut().map(|approver| approver.hear().expect("an answer")).collect();
            let winners: Vec<&str> = names
                .into_iter()
                .zip(&heard)
                .filter(|(_, h)| *h == "done")
                .map(|(n, _)| n)
                .collect();
            let [winner] = winners[..] else { panic!("round {round}, {address}: {heard:?}") };
            let refused =
                ["done", "error session-busy", "error session-ended", "error not-waiting"];
            assert!(heard.iter().all(|line| refused.contains(&line.as_str())), "{heard:?}");
            let doc = store.load(&SessionId::new(session).unwrap()).await.unwrap().unwrap();
            assert_eq!((doc.status, doc.ended.as_deref()), (Status::Completed, Some(winner)));
        }
        for approver in approvers {
            assert!(approver.join().success());
        }
        let opened = std::fs::read_to_string(&journal).unwrap();
        let expected: Vec<String> = (0..ROUNDS).map(|round| format!("vault-{round}")).collect();
        assert_eq!(opened.lines().collect::<Vec<_>>(), expected, "each once, {address}");
    }
}
