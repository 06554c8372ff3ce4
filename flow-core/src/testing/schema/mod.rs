//! Snapshots of the persisted shape of a flow, so that a change of it is never forgotten.
//!
//! The shape of the session documents of a flow is that of its shared state and of the
//! fields of its steps. When it changes, documents that are stored already may not read any
//! more: the flow's `version` has to grow and a [migration](crate::session::Migrations) has
//! to lead from the old one to the new one. [`assert_session_schema`] makes a test of that:
//!
//! ```no_run
//! # use flow_core::testing::assert_session_schema;
//! # fn example<Hotel: flow_core::flow::FlowMeta>() {
//! // #[test]
//! // fn session_schema() {
//! assert_session_schema::<Hotel>("schemas");
//! // }
//! # }
//! ```
//!
//! It compares the flow with `schemas/hotel.v2.json` (the flow's id and version) beside the
//! `Cargo.toml` of the crate that is tested. The files belong into version control; those of
//! earlier versions stay as they are.
//!
//! The environment variable `FLOW_UPDATE_SCHEMAS` says whether snapshots are written:
//!
//! | value | what happens |
//! | --- | --- |
//! | not set, empty, `0` | nothing is written |
//! | `1` | the snapshot of a version that has none yet is written |
//! | `overwrite` | so is that of a version that has another one |
//!
//! A changed shape needs the stronger word because it is right only for a version that has
//! never been deployed.
//!
//! Only what persists counts. Doc comments, names of types, defaults, and the order of
//! fields, variants and steps can change freely. What a step is entered with
//! ([`Step::Input`](crate::step::Step::Input)) is persisted only between two steps and is not
//! part of the shape, since it need not have a schema. Steps that `define_steps` adds at run
//! time are not part of it either.

mod change;
mod error;

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use serde_json::{Value, json};

use crate::flow::FlowMeta;
use crate::id::check_name;
use crate::session::schema::shape;

pub use error::SchemaError;

/// The environment variable that says whether snapshots are written.
pub const UPDATE_VARIABLE: &str = "FLOW_UPDATE_SCHEMAS";

/// Whether snapshots are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Update {
    /// Nothing is written.
    #[default]
    Never,
    /// The snapshot of a version that has none yet is written.
    New,
    /// The snapshot of the flow's version is written, whatever is there. Those of other
    /// versions stay.
    Overwrite,
}

impl Update {
    /// What [`UPDATE_VARIABLE`] says.
    ///
    /// # Errors
    /// [`SchemaError::Setting`] when it has a value that is not known.
    pub fn from_env() -> Result<Self, SchemaError> {
        match env::var_os(UPDATE_VARIABLE) {
            Some(value) => Self::parse(&value.to_string_lossy()),
            None => Ok(Self::Never),
        }
    }

    fn parse(value: &str) -> Result<Self, SchemaError> {
        match value {
            "" | "0" => Ok(Self::Never),
            "1" => Ok(Self::New),
            "overwrite" => Ok(Self::Overwrite),
            other => Err(SchemaError::Setting { value: other.to_owned() }),
        }
    }
}

/// Checks that the persisted shape of a flow is the one of its snapshot; the
/// [module](self) says how to use it.
///
/// A folder that is not absolute is one beside the `Cargo.toml` of the crate that is tested,
/// or in the current directory when the test is not run by Cargo.
///
/// # Panics
/// When the shape has changed, there is no snapshot of this version, or the files cannot be
/// read or written. The message shows the difference and says what to do.
#[track_caller]
pub fn assert_session_schema<F: FlowMeta>(folder: impl AsRef<Path>) {
    let checked =
        Update::from_env().and_then(|update| check_session_schema::<F>(folder.as_ref(), update));
    if let Err(error) = checked {
        panic!("{error}");
    }
}

/// Does what [`assert_session_schema`] does, and returns what is wrong.
///
/// # Errors
/// See [`SchemaError`].
pub fn check_session_schema<F: FlowMeta>(folder: &Path, update: Update) -> Result<(), SchemaError> {
    check_name("flow id", F::ID).map_err(SchemaError::Name)?;
    let schema = session_schema::<F>();
    let shown = folder.join(file_name(F::ID, F::VERSION));
    let folder = match env::var_os("CARGO_MANIFEST_DIR") {
        Some(root) => PathBuf::from(root).join(folder),
        None => folder.to_owned(),
    };
    let file = folder.join(file_name(F::ID, F::VERSION));
    let write = || {
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(&file, pretty(&schema)))
            .map_err(|error| SchemaError::Write { path: shown.clone(), error })
    };
    if update == Update::Overwrite {
        return write();
    }
    match read(&file, &shown)? {
        Some(snapshot) if snapshot == schema => Ok(()),
        Some(snapshot) => Err(SchemaError::Changed {
            flow: F::ID,
            version: F::VERSION,
            diff: change::diff(&snapshot, &schema, &shown.display().to_string(), F::ID),
            migration: change::migration(&snapshot, &schema),
            path: shown,
        }),
        None if update == Update::New => write(),
        None => {
            let since = match latest_below(&folder, F::ID, F::VERSION) {
                Some(version) => {
                    let name = file_name(F::ID, version);
                    let shown = shown.with_file_name(&name);
                    read(&folder.join(name), &shown)?.map(|old| error::Since {
                        version,
                        diff: change::diff(&old, &schema, &shown.display().to_string(), F::ID),
                        migration: change::migration(&old, &schema),
                    })
                }
                None => None,
            };
            Err(SchemaError::Missing { flow: F::ID, version: F::VERSION, path: shown, since })
        }
    }
}

/// The persisted shape of a flow as JSON: what a snapshot holds.
pub fn session_schema<F: FlowMeta>() -> Value {
    let steps = F::steps();
    let steps = steps.iter().map(|entry| {
        let info = entry.info();
        let mut step = json!({ "kind": info.kind, "fields": shape(&info.schema()) });
        if !info.aliases.is_empty() {
            let mut aliases = info.aliases.to_vec();
            aliases.sort_unstable();
            step["aliases"] = json!(aliases);
        }
        if let Some(memory) = info.memory {
            step["memory"] = json!(memory);
        }
        (info.name.to_string(), step)
    });
    json!({
        "flow": F::ID,
        "version": F::VERSION,
        "state": shape(&schemars::schema_for!(F::State)),
        "steps": steps.collect::<Value>(),
    })
}

fn file_name(flow: &str, version: u32) -> String {
    format!("{flow}.v{version}.json")
}

/// A snapshot, or nothing when there is none.
fn read(file: &Path, shown: &Path) -> Result<Option<Value>, SchemaError> {
    let unreadable = |reason: String| SchemaError::Read { path: shown.to_owned(), reason };
    match fs::read(file) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(snapshot) => Ok(Some(snapshot)),
            Err(error) => Err(unreadable(error.to_string())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(error.to_string())),
    }
}

/// The latest earlier version that has a snapshot.
fn latest_below(folder: &Path, flow: &str, version: u32) -> Option<u32> {
    let names =
        fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let versions = names.filter_map(|name| {
        name.strip_prefix(flow)?.strip_prefix(".v")?.strip_suffix(".json")?.parse().ok()
    });
    versions.filter(|found| *found < version).max()
}

/// Indented, with sorted keys and a line feed at the end.
fn pretty(schema: &Value) -> String {
    let mut schema = schema.clone();
    schema.sort_all_objects();
    format!("{schema:#}\n")
}

#[cfg(test)]
mod tests;
