use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::erased::make;
use super::{DynStep, Exposure, FlowMeta, Kind, Slot, Step, StepKind};
use crate::memory::ContextStrategy;
use crate::model::Sampling;
use crate::tool::{ToolDefinition, declared};
use crate::transition::Target;

/// What the registry knows about a step.
#[derive(Clone)]
pub struct StepInfo {
    /// The persisted name.
    pub name: Arc<str>,
    /// Names that documents written before a rename use.
    pub aliases: &'static [&'static str],
    /// The kind.
    pub kind: Kind,
    /// The doc comment.
    pub doc: &'static str,
    /// The memory namespace, unless it is the main one.
    pub memory: Option<&'static str>,
    /// What the step sees of the conversation from before it was entered.
    pub context: ContextStrategy,
    /// The model that speaks for the step, unless it is the flow's.
    pub model: Option<&'static str>,
    /// The ways out in source order.
    pub targets: &'static [Target],
    /// The slots of a collect step.
    pub slots: &'static [Slot],
    /// Which tools of the flow its model is offered.
    pub flow_tools: Exposure,
    sampling: fn() -> Sampling,
    tools: fn() -> Arc<[ToolDefinition]>,
    schema: fn() -> Schema,
}

impl StepInfo {
    /// The parameters of the model that speaks for the step, before they go over the flow's.
    pub fn sampling(&self) -> Sampling {
        (self.sampling)()
    }

    /// The tools of the step.
    pub fn tools(&self) -> Arc<[ToolDefinition]> {
        (self.tools)()
    }

    /// The JSON Schema of the step's fields, as they persist.
    pub fn schema(&self) -> Schema {
        (self.schema)()
    }
}

impl fmt::Debug for StepInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepInfo")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("targets", &self.targets)
            .finish_non_exhaustive()
    }
}

type Loaded<F> = Result<Box<dyn DynStep<F>>, Misfit>;

/// A step in the registry of a flow.
pub struct StepEntry<F: FlowMeta> {
    info: StepInfo,
    make: fn() -> Box<dyn DynStep<F>>,
}

/// Why the fields of a step could not be read.
#[derive(Debug)]
pub(crate) struct Misfit {
    pub(crate) path: String,
    pub(crate) reason: String,
}

/// Reads a value and says where it does not fit.
pub(crate) fn read<T: DeserializeOwned>(value: Value) -> Result<T, Misfit> {
    serde_path_to_error::deserialize(value).map_err(Misfit::from)
}

/// Reads a value in place of another one.
pub(super) fn read_into<T: DeserializeOwned>(place: &mut T, value: Value) -> Result<(), Misfit> {
    match serde_path_to_error::deserialize(value) {
        Ok(value) => *place = value,
        Err(error) => return Err(Misfit::from(error)),
    }
    Ok(())
}

impl From<serde_path_to_error::Error<serde_json::Error>> for Misfit {
    fn from(error: serde_path_to_error::Error<serde_json::Error>) -> Self {
        Self { path: error.path().to_string(), reason: error.into_inner().to_string() }
    }
}

fn schema<S: JsonSchema>() -> Schema {
    schemars::schema_for!(S)
}

impl<F: FlowMeta> StepEntry<F> {
    fn of<S>() -> Self
    where
        S: Step,
        S::Kind: StepKind<S, Flow = F>,
    {
        Self {
            info: StepInfo {
                name: S::NAME.into(),
                aliases: S::ALIASES,
                kind: <S::Kind as StepKind<S>>::KIND,
                doc: S::DOC,
                memory: S::MEMORY,
                context: S::CONTEXT,
                model: S::MODEL,
                targets: S::TARGETS,
                slots: <S::Kind as StepKind<S>>::slots(),
                flow_tools: S::FLOW_TOOLS,
                sampling: S::model_sampling,
                tools: || declared::<S>(S::tools),
                schema: schema::<S>,
            },
            make: make::<F, S>,
        }
    }

    /// What the registry knows about the step.
    pub fn info(&self) -> &StepInfo {
        &self.info
    }

    pub(crate) fn make(&self) -> Box<dyn DynStep<F>> {
        (self.make)()
    }

    pub(crate) fn load(&self, value: Value) -> Loaded<F> {
        let mut step = self.make();
        step.load(value)?;
        Ok(step)
    }
}

impl<F: FlowMeta> Clone for StepEntry<F> {
    fn clone(&self) -> Self {
        Self { info: self.info.clone(), make: self.make }
    }
}

impl<F: FlowMeta> fmt::Debug for StepEntry<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info.fmt(f)
    }
}

/// The steps of a flow in the order in which they are declared. Cheap to clone.
///
/// `#[flow(steps(..))]` makes it; `define_steps` may change it.
#[derive(Debug)]
pub struct Steps<F: FlowMeta> {
    entries: Arc<Vec<StepEntry<F>>>,
    index: Arc<HashMap<Arc<str>, usize>>,
}

impl<F: FlowMeta> Clone for Steps<F> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone(), index: self.index.clone() }
    }
}

impl<F: FlowMeta> Default for Steps<F> {
    fn default() -> Self {
        Self { entries: Arc::default(), index: Arc::default() }
    }
}

impl<F: FlowMeta> Steps<F> {
    /// No steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step at the end. Two steps that answer to one name are found when the engine
    /// is built.
    #[must_use]
    pub fn add<S>(mut self) -> Self
    where
        S: Step,
        S::Kind: StepKind<S, Flow = F>,
    {
        self.push(StepEntry::of::<S>());
        self
    }

    fn push(&mut self, entry: StepEntry<F>) {
        let index = Arc::make_mut(&mut self.index);
        let place = self.entries.len();
        index.entry(entry.info.name.clone()).or_insert(place);
        for alias in entry.info.aliases {
            index.entry((*alias).into()).or_insert(place);
        }
        Arc::make_mut(&mut self.entries).push(entry);
    }

    /// Takes a step out, if it is there.
    #[must_use]
    pub fn remove(mut self, name: &str) -> Self {
        Arc::make_mut(&mut self.entries).retain(|entry| &*entry.info.name != name);
        let mut index = HashMap::new();
        for (place, entry) in self.entries.iter().enumerate() {
            index.entry(entry.info.name.clone()).or_insert(place);
            for alias in entry.info.aliases {
                index.entry((*alias).into()).or_insert(place);
            }
        }
        self.index = Arc::new(index);
        self
    }

    /// The steps in order.
    pub fn iter(&self) -> std::slice::Iter<'_, StepEntry<F>> {
        self.entries.iter()
    }

    /// How many steps there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The place of a step, by its name or an alias.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// A step, by its name or an alias.
    pub fn get(&self, name: &str) -> Option<&StepEntry<F>> {
        self.position(name).and_then(|place| self.entries.get(place))
    }

    /// Whether this is the very same registry, not only an equal one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entries, &other.entries)
    }

    /// The names in order, for messages.
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.iter().map(|entry| &*entry.info.name).collect();
        names.join(", ")
    }

    pub(crate) fn at(&self, place: usize) -> &StepEntry<F> {
        &self.entries[place]
    }
}
