use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{FlowMeta, Gates, Steps};
use crate::error::{Error, Result, StepError};
use crate::id::SessionId;
use crate::memory::MemoryPolicy;
use crate::model::{CallPolicy, ModelConfig, ModelError, ModelSelection};
use crate::session::{Interrupt, Migrations, SessionDoc};
use crate::step::{ActionCx, Recovery, Reducers, StepCx};
use crate::tool::ToolDefinition;
use crate::transition::Transition;

/// What a user overrides of a flow. Every hook has a default.
///
/// In each turn the hooks run in this order: the registered flow is cloned,
/// [`init`](Self::init), [`define_steps`](Self::define_steps), the session is loaded and
/// leased, its document [migrated](Self::migrations),
/// [`on_restore_session_doc`](Self::on_restore_session_doc),
/// [`define_tools`](Self::define_tools), [`run`](Self::run).
///
/// A new session begins at [`initial_step`](Self::initial_step). [`config_model`](Self::config_model),
/// [`config_call_policy`](Self::config_call_policy), [`config_memory`](Self::config_memory) and
/// [`define_gates`](Self::define_gates) are read after `init`.
pub trait Flow: FlowMeta {
    /// The model of the flow and its parameters. Default: those of
    /// `#[flow(model = "..", sampling(..))]`. A [`ModelSelection`] becomes one with `into()`.
    /// A model that cannot be had, and parameters that it does not take, fail the turn before
    /// its session is touched, with an error that names the flow or the step.
    fn config_model(&self) -> Option<ModelConfig> {
        let model: ModelSelection = Self::MODEL?.parse().ok()?;
        Some(ModelConfig::new(model).sampling(Self::model_sampling()))
    }

    /// How models are called: attempts, waits, and the time that a turn has for its models.
    fn config_call_policy(&self) -> CallPolicy {
        CallPolicy::default()
    }

    /// How much of the conversation stays in the document, how much of it models are shown,
    /// and when it is summarised.
    fn config_memory(&self) -> MemoryPolicy {
        MemoryPolicy::default()
    }

    /// How the writes of steps that an action runs side by side to one field of the shared state
    /// become one. Default: such writes are a conflict.
    ///
    /// A field that the state does not have is an error when the engine is built.
    fn config_reducers(&self) -> Reducers {
        Reducers::new()
    }

    /// Prepares the flow for a turn: opens connections, reads the context. Nothing of the
    /// session is known yet, so the context does not offer it.
    fn init(&mut self, cx: &mut InitCx<'_>) -> impl Future<Output = Result<()>> + Send {
        let _ = cx;
        std::future::ready(Ok(()))
    }

    /// Changes the registry, given what `#[flow(steps(..))]` declares.
    fn define_steps(&self, steps: Steps<Self>) -> Steps<Self> {
        steps
    }

    /// The step at which a new session begins. Default: the first one of the registry.
    fn initial_step(&self) -> Option<Cow<'static, str>> {
        None
    }

    /// Changes the tools of the flow for this turn, given those of its `#[tools(flow)]` block:
    /// takes some out, or sets the [policy](ToolDefinition::policy) of others.
    fn define_tools(&self, tools: Vec<ToolDefinition>) -> Vec<ToolDefinition> {
        tools
    }

    /// Adds gates to none: what a run is judged by before the flow ends, hands off or escalates.
    /// See [`gate`](super::gate), with an example. They are asked for when the engine is built,
    /// to check them, and in each turn after [`init`](Self::init).
    fn define_gates(&self, gates: Gates<Self>) -> Gates<Self> {
        gates
    }

    /// Says what becomes of a stored document, once it is at the flow's version. Default: it
    /// is kept.
    fn on_restore_session_doc(
        &self,
        doc: SessionDoc,
    ) -> impl Future<Output = Result<Restore>> + Send {
        std::future::ready(Ok(Restore::keep(doc)))
    }

    /// Whether [`spawn_steps`](Self::spawn_steps) runs in place of the current step, given the
    /// context of the turn. Default: when its value `concurrent` is `true`, which
    /// [`TurnRequest::context`](crate::TurnRequest::context) and [`init`](Self::init) set. Like
    /// all of the context it persists, so later turns of the session are the same until one
    /// says `false`.
    fn is_batch(&self, context: &Map<String, Value>) -> bool {
        context.get("concurrent") == Some(&Value::Bool(true))
    }

    /// Runs in place of the current step when [`is_batch`](Self::is_batch) says so, as an
    /// action does: what it does on the outside are [effects](crate::effect). The step's hooks
    /// for entering and leaving it run as always. When it goes to another step, it runs in
    /// place of that too.
    ///
    /// ```
    /// use flow_core::prelude::*;
    ///
    /// /// Answers a question, or with `concurrent` all that it has.
    /// #[flow(id = "desk", steps(Reply), state = Questions)]
    /// #[derive(Clone)]
    /// struct Desk;
    ///
    /// #[derive(Default, Serialize, Deserialize, JsonSchema)]
    /// struct Questions {
    ///     open: Vec<String>,
    ///     answers: Vec<String>,
    /// }
    ///
    /// impl Flow for Desk {
    ///     async fn spawn_steps(&self, cx: &mut ActionCx<'_, Self>) -> Result<Transition> {
    ///         let report = cx
    ///             .concurrent(&cx.state.open)
    ///             .each::<Desk>(|open| Questions { open: vec![open.to_string()], answers: vec![] })
    ///             .await?;
    ///         for item in &report.items {
    ///             let answered: Questions = cx.item_state::<Desk>(item).await?;
    ///             cx.state.answers.extend(answered.answers);
    ///         }
    ///         Ok(Transition::End("all answered".into()))
    ///     }
    /// }
    ///
    /// #[step(action, next(end))]
    /// #[derive(Default, Serialize, Deserialize, JsonSchema)]
    /// struct Reply;
    ///
    /// impl Action for Reply {
    ///     type Flow = Desk;
    ///
    ///     async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<ReplyNext> {
    ///         let question = cx.state.open.pop().unwrap_or_default();
    ///         cx.state.answers.push(format!("{question} Yes."));
    ///         Ok(ReplyNext::End("answered".into()))
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let store = flow_core::store::memory::MemoryStore::new();
    /// # let engine = flow_core::Engine::builder().store(store).flow(Desk).build()?;
    /// let turn = flow_core::TurnRequest::new(SessionId::new("monday")?).context("concurrent", true);
    /// let outcome = engine.turn::<Desk>(turn).await?.outcome;
    /// # assert_eq!(outcome, flow_core::outcome::Outcome::Ended { reason: "all answered".into() });
    /// # Ok(())
    /// # }
    /// ```
    fn spawn_steps(
        &self,
        cx: &mut ActionCx<'_, Self>,
    ) -> impl Future<Output = Result<Transition>> + Send {
        let _ = cx;
        std::future::ready(Err(StepError::terminal(format!(
            "flow `{}` says that it is a batch but does not override `spawn_steps`",
            Self::ID
        ))))
    }

    /// Runs a turn to its next pause. Override it to do something around the turn.
    fn run(&self, turn: &mut dyn Drive) -> impl Future<Output = Result<()>> + Send {
        async move { Ok(turn.run_to_pause().await?) }
    }

    /// How documents of older versions are brought up to date.
    fn migrations() -> Migrations {
        Migrations::new()
    }

    /// Runs when the user says something while a step waits for a request, a signal or a
    /// time, and gives the answer to it; nothing for none. The message is kept in the history
    /// either way, and no step gets it. Default: what is waited for.
    fn on_message_while_waiting(
        &self,
        interrupts: &[Interrupt],
        cx: &mut StepCx<'_, Self>,
    ) -> impl Future<Output = Result<Option<String>>> + Send {
        let _ = cx;
        let titles: Vec<&str> = interrupts.iter().map(|i| i.display.title.as_str()).collect();
        let answer = format!("I am still waiting: {}.", titles.join(", "));
        async move { Ok(Some(answer)) }
    }

    /// Runs when the user says something while the session waits for a person who takes over,
    /// and gives the answer to it; nothing for none. The message is kept in the history either
    /// way, and nothing else runs until the session is
    /// [released](crate::engine::SessionHandle::release). Default: that a person will answer.
    /// It does not tell the reason, which is the step's and not meant for the user.
    fn on_message_while_escalated(
        &self,
        reason: &str,
        cx: &mut StepCx<'_, Self>,
    ) -> impl Future<Output = Result<Option<String>>> + Send {
        let _ = (reason, cx);
        let answer = "A person has been asked to take over and will answer here.".to_owned();
        std::future::ready(Ok(Some(answer)))
    }

    /// Runs when a model gave no answer, or refused, and the step's own `on_model_error` passed.
    /// It may answer, move the flow or ask another model once. A transition that it makes does
    /// not pass the step's gate. Default: the turn fails, unless
    /// [`on_error`](Self::on_error) says otherwise.
    fn on_model_error(
        &self,
        error: &ModelError,
        cx: &mut StepCx<'_, Self>,
    ) -> impl Future<Output = Result<Recovery<Transition>>> + Send {
        let _ = (error, cx);
        std::future::ready(Ok(Recovery::Pass))
    }

    /// Runs when a step has failed, and may say where to go instead of failing the turn.
    /// What the step wrote to its fields and to the shared state before it failed is kept
    /// when it does.
    fn on_error(
        &self,
        error: &StepError,
        cx: &mut StepCx<'_, Self>,
    ) -> impl Future<Output = Result<Option<Transition>>> + Send {
        let _ = (error, cx);
        std::future::ready(Ok(None))
    }
}

/// A turn that is ready to run, for [`Flow::run`].
pub trait Drive: Send {
    /// The persisted name of the step at which the session stands.
    fn current_step(&self) -> &str;

    /// Runs steps until the flow waits, ends or fails.
    fn run_to_pause(&mut self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>>;
}

/// What `init` works with.
#[derive(Debug)]
pub struct InitCx<'a> {
    pub(crate) session: &'a SessionId,
    pub(crate) turn: &'a str,
    pub(crate) message: Option<&'a str>,
    pub(crate) context: &'a mut Map<String, Value>,
}

impl InitCx<'_> {
    /// The session that the turn is for.
    pub fn session(&self) -> &SessionId {
        self.session
    }

    /// The turn: the caller's id, or a random one.
    pub fn turn(&self) -> &str {
        self.turn
    }

    /// What the user said.
    pub fn message(&self) -> Option<&str> {
        self.message
    }

    /// A value that the caller of the turn passed.
    pub fn context(&self, key: &str) -> Option<&Value> {
        self.context.get(key)
    }

    /// Puts a value into the context. It persists with the session, so keep secrets out.
    ///
    /// # Errors
    /// When the value cannot be written as JSON.
    pub fn set_context(&mut self, key: impl Into<String>, value: impl Serialize) -> Result<()> {
        self.context.insert(key.into(), serde_json::to_value(value)?);
        Ok(())
    }
}

/// What becomes of a stored document.
#[derive(Debug)]
#[non_exhaustive]
pub enum Restore {
    /// The session goes on with this document.
    Keep(Box<SessionDoc>),
    /// The document is closed as `superseded` and kept; a new one starts in its place.
    Fresh {
        /// Why.
        reason: String,
    },
}

impl Restore {
    /// The session goes on with this document. The hook may have changed its state, steps,
    /// labels and owner.
    pub fn keep(doc: SessionDoc) -> Self {
        Self::Keep(Box::new(doc))
    }

    /// The document is closed and a new one starts, for a reason that an event tells.
    pub fn fresh(reason: impl Into<String>) -> Self {
        Self::Fresh { reason: reason.into() }
    }
}
