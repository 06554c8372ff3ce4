//! Reads the arguments of a tool call, and repairs them where that is safe.
//!
//! Models write numbers as text, objects as strings that hold JSON, and `null` for what they
//! leave out. [`repair`] puts right what has only one reading under the tool's JSON Schema;
//! everything else reaches [`read`]'s typed error, which names the place so that the model
//! can correct itself.

mod repair;
mod schema;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use repair::repair;

use crate::error::ToolError;
use crate::json::{MAX_DEPTH, is_deeper_than};
use schema::Schema;

/// The most characters of a path or a reason in an error; the middle of a longer one is cut.
const MAX_TEXT: usize = 400;

/// Reads arguments as the type that the tool declares.
///
/// Arguments that read as they are, are taken as they are. Others are [`repair`]ed first.
/// Fields that the type does not have are left to the type: they are ignored unless it says
/// `#[serde(deny_unknown_fields)]`.
///
/// # Errors
/// [`ToolError::Arguments`] with the path of the first value that does not fit, e.g.
/// `rooms[1].guests`, or `.` for the whole. Also for arguments nested deeper than
/// [`MAX_DEPTH`] levels.
///
/// ```
/// use flow_core::schemars::{self, JsonSchema, schema_for};
/// use flow_core::serde::Deserialize;
/// use flow_core::tool::arguments::read;
/// use serde_json::json;
///
/// #[derive(Deserialize, JsonSchema)]
/// # #[serde(crate = "flow_core::serde")]
/// struct Search {
///     city: String,
///     guests: u8,
/// }
///
/// let schema = schema_for!(Search).to_value();
/// let search: Search =
///     read("search", &schema, json!(r#"{"city": "Ulm", "guests": "2"}"#)).unwrap();
/// assert_eq!((search.city.as_str(), search.guests), ("Ulm", 2));
///
/// let error = read::<Search>("search", &schema, json!({"city": "Ulm", "guests": "two"}));
/// assert_eq!(
///     error.err().unwrap().to_string(),
///     "invalid arguments for tool `search` at `guests`: \
///      invalid type: string \"two\", expected u8",
/// );
/// ```
pub fn read<T: DeserializeOwned>(
    tool: &str,
    schema: &Value,
    arguments: Value,
) -> Result<T, ToolError> {
    let mut arguments = refuse_deep(tool, arguments)?;
    // What the type itself accepts is never touched, even where its schema is narrower.
    if let Ok(read) = T::deserialize(&arguments) {
        return Ok(read);
    }
    repair(schema, &mut arguments);
    if is_deeper_than(&arguments, MAX_DEPTH) {
        return Err(too_deep(tool));
    }
    serde_path_to_error::deserialize(&arguments).map_err(|e| {
        let path = e.path().to_string();
        explain(tool, schema, &arguments, path, e.inner().to_string())
    })
}

/// Gives arguments back that are not nested too deep to be read.
pub(crate) fn refuse_deep(tool: &str, arguments: Value) -> Result<Value, ToolError> {
    if is_deeper_than(&arguments, MAX_DEPTH) {
        drop_flat(arguments);
        return Err(too_deep(tool));
    }
    Ok(arguments)
}

fn too_deep(tool: &str) -> ToolError {
    ToolError::Arguments {
        tool: tool.to_owned(),
        path: ".".to_owned(),
        reason: format!("nested deeper than {MAX_DEPTH} levels"),
    }
}

/// Drops a value level by level: dropping a deep one as usual recurses once per level.
fn drop_flat(value: Value) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(map) => open.extend(map.into_iter().map(|(_, item)| item)),
            _ => {}
        }
    }
}

/// Makes the error of arguments that do not fit.
pub(super) fn explain(
    tool: &str,
    schema: &Value,
    arguments: &Value,
    path: String,
    mut reason: String,
) -> ToolError {
    // Within flattened structs and tagged enums serde loses the path; the schema finds it.
    let located = Schema::new(schema).locate(arguments);
    let finer = located.as_ref().filter(|found| found.is_within(&path));
    if let Some(found) = finer
        && let Value::String(text) = found.value
        && found.wants_container
        && let Err(problem) = repair::parse_container(text)
    {
        reason = format!("{reason}; the text does not hold JSON: {problem}");
    }
    let path = finer.map_or(path, |found| found.path.clone());
    ToolError::Arguments { tool: tool.to_owned(), path: shorten(path), reason: shorten(reason) }
}

/// Cuts the middle of a long text: its end says what was expected.
fn shorten(text: String) -> String {
    let length = text.chars().count();
    if length <= MAX_TEXT {
        return text;
    }
    let head: String = text.chars().take(MAX_TEXT / 2).collect();
    let tail: String = text.chars().skip(length - MAX_TEXT / 2).collect();
    format!("{head} … {tail}")
}
