//! Gates that are declared wrong are found before a session is touched.

use std::sync::atomic::{AtomicBool, Ordering};

use flow_core::error::BuildError;

use super::*;

fn build(define: impl Fn(Gates<Shop>) -> Gates<Shop> + Send + Sync + 'static) -> Error {
    let builder = Engine::builder().store(MemoryStore::new()).flow(shop(define));
    builder.build().map(drop).expect_err("the gates are declared wrong")
}

fn pass(gates: Gates<Shop>, name: &str) -> Gates<Shop> {
    gates.check(name, |_| Verdict::pass())
}

#[test]
fn two_gates_of_one_name_are_an_error_of_the_build() {
    let twice = |gates| pass(gates, "a").judge("a", Judge::new("x").show(["state"]));
    let error = build(twice);
    assert!(matches!(&error, Error::Build(BuildError::DuplicateGate { gate, .. }) if gate == "a"));
    assert_eq!(error.code(), "duplicate-gate");
    assert_eq!(
        error.to_string(),
        "flow `shop` has two gates named `a`: give one of them another name"
    );
}

#[test]
fn a_name_that_cannot_be_persisted_is_an_error_of_the_build() {
    for name in ["", "a b", "1st", "a.b"] {
        let error = build(move |gates| pass(gates, name));
        assert_eq!(error.code(), "invalid-name", "{name}");
        assert!(error.to_string().contains("gate name"), "{error}");
    }
}

#[test]
fn a_judge_without_a_rubric_or_without_anything_to_judge_is_an_error_of_the_build() {
    for (judge, reason) in [
        (Judge::new(" ").show(["state"]), "its rubric is empty"),
        (Judge::new("x"), "it is shown nothing; call `Judge::show`"),
        (
            Judge::new("x").show(["state", "a..b"]),
            "\"a..b\" is not a path into the session document",
        ),
    ] {
        let error = build(move |gates| gates.judge("j", judge.clone()));
        assert_eq!(error.code(), "invalid-gate");
        assert_eq!(error.to_string(), format!("flow `shop`: the gate `j` cannot judge: {reason}"));
    }
}

#[tokio::test]
async fn gates_that_become_wrong_later_fail_the_turn_before_its_session_is_touched() {
    let wrong = Arc::new(AtomicBool::new(false));
    let now = wrong.clone();
    let setup = setup(move |gates| {
        let gates = pass(gates, "a");
        if now.load(Ordering::Relaxed) { pass(gates, "a") } else { gates }
    });
    wrong.store(true, Ordering::Relaxed);
    assert_eq!(setup.turn(say("end")).await.unwrap_err().code(), "duplicate-gate");
    assert!(setup.store.load(&session()).await.unwrap().is_none());
    wrong.store(false, Ordering::Relaxed);
    assert!(setup.say("end").await.is_ended());
}
