use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::recall::Recall;
use super::structured::{self, Shape};
use super::{
    AskFlow, Children, FlowMeta, FrameLimits, Models, Prompt, Reducers, Speaker, Speakers, registry,
};
use crate::effect::{Journal, Place};
use crate::error::{Result, StepError};
use crate::event::{Event, EventSink, Rendered};
use crate::id::SessionId;
use crate::ledger::Ledger;
use crate::memory::{self, Marks, View};
use crate::message::{Message, Part, Role};
use crate::model::TokenUsage;
use crate::session::{Interrupt, PathEntry, PendingRound, Question};
use crate::time::{Clock, Timestamp};
use crate::tool::ToolDefinition;

/// Something that a step does to the conversation. It is done with the transition that the
/// step returns: a step that fails has said nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Effect {
    Say {
        text: String,
        rendered: Rendered,
    },
    /// What a model has answered; the text is part of it.
    Answer {
        parts: Vec<Part>,
        text: String,
    },
    /// A round of tool calls that a model has asked for and that were made. It is one, so
    /// that no call is ever without its result.
    Round {
        /// What the model has answered, with the calls; the text is part of it.
        answer: Vec<Part>,
        text: String,
        results: Vec<Part>,
    },
    /// What a model has said with calls that wait for approvals. The history has it with
    /// their round.
    Aside(String),
    Feedback(String),
    Note(String),
    Ask(Question),
    /// What a called session has said. A run that goes on with that does not say it again, as it
    /// does with what it says itself; listeners have heard it when it was said in this turn.
    Relay {
        text: String,
        heard: bool,
    },
}

impl Effect {
    /// What the user is told by it.
    #[cfg(feature = "testing")]
    pub(crate) fn told(&self) -> Option<&str> {
        match self {
            Self::Say { text, .. }
            | Self::Relay { text, .. }
            | Self::Answer { text, .. }
            | Self::Aside(text)
            | Self::Feedback(text) => Some(text),
            Self::Round { text, .. } => Some(text.as_str()).filter(|text| !text.is_empty()),
            Self::Ask(question) => Some(&question.text),
            Self::Note(_) => None,
        }
    }

    /// Whether a run that goes on passes over it when it was done before. Notes last until the
    /// turn ends, so they are left anew.
    pub(crate) fn is_counted(&self) -> bool {
        !matches!(self, Self::Note(_) | Self::Relay { .. })
    }

    /// Whether a called session has said it.
    pub(crate) fn is_relay(&self) -> bool {
        matches!(self, Self::Relay { .. })
    }

    /// Whether a called session has said it, as [`Scope::said`] records it.
    pub(crate) fn is_recorded_relay(effect: &Value) -> bool {
        effect.get("relay").is_some()
    }

    /// Whether it shows what tools have done for a model.
    pub(crate) fn is_round(&self) -> bool {
        matches!(self, Self::Round { .. })
    }
}

/// What a turn shares with the steps that it runs.
pub(crate) struct Scope {
    pub(crate) session: SessionId,
    pub(crate) turn: Arc<str>,
    pub(crate) step: Arc<str>,
    pub(crate) visit: u64,
    /// The effects of the visit.
    pub(crate) journal: Arc<Journal>,
    /// Where the step stands among them: within an action that runs it, or at the cursor.
    pub(crate) frame: Place,
    /// How many steps run around this one.
    pub(crate) level: u32,
    /// The step at the cursor, for one that runs within it.
    pub(crate) current: Option<Arc<str>>,
    pub(crate) limits: FrameLimits,
    /// What the step waits for, once it does.
    pub(crate) interrupts: Vec<Interrupt>,
    /// The tool calls of a model that wait for approvals.
    pub(crate) round: Option<PendingRound>,
    /// Whether the commit before an effect has failed, so that none can follow.
    pub(crate) unrecorded: Arc<AtomicBool>,
    /// What the user said and no step has consumed.
    pub(crate) message: Option<String>,
    /// What the user said in this turn.
    pub(crate) last_message: Option<String>,
    /// The slots that the user was asked for before this turn.
    pub(crate) asked_fields: Vec<String>,
    /// How many questions the current step has asked in this visit.
    pub(crate) asked: u32,
    pub(crate) effects: Vec<Effect>,
    /// How many of the first effects on the conversation were made already, by an earlier run
    /// of the action that waited.
    pub(crate) said: u32,
    pub(crate) notes: Vec<String>,
    pub(crate) context: Map<String, Value>,
    /// The tools of the flow, as `define_tools` has left them.
    pub(crate) tools: Arc<[ToolDefinition]>,
    /// The models that may be asked in this turn.
    pub(crate) models: Models,
    /// The models of the steps of the flow, by their names.
    pub(crate) speakers: Speakers,
    /// The model that speaks for the step, if there is one.
    pub(crate) speaker: Option<Speaker>,
    /// The memory namespace of the step.
    pub(crate) namespace: &'static str,
    /// What the memory of the steps is made of beside messages.
    pub(crate) recall: Recall,
    /// How the writes of steps side by side become one.
    pub(crate) reducers: Arc<Reducers>,
    /// What was said since the last commit, with the memory namespace.
    pub(crate) unsaved: Vec<(&'static str, Message)>,
    /// What models have cost since the last commit.
    pub(crate) usage: TokenUsage,
    pub(crate) events: EventSink,
    pub(crate) now: Timestamp,
    pub(crate) clock: Arc<dyn Clock>,
    /// Runs the sessions that effects begin; nothing for a step that is run outside of a turn.
    pub(crate) children: Option<Arc<dyn Children>>,
    /// The flows that wait for this one, from the outermost one.
    pub(crate) callers: Vec<String>,
    /// The document; nothing for a step that is run outside of a turn.
    pub(crate) ledger: Option<Arc<Ledger>>,
    /// Whether the step may wait for the user's message: it does not run beside others.
    pub(crate) may_ask: bool,
    /// The steps that were entered within the action in this run.
    pub(crate) entered: Vec<PathEntry>,
}

impl Scope {
    /// The conversation in the step's memory as a model is shown it: in an order that every
    /// provider takes, the summary first if there is one.
    pub(crate) fn history(&self) -> Vec<Message> {
        self.look_back(|view| memory::shown(view, &self.recall.policy, self.now))
    }

    /// As [`history`](Self::history), whoever speaks first and last.
    pub(crate) fn recalled(&self) -> Vec<Message> {
        self.look_back(|view| memory::recalled(view, &self.recall.policy, self.now))
    }

    /// Looks at the conversation in the step's memory as it is, committed or not.
    pub(crate) fn look_back<T>(&self, look: impl FnOnce(&View<'_>) -> T) -> T {
        let doc = self.ledger.as_ref().map(|ledger| ledger.doc());
        let saved = doc.as_ref().and_then(|doc| doc.memory.get(self.namespace));
        let marks = match self.recall.marks.get(self.namespace) {
            Some(marks) => marks.clone(),
            None => saved.map(Marks::from).unwrap_or_default(),
        };
        let next = doc.as_ref().map_or(0, |doc| doc.next_message) + self.unsaved.len() as u64;
        let saved = saved.map_or(&[][..], |memory| &memory.messages);
        let unsaved = self.unsaved.iter().filter(|(namespace, _)| *namespace == self.namespace);
        let messages = saved.iter().chain(unsaved.map(|(_, message)| message)).collect();
        look(&View { messages, marks, next })
    }

    /// The model that speaks for a step.
    pub(crate) fn speaker_of(&self, step: &str) -> Option<Speaker> {
        let mut speakers = self.speakers.iter();
        speakers.find(|(name, _)| **name == *step).and_then(|(_, speaker)| speaker.clone())
    }

    /// Drops what was to be done with a transition that is not made. What tools have done
    /// for a model and what called sessions have said is done, so the history shows it.
    pub(crate) fn drop_undone(&mut self) {
        self.effects.retain(|effect| effect.is_round() || effect.is_relay());
        self.said = 0;
    }

    /// The place that the next round of tool calls will have in the conversation. It is the
    /// same when a turn that was not committed is made again.
    pub(crate) fn next_place(&self) -> u64 {
        let saved = self.ledger.as_ref().map_or(0, |ledger| ledger.doc().next_message);
        let rounds = self.effects.iter().filter(|effect| effect.is_round());
        saved + self.unsaved.len() as u64 + 2 * rounds.count() as u64
    }

    /// A message for a request, before it has a place in the conversation.
    pub(crate) fn draft(&self, role: Role, parts: Vec<Part>) -> Message {
        Message { seq: 0, role, parts, at: self.now }
    }
}

/// What a step works with: the flow, the shared state, the user's words, and what it can do
/// to the conversation.
pub struct StepCx<'a, F: FlowMeta> {
    /// The flow: the registered struct, cloned for this turn and initialised by `init`.
    pub flow: &'a F,
    /// The state that all steps share.
    pub state: &'a mut F::State,
    pub(crate) scope: &'a mut Scope,
    /// The flow's `on_model_error`; nothing outside of a turn.
    pub(crate) ask_flow: Option<AskFlow<F>>,
}

impl<'a, F: FlowMeta> StepCx<'a, F> {
    pub(crate) fn new(flow: &'a F, state: &'a mut F::State, scope: &'a mut Scope) -> Self {
        Self { flow, state, scope, ask_flow: None }
    }

    /// The session.
    pub fn session(&self) -> &SessionId {
        &self.scope.session
    }

    /// The turn: the caller's id, or a random one.
    pub fn turn(&self) -> &str {
        &self.scope.turn
    }

    /// The persisted name of the step that runs.
    pub fn step(&self) -> &str {
        &self.scope.step
    }

    /// The persisted name of the step at which the session stands. It is the step that runs,
    /// unless that one runs within another one, by [`ActionCx::run_step`](super::ActionCx::run_step).
    pub fn current_step(&self) -> &str {
        self.scope.current.as_deref().unwrap_or(&self.scope.step)
    }

    /// The number of this visit, unique within the session, counted from 1.
    pub fn visit(&self) -> u64 {
        self.scope.visit
    }

    /// When the turn began, by the engine's clock.
    pub fn now(&self) -> Timestamp {
        self.scope.now
    }

    /// What the user said and no step of this turn has consumed yet.
    pub fn message(&self) -> Option<&str> {
        self.scope.message.as_deref()
    }

    /// Takes the user's message, so that no later step of this turn gets it.
    pub fn take_message(&mut self) -> Option<String> {
        self.scope.message.take()
    }

    /// What the user said in this turn, consumed or not.
    pub fn last_message(&self) -> Option<&str> {
        self.scope.last_message.as_deref()
    }

    /// A value that the caller of the turn or the flow's `init` put into the context.
    pub fn context(&self, key: &str) -> Option<&Value> {
        self.scope.context.get(key)
    }

    /// The tools of the flow in this turn, as its `define_tools` has left them.
    pub fn tools(&self) -> &[ToolDefinition] {
        &self.scope.tools
    }

    /// Says something to the user and keeps it in the history.
    ///
    /// It is said with the transition that the step returns: a step that fails says nothing.
    pub fn say(&mut self, text: impl Into<String>) {
        self.scope.effects.push(Effect::Say { text: text.into(), rendered: Rendered::Engine });
    }

    /// Tells the user what was wrong with their message. Not kept in the history.
    pub fn feedback(&mut self, text: impl Into<String>) {
        self.scope.effects.push(Effect::Feedback(text.into()));
    }

    /// Leaves a note for the steps after this one, until the turn ends. Never shown to the
    /// user, never persisted.
    pub fn note(&mut self, text: impl Into<String>) {
        self.scope.effects.push(Effect::Note(text.into()));
    }

    /// The notes that earlier steps of this turn have left.
    pub fn notes(&self) -> &[String] {
        &self.scope.notes
    }

    /// Asks the step's model for a value, e.g. what a message is about.
    ///
    /// The model is shown the prompt as its system prompt, the conversation in the step's
    /// memory and what the user said in this turn, consumed or not. The value's JSON Schema
    /// comes from its type; so does its validation. A model that keeps to schemas by itself is
    /// given the schema as the form of its answer, any other calls a tool whose arguments are
    /// the value, and one without tools is asked for a block of JSON. A type that is no plain
    /// object, such as a number or an enum, may be asked for as it is.
    ///
    /// An answer that does not fit is shown to the model once more with what is wrong. The
    /// answers are neither told to the user nor kept in the history; their tokens are counted.
    /// The value is not journaled: a step that runs again after a crash asks again.
    ///
    /// ```
    /// # use flow_core::prelude::*;
    /// # #[flow(id = "f", steps(Sort))] #[derive(Clone)] struct Desk;
    /// # impl Flow for Desk {}
    /// # #[step(action, next(end))]
    /// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
    /// # struct Sort;
    /// /// What the user wants.
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Wish {
    ///     /// In one word.
    ///     topic: String,
    ///     urgent: bool,
    /// }
    ///
    /// # impl Action for Sort {
    /// #     type Flow = Desk;
    /// async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<SortNext> {
    ///     let wish: Wish = cx.extract("Say what the user's last message is about.").await?;
    ///     Ok(SortNext::End(if wish.urgent { wish.topic } else { "later".into() }))
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// Why there is no value: `no-model`, `model-output` with the place that does not fit,
    /// `model-refused`, or what the call of the model failed with.
    pub async fn extract<T>(&mut self, prompt: impl Into<Prompt>) -> Result<T>
    where
        T: DeserializeOwned + JsonSchema + Send + 'static,
    {
        let prompt = prompt.into();
        let shape = Shape::of::<T>()?;
        let mut value = None;
        let mut read = |json| {
            value = Some(registry::read::<T>(json)?);
            Ok(())
        };
        structured::extract(self.scope, prompt.into_text(), &shape, &mut read).await?;
        value.ok_or_else(|| StepError::new("the model gave no value"))
    }

    /// Tells listeners something at once. Not persisted, told again when the step runs again,
    /// and left out for a listener that has [`Limits::events`](crate::engine::Limits::events)
    /// to read.
    ///
    /// # Errors
    /// When the payload cannot be written as JSON.
    pub fn emit(&mut self, name: impl Into<String>, payload: impl Serialize) -> Result<()> {
        let payload = serde_json::to_value(payload)?;
        let name = name.into();
        self.scope.events.emit(|| Event::Custom { name, payload });
        Ok(())
    }

    pub(crate) fn ask(&mut self, question: Question) {
        self.scope.asked += 1;
        self.scope.effects.push(Effect::Ask(question));
    }

    /// The same context for a shorter time.
    pub(crate) fn reborrow(&mut self) -> StepCx<'_, F> {
        StepCx { flow: self.flow, state: self.state, scope: self.scope, ask_flow: self.ask_flow }
    }
}

impl<F: FlowMeta> fmt::Debug for StepCx<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepCx")
            .field("flow", &F::ID)
            .field("session", &self.scope.session)
            .field("step", &self.scope.step)
            .field("visit", &self.scope.visit)
            .finish_non_exhaustive()
    }
}
