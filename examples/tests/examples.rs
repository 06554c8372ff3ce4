//! The examples as a person and as a script uses them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn start(folder: &Path, args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_shipping"))
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example starts")
}

fn pipe(folder: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut child = start(folder, args);
    child.stdin.take().expect("piped").write_all(input).expect("the example reads");
    child.wait_with_output().expect("the example ends")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("it prints text")
}

#[test]
fn a_script_books_a_shipment_and_reads_its_tracking_id_from_the_last_line() {
    let folder = tempfile::tempdir().unwrap();
    let output = text(&pipe(folder.path(), &[], b"1 Harbour Street, Hamburg\n3\nexpress\nyes\n"));
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(
        lines[..4],
        [
            "Where shall the parcels go?",
            "How many parcels? (1 to 20)",
            "How fast: standard or express?",
            "3 parcel(s) to 1 Harbour Street, Hamburg, Express. Book them? (yes or no)",
        ]
    );
    let first = lines.last().unwrap().to_string();
    assert!(first.starts_with("trk_") && first.len() == 16, "{first}");
    // The session has ended, so the next run ships something else.
    let output = text(&pipe(folder.path(), &[], b"Elm Road 5\n1\nstandard\nyes\n"));
    assert!(output.starts_with("Where shall"), "{output}");
    assert_ne!(output.lines().last().unwrap(), first);
}

#[test]
fn a_run_that_is_killed_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), &["--session", "kill"]);
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next();
    for answer in ["Elm Road 5", "7"] {
        writeln!(input, "{answer}").unwrap();
        lines.next().expect("a question").unwrap();
    }
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    let output = text(&pipe(folder.path(), &["--session", "kill"], b"standard\n"));
    assert_eq!(
        output.lines().collect::<Vec<_>>(),
        [
            "How fast: standard or express?",
            "7 parcel(s) to Elm Road 5, Standard. Book them? (yes or no)"
        ]
    );
    // Another session knows nothing of it.
    let output = text(&pipe(folder.path(), &["--session", "other"], b""));
    assert_eq!(output, "Where shall the parcels go?\n");
}

#[test]
fn a_wrong_answer_is_explained_and_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let output = text(&pipe(folder.path(), &["--store", "memory"], b"Elm Road 5\n300\n2-3\n2\n"));
    assert_eq!(
        output.lines().collect::<Vec<_>>(),
        [
            "Where shall the parcels go?",
            "How many parcels? (1 to 20)",
            "Please answer with one number from 1 to 20.",
            "How many parcels? (1 to 20)",
            "Please answer with one number from 1 to 20.",
            "How many parcels? (1 to 20)",
            "How fast: standard or express?",
        ]
    );
}

#[test]
fn a_line_that_is_not_utf_8_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let output = text(&pipe(folder.path(), &[], b"\xff\xfe\n"));
    assert!(output.ends_with("That line is not valid UTF-8; please type it again.\n"), "{output}");
    let output = text(&pipe(folder.path(), &[], b""));
    assert_eq!(output, "Where shall the parcels go?\n");
}

#[test]
fn a_store_or_a_session_that_cannot_be_is_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = pipe(folder.path(), &["--store", "redis:x"], b"");
    assert!(!output.status.success());
    let mut error = String::new();
    output.stderr.as_slice().read_to_string(&mut error).unwrap();
    assert!(error.starts_with("error: `redis` names no store of this program"), "{error}");
    let output = pipe(folder.path(), &["--session", "a.b"], b"");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("only ASCII letters, digits and"), "{error}");
}

#[test]
fn the_migration_example_tells_its_story() {
    let output = Command::new(env!("CARGO_BIN_EXE_migrate")).output().unwrap();
    let output = text(&output);
    for line in [
        "3 would be migrated, 0 failed",
        "migrated from version 1 to 3",
        "To Lisbon, paid by card.",
        "2 migrated, 0 failed",
        "eve: version 3, at Checkout, state {\"cities\":[\"Turin\"]}",
    ] {
        assert!(output.lines().any(|printed| printed == line), "{line}\n{output}");
    }
}

#[test]
#[cfg(feature = "providers")]
fn the_hotel_shows_a_recorded_conversation_when_no_model_is_named() {
    let output = text(&Command::new(env!("CARGO_BIN_EXE_hotel")).output().unwrap());
    assert!(output.starts_with("(no --model: a recorded conversation)\n"), "{output}");
    for line in [
        "  [search_rooms {\"people\":\"2\"}]",
        "  [about_house {\"topic\":\"pets\"}]",
        "  [5 messages summarised]",
        "  [choose_room {\"number\":12}]",
        "  [charge {\"euros\":360}]",
    ] {
        assert!(output.lines().any(|printed| printed == line), "{line}\n{output}");
    }
    let last = output.lines().last().unwrap();
    assert!(
        last.starts_with("Room 12 is yours, Ada Lovelace: 360 euros, booking bk_360_")
            && last.ends_with("Noted: a cot."),
        "{last}"
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_hotel"))
        .args(["--model", "nobody::x"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        error.starts_with("error: flow `hotel`: the model of the flow cannot be used"),
        "{error}"
    );
}
