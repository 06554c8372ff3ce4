use std::path::PathBuf;
use std::{fmt, io};

use super::UPDATE_VARIABLE;
use crate::error::IdError;

/// Why the persisted shape of a flow does not pass.
#[derive(Debug)]
#[non_exhaustive]
pub enum SchemaError {
    /// The shape is another one than that of the snapshot of the same version.
    Changed {
        /// The flow.
        flow: &'static str,
        /// The version that the flow declares.
        version: u32,
        /// The snapshot.
        path: PathBuf,
        /// The difference as a unified diff.
        diff: String,
        /// What a migration may have to do, as lines of Rust.
        migration: Vec<String>,
    },
    /// There is no snapshot of this version yet.
    Missing {
        /// The flow.
        flow: &'static str,
        /// The version that the flow declares.
        version: u32,
        /// Where the snapshot will be.
        path: PathBuf,
        /// What has changed since the latest earlier version that has a snapshot.
        since: Option<Since>,
    },
    /// A snapshot cannot be read.
    Read {
        /// The snapshot.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A snapshot cannot be written.
    Write {
        /// The snapshot.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The flow's id cannot be the name of a file, nor be persisted.
    Name(IdError),
    /// [`UPDATE_VARIABLE`] has a value that is not known.
    Setting {
        /// The value.
        value: String,
    },
}

/// What has changed since an earlier version.
#[derive(Debug)]
pub struct Since {
    /// That version.
    pub version: u32,
    /// The difference as a unified diff.
    pub diff: String,
    /// What a migration may have to do, as lines of Rust.
    pub migration: Vec<String>,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { flow, version, diff, migration, .. } => {
                let next = version.saturating_add(1);
                writeln!(
                    f,
                    "the session documents of flow `{flow}` have another shape, but its version \
                     is still {version}\n\n{diff}\n\
                     If version {version} has ever been deployed, stored documents may not read any more:\n\
                     \x20 1. declare `version = {next}` on the flow\n\
                     \x20 2. add to `migrations()`, with what this change needs:\n"
                )?;
                write_migration(f, *version, migration)?;
                write!(
                    f,
                    "\n  3. write the new snapshot: {UPDATE_VARIABLE}=1 cargo test\n\n\
                     If version {version} has never been deployed, replace its snapshot:\n\
                     \x20    {UPDATE_VARIABLE}=overwrite cargo test"
                )
            }
            Self::Missing { flow, version, path, since } => {
                writeln!(
                    f,
                    "flow `{flow}` has no schema snapshot of version {version} yet ({})\n",
                    path.display()
                )?;
                if let Some(since) = since {
                    writeln!(
                        f,
                        "{}\nSee that `migrations()` leads from {} to {version}, with what this change needs:\n",
                        since.diff, since.version
                    )?;
                    write_migration(f, since.version, &since.migration)?;
                    writeln!(f)?;
                }
                write!(
                    f,
                    "Write the snapshot and put it under version control: {UPDATE_VARIABLE}=1 cargo test"
                )
            }
            Self::Read { path, reason } => write!(
                f,
                "the schema snapshot {} cannot be read: {reason}; restore it from version control, \
                 or write it anew: {UPDATE_VARIABLE}=overwrite cargo test",
                path.display()
            ),
            Self::Write { path, error } => {
                write!(f, "the schema snapshot {} cannot be written: {error}", path.display())
            }
            Self::Name(error) => error.fmt(f),
            Self::Setting { value } => write!(
                f,
                "{UPDATE_VARIABLE} is {value:?}; known are `1` (write the snapshots of new versions) \
                 and `overwrite` (replace the one of the same version too)"
            ),
        }
    }
}

fn write_migration(f: &mut fmt::Formatter<'_>, from: u32, calls: &[String]) -> fmt::Result {
    if calls.is_empty() {
        return writeln!(f, "         .from({from}, |_| Ok(())) // no field has to change");
    }
    writeln!(f, "         .from({from}, |doc| {{")?;
    for call in calls {
        writeln!(f, "             {call}")?;
    }
    writeln!(f, "             Ok(())\n         }})")
}

impl std::error::Error for SchemaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Write { error, .. } => Some(error),
            Self::Name(error) => Some(error),
            _ => None,
        }
    }
}
