use std::sync::OnceLock;

use regex::Regex;
use regex_syntax::hir::{Hir, HirKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
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

/// How a slot is read from a message, without a model. A value that a model reads from a
/// message has to be one that this could have given.
#[derive(Debug)]
#[non_exhaustive]
pub enum Resolver {
    /// One of these options, by [`one_of`](resolve::one_of): `#[slot(one_of("card", "cash"))]`.
    OneOf(&'static [&'static str]),
    /// A number from the first bound to the second, both included, by
    /// [`range`](resolve::range): `#[slot(range(1, 8))]`.
    Range(f64, f64),
    /// What a regular expression captures, by [`pattern`](resolve::pattern); read as a number
    /// where the slot is one: `#[slot(pattern("#(\\d+)"))]`.
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
    captured: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Takes the text of a regular expression.
    pub const fn new(text: &'static str) -> Self {
        Self { text, compiled: OnceLock::new(), captured: OnceLock::new() }
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

    /// Whether a text, by itself, is what the capture takes.
    pub(crate) fn takes(&self, text: &str) -> bool {
        let captured = self.captured.get_or_init(|| {
            let whole = regex_syntax::parse(self.text).ok()?;
            Regex::new(&format!(r"\A(?:{})\z", capture(&whole)?)).ok()
        });
        captured.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

/// The first capture of a regular expression.
fn capture(regex: &Hir) -> Option<&Hir> {
    match regex.kind() {
        HirKind::Capture(capture) => Some(&capture.sub),
        HirKind::Repetition(repeated) => capture(&repeated.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().find_map(capture),
        _ => None,
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

    /// The value as JSON.
    fn get(&self) -> Option<Value> {
        self.value().and_then(|value| serde_json::to_value(value).ok())
    }

    /// Sets the value from JSON, or clears it.
    ///
    /// A text that does not read as the slot's type is tried as the number or boolean that it
    /// spells: a [`Resolver::Pattern`] captures text, whatever the slot's type.
    ///
    /// # Errors
    /// What does not fit, when the value does not read as the slot's type.
    fn set(&mut self, value: Option<Value>) -> Result<(), String> {
        let value = match value {
            None => None,
            Some(value) => Some(match Self::Value::deserialize(&value) {
                Ok(read) => read,
                Err(e) => {
                    let spelled = value.as_str().and_then(spelled);
                    let read = spelled.and_then(|scalar| Self::Value::deserialize(scalar).ok());
                    read.ok_or_else(|| e.to_string())?
                }
            }),
        };
        self.put(value);
        Ok(())
    }
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

/// The number or boolean that a text spells. Zeros before a number do not count.
fn spelled(text: &str) -> Option<Value> {
    let text = text.trim();
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let text = match text.trim_start_matches('0') {
        "" if digits => "0",
        rest if digits => rest,
        _ => text,
    };
    serde_json::from_str(text).ok().filter(|value: &Value| value.is_number() || value.is_boolean())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set<T: SlotField + Default>(value: Value) -> Result<Option<Value>, String> {
        let mut field = T::default();
        field.set(Some(value))?;
        Ok(field.get())
    }

    #[test]
    fn a_text_is_read_as_the_number_that_it_spells() {
        assert_eq!(set::<Option<u32>>(json!("17")), Ok(Some(json!(17))));
        assert_eq!(set::<Option<u32>>(json!("0017")), Ok(Some(json!(17))));
        assert_eq!(set::<Option<u32>>(json!("000")), Ok(Some(json!(0))));
        assert_eq!(set::<Option<u64>>(json!(u64::MAX.to_string())), Ok(Some(json!(u64::MAX))));
        assert_eq!(set::<Option<i8>>(json!("-5")), Ok(Some(json!(-5))));
        assert_eq!(set::<Option<f64>>(json!("1.5")), Ok(Some(json!(1.5))));
        assert_eq!(set::<Option<bool>>(json!("true")), Ok(Some(json!(true))));
        assert_eq!(set::<Option<u32>>(json!(17)), Ok(Some(json!(17))));
    }

    #[test]
    fn a_text_that_fits_stays_a_text() {
        assert_eq!(set::<Option<String>>(json!("0017")), Ok(Some(json!("0017"))));
        assert_eq!(set::<Option<Value>>(json!("17")), Ok(Some(json!("17"))));
    }

    #[test]
    fn a_pattern_knows_what_its_capture_takes() {
        let order = Pattern::new(r"(?i)order\s+#([a-z]{2}\d+)\b");
        for (text, takes) in
            [("AB17", true), ("ab1", true), ("17", false), ("#AB17", false), ("AB17 ", false)]
        {
            assert_eq!(order.takes(text), takes, "{text}");
        }
        assert!(Pattern::new("a(b|cd)+").takes("cd"));
        assert!(!Pattern::new("(").takes("("));
    }

    #[test]
    fn what_does_not_fit_leaves_the_slot_as_it_is() {
        let mut field = Some(3_u8);
        for value in ["300", "-1", "5.5", "three", "", "null", "[1]"] {
            let error = field.set(Some(json!(value))).unwrap_err();
            assert!(error.contains("expected u8"), "{error}");
            assert_eq!(field, Some(3));
        }
        assert_eq!(field.set(None), Ok(()));
        assert_eq!(field, None);
    }
}
