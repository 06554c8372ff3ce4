//! A process waits for days, and another build of the program goes on.

use std::path::PathBuf;
use std::process::Command;

use flow_core::id::SessionId;
use flow_core::message::Part;
use flow_core::session::{SessionDoc, Status};
use tempfile::TempDir;

use super::stores;

/// One order, and what was done for it.
struct Case {
    address: String,
    journal: PathBuf,
    _keep: (TempDir, Option<TempDir>),
}

/// An order in each store, which waits for an approval since day 1.
async fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (address, keep) in stores().await {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal");
        let case = Case { address, journal, _keep: (folder, keep) };
        assert_eq!(case.run("first", 1, "start"), "waits for approval");
        assert_eq!(case.done(), ["charge"]);
        cases.push(case);
    }
    cases
}

impl Case {
    /// What a build prints that does something on a day.
    fn run(&self, build: &str, day: u32, command: &str) -> String {
        let time = format!("2026-03-{day:02}T12:00:00Z");
        let journal = self.journal.to_str().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_builds"))
            .args([&self.address, journal, build, &time, command])
            .output()
            .expect("the build starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn journal(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.journal).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// The tools that were called, in order.
    fn done(&self) -> Vec<String> {
        self.journal().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }

    async fn doc(&self) -> SessionDoc {
        let store = flow_core::store::open(&self.address).await.unwrap();
        store.load(&SessionId::new("order").unwrap()).await.unwrap().unwrap()
    }

    async fn said(&self) -> Vec<Part> {
        let doc = self.doc().await;
        doc.memory["main"].messages.iter().flat_map(|m| m.parts.clone()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_build_goes_on_after_days() {
    for case in cases().await {
        assert_eq!(case.run("first", 4, "go-on"), "waits for approval");
        assert_eq!(case.run("first", 4, "approve"), "waits for sleep");
        assert_eq!(case.run("first", 4, "sweep"), "woken 0 failed []");
        assert_eq!(case.run("first", 5, "sweep"), "woken 1 failed []");
        assert_eq!(case.done(), ["charge", "send"], "{}", case.address);
        assert_eq!(case.said().await, [Part::text("2 copies, 100 cents")]);
        assert_eq!(case.doc().await.ended.as_deref(), Some("sent"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_does_more_goes_on_where_the_first_one_waited() {
    for case in cases().await {
        let digest = case.doc().await.flow.digest;
        assert_eq!(case.run("longer", 4, "approve"), "waits for sleep");
        assert_ne!(case.doc().await.flow.digest, digest, "it runs another graph");
        assert_eq!(case.run("longer", 5, "sweep"), "woken 1 failed []");
        assert_eq!(case.done(), ["charge", "check", "send"], "{}", case.address);
        let said = [Part::text("2 copies, 100 cents, approved by ada"), Part::text("Thank you.")];
        assert_eq!(case.said().await, said);
        assert_eq!(case.doc().await.ended.as_deref(), Some("thanked"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_migrates_the_session_goes_on_and_the_first_one_does_not_touch_it_again() {
    for case in cases().await {
        assert_eq!(case.run("newer", 4, "approve"), "waits for sleep");
        let before = case.doc().await;
        assert_eq!((before.version, before.current_step.as_str()), (2, "Purchase"));
        let refused = case.run("first", 5, "go-on");
        assert!(refused.starts_with("error document-from-future: "), "{refused}");
        assert_eq!(case.doc().await, before, "{}", case.address);
        assert_eq!(case.run("newer", 5, "sweep"), "woken 1 failed []");
        assert_eq!(case.done(), ["charge", "send"], "{}", case.address);
        assert_eq!(case.said().await, [Part::text("2 pieces, 100 cents")]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_whose_code_does_not_fit_says_so_and_the_first_one_goes_on() {
    for case in cases().await {
        let error = case.run("dearer", 4, "approve");
        assert!(error.starts_with("error effect-diverged: session `order`: "), "{error}");
        for part in ["tool `charge` with other arguments", "tool `charge` is recorded"] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(case.done(), ["charge"], "nothing was done ({})", case.address);
        assert_eq!(case.doc().await.status, Status::Failed);
        // The approval is not lost with that.
        assert_eq!(case.run("first", 5, "go-on"), "waits for sleep");
        assert_eq!(case.run("first", 6, "sweep"), "woken 1 failed []");
        assert_eq!(case.done(), ["charge", "send"], "{}", case.address);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_whose_graph_does_not_fit_says_so_and_the_step_is_restarted() {
    for case in cases().await {
        let digest = case.doc().await.flow.digest;
        let error = case.run("careful", 4, "approve");
        assert!(error.starts_with("error flow-drifted: session `order` "), "{error}");
        for part in [&*digest, "tool `check`", "tool `charge` is recorded", "restart_step()"] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(case.done(), ["charge"], "nothing was done ({})", case.address);

        assert_eq!(case.run("careful", 5, "restart"), "restarted");
        assert_eq!(case.run("careful", 5, "go-on"), "waits for approval");
        assert_eq!(case.run("careful", 6, "approve"), "2 copies, 100 cents\nended: sent");
        assert_eq!(case.done(), ["charge", "check", "charge", "send"], "{}", case.address);
        let journal = case.journal();
        assert_ne!(journal[0], journal[2], "it is another call, at another place");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_no_build_fits_is_abandoned() {
    for case in cases().await {
        case.run("careful", 4, "approve");
        assert_eq!(case.run("careful", 5, "abandon"), "abandoned");
        assert_eq!(case.run("first", 9, "sweep"), "woken 0 failed []");
        let error = case.run("first", 9, "go-on");
        assert!(error.starts_with("error session-ended: "), "{error}");
        assert!(error.contains("the build has changed"), "{error}");
        assert_eq!(case.done(), ["charge"], "{}", case.address);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_without_the_step_names_it_and_leaves_the_session_to_the_first_one() {
    for case in cases().await {
        let error = case.run("renamed", 4, "approve");
        assert!(error.starts_with("error unknown-step: session `order` "), "{error}");
        assert!(error.contains("stands at step `Order`") && error.contains("Purchase"), "{error}");
        assert_eq!(case.run("first", 5, "approve"), "waits for sleep");
        assert_eq!(case.run("first", 6, "sweep"), "woken 1 failed []");
        assert_eq!(case.done(), ["charge", "send"], "{}", case.address);
    }
}
