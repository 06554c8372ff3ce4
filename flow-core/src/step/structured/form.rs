//! Asks a model for the slots of a form.

use std::sync::Arc;

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::super::cx::Scope;
use super::super::generate::Failed;
use super::super::registry::Misfit;
use super::super::{Form, Resolver, Slot, Step};
use super::shape::{compile, generate_schema, is_strict};
use super::{MAX_NAME, Made, Wanted, consult, show_conversation, snake};
use crate::error::StepError;
use crate::json::{MAX_DEPTH, is_deeper_than};
use crate::tool::arguments::repair;

/// The most characters of the tool's description: OpenAI takes no more. The middle of the
/// user's message is left out of it where that is needed; the conversation holds all of it.
const MAX_DESCRIPTION: usize = 1024;

/// The most characters of the names of the missing slots in it, and of a known value.
const MAX_LIST: usize = 400;

/// A slot that a model is asked for.
pub(crate) struct Offer {
    pub(crate) slot: usize,
    /// What the slot holds.
    pub(crate) known: Option<Value>,
}

/// A form as a model is asked for it.
pub(crate) struct FormShape {
    tool: String,
    slots: Vec<SlotShape>,
    definitions: Option<Value>,
}

struct SlotShape {
    property: Map<String, Value>,
    validator: Validator,
}

impl FormShape {
    /// The shape of a step's form, made once per step: what the schema of the step says about
    /// its slots.
    ///
    /// # Errors
    /// When the schema of the step is not valid.
    pub(crate) fn of<S: Step + Form>() -> Result<Arc<Self>, StepError> {
        static SHAPES: Made<FormShape> = Made::new();
        SHAPES.get::<S>(|| Self::new(S::NAME, &generate_schema::<S>(), S::slots()))
    }

    fn new(step: &str, schema: &Value, slots: &[Slot]) -> Result<Self, StepError> {
        const AROUND: usize = "submit__data".len();
        let mut name = snake(step);
        name.truncate(MAX_NAME - AROUND);
        let definitions = schema.get("$defs").cloned();
        let slots = slots.iter().map(|slot| {
            let own = schema.get("properties").and_then(|all| all.get(slot.name));
            SlotShape::new(slot, own, definitions.as_ref())
        });
        let slots = slots.collect::<Result<_, _>>()?;
        Ok(Self { tool: format!("submit_{name}_data"), slots, definitions })
    }

    /// The schema of the offered slots: none is required, and all may be null.
    fn schema(&self, slots: &[Slot], offers: &[Offer]) -> Value {
        let properties: Map<String, Value> = offers
            .iter()
            .map(|offer| {
                let slot = &slots[offer.slot];
                let mut property = self.slots[offer.slot].property.clone();
                let own = property.remove("description");
                let text = describe_slot(slot, own.as_ref(), offer.known.as_ref());
                property.insert("description".to_owned(), text.into());
                (slot.name.to_owned(), Value::Object(property))
            })
            .collect();
        let mut schema = json!({ "type": "object", "properties": properties });
        if let Some(definitions) = &self.definitions {
            schema["$defs"] = definitions.clone();
        }
        schema
    }

    /// Whether a slot may have a value, as far as its schema and its resolver say.
    pub(crate) fn admits(&self, place: usize, slot: &Slot, value: &Value) -> bool {
        let form = match (&slot.resolver, value) {
            (Some(Resolver::Pattern(pattern)), Value::String(text)) => pattern.takes(text),
            (Some(Resolver::Pattern(pattern)), value) => pattern.takes(&value.to_string()),
            _ => true,
        };
        form && self.slots[place].validator.is_valid(value)
    }
}

impl SlotShape {
    fn new(
        slot: &Slot,
        own: Option<&Value>,
        definitions: Option<&Value>,
    ) -> Result<Self, StepError> {
        let mut property = own.and_then(Value::as_object).cloned().unwrap_or_default();
        property.remove("default");
        match &slot.resolver {
            Some(Resolver::OneOf(options)) => {
                let options = options.iter().map(|option| json!(option)).chain([Value::Null]);
                let description = property.remove("description");
                property.clear();
                property.insert("type".to_owned(), json!(["string", "null"]));
                property.insert("enum".to_owned(), options.collect());
                property.extend(description.map(|text| ("description".to_owned(), text)));
            }
            Some(Resolver::Range(min, max)) => {
                property.insert("minimum".to_owned(), bound(*min));
                property.insert("maximum".to_owned(), bound(*max));
            }
            Some(Resolver::Pattern(_) | Resolver::WholeMessage) | None => {}
        }
        let compile = |property: &Map<String, Value>| {
            let mut schema = Value::Object(property.clone());
            if let Some(definitions) = definitions {
                schema["$defs"] = definitions.clone();
            }
            compile(slot.name, &schema)
        };
        let mut validator = compile(&property)?;
        if !validator.is_valid(&Value::Null) {
            let own = std::mem::take(&mut property);
            property.insert("anyOf".to_owned(), json!([own, { "type": "null" }]));
            validator = compile(&property)?;
        }
        Ok(Self { property, validator })
    }
}

fn bound(number: f64) -> Value {
    if number.fract() == 0.0 { json!(number as i64) } else { json!(number) }
}

/// What a model is told about a slot.
fn describe_slot(slot: &Slot, own: Option<&Value>, known: Option<&Value>) -> String {
    let mut text = match (slot.doc.trim(), slot.ask) {
        ("", Some(ask)) => format!("The answer to: {ask}"),
        ("", None) => own.and_then(Value::as_str).unwrap_or_default().to_owned(),
        (doc, _) => doc.to_owned(),
    };
    let mut add = |sentence: &str| {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(sentence);
    };
    if slot.verbatim {
        add("Copied from the message letter by letter.");
    }
    match known {
        None => add("Null where the message does not say it."),
        Some(known) => {
            let known = cut_middle(&known.to_string(), MAX_LIST);
            add(&format!("Known already: {known}. Null where the message does not correct it."));
        }
    }
    text
}

/// What the tool is for: the missing slots and the user's message.
fn describe_tool(slots: &[Slot], offers: &[Offer], message: &str) -> String {
    let missing = offers.iter().filter(|offer| offer.known.is_none());
    let missing: Vec<&str> = missing.map(|offer| slots[offer.slot].name).collect();
    let missing = match missing.as_slice() {
        [] => "nothing".to_owned(),
        names => cut_middle(&names.join(", "), MAX_LIST),
    };
    let head = format!(
        "Hands in what the user's last message says. Still missing: {missing}. \
         The message, word for word:\n"
    );
    let left = MAX_DESCRIPTION - head.chars().count();
    head + &cut_middle(message, left)
}

/// A text of so many characters at most.
fn cut_middle(text: &str, most: usize) -> String {
    const GAP: &str = " … ";
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let half = (most - GAP.chars().count()) / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(length - half).collect();
    format!("{head}{GAP}{tail}")
}

/// What the model is to do.
const INSTRUCTIONS: &str = "Read the user's last message into a form. Give what that message \
    says, and null for what it does not say. Never guess, never fill in what is usual, and take \
    nothing from earlier messages: they only tell what the last one means.";

/// Asks the step's model what a message says about the offered slots.
pub(crate) async fn submit(
    scope: &mut Scope,
    form: &FormShape,
    slots: &[Slot],
    offers: &[Offer],
    message: &str,
    doc: &str,
) -> Result<Map<String, Value>, Failed> {
    let schema = form.schema(slots, offers);
    let mut system = INSTRUCTIONS.to_owned();
    if !doc.trim().is_empty() {
        system.push_str("\n\nThe form: ");
        system.push_str(doc.trim());
    }
    let wanted = Wanted {
        system,
        name: &form.tool,
        description: &describe_tool(slots, offers, message),
        schema: &schema,
        strict: is_strict(&schema),
        by_tool: true,
    };
    let mut given = Map::new();
    let mut accept = |mut value: Value| {
        let fault = |reason: String| vec![Misfit { path: ".".to_owned(), reason }];
        if is_deeper_than(&value, MAX_DEPTH) {
            return Err(fault(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        repair(&schema, &mut value);
        match value {
            Value::Object(map) => given = map,
            _ => return Err(fault("it is not an object".to_owned())),
        }
        Ok(())
    };
    let messages = show_conversation(scope, Some(message));
    consult(scope, messages, wanted, &mut accept).await?;
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_of_the_tool_has_a_limit_that_providers_have() {
        let slot = |name| Slot {
            name,
            doc: "",
            ask: None,
            optional: false,
            verbatim: false,
            resolver: None,
        };
        let slots: Vec<Slot> = (0..40).map(|_| slot("a_name_of_twenty_let")).collect();
        let offers: Vec<Offer> = (0..slots.len()).map(|slot| Offer { slot, known: None }).collect();
        let text = describe_tool(&slots, &offers, &"ä".repeat(5000));
        assert!((1000..=MAX_DESCRIPTION).contains(&text.chars().count()), "{text}");
        assert!(text.contains("ä … ä"), "{text}");
        let text = describe_tool(&slots[..1], &offers[..1], "Hi there");
        assert!(text.ends_with(
            "Still missing: a_name_of_twenty_let. The message, word for word:\nHi there"
        ));
    }

    #[test]
    fn the_tool_has_a_name_that_providers_take() {
        let name = |step| FormShape::new(step, &json!({}), &[]).unwrap().tool;
        assert_eq!(name("TravelDates"), "submit_travel_dates_data");
        assert_eq!(name(&"x".repeat(100)).len(), MAX_NAME);
    }
}
