use serde_json::Value;

use super::effect::{Wait, outcome_of, read};
use super::recall::Recall;
use super::{Arrival, DynStep, Effect, FlowMeta, Scope, StepCx, arrive, dispatch};
use crate::effect::{Begun, Journal, Place};
use crate::error::{EffectError, Error, Result, StepError};
use crate::event::Event;
use crate::memory::MemoryPolicy;
use crate::model::TokenUsage;
use crate::session::{
    Display, EffectKind, EffectOutcome, ErrorRecord, FrameRecord, PathEntry, Question,
};
use crate::transition::{Payload, Transition};

/// How deep and how wide an action may work: steps within steps and side by side, calls, batches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameLimits {
    pub(crate) depth: u32,
    pub(crate) branches: usize,
    /// How many calls and batches may be under way within each other.
    pub(crate) calls: u32,
    /// The most items of a batch.
    pub(crate) items: usize,
}

impl Scope {
    /// What a step works with that runs at a place within this step. It takes part in the
    /// conversation, and has a message of its own only once it has asked for one.
    pub(super) fn within(&self, place: &Place, step: &str) -> Self {
        let policy = MemoryPolicy { summary: None, ..self.recall.policy.clone() };
        let counted = self.effects.iter().filter(|effect| effect.is_counted()).count();
        let counted = u32::try_from(counted).unwrap_or(u32::MAX);
        Self {
            session: self.session.clone(),
            turn: self.turn.clone(),
            step: step.into(),
            visit: self.visit,
            journal: self.journal.clone(),
            frame: place.clone(),
            level: self.level + 1,
            current: Some(self.current.clone().unwrap_or_else(|| self.step.clone())),
            limits: self.limits,
            interrupts: Vec::new(),
            round: None,
            unrecorded: self.unrecorded.clone(),
            message: None,
            last_message: self.last_message.clone(),
            asked_fields: Vec::new(),
            asked: 0,
            effects: Vec::new(),
            said: self.said.saturating_sub(counted),
            notes: self.notes.clone(),
            context: self.context.clone(),
            tools: self.tools.clone(),
            models: self.models.clone(),
            speaker: self.speaker_of(step),
            speakers: self.speakers.clone(),
            namespace: self.namespace,
            recall: Recall { policy, ..Recall::default() },
            reducers: self.reducers.clone(),
            unsaved: self.unsaved.clone(),
            usage: TokenUsage::default(),
            events: self.events.clone(),
            now: self.now,
            clock: self.clock.clone(),
            children: self.children.clone(),
            callers: self.callers.clone(),
            ledger: self.ledger.clone(),
            may_ask: self.may_ask,
            entered: Vec::new(),
        }
    }

    /// Refuses a step that would be too deep.
    pub(super) fn check_depth(&self, step: &str) -> Result<()> {
        let limit = self.limits.depth;
        if self.level < limit {
            return Ok(());
        }
        let (session, step) = (self.session.to_string(), step.to_owned());
        let within = self.step.to_string();
        Err(Error::from(EffectError::StepDepth { session, step, within, limit }).into())
    }

    /// What the step has done to the conversation, as it is recorded.
    pub(super) fn said(&self) -> Result<Vec<Value>> {
        Ok(self.effects.iter().map(serde_json::to_value).collect::<Result<_, _>>()?)
    }

    /// Drops what a step that has failed was to say, but what the user was told already.
    pub(super) fn drop_unsaid(&mut self) {
        let mut left = self.said;
        self.effects.retain(|effect| {
            let said = effect.is_counted() && left > 0;
            left = left.saturating_sub(u32::from(said));
            said || effect.is_round() || effect.is_relay()
        });
    }
}

/// Takes what a step has done within another one over to that one, even when it is dropped
/// because it waits.
struct Frame<'a> {
    around: &'a mut Scope,
    scope: Scope,
}

impl<'a> Frame<'a> {
    fn open(around: &'a mut Scope, place: &Place, step: &str) -> Self {
        let scope = around.within(place, step);
        Self { around, scope }
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        self.around.effects.append(&mut self.scope.effects);
        self.around.usage += self.scope.usage;
        self.around.entered.append(&mut self.scope.entered);
    }
}

/// Runs a step within another one, as an effect of that one, and gives its fields.
pub(super) async fn call<F: FlowMeta>(
    cx: &mut StepCx<'_, F>,
    name: &'static str,
    mut step: Box<dyn DynStep<F>>,
    input: Payload,
    arguments: &Value,
) -> Result<Value> {
    cx.scope.check_depth(name)?;
    let place = match cx.scope.begin(EffectKind::Step, name, Some(arguments))? {
        Begun::Replayed { place, outcome } => return replay(cx, name, &place, outcome),
        Begun::Fresh { place, .. } => place,
    };
    let before = serde_json::to_value(&*cx.state)?;
    let ask_flow = cx.ask_flow;
    let mut frame = Frame::open(cx.scope, &place, name);
    let result = {
        let mut cx = StepCx::new(cx.flow, cx.state, &mut frame.scope);
        cx.ask_flow = ask_flow;
        run(&mut cx, &mut *step, input).await
    };
    let journal = frame.scope.journal.clone();
    match result {
        Ok(fields) => {
            let after = serde_json::to_value(&*cx.state)?;
            let state = (after != before).then_some(after);
            let said = frame.scope.said()?;
            let (fields_left, entered) = (fields.clone(), frame.scope.entered.clone());
            let record =
                FrameRecord { fields: fields_left, state, said, entered, ..Default::default() };
            journal.finish_frame(&place, record);
            Ok(fields)
        }
        Err(error) => {
            frame.scope.drop_unsaid();
            // As it is when the failure is given back.
            *cx.state = read(name, before)?;
            Err(fail(&journal, &place, &frame.scope, &error))
        }
    }
}

/// Records why a step has failed, and gives the error as it is given when the action runs again.
pub(super) fn fail(
    journal: &Journal,
    place: &Place,
    scope: &Scope,
    error: &StepError,
) -> StepError {
    let error = ErrorRecord::of_step(error);
    let (said, entered) = (scope.said().unwrap_or_default(), scope.entered.clone());
    journal.fail_frame(place, FrameRecord { said, entered, ..Default::default() }, error.clone());
    Error::from(EffectError::Failed { error }).into()
}

/// Does anew to the state and the conversation what a step has done that is over.
pub(super) fn replay<F: FlowMeta>(
    cx: &mut StepCx<'_, F>,
    name: &str,
    place: &Place,
    outcome: EffectOutcome,
) -> Result<Value> {
    let record = cx.scope.journal.frame(place).unwrap_or_default();
    redo(cx, name, place, &record)?;
    outcome_of(outcome)?;
    Ok(record.fields)
}

fn redo<F: FlowMeta>(
    cx: &mut StepCx<'_, F>,
    name: &str,
    place: &Place,
    record: &FrameRecord,
) -> Result<()> {
    if let Some(state) = &record.state {
        *cx.state = read(name, state.clone())?;
    }
    cx.scope.entered.extend_from_slice(&record.entered);
    // What called sessions have said is done once, unless that run could not pass it on.
    let untold = cx.scope.journal.has_untold(place);
    for said in &record.said {
        match read(name, said.clone())? {
            Effect::Relay { .. } if !untold => {}
            Effect::Relay { text, .. } => {
                cx.scope.effects.push(Effect::Relay { text, heard: false });
            }
            effect => cx.scope.effects.push(effect),
        }
    }
    Ok(())
}

/// Runs a step from its entry to its way out, and gives its fields. Where it stays it waits for
/// the user's message, if it may. A step that goes on is entered again, as listeners are told: its
/// exit may follow.
pub(super) async fn run<F: FlowMeta>(
    cx: &mut StepCx<'_, F>,
    step: &mut dyn DynStep<F>,
    input: Payload,
) -> Result<Value> {
    let place = cx.scope.frame.clone();
    let name = cx.scope.step.clone();
    let (visit, level) = (cx.scope.visit, cx.scope.level);
    cx.scope.events.emit(|| Event::StepEnter { step: name.clone(), visit, level });
    let kept = cx.scope.journal.frame(&place);
    let mut waits = kept.is_some();
    if let Some(record) = kept {
        redo(cx, &name, &place, &record)?;
        cx.scope.asked = record.asked;
        cx.scope.asked_fields = record.asked_fields;
        step.load(record.fields).map_err(|misfit| {
            let effect = format!("step `{name}` at `{}`", misfit.path);
            Error::from(EffectError::Unreadable { effect, reason: misfit.reason })
        })?;
    } else {
        let at = cx.scope.journal.begun_at(&place).unwrap_or_else(|| cx.scope.clock.now());
        cx.scope.entered.push(PathEntry { step: name.to_string(), level, at });
        arrive(step, Arrival { from: None, input, start: false }, cx).await?;
    }
    loop {
        if waits {
            hear(cx).await?;
        }
        cx.scope.events.ready().await;
        match dispatch(step, cx).await? {
            Transition::Go { .. } | Transition::End(_) => break,
            Transition::Stay if cx.scope.may_ask => keep(cx, step)?,
            Transition::Stay => {
                return Err(unfit(
                    cx,
                    "stay: it runs beside others, and none of them gets the user's message; ask with `cx.input`",
                ));
            }
            Transition::Escalate(reason) => return Err(StepError::terminal(reason)),
            Transition::HandOff(_) => {
                return Err(unfit(cx, "hand off: only a step at which the session stands can"));
            }
            Transition::Suspend => {
                return Err(unfit(
                    cx,
                    "wait for the approval of a call that its model asks for: only a step at which the session stands can",
                ));
            }
        }
        waits = true;
    }
    step.exit(cx).await?;
    cx.scope.events.emit(|| Event::StepExit { step: name, level });
    Ok(step.save()?)
}

fn unfit<F: FlowMeta>(cx: &StepCx<'_, F>, what: &'static str) -> StepError {
    let (session, step) = (cx.scope.session.to_string(), cx.scope.step.to_string());
    let within = cx.current_step().to_owned();
    let error = EffectError::Unfit { session, step, within, what };
    Error::from(error).into()
}

/// Records where a step stands that stays.
fn keep<F: FlowMeta>(cx: &mut StepCx<'_, F>, step: &dyn DynStep<F>) -> Result<()> {
    let fields = step.save()?;
    let state = Some(serde_json::to_value(&*cx.state)?);
    let said = cx.scope.said()?;
    let (asked, entered) = (cx.scope.asked, cx.scope.entered.clone());
    let asked_fields = question(cx.scope).map(|question| question.fields.clone());
    let asked_fields = asked_fields.unwrap_or_default();
    let scope = &*cx.scope;
    scope.journal.keep_frame(&scope.frame, |next| FrameRecord {
        fields,
        state,
        said,
        asked,
        asked_fields,
        next,
        entered,
    });
    Ok(())
}

/// What the step has asked last.
fn question(scope: &Scope) -> Option<&Question> {
    scope.effects.iter().rev().find_map(|effect| match effect {
        Effect::Ask(question) => Some(question),
        _ => None,
    })
}

/// Waits for the user's message.
async fn hear<F: FlowMeta>(cx: &mut StepCx<'_, F>) -> Result<()> {
    let scope = &*cx.scope;
    let begun = scope.begin(EffectKind::Message, "message", None)?;
    let question = question(scope).cloned().unwrap_or_default();
    let wait = Wait {
        kind: EffectKind::Message,
        name: "message".to_owned(),
        display: Display { title: question.text, description: String::new() },
        allowed: question.options,
        response_schema: None,
        deadline: None,
        on_expiry: None,
        operation: None,
    };
    let words: String = read("message", scope.wait(begun, wait).await?)?;
    cx.scope.message = Some(words.clone());
    cx.scope.last_message = Some(words);
    Ok(())
}
