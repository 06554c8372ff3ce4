use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
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
/// for.
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
    /// How often in one turn of a step the model may ask for tools. Default: 8.
    pub tool_rounds: u32,
    /// How long one tool may take. Default: 60 seconds.
    pub tool_timeout: Duration,
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
            tool_rounds: 8,
            tool_timeout: Duration::from_secs(60),
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

    /// Sets [`tool_result_bytes`](Self::tool_result_bytes).
    #[must_use]
    pub fn tool_result_bytes(mut self, bytes: usize) -> Self {
        self.tool_result_bytes = bytes;
        self
    }

    fn backoff(&self) -> ExponentialBuilder {
        ExponentialBuilder::default()
            .with_min_delay(self.first_wait)
            .with_max_delay(self.longest_wait)
            .with_max_times(self.attempts.max(1) as usize - 1)
            .with_jitter()
    }
}

/// Calls a model as a policy says. `name` is what errors call it.
///
/// # Errors
/// What the last attempt said, or the first one that trying again cannot cure.
pub async fn complete(
    model: &dyn ChatModel,
    name: &str,
    request: &ChatRequest,
    policy: &CallPolicy,
) -> Result<ChatResponse, ModelError> {
    let attempt = || async {
        let limit = policy.attempt_timeout;
        tokio::time::timeout(limit, model.complete(request))
            .await
            .unwrap_or_else(|_| Err(ModelError::Timeout { model: name.to_owned(), limit }))
    };
    let call = ChatCall { model: name, request, conversation: None, stream: false };
    chat(call, retry(name, policy, attempt)).await
}

/// Calls a model as a policy says, and tells its pieces as they come. `begin` is told each
/// attempt. The time for which listeners have to be waited for is not the attempt's.
///
/// # Errors
/// As [`complete`].
pub(crate) async fn speak(
    model: &dyn ChatModel,
    name: &str,
    request: &ChatRequest,
    policy: &CallPolicy,
    listeners: &EventSink,
    begin: &(dyn Fn() + Send + Sync),
    observe: &(dyn Fn(ModelEvent) + Send + Sync),
) -> Result<ChatResponse, ModelError> {
    let attempt = || async {
        begin();
        let limit = policy.attempt_timeout;
        let late = |_| ModelError::Timeout { model: name.to_owned(), limit };
        let mut deadline = Instant::now() + limit.min(NEVER);
        let mut events = timeout_at(deadline, model.stream(request)).await.map_err(late)??;
        while let Some(event) = timeout_at(deadline, events.next()).await.map_err(late)? {
            match event? {
                ModelEvent::Done(response) => return Ok(*response),
                piece => {
                    deadline += listeners.ready().await;
                    observe(piece);
                }
            }
        }
        let message = "the answer broke off".to_owned();
        Err(ModelError::Connection { model: name.to_owned(), message })
    };
    retry(name, policy, attempt).await
}

/// Makes attempts until one succeeds, fails for good, or is the last.
async fn retry<T, F, A>(name: &str, policy: &CallPolicy, attempt: A) -> Result<T, ModelError>
where
    F: Future<Output = Result<T, ModelError>>,
    A: FnMut() -> F,
{
    attempt
        .retry(policy.backoff())
        .when(ModelError::retryable)
        .adjust(|error, wait| {
            let asked = error.retry_after().map(|asked| asked.min(policy.longest_wait));
            wait.map(|wait| asked.unwrap_or(wait))
        })
        .notify(|error, wait| {
            let code = error.code();
            tracing::warn!(model = name, code, ?wait, "model call failed, trying again");
        })
        .await
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
}
