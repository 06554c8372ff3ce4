use serde_json::{Map, Number, Value};

use super::schema::{Schema, list, of_item, of_property, types};
use crate::json::{MAX_DEPTH, is_deeper_than};

/// How often a text may hold a JSON string that holds JSON.
const MAX_ENCODINGS: usize = 4;

/// Integers up to here, 2^53, are exact in `f64`.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Repairs a value so that it fits its schema, where only one reading is possible.
///
/// What fits is never touched, and repairing twice gives the same as repairing once. Where
/// the value at a place does not fit,
///
/// | value | where the schema expects | becomes |
/// | --- | --- | --- |
/// | `null`, `""`, `"null"` for all arguments | an object | `{}` |
/// | text that holds JSON, also encoded twice, in a code fence, or with text after it | an object or an array | the JSON |
/// | `"5"`, `" 5 "`, `5.0`, `"30.0"` | an integer | the integer |
/// | `"1.5"` | a number | the number |
/// | `"true"`, `"False"` | a boolean | the boolean |
/// | an integer | text, as for an id | its digits |
/// | text that differs only in case or outer white space | one of several constants | the constant |
/// | `null`, `""`, `"null"` | an optional property | `null` where that is allowed, else nothing |
/// | a single value | an array property of such values | an array of one |
///
/// Left as they are, for the error to name: `5.5` and out-of-range numbers for an integer, a
/// decimal or a boolean for text (its spelling is not known), text with a comma, a semicolon
/// or a line break for an array of text (it may be a list), a text with two JSON values,
/// values that fit two branches of a union after repair, unknown properties, and anything
/// nested deeper than [`MAX_DEPTH`] levels.
///
/// ```
/// use flow_core::tool::arguments::repair;
/// use serde_json::json;
///
/// let schema = json!({
///     "type": "object",
///     "properties": { "guests": { "type": "integer" }, "tags": { "type": "array" } },
///     "required": ["guests"],
/// });
/// let mut value = json!({ "guests": "2", "tags": null });
/// repair(&schema, &mut value);
/// assert_eq!(value, json!({ "guests": 2 }));
/// ```
pub fn repair(schema: &Value, value: &mut Value) {
    if is_deeper_than(value, MAX_DEPTH) {
        return;
    }
    let schema = Schema::new(schema);
    if is_absent(value) && !schema.fits(schema.root(), value, 0) {
        *value = Value::Object(Map::new());
    }
    at(&schema, schema.root(), value, 0);
}

/// Repairs the value at one place.
fn at(root: &Schema<'_>, schema: &Value, value: &mut Value, depth: usize) {
    if root.fits(schema, value, depth) || !root.pay(depth) {
        return;
    }
    let Some(rules) = schema.as_object() else { return };
    if let Some(target) = root.target(rules) {
        at(root, target, value, depth + 1);
    }
    for part in list(rules, "allOf") {
        at(root, part, value, depth + 1);
    }
    if let Some(repaired) = convert(root, schema, rules, value, depth) {
        *value = repaired;
    }
    match value {
        Value::Object(map) => in_object(root, rules, map, depth),
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                if let Some(of) = of_item(rules, i) {
                    at(root, of, item, depth + 1);
                }
            }
        }
        _ => {}
    }
    for name in ["anyOf", "oneOf"] {
        in_union(root, list(rules, name), value, depth);
    }
}

/// Repairs a value by the branches of a union: where it fits only one after repair, or where
/// there is only one besides null.
fn in_union(root: &Schema<'_>, branches: &[Value], value: &mut Value, depth: usize) {
    if branches.iter().any(|branch| root.fits(branch, value, depth + 1)) {
        return;
    }
    let mut whole: Option<Value> = None;
    let mut parts = Vec::new();
    for branch in branches {
        let mut candidate = value.clone();
        at(root, branch, &mut candidate, depth + 1);
        if root.fits(branch, &candidate, depth + 1) {
            if whole.as_ref().is_some_and(|other| *other != candidate) {
                return;
            }
            whole = Some(candidate);
        } else if branch.get("type").is_none_or(|name| name != "null") {
            parts.push(candidate);
        }
    }
    match (whole, parts.len()) {
        (Some(whole), _) => *value = whole,
        (None, 1) => *value = parts.remove(0),
        (None, _) => {}
    }
}

/// Repairs the properties of an object.
fn in_object(
    root: &Schema<'_>,
    rules: &Map<String, Value>,
    map: &mut Map<String, Value>,
    depth: usize,
) {
    let mut absent = Vec::new();
    for (name, item) in map.iter_mut() {
        let of: Vec<_> = of_property(rules, name).collect();
        let [of] = of.as_slice() else { continue };
        at(root, of, item, depth + 1);
        if root.fits(of, item, depth + 1) {
            continue;
        }
        let required = list(rules, "required").iter().any(|required| required == name);
        let declared = rules.get("properties").is_some_and(|all| all.get(name).is_some());
        if !is_absent(item) {
            wrap(root, of, item, depth + 1);
        } else if declared && !required {
            absent.push(name.clone());
        }
    }
    for name in absent {
        map.remove(&name);
    }
}

/// Makes a single value an array of one, where the schema expects an array of such values.
///
/// Only properties are wrapped: in an array of arrays, `[1, 2]` could be `[[1, 2]]` or
/// `[[1], [2]]`.
fn wrap(root: &Schema<'_>, schema: &Value, value: &mut Value, depth: usize) {
    let Some(items) = items_of(root, schema, depth) else { return };
    if value.is_array() || root.fits(items, &Value::Array(Vec::new()), depth) {
        return;
    }
    if let Value::String(text) = value
        && text.contains([',', ';', '\n'])
    {
        return;
    }
    let mut item = value.clone();
    at(root, items, &mut item, depth + 1);
    let array = Value::Array(vec![item]);
    if root.fits(schema, &array, depth) {
        *value = array;
    }
}

/// The schema of the elements, where a schema expects an array or null and nothing else.
fn items_of<'s>(root: &Schema<'s>, schema: &'s Value, depth: usize) -> Option<&'s Value> {
    if !root.pay(depth) {
        return None;
    }
    let rules = schema.as_object()?;
    if let Some(target) = root.target(rules) {
        return items_of(root, target, depth + 1);
    }
    let union = if rules.contains_key("anyOf") { "anyOf" } else { "oneOf" };
    let mut branches =
        list(rules, union).iter().filter(|of| of.get("type").is_none_or(|name| name != "null"));
    if let (Some(only), None) = (branches.next(), branches.next()) {
        return items_of(root, only, depth + 1);
    }
    let is_array = types(rules)?.all(|name| matches!(name, "array" | "null"));
    rules.get("items").filter(|_| is_array)
}

/// What a value becomes under the types and constants that the schema itself names.
fn convert(
    root: &Schema<'_>,
    schema: &Value,
    rules: &Map<String, Value>,
    value: &Value,
    depth: usize,
) -> Option<Value> {
    let mut found: Option<Value> = None;
    let mut add = |candidate: Value| {
        let container = candidate.is_object() || candidate.is_array();
        if container || root.fits(schema, &candidate, depth) {
            let clash = found.as_ref().is_some_and(|other| *other != candidate);
            found = Some(candidate);
            return !clash;
        }
        true
    };
    if let Value::String(text) = value {
        let constants = rules.get("const").into_iter().chain(list(rules, "enum"));
        for constant in constants.filter(|c| c.as_str().is_some_and(|c| same_text(c, text))) {
            if !add(constant.clone()) {
                return None;
            }
        }
    }
    for name in types(rules).into_iter().flatten() {
        if let Some(candidate) = as_type(name, value)
            && !add(candidate)
        {
            return None;
        }
    }
    found
}

/// Reads a value as a type that it is not.
fn as_type(name: &str, value: &Value) -> Option<Value> {
    match (name, value) {
        ("null", value) if is_absent(value) => Some(Value::Null),
        ("integer", Value::Number(number)) => integer(number),
        ("integer", Value::String(text)) => integer(&serde_json::from_str(text.trim()).ok()?),
        ("number", Value::String(text)) => {
            serde_json::from_str(text.trim()).ok().map(Value::Number)
        }
        ("boolean", Value::String(text)) => {
            [true, false].into_iter().find(|b| same_text(&b.to_string(), text)).map(Value::from)
        }
        ("string", Value::Number(number)) if !number.is_f64() => {
            Some(Value::from(number.to_string()))
        }
        ("object", Value::String(text)) => parse_container(text).ok().filter(Value::is_object),
        ("array", Value::String(text)) => parse_container(text).ok().filter(Value::is_array),
        _ => None,
    }
}

fn integer(number: &Number) -> Option<Value> {
    match number.as_f64() {
        Some(float) if number.is_f64() => {
            (float.fract() == 0.0 && float.abs() <= EXACT).then(|| Value::from(float as i64))
        }
        _ => Some(Value::Number(number.clone())),
    }
}

/// Whether two texts differ in nothing but case and outer white space.
fn same_text(a: &str, b: &str) -> bool {
    a.trim().to_lowercase() == b.trim().to_lowercase()
}

/// Whether a value stands for one that was left out.
fn is_absent(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => matches!(text.trim(), "" | "null"),
        _ => false,
    }
}

/// Reads the object or array that a text holds.
///
/// # Errors
/// Why there is none.
pub(super) fn parse_container(text: &str) -> Result<Value, String> {
    let mut text = text.to_owned();
    for _ in 0..MAX_ENCODINGS {
        let body = without_fence(&text);
        let mut values = serde_json::Deserializer::from_str(body).into_iter::<Value>();
        let value = match values.next() {
            Some(Ok(value)) => value,
            Some(Err(e)) => return Err(e.to_string()),
            None => return Err("it is empty".to_owned()),
        };
        let rest = &body[values.byte_offset()..];
        match value {
            Value::String(inner) if rest.trim().is_empty() => text = inner,
            Value::Object(_) | Value::Array(_) if !rest.contains(['{', '[']) => return Ok(value),
            Value::Object(_) | Value::Array(_) => return Err("it holds two values".to_owned()),
            _ => return Err("it holds neither an object nor an array".to_owned()),
        }
    }
    Err(format!("it is encoded more than {MAX_ENCODINGS} times"))
}

/// The inside of a Markdown code fence, or the text itself.
fn without_fence(text: &str) -> &str {
    let text = text.trim();
    match text.strip_prefix("```") {
        Some(fenced) => fenced.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).trim_start(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn repaired(schema: &Value, value: Value) -> Value {
        let mut value = value;
        repair(schema, &mut value);
        value
    }

    fn of(field: Value) -> Value {
        json!({ "type": "object", "properties": { "x": field } })
    }

    #[test]
    fn unions_take_the_only_branch_that_fits() {
        let integer = json!({ "type": "integer" });
        let boolean = json!({ "type": "boolean" });
        let text = json!({ "type": "string" });
        let two = json!({ "anyOf": [{ "const": "a b" }, { "const": "A B" }] });
        for (branches, sent, expected) in [
            (json!({ "anyOf": [integer, boolean] }), json!("true"), json!(true)),
            (json!({ "anyOf": [integer, boolean] }), json!("7"), json!(7)),
            (json!({ "anyOf": [integer, text] }), json!("7"), json!("7")),
            (json!({ "anyOf": [boolean, text] }), json!(7), json!("7")),
            (json!({ "type": ["integer", "string"] }), json!(5.0), json!(5)),
            (json!({ "type": ["integer", "boolean"] }), json!("TRUE"), json!(true)),
            (two.clone(), json!("a b"), json!("a b")),
            (two, json!("A b"), json!("A b")),
            (json!({ "enum": ["one", "One"] }), json!("ONE"), json!("ONE")),
            (json!({ "enum": ["one", "two"] }), json!(" ONE "), json!("one")),
            (json!({ "type": "string", "enum": ["1", "2"] }), json!(2), json!("2")),
            (json!({ "type": "string", "enum": ["1", "2"] }), json!(3), json!(3)),
        ] {
            let found = repaired(&of(branches.clone()), json!({ "x": sent }));
            assert_eq!(found["x"], expected, "{sent} in {branches}");
        }
    }

    #[test]
    fn arrays_of_arrays_are_not_wrapped() {
        let lists = json!({ "type": "array", "items": { "type": "array" } });
        for sent in [json!(1), json!([1, 2])] {
            let sent = json!({ "x": sent });
            assert_eq!(repaired(&of(lists.clone()), sent.clone()), sent);
        }
    }

    #[test]
    fn only_optional_properties_are_removed() {
        let mut schema = of(json!({ "type": "integer" }));
        assert_eq!(repaired(&schema, json!({ "x": null })), json!({}));
        schema["required"] = json!(["x"]);
        assert_eq!(repaired(&schema, json!({ "x": null })), json!({ "x": null }));
        schema["properties"]["x"]["type"] = json!(["integer", "null"]);
        assert_eq!(repaired(&schema, json!({ "x": "" })), json!({ "x": null }));
    }

    #[test]
    fn references_in_a_circle_and_to_nowhere_end() {
        let sent = json!({ "x": "5" });
        for reference in ["#/$defs/A", "#", "#/$defs/None", "https://example.org/other"] {
            let schema = json!({
                "$ref": reference,
                "$defs": { "A": { "anyOf": [{ "$ref": "#/$defs/B" }] }, "B": { "$ref": "#/$defs/A" } },
            });
            assert_eq!(repaired(&schema, sent.clone()), sent, "{reference}");
        }
    }

    #[test]
    fn unions_of_unions_do_not_cost_exponential_time() {
        let child = json!({ "type": "object", "properties": { "x": { "$ref": "#" } } });
        let schema = json!({ "anyOf": [child, child, child, child, { "type": "integer" }] });
        let mut sent = json!({ "x": true });
        for _ in 0..50 {
            sent = json!({ "x": sent });
        }
        assert_eq!(repaired(&schema, sent.clone()), sent);
    }

    #[test]
    fn text_that_holds_json() {
        for (text, expected) in [
            ("{}", Some(json!({}))),
            (" [1] ", Some(json!([1]))),
            (r#""{\"a\":1}""#, Some(json!({ "a": 1 }))),
            ("{\"a\":1}}", Some(json!({ "a": 1 }))),
            ("```\n[1]\n``` as asked", Some(json!([1]))),
            ("{} {}", None),
            ("\"{}\" and more", None),
            ("Here: {}", None),
            ("5", None),
            ("", None),
        ] {
            assert_eq!(parse_container(text).ok(), expected, "{text}");
        }
    }
}
