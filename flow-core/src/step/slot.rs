use std::sync::OnceLock;

use regex::Regex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::resolve::{self, Resolved};
use crate::session::Question;

/// A field of a form, as `#[slot]` describes it.
#[derive(Debug)]
pub struct Slot {
    /// The field's persisted name.
    pub name: &'static str,
    /// Its doc comment.
    pub doc: &'static str,
    /// The question that asks for it, from `#[slot(ask = "..")]`.
    pub ask: Option<&'static str>,
    /// Whether the form is complete without it.
    pub optional: bool,
    /// Whether it must stand in the user's message as it is.
    pub verbatim: bool,
    /// How it is read from a message without a model.
    pub resolver: Option<Resolver>,
}

/// How a slot is read from a message, without a model.
#[derive(Debug)]
#[non_exhaustive]
pub enum Resolver {
    /// One of these words, whatever their case: `#[slot(one_of("card", "cash"))]`.
    OneOf(&'static [&'static str]),
    /// A number from the first bound to the second, both included: `#[slot(range(1, 8))]`.
    Range(f64, f64),
    /// What a regular expression captures: `#[slot(pattern("#(\\d+)"))]`.
    Pattern(Pattern),
    /// The whole message, when this slot alone was asked for: `#[slot(whole_message)]`.
    WholeMessage,
}

/// A regular expression with one capture, compiled on first use and checked when the
/// engine is built.
#[derive(Debug)]
pub struct Pattern {
    text: &'static str,
    compiled: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    /// Takes the text of a regular expression.
    pub const fn new(text: &'static str) -> Self {
        Self { text, compiled: OnceLock::new() }
    }

    /// The text.
    pub fn as_str(&self) -> &'static str {
        self.text
    }

    /// The compiled expression.
    ///
    /// # Errors
    /// When it does not parse or has not exactly one capture.
    pub fn regex(&self) -> Result<&Regex, &str> {
        let compiled = self.compiled.get_or_init(|| {
            let regex = Regex::new(self.text).map_err(|e| e.to_string())?;
            match regex.captures_len() - 1 {
                1 => Ok(regex),
                n => Err(format!(
                    "the pattern `{}` has {n} captures, it needs exactly one",
                    self.text
                )),
            }
        });
        compiled.as_ref().map_err(String::as_str)
    }
}

impl Slot {
    /// The question that asks for this slot alone.
    pub fn question(&self) -> Question {
        let text = match (self.ask, self.doc.trim()) {
            (Some(ask), _) => ask.to_owned(),
            (None, "") => format!("Please tell me: {}.", self.name.replace('_', " ")),
            (None, doc) => doc.to_owned(),
        };
        let options = match &self.resolver {
            Some(Resolver::OneOf(options)) => options.iter().map(|o| (*o).to_owned()).collect(),
            _ => Vec::new(),
        };
        Question { text, fields: vec![self.name.to_owned()], options }
    }

    /// Reads the slot from a message.
    pub(crate) fn resolve(&self, message: &str) -> Resolved {
        match &self.resolver {
            Some(Resolver::OneOf(options)) => resolve::one_of(options, message),
            Some(Resolver::Range(min, max)) => resolve::range(*min, *max, message),
            Some(Resolver::Pattern(pattern)) => match pattern.regex() {
                Ok(regex) => resolve::pattern(regex, message),
                Err(_) => Resolved::Nothing,
            },
            Some(Resolver::WholeMessage) | None => Resolved::Nothing,
        }
    }

    /// What an answer has to look like, for the user.
    pub(crate) fn hint(&self) -> Option<String> {
        match &self.resolver {
            Some(Resolver::OneOf(options)) => {
                Some(format!("Please answer with one of: {}.", options.join(", ")))
            }
            Some(Resolver::Range(min, max)) => {
                Some(format!("Please answer with one number from {min} to {max}."))
            }
            Some(Resolver::Pattern(_)) => Some("That does not have the form I need.".to_owned()),
            Some(Resolver::WholeMessage) | None => None,
        }
    }
}

/// The type of a slot: an `Option`, so that the slot can be empty.
#[diagnostic::on_unimplemented(
    message = "a slot must be an `Option`, not `{Self}`",
    label = "write `Option<{Self}>`",
    note = "a slot is empty until the user has given its value"
)]
pub trait SlotField {
    /// The type of the value.
    type Value: Serialize + DeserializeOwned + Clone + Send + Sync;

    /// The value, if the slot has one.
    fn value(&self) -> Option<&Self::Value>;

    /// Sets or clears the value.
    fn put(&mut self, value: Option<Self::Value>);
}

impl<T: Serialize + DeserializeOwned + Clone + Send + Sync> SlotField for Option<T> {
    type Value = T;

    fn value(&self) -> Option<&T> {
        self.as_ref()
    }

    fn put(&mut self, value: Option<T>) {
        *self = value;
    }
}

/// A form: the `#[slot]` fields of a collect step. `#[step(collect)]` implements it.
pub trait Form {
    /// The complete form: required slots without `Option`, optional ones with it.
    type Data: Send;

    /// The slots in source order.
    fn slots() -> &'static [Slot];

    /// The value of a slot as JSON, by its place in [`slots`](Self::slots).
    fn get(&self, slot: usize) -> Option<Value>;

    /// Sets a slot from JSON, or clears it.
    ///
    /// # Errors
    /// What does not fit, when the value does not read as the slot's type.
    fn set(&mut self, slot: usize, value: Option<Value>) -> Result<(), String>;

    /// The complete form, or nothing while a required slot is empty.
    fn data(&self) -> Option<Self::Data>;
}

/// For generated code: a slot's value as JSON.
#[doc(hidden)]
pub fn get_slot<T: SlotField>(field: &T) -> Option<Value> {
    field.value().and_then(|value| serde_json::to_value(value).ok())
}

/// For generated code: sets a slot from JSON.
#[doc(hidden)]
pub fn set_slot<T: SlotField>(field: &mut T, value: Option<Value>) -> Result<(), String> {
    let value = value.map(serde_json::from_value).transpose().map_err(|e| e.to_string())?;
    field.put(value);
    Ok(())
}
