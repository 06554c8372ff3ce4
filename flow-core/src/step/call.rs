//! Calls of other flows by actions.

use std::fmt;
use std::future::pending;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::child::{ChildOutcome, ChildTurn};
use super::effect::{Waiting, read};
use super::{ActionCx, Children, Effect, FlowMeta, Scope};
use crate::effect::{Begun, message_request};
use crate::error::{EffectError, Error, Result, SessionError, StepError, StoreError};
use crate::event::Event;
use crate::id::SessionId;
use crate::json;
use crate::session::{
    self, Display, EffectKind, EffectOutcome, ErrorRecord, Interrupt, Parent, PendingCall,
    Relation, SessionDoc,
};

/// The turn with which a called session begins.
const BEGIN: &str = "begin";

/// What a called flow came to.
#[non_exhaustive]
pub struct CallOutcome<F: FlowMeta> {
    /// Its shared state at the end.
    pub state: F::State,
    /// Why it has ended, in the words of its last step.
    pub reason: String,
    /// The session that it ran in, which stays in the store.
    pub session: SessionId,
}

impl<F: FlowMeta<State: fmt::Debug>> fmt::Debug for CallOutcome<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallOutcome")
            .field("state", &self.state)
            .field("reason", &self.reason)
            .field("session", &self.session)
            .finish()
    }
}

impl<F: FlowMeta> ActionCx<'_, F> {
    /// Calls another registered flow and waits, durably, until it has ended. The shared state
    /// that it begins with is its input, the one that it ends with its output.
    ///
    /// ```
    /// # use flow_core::prelude::*;
    /// # #[flow(id = "f", steps(Pay))] #[derive(Clone)] struct Desk;
    /// # impl Flow for Desk {}
    /// # #[flow(id = "card", steps(Ask), state = Card)] #[derive(Clone)] struct CardFlow;
    /// # impl Flow for CardFlow {}
    /// # #[step(reply, next(stay, end))] #[derive(Default, Serialize, Deserialize, JsonSchema)]
    /// # struct Ask;
    /// # impl Reply for Ask { type Flow = CardFlow; }
    /// #[derive(Default, Serialize, Deserialize, JsonSchema)]
    /// struct Card {
    ///     cents: u32,
    ///     number: Option<String>,
    /// }
    ///
    /// # #[step(action, next(end))]
    /// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
    /// # struct Pay;
    /// # impl Action for Pay {
    /// # type Flow = Desk;
    /// async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<PayNext> {
    ///     let card = Card { cents: 12_000, number: None };
    ///     let card = cx.call_flow::<CardFlow>(card).await?.state; // it asks over several turns
    ///     Ok(PayNext::End(format!("paid by {:?}", card.number).into()))
    /// }
    /// # }
    /// ```
    ///
    /// # The called session
    ///
    /// The flow runs in a session of its own in the same store, with the owner, the labels and
    /// the context of this one. Its id is made of this session's, the visit, the place of the
    /// call and what it is called with, so the call that is repeated after a crash finds it, and
    /// what it has done is not done again. Nobody but the caller runs its turns: a message, an
    /// answer and a sweep that are for itself are refused
    /// ([`SessionError::Called`]). It is deleted with the caller's session.
    ///
    /// * Its questions are the caller's: the turn ends with them, the user's next message to the
    ///   caller's session is its message. What it says, the caller says too; both histories
    ///   have it. Events tell its steps between `call-enter` and `call-exit`.
    /// * What else it waits for the caller's session waits for, under ids of its own and with
    ///   the [path](Interrupt::path) of the called flows. Answers go to the caller's session.
    /// * When it escalates the caller's session escalates, with the flow in the reason, and both
    ///   go on when that is [released](crate::engine::SessionHandle::release).
    /// * What its models cost counts in the caller's usage when the step that called is left or
    ///   stays.
    ///
    /// After [`restart_step`](crate::engine::SessionHandle::restart_step) the same call goes
    /// on with the session that it had, or gives the result if that has ended; what that said
    /// at its beginning is said again. A caller that is
    /// [abandoned](crate::engine::SessionHandle::abandon) leaves the called session where it
    /// stands, where nobody waits for it and nothing wakes it.
    ///
    /// # Errors
    /// [`EffectError::CallDepth`] when [`Limits::call_depth`](crate::engine::Limits::call_depth)
    /// calls are under way within each other. [`EffectError::Call`] when a turn of the called
    /// flow failed terminally, as one does whose flow is not registered in the engine, which only
    /// shows when it is called: the action may go on without it. A failure that sending the
    /// turn again may cure fails the turn of the caller at once; the next one goes on in the
    /// called session, with the same message if it is the same turn, or with the new one.
    pub async fn call_flow<G: FlowMeta>(&mut self, state: G::State) -> Result<CallOutcome<G>> {
        let state = serde_json::to_value(&state)?;
        let (state, reason, session) = call(self.scope, G::ID, state).await?;
        let state = read(&format!("call of `{}`", G::ID), state)?;
        Ok(CallOutcome { state, reason, session })
    }
}

/// A call of a flow.
struct Call<'a> {
    children: &'a dyn Children,
    /// The session that calls, as it was last committed.
    caller: Arc<SessionDoc>,
    flow: &'a str,
    session: SessionId,
    parent: Parent,
}

/// Makes the next turn of the called session, if one is due. Comes back when that has ended.
async fn call(scope: &mut Scope, flow: &str, state: Value) -> Result<(Value, String, SessionId)> {
    let (Some(children), Some(caller)) =
        (scope.children.clone(), scope.ledger.as_ref().map(|ledger| ledger.doc()))
    else {
        let reason = format!("flow `{flow}` can only be called in a turn of an engine");
        return Err(StepError::terminal(reason));
    };
    let begun = scope.begin(EffectKind::Call, flow, Some(&state))?;
    let (Begun::Fresh { place, .. } | Begun::Replayed { place, .. }) = &begun;
    let place = place.clone();
    let call = Call {
        children: &*children,
        session: child_id(scope, &place.to_string(), flow, &state),
        parent: link(&caller, Relation::Call),
        caller,
        flow,
    };
    let journal = scope.journal.clone();
    let mut progress = journal.call(&place);
    // An earlier run has failed before it could pass that on.
    let untold = progress.replies.iter().cloned();
    scope.effects.extend(untold.map(|text| Effect::Relay { text, heard: false }));
    if let Begun::Replayed { outcome, .. } = begun {
        return match outcome {
            EffectOutcome::Value(value) => call.read(value),
            EffectOutcome::Error(error) => Err(call.failed(error).into()),
        };
    }
    let running = journal.run(&place);
    if call.parent.depth > scope.limits.calls {
        return Err(call.too_deep(scope).into());
    }
    let fail = |error: ErrorRecord| {
        journal.finish(&place, EffectOutcome::Error(error.clone()));
        Err(call.failed(error).into())
    };
    scope.events.ready().await;
    scope.record_effects(false).await;
    if let Some(turn) = call.next_turn(&progress, state, scope) {
        let id = turn.turn_id.clone();
        match call.run(turn, scope).await {
            Ok(ran) => {
                let ChildOutcome { replies, repeated, .. } = ran;
                let told = replies.iter().cloned();
                let told = told.map(|text| Effect::Relay { text, heard: !repeated });
                scope.effects.extend(told);
                progress.replies.extend(replies);
                progress.turn = Some(id);
                progress.input = None;
                journal.set_call(&place, progress.clone());
            }
            // Its document says how it has, and more turns do not change that.
            Err(Error::Session(SessionError::Ended { .. })) => {}
            Err(error) if error.retryable() => {
                journal.break_off(call.failed(ErrorRecord::from(&error)));
                return pending().await;
            }
            Err(error) => return fail(ErrorRecord::from(&error)),
        }
    }
    let called = match call.children.load(&call.session).await {
        Ok(Some(called)) => called,
        Ok(None) => {
            let error = Error::from(StoreError::NotFound { session: call.session.clone() });
            return fail(ErrorRecord::from(&error));
        }
        Err(error) => {
            journal.break_off(error);
            return pending().await;
        }
    };
    if let Some(reason) = called.ended {
        let usage = called.usage;
        let progress = PendingCall { replies: progress.replies, usage, ..PendingCall::default() };
        journal.set_call(&place, progress);
        let value = json!({ "state": called.state, "reason": reason });
        journal.finish(&place, EffectOutcome::Value(value));
        return Ok((called.state, reason, call.session));
    }
    progress.escalated = matches!(called.waiting, Some(session::Waiting::Escalation { .. }));
    let turn = progress.turn.clone().unwrap_or_default();
    journal.set_call(&place, progress);
    journal.wait_for_call(&place, call.waits_for(&turn, called));
    let _waiting = Waiting(&journal, &place);
    drop(running);
    // The engine puts the action aside and runs it again with what has come.
    pending().await
}

impl Call<'_> {
    /// What the called session is to do now; nothing while it waits.
    fn next_turn(&self, progress: &PendingCall, state: Value, scope: &Scope) -> Option<ChildTurn> {
        let PendingCall { turn, input, escalated, .. } = progress.clone();
        let goes_on = turn.is_some();
        let input = match (turn, input) {
            (Some(_), Some(input)) => input,
            (Some(turn), None) if escalated => {
                session::CallInput { turn: format!("{turn}+"), ..Default::default() }
            }
            (Some(_), None) => return None,
            (None, _) => session::CallInput { turn: BEGIN.to_owned(), ..Default::default() },
        };
        Some(ChildTurn {
            flow: self.flow.to_owned(),
            session: self.session.clone(),
            parent: self.parent.clone(),
            callers: self.callers(scope),
            state,
            turn_id: input.turn,
            message: input.message,
            answers: input.answers,
            goes_on,
            releases: escalated,
            context: context_of(scope),
            owner: self.caller.owner.clone(),
            labels: self.caller.labels.clone(),
        })
    }

    /// The flows that wait for the called one.
    fn callers(&self, scope: &Scope) -> Vec<String> {
        callers(scope, &self.caller)
    }

    async fn run(&self, turn: ChildTurn, scope: &Scope) -> Result<ChildOutcome, Error> {
        let flow: Arc<str> = self.flow.into();
        let session: Arc<str> = self.session.as_str().into();
        let depth = self.parent.depth;
        scope.events.emit(|| {
            let (flow, session) = (flow.clone(), session.clone());
            Event::CallEnter { flow, session, depth }
        });
        let ran = self.children.turn(turn, scope.events.of_called()).await;
        scope.events.emit(|| Event::CallExit { flow, session, depth });
        ran
    }

    /// What the caller waits for while the called session waits.
    fn waits_for(&self, turn: &str, called: SessionDoc) -> Vec<Interrupt> {
        let mut interrupts = match called.waiting {
            Some(session::Waiting::Interrupts { pending }) => pending,
            Some(session::Waiting::Escalation { reason }) => {
                let reason = format!("{}: {reason}", self.flow);
                vec![self.request(EffectKind::Call, turn, called.current_step, reason, Vec::new())]
            }
            waiting => {
                let question = match waiting {
                    Some(session::Waiting::Message { question }) => question.unwrap_or_default(),
                    _ => session::Question::default(),
                };
                let (step, options) = (called.current_step, question.options);
                vec![self.request(EffectKind::Message, turn, step, question.text, options)]
            }
        };
        for interrupt in &mut interrupts {
            interrupt.path.insert(0, self.flow.to_owned());
        }
        interrupts
    }

    fn request(
        &self,
        kind: EffectKind,
        turn: &str,
        step: String,
        title: String,
        allowed: Vec<String>,
    ) -> Interrupt {
        Interrupt {
            request_id: message_request(turn),
            kind,
            step,
            path: Vec::new(),
            name: title.clone(),
            display: Display { title, description: String::new() },
            allowed,
            response_schema: None,
            deadline: None,
            on_expiry: None,
            operation: None,
        }
    }

    /// What is recorded of a call that has ended well.
    fn read(self, value: Value) -> Result<(Value, String, SessionId)> {
        let (state, reason) = read(&format!("call of `{}`", self.flow), value)
            .map(|Recorded { state, reason }| (state, reason))?;
        Ok((state, reason, self.session))
    }

    fn failed(&self, error: ErrorRecord) -> Error {
        let (flow, session) = (self.flow.to_owned(), self.session.to_string());
        EffectError::Call { flow, session, error }.into()
    }

    /// Too many calls are under way.
    fn too_deep(&self, scope: &Scope) -> Error {
        too_deep(scope, &self.caller, self.flow)
    }
}

/// The flows that wait for what a session begins, from the outermost one.
pub(super) fn callers(scope: &Scope, caller: &SessionDoc) -> Vec<String> {
    scope.callers.iter().cloned().chain([caller.flow.id.clone()]).collect()
}

/// The context that a called session gets, but for what says that the calling one is a batch.
fn context_of(scope: &Scope) -> Map<String, Value> {
    let mut context = scope.context.clone();
    context.remove("concurrent");
    context
}

/// Too many calls and batches are under way within each other.
pub(super) fn too_deep(scope: &Scope, caller: &SessionDoc, flow: &str) -> Error {
    let mut path = callers(scope, caller);
    path.push(flow.to_owned());
    let (session, limit) = (caller.id.to_string(), scope.limits.calls);
    EffectError::CallDepth { session, limit, path: path.join(" > ") }.into()
}

#[derive(serde::Deserialize)]
struct Recorded {
    state: Value,
    reason: String,
}

/// How a session belongs to the one that begins it and waits for it.
pub(super) fn link(caller: &SessionDoc, relation: Relation) -> Parent {
    let above = caller.parent.as_ref().map_or(0, |parent| match parent.relation {
        Relation::Call | Relation::Item => parent.depth,
        // The conversation was with another flow, which does not wait for this one.
        Relation::HandOff | Relation::Digression => 0,
    });
    Parent { session: caller.id.clone(), flow: caller.flow.id.clone(), relation, depth: above + 1 }
}

/// The id of the called session: another flow, or the same one with another state, at the same
/// place is another session.
fn child_id(scope: &Scope, place: &str, flow: &str, state: &Value) -> SessionId {
    let digest = json::digest(&json!([flow, state]));
    let number = u32::from_str_radix(&digest[..8], 16).unwrap_or_default();
    scope.session.child(scope.visit, &format!("{place}-{number}"))
}
