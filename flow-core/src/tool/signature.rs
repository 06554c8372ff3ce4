//! The arguments of a tool, one by one: their JSON Schema, and reading them.
//!
//! `#[tools]` writes these calls for a method; a hand-written tool may make them too:
//!
//! ```
//! use flow_core::tool::ToolDefinition;
//! use flow_core::tool::signature::{Argument, Input, Parameters};
//! use serde_json::json;
//!
//! fn definitions() -> Vec<ToolDefinition> {
//!     let mut parameters = Parameters::new();
//!     String::describe(&mut parameters, "city", "Where to look.");
//!     Option::<u8>::describe(&mut parameters, "nights", "");
//!     vec![parameters.into_tool("search", "Searches free rooms.")]
//! }
//!
//! let arguments = json!({ "city": "Ulm", "nights": "2" });
//! let mut input = Input::new("search", arguments, definitions)?;
//! assert_eq!(String::read(&mut input, "city")?, "Ulm");
//! assert_eq!(Option::<u8>::read(&mut input, "nights")?, Some(2));
//! # Ok::<(), flow_core::error::ToolError>(())
//! ```

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::Error as ValueError;
use serde::de::{DeserializeOwned, Error as _, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};
use serde_json::{Map, Value, json};

use super::{ToolDefinition, arguments};
use crate::error::ToolError;

/// The type of an argument of a tool: anything that is `Deserialize` and `JsonSchema` and
/// owns its data.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a tool",
    label = "not `Deserialize` and `JsonSchema`",
    note = "a model sends an argument as JSON and sees its JSON Schema: derive `Deserialize` and `JsonSchema`, and own all data"
)]
pub trait Argument: Sized + 'static {
    /// Adds the argument to the parameters of a tool. `doc` may be empty.
    fn describe(parameters: &mut Parameters, name: &str, doc: &str);

    /// Reads the argument.
    ///
    /// # Errors
    /// [`ToolError::Arguments`] when it is missing or does not fit.
    fn read(input: &mut Input, name: &str) -> Result<Self, ToolError>;

    /// Adds the only argument of a tool. When its own schema is an object with properties,
    /// that is the schema of the tool; else it is a property as any other.
    fn describe_alone(parameters: &mut Parameters, name: &str, doc: &str);

    /// Reads the only argument of a tool, as [`describe_alone`](Self::describe_alone)
    /// describes it.
    ///
    /// # Errors
    /// [`ToolError::Arguments`] when it is missing or does not fit.
    fn read_alone(input: &mut Input, name: &str) -> Result<Self, ToolError>;
}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + 'static> Argument for T {
    fn describe(parameters: &mut Parameters, name: &str, doc: &str) {
        parameters.add::<T>(name, doc);
    }

    fn read(input: &mut Input, name: &str) -> Result<T, ToolError> {
        input.take(name)
    }

    fn describe_alone(parameters: &mut Parameters, name: &str, doc: &str) {
        let own = schema::<T>();
        if is_object(&own) {
            parameters.whole = Some(Value::clone(&own));
        } else {
            parameters.add::<T>(name, doc);
        }
    }

    fn read_alone(input: &mut Input, name: &str) -> Result<T, ToolError> {
        let own = schema::<T>();
        if is_object(&own) {
            arguments::read(&input.tool, &own, input.arguments.take())
        } else {
            input.take(name)
        }
    }
}

/// The parameters of a tool while they are described.
#[derive(Debug, Default)]
pub struct Parameters {
    generator: SchemaGenerator,
    properties: Map<String, Value>,
    required: Vec<String>,
    whole: Option<Value>,
}

impl Parameters {
    /// No parameters.
    pub fn new() -> Self {
        Self::default()
    }

    fn add<T: DeserializeOwned + JsonSchema>(&mut self, name: &str, doc: &str) {
        let mut schema = self.generator.subschema_for::<T>();
        if !doc.is_empty() {
            schema.insert("description".to_owned(), doc.into());
        }
        if T::deserialize(Absent { name }).is_err() {
            self.required.push(name.to_owned());
        }
        self.properties.insert(name.to_owned(), schema.to_value());
    }

    /// The tool that has these parameters.
    pub fn into_tool(mut self, name: &str, description: &str) -> ToolDefinition {
        let parameters = self.whole.take().unwrap_or_else(|| {
            let mut schema = json!({ "type": "object", "properties": self.properties });
            if !self.required.is_empty() {
                schema["required"] = self.required.into();
            }
            let definitions = self.generator.take_definitions(true);
            if !definitions.is_empty() {
                schema["$defs"] = definitions.into();
            }
            schema
        });
        ToolDefinition::new(name, description.trim(), parameters)
    }
}

/// Describes a tool whose arguments are the fields of one struct.
pub fn describe<A: JsonSchema + 'static>(name: &str, description: &str) -> ToolDefinition {
    let mut parameters = Parameters::new();
    parameters.whole = Some(Value::clone(&schema::<A>()));
    parameters.into_tool(name, description)
}

/// Reads arguments that are the fields of one struct.
///
/// # Errors
/// [`ToolError::Arguments`] when they do not fit and cannot be repaired.
pub fn read<A: DeserializeOwned + JsonSchema + 'static>(
    tool: &str,
    arguments: Value,
) -> Result<A, ToolError> {
    arguments::read(tool, &schema::<A>(), arguments)
}

/// The arguments of a call while they are read.
pub struct Input {
    tool: String,
    arguments: Value,
    definitions: fn() -> Vec<ToolDefinition>,
    /// The schema of the tool, once the arguments have been repaired by it.
    repaired: Option<Value>,
}

impl Input {
    /// The arguments of a call. `definitions` describes the tool that is called; it is asked
    /// only when something does not fit.
    ///
    /// # Errors
    /// [`ToolError::Arguments`] when they are nested too deep to be read safely.
    pub fn new(
        tool: &str,
        arguments: Value,
        definitions: fn() -> Vec<ToolDefinition>,
    ) -> Result<Self, ToolError> {
        let arguments = arguments::refuse_deep(tool, arguments)?;
        Ok(Self { tool: tool.to_owned(), arguments, definitions, repaired: None })
    }

    fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, ToolError> {
        if let Ok(value) = self.field(name) {
            return Ok(value);
        }
        let schema = match self.repaired.take() {
            Some(schema) => schema,
            None => {
                let mut tools = (self.definitions)().into_iter();
                let own = tools.find(|tool| tool.name == self.tool);
                let schema = own.map(|tool| tool.parameters).unwrap_or_default();
                arguments::repair(&schema, &mut self.arguments);
                self.arguments = arguments::refuse_deep(&self.tool, self.arguments.take())?;
                schema
            }
        };
        let read = self.field(name).map_err(|(path, reason)| {
            arguments::explain(&self.tool, &schema, &self.arguments, path, reason)
        });
        self.repaired = Some(schema);
        read
    }

    /// Reads a field, or says where and why it does not fit.
    fn field<T: DeserializeOwned>(&self, name: &str) -> Result<T, (String, String)> {
        let Value::Object(fields) = &self.arguments else {
            // Let serde say what it found in place of the object.
            let found = serde_json::from_value::<Map<String, Value>>(self.arguments.clone());
            let reason = found.err().map_or_else(String::new, |error| error.to_string());
            return Err((".".to_owned(), reason));
        };
        let Some(value) = fields.get(name) else {
            return T::deserialize(Absent { name })
                .map_err(|error| (".".to_owned(), error.to_string()));
        };
        serde_path_to_error::deserialize(value).map_err(|error| {
            let inner = error.path().to_string();
            let path = match inner.as_str() {
                "." => name.to_owned(),
                inner if inner.starts_with('[') => format!("{name}{inner}"),
                inner => format!("{name}.{inner}"),
            };
            (path, error.into_inner().to_string())
        })
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("tool", &self.tool).finish_non_exhaustive()
    }
}

/// A field that is not there: reads as `None`, and as nothing else.
struct Absent<'a> {
    name: &'a str,
}

impl<'de> Deserializer<'de> for Absent<'_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ValueError> {
        Err(ValueError::custom(format_args!("missing field `{}`", self.name)))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_none()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The error for a name that none of the tools has.
pub fn unknown(tool: &str, known: &[ToolDefinition]) -> ToolError {
    let known: Vec<&str> = known.iter().map(|tool| tool.name.as_str()).collect();
    ToolError::Unknown { tool: tool.to_owned(), known: known.join(", ") }
}

/// The schema of a type, made once per type, without what says nothing to a model: the
/// dialect and the name of the Rust type.
fn schema<T: JsonSchema + 'static>() -> Arc<Value> {
    static SCHEMAS: LazyLock<RwLock<HashMap<TypeId, Arc<Value>>>> = LazyLock::new(RwLock::default);

    let id = TypeId::of::<T>();
    // A map of finished schemas is never half written, so a panic elsewhere does not matter.
    let known = SCHEMAS.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
    known.unwrap_or_else(|| {
        let mut made: Schema = schemars::schema_for!(T);
        made.remove("$schema");
        made.remove("title");
        let made = Arc::new(made.to_value());
        SCHEMAS.write().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::clone(&made));
        made
    })
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

    fn alone<T: Argument>() -> Vec<ToolDefinition> {
        let mut parameters = Parameters::new();
        T::describe_alone(&mut parameters, "query", "Asks.");
        vec![parameters.into_tool("search", " Searches. ")]
    }

    fn take_alone<T: Argument>(arguments: Value) -> Result<T, ToolError> {
        T::read_alone(&mut Input::new("search", arguments, alone::<T>).unwrap(), "query")
    }

    #[test]
    fn one_struct_is_the_whole_object() {
        let tool = &alone::<Query>()[0];
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
        assert_eq!(take_alone::<Query>(json!({ "city": "Ulm" })).unwrap().city, "Ulm");
        let text = json!(r#"{ "city": "Ulm" }"#);
        assert_eq!(take_alone::<Query>(text).unwrap().city, "Ulm");
    }

    #[test]
    fn what_has_no_properties_of_its_own_is_a_property() {
        for tool in [alone::<u8>(), alone::<Vec<Query>>(), alone::<BTreeMap<String, u8>>()] {
            let query = &tool[0].parameters["properties"]["query"];
            assert_eq!(query["description"], "Asks.", "{query}");
        }
        assert_eq!(alone::<Vec<Query>>()[0].parameters["$defs"]["Query"]["type"], "object");
        assert_eq!(take_alone::<u8>(json!({ "query": 7 })).unwrap(), 7);
        assert_eq!(take_alone::<u8>(json!({ "query": "7" })).unwrap(), 7);
    }

    fn two() -> Vec<ToolDefinition> {
        let mut parameters = Parameters::new();
        Query::describe(&mut parameters, "where", "");
        Option::<u8>::describe(&mut parameters, "nights", "");
        vec![parameters.into_tool("search", "")]
    }

    fn take_two(arguments: Value) -> Result<(Query, Option<u8>), ToolError> {
        let mut input = Input::new("search", arguments, two)?;
        Ok((Query::read(&mut input, "where")?, Option::read(&mut input, "nights")?))
    }

    #[test]
    fn an_option_may_be_left_out() {
        assert_eq!(two()[0].parameters["required"], json!(["where"]));
        let (query, nights) = take_two(json!({ "where": { "city": "Ulm" } })).unwrap();
        assert_eq!((query.city.as_str(), nights), ("Ulm", None));
    }

    #[test]
    fn what_does_not_fit_is_repaired_or_named() {
        let (_, nights) =
            take_two(json!({ "where": "{\"city\": \"Ulm\"}", "nights": "2" })).unwrap();
        assert_eq!(nights, Some(2));
        let message = |arguments| take_two(arguments).unwrap_err().to_string();
        let prefix = "invalid arguments for tool `search` at";
        assert_eq!(message(json!({})), format!("{prefix} `.`: missing field `where`"));
        assert_eq!(
            message(json!({ "where": { "city": [] } })),
            format!("{prefix} `where.city`: invalid type: sequence, expected a string")
        );
        assert_eq!(
            message(json!({ "where": { "city": "Ulm" }, "nights": 300 })),
            format!("{prefix} `nights`: invalid value: integer `300`, expected u8")
        );
        assert!(message(json!([1])).starts_with(&format!("{prefix} `.`: invalid type: sequence")));
    }

    #[test]
    fn an_unknown_tool_names_the_known_ones() {
        let known = ["ping", "pong"].map(|name| Parameters::new().into_tool(name, ""));
        assert_eq!(known[0].parameters, json!({ "type": "object", "properties": {} }));
        let error = unknown("pang", &known).to_string();
        assert_eq!(error, "there is no tool `pang`; known tools: ping, pong");
    }
}
