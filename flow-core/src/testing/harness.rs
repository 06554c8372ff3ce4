//! Runs a single step, hook or tool in a plain `#[tokio::test]`, without an engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::effect::{Journal, Place};
use crate::event::{Event, EventStream, channel};
use crate::flow::FlowMeta;
use crate::id::SessionId;
use crate::model::TokenUsage;
use crate::session::MAIN_MEMORY;
use crate::step::recall::Recall;
use crate::step::{ActionCx, Models, Scope, StepCx};
use crate::time::{Clock, SystemClock, Timestamp};

/// A context for steps that run outside of a turn.
///
/// ```
/// # use flow_core::testing::StepHarness;
/// # use flow_core::flow::{FlowMeta, Steps};
/// # #[derive(Clone)] struct Hotel;
/// # impl FlowMeta for Hotel {
/// #     type State = ();
/// #     const ID: &'static str = "hotel";
/// #     const VERSION: u32 = 1;
/// #     fn steps() -> Steps<Self> { Steps::new() }
/// # }
/// let mut harness = StepHarness::new(Hotel).message("two nights");
/// let mut cx = harness.cx();
/// cx.say("Noted.");
/// assert_eq!(cx.last_message(), Some("two nights"));
/// assert_eq!(harness.said(), ["Noted."]);
/// ```
pub struct StepHarness<F: FlowMeta> {
    flow: F,
    /// The state that all steps share.
    pub state: F::State,
    scope: Scope,
    events: EventStream,
}

impl<F: FlowMeta> StepHarness<F> {
    /// A context with the default state, in a session named `test`.
    ///
    /// # Panics
    /// Never: the name is a valid id.
    pub fn new(flow: F) -> Self {
        let (sink, events) = channel(usize::MAX, Duration::ZERO);
        let step: Arc<str> = "Step".into();
        let journal = Arc::new(Journal::new(crate::engine::Limits::default().effects));
        journal.load(("test", 1, step.clone()), 0, &BTreeMap::new(), false);
        let scope = Scope {
            session: SessionId::new("test").expect("`test` is a valid id"),
            turn: "turn".into(),
            step,
            visit: 1,
            journal,
            frame: Place::default(),
            level: 0,
            current: None,
            limits: crate::engine::Limits::default().frames(),
            interrupts: Vec::new(),
            round: None,
            unrecorded: Arc::default(),
            message: None,
            last_message: None,
            asked_fields: Vec::new(),
            asked: 0,
            effects: Vec::new(),
            said: 0,
            notes: Vec::new(),
            context: Map::new(),
            tools: F::tools().into(),
            models: Models::default(),
            speakers: Arc::default(),
            speaker: None,
            namespace: MAIN_MEMORY,
            recall: Recall::default(),
            reducers: Arc::default(),
            unsaved: Vec::new(),
            usage: TokenUsage::default(),
            events: sink,
            now: Timestamp::now(),
            clock: Arc::new(SystemClock),
            children: None,
            callers: Vec::new(),
            ledger: None,
            may_ask: true,
            entered: Vec::new(),
        };
        Self { flow, state: F::State::default(), scope, events }
    }

    /// The user says something.
    #[must_use]
    pub fn message(mut self, text: &str) -> Self {
        self.scope.message = Some(text.to_owned());
        self.scope.last_message = Some(text.to_owned());
        self
    }

    /// A value in the context.
    #[must_use]
    pub fn context(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.scope.context.insert(key.to_owned(), value.into());
        self
    }

    /// The context of a step.
    pub fn cx(&mut self) -> StepCx<'_, F> {
        StepCx::new(&self.flow, &mut self.state, &mut self.scope)
    }

    /// The context of an action.
    pub fn action_cx(&mut self) -> ActionCx<'_, F> {
        ActionCx::new(self.cx())
    }

    /// What was said to the user so far: messages, feedback and questions, in order.
    pub fn said(&self) -> Vec<&str> {
        self.scope.effects.iter().filter_map(crate::step::Effect::told).collect()
    }

    /// The events that were told since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.try_next()).collect()
    }
}

/// A clock that stands still until it is moved. Clones show the same time.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<Timestamp>>);

impl ManualClock {
    /// A clock that shows a time.
    pub fn at(time: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(time)))
    }

    /// Moves the clock forward.
    pub fn advance(&self, duration: Duration) {
        let mut time = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *time = time.after(duration);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
