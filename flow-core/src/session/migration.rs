use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{BuildError, Result, SessionError};

/// A document as JSON, for a migration to change.
#[derive(Debug)]
pub struct RawDoc {
    pub(crate) value: Value,
}

impl RawDoc {
    pub(crate) fn new(doc: &super::SessionDoc) -> Self {
        Self { value: serde_json::to_value(doc).unwrap_or_default() }
    }
    pub(crate) fn read(self) -> std::result::Result<super::SessionDoc, super::ReadError> {
        super::SessionDoc::read(self.value)
    }
    pub(crate) fn rename_step(&mut self, _: &str, _: &str) -> Result<()> {
        Ok(())
    }
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
    pub(crate) fn check(&self, _: &str, _: u32) -> std::result::Result<(), BuildError> {
        Ok(())
    }
    pub(crate) fn migrate(
        &self,
        _: super::SessionDoc,
        _: &str,
        _: u32,
    ) -> std::result::Result<Option<super::SessionDoc>, SessionError> {
        Ok(None)
    }
}
