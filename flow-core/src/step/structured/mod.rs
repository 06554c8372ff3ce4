//! Structured output: asks a model for a value instead of words.
//!
//! What is wanted is described by a JSON Schema with an object at the top. How it is asked for
//! depends on what the model can do ([`Capabilities`]):
//!
//! 1. as the form of the answer ([`OutputSchema`]), where the model keeps to one by itself and
//!    the schema holds nothing that a strict form cannot say;
//! 2. as the arguments of a tool that it is made to call;
//! 3. in the system prompt, with the schema, as a fenced block of JSON.
//!
//! An answer that does not fit goes back to the model once, with what is wrong with it. Neither
//! that nor the answer becomes part of the history, and no piece of it is told to the user.

mod answer;
mod form;
mod judge;
mod name;
mod shape;

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use schemars::Schema;
use serde_json::Value;

use super::cx::Scope;
use super::generate::Failed;
use super::registry::Misfit;
use super::speaker::{Speaker, ask_silently};
use crate::error::StepError;
use crate::memory;
use crate::message::{Message, Part, Role};
use crate::model::{Capabilities, ChatRequest, ModelError, OutputSchema, ToolChoice};
use crate::tool::ToolDefinition;

pub(super) use form::{FormShape, Offer, submit};
pub(crate) use judge::judge;
use name::{MAX_NAME, snake};
pub(super) use shape::Shape;

/// What a model is asked for.
pub(super) struct Wanted<'a> {
    pub(super) system: String,
    /// The name of the tool, or of the form of the answer.
    pub(super) name: &'a str,
    /// What the tool is for.
    pub(super) description: &'a str,
    /// An object at the top.
    pub(super) schema: &'a Value,
    /// Whether the schema holds nothing that a strict form cannot say.
    pub(super) strict: bool,
    /// Whether a tool is called wherever the model can, also where it keeps to a form.
    pub(super) by_tool: bool,
}

/// How a model is asked for a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Native,
    Tool,
    Prompt,
}

impl Mode {
    fn of(can: Capabilities, wanted: &Wanted<'_>) -> Self {
        let native = can.structured_output && wanted.strict;
        match (native, can.tools) {
            (true, false) => Self::Native,
            (true, true) if !wanted.by_tool => Self::Native,
            (_, true) => Self::Tool,
            (false, false) => Self::Prompt,
        }
    }
}

/// Takes an answer, or says everything that is wrong with it.
pub(super) type Accept<'a> = &'a mut (dyn FnMut(Value) -> Result<(), Vec<Misfit>> + Send);

/// Asks the step's model for a value, and once more when the answer is not accepted.
pub(super) async fn consult(
    scope: &mut Scope,
    messages: Vec<Message>,
    wanted: Wanted<'_>,
    accept: Accept<'_>,
) -> Result<(), Failed> {
    let speaker = scope.speaker.clone().ok_or(ModelError::Missing)?;
    consult_with(scope, &speaker, messages, wanted, accept).await
}

/// Asks a model for a value, and once more when the answer is not accepted.
async fn consult_with(
    scope: &mut Scope,
    speaker: &Speaker,
    messages: Vec<Message>,
    wanted: Wanted<'_>,
    accept: Accept<'_>,
) -> Result<(), Failed> {
    let mode = Mode::of(speaker.model.capabilities(), &wanted);
    let mut request = make_request(mode, messages, &wanted)?;
    let mut corrected = false;
    loop {
        let response = ask_silently(scope, speaker, &request).await?;
        let accepted = answer::read(&response, wanted.name, mode == Mode::Tool)
            .map_err(|misfit| vec![misfit])
            .and_then(&mut *accept);
        let Err(misfits) = accepted else { return Ok(()) };
        if corrected {
            let Misfit { path, reason } = first(misfits);
            let (model, form) = (speaker.name.to_string(), wanted.name.to_owned());
            return Err(ModelError::InvalidOutput { model, form, path, reason }.into());
        }
        corrected = true;
        request.messages.extend(answer::correct(scope, response, wanted.name, &misfits));
    }
}

fn first(misfits: Vec<Misfit>) -> Misfit {
    let unknown = || Misfit { path: ".".to_owned(), reason: "it does not fit".to_owned() };
    misfits.into_iter().next().unwrap_or_else(unknown)
}

fn make_request(
    mode: Mode,
    messages: Vec<Message>,
    wanted: &Wanted<'_>,
) -> Result<ChatRequest, Failed> {
    let mut system = wanted.system.clone();
    let mut request = ChatRequest::new(messages);
    match mode {
        Mode::Native => {
            let schema = Schema::try_from(wanted.schema.clone())
                .map_err(|e| Failed::Step(StepError::terminal(e.to_string())))?;
            request = request.output(OutputSchema { name: wanted.name.to_owned(), schema });
        }
        Mode::Tool => {
            // Some servers take no notice of the choice.
            if !system.is_empty() {
                system.push_str("\n\n");
            }
            let name = wanted.name;
            system.push_str(&format!("Call the tool {name} with the answer."));
            let schema = wanted.schema.clone();
            let tool = ToolDefinition::new(wanted.name, wanted.description, schema);
            request = request.tools(vec![tool]).tool_choice(ToolChoice::Tool(wanted.name.into()));
        }
        Mode::Prompt => {
            if !system.is_empty() {
                system.push_str("\n\n");
            }
            system.push_str(wanted.description);
            system.push_str(
                "\nAnswer with one JSON object in a fenced block and nothing else:\n\
                 ```json\n{ .. }\n```\nIt has to fit this JSON Schema:\n",
            );
            system.push_str(&wanted.schema.to_string());
        }
    }
    if !system.is_empty() {
        request = request.system(system);
    }
    Ok(request)
}

/// The conversation as it is shown to a model that is asked for a value: the step's memory
/// and what the user has said now, as texts, and always with the user at both ends, as
/// providers want it.
pub(super) fn show_conversation(scope: &Scope, message: Option<&str>) -> Vec<Message> {
    let history = scope.recalled();
    // A message is kept in the memory of the step that was current when it came.
    let kept = |message: &str| {
        let mut messages = history.iter().rev();
        messages.any(|m| m.role == Role::User && m.at >= scope.now && m.to_text() == message)
    };
    let fresh = message.filter(|message| !message.trim().is_empty() && !kept(message));
    let mut shown = answer::plain(history.clone());
    if let Some(message) = fresh {
        shown.push(scope.draft(Role::User, vec![Part::text(message)]));
    }
    memory::frame(&mut shown, scope.now);
    shown
}

/// Asks the step's model for a value of a shape.
pub(super) async fn extract(
    scope: &mut Scope,
    system: String,
    shape: &Shape,
    read: &mut (dyn FnMut(Value) -> Result<(), Misfit> + Send),
) -> Result<(), Failed> {
    let message = scope.message.clone().or_else(|| scope.last_message.clone());
    let messages = show_conversation(scope, message.as_deref());
    let wanted = Wanted {
        system,
        name: &shape.name,
        description: &shape.description,
        schema: &shape.schema,
        strict: shape.strict,
        by_tool: false,
    };
    let mut accept = |value| {
        let value = shape.check(value)?;
        read(value).map_err(|misfit| vec![shape.shorten(misfit)])
    };
    consult(scope, messages, wanted, &mut accept).await
}

/// What is made once per type.
pub(super) struct Made<T>(LazyLock<RwLock<HashMap<TypeId, Arc<T>>>>);

impl<T> Made<T> {
    pub(super) const fn new() -> Self {
        Self(LazyLock::new(RwLock::default))
    }

    pub(super) fn get<K: 'static>(
        &self,
        make: impl FnOnce() -> Result<T, StepError>,
    ) -> Result<Arc<T>, StepError> {
        let id = TypeId::of::<K>();
        // What is in the map is whole, so a panic elsewhere does not matter.
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(id, made.clone());
        Ok(made)
    }
}
