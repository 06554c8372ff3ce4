use std::fmt::Debug;

use serde::Serialize;

use crate::error::StoreError;
use crate::json;
use crate::session::{Lease, SessionDoc};

/// Panics unless a clause of the contract holds.
#[track_caller]
pub(super) fn holds(clause: &str, truth: bool) {
    assert!(truth, "the contract is broken: {clause}");
}

/// Panics unless a call that the contract wants to succeed has done so.
#[track_caller]
pub(super) fn done<T>(clause: &str, result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| {
        panic!("the contract is broken: {clause}; the call failed: {error}")
    })
}

/// Panics unless two things are equal.
#[track_caller]
pub(super) fn equal<T: PartialEq + Debug>(clause: &str, found: T, wanted: T) {
    assert!(
        found == wanted,
        "the contract is broken: {clause}\n found: {found:?}\nwanted: {wanted:?}"
    );
}

/// Panics unless two documents are equal to the last bit of each number. Leases are not
/// compared.
#[track_caller]
pub(super) fn same(clause: &str, found: Option<&SessionDoc>, wanted: &SessionDoc) {
    let Some(found) = found else {
        panic!("the contract is broken: {clause}; there is no document");
    };
    let found = SessionDoc { lease: Lease::default(), ..found.clone() };
    let wanted = SessionDoc { lease: Lease::default(), ..wanted.clone() };
    // Equality of floats does not tell 0.0 from -0.0, their text does.
    let (found, wanted) = (text(&found), text(&wanted));
    if found != wanted {
        let at = found.bytes().zip(wanted.bytes()).take_while(|(a, b)| a == b).count();
        let around = |text: &str| {
            let part = text.as_bytes().get(at.saturating_sub(80)..).unwrap_or_default();
            String::from_utf8_lossy(&part[..part.len().min(240)]).into_owned()
        };
        panic!(
            "the contract is broken: {clause}\n found: ..{}..\nwanted: ..{}..",
            around(&found),
            around(&wanted)
        );
    }
}

fn text<T: Serialize>(value: &T) -> String {
    json::canonical(&serde_json::to_value(value).expect("documents are JSON"))
}

/// Panics unless a call was refused with the error of this code.
#[track_caller]
pub(super) fn refused<T>(clause: &str, result: Result<T, StoreError>, code: &str) -> StoreError {
    match result {
        Ok(_) => panic!("the contract is broken: {clause}; the call succeeded"),
        Err(error) if error.code() == code => error,
        Err(error) => {
            panic!(
                "the contract is broken: {clause}; wanted `{code}`, the call failed with: {error}"
            )
        }
    }
}
