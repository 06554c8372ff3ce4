use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::effect::read;
use super::erased::make;
use super::frame::{self, replay};
use super::reducer::reduce;
use super::{DynStep, Effect, FlowMeta, HasStep, Scope, Step, StepCx, StepKind};
use crate::effect::{Begun, Journal, Place, Running};
use crate::error::{BranchError, EffectError, Error, Result, StepError};
use crate::model::TokenUsage;
use crate::session::{EffectKind, ErrorRecord, FrameRecord, PathEntry};
use crate::transition::Payload;

/// How many steps of one [`Branches`] run at once, unless it says otherwise.
pub const BRANCH_CONCURRENCY: usize = 8;

/// How long steps that are no longer needed may take to finish the effect that they are
/// doing, unless [`Branches::grace`] says otherwise.
pub const BRANCH_GRACE: Duration = Duration::from_secs(5);

/// What becomes of steps side by side when one of them fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailurePolicy {
    /// The first failure cancels the others and is the error of them all (default).
    #[default]
    All,
    /// All run to their end; what the successful ones have done counts.
    RetainSuccesses,
    /// As soon as so many have succeeded the others are cancelled. Fewer are the error
    /// [`QuorumMissed`](crate::error::BranchError::QuorumMissed).
    Quorum(usize),
    /// The first success cancels the others.
    First,
}

/// Steps that an action runs side by side, with [`ActionCx::run_steps`](super::ActionCx::run_steps).
#[must_use = "they run when they are given to `cx.run_steps`"]
pub struct Branches<F: FlowMeta> {
    branches: Vec<Branch<F>>,
    limit: usize,
    policy: FailurePolicy,
    grace: Duration,
}

struct Branch<F: FlowMeta> {
    name: &'static str,
    step: Box<dyn DynStep<F>>,
    input: Payload,
}

/// Names one of several steps that run side by side.
pub struct BranchKey<S> {
    index: usize,
    step: PhantomData<fn() -> S>,
}

impl<F: FlowMeta> Branches<F> {
    /// None so far. They run [`BRANCH_CONCURRENCY`] at once, with [`FailurePolicy::All`].
    pub fn new() -> Self {
        let (limit, policy) = (BRANCH_CONCURRENCY, FailurePolicy::default());
        Self { branches: Vec::new(), limit, policy, grace: BRANCH_GRACE }
    }

    /// Adds a step, with its input. What it comes to is taken out of the results by the key.
    pub fn add<S>(&mut self, input: S::Input) -> BranchKey<S>
    where
        S: Step,
        S::Kind: StepKind<S, Flow = F>,
        F: HasStep<S>,
    {
        let index = self.branches.len();
        let step = make::<F, S>();
        self.branches.push(Branch { name: S::NAME, step, input: Payload::new(input) });
        BranchKey { index, step: PhantomData }
    }

    /// How many run at once; at least 1. One that waits for a person or a time does not count.
    pub fn limit(mut self, steps: usize) -> Self {
        self.limit = steps.max(1);
        self
    }

    /// What becomes of the others when one fails.
    pub fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// How long those that are no longer needed may take to finish the effect that they are
    /// doing. They begin no other one. Default: [`BRANCH_GRACE`].
    pub fn grace(mut self, limit: Duration) -> Self {
        self.grace = limit;
        self
    }
}

impl<F: FlowMeta> Default for Branches<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: FlowMeta> fmt::Debug for Branches<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<&str> = self.branches.iter().map(|branch| branch.name).collect();
        f.debug_struct("Branches")
            .field("steps", &steps)
            .field("limit", &self.limit)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl<S> BranchKey<S> {
    /// The place of the step among the others, counted from 0.
    pub fn index(&self) -> usize {
        self.index
    }
}

impl<S> Clone for BranchKey<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for BranchKey<S> {}

impl<S> fmt::Debug for BranchKey<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BranchKey").field(&self.index).finish()
    }
}

/// What steps side by side have come to.
#[derive(Debug, Clone, PartialEq)]
pub struct BranchResults(Vec<Ended>);

/// What a step has come to, as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Ended {
    Fields(Value),
    Error(ErrorRecord),
}

impl BranchResults {
    /// What a step has come to: the step, with the fields that it has left.
    ///
    /// # Errors
    /// Why it has failed; `branch-cancelled` for one that was not needed any more. Only with a
    /// [`FailurePolicy`] other than `All` can it be one.
    pub fn take<S: Step>(&mut self, key: BranchKey<S>) -> Result<S> {
        match self.0.get_mut(key.index) {
            Some(Ended::Fields(fields)) => read(S::NAME, fields.take()),
            Some(Ended::Error(error)) => {
                let error = error.clone();
                Err(Error::from(EffectError::Failed { error }).into())
            }
            None => Err(StepError::terminal("the key is one of other branches")),
        }
    }

    /// How many have succeeded.
    pub fn succeeded(&self) -> usize {
        self.0.iter().filter(|ended| matches!(ended, Ended::Fields(_))).count()
    }
}

/// What is left of a branch in its action: what its models have cost, the steps it has entered,
/// and what the sessions that it has called have said, by its place.
type Costs = Mutex<(TokenUsage, BTreeMap<Place, Vec<PathEntry>>, BTreeMap<Place, Vec<Effect>>)>;

/// The scope of a branch, whose costs are counted even when it is dropped.
struct BranchScope<'a> {
    scope: Scope,
    costs: &'a Costs,
}

impl Drop for BranchScope<'_> {
    fn drop(&mut self) {
        let mut costs = self.costs.lock().unwrap_or_else(PoisonError::into_inner);
        costs.0 += self.scope.usage;
        let entered = std::mem::take(&mut self.scope.entered);
        costs.1.insert(self.scope.frame.clone(), entered);
        let relayed = std::mem::take(&mut self.scope.effects).into_iter().filter(Effect::is_relay);
        costs.2.entry(self.scope.frame.clone()).or_default().extend(relayed);
    }
}

/// The action around branches, which gets their costs when they are dropped.
struct Around<'a> {
    scope: &'a mut Scope,
    costs: Costs,
}

impl Drop for Around<'_> {
    fn drop(&mut self) {
        let costs = self.costs.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.scope.usage += costs.0;
        self.scope.entered.extend(std::mem::take(&mut costs.1).into_values().flatten());
        self.scope.effects.extend(std::mem::take(&mut costs.2).into_values().flatten());
    }
}

/// What a branch has come to, before it is published.
struct Done {
    result: Result<Value>,
    state: Value,
    said: Vec<Value>,
}

type Branching<'a> = Pin<Box<dyn Future<Output = Done> + Send + 'a>>;

/// A branch on its way.
struct Task<'a> {
    place: Place,
    future: Option<Branching<'a>>,
    /// Keeps the action from being put aside, unless the branch waits.
    running: Option<Running<'a>>,
    begun: bool,
    done: Option<Done>,
}

impl<'a> Task<'a> {
    fn poll(&mut self, journal: &'a Journal, cx: &mut Context<'_>) {
        let Some(future) = &mut self.future else { return };
        self.begun = true;
        self.running.get_or_insert_with(|| journal.run(&self.place));
        if let Poll::Ready(done) = future.as_mut().poll(cx) {
            self.done = Some(done);
            self.future = None;
            self.running = None;
        } else if journal.is_stuck_within(&self.place) {
            self.running = None;
        }
    }

    fn succeeded(&self) -> bool {
        self.done.as_ref().is_some_and(|done| done.result.is_ok())
    }

    fn failed(&self) -> bool {
        self.done.as_ref().is_some_and(|done| done.result.is_err())
    }
}

/// Runs steps side by side, as one effect of an action.
pub(super) async fn run<F: FlowMeta>(
    cx: &mut StepCx<'_, F>,
    branches: Branches<F>,
) -> Result<BranchResults> {
    let Branches { branches, limit, policy, grace } = branches;
    check(cx.scope, &branches, policy)?;
    let mut arguments = Vec::with_capacity(branches.len());
    for branch in &branches {
        let input = branch.input.to_json()?.unwrap_or_default();
        arguments.push(Value::from(vec![Value::from(branch.name), input]));
    }
    let all = Value::Array(arguments.clone());
    let place = match cx.scope.begin(EffectKind::Steps, "steps", Some(&all))? {
        Begun::Replayed { place, outcome } => {
            let fields = replay(cx, "steps", &place, outcome)?;
            return read("steps", fields).map(BranchResults);
        }
        Begun::Fresh { place, .. } => place,
    };
    let before = serde_json::to_value(&*cx.state)?;
    let flow = cx.flow;
    let ask_flow = cx.ask_flow;
    let journal = cx.scope.journal.clone();
    let around = Around { scope: &mut *cx.scope, costs: Costs::default() };
    let mut names = Vec::with_capacity(branches.len());
    let tasks = {
        let Around { scope, costs } = &around;
        let mut tasks = Vec::with_capacity(branches.len());
        for (branch, arguments) in branches.into_iter().zip(&arguments) {
            names.push(branch.name);
            let begun = scope.journal.begin(
                &place,
                EffectKind::Step,
                branch.name,
                Some(arguments),
                scope.clock.now(),
            );
            let begun = begun.map_err(Error::from)?;
            let mut state: F::State = read("state", before.clone())?;
            let (place, outcome) = match begun {
                Begun::Replayed { place, outcome } => (place, Some(outcome)),
                Begun::Fresh { place, .. } => (place, None),
            };
            let mut inner = BranchScope { scope: scope.within(&place, branch.name), costs };
            inner.scope.said = 0;
            inner.scope.may_ask = false;
            let at = place.clone();
            let journal = &journal;
            let future = async move {
                let Branch { name, mut step, input } = branch;
                let scope = &mut inner.scope;
                let result = {
                    let mut cx = StepCx::new(flow, &mut state, scope);
                    cx.ask_flow = ask_flow;
                    match outcome {
                        Some(outcome) => replay(&mut cx, name, &at, outcome),
                        None => frame::run(&mut cx, &mut *step, input).await,
                    }
                };
                finish(journal, &at, scope, &state, result)
            };
            tasks.push(Task {
                place,
                future: Some(Box::pin(future) as Branching<'_>),
                running: None,
                begun: false,
                done: None,
            });
        }
        drive(tasks, &journal, limit, policy, grace).await
    };
    let done: BTreeSet<Place> = (0..)
        .zip(&tasks)
        .filter_map(|(index, task)| task.as_ref().map(|_| place.within(index)))
        .collect();
    let published = publish(around.scope, &names, tasks, policy, &before);
    let entered: Vec<PathEntry> = {
        let mut costs = around.costs.lock().unwrap_or_else(PoisonError::into_inner);
        if published.is_ok() {
            // It is part of what the branches have said.
            costs.2.retain(|place, _| !done.contains(place));
        }
        costs.1.values().flatten().cloned().collect()
    };
    drop(around);
    let (results, state, said) = match published {
        Ok(published) => published,
        Err(error) => {
            // An error that the action handles is the same when it runs again.
            let error = ErrorRecord::from(&Error::from(*error));
            let frame = FrameRecord { entered, ..FrameRecord::default() };
            journal.fail_frame(&place, frame, error.clone());
            return Err(Error::from(EffectError::Failed { error }).into());
        }
    };
    let changed = (state != before).then_some(state);
    if let Some(state) = &changed {
        *cx.state = read("state", state.clone())?;
    }
    for effect in &said {
        cx.scope.effects.push(read("steps", effect.clone())?);
    }
    let record = FrameRecord {
        fields: serde_json::to_value(&results)?,
        state: changed,
        said,
        entered,
        ..FrameRecord::default()
    };
    journal.finish_frame(&place, record);
    Ok(BranchResults(results))
}

fn check<F: FlowMeta>(scope: &Scope, branches: &[Branch<F>], policy: FailurePolicy) -> Result<()> {
    let limit = scope.limits.branches;
    let (session, step, count) =
        (scope.session.to_string(), scope.step.to_string(), branches.len());
    if count > limit {
        let error = BranchError::TooMany { session, step, count, limit };
        return Err(Error::from(error).into());
    }
    if let FailurePolicy::Quorum(needed) = policy
        && needed > count
    {
        let reason = format!("there are only {count}");
        let error = BranchError::QuorumMissed { session, step, needed, succeeded: 0, reason };
        return Err(Error::from(error).into());
    }
    match branches.first() {
        Some(branch) => scope.check_depth(branch.name),
        None => Ok(()),
    }
}

/// Records what a branch has come to, so that it does not run again when another one waits.
fn finish<S: Serialize>(
    journal: &Journal,
    place: &Place,
    scope: &mut Scope,
    state: &S,
    result: Result<Value>,
) -> Done {
    let finished = result.and_then(|fields| {
        let state = serde_json::to_value(state)?;
        let said = scope.said()?;
        let record = FrameRecord {
            fields: fields.clone(),
            state: Some(state.clone()),
            said: said.clone(),
            entered: scope.entered.clone(),
            ..FrameRecord::default()
        };
        journal.finish_frame(place, record);
        Ok((fields, state, said))
    });
    match finished {
        Ok((fields, state, said)) => Done { result: Ok(fields), state, said },
        Err(error) => {
            scope.drop_unsaid();
            let said = scope.said().unwrap_or_default();
            let error = frame::fail(journal, place, scope, &error);
            Done { result: Err(error), state: Value::Null, said }
        }
    }
}

/// Polls branches until the policy is served, then lets the others finish what they are doing.
async fn drive<'a>(
    mut tasks: Vec<Task<'a>>,
    journal: &'a Journal,
    limit: usize,
    policy: FailurePolicy,
    grace: Duration,
) -> Vec<Option<Done>> {
    poll_fn(|cx| {
        let mut at_work = tasks.iter().filter(|task| task.running.is_some()).count();
        for place in 0..tasks.len() {
            let task = &mut tasks[place];
            if task.begun || at_work < limit {
                let was = usize::from(task.running.is_some());
                task.poll(journal, cx);
                at_work = at_work - was + usize::from(task.running.is_some());
                if is_served(&tasks, policy) {
                    return Poll::Ready(());
                }
            }
        }
        // A place that has become free is taken at once.
        if at_work < limit && tasks.iter().any(|task| !task.begun) {
            cx.waker().wake_by_ref();
        }
        if tasks.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let left: Vec<Place> =
        tasks.iter().filter(|task| task.future.is_some()).map(|task| task.place.clone()).collect();
    journal.close(&left);
    let busy = |task: &Task<'_>| {
        task.begun && task.future.is_some() && journal.is_running_within(&task.place)
    };
    if tasks.iter().any(busy) {
        let finish = poll_fn(|cx| {
            for task in tasks.iter_mut().filter(|task| busy(task)) {
                if let Some(future) = &mut task.future
                    && future.as_mut().poll(cx).is_ready()
                {
                    task.future = None;
                }
            }
            if tasks.iter().any(busy) { Poll::Pending } else { Poll::Ready(()) }
        });
        // Those that do not make it are dropped where they are.
        let _ = tokio::time::timeout(grace, finish).await;
    }
    tasks.into_iter().map(|task| task.done).collect()
}

/// Whether the others are not needed any more, or there are none.
fn is_served(tasks: &[Task<'_>], policy: FailurePolicy) -> bool {
    let over = tasks.iter().all(|task| task.done.is_some());
    let succeeded = tasks.iter().filter(|task| task.succeeded()).count();
    let failed = tasks.iter().filter(|task| task.failed()).count();
    let needed = match policy {
        FailurePolicy::All => return over || failed > 0,
        FailurePolicy::RetainSuccesses => return over,
        FailurePolicy::Quorum(needed) => needed,
        FailurePolicy::First => 1,
    };
    over || succeeded >= needed || tasks.len() - failed < needed
}

type Published = (Vec<Ended>, Value, Vec<Value>);

/// Puts together what the branches have come to; nothing of it counts unless all of it does.
fn publish(
    scope: &Scope,
    names: &[&str],
    done: Vec<Option<Done>>,
    policy: FailurePolicy,
    before: &Value,
) -> Result<Published, Box<BranchError>> {
    let (session, step) = (scope.session.to_string(), scope.step.to_string());
    let mut results = Vec::with_capacity(done.len());
    let mut states = Vec::new();
    let mut effects = Vec::new();
    let mut reasons = BTreeSet::new();
    let mut served = match policy {
        FailurePolicy::Quorum(needed) => needed,
        FailurePolicy::First => 1,
        FailurePolicy::All | FailurePolicy::RetainSuccesses => usize::MAX,
    };
    let needed = served;
    for (index, done) in done.into_iter().enumerate() {
        match done {
            Some(Done { result: Ok(fields), state, said }) if served > 0 => {
                served = served.saturating_sub(usize::from(served != usize::MAX));
                results.push(Ended::Fields(fields));
                states.push((index, state));
                effects.extend(said);
            }
            Some(Done { result: Err(error), said, .. }) => {
                effects.extend(said.into_iter().filter(Effect::is_recorded_relay));
                let error = ErrorRecord::of_step(&error);
                if policy == FailurePolicy::All {
                    let branch = format!("{index} (`{}`)", names[index]);
                    let failed = BranchError::Failed { session, step, branch, error };
                    return Err(Box::new(failed));
                }
                reasons.insert(error.message.clone());
                results.push(Ended::Error(error));
            }
            left => {
                let said = left.into_iter().flat_map(|done| done.said);
                effects.extend(said.filter(Effect::is_recorded_relay));
                let branch = format!("{index} (`{}`)", names[index]);
                let error = Error::from(BranchError::Cancelled { branch });
                results.push(Ended::Error(ErrorRecord::from(&error)));
            }
        }
    }
    if served > 0 && served != usize::MAX {
        let reason = reasons.into_iter().collect::<Vec<_>>().join("; ");
        let succeeded = needed - served;
        let missed = BranchError::QuorumMissed { session, step, needed, succeeded, reason };
        return Err(Box::new(missed));
    }
    let state = reduce(&scope.reducers, before, &states).map_err(|conflict| {
        let (a, b) = conflict.branches;
        Box::new(BranchError::Conflict {
            session,
            step,
            field: conflict.field,
            branches: format!("{a} (`{}`) and {b} (`{}`)", names[a], names[b]),
            reason: conflict.reason,
        })
    })?;
    Ok((results, state, effects))
}
