use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use super::{ChatModel, ChatRequest, ChatResponse, ModelError, ModelEvent};
use crate::event::EventSink;
use crate::telemetry::{ChatCall, chat};

/// Longer than any call: the clock cannot hold every duration.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// How a model is called.
///
/// An attempt that fails in a way that may pass ([`ModelError::retryable`]) is made again
/// after a wait that doubles each time, with jitter, or after as long as the provider asks
/// for. A flow says it with [`config_call_policy`](crate::flow::Flow::config_call_policy).
///
/// ```
/// use std::time::Duration;
/// use flow_core::model::CallPolicy;
///
/// let policy = CallPolicy::default()
///     .attempts(5)
///     .first_wait(Duration::from_secs(1))
///     .turn_deadline(Duration::from_secs(120));
/// assert_eq!(policy.attempt_timeout, Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallPolicy {
    /// How long one attempt may take. Default: 60 seconds.
    pub attempt_timeout: Duration,
    /// How many attempts are made in all. Default: 3.
    pub attempts: u32,
    /// The wait before the second attempt. Default: 500 milliseconds.
    pub first_wait: Duration,
    /// The longest wait before an attempt, also when the provider asks for more.
    /// Default: 30 seconds.
    pub longest_wait: Duration,
    /// How long after its beginning a turn may still be busy with models. No attempt starts
    /// later, one that runs is cut, and a wait that would end later is not begun, not even when
    /// the provider asks for it: the call fails with [`ModelError::Deadline`]. Tools are not
    /// cut, but the time that they take counts. Default: 5 minutes.
    pub turn_deadline: Duration,
    /// How often in one turn of a step the model may ask for tools. Default: 8.
    pub tool_rounds: u32,
    /// How long one tool may take. One that blocks its thread cannot be stopped.
    /// Default: 60 seconds.
    pub tool_timeout: Duration,
    /// How many calls of [parallel](crate::tool::ToolDefinition::parallel) tools run at the
    /// same time; the others of a round wait. Default: 8.
    pub parallel_tools: usize,
    /// The most bytes of a tool's result that a model is told; the middle is left out of a
    /// longer one. Default: 32 KiB.
    pub tool_result_bytes: usize,
}

impl Default for CallPolicy {
    fn default() -> Self {
        Self {
            attempt_timeout: Duration::from_secs(60),
            attempts: 3,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
            turn_deadline: Duration::from_secs(300),
            tool_rounds: 8,
            tool_timeout: Duration::from_secs(60),
            parallel_tools: 8,
            tool_result_bytes: 32 * 1024,
        }
    }
}

impl CallPolicy {
    /// Sets [`attempt_timeout`](Self::attempt_timeout).
    #[must_use]
    pub fn attempt_timeout(mut self, limit: Duration) -> Self {
        self.attempt_timeout = limit;
        self
    }

    /// Sets [`attempts`](Self::attempts); at least 1.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// Sets [`first_wait`](Self::first_wait).
    #[must_use]
    pub fn first_wait(mut self, wait: Duration) -> Self {
        self.first_wait = wait;
        self
    }

    /// Sets [`longest_wait`](Self::longest_wait).
    #[must_use]
    pub fn longest_wait(mut self, wait: Duration) -> Self {
        self.longest_wait = wait;
        self
    }

    /// Sets [`turn_deadline`](Self::turn_deadline).
    #[must_use]
    pub fn turn_deadline(mut self, limit: Duration) -> Self {
        self.turn_deadline = limit;
        self
    }

    /// Sets [`tool_rounds`](Self::tool_rounds).
    #[must_use]
    pub fn tool_rounds(mut self, rounds: u32) -> Self {
        self.tool_rounds = rounds;
        self
    }

    /// Sets [`tool_timeout`](Self::tool_timeout).
    #[must_use]
    pub fn tool_timeout(mut self, limit: Duration) -> Self {
        self.tool_timeout = limit;
        self
    }

    /// Sets [`parallel_tools`](Self::parallel_tools); at least 1.
    #[must_use]
    pub fn parallel_tools(mut self, calls: usize) -> Self {
        self.parallel_tools = calls.max(1);
        self
    }

    /// Sets [`tool_result_bytes`](Self::tool_result_bytes).
    #[must_use]
    pub fn tool_result_bytes(mut self, bytes: usize) -> Self {
        self.tool_result_bytes = bytes;
        self
    }

    fn waits(&self) -> impl Iterator<Item = Duration> {
        ExponentialBuilder::default()
            .with_min_delay(self.first_wait)
            .with_max_delay(self.longest_wait)
            .with_max_times(self.attempts.max(1) as usize - 1)
            .with_jitter()
            .build()
    }
}

/// When a turn has to be done with its models.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// The deadline of a turn that begins now; nothing when it is too far off to be reached.
    pub(crate) fn begin(policy: &CallPolicy) -> Option<Self> {
        let limit = policy.turn_deadline;
        Instant::now().checked_add(limit).map(|at| Self { at, limit })
    }

    fn passes(&self, wait: Duration) -> bool {
        Instant::now().checked_add(wait).is_none_or(|end| end >= self.at)
    }

    fn error(&self, model: &str, last: Option<ModelError>) -> ModelError {
        let last = last.map(Box::new);
        ModelError::Deadline { model: model.to_owned(), limit: self.limit, last }
    }
}

/// Calls a model as a policy says, outside of a turn: [`turn_deadline`](CallPolicy::turn_deadline)
/// does not apply. `name` is what errors call the model.
///
/// # Errors
/// What the last attempt said, or the first one that trying again cannot cure.
pub async fn complete(
    model: &dyn ChatModel,
    name: &str,
    request: &ChatRequest,
    policy: &CallPolicy,
) -> Result<ChatResponse, ModelError> {
    complete_in(None, Callee { model, name, policy, deadline: None }, request).await
}

/// Calls a model as [`complete`] does, in the conversation of a session.
///
/// # Errors
/// As [`complete`], and [`ModelError::Deadline`].
pub(crate) async fn complete_in(
    conversation: Option<&str>,
    Callee { model, name, policy, deadline }: Callee<'_>,
    request: &ChatRequest,
) -> Result<ChatResponse, ModelError> {
    let call = ChatCall { model: name, request, conversation, stream: false };
    let limit = Some(policy.attempt_timeout);
    chat(call, retry(name, policy, limit, deadline, || model.complete(request))).await
}

/// A model that is called, and how.
pub(crate) struct Callee<'a> {
    pub(crate) model: &'a dyn ChatModel,
    pub(crate) name: &'a str,
    pub(crate) policy: &'a CallPolicy,
    pub(crate) deadline: Option<Deadline>,
}

/// Calls a model as a policy says, and tells its pieces as they come. `begin` is told each
/// attempt. The time for which listeners have to be waited for is not the attempt's.
///
/// # Errors
/// As [`complete`], and [`ModelError::Deadline`].
pub(crate) async fn speak(
    Callee { model, name, policy, deadline }: Callee<'_>,
    request: &ChatRequest,
    listeners: &EventSink,
    begin: &(dyn Fn() + Send + Sync),
    observe: &(dyn Fn(ModelEvent) + Send + Sync),
) -> Result<ChatResponse, ModelError> {
    let attempt = || async {
        begin();
        let limit = policy.attempt_timeout;
        let late = |_| ModelError::Timeout { model: name.to_owned(), limit };
        let mut end = Instant::now() + limit.min(NEVER);
        let mut events = timeout_at(end, model.stream(request)).await.map_err(late)??;
        while let Some(event) = timeout_at(end, events.next()).await.map_err(late)? {
            match event? {
                ModelEvent::Done(response) => return Ok(*response),
                piece => {
                    end += listeners.ready().await;
                    observe(piece);
                }
            }
        }
        let message = "the answer broke off".to_owned();
        Err(ModelError::Connection { model: name.to_owned(), message })
    };
    retry(name, policy, None, deadline, attempt).await
}

/// Makes attempts until one succeeds, fails for good, is the last, or the deadline is there.
/// Each is cut at the limit, if there is one.
async fn retry<T, F, A>(
    name: &str,
    policy: &CallPolicy,
    limit: Option<Duration>,
    deadline: Option<Deadline>,
    mut attempt: A,
) -> Result<T, ModelError>
where
    F: Future<Output = Result<T, ModelError>>,
    A: FnMut() -> F,
{
    let mut waits = policy.waits();
    let mut last = None;
    loop {
        if let Some(deadline) = deadline.filter(|deadline| deadline.passes(Duration::ZERO)) {
            return Err(deadline.error(name, last));
        }
        let error = match run_attempt(name, limit, deadline, attempt()).await {
            Ok(answer) => return Ok(answer),
            Err(Stopped::Deadline(deadline)) => return Err(deadline.error(name, last)),
            Err(Stopped::Failed(error)) => error,
        };
        let wait = waits.next().filter(|_| error.retryable());
        let Some(wait) = wait else { return Err(error) };
        let asked = error.retry_after();
        // What the provider asks for counts in full here: an attempt before that is in vain.
        let ends = asked.unwrap_or(wait);
        if let Some(deadline) = deadline.filter(|deadline| deadline.passes(ends)) {
            return Err(deadline.error(name, Some(error)));
        }
        let wait = asked.map_or(wait, |asked| asked.min(policy.longest_wait));
        let code = error.code();
        tracing::warn!(model = name, code, ?wait, "model call failed, trying again");
        last = Some(error);
        tokio::time::sleep(wait).await;
    }
}

/// How an attempt ended without an answer.
enum Stopped {
    Failed(ModelError),
    /// It was cut at the turn's deadline.
    Deadline(Deadline),
}

async fn run_attempt<T>(
    name: &str,
    limit: Option<Duration>,
    deadline: Option<Deadline>,
    attempt: impl Future<Output = Result<T, ModelError>>,
) -> Result<T, Stopped> {
    let timeout = |limit| Stopped::Failed(ModelError::Timeout { model: name.to_owned(), limit });
    let end = limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit)));
    let (end, stopped) = match (end, deadline) {
        (Some((end, _)), Some(deadline)) if deadline.at <= end => {
            (deadline.at, Stopped::Deadline(deadline))
        }
        (Some((end, limit)), _) => (end, timeout(limit)),
        (None, Some(deadline)) => (deadline.at, Stopped::Deadline(deadline)),
        (None, None) => return attempt.await.map_err(Stopped::Failed),
    };
    match timeout_at(end, attempt).await {
        Ok(result) => result.map_err(Stopped::Failed),
        Err(_) => Err(stopped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::scripted::ScriptedModel;

    fn status(status: u16, retry_after: Option<Duration>) -> ModelError {
        ModelError::Status { model: "test::m".into(), status, message: "no".into(), retry_after }
    }

    async fn call(model: &ScriptedModel, policy: &CallPolicy) -> Result<String, ModelError> {
        complete(model, "test::m", &ChatRequest::default(), policy).await.map(|r| r.text())
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_pass_is_tried_again_and_what_may_not_is_not() {
        let model =
            ScriptedModel::new().error(status(500, None)).error(status(429, None)).text("hi");
        assert_eq!(call(&model, &CallPolicy::default()).await.unwrap(), "hi");
        assert_eq!(model.requests().len(), 3);

        let model = ScriptedModel::new().error(status(400, None)).text("hi");
        assert_eq!(call(&model, &CallPolicy::default()).await, Err(status(400, None)));
        assert_eq!(model.requests().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_are_counted_and_waits_grow() {
        let model =
            ScriptedModel::new().error(status(503, None)).error(status(503, None)).text("hi");
        let policy = CallPolicy::default().attempts(2);
        assert_eq!(call(&model, &policy).await, Err(status(503, None)));
        assert_eq!(model.requests().len(), 2);

        let model =
            ScriptedModel::new().error(status(503, None)).error(status(503, None)).text("hi");
        let begin = Instant::now();
        call(&model, &CallPolicy::default()).await.unwrap();
        let waited = begin.elapsed();
        // 0.5 and 1 second, each with up to as much jitter.
        assert!(
            (Duration::from_millis(1500)..=Duration::from_millis(3100)).contains(&waited),
            "{waited:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_provider_says_how_long_to_wait_up_to_a_limit() {
        for (asked, waited) in [(7, 7), (3600, 30)] {
            let wait = Some(Duration::from_secs(asked));
            let model = ScriptedModel::new().error(status(429, wait)).text("hi");
            let begin = Instant::now();
            call(&model, &CallPolicy::default()).await.unwrap();
            assert_eq!(begin.elapsed().as_secs(), waited);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_ends_at_its_limit() {
        let model = ScriptedModel::new().delay(Duration::from_secs(100)).text("late").text("hi");
        let begin = Instant::now();
        assert_eq!(call(&model, &CallPolicy::default()).await.unwrap(), "hi");
        assert!(begin.elapsed() >= Duration::from_secs(60));
        let policy = CallPolicy::default().attempts(1);
        let model = ScriptedModel::new().delay(Duration::from_secs(100)).text("late");
        let error = call(&model, &policy).await.unwrap_err();
        assert_eq!(error.code(), "model-timeout");
    }

    async fn call_until(
        model: &ScriptedModel,
        policy: &CallPolicy,
        deadline: Option<Deadline>,
    ) -> Result<String, ModelError> {
        let request = ChatRequest::default();
        let name = "test::m";
        let callee = Callee { model, name, policy, deadline };
        let sink = EventSink::default();
        let answer = speak(callee, &request, &sink, &|| {}, &|_| {}).await;
        answer.map(|response| response.text())
    }

    /// A policy without jitter to speak of, and the deadline of a turn that begins now.
    fn until(seconds: u64) -> (CallPolicy, Option<Deadline>) {
        let policy = CallPolicy::default()
            .attempts(10)
            .first_wait(Duration::from_millis(1))
            .longest_wait(Duration::from_millis(1))
            .turn_deadline(Duration::from_secs(seconds));
        let deadline = Deadline::begin(&policy);
        (policy, deadline)
    }

    #[tokio::test(start_paused = true)]
    async fn waits_are_as_long_as_the_policy_says() {
        let failing = || ScriptedModel::new().error(status(503, None)).error(status(503, None));
        let policy = CallPolicy::default()
            .first_wait(Duration::from_secs(10))
            .longest_wait(Duration::from_secs(12));
        let model = failing().text("hi");
        let begin = Instant::now();
        call(&model, &policy).await.unwrap();
        // 10 and 12 seconds, each with up to as much jitter.
        let waited = begin.elapsed().as_secs();
        assert!((22..=44).contains(&waited), "{waited}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_attempt_is_cut_at_the_deadline_of_the_turn() {
        let (policy, deadline) = until(90);
        let late = || Duration::from_secs(50);
        let model =
            ScriptedModel::new().delay(late()).error(status(503, None)).delay(late()).text("late");
        let begin = Instant::now();
        let error = call_until(&model, &policy, deadline).await.unwrap_err();
        assert_eq!(begin.elapsed().as_secs(), 90);
        assert_eq!(model.requests().len(), 2);
        let limit = Duration::from_secs(90);
        let last = Some(Box::new(status(503, None)));
        assert_eq!(error, ModelError::Deadline { model: "test::m".into(), limit, last });
        assert_eq!((error.code(), error.retryable()), ("model-deadline", true));
        let told = error.to_string();
        assert!(
            told.contains("CallPolicy::turn_deadline") && told.contains("status 503"),
            "{told}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_timeout_of_an_attempt_comes_before_a_later_deadline() {
        let (policy, deadline) = until(90);
        let model = ScriptedModel::new().delay(Duration::from_secs(100)).text("late").text("hi");
        assert_eq!(call_until(&model, &policy, deadline).await.unwrap(), "hi");
        assert_eq!(model.requests().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn no_attempt_starts_after_the_deadline() {
        let (policy, deadline) = until(90);
        tokio::time::advance(Duration::from_secs(90)).await;
        let model = ScriptedModel::new().text("late");
        let error = call_until(&model, &policy, deadline).await.unwrap_err();
        assert_eq!((error.code(), model.requests().len()), ("model-deadline", 0));

        // A wait of the policy that would end too late is not begun.
        let (policy, deadline) = until(90);
        let policy =
            policy.first_wait(Duration::from_secs(200)).longest_wait(Duration::from_secs(200));
        let model = ScriptedModel::new().error(status(503, None)).text("late");
        let begin = Instant::now();
        let error = call_until(&model, &policy, deadline).await.unwrap_err();
        assert_eq!((error.code(), begin.elapsed()), ("model-deadline", Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_a_provider_asks_for_beyond_the_deadline_fails_at_once() {
        for (asked, code) in
            [(89, None), (90, Some("model-deadline")), (3600, Some("model-deadline"))]
        {
            let (policy, deadline) = until(90);
            let policy = policy.longest_wait(Duration::from_secs(100));
            let wait = Some(Duration::from_secs(asked));
            let model = ScriptedModel::new().error(status(429, wait)).text("hi");
            let begin = Instant::now();
            let answer = call_until(&model, &policy, deadline).await;
            assert_eq!(answer.as_ref().err().map(ModelError::code), code, "{asked}");
            let waited = if code.is_none() { asked } else { 0 };
            assert_eq!(begin.elapsed().as_secs(), waited);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_pass_is_told_as_it_is_also_near_the_deadline() {
        let (policy, deadline) = until(90);
        let model = ScriptedModel::new().delay(Duration::from_secs(50)).error(status(400, None));
        assert_eq!(call_until(&model, &policy, deadline).await, Err(status(400, None)));
        let policy = policy.turn_deadline(Duration::MAX);
        assert!(Deadline::begin(&policy).is_none());
    }
}
