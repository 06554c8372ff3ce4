//! Reads the value in a model's answer, and says what is wrong with it.

use serde_json::Value;

use super::super::cx::Scope;
use super::super::registry::Misfit;
use crate::message::{Message, Part, Role, ToolCallPart, ToolResultPart};
use crate::model::ChatResponse;

/// How many places of a text may be tried as the beginning of an object.
const MAX_STARTS: usize = 64;

/// The value in an answer: the arguments of the tool, or the JSON in its text.
pub(super) fn read(response: &ChatResponse, name: &str, by_tool: bool) -> Result<Value, Misfit> {
    if let Some(call) = response.tool_calls().find(|call| call.name == name) {
        return Ok(call.arguments.clone());
    }
    json_in(&response.text()).map(|value| unwrap_call(value, name)).ok_or_else(|| {
        let reason = match by_tool {
            true => format!("the tool `{name}` was not called"),
            false => "the answer holds no JSON object".to_owned(),
        };
        Misfit { path: ".".to_owned(), reason }
    })
}

/// The arguments of a call that a model has written as text, as small ones do; any other value
/// as it is.
fn unwrap_call(mut value: Value, name: &str) -> Value {
    match value.get_mut("arguments").map(Value::take) {
        Some(arguments) if value["name"] == name && arguments.is_object() => arguments,
        Some(arguments) => {
            value["arguments"] = arguments;
            value
        }
        None => value,
    }
}

/// The JSON in a text: the whole text, a fenced block of it with or without a language, or the
/// first object that stands in it.
fn json_in(text: &str) -> Option<Value> {
    let text = text.trim();
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    fences(text).find_map(|fenced| serde_json::from_str(fenced).ok()).or_else(|| {
        let starts = text.match_indices('{').take(MAX_STARTS);
        let value = |(at, _)| {
            let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
            values.next()?.ok()
        };
        starts.filter_map(value).next()
    })
}

/// What stands in fences. A fence that is not closed goes on to the end.
fn fences(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").skip(1).step_by(2).map(|fenced| {
        let language = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+');
        match fenced.split_once('\n') {
            Some((first, rest)) if first.trim().chars().all(language) => rest.trim(),
            _ => fenced.trim_start_matches("json").trim(),
        }
    })
}

/// The answer, and what is wrong with it, in the form in which the model gave it.
pub(super) fn correct(
    scope: &Scope,
    response: ChatResponse,
    name: &str,
    misfits: &[Misfit],
) -> [Message; 2] {
    let faults: Vec<String> =
        misfits.iter().map(|Misfit { path, reason }| format!("at `{path}`: {reason}")).collect();
    let told = format!("This does not fit: {}. Give all of it again.", faults.join("; "));
    let call = response.tool_calls().find(|call| call.name == name).cloned();
    let Some(mut call) = call else {
        // A call of another tool would need a result.
        let text = response.text();
        let said = if text.trim().is_empty() { "(no answer)" } else { text.as_str() };
        return [
            scope.draft(Role::Assistant, vec![Part::text(said)]),
            scope.draft(Role::User, vec![Part::text(told)]),
        ];
    };
    if call.id.is_empty() {
        call.id = "call".to_owned();
    }
    let id = call.id.clone();
    let mut parts: Vec<Part> =
        response.parts.into_iter().filter(|part| !matches!(part, Part::ToolCall(_))).collect();
    parts.push(Part::ToolCall(call));
    let result = ToolResultPart { id, name: name.to_owned(), content: told, is_error: true };
    [scope.draft(Role::Assistant, parts), scope.draft(Role::Tool, vec![Part::ToolResult(result)])]
}

/// A conversation without calls of tools: providers refuse calls in the history of a request
/// that does not define the tools. A call and its result are told in words.
pub(super) fn plain(messages: Vec<Message>) -> Vec<Message> {
    let mut plain: Vec<Message> = Vec::with_capacity(messages.len());
    for mut message in messages {
        let parts = std::mem::take(&mut message.parts);
        let told = parts.into_iter().filter_map(|part| match part {
            Part::ToolCall(ToolCallPart { name, arguments, .. }) => {
                Some(Part::text(format!("[called the tool {name} with {arguments}]")))
            }
            Part::ToolResult(ToolResultPart { name, content, is_error, .. }) => {
                let how = if is_error { "failed" } else { "returned" };
                Some(Part::text(format!("[the tool {name} {how}: {content}]")))
            }
            Part::Reasoning { .. } => None,
            other => Some(other),
        });
        message.parts.extend(told);
        if message.role == Role::Tool {
            message.role = Role::Assistant;
        }
        match plain.last_mut() {
            Some(last) if last.role == Role::Assistant && message.role == Role::Assistant => {
                last.parts.append(&mut message.parts);
            }
            _ if message.parts.is_empty() => {}
            _ => plain.push(message),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_that_is_written_as_text_counts() {
        let call = json!({ "name": "submit", "arguments": { "a": 1 } });
        assert_eq!(unwrap_call(call.clone(), "submit"), json!({ "a": 1 }));
        assert_eq!(unwrap_call(call.clone(), "other"), call);
        let text = json!({ "name": "submit", "arguments": "a" });
        assert_eq!(unwrap_call(text.clone(), "submit"), text);
        assert_eq!(unwrap_call(json!([1]), "submit"), json!([1]));
    }

    #[test]
    fn json_is_found_wherever_a_model_puts_it() {
        let found = Some(json!({ "a": "}", "b": [1] }));
        for text in [
            r#"{"a": "}", "b": [1]}"#,
            "```json\n{\"a\": \"}\", \"b\": [1]}\n```",
            "Here it is:\n```\n{\"a\": \"}\", \"b\": [1]}\n```\nDone {really}.",
            "Sure!\n```JSON\n{\"a\": \"}\", \"b\": [1]}",
            "```json {\"a\": \"}\", \"b\": [1]}```",
            "```text\nno\n```\n```json\n{\"a\": \"}\", \"b\": [1]}\n```",
            "The {answer} is {\"a\": \"}\", \"b\": [1]}, I think.",
            "```json\n{ .. }\n```\nI mean {\"a\": \"}\", \"b\": [1]}",
        ] {
            assert_eq!(json_in(text), found, "{text}");
        }
        assert_eq!(json_in("true"), Some(json!(true)));
        assert_eq!(json_in("```\n\"urgent\"\n```"), Some(json!("urgent")));
        for text in ["", "I do not know.", "{", "{a: 1}", &"{".repeat(100_000)] {
            assert_eq!(json_in(text), None);
        }
    }
}
