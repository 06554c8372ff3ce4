use jsonschema::{Draft, Validator};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use super::super::registry::Misfit;
use super::{MAX_NAME, Made, snake};
use crate::error::StepError;
use crate::json::{MAX_DEPTH, is_deeper_than};
use crate::tool::arguments::repair;

use std::sync::Arc;

/// How many faults of one value a model is told.
const MAX_FAULTS: usize = 8;

/// The most characters of a reason.
const MAX_REASON: usize = 400;

/// The property that holds a value which is no object by itself.
const VALUE: &str = "value";

/// A type as a model is asked for it.
pub(crate) struct Shape {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) schema: Value,
    pub(super) strict: bool,
    wrapped: bool,
    validator: Validator,
}

impl Shape {
    /// The shape of a type, made once per type.
    ///
    /// # Errors
    /// When the schema of the type is not valid.
    pub(crate) fn of<T: JsonSchema + 'static>() -> Result<Arc<Self>, StepError> {
        static SHAPES: Made<Shape> = Made::new();
        SHAPES.get::<T>(|| Self::new(&T::schema_name(), generate_schema::<T>()))
    }

    fn new(name: &str, mut schema: Value) -> Result<Self, StepError> {
        let wrapped = !is_plain_object(&schema);
        let described = schema.get("description").and_then(Value::as_str);
        let description = described.unwrap_or("Gives the value that is asked for.").to_owned();
        if wrapped {
            // References start at the top.
            let definitions = schema.as_object_mut().and_then(|map| map.remove("$defs"));
            move_down(&mut schema);
            schema = json!({
                "type": "object",
                "properties": { VALUE: schema },
                "required": [VALUE],
            });
            if let Some(definitions) = definitions {
                schema["$defs"] = definitions;
                move_down(&mut schema["$defs"]);
            }
        }
        let mut name = format!("submit_{}", snake(name));
        name.truncate(MAX_NAME);
        let validator = compile(&name, &schema)?;
        let strict = is_strict(&schema);
        Ok(Self { name, description, schema, strict, wrapped, validator })
    }

    /// Checks an answer, repairs it where that is safe, and takes the value out.
    pub(super) fn check(&self, mut value: Value) -> Result<Value, Vec<Misfit>> {
        if is_deeper_than(&value, MAX_DEPTH) {
            let reason = format!("nested deeper than {MAX_DEPTH} levels");
            return Err(vec![Misfit { path: ".".to_owned(), reason }]);
        }
        if self.wrapped && !is_wrapper(&value) {
            value = json!({ VALUE: value });
        }
        repair(&self.schema, &mut value);
        let faults = validate(&self.validator, &value);
        if !faults.is_empty() {
            return Err(faults.into_iter().map(|fault| self.shorten(fault)).collect());
        }
        match value {
            Value::Object(mut map) if self.wrapped => Ok(map.remove(VALUE).unwrap_or_default()),
            value => Ok(value),
        }
    }

    /// A fault as the author of the type knows its place.
    pub(super) fn shorten(&self, fault: Misfit) -> Misfit {
        let Misfit { mut path, reason } = fault;
        if self.wrapped
            && let Some(rest) = path.strip_prefix(VALUE)
            && (rest.is_empty() || rest.starts_with(['.', '[']))
        {
            path = match rest.strip_prefix('.').unwrap_or(rest) {
                "" => ".".to_owned(),
                rest => rest.to_owned(),
            };
        }
        Misfit { path, reason: cut(reason) }
    }
}

/// Whether an answer is an object that holds the value alone, or a text that holds one. A model
/// that gives the bare value means the same.
fn is_wrapper(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.len() == 1 && map.contains_key(VALUE),
        Value::String(text) => matches!(serde_json::from_str(text), Ok(Value::Object(_))),
        _ => false,
    }
}

fn cut(reason: String) -> String {
    match reason.char_indices().nth(MAX_REASON) {
        Some((end, _)) => format!("{} …", &reason[..end]),
        None => reason,
    }
}

/// The schema of a type (draft 2020-12) without references where that is possible, since many
/// providers take none, and without what says nothing to a model.
pub(crate) fn generate_schema<T: JsonSchema>() -> Value {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = SchemaGenerator::new(settings).into_root_schema_for::<T>();
    schema.remove("$schema");
    schema.remove("title");
    schema.to_value()
}

/// Compiles a schema.
///
/// # Errors
/// When it is not valid. It comes from a type, so trying again does not help.
pub(crate) fn compile(name: &str, schema: &Value) -> Result<Validator, StepError> {
    let options =
        jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(false);
    options.build(schema).map_err(|error| {
        StepError::terminal(format!("the JSON Schema of `{name}` is not valid: {}", error.masked()))
    })
}

/// What is wrong with a value, the first faults of it.
pub(crate) fn validate(validator: &Validator, value: &Value) -> Vec<Misfit> {
    let faults = validator.iter_errors(value).take(MAX_FAULTS);
    faults
        .map(|error| Misfit {
            path: to_path(error.instance_path().as_str()),
            reason: cut(error.masked_with("it").to_string()),
        })
        .collect()
}

/// A JSON Pointer as other errors write a place: `rooms[1].guests`, and `.` for the whole.
fn to_path(pointer: &str) -> String {
    let mut path = String::new();
    for segment in pointer.split('/').skip(1) {
        let segment = segment.replace("~1", "/").replace("~0", "~");
        if !segment.is_empty() && segment.bytes().all(|b| b.is_ascii_digit()) {
            path.push_str(&format!("[{segment}]"));
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&segment);
        }
    }
    if path.is_empty() { ".".to_owned() } else { path }
}

/// Lets references to a schema, or into it, lead to its new place under [`VALUE`].
fn move_down(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(to)) = map.get_mut("$ref")
                && let Some(rest) = to.strip_prefix('#')
                && !rest.starts_with("/$defs/")
            {
                *to = format!("#/properties/{VALUE}{rest}");
            }
            map.values_mut().for_each(move_down);
        }
        Value::Array(items) => items.iter_mut().for_each(move_down),
        _ => {}
    }
}

/// Whether a schema is what every provider takes at the top: an object with properties and
/// no union.
fn is_plain_object(schema: &Value) -> bool {
    let has = |keyword| schema.get(keyword).is_some();
    schema.get("type").is_some_and(|kind| kind == "object")
        && has("properties")
        && !["oneOf", "anyOf", "allOf", "$ref", "enum", "not"].into_iter().any(has)
}

/// Whether a schema holds nothing that strict forms cannot say: values of any type, objects
/// with free keys, tuples, conditions.
pub(crate) fn is_strict(schema: &Value) -> bool {
    let Some(map) = schema.as_object() else { return false };
    const SAYS: [&str; 6] = ["type", "enum", "const", "anyOf", "oneOf", "$ref"];
    if !SAYS.into_iter().any(|keyword| map.contains_key(keyword)) {
        return false;
    }
    let all = |schemas: Option<&Value>| match schemas {
        Some(Value::Object(schemas)) => schemas.values().all(is_strict),
        Some(Value::Array(schemas)) => schemas.iter().all(is_strict),
        _ => true,
    };
    let holds = |kind: &str| match map.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|k| k == kind),
        Some(only) => only == kind,
        None => false,
    };
    map.iter().all(|(keyword, value)| match keyword.as_str() {
        "properties" | "$defs" | "anyOf" | "oneOf" => all(Some(value)),
        "items" => is_strict(value),
        "additionalProperties" => value == false,
        "patternProperties" | "prefixItems" | "allOf" | "not" | "if" | "propertyNames" => false,
        _ => true,
    }) && (!holds("object") || map.contains_key("properties"))
        && (!holds("array") || map.contains_key("items"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Room {
        beds: u8,
        view: Option<String>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Booking {
        rooms: Vec<Room>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "kind")]
    #[allow(dead_code)]
    enum Tree {
        Leaf { value: u8 },
        Node { children: Vec<Tree> },
    }

    fn faults(shape: &Shape, value: Value) -> Vec<(String, String)> {
        let faults = shape.check(value).unwrap_err();
        faults.into_iter().map(|fault| (fault.path, fault.reason)).collect()
    }

    #[test]
    fn an_object_is_asked_for_as_it_is_and_without_references() {
        let shape = Shape::of::<Booking>().unwrap();
        assert_eq!((shape.name.as_str(), shape.strict), ("submit_booking", true));
        assert_eq!(
            shape.schema,
            json!({
                "type": "object",
                "properties": { "rooms": { "type": "array", "items": {
                    "type": "object",
                    "properties": {
                        "beds": {
                            "type": "integer", "format": "uint8", "minimum": 0, "maximum": 255
                        },
                        "view": { "type": ["string", "null"] }
                    },
                    "required": ["beds"]
                } } },
                "required": ["rooms"]
            })
        );
        let good = json!({ "rooms": [{ "beds": 2, "view": null }] });
        assert_eq!(shape.check(good.clone()).unwrap(), good);
        assert_eq!(shape.check(json!(good.to_string())).unwrap(), good);
        assert_eq!(
            faults(&shape, json!({ "rooms": [{ "beds": 2 }, { "beds": "many" }, {}] })),
            [
                ("rooms[1].beds".to_owned(), "it is not of type \"integer\"".to_owned()),
                ("rooms[2]".to_owned(), "\"beds\" is a required property".to_owned()),
            ]
        );
    }

    #[test]
    fn what_is_no_plain_object_is_wrapped() {
        let shape = Shape::of::<u8>().unwrap();
        assert_eq!(shape.schema["required"], json!(["value"]));
        for given in [json!({ "value": 7 }), json!(7), json!("7"), json!("{\"value\": \"7\"}")] {
            assert_eq!(shape.check(given).unwrap(), json!(7));
        }
        let [(path, reason)] = &faults(&shape, json!({ "value": 300 }))[..] else { panic!() };
        assert_eq!(
            (path.as_str(), reason.as_str()),
            (".", "it is greater than the maximum of 255")
        );
        assert_eq!(faults(&shape, json!({ "other": 1 }))[0].0, ".");
    }

    #[test]
    fn a_type_that_holds_itself_keeps_its_references_where_they_lead_somewhere() {
        let shape = Shape::of::<Tree>().unwrap();
        let leaf = json!({ "kind": "Leaf", "value": 1 });
        let tree = json!({ "kind": "Node", "children": [leaf.clone(), leaf] });
        for given in [json!({ "value": tree.clone() }), tree.clone()] {
            assert_eq!(shape.check(given).unwrap(), tree);
        }
        let bad = json!({ "value": { "kind": "Node", "children": [{ "kind": "Bush" }] } });
        assert!(shape.check(bad).is_err());
    }

    #[test]
    fn strict_forms_say_no_free_keys_and_no_free_values() {
        let strict = |schema| is_strict(&schema);
        assert!(strict(generate_schema::<Booking>()));
        assert!(!strict(generate_schema::<BTreeMap<String, u8>>()));
        assert!(!strict(generate_schema::<Vec<Value>>()));
        assert!(!strict(generate_schema::<(u8, String)>()));
        assert!(strict(generate_schema::<Option<Vec<bool>>>()));
    }

    #[test]
    fn a_value_that_is_too_deep_is_refused() {
        let deep = (0..70).fold(json!(1), |inner, _| json!([inner]));
        let shape = Shape::of::<Vec<Value>>().unwrap();
        assert_eq!(faults(&shape, deep)[0].1, "nested deeper than 64 levels");
    }

    #[test]
    fn a_schema_that_is_not_valid_is_an_error_that_trying_again_does_not_cure() {
        let error = Shape::new("Odd", json!({ "type": "strange" })).err().unwrap();
        assert!(!error.retryable());
        assert!(error.to_string().starts_with("the JSON Schema of `submit_odd` is not valid"));
    }
}
