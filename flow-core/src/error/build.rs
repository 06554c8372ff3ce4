use super::IdError;

/// A flow or an engine that cannot be built as it is declared.
///
/// All of these are found by `Engine::builder().build()`, before any session is touched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Two registered flows have one id.
    #[error("two flows are registered with the id `{flow}`: give one of them another `id`")]
    DuplicateFlow {
        /// The id.
        flow: String,
    },
    /// Two steps of a flow have one persisted name, or one claims the other's alias.
    #[error(
        "flow `{flow}` has two steps that answer to the persisted name `{step}`: \
         give one of them another `id` or drop the alias"
    )]
    DuplicateStep {
        /// The flow.
        flow: String,
        /// The name.
        step: String,
    },
    /// A flow without steps has no place to start.
    #[error(
        "flow `{flow}` has no steps: list them in `#[flow(steps(..))]` or add them in `define_steps`"
    )]
    NoSteps {
        /// The flow.
        flow: String,
    },
    /// `initial_step` names a step that the flow does not have.
    #[error("flow `{flow}` starts at `{step}`, which is not one of its steps: {known}")]
    UnknownStart {
        /// The flow.
        flow: String,
        /// The step named by `initial_step`.
        step: String,
        /// The steps that exist.
        known: String,
    },
    /// A step may go to a step that the flow does not have.
    #[error(
        "flow `{flow}`: step `{step}` may go to `{target}`, which the flow does not list: {known}"
    )]
    UnknownTarget {
        /// The flow.
        flow: String,
        /// The step that declares the transition.
        step: String,
        /// The step that is missing.
        target: String,
        /// The steps that exist.
        known: String,
    },
    /// A reducer is for a field that the shared state does not have.
    #[error(
        "flow `{flow}`: `config_reducers` has one for the field `{field}`, which the state does not \
         have: {known}"
    )]
    Reducer {
        /// The flow.
        flow: String,
        /// The field.
        field: String,
        /// The fields that exist.
        known: String,
    },
    /// Two tools that one step can call have one name.
    #[error(
        "flow `{flow}`: {place} offers two tools named `{tool}`: rename one with `#[tool(name = \"..\")]`"
    )]
    DuplicateTool {
        /// The flow.
        flow: String,
        /// The step, or `the flow itself`.
        place: String,
        /// The tool.
        tool: String,
    },
    /// A tool has a name that the framework keeps for itself, or one that providers refuse.
    #[error("flow `{flow}`: the tool name `{tool}` cannot be used: {reason}")]
    ToolName {
        /// The flow.
        flow: String,
        /// The tool.
        tool: String,
        /// Why.
        reason: String,
    },
    /// The arguments of a tool are not a JSON object.
    #[error("flow `{flow}`: the arguments of tool `{tool}` have no object schema: {reason}")]
    ToolSchema {
        /// The flow.
        flow: String,
        /// The tool.
        tool: String,
        /// Why.
        reason: String,
    },
    /// A slot declares a resolver that cannot work.
    #[error("flow `{flow}`, step `{step}`, slot `{slot}`: {reason}")]
    Slot {
        /// The flow.
        flow: String,
        /// The collect step.
        step: String,
        /// The field.
        slot: String,
        /// Why.
        reason: String,
    },
    /// The chain of migrations does not reach from its first version to the flow's.
    #[error(
        "flow `{flow}` is at document version {version}, but no migration leads from {gap} to {next}: \
         add `.from({gap}, |doc| ..)` to `migrations()`"
    )]
    MigrationGap {
        /// The flow.
        flow: String,
        /// The version that the flow declares.
        version: u32,
        /// The version that has no migration.
        gap: u32,
        /// The version that it should lead to.
        next: u32,
    },
    /// A migration starts at the flow's version or beyond it, or two start at one version.
    #[error(
        "flow `{flow}` is at document version {version}, so its migration from {from} is wrong: {reason}"
    )]
    Migration {
        /// The flow.
        flow: String,
        /// The version that the flow declares.
        version: u32,
        /// Where the migration starts.
        from: u32,
        /// Why.
        reason: &'static str,
    },
    /// The model selection of a flow or of a step cannot be read.
    #[error("flow `{flow}`{place}: model `{model}` is not of the form `provider::name`")]
    Model {
        /// The flow.
        flow: String,
        /// `, step `name`` or nothing.
        place: String,
        /// The text.
        model: String,
    },
    /// Two gates of a flow have one name.
    #[error("flow `{flow}` has two gates named `{gate}`: give one of them another name")]
    DuplicateGate {
        /// The flow.
        flow: String,
        /// The name.
        gate: String,
    },
    /// A judge that cannot judge.
    #[error("flow `{flow}`: the gate `{gate}` cannot judge: {reason}")]
    Gate {
        /// The flow.
        flow: String,
        /// The gate.
        gate: String,
        /// Why.
        reason: String,
    },
    /// An id or a name that cannot be persisted.
    #[error("flow `{flow}`: {error}")]
    Name {
        /// The flow.
        flow: String,
        /// What is wrong with it.
        error: IdError,
    },
    /// The engine was built without a store.
    #[error("the engine has no store: call `.store(..)` with a memory, SQLite or MongoDB store")]
    NoStore,
}

impl BuildError {
    /// A stable kebab-case name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::DuplicateFlow { .. } => "duplicate-flow",
            Self::DuplicateStep { .. } => "duplicate-step",
            Self::NoSteps { .. } => "no-steps",
            Self::UnknownStart { .. } => "unknown-start",
            Self::UnknownTarget { .. } => "unknown-target",
            Self::DuplicateTool { .. } => "duplicate-tool",
            Self::ToolName { .. } => "tool-name",
            Self::ToolSchema { .. } => "tool-schema",
            Self::Slot { .. } => "invalid-slot",
            Self::MigrationGap { .. } => "migration-gap",
            Self::Migration { .. } => "invalid-migration",
            Self::Model { .. } => "invalid-model",
            Self::DuplicateGate { .. } => "duplicate-gate",
            Self::Gate { .. } => "invalid-gate",
            Self::Name { .. } => "invalid-name",
            Self::Reducer { .. } => "unknown-field",
            Self::NoStore => "no-store",
        }
    }
}
