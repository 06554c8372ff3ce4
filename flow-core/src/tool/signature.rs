//! The arguments of a tool as a type: its schema, and reading it.
//!
//! What `#[tools]` generates for a method names these; a hand-written tool may too.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{ToolDefinition, arguments};
use crate::error::ToolError;

/// A type that holds arguments of a tool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a tool",
    label = "a model sends this as JSON, and sees its JSON Schema",
    note = "derive `Deserialize` and `JsonSchema` for it"
)]
pub trait Argument: DeserializeOwned + JsonSchema + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + 'static> Argument for T {}

/// The arguments of a tool with one argument: the value itself when its schema is an object
/// with properties, else a struct that holds it under its name.
#[derive(Debug)]
pub enum Lone<A, T> {
    /// The value is the object of arguments.
    Whole(T),
    /// The value is a field of the object of arguments.
    Field(A),
}

/// Describes a tool whose arguments are the struct `A`.
pub fn definition<A: Argument>(name: &str, description: &str) -> ToolDefinition {
    describe(name, description, Value::clone(&schema::<A>()))
}

/// Describes a tool with the one argument `T`, which the struct `A` holds under its name.
pub fn lone_definition<A: Argument, T: Argument>(name: &str, description: &str) -> ToolDefinition {
    let own = schema::<T>();
    if is_object(&own) {
        describe(name, description, Value::clone(&own))
    } else {
        definition::<A>(name, description)
    }
}

/// Describes a tool without arguments.
pub fn bare_definition(name: &str, description: &str) -> ToolDefinition {
    describe(name, description, json!({ "type": "object", "properties": {} }))
}

/// Reads the arguments of a tool.
///
/// # Errors
/// When they do not fit and cannot be repaired.
pub fn read<A: Argument>(tool: &str, arguments: Value) -> Result<A, ToolError> {
    arguments::read(tool, &schema::<A>(), arguments)
}

/// Reads the argument of a tool that has one.
///
/// # Errors
/// When it does not fit and cannot be repaired.
pub fn read_lone<A: Argument, T: Argument>(
    tool: &str,
    arguments: Value,
) -> Result<Lone<A, T>, ToolError> {
    let own = schema::<T>();
    if is_object(&own) {
        arguments::read(tool, &own, arguments).map(Lone::Whole)
    } else {
        read(tool, arguments).map(Lone::Field)
    }
}

/// The error for a name that none of the tools has.
pub fn unknown(tool: &str, known: &[ToolDefinition]) -> ToolError {
    let known: Vec<&str> = known.iter().map(|tool| tool.name.as_str()).collect();
    ToolError::Unknown { tool: tool.to_owned(), known: known.join(", ") }
}

fn describe(name: &str, description: &str, mut parameters: Value) -> ToolDefinition {
    let description = description.trim();
    if let Value::Object(root) = &mut parameters
        && root.get("description").is_some_and(|own| own == description)
    {
        root.remove("description");
    }
    ToolDefinition { name: name.to_owned(), description: description.to_owned(), parameters }
}

/// The schema of a type, made once per type.
fn schema<T: JsonSchema + 'static>() -> Arc<Value> {
    static SCHEMAS: LazyLock<RwLock<HashMap<TypeId, Arc<Value>>>> = LazyLock::new(RwLock::default);

    let id = TypeId::of::<T>();
    // Nothing panics under the lock, and a map of finished schemas is never half written.
    let known = SCHEMAS.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
    known.unwrap_or_else(|| {
        let made = Arc::new(bare(schemars::schema_for!(T)));
        SCHEMAS.write().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::clone(&made));
        made
    })
}

/// A schema without what says nothing to a model: the dialect and the name of the Rust type.
fn bare(mut schema: Schema) -> Value {
    schema.remove("$schema");
    schema.remove("title");
    schema.to_value()
}

fn is_object(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object")
        && schema
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(|properties| !properties.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    /// Where to look.
    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Query {
        city: String,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Named<T> {
        query: T,
    }

    #[test]
    fn one_struct_is_the_whole_object() {
        let tool = lone_definition::<Named<Query>, Query>("search", " Searches. ");
        assert_eq!(
            tool.parameters,
            json!({
                "type": "object",
                "description": "Where to look.",
                "properties": { "city": { "type": "string" } },
                "required": ["city"],
            })
        );
        assert_eq!(tool.description, "Searches.");
        let read = read_lone::<Named<Query>, Query>("search", json!({ "city": "Ulm" })).unwrap();
        assert!(matches!(read, Lone::Whole(Query { city }) if city == "Ulm"));
    }

    #[test]
    fn what_has_no_properties_of_its_own_is_a_field() {
        for parameters in [
            lone_definition::<Named<u8>, u8>("a", "b").parameters,
            lone_definition::<Named<Vec<Query>>, Vec<Query>>("a", "b").parameters,
            lone_definition::<Named<BTreeMap<String, u8>>, BTreeMap<String, u8>>("a", "b")
                .parameters,
        ] {
            assert!(parameters["properties"].get("query").is_some(), "{parameters}");
        }
        let read = read_lone::<Named<u8>, u8>("a", json!({ "query": 7 })).unwrap();
        assert!(matches!(read, Lone::Field(Named { query: 7 })));
    }

    #[test]
    fn no_arguments_are_an_object_too() {
        assert_eq!(
            bare_definition("ping", "").parameters,
            json!({ "type": "object", "properties": {} })
        );
    }

    #[test]
    fn an_unknown_tool_names_the_known_ones() {
        let known = [bare_definition("ping", ""), bare_definition("pong", "")];
        let error = unknown("pang", &known).to_string();
        assert_eq!(error, "there is no tool `pang`; known tools: ping, pong");
    }
}
