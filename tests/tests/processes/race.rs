//! Processes that race for one session, and one that is stopped beyond its lease.

use flow_core::id::SessionId;

use super::{Worker, stores};

const ROUNDS: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_one_wins_each_round() {
    for (address, _keep) in stores().await {
        let mut workers = [0, 1].map(|_| Worker::start(&address, "race", &["serve"], 60_000));
        let mut revision = 0;
        for round in 0..ROUNDS {
            for worker in &mut workers {
                worker.say("hold");
            }
            let heard: Vec<String> =
                workers.iter_mut().map(|worker| worker.hear().expect("an answer")).collect();
            let winner = heard.iter().position(|line| line == "holding");
            let winner = winner.unwrap_or_else(|| panic!("round {round}: {heard:?}"));
            assert_eq!(heard[1 - winner], "error session-busy", "round {round}, {address}");
            workers[winner].say("go on");
            let line = workers[winner].hear().expect("the winner ends its turn");
            revision += 1;
            assert_eq!(line, format!("done {revision} A"), "round {round}, {address}");
        }
        for worker in workers {
            assert!(worker.join().success());
        }
        let store = flow_core::store::open(&address).await.unwrap();
        let doc = store.load(&SessionId::new("race").unwrap()).await.unwrap().unwrap();
        assert_eq!(doc.revision as usize, ROUNDS);
        assert_eq!(doc.state["ran"], ROUNDS);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_stopped_beyond_its_lease_cannot_commit() {
    for (address, _keep) in stores().await {
        let mut slow = Worker::start(&address, "fence", &["serve"], 100);
        slow.say("hold b");
        assert_eq!(slow.hear().as_deref(), Some("holding"));
        slow.signal("-STOP");

        let mut quick = Worker::start(&address, "fence", &["serve"], 60_000);
        let line = loop {
            quick.say("c");
            match quick.hear().expect("an answer").as_str() {
                "error session-busy" => {}
                line => break line.to_owned(),
            }
        };
        assert_eq!(line, "done 2 C", "{address}");

        slow.say("go on");
        slow.signal("-CONT");
        assert_eq!(slow.hear().as_deref(), Some("error lease-lost"), "{address}");
        assert!(slow.join().success());
        assert!(quick.join().success());
        let store = flow_core::store::open(&address).await.unwrap();
        let doc = store.load(&SessionId::new("fence").unwrap()).await.unwrap().unwrap();
        assert_eq!((doc.current_step.as_str(), doc.revision), ("C", 2), "{address}");
    }
}
