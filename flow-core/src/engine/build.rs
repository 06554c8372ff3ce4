use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::gates::check_gates;
use super::moves::Ready;
use super::queue::Queue;
use super::turn::TurnEntry;
use super::{
    Checkpoints, Core, Durability, Engine, LEASE, Limits, TurnOutcome, TurnRequest, restore, turn,
};
use crate::error::{BuildError, Error, IdError, SessionError};
use crate::flow::{Flow, FlowMeta, Graph, Steps, digest};
use crate::id::check_name;
use crate::model::{ModelCatalog, ModelSelection};
use crate::session::{Migrations, SessionDoc};
use crate::step::{EventSink, Resolver};
use crate::store::SessionStore;
use crate::time::{Clock, SystemClock};
use crate::tool::ToolDefinition;
use crate::transition::Target;

/// Tool names that the framework keeps for itself.
const RESERVED_TOOLS: [&str; 2] = ["final_answer", "end_chat"];

/// Checks a flow and makes it ready to run.
type Register = Box<dyn FnOnce() -> Result<Arc<dyn Registered>, BuildError> + Send>;

/// Puts an engine together. Everything that can be wrong with a flow's declaration is found
/// by [`build`](Self::build), before any session is touched.
///
/// ```
/// use flow_core::Engine;
/// use flow_core::store::memory::MemoryStore;
///
/// let engine = Engine::builder().store(MemoryStore::new()).build()?;
/// # Ok::<(), flow_core::Error>(())
/// ```
pub struct EngineBuilder {
    store: Option<Arc<dyn SessionStore>>,
    flows: Vec<Register>,
    models: ModelCatalog,
    limits: Limits,
    durability: Durability,
    lease: Duration,
    session_ttl: Option<Duration>,
    checkpoints: Checkpoints,
    clock: Arc<dyn Clock>,
}

impl EngineBuilder {
    pub(super) fn new() -> Self {
        Self {
            store: None,
            flows: Vec::new(),
            models: ModelCatalog::new(),
            limits: Limits::default(),
            durability: Durability::default(),
            lease: LEASE,
            session_ttl: None,
            checkpoints: Checkpoints::none(),
            clock: Arc::new(SystemClock),
        }
    }

    /// Where sessions live.
    #[must_use]
    pub fn store(self, store: impl SessionStore) -> Self {
        self.shared_store(Arc::new(store))
    }

    /// Where sessions live, shared with others.
    #[must_use]
    pub fn shared_store(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// Registers a flow. It is cloned for every turn.
    #[must_use]
    pub fn flow<F: Flow>(mut self, flow: F) -> Self {
        self.flows.push(Box::new(|| Ok(Arc::new(FlowSlot::new(flow)?) as Arc<dyn Registered>)));
        self
    }

    /// The models that flows and steps may select. Default: none.
    #[must_use]
    pub fn models(mut self, models: ModelCatalog) -> Self {
        self.models = models;
        self
    }

    /// What a turn may use.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// When turns are committed. Default: [`Durability::Crossing`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// How long a lease lasts. It is renewed after a third of that time while a turn runs,
    /// so it bounds how long a session is blocked by a worker that died. Default: [`LEASE`].
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long a session is kept after its last commit, or after the time for which it waits
    /// if that is later. A session that an action has
    /// [called](crate::step::ActionCx::call_flow) is kept as long as its caller's, until it has
    /// ended. Default: for ever.
    #[must_use]
    pub fn session_ttl(mut self, ttl: Duration) -> Self {
        self.session_ttl = Some(ttl);
        self
    }

    /// Which checkpoints of each session are kept, for its
    /// [history](super::SessionHandle::history). Default: none.
    #[must_use]
    pub fn checkpoints(mut self, checkpoints: Checkpoints) -> Self {
        self.checkpoints = checkpoints;
        self
    }

    /// The clock for documents and events. Default: the system's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Checks the flows and makes the engine.
    ///
    /// # Errors
    /// What is wrong with the declaration of a flow, or that there is no store.
    pub fn build(self) -> Result<Engine, Error> {
        let store = self.store.ok_or(BuildError::NoStore)?;
        let mut flows: BTreeMap<&'static str, Arc<dyn Registered>> = BTreeMap::new();
        for make in self.flows {
            let flow = make()?;
            let id = flow.id();
            if flows.insert(id, flow).is_some() {
                return Err(BuildError::DuplicateFlow { flow: id.to_owned() }.into());
            }
        }
        let core = Core {
            store,
            flows,
            models: Arc::new(self.models),
            limits: self.limits,
            durability: self.durability,
            lease: self.lease,
            session_ttl: self.session_ttl,
            checkpoints: self.checkpoints,
            clock: self.clock,
            holder: format!("{}-{}", std::process::id(), uuid::Uuid::now_v7().simple()),
            queue: Queue::default(),
        };
        Ok(Engine { core: Arc::new(core) })
    }
}

pub(super) type Running<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// A registered flow, whatever its type.
pub(crate) trait Registered: Send + Sync {
    fn id(&self) -> &'static str;
    fn version(&self) -> u32;
    fn graph(&self) -> Graph;
    /// The document at the flow's version; nothing when it is there already.
    fn migrate(&self, doc: &SessionDoc) -> Result<Option<SessionDoc>, SessionError>;
    /// Checks that the step at which a document stands exists.
    fn check_step(&self, doc: &SessionDoc) -> Result<(), SessionError>;
    fn run(
        self: Arc<Self>,
        core: Arc<Core>,
        request: TurnRequest,
        events: EventSink,
        cancel: CancellationToken,
    ) -> Running<TurnOutcome>;
    /// Takes a turn that was meant for another flow, in which its session is no more.
    fn take_turn(self: Arc<Self>, core: Arc<Core>, entry: TurnEntry) -> Running<TurnOutcome>;
    /// Makes the flow ready for its part of a turn that goes on in it.
    fn prepare(
        self: Arc<Self>,
        core: Arc<Core>,
        request: TurnRequest,
        turn: Arc<str>,
    ) -> Running<Box<dyn Ready>>;
}

/// A registered flow and what is known of it once and for all.
pub(crate) struct FlowSlot<F: Flow> {
    pub(super) flow: F,
    /// What the macro declares.
    pub(super) declared: Steps<F>,
    /// What `define_steps` made of it when the engine was built, and its digest.
    pub(super) checked: Steps<F>,
    pub(super) digest: Arc<str>,
    /// The flow's own tools as they are declared.
    pub(super) tools: Vec<ToolDefinition>,
    pub(super) migrations: Migrations,
}

impl<F: Flow> FlowSlot<F> {
    fn new(flow: F) -> Result<Self, BuildError> {
        check_name("flow id", F::ID).map_err(|error| name_error::<F>(error))?;
        let declared = F::steps();
        let checked = flow.define_steps(declared.clone());
        check_steps(&flow, &checked)?;
        check_reducers(&flow)?;
        if let Some(model) = F::MODEL
            && model.parse::<ModelSelection>().is_err()
        {
            return Err(BuildError::Model {
                flow: F::ID.to_owned(),
                place: String::new(),
                model: model.to_owned(),
            });
        }
        check_gates(&flow)?;
        let migrations = F::migrations();
        migrations.check(F::ID, F::VERSION)?;
        let digest = digest(&checked).into();
        Ok(Self { flow, declared, checked, digest, tools: F::tools(), migrations })
    }
}

impl<F: Flow> Registered for FlowSlot<F> {
    fn id(&self) -> &'static str {
        F::ID
    }

    fn version(&self) -> u32 {
        F::VERSION
    }

    fn migrate(&self, doc: &SessionDoc) -> Result<Option<SessionDoc>, SessionError> {
        restore::migrate(self, &self.checked, doc)
    }

    fn check_step(&self, doc: &SessionDoc) -> Result<(), SessionError> {
        restore::find_step(&self.checked, doc).map(drop)
    }

    fn graph(&self) -> Graph {
        Graph::of(&self.flow)
    }

    fn run(
        self: Arc<Self>,
        core: Arc<Core>,
        request: TurnRequest,
        events: EventSink,
        cancel: CancellationToken,
    ) -> Running<TurnOutcome> {
        Box::pin(turn::run(self, core, request, events, cancel))
    }

    fn take_turn(self: Arc<Self>, core: Arc<Core>, entry: TurnEntry) -> Running<TurnOutcome> {
        Box::pin(turn::take_turn(self, core, entry))
    }

    fn prepare(
        self: Arc<Self>,
        core: Arc<Core>,
        request: TurnRequest,
        turn: Arc<str>,
    ) -> Running<Box<dyn Ready>> {
        Box::pin(turn::make_ready(self, core, request, turn))
    }
}

fn name_error<F: FlowMeta>(error: IdError) -> BuildError {
    BuildError::Name { flow: F::ID.to_owned(), error }
}

/// Checks a registry: names, targets, slots, tools, start.
pub(super) fn check_steps<F: Flow>(flow: &F, steps: &Steps<F>) -> Result<(), BuildError> {
    let id = || F::ID.to_owned();
    if steps.is_empty() {
        return Err(BuildError::NoSteps { flow: id() });
    }
    let shared = flow.define_tools(F::tools());
    check_tools::<F>("the flow itself", &shared, &[])?;
    let mut owners: HashMap<&str, usize> = HashMap::new();
    for (place, entry) in steps.iter().enumerate() {
        let info = entry.info();
        for name in std::iter::once(&*info.name).chain(info.aliases.iter().copied()) {
            check_name("step name", name).map_err(name_error::<F>)?;
            if owners.insert(name, place).is_some() {
                return Err(BuildError::DuplicateStep { flow: id(), step: name.to_owned() });
            }
        }
        if let Some(model) = info.model
            && model.parse::<ModelSelection>().is_err()
        {
            let place = format!(", step `{}`", info.name);
            return Err(BuildError::Model { flow: id(), place, model: model.to_owned() });
        }
        if let Some(memory) = info.memory {
            check_name("memory namespace", memory).map_err(name_error::<F>)?;
        }
        for target in info.targets {
            if let Target::Step(target) = target
                && steps.position(target).is_none()
            {
                return Err(BuildError::UnknownTarget {
                    flow: id(),
                    step: info.name.to_string(),
                    target: target.to_string(),
                    known: steps.names(),
                });
            }
        }
        for slot in info.slots {
            let reason = match &slot.resolver {
                Some(Resolver::Pattern(pattern)) => pattern.regex().err().map(str::to_owned),
                Some(Resolver::Range(min, max)) if min > max => {
                    Some(format!("the range from {min} to {max} is empty"))
                }
                Some(Resolver::OneOf([])) => Some("`one_of` has no values".to_owned()),
                _ => None,
            };
            if let Some(reason) = reason {
                return Err(BuildError::Slot {
                    flow: id(),
                    step: info.name.to_string(),
                    slot: slot.name.to_owned(),
                    reason,
                });
            }
        }
        // A model at this step sees the tools of the flow too.
        check_tools::<F>(&format!("step `{}`", info.name), &info.tools(), &shared)?;
    }
    if let Some(start) = flow.initial_step()
        && steps.position(&start).is_none()
    {
        return Err(BuildError::UnknownStart {
            flow: id(),
            step: start.into_owned(),
            known: steps.names(),
        });
    }
    Ok(())
}

/// Checks that the fields with a reducer exist, where the schema of the state names its fields.
fn check_reducers<F: Flow>(flow: &F) -> Result<(), BuildError> {
    let reducers = flow.config_reducers();
    let schema = schemars::schema_for!(F::State);
    let Some(fields) = schema.get("properties").and_then(|fields| fields.as_object()) else {
        return Ok(());
    };
    match reducers.fields().find(|field| !fields.contains_key(*field)) {
        Some(field) => Err(BuildError::Reducer {
            flow: F::ID.to_owned(),
            field: field.to_owned(),
            known: fields.keys().cloned().collect::<Vec<_>>().join(", "),
        }),
        None => Ok(()),
    }
}

fn check_tools<F: FlowMeta>(
    place: &str,
    tools: &[ToolDefinition],
    shared: &[ToolDefinition],
) -> Result<(), BuildError> {
    let flow = || F::ID.to_owned();
    let mut names: HashSet<&str> = shared.iter().map(|tool| tool.name.as_str()).collect();
    for tool in tools {
        let name = || tool.name.clone();
        let extracts = tool.name.starts_with("submit_") && tool.name.ends_with("_data");
        if extracts || RESERVED_TOOLS.contains(&tool.name.as_str()) {
            let reason = "the framework offers a tool of this name to models".to_owned();
            return Err(BuildError::ToolName { flow: flow(), tool: name(), reason });
        }
        if tool.parameters.get("type").and_then(|kind| kind.as_str()) != Some("object") {
            let reason = "providers take objects only".to_owned();
            return Err(BuildError::ToolSchema { flow: flow(), tool: name(), reason });
        }
        if !names.insert(&tool.name) {
            return Err(BuildError::DuplicateTool {
                flow: flow(),
                place: place.to_owned(),
                tool: name(),
            });
        }
    }
    Ok(())
}
