//! Everything that a turn can tell a listener.
//!
//! Events are written as JSON objects with a kebab-case `type`. They are made in the order
//! in which things happen and are not persisted; what persists is the session document.
//! [`TurnHandle`](crate::engine::TurnHandle) says what happens to a listener that is slow.
//!
//! # The order
//!
//! What is in brackets may be left out, `..` may come several times, and `|` is one or the
//! other. Events that are not named here (`custom`, `usage`, `lagged`) may come in between.
//!
//! * **A turn**: `turn-start`, the session, \[`resumed`\], the steps, \[how it ends\],
//!   `turn-end`. A turn that does not get its session, because another process has it or the
//!   message is too large, has no `turn-start`, only `error` and `turn-end`. A turn whose id has
//!   completed before is `turn-start` and `turn-end` with the recorded outcome.
//! * **The session**: \[`session-migrated`\], then `session-restored`, or \[`session-superseded`\],
//!   `session-created`, `flow-enter`.
//! * **A step**: `step-enter`, what it does, `step-exit`. A step that waits is not left, and
//!   when a later turn goes on with it, it is not entered again: that turn has its name in
//!   `session-restored`. When a turn fails before it was committed that a step was entered, or
//!   that a session was begun, the next turn does that again.
//! * **A step within an action** has a `level` above 0: `step-enter`, what it does, `step-exit`.
//!   What it says its action says, with its own transition or when the action waits. One that
//!   fails is not left. One that is not over when the turn ends is entered again, in the events,
//!   by the turn that goes on; one that is over is not told again. Steps side by side are told as
//!   they run: their events come in between each other, each step's own in order, and only what
//!   they say is in the order of the steps.
//! * **A call of another flow**: `call-enter`, the events of the called flow, `call-exit`. It has no
//!   `turn-start`, `session-..`, `flow-enter`, `paused`, `flow-end`, `error` and `turn-end` of its
//!   own. A step at which the called session stood already is not entered again. Calls side by side
//!   are told as they run.
//! * **A batch**: `batch-progress` when it begins or goes on, then as its items end. The items
//!   tell nothing.
//! * **A crossing**: `step-exit`, `flow-transition`, \[`memory-summary` | `memory-summary-failed`\],
//!   `step-enter`. The same for a step that goes to itself.
//! * **The text of a model**: `text-start`, `text-delta`.., `text-end`, `usage`. After an attempt
//!   that broke off comes another `text-start`. An answer that is only tool calls has no delta.
//! * **A tool call**: `tool-call`, then `tool-result` with the same id. Calls that are made side
//!   by side are told side by side. A call for which a model has to wait for an approval is
//!   told when it is made; one that is not made has a `tool-result` alone.
//! * **Other work of an action**: `effect` when code of [`ActionCx::run`] is done;
//!   `batch-progress` when a batch begins or goes on, and as its items come to an end.
//! * **A step within an action**: `step-enter` and `step-exit` with a `level` above 0, and what it
//!   does in between. Steps side by side are told side by side. One that is given back from the
//!   journal is not told again.
//! * **A called flow**: for each of its turns `call-enter`, its steps, `call-exit`.
//! * **What is said**: `message`, `feedback`, `note`, and `question` right behind the message
//!   that asks it. A step says it with its transition: behind all that it has done in this run,
//!   and before it is left; a step that fails has said nothing. The whole text of a model is
//!   such a `message`. `collect-update` comes before what the form says.
//! * **A pause** for people, signals or times: `paused`, `turn-end`. Each
//!   [`Interrupt`] holds what a user interface needs to ask: title and
//!   description, what answers are taken or the schema of the data, the deadline, the call that
//!   is to be approved with its arguments and their hash, and the id that an answer names. A pause
//!   for the user's next message is `turn-end` alone; its outcome holds the question.
//! * **A message while a step waits**: `message` with the answer of the flow, `paused` with all
//!   that is still waited for, `turn-end`. No step runs.
//! * **A resumption**: `resumed` right behind `session-restored`, then the step goes on. An
//!   action runs again from its beginning, and is told only what it had not done.
//! * **A failure**: `error`, `turn-end` with the same error. It may come anywhere, so a call may
//!   be without its result then. What the flow's `on_error` has handled is no `error`.
//! * **An end**: \[`gate-verdict`..\], `step-exit`, `flow-end`, `turn-end`. A flow that its gates
//!   hold is not left: behind the verdicts come `feedback`.. and `turn-end`.
//! * **A hand-off**: \[`gate-verdict`..\], `step-exit`, `handoff`, `flow-end`, then the other flow
//!   goes on with `flow-enter`.
//! * **An escalation**: \[`gate-verdict`..\], `turn-end`.
//! * **A digression**: `digression-start`, `flow-enter` of the other flow. When that has ended:
//!   `flow-end`, `digression-end`, then the `message` and the `question` of the flow that has
//!   come back.
//! * **A message while a person takes over**: `message` with the answer of the flow, `turn-end`.
//!
//! `paused` and `flow-end` are told before the last commit. If that fails, `error` and
//! `turn-end` follow.
//!
//! [`ActionCx::run`]: crate::step::ActionCx::run

mod channel;

pub(crate) use channel::{EventSink, EventStream, channel};

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::{FinishReason, TokenUsage};
use crate::outcome::Outcome;
use crate::session::{EffectKind, GateVerdict, Interrupt, Question};

/// Who wrote the text of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Rendered {
    /// The program: an authored response, a question, or what a step said.
    Engine,
    /// A language model.
    Model,
}

/// Where the value of a slot came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Source {
    /// A resolver read it from the user's words.
    Deterministic,
    /// A language model read it from the user's words.
    Model,
}

/// One thing that happened in a turn.
///
/// ```
/// use flow_core::event::Event;
///
/// let event = Event::StepEnter { step: "Checkout".into(), visit: 2, level: 0 };
/// assert_eq!(
///     serde_json::to_string(&event).unwrap(),
///     r#"{"type":"step-enter","step":"Checkout","visit":2}"#,
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Event {
    /// The turn has the session.
    TurnStart {
        /// The session.
        session: Arc<str>,
        /// The turn.
        turn: Arc<str>,
    },
    /// The session is new.
    SessionCreated {
        /// The flow.
        flow: Arc<str>,
        /// Its document version.
        version: u32,
    },
    /// The session was read from the store.
    SessionRestored {
        /// The step at which it stands.
        step: Arc<str>,
        /// The revision of the document.
        revision: u64,
    },
    /// The document was written by an older version of the flow and has been migrated.
    SessionMigrated {
        /// The version it had.
        from: u32,
        /// The version it has now.
        to: u32,
    },
    /// The old document was closed and a new one started in its place.
    SessionSuperseded {
        /// Why, in the words of `Restore::fresh`.
        reason: String,
        /// The session id under which the old document is kept.
        kept_as: String,
    },
    /// The flow begins.
    FlowEnter {
        /// The flow.
        flow: Arc<str>,
    },
    /// A step is entered.
    StepEnter {
        /// The step.
        step: Arc<str>,
        /// The number of this visit, unique within the session.
        visit: u64,
        /// How many steps run around it; nothing for 0, a step at which the session stands.
        #[serde(default, skip_serializing_if = "is_top")]
        level: u32,
    },
    /// A step is left.
    StepExit {
        /// The step.
        step: Arc<str>,
        /// How many steps run around it; nothing for 0, a step at which the session stands.
        #[serde(default, skip_serializing_if = "is_top")]
        level: u32,
    },
    /// The flow goes from one step to another.
    FlowTransition {
        /// The step that is left.
        from: Arc<str>,
        /// The step that is entered.
        to: Arc<str>,
    },
    /// A turn of a flow begins that an action has called. Up to the `call-exit`, events are
    /// those of the called flow; its own turn, session and pause have none.
    CallEnter {
        /// The flow.
        flow: Arc<str>,
        /// The called session.
        session: Arc<str>,
        /// How many calls it is within, with this one.
        depth: u32,
    },
    /// The turn of the called flow is over, well or not; what it waits for its caller waits
    /// for.
    CallExit {
        /// The flow.
        flow: Arc<str>,
        /// The called session.
        session: Arc<str>,
        /// How many calls it is within, with this one.
        depth: u32,
    },
    /// A model begins to answer. When an attempt broke off and is made again, this comes
    /// again, and what was streamed before counts no more.
    TextStart {
        /// The step that it speaks for.
        step: Arc<str>,
    },
    /// More of a model's answer.
    TextDelta {
        /// The step that it speaks for.
        step: Arc<str>,
        /// The text.
        text: String,
    },
    /// A model's answer is complete. An attempt that failed has no end.
    TextEnd {
        /// The step that it speaks for.
        step: Arc<str>,
        /// Why it ended.
        finish: FinishReason,
    },
    /// What one call of a model cost.
    Usage {
        /// The step that it spoke for.
        step: Arc<str>,
        /// The model, as `provider::name`.
        model: String,
        /// The tokens.
        usage: TokenUsage,
    },
    /// Messages of a memory namespace were summarised. They stay where they are; from now on
    /// models are shown the summary in their place.
    MemorySummary {
        /// The step for which it was done.
        step: Arc<str>,
        /// The namespace.
        namespace: String,
        /// How many messages became part of the summary.
        messages: usize,
        /// The seq up to which the summary stands for the messages.
        through: u64,
    },
    /// No summary could be made. Nothing is lost, and the turn goes on.
    MemorySummaryFailed {
        /// The step for which it was to be done.
        step: Arc<str>,
        /// The namespace.
        namespace: String,
        /// The stable code of the error.
        code: String,
        /// What happened.
        message: String,
        /// Whether the step begins without what was said before, since that is what it wanted
        /// a summary of.
        reset: bool,
    },
    /// Something is said to the user.
    Message {
        /// The step that says it.
        step: Arc<str>,
        /// The text.
        text: String,
        /// Who wrote it.
        rendered: Rendered,
    },
    /// The user is told what was wrong with their last message. Not part of the history.
    Feedback {
        /// The step that says it.
        step: Arc<str>,
        /// The text.
        text: String,
    },
    /// A step left a note for the steps after it in this turn. Not for the user.
    Note {
        /// The step that wrote it.
        step: Arc<str>,
        /// The text.
        text: String,
    },
    /// A tool is called, or a model has asked for a call that is refused. The calls of one
    /// answer of a model come in its order; one that needs an approval when it is made.
    ToolCall {
        /// The call; its result carries the same id.
        id: String,
        /// The tool.
        tool: String,
        /// Its arguments.
        arguments: Value,
    },
    /// A call is over. There is exactly one for each call, unless the turn ends first. Those
    /// of parallel tools come as they finish; the history has them in the order of the calls.
    /// A call that waited for an approval and is not made has only this event.
    ToolResult {
        /// The call.
        id: String,
        /// The tool.
        tool: String,
        /// What it returned, or the text of its error. What a model is told in part, because
        /// it is longer than `CallPolicy::tool_result_bytes`, is that text here too.
        result: Value,
        /// Whether it failed.
        failed: bool,
    },
    /// A form has taken values from the user's message.
    CollectUpdate {
        /// The step.
        step: Arc<str>,
        /// The values that the form has now.
        collected: Map<String, Value>,
        /// The required slots that are still empty.
        missing: Vec<String>,
        /// The slots that were set by this message, and how.
        sources: Vec<(String, Source)>,
    },
    /// The user is asked something.
    Question(Question),
    /// An action has done something through
    /// [`ActionCx::run`](crate::step::ActionCx::run). What is given back from its journal is
    /// not told again.
    Effect {
        /// Its key.
        id: String,
        /// What it is.
        kind: EffectKind,
        /// Its name.
        name: String,
    },
    /// A [batch](crate::step::Concurrent) begins or goes on, and then each time a hundredth of
    /// its items has come to an end, or each item of less than a hundred.
    BatchProgress {
        /// The step that runs it.
        step: Arc<str>,
        /// The flow of its items.
        flow: String,
        /// How many items it has.
        total: usize,
        /// How many are over, those that wait or have failed too.
        done: usize,
        /// How many of those have failed.
        failed: usize,
        /// How many run, or are about to.
        running: usize,
        /// In how many milliseconds all will be over at the pace so far; nothing before the
        /// first one is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        eta_ms: Option<u64>,
    },
    /// The step waits for people, signals or times.
    Paused {
        /// What it waits for, with all that is needed to show it.
        interrupts: Vec<Interrupt>,
    },
    /// A request was answered, or its time has come, and the step goes on.
    Resumed {
        /// The requests.
        requests: Vec<String>,
    },
    /// A step's own event.
    Custom {
        /// Its name.
        name: String,
        /// Its payload.
        payload: Value,
    },
    /// A [gate](crate::flow::gate) of the flow has judged the run, which has come to an end.
    GateVerdict(GateVerdict),
    /// The conversation goes to another flow. The `flow-end` of this one comes next, then the
    /// `flow-enter` of the other in the same turn.
    Handoff {
        /// The flow.
        to: String,
    },
    /// A flow is parked, and the conversation goes to another one for a while. Its
    /// `flow-enter` comes next.
    DigressionStart {
        /// The flow that is parked.
        from: String,
        /// The flow that is entered.
        to: String,
    },
    /// The conversation comes back to the flow that was parked, after the `flow-end` of the
    /// other. The `question` that the user was asked there comes next, if there was one.
    DigressionEnd {
        /// The flow that has ended.
        from: String,
        /// The flow that comes back.
        to: String,
    },
    /// The flow has ended.
    FlowEnd {
        /// Why.
        reason: String,
        /// What its gates said.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        gates: Vec<GateVerdict>,
    },
    /// The listener was too slow, and here some events were left out. What the user is told
    /// is never lost: a `message` holds the whole text of its deltas.
    Lagged {
        /// How many `text-delta`.
        text_deltas: u64,
        /// How many `custom`.
        custom_events: u64,
        /// How many others: only when far more wait than
        /// [`Limits::events`](crate::engine::Limits::events).
        other_events: u64,
    },
    /// Something failed.
    Error {
        /// The stable code of the error.
        code: String,
        /// What happened.
        message: String,
        /// Whether sending the turn again may help.
        retryable: bool,
    },
    /// The turn is over.
    TurnEnd {
        /// How.
        outcome: Outcome,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_top(level: &u32) -> bool {
    *level == 0
}

impl Event {
    /// Whether it is about the turn or the session as a whole.
    fn is_frame(&self) -> bool {
        matches!(
            self,
            Self::TurnStart { .. }
                | Self::SessionCreated { .. }
                | Self::SessionRestored { .. }
                | Self::SessionMigrated { .. }
                | Self::SessionSuperseded { .. }
                | Self::FlowEnter { .. }
                | Self::FlowEnd { .. }
                | Self::Handoff { .. }
                | Self::Paused { .. }
                | Self::Resumed { .. }
                | Self::Error { .. }
                | Self::TurnEnd { .. }
        )
    }

    /// The `type` of the event as it is written in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TurnStart { .. } => "turn-start",
            Self::SessionCreated { .. } => "session-created",
            Self::SessionRestored { .. } => "session-restored",
            Self::SessionMigrated { .. } => "session-migrated",
            Self::SessionSuperseded { .. } => "session-superseded",
            Self::FlowEnter { .. } => "flow-enter",
            Self::StepEnter { .. } => "step-enter",
            Self::StepExit { .. } => "step-exit",
            Self::FlowTransition { .. } => "flow-transition",
            Self::CallEnter { .. } => "call-enter",
            Self::CallExit { .. } => "call-exit",
            Self::TextStart { .. } => "text-start",
            Self::TextDelta { .. } => "text-delta",
            Self::TextEnd { .. } => "text-end",
            Self::Usage { .. } => "usage",
            Self::MemorySummary { .. } => "memory-summary",
            Self::MemorySummaryFailed { .. } => "memory-summary-failed",
            Self::Message { .. } => "message",
            Self::Feedback { .. } => "feedback",
            Self::Note { .. } => "note",
            Self::ToolCall { .. } => "tool-call",
            Self::ToolResult { .. } => "tool-result",
            Self::CollectUpdate { .. } => "collect-update",
            Self::Question(_) => "question",
            Self::Effect { .. } => "effect",
            Self::BatchProgress { .. } => "batch-progress",
            Self::Paused { .. } => "paused",
            Self::Resumed { .. } => "resumed",
            Self::Custom { .. } => "custom",
            Self::GateVerdict(_) => "gate-verdict",
            Self::Handoff { .. } => "handoff",
            Self::DigressionStart { .. } => "digression-start",
            Self::DigressionEnd { .. } => "digression-end",
            Self::FlowEnd { .. } => "flow-end",
            Self::Lagged { .. } => "lagged",
            Self::Error { .. } => "error",
            Self::TurnEnd { .. } => "turn-end",
        }
    }
}
