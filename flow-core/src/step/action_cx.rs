use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::effect::read;
use super::{
    Answer, Approve, BranchResults, Branches, FlowMeta, HasStep, Step, StepCx, StepKind, erased,
    frame, parallel,
};
use crate::effect::ApprovalRequest;
use crate::error::{Error, Result, StepError, ToolError};
use crate::event::Event;
use crate::session::{EffectKind, ErrorRecord};
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
    /// What the tool returned, as `tool-failed`;
    /// [`EffectError::InDoubt`](crate::error::EffectError::InDoubt) for a call that is not to be
    /// made again and may have been made.
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
    /// with that. It cannot hand off, no call of its model can wait for an approval, and when it
    /// escalates it fails.
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
    /// What the step has failed with.
    /// [`EffectError::StepDepth`](crate::error::EffectError::StepDepth) beyond
    /// [`Limits::step_depth`](crate::Limits::step_depth), and
    /// [`EffectError::Unfit`](crate::error::EffectError::Unfit) when the step hands off or its
    /// model asks for a call that needs an approval.
    pub async fn run_step<S>(&mut self, input: S::Input) -> Result<S>
    where
        S: Step,
        S::Kind: StepKind<S, Flow = F>,
        F: HasStep<S>,
    {
        let arguments = serde_json::to_value(&input)?;
        let step = erased::make::<F, S>();
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
    /// [`BranchError`](crate::error::BranchError): `Failed` and `QuorumMissed` as the
    /// [`FailurePolicy`](super::FailurePolicy) says, `Conflict` for writes that do not become one,
    /// `TooMany` beyond [`Limits::branches`](crate::Limits::branches).
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
    ///
    /// # Errors
    /// Once it is awaited: the [denial](crate::effect::Denied), which a deadline that has passed
    /// is too, unless [`Approve::decision`] takes it as a value.
    pub fn approve(&self, request: impl Into<ApprovalRequest>) -> Approve<'_> {
        let request = request.into();
        let ApprovalRequest { display, operation, .. } = &request;
        let arguments = operation.as_ref().map(|operation| {
            Value::from(vec![operation.tool.clone(), operation.argument_hash.clone()])
        });
        let begun =
            self.0.scope.begin(EffectKind::Approval, &display.title.clone(), arguments.as_ref());
        Approve { scope: self.0.scope, begun, request }
    }

    /// Waits, durably, for a signal from the outside with a payload of a type.
    ///
    /// # Errors
    /// Once it is awaited: [`EffectError::Expired`](crate::error::EffectError::Expired) after its
    /// [deadline](Answer::deadline).
    pub fn signal<T: DeserializeOwned + JsonSchema>(&self, name: &str) -> Answer<'_, T> {
        Answer::new(self.0.scope, EffectKind::Signal, name, Vec::new(), schema::<T>())
    }

    /// Waits, durably, until a person has chosen one of the options.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    pub fn choose<O: Into<String>>(
        &self,
        title: &str,
        options: impl IntoIterator<Item = O>,
    ) -> Answer<'_, String> {
        let options = options.into_iter().map(Into::into).collect();
        Answer::new(self.0.scope, EffectKind::Choice, title, options, None)
    }

    /// Waits, durably, until a person has given data of a type.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
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
