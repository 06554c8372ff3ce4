use serde_json::{Map, Value};

use super::service::Dialect;

/// The values of `format` that providers know.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

/// What limits values, which Anthropic refuses in the schema of an output.
const LIMITS: [&str; 12] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];

/// Takes from the schema of an output what a provider refuses. The provider crate closes the
/// objects and, for OpenAI, makes all their properties required.
pub(super) fn for_output(mut schema: Value, dialect: Dialect) -> Value {
    if dialect != Dialect::Gemini {
        strip(&mut schema, dialect);
    }
    schema
}

fn strip(schema: &mut Value, dialect: Dialect) {
    let Value::Object(map) = schema else { return };
    map.remove("$schema");
    let known = |format: &Value| format.as_str().is_some_and(|format| FORMATS.contains(&format));
    if map.get("format").is_some_and(|format| !known(format)) {
        map.remove("format");
    }
    if dialect == Dialect::Anthropic {
        map.retain(|keyword, _| !LIMITS.contains(&keyword.as_str()));
    } else {
        map.remove("default");
    }
    if !map.contains_key("anyOf")
        && let Some(choices) = map.remove("oneOf")
    {
        map.insert("anyOf".to_owned(), choices);
    }
    for (keyword, value) in map.iter_mut() {
        match keyword.as_str() {
            // Keys are names here, not keywords.
            "properties" | "patternProperties" | "$defs" | "definitions" => {
                let schemas = value.as_object_mut().into_iter().flat_map(Map::values_mut);
                schemas.for_each(|schema| strip(schema, dialect));
            }
            "anyOf" | "allOf" | "oneOf" | "prefixItems" => {
                let schemas = value.as_array_mut().into_iter().flatten();
                schemas.for_each(|schema| strip(schema, dialect));
            }
            "items" | "additionalProperties" | "not" => strip(value, dialect),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_refused_goes() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "format": { "type": "string", "format": "date" },
                "default": { "type": "integer", "format": "uint8", "minimum": 0, "default": 3 },
                "kind": { "oneOf": [
                    { "const": { "default": 1 } },
                    { "type": "array", "items": { "type": "number", "format": "double" } }
                ] }
            },
            "required": ["format"]
        });
        let openai = for_output(schema.clone(), Dialect::Chat);
        assert_eq!(
            openai,
            json!({
                "type": "object",
                "properties": {
                    "format": { "type": "string", "format": "date" },
                    "default": { "type": "integer", "minimum": 0 },
                    "kind": { "anyOf": [
                        { "const": { "default": 1 } },
                        { "type": "array", "items": { "type": "number" } }
                    ] }
                },
                "required": ["format"]
            })
        );
        let anthropic = for_output(schema.clone(), Dialect::Anthropic);
        assert_eq!(anthropic["properties"]["default"], json!({ "type": "integer", "default": 3 }));
        assert_eq!(for_output(schema.clone(), Dialect::Gemini), schema);
    }
}
