//! The part of JSON Schema (2020-12) that schemas of Rust types use.
//!
//! Not a validator: patterns, lengths and formats of text are left to the type that reads
//! the value.

use std::cell::Cell;

use serde_json::{Map, Number, Value};

/// How many values a walk may look at. Unions of unions could otherwise cost exponential
/// time on a value that the model chose.
const BUDGET: u32 = 1_000_000;

/// How deep a walk may go. One level of a value takes up to four: a reference, a union, a
/// reference in it, the value.
const MAX_WALK: usize = 4 * crate::json::MAX_DEPTH;

pub(super) struct Schema<'s> {
    root: &'s Value,
    left: Cell<u32>,
}

/// The deepest place that does not fit.
pub(super) struct Misfit<'v> {
    /// In the syntax of `serde_path_to_error`.
    pub(super) path: String,
    pub(super) value: &'v Value,
    /// Whether an object or an array is expected there.
    pub(super) wants_container: bool,
}

impl Misfit<'_> {
    /// Whether the place is the one at `path` or lies in it.
    pub(super) fn is_within(&self, path: &str) -> bool {
        path == "."
            || self
                .path
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

impl<'s> Schema<'s> {
    pub(super) fn new(root: &'s Value) -> Self {
        Self { root, left: Cell::new(BUDGET) }
    }

    pub(super) fn root(&self) -> &'s Value {
        self.root
    }

    /// Pays for looking at one value; false when the walk has to end.
    pub(super) fn pay(&self, depth: usize) -> bool {
        match self.left.get().checked_sub(1) {
            Some(left) if depth < MAX_WALK => {
                self.left.set(left);
                true
            }
            _ => false,
        }
    }

    /// What a `$ref` names.
    pub(super) fn target(&self, schema: &Map<String, Value>) -> Option<&'s Value> {
        let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
        self.root.pointer(pointer)
    }

    /// Whether a value fits a schema.
    pub(super) fn fits(&self, schema: &Value, value: &Value, depth: usize) -> bool {
        let Some(schema) = schema.as_object() else {
            return schema != &Value::Bool(false);
        };
        if !self.pay(depth) {
            return false;
        }
        let all = |name| list(schema, name).iter();
        let fits = |schema: &Value| self.fits(schema, value, depth + 1);
        types(schema).is_none_or(|mut types| types.any(|name| has_type(value, name)))
            && schema.get("const").is_none_or(|constant| constant == value)
            && (!schema.contains_key("enum") || all("enum").any(|constant| constant == value))
            && self.target(schema).is_none_or(fits)
            && all("allOf").all(fits)
            && (!schema.contains_key("anyOf") || all("anyOf").any(fits))
            && (!schema.contains_key("oneOf") || all("oneOf").any(fits))
            && match value {
                Value::Number(number) => in_bounds(schema, number),
                Value::Object(map) => {
                    all("required").all(|name| name.as_str().is_none_or(|n| map.contains_key(n)))
                        && map.iter().all(|(name, item)| {
                            let mut of = of_property(schema, name).peekable();
                            of.peek().is_none() || of.any(|of| self.fits(of, item, depth + 1))
                        })
                }
                Value::Array(items) => {
                    let length = items.len() as u64;
                    let bound = |name| schema.get(name).and_then(Value::as_u64);
                    bound("minItems").is_none_or(|least| length >= least)
                        && bound("maxItems").is_none_or(|most| length <= most)
                        && items.iter().enumerate().all(|(i, item)| {
                            of_item(schema, i).is_none_or(|of| self.fits(of, item, depth + 1))
                        })
                }
                _ => true,
            }
    }

    /// Finds the deepest place that does not fit, going into the first misfit of each level.
    pub(super) fn locate<'v>(&self, value: &'v Value) -> Option<Misfit<'v>> {
        if self.fits(self.root, value, 0) {
            return None;
        }
        let mut found = Misfit { path: String::new(), value, wants_container: false };
        self.descend(self.root, &mut found, 0);
        if found.path.is_empty() {
            found.path.push('.');
        }
        Some(found)
    }

    /// Goes on from a place that does not fit.
    fn descend(&self, schema: &Value, found: &mut Misfit<'_>, depth: usize) {
        let Some(schema) = schema.as_object() else { return };
        if !self.pay(depth) {
            return;
        }
        found.wants_container |= types(schema)
            .is_some_and(|mut types| types.any(|name| matches!(name, "object" | "array")));
        let misfit = |schema: &Value, value| !self.fits(schema, value, depth + 1);

        if let Some(target) = self.target(schema)
            && misfit(target, found.value)
        {
            return self.descend(target, found, depth + 1);
        }
        let child = match found.value {
            Value::Object(map) => map.iter().find_map(|(name, item)| {
                let of: Vec<_> = of_property(schema, name).collect();
                match of.as_slice() {
                    [of] if !of.is_boolean() && misfit(of, item) => {
                        let dot = if found.path.is_empty() { "" } else { "." };
                        Some((format!("{dot}{name}"), *of, item))
                    }
                    _ => None,
                }
            }),
            Value::Array(items) => items.iter().enumerate().find_map(|(i, item)| {
                let of = of_item(schema, i)?;
                misfit(of, item).then(|| (format!("[{i}]"), of, item))
            }),
            _ => None,
        };
        if let Some((step, of, item)) = child {
            found.path.push_str(&step);
            found.value = item;
            found.wants_container = false;
            return self.descend(of, found, depth + 1);
        }
        for name in ["allOf", "anyOf", "oneOf"] {
            let candidates: Vec<_> = list(schema, name)
                .iter()
                .filter(|branch| misfit(branch, found.value) && self.may_mean(branch, found.value))
                .collect();
            if let [branch] = candidates.as_slice() {
                return self.descend(branch, found, depth + 1);
            }
        }
    }

    /// Whether a value that does not fit this branch of a union was still meant for it: its
    /// type and its tag are those of the branch.
    fn may_mean(&self, branch: &Value, value: &Value) -> bool {
        let Some(schema) = branch.as_object() else { return false };
        if let Some(target) = self.target(schema) {
            return target != branch && self.may_mean(target, value);
        }
        if types(schema).is_some_and(|mut types| types.all(|name| name == "null")) {
            return false;
        }
        let Value::Object(map) = value else { return true };
        let properties = schema.get("properties").and_then(Value::as_object);
        let tag_differs = properties.into_iter().flatten().any(|(name, of)| {
            of.get("const").is_some_and(|tag| map.get(name).is_none_or(|item| item != tag))
        });
        let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
        let foreign = closed && map.keys().any(|k| !properties.is_some_and(|p| p.contains_key(k)));
        !tag_differs && !foreign
    }
}

/// The schemas in a list such as `anyOf`.
pub(super) fn list<'a>(schema: &'a Map<String, Value>, name: &str) -> &'a [Value] {
    schema.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The types that `type` allows, or nothing when it is absent.
pub(super) fn types(schema: &Map<String, Value>) -> Option<impl Iterator<Item = &str>> {
    let types = match schema.get("type")? {
        Value::Array(names) => names.as_slice(),
        name => std::slice::from_ref(name),
    };
    Some(types.iter().filter_map(Value::as_str))
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        // JSON Schema takes 5.0 for an integer; the types that read it do not.
        "integer" => value.is_i64() || value.is_u64(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        _ => true,
    }
}

/// The schemas of a property, any of which may apply; none when anything is allowed.
pub(super) fn of_property<'a>(
    schema: &'a Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = &'a Value> {
    let named = schema.get("properties").and_then(|all| all.get(name));
    let patterns = schema.get("patternProperties").and_then(Value::as_object);
    let patterns = patterns.filter(|all| named.is_none() && !all.is_empty());
    let rest = schema.get("additionalProperties");
    let rest = rest.filter(|_| named.is_none() && patterns.is_none());
    named.into_iter().chain(patterns.into_iter().flat_map(Map::values)).chain(rest)
}

/// The schema of an element of an array.
pub(super) fn of_item(schema: &Map<String, Value>, place: usize) -> Option<&Value> {
    list(schema, "prefixItems").get(place).or_else(|| schema.get("items"))
}

/// Whether a number is within the bounds of a schema, and an integer within its format.
fn in_bounds(schema: &Map<String, Value>, number: &Number) -> bool {
    let wide = |number: &Number| match (number.as_i64(), number.as_u64()) {
        (Some(n), _) => Some(i128::from(n)),
        (_, Some(n)) => Some(i128::from(n)),
        _ => None,
    };
    let at_least = |least: &Number, number: &Number| match (wide(least), wide(number)) {
        (Some(least), Some(number)) => number >= least,
        _ => number.as_f64() >= least.as_f64(),
    };
    let bound = |name: &str| match schema.get(name) {
        Some(Value::Number(bound)) => Some(bound),
        _ => None,
    };
    let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
    let in_format = wide(number).is_none_or(|n| match format {
        "int8" => i8::try_from(n).is_ok(),
        "int16" => i16::try_from(n).is_ok(),
        "int32" => i32::try_from(n).is_ok(),
        "int64" | "int" => i64::try_from(n).is_ok(),
        "uint8" => u8::try_from(n).is_ok(),
        "uint16" => u16::try_from(n).is_ok(),
        "uint32" => u32::try_from(n).is_ok(),
        "uint64" | "uint" => u64::try_from(n).is_ok(),
        _ => true,
    });
    in_format
        && bound("minimum").is_none_or(|least| at_least(least, number))
        && bound("maximum").is_none_or(|most| at_least(number, most))
        && bound("exclusiveMinimum").is_none_or(|least| !at_least(least, number))
        && bound("exclusiveMaximum").is_none_or(|most| !at_least(number, most))
}
