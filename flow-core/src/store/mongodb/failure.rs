//! The driver's errors as those of a store.

use mongodb::error::{Error, ErrorKind, WriteFailure};

use crate::error::StoreError;

const BACKEND: &str = "MongoDB";

/// Server errors that another attempt may get past: elections, shutdowns, time limits,
/// conflicts of concurrent writes.
const TRANSIENT: [i32; 21] = [
    6, 7, 24, 46, 50, 64, 89, 91, 112, 134, 189, 202, 262, 317, 358, 9001, 10107, 11600, 11602,
    13435, 13436,
];
const DUPLICATE_KEY: i32 = 11000;

/// Maps an error of the driver; `operation` completes "could not".
pub(super) fn driver(operation: &'static str, error: Error) -> StoreError {
    let transient = is_transient(&error);
    let source = Box::new(error);
    if transient {
        StoreError::Unavailable { backend: BACKEND, operation, source }
    } else {
        StoreError::Backend { backend: BACKEND, operation, source }
    }
}

/// An error that this module words itself and that another attempt does not cure.
pub(super) fn refused(operation: &'static str, reason: impl Into<String>) -> StoreError {
    StoreError::Backend { backend: BACKEND, operation, source: reason.into().into() }
}

/// An error that this module words itself and that another attempt may cure.
pub(super) fn unavailable(operation: &'static str, reason: &'static str) -> StoreError {
    StoreError::Unavailable { backend: BACKEND, operation, source: reason.into() }
}

/// The error for a connection string that cannot be used. What the driver says may quote
/// the user and the password, so they are taken out of it.
pub(super) fn connection_string(uri: &str, error: &Error) -> StoreError {
    let mut reason = error.to_string();
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    if let Some((credentials, _)) = rest.rsplit_once('@') {
        let parts = std::iter::once(credentials).chain(credentials.split(':'));
        for secret in parts.filter(|part| !part.is_empty()) {
            reason = reason.replace(secret, "***");
        }
    }
    refused("use the connection string", reason)
}

/// Whether a write was refused since there is a document with this `_id`.
pub(super) fn is_duplicate(error: &Error) -> bool {
    code(error) == Some(DUPLICATE_KEY)
}

/// The server's code of an error.
pub(super) fn code(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(e) => Some(e.code),
        ErrorKind::Write(WriteFailure::WriteError(e)) => Some(e.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(e)) => Some(e.code),
        _ => None,
    }
}

fn is_transient(error: &Error) -> bool {
    const LABELS: [&str; 3] =
        ["RetryableWriteError", "RetryableError", "TransientTransactionError"];
    if LABELS.iter().any(|label| error.contains_label(label)) {
        return true;
    }
    match &*error.kind {
        ErrorKind::Io(_)
        | ErrorKind::ServerSelection { .. }
        | ErrorKind::ConnectionPoolCleared { .. }
        | ErrorKind::DnsResolve { .. }
        // The write was made but a majority has not confirmed it in time.
        | ErrorKind::Write(WriteFailure::WriteConcernError(_)) => true,
        _ => code(error).is_some_and(|code| TRANSIENT.contains(&code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bad_connection_string_is_told_without_its_credentials() {
        for uri in [
            "mongodb://ann:s3cret/x@localhost/db",
            "mongodb://ann:s3cret@local host:port",
            "mongodb://ann:s3cret%@localhost",
            "postgres://ann:s3cret@localhost",
        ] {
            let error = mongodb::options::ClientOptions::parse(uri).await.unwrap_err();
            let told = connection_string(uri, &error).to_string();
            assert!(!told.contains("s3cret") && !told.contains("ann:"), "{told}");
        }
    }
}
