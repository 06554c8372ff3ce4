use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    BranchResults, Branches, FlowMeta, HasStep, Scope, Step, StepCx, StepKind, driver, frame,
    parallel,
};
use crate::effect::{Approved, Begun, Decision, Denied, Journal, Place, Request};
use crate::error::{EffectError, Error, Result, StepError, ToolError};
use crate::event::Event;
use crate::session::{Display, EffectKind, EffectOutcome, ErrorRecord, Interrupt, Operation};
use crate::telemetry::{ToolSpan, execute_tool};
use crate::time::Timestamp;
use crate::tool::{ToolCall, ToolCx, ToolReplay};
use crate::transition::Payload;

/// What an action works with: all of [`StepCx`], and [effects](crate::effect).
///
/// An effect is done once, however often the action runs until it is over. Effects may be
/// made side by side with `join!`.
#[derive(Debug)]
pub struct ActionCx<'a, F: FlowMeta>(StepCx<'a, F>);

impl<'a, F: FlowMeta> ActionCx<'a, F> {
    pub(crate) fn new(cx: StepCx<'a, F>) -> Self {
        Self(cx)
    }

    /// Calls a tool of the flow.
    ///
    /// The tool gets an [idempotency key](ToolCx::idempotency_key). When the action runs
    /// again, the recorded result is given back; a call of which no result is recorded is made
    /// again with the same key. Tools for which that is not right say so with
    /// `#[tool(replay = never)]` or `#[tool(replay = always)]`, see [`ToolReplay`].
    ///
    /// # Errors
    /// What the tool returned, as `tool-failed`; [`EffectError::InDoubt`] for a call that is not
    /// to be made again and may have been made.
    pub fn tool<T: ToolCall<F>>(&self, call: T) -> impl Future<Output = Result<T::Output>> + Send {
        let scope = &*self.0.scope;
        let arguments = serde_json::to_value(&call).map_err(|e| ToolError::Arguments {
            tool: T::NAME.to_owned(),
            path: ".".to_owned(),
            reason: e.to_string(),
        });
        let begun = arguments.map(|arguments| {
            let begun = scope.begin(EffectKind::Tool, T::NAME, Some(&arguments));
            (begun, arguments)
        });
        let flow = self.0.flow;
        async move {
            let (begun, arguments) = begun.map_err(Error::from)?;
            if T::REPLAY == ToolReplay::Never
                && scope.ledger.as_ref().is_some_and(|ledger| !ledger.commits_begins())
            {
                return Err(StepError::terminal(format!(
                    "tool `{}` is `replay = never`, but no tool that the flow declares is: add \
                     `.replay(ToolReplay::Never)` to its definition",
                    T::NAME
                )));
            }
            let work = |key: String, repeated: bool| async move {
                scope.events.emit(|| Event::ToolCall {
                    id: key.clone(),
                    tool: T::NAME.to_owned(),
                    arguments: arguments.clone(),
                });
                let mut cx = ToolCx::new(scope.session.clone(), &*scope.turn, &*scope.step, &*key);
                if repeated {
                    cx = cx.begun_before();
                }
                let span = ToolSpan {
                    tool: T::NAME,
                    id: &key,
                    arguments: &arguments,
                    conversation: scope.session.as_str(),
                };
                let value =
                    |output: &T::Output| serde_json::to_value(output).unwrap_or(Value::Null);
                let result = execute_tool(span, call.call(flow, &cx), value).await;
                scope.events.emit(|| {
                    let (result, failed) = match &result {
                        Ok(output) => (value(output), false),
                        Err(error) => (Value::String(error.to_string()), true),
                    };
                    Event::ToolResult { id: key, tool: T::NAME.to_owned(), result, failed }
                });
                result.map_err(|error| ErrorRecord::from(&Error::from(error)))
            };
            scope.perform(T::NAME, T::REPLAY, begun?, work).await
        }
    }

    /// Runs another step of the flow within this one, and gives the step back as it has left
    /// its fields: what a step comes to is what it leaves in them.
    ///
    /// The step begins anew, from its default and its input, whatever it was when the session
    /// stood at it. It speaks in this step's memory, through its own model, and works on the
    /// shared state. Its hooks `on_enter` and `on_exit` run, and its gate is asked. Its way out
    /// is not gone: the session stays at this step, which
    /// [`current_step`](StepCx::current_step) names, while [`step`](StepCx::step) names the one
    /// that runs. A step that stays waits for the user's next message, durably, and goes on
    /// with that. It cannot hand off, and when it escalates it fails.
    ///
    /// It is one effect: once it is over it does not run again when this step does. Until then
    /// it runs again from its beginning, or from where it last asked the user, and its own
    /// effects are done once.
    ///
    /// ```
    /// # use flow_core::prelude::*;
    /// # #[flow(id = "f", steps(Order, Quote))] #[derive(Clone)] struct Desk;
    /// # impl Flow for Desk {}
    /// #[step(action, input = u32, next(end))]
    /// #[derive(Default, Serialize, Deserialize, JsonSchema)]
    /// struct Quote {
    ///     cents: u32,
    /// }
    ///
    /// impl Action for Quote {
    ///     type Flow = Desk;
    ///     async fn on_enter(&mut self, parcels: u32, _: &mut StepCx<'_, Desk>) -> Result<()> {
    ///         self.cents = 450 * parcels;
    ///         Ok(())
    ///     }
    ///     async fn run(&mut self, _: &mut ActionCx<'_, Desk>) -> Result<QuoteNext> {
    ///         Ok(QuoteNext::End("quoted".into()))
    ///     }
    /// }
    ///
    /// # #[step(action, next(end))]
    /// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
    /// # struct Order;
    /// # impl Action for Order {
    /// # type Flow = Desk;
    /// async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<OrderNext> {
    ///     let quote: Quote = cx.run_step(3).await?;
    ///     cx.say(format!("{} cents", quote.cents));
    ///     Ok(OrderNext::End("quoted".into()))
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// What the step has failed with. [`EffectError::StepsTooDeep`] beyond
    /// [`Limits::step_depth`](crate::Limits::step_depth).
    pub async fn run_step<S>(&mut self, input: S::Input) -> Result<S>
    where
        S: Step,
        S::Kind: StepKind<S, Flow = F>,
        F: HasStep<S>,
    {
        let arguments = serde_json::to_value(&input)?;
        let step = driver::make::<F, S>();
        let input = Payload::new(input);
        let fields = frame::call(&mut self.0, S::NAME, step, input, &arguments).await?;
        read(S::NAME, fields)
    }

    /// Runs steps of the flow side by side, and gives what each has come to.
    ///
    /// Each runs as [`run_step`](Self::run_step) runs one, on a copy of the shared state of its
    /// own. What they have done to the state and the conversation is put together when all are
    /// over, in the order in which they were added, whatever finished first; writes to one
    /// field of the state by the [`Reducers`](super::Reducers) of the flow. A step that waits for an
    /// approval or a time lets the others run to their ends, and they do not run again when it
    /// goes on. None of them can wait for the user's message. A denial that a step does not
    /// handle is its failure.
    ///
    /// ```
    /// # use flow_core::prelude::*;
    /// # use flow_core::step::{Branches, FailurePolicy};
    /// # #[flow(id = "f", steps(Plan, Search))] #[derive(Clone)] struct Desk;
    /// # impl Flow for Desk {}
    /// # #[step(action, input = String, next(end))]
    /// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
    /// # struct Search { found: Vec<String> }
    /// # impl Action for Search {
    /// #     type Flow = Desk;
    /// #     async fn run(&mut self, _: &mut ActionCx<'_, Desk>) -> Result<SearchNext> {
    /// #         Ok(SearchNext::End("searched".into()))
    /// #     }
    /// # }
    /// # #[step(action, next(end))]
    /// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
    /// # struct Plan;
    /// # impl Action for Plan {
    /// # type Flow = Desk;
    /// async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<PlanNext> {
    ///     let mut branches = Branches::new().limit(4).on_failure(FailurePolicy::RetainSuccesses);
    ///     let hotels = branches.add::<Search>("hotels".into());
    ///     let flights = branches.add::<Search>("flights".into());
    ///     let mut results = cx.run_steps(branches).await?;
    ///     let flights = results.take(flights)?.found;
    ///     let hotels = results.take(hotels).map(|hotels| hotels.found).unwrap_or_default();
    ///     cx.say(format!("{} flights, {} hotels", flights.len(), hotels.len()));
    ///     Ok(PlanNext::End("planned".into()))
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Failed`](crate::error::BranchError::Failed) and [`QuorumMissed`](crate::error::BranchError::QuorumMissed) as the
    /// [`FailurePolicy`](super::FailurePolicy) says, [`Conflict`](crate::error::BranchError::Conflict) for writes
    /// that do not become one, [`TooMany`](crate::error::BranchError::TooMany) beyond
    /// [`Limits::branches`](crate::Limits::branches).
    pub async fn run_steps(&mut self, branches: Branches<F>) -> Result<BranchResults> {
        parallel::run(&mut self.0, branches).await
    }

    /// Does something on the outside that is not a tool. `name` says what, in errors and in
    /// the journal.
    ///
    /// # Errors
    /// What `work` returned.
    ///
    /// ```
    /// # use flow_core::prelude::*;
    /// # #[flow(id = "f", steps(Fetch))] #[derive(Clone)] struct Desk;
    /// # impl Flow for Desk {}
    /// # async fn quote() -> std::io::Result<u32> { Ok(120) }
    /// # #[step(action, next(end))]
    /// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
    /// # struct Fetch;
    /// # impl Action for Fetch {
    /// # type Flow = Desk;
    /// async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<FetchNext> {
    ///     let price = cx.run("quote", || quote()).await?; // asked once
    ///     cx.say(format!("{price} euros"));
    ///     Ok(FetchNext::End("quoted".into()))
    /// }
    /// # }
    /// ```
    pub fn run<T, E, W>(
        &self,
        name: &str,
        work: impl FnOnce() -> W + Send,
    ) -> impl Future<Output = Result<T>> + Send
    where
        T: Serialize + DeserializeOwned + Send,
        E: Into<StepError>,
        W: Future<Output = Result<T, E>> + Send,
    {
        let scope = &*self.0.scope;
        let begun = scope.begin(EffectKind::Run, name, None);
        let name = name.to_owned();
        async move {
            let work = |key: String, _| {
                let name = name.clone();
                async move {
                    let done = work().await;
                    let done = done.map_err(|error| ErrorRecord::of_step(&error.into()))?;
                    let kind = EffectKind::Run;
                    scope.events.emit(|| Event::Effect { id: key, kind, name });
                    Ok(done)
                }
            };
            scope.perform(&name, ToolReplay::ByKey, begun?, work).await
        }
    }

    /// The time, by the engine's clock. When the action runs again it is the same.
    pub fn now(&self) -> Timestamp {
        let scope = &*self.0.scope;
        scope.take(EffectKind::Now, || scope.clock.now())
    }

    /// A fresh random UUID. When the action runs again it is the same.
    pub fn uuid(&self) -> String {
        self.0.scope.take(EffectKind::Uuid, || uuid::Uuid::new_v4().to_string())
    }

    /// A random number, not fit for secrets. When the action runs again it is the same.
    pub fn random(&self) -> u64 {
        self.0.scope.take(EffectKind::Random, || fastrand::u64(..))
    }

    /// Pauses, durably: the session is put aside, and a [sweeper](crate::Engine::sweep) takes
    /// it up again.
    ///
    /// # Errors
    /// When the journal says something else.
    pub fn sleep(&self, pause: Duration) -> impl Future<Output = Result<()>> + Send {
        let scope = &*self.0.scope;
        let arguments = Value::from(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
        let begun = scope.begin(EffectKind::Sleep, "sleep", Some(&arguments));
        async move { scope.rest(begun?, || scope.clock.now().after(pause)).await }
    }

    /// Pauses until a time, durably. A time that has passed is no pause.
    ///
    /// # Errors
    /// When the journal says something else.
    pub fn sleep_until(&self, time: Timestamp) -> impl Future<Output = Result<()>> + Send {
        let scope = &*self.0.scope;
        let arguments = Value::from(time.as_millis());
        let begun = scope.begin(EffectKind::Sleep, "sleep", Some(&arguments));
        async move { scope.rest(begun?, || time).await }
    }

    /// Waits, durably, until a person has approved. See [`Approve`].
    pub fn approve(&self, request: impl Into<Request>) -> Approve<'_> {
        let request = request.into();
        let Request { display, operation, .. } = &request;
        let arguments = operation.as_ref().map(|operation| {
            Value::from(vec![operation.tool.clone(), operation.argument_hash.clone()])
        });
        let begun =
            self.0.scope.begin(EffectKind::Approval, &display.title.clone(), arguments.as_ref());
        Approve { scope: self.0.scope, begun, request }
    }

    /// Waits, durably, for a signal from the outside with a payload of a type.
    pub fn signal<T: DeserializeOwned + JsonSchema>(&self, name: &str) -> Answer<'_, T> {
        Answer::new(self.0.scope, EffectKind::Signal, name, Vec::new(), schema::<T>())
    }

    /// Waits, durably, until a person has chosen one of the options.
    pub fn choose<O: Into<String>>(
        &self,
        title: &str,
        options: impl IntoIterator<Item = O>,
    ) -> Answer<'_, String> {
        let options = options.into_iter().map(Into::into).collect();
        Answer::new(self.0.scope, EffectKind::Choice, title, options, None)
    }

    /// Waits, durably, until a person has given data of a type.
    pub fn input<T: DeserializeOwned + JsonSchema>(&self, title: &str) -> Answer<'_, T> {
        Answer::new(self.0.scope, EffectKind::Input, title, Vec::new(), schema::<T>())
    }
}

fn schema<T: JsonSchema>() -> Option<Value> {
    Some(schemars::schema_for!(T).into())
}

impl<'a, F: FlowMeta> Deref for ActionCx<'a, F> {
    type Target = StepCx<'a, F>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<F: FlowMeta> DerefMut for ActionCx<'_, F> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// A request for approval, to be awaited.
///
/// ```
/// # use flow_core::prelude::*;
/// # use flow_core::effect::Decision;
/// # #[flow(id = "f", steps(Pay))] #[derive(Clone)] struct Desk;
/// # impl Flow for Desk {}
/// # #[step(action, next(end))]
/// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// # struct Pay;
/// # impl Action for Pay {
/// # type Flow = Desk;
/// # async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<PayNext> {
/// cx.approve("charge 120 euros").await?; // a denial ends the run, see `Action::on_denied`
/// match cx.approve("ship at once").decision().await? {
///     Decision::Approved(_) => cx.say("It ships at once."),
///     Decision::Denied(denied) => cx.say(format!("It ships later: {denied}.")),
/// }
/// # Ok(PayNext::End("paid".into()))
/// # }
/// # }
/// ```
#[must_use = "nobody is asked before it is awaited"]
pub struct Approve<'a> {
    scope: &'a Scope,
    begun: Result<Begun, StepError>,
    request: Request,
}

impl Approve<'_> {
    /// The decision as a value: a denial is not an error.
    ///
    /// # Errors
    /// When the journal says something else.
    pub async fn decision(self) -> Result<Decision> {
        let Request { display, deadline, approve_on_expiry, operation } = self.request;
        let reason = Some("nobody decided before the deadline".to_owned());
        let expired = if approve_on_expiry {
            Decision::Approved(Approved { by: None, reason })
        } else {
            Decision::Denied(Denied { by: None, reason })
        };
        let name = display.title.clone();
        let wait = Wait {
            kind: EffectKind::Approval,
            name: name.clone(),
            display,
            allowed: vec!["approved".to_owned(), "denied".to_owned()],
            response_schema: None,
            deadline,
            on_expiry: deadline
                .map(|_| serde_json::to_value(expired).map(EffectOutcome::Value))
                .transpose()?,
            operation,
        };
        let value = self.scope.wait(self.begun?, wait).await?;
        read(&name, value)
    }
}

impl<'a> IntoFuture for Approve<'a> {
    type Output = Result<Approved>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Approved>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.decision().await?.into_result()?) })
    }
}

impl fmt::Debug for Approve<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approve").field("request", &self.request).finish_non_exhaustive()
    }
}

/// A signal, choice or input that is waited for, to be awaited.
#[must_use = "nobody is asked before it is awaited"]
pub struct Answer<'a, T> {
    scope: &'a Scope,
    begun: Result<Begun, StepError>,
    wait: Wait,
    value: PhantomData<fn() -> T>,
}

impl<'a, T: DeserializeOwned> Answer<'a, T> {
    fn new(
        scope: &'a Scope,
        kind: EffectKind,
        name: &str,
        allowed: Vec<String>,
        response_schema: Option<Value>,
    ) -> Self {
        let begun = scope.begin(kind, name, None);
        let display = Display { title: name.to_owned(), description: String::new() };
        let wait = Wait {
            kind,
            name: name.to_owned(),
            display,
            allowed,
            response_schema,
            deadline: None,
            on_expiry: None,
            operation: None,
        };
        Self { scope, begun, wait, value: PhantomData }
    }

    /// Says more to the person who is asked.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.wait.display.description = text.into();
        self
    }

    /// How long it is waited for. After that it is the error
    /// [`EffectError::Expired`]. Default: for ever.
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.wait.deadline = Some(limit);
        self
    }
}

impl<'a, T: DeserializeOwned + 'a> IntoFuture for Answer<'a, T> {
    type Output = Result<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { scope, begun, wait, .. } = self;
        Box::pin(async move {
            let name = wait.name.clone();
            read(&name, scope.wait(begun?, wait).await?)
        })
    }
}

impl<T> fmt::Debug for Answer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("name", &self.wait.name).finish_non_exhaustive()
    }
}

/// What is waited for.
pub(super) struct Wait {
    pub(super) kind: EffectKind,
    pub(super) name: String,
    pub(super) display: Display,
    pub(super) allowed: Vec<String>,
    pub(super) response_schema: Option<Value>,
    pub(super) deadline: Option<Duration>,
    pub(super) on_expiry: Option<EffectOutcome>,
    pub(super) operation: Option<Operation>,
}

/// Takes a request back when its future is dropped.
struct Waiting<'a>(&'a Journal, &'a Place);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.stop_waiting(self.1);
    }
}

pub(super) fn read<T: DeserializeOwned>(effect: &str, value: Value) -> Result<T> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let effect = format!("`{effect}`");
        Error::from(EffectError::Unreadable { effect, reason: error.to_string() }).into()
    })
}

pub(super) fn outcome_of(outcome: EffectOutcome) -> Result<Value> {
    match outcome {
        EffectOutcome::Value(value) => Ok(value),
        EffectOutcome::Error(error) => Err(Error::from(EffectError::Failed { error }).into()),
    }
}

impl Scope {
    pub(super) fn begin(
        &self,
        kind: EffectKind,
        name: &str,
        arguments: Option<&Value>,
    ) -> Result<Begun> {
        let begun = self.journal.begin(&self.frame, kind, name, arguments, self.clock.now());
        begun.map_err(|error| Error::from(error).into())
    }

    /// An effect that is over at once.
    fn take<T: Serialize + DeserializeOwned>(
        &self,
        kind: EffectKind,
        make: impl FnOnce() -> T,
    ) -> T {
        match self.journal.begin(&self.frame, kind, kind.as_str(), None, self.clock.now()) {
            Ok(Begun::Replayed { outcome: EffectOutcome::Value(value), .. }) => {
                serde_json::from_value(value).unwrap_or_else(|_| make())
            }
            Ok(Begun::Fresh { place, .. }) => {
                let value = make();
                let written = serde_json::to_value(&value).unwrap_or(Value::Null);
                self.journal.finish(&place, EffectOutcome::Value(written));
                value
            }
            // The journal has kept the divergence: the run fails.
            Ok(Begun::Replayed { outcome: EffectOutcome::Error(_), .. }) | Err(_) => make(),
        }
    }

    /// Does the work of an effect, unless it is over already.
    pub(super) async fn perform<T, W>(
        &self,
        name: &str,
        replay: ToolReplay,
        begun: Begun,
        work: impl FnOnce(String, bool) -> W,
    ) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
        W: Future<Output = Result<T, ErrorRecord>>,
    {
        let once = replay == ToolReplay::Never;
        let (place, key, repeated) = match begun {
            Begun::Replayed { outcome, .. } => return read(name, outcome_of(outcome)?),
            Begun::Fresh { place, in_doubt: true, .. } if once => {
                return Err(Error::from(self.journal.doubt(&place)).into());
            }
            Begun::Fresh { place, key, repeated, .. } => (place, key, repeated),
        };
        let _running = self.journal.run(&place);
        self.events.ready().await;
        self.journal.mark(&place, once);
        self.record_effects(once).await;
        let mut result = work(key, repeated).await;
        if let Err(error) = &mut result {
            error.retryable &= !once;
        }
        let outcome = match &result {
            Ok(value) => EffectOutcome::Value(serde_json::to_value(value)?),
            Err(error) => EffectOutcome::Error(error.clone()),
        };
        if replay != ToolReplay::Always {
            self.journal.finish(&place, outcome);
        }
        if once {
            self.record_effects(true).await;
        }
        result.map_err(|error| Error::from(EffectError::Failed { error }).into())
    }

    /// Commits the journal, when the durability or an effect asks for it. When that fails the
    /// run ends here, whatever the code makes of errors: it is no outcome of an effect.
    pub(super) async fn record_effects(&self, asked: bool) {
        let Some(ledger) = &self.ledger else { return };
        if !asked && !ledger.records_effects() {
            return;
        }
        let effects = self.journal.records();
        if let Err(error) = ledger.commit_effects(effects, self.clock.now()).await {
            self.unrecorded.store(true, Ordering::Relaxed);
            self.journal.break_off(error);
            std::future::pending::<()>().await;
        }
    }

    /// Waits for an answer, unless it is there already.
    pub(super) async fn wait(&self, begun: Begun, wait: Wait) -> Result<Value> {
        let (place, due) = match begun {
            Begun::Replayed { outcome, .. } => return outcome_of(outcome),
            Begun::Fresh { place, due, .. } => (place, due),
        };
        let due = due.or_else(|| wait.deadline.map(|limit| self.clock.now().after(limit)));
        if let Some(due) = due {
            self.journal.set_due(&place, due);
        }
        let expired = || EffectOutcome::expired(&wait.name);
        let on_expiry = due.map(|_| wait.on_expiry.unwrap_or_else(expired));
        self.journal.wait(&place, |request_id| Interrupt {
            request_id,
            kind: wait.kind,
            step: self.step.to_string(),
            name: wait.name,
            display: wait.display,
            allowed: wait.allowed,
            response_schema: wait.response_schema,
            deadline: due,
            on_expiry,
            operation: wait.operation,
        });
        let _waiting = Waiting(&self.journal, &place);
        // The engine puts the action aside and runs it again with the answer.
        std::future::pending().await
    }

    /// Waits for a time.
    async fn rest(&self, begun: Begun, until: impl FnOnce() -> Timestamp) -> Result<()> {
        let due = match &begun {
            Begun::Replayed { .. } => return Ok(()),
            Begun::Fresh { place, due, .. } => {
                let due = due.unwrap_or_else(until);
                self.journal.set_due(place, due);
                if due <= self.clock.now() {
                    self.journal.finish(place, EffectOutcome::Value(Value::Null));
                    return Ok(());
                }
                due
            }
        };
        let wait = Wait {
            kind: EffectKind::Sleep,
            name: "sleep".to_owned(),
            display: Display { title: format!("until {due}"), description: String::new() },
            allowed: Vec::new(),
            response_schema: None,
            deadline: None,
            on_expiry: Some(EffectOutcome::Value(Value::Null)),
            operation: None,
        };
        let begun = match begun {
            Begun::Fresh { place, key, repeated, in_doubt, .. } => {
                Begun::Fresh { place, key, repeated, in_doubt, due: Some(due) }
            }
            replayed => replayed,
        };
        self.wait(begun, wait).await.map(drop)
    }
}
