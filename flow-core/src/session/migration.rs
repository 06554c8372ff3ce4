use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{BuildError, Result, SessionError};

/// A document as JSON, for a migration to change.
#[derive(Debug)]
pub struct RawDoc {
    pub(crate) value: Value,
}

type Migrate = Box<dyn Fn(&mut RawDoc) -> Result<()> + Send + Sync>;

/// The chain that brings documents of older versions up to date.
#[derive(Default)]
pub struct Migrations {
    steps: BTreeMap<u32, Migrate>,
}

impl Migrations {
    /// No migrations.
    pub fn new() -> Self {
        Self::default()
    }
}
