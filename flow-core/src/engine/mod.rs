//! The engine: runs turns of conversations.
//!
//! [`Engine::turn`] takes one user input to its next pause: it opens the session (loading
//! the document and taking the lease in one store call), migrates the document if it is
//! old, dispatches steps, commits what they did, and gives the lease back with the last
//! commit. What a crash can repeat is decided by the [`Durability`].

mod build;
mod call;
mod child;
mod commit;
mod conversation;
mod delivery;
mod failure;
mod gates;
mod handle;
mod history;
mod lease;
mod migrate;
mod moves;
mod pause;
mod prepare;
mod queue;
mod request;
mod restore;
mod run;
mod session;
mod sweep;
mod turn;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use build::EngineBuilder;
pub use delivery::Delivery;
pub use handle::TurnHandle;
pub use history::{Checkpoints, MAX_CHECKPOINTS};
pub use lease::WAKE_RETRY;
pub use migrate::{MIGRATE_BATCH, MigrateEvent, MigrateOptions, MigrateReport};
pub use request::{TurnOutcome, TurnRequest};
pub use session::SessionHandle;
pub use sweep::{SWEEP_CONCURRENCY, SweepReport};

use crate::error::{Error, TurnError};
use crate::flow::{Flow, Graph};
use crate::id::SessionId;
use crate::ledger::Ledger;
use crate::model::ModelCatalog;
use crate::session::SessionDoc;
use crate::step::FrameLimits;
use crate::store::{Grant, ListQuery, SessionStore, SessionSummary};
use crate::time::Clock;

use build::Registered;
use queue::Queue;

/// When a turn is committed, and so what a crash repeats.
///
/// Each transition is acted on exactly once. What happens within a step happens at least
/// once: when the process dies in the middle of a turn, the next turn goes on from the last
/// commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// One commit at each crossing (default). A crash repeats the step that was running, and
    /// no step before it.
    #[default]
    Crossing,
    /// One commit at the end of the turn, and one where the conversation goes to another flow.
    /// A crash repeats the whole turn, or the part of it since then. Fit for turns without
    /// effects on the outside. A flow with tools that are not to be called again
    /// ([`ToolReplay::Never`](crate::tool::ToolReplay::Never)) also commits before its actions.
    Turn,
    /// As [`Crossing`](Self::Crossing), and also before an action that a turn begins with, so
    /// that what the user said is kept, and before each [effect](crate::effect) of an action. A
    /// crash repeats the step that was running, and the effects that ran; those that are recorded
    /// as over are not done again. A tool that is called again learns it from
    /// [`ToolCx::is_repeated`](crate::tool::ToolCx::is_repeated).
    Effect,
}

/// What a turn may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The most bytes of a user's message. Default: 1 MiB.
    pub message_bytes: usize,
    /// The most crossings of one turn. Default: 50.
    pub crossings: u32,
    /// The most crossings of one edge without new input from the user. They are counted
    /// through turns without a message too. Default: 10.
    pub edge_crossings: u32,
    /// The most hand-offs without new input from the user. They are counted through turns
    /// without a message too. Default: 8.
    pub handoffs: u32,
    /// How often one flow may have the conversation without new input from the user, where
    /// hand-offs lead to it or back to it. Default: 2, so that a flow may get back once what
    /// it has handed off.
    pub flow_visits: u32,
    /// The most flows that may be parked at once by [digressions](TurnRequest::digress).
    /// Default: 3.
    pub digressions: u32,
    /// The most items of a [batch](crate::step::Concurrent). Default: 10,000.
    pub batch_items: usize,
    /// The most [effects](crate::effect) of an action in one visit, those of steps that run
    /// within it included until they are over. They stand in the document. Default: 4096.
    pub effects: usize,
    /// How many steps may [run within each other](crate::step::ActionCx::run_step), the one at
    /// which the session stands not counted. Default: 8.
    pub step_depth: u32,
    /// The most steps that an action runs [side by side](crate::step::ActionCx::run_steps) in
    /// one call. Default: 256.
    pub branches: usize,
    /// The most events that wait for the listener of a turn, as [`TurnHandle`] says.
    /// Default: 1024; at least 1.
    pub events: usize,
    /// How long a turn waits in all for a listener that has as many to read. Default: 5
    /// seconds.
    pub listener_patience: Duration,
    /// How many [calls of flows](crate::step::ActionCx::call_flow) and
    /// [batches](crate::step::Concurrent) may be under way within each other. Default: 8.
    pub call_depth: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 1024 * 1024,
            crossings: 50,
            edge_crossings: 10,
            handoffs: 8,
            flow_visits: 2,
            digressions: 3,
            batch_items: 10_000,
            effects: 4096,
            step_depth: 8,
            branches: 256,
            events: 1024,
            listener_patience: Duration::from_secs(5),
            call_depth: 8,
        }
    }
}

impl Limits {
    /// Sets [`message_bytes`](Self::message_bytes).
    #[must_use]
    pub fn message_bytes(mut self, bytes: usize) -> Self {
        self.message_bytes = bytes;
        self
    }

    /// Sets [`crossings`](Self::crossings).
    #[must_use]
    pub fn crossings(mut self, crossings: u32) -> Self {
        self.crossings = crossings;
        self
    }

    /// Sets [`edge_crossings`](Self::edge_crossings).
    #[must_use]
    pub fn edge_crossings(mut self, crossings: u32) -> Self {
        self.edge_crossings = crossings;
        self
    }

    /// Sets [`handoffs`](Self::handoffs).
    #[must_use]
    pub fn handoffs(mut self, handoffs: u32) -> Self {
        self.handoffs = handoffs;
        self
    }

    /// Sets [`flow_visits`](Self::flow_visits).
    #[must_use]
    pub fn flow_visits(mut self, visits: u32) -> Self {
        self.flow_visits = visits;
        self
    }

    /// Sets [`digressions`](Self::digressions).
    #[must_use]
    pub fn digressions(mut self, digressions: u32) -> Self {
        self.digressions = digressions;
        self
    }

    /// Sets [`batch_items`](Self::batch_items).
    #[must_use]
    pub fn batch_items(mut self, items: usize) -> Self {
        self.batch_items = items;
        self
    }

    /// Sets [`effects`](Self::effects).
    #[must_use]
    pub fn effects(mut self, effects: usize) -> Self {
        self.effects = effects;
        self
    }

    /// Sets [`step_depth`](Self::step_depth).
    #[must_use]
    pub fn step_depth(mut self, steps: u32) -> Self {
        self.step_depth = steps;
        self
    }

    /// Sets [`branches`](Self::branches).
    #[must_use]
    pub fn branches(mut self, steps: usize) -> Self {
        self.branches = steps;
        self
    }

    pub(crate) fn frames(&self) -> FrameLimits {
        FrameLimits {
            depth: self.step_depth,
            branches: self.branches,
            calls: self.call_depth,
            items: self.batch_items,
        }
    }

    /// Sets [`events`](Self::events).
    #[must_use]
    pub fn events(mut self, events: usize) -> Self {
        self.events = events;
        self
    }

    /// Sets [`listener_patience`](Self::listener_patience).
    #[must_use]
    pub fn listener_patience(mut self, patience: Duration) -> Self {
        self.listener_patience = patience;
        self
    }

    /// Sets [`call_depth`](Self::call_depth).
    #[must_use]
    pub fn call_depth(mut self, depth: u32) -> Self {
        self.call_depth = depth;
        self
    }
}

/// The default of [`EngineBuilder::lease`].
pub const LEASE: Duration = Duration::from_secs(30);

/// What all turns of an engine share.
pub(crate) struct Core {
    store: Arc<dyn SessionStore>,
    flows: BTreeMap<&'static str, Arc<dyn Registered>>,
    models: Arc<ModelCatalog>,
    limits: Limits,
    durability: Durability,
    lease: Duration,
    session_ttl: Option<Duration>,
    checkpoints: Checkpoints,
    clock: Arc<dyn Clock>,
    holder: String,
    queue: Queue,
}

impl Core {
    /// A registered flow.
    fn find(&self, id: &str) -> Result<Arc<dyn Registered>, Error> {
        self.flows.get(id).cloned().ok_or_else(|| {
            TurnError::UnknownFlow { flow: id.to_owned(), known: self.known_flows() }.into()
        })
    }

    /// The flows that are registered, as an error names them.
    fn known_flows(&self) -> String {
        self.flows.keys().copied().collect::<Vec<_>>().join(", ")
    }

    /// The ledger of a session whose lease is held.
    fn ledger(&self, grant: &Grant, doc: SessionDoc) -> Ledger {
        Ledger::new(self.store.clone(), grant.clone(), doc, self.checkpoints.count())
    }
}

/// Runs turns of registered flows over one store. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    core: Arc<Core>,
}

impl Engine {
    /// Begins an engine.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::new()
    }

    /// Runs a turn of a flow, on a task of its own.
    ///
    /// The handle is a stream of the turn's events and a future of its outcome. Dropping it
    /// cancels the turn. Turns of one session queue up within the process; between
    /// processes one gets the session and the other [`StoreError::Busy`](crate::error::StoreError::Busy).
    ///
    /// A session that has [gone to another flow](crate::transition::HandOff) since it began
    /// with this one goes on there. That costs two calls of the store and an
    /// [`init`](Flow::init) of this flow, which [`turn_of`](Self::turn_of) the
    /// [flow in which it is](TurnOutcome::flow) spares.
    ///
    /// # Panics
    /// When it is called outside of a Tokio runtime.
    pub fn turn<F: Flow>(&self, request: TurnRequest) -> TurnHandle {
        self.turn_of(F::ID, request)
    }

    /// Runs a turn of the flow with an id, for hosts that learn the flow at run time.
    ///
    /// # Panics
    /// When it is called outside of a Tokio runtime.
    pub fn turn_of(&self, flow: &str, request: TurnRequest) -> TurnHandle {
        let flow = self.flow(flow);
        TurnHandle::spawn(self.core.clone(), flow, request)
    }

    /// Delivers an answer to a request, or a signal, and runs the session on with it.
    ///
    /// The answer is committed before anything runs, so a crash after it loses nothing. To
    /// follow the events, run a [`turn_of`](Self::turn_of) the flow with
    /// [`TurnRequest::deliver`].
    ///
    /// # Errors
    /// [`EffectError::NotWaiting`](crate::error::EffectError::NotWaiting) and
    /// [`EffectError::Rejected`](crate::error::EffectError::Rejected), with which nothing has
    /// changed; and those of a turn.
    pub async fn deliver(
        &self,
        session: SessionId,
        delivery: Delivery,
    ) -> Result<TurnOutcome, Error> {
        let flow = self.session(session.clone()).load().await?.flow.id;
        self.turn_of(&flow, TurnRequest::new(session).deliver(delivery)).await
    }

    /// One session: to look at it and at its history, to fork it, to delete it.
    pub fn session(&self, id: SessionId) -> SessionHandle {
        SessionHandle::new(self.core.clone(), id)
    }

    /// Lists sessions by ascending id.
    ///
    /// # Errors
    /// When the store cannot be reached.
    pub async fn sessions(&self, query: &ListQuery) -> Result<Vec<SessionSummary>, Error> {
        Ok(self.core.store.list(query).await?)
    }

    /// The picture of a registered flow.
    ///
    /// # Errors
    /// When no such flow is registered.
    pub fn graph(&self, flow: &str) -> Result<Graph, Error> {
        Ok(self.flow(flow)?.graph())
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn SessionStore> {
        &self.core.store
    }

    fn flow(&self, id: &str) -> Result<Arc<dyn Registered>, Error> {
        self.core.find(id)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("flows", &self.core.flows.keys())
            .field("holder", &self.core.holder)
            .field("durability", &self.core.durability)
            .finish_non_exhaustive()
    }
}
