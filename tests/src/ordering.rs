//! What providers demand of the messages of a request: which may stand where, and that every
//! tool call has exactly one result.
//!
//! The rules are functions over the bodies of requests, so that they hold for what is really
//! sent. [`openai_body`] and [`anthropic_body`] write messages down as such bodies, part by
//! part, without any of the care that the provider layer takes.

use std::collections::BTreeSet;

use flow_core::message::{Message, Part, Role};
use serde_json::{Value, json};

/// OpenAI's rules for chat completions.
///
/// Sources: the API reference (`tool_call_id`: "Tool call that this message is responding to",
/// assistant's `content`: "Required unless `tool_calls` or `function_call` is specified") and
/// the errors with status 400: "An assistant message with 'tool_calls' must be followed by tool
/// messages responding to each 'tool_call_id'" (langgenius/dify#32222), "messages with role
/// 'tool' must be a response to a preceeding message with 'tool_calls'" (miurla/morphic#136).
///
/// # Errors
/// The first rule that is broken, and where.
pub fn openai(body: &Value) -> Result<(), String> {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    if messages.is_empty() {
        return Err("[] is too short - 'messages'".to_owned());
    }
    // The calls of the last assistant message that have no result yet.
    let mut open: Vec<&str> = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        let failed = |reason: &str| Err(format!("messages[{place}] ({role}): {reason}"));
        let content = &message["content"];
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let Some(call) = open.iter().position(|open| *open == id) else {
                return failed(&format!(
                    "messages with role 'tool' must be a response to a preceding message with \
                     'tool_calls': `{id}`"
                ));
            };
            open.remove(call);
            if content.is_null() {
                return failed("a result needs content");
            }
            continue;
        }
        if !open.is_empty() {
            return failed(&unanswered(&open));
        }
        match role {
            "assistant" => {
                let calls = message.get("tool_calls");
                if calls.is_none() && content.is_null() {
                    return failed("content is required unless tool_calls is specified");
                }
                let Some(calls) = calls else { continue };
                let calls = calls.as_array().map_or(&[][..], Vec::as_slice);
                if calls.is_empty() {
                    return failed("[] is too short - 'tool_calls'");
                }
                for call in calls {
                    let id = call["id"].as_str().unwrap_or_default();
                    if id.is_empty() || open.contains(&id) {
                        return failed(&format!("`{id}` is no id of its own"));
                    }
                    if !call["function"]["arguments"].is_string() {
                        return failed("arguments are a string of JSON");
                    }
                    open.push(id);
                }
            }
            "system" | "developer" | "user" if content.is_null() => {
                return failed("content is required");
            }
            "system" | "developer" | "user" => {}
            _ => return failed("unknown role"),
        }
    }
    if open.is_empty() { Ok(()) } else { Err(unanswered(&open)) }
}

fn unanswered(ids: &[&str]) -> String {
    format!(
        "an assistant message with 'tool_calls' must be followed by tool messages responding to \
         each 'tool_call_id'; without one: {}",
        ids.join(", ")
    )
}

/// Anthropic's rules for messages.
///
/// Sources: the API reference ("consecutive `user` or `assistant` turns in your request will be
/// combined into a single turn"), "Handle tool calls" in its documentation (results follow
/// their calls immediately, and come first in the content), and the errors with status 400:
/// "first message must use the "user" role" (lobehub/lobehub#1601), "`tool_use` ids were found
/// without `tool_result` blocks immediately after" (anthropics/claude-code#2697), "unexpected
/// `tool_use_id` found in `tool_result` blocks" (tghamm/Anthropic.SDK#184), "messages following
/// `tool_use` blocks must begin with a matching number of `tool_result` blocks"
/// (apify/tester-mcp-client#12), "all messages must have non-empty content"
/// (glowingjade/obsidian-smart-composer#156), "the conversation must end with a user message"
/// (cortexkit/magic-context#511), and that tools are to be declared when the messages hold
/// their blocks (BerriAI/litellm#5747).
///
/// # Errors
/// The first rule that is broken, and where.
pub fn anthropic(body: &Value) -> Result<(), String> {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "user" && role != "assistant" {
            return Err(format!("messages.{place}: there is no role `{role}`"));
        }
        let blocks = match &message["content"] {
            Value::String(text) => vec![json!({ "type": "text", "text": text })],
            Value::Array(blocks) => blocks.clone(),
            _ => Vec::new(),
        };
        if blocks.is_empty() {
            return Err(format!("messages.{place}: all messages must have non-empty content"));
        }
        match turns.last_mut() {
            Some((last, content)) if *last == role => content.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    match turns.first() {
        None => return Err("messages: at least one message is required".to_owned()),
        Some(("user", _)) => {}
        Some(_) => return Err("messages: first message must use the \"user\" role".to_owned()),
    }
    let mut used = BTreeSet::new();
    let mut open: BTreeSet<String> = BTreeSet::new();
    for (place, (role, blocks)) in turns.iter().enumerate() {
        let failed = |reason: String| Err(format!("turn {place} ({role}): {reason}"));
        let mut begun = BTreeSet::new();
        let mut after_results = false;
        for block in blocks {
            let id = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
            match (block["type"].as_str().unwrap_or_default(), *role) {
                ("tool_result", "user") => {
                    let id = id("tool_use_id");
                    if after_results {
                        return failed(format!("the result of `{id}` comes after other content"));
                    }
                    if !open.remove(&id) {
                        return failed(format!(
                            "unexpected `tool_use_id` found in `tool_result` blocks: {id}"
                        ));
                    }
                }
                ("tool_use", "assistant") => {
                    let id = id("id");
                    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                    if id.is_empty() || !id.chars().all(plain) {
                        return failed(format!("`{id}` is no id of a `tool_use` block"));
                    }
                    if !block["input"].is_object() {
                        return failed(format!("the input of `{id}` is not an object"));
                    }
                    if !used.insert(id.clone()) {
                        return failed(format!("`tool_use` ids must be unique: {id}"));
                    }
                    begun.insert(id);
                }
                (kind @ ("tool_result" | "tool_use"), _) => {
                    return failed(format!("`{kind}` blocks cannot be in a message of this role"));
                }
                ("text", _) if block["text"].as_str().unwrap_or_default().trim().is_empty() => {
                    return failed("text content blocks must be non-empty".to_owned());
                }
                _ => after_results = true,
            }
        }
        if !open.is_empty() {
            return failed(format!("`tool_use` ids were found without results before: {open:?}"));
        }
        open = begun;
    }
    if turns.last().is_some_and(|(role, _)| *role == "assistant") {
        return Err(match open.is_empty() {
            true => "the conversation must end with a user message".to_owned(),
            false => format!("`tool_use` ids were found without `tool_result` blocks: {open:?}"),
        });
    }
    let declared = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    if !used.is_empty() && !declared {
        return Err("messages hold `tool_use` blocks, and no tools are declared".to_owned());
    }
    Ok(())
}

/// Messages as a body of OpenAI's chat completions.
pub fn openai_body(messages: &[Message]) -> Value {
    let mut written = Vec::new();
    for message in messages {
        let text = message.to_text();
        match message.role {
            Role::Tool => written.extend(message.parts.iter().filter_map(|part| match part {
                Part::ToolResult(result) => Some(json!({
                    "role": "tool", "tool_call_id": result.id, "content": result.content
                })),
                _ => None,
            })),
            Role::Assistant => {
                let calls: Vec<Value> = message
                    .parts
                    .iter()
                    .filter_map(|part| match part {
                        Part::ToolCall(call) => Some(json!({
                            "id": call.id,
                            "type": "function",
                            "function": { "name": call.name, "arguments": call.arguments.to_string() }
                        })),
                        _ => None,
                    })
                    .collect();
                let mut one = json!({ "role": "assistant", "content": text });
                if !calls.is_empty() {
                    one["tool_calls"] = calls.into();
                }
                written.push(one);
            }
            _ => written.push(json!({ "role": "user", "content": text })),
        }
    }
    json!({ "messages": written })
}

/// An id of letters that Anthropic takes, and no other id's.
fn plain_id(id: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let letters = id.chars().map(|c| match plain(c) {
        true => c.to_string(),
        false => format!("_{:x}_", u32::from(c)),
    });
    letters.collect()
}

/// Messages as a body of Anthropic's messages.
pub fn anthropic_body(messages: &[Message]) -> Value {
    let mut tools = BTreeSet::new();
    let written: Vec<Value> = messages
        .iter()
        .map(|message| {
            let blocks = message.parts.iter().filter_map(|part| match part {
                Part::Text { text } => Some(json!({ "type": "text", "text": text })),
                Part::ToolCall(call) => {
                    tools.insert(call.name.clone());
                    let input = match &call.arguments {
                        input @ Value::Object(_) => input.clone(),
                        other => json!({ "arguments": other }),
                    };
                    Some(json!({
                        "type": "tool_use", "id": plain_id(&call.id), "name": call.name, "input": input
                    }))
                }
                Part::ToolResult(result) => Some(json!({
                    "type": "tool_result",
                    "tool_use_id": plain_id(&result.id),
                    "content": result.content
                })),
                _ => None,
            });
            let role = if message.role == Role::Assistant { "assistant" } else { "user" };
            json!({ "role": role, "content": blocks.collect::<Vec<_>>() })
        })
        .collect();
    let tools: Vec<Value> = tools.into_iter().map(|name| json!({ "name": name })).collect();
    json!({ "messages": written, "tools": tools })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(messages: &[Value]) -> Result<(), String> {
        openai(&json!({ "messages": messages }))
    }

    fn claude(messages: &[Value]) -> Result<(), String> {
        anthropic(&json!({ "messages": messages, "tools": [{ "name": "t" }] }))
    }

    fn broken(result: Result<(), String>, rule: &str) {
        let error = result.expect_err(rule);
        assert!(error.contains(rule), "{error}, not {rule}");
    }

    #[test]
    fn openai_pairs_calls_and_results() {
        let user = json!({ "role": "user", "content": "hi" });
        let said = json!({ "role": "assistant", "content": "hello" });
        let function = json!({ "name": "t", "arguments": "{}" });
        let call = |ids: &[&str]| {
            let calls = ids.iter().map(|id| json!({ "id": id, "function": function }));
            let calls: Vec<Value> = calls.collect();
            json!({ "role": "assistant", "content": null, "tool_calls": calls })
        };
        let result = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": "" });
        let ok = [user.clone(), call(&["a", "b"]), result("b"), result("a"), call(&["a"])];
        assert_eq!(chat(&[&ok[..], &[result("a"), said.clone(), said.clone()]].concat()), Ok(()));

        broken(chat(&[]), "too short");
        broken(chat(&ok), "without one: a");
        broken(chat(&[call(&["a", "b"]), result("a"), user.clone()]), "without one: b");
        broken(chat(&[call(&["a"]), user.clone(), result("a")]), "without one: a");
        broken(chat(&[call(&["a"]), result("a"), result("a")]), "preceding message");
        broken(chat(&[result("a")]), "preceding message");
        broken(chat(&[call(&["a"]), result("b")]), "preceding message");
        broken(chat(&[call(&["a", "a"]), result("a")]), "no id of its own");
        broken(chat(&[call(&[]), user]), "'tool_calls'");
        broken(chat(&[json!({ "role": "assistant", "content": null })]), "content is required");
        broken(chat(&[json!({ "role": "user" })]), "content is required");
        broken(chat(&[json!({ "role": "model", "content": "x" })]), "unknown role");
    }

    #[test]
    fn anthropic_pairs_calls_and_results() {
        let user = json!({ "role": "user", "content": "hi" });
        let said = json!({ "role": "assistant", "content": "hello" });
        let call = |ids: &[&str]| {
            let one = |id: &&str| json!({ "type": "tool_use", "id": id, "name": "t", "input": {} });
            json!({ "role": "assistant", "content": ids.iter().map(one).collect::<Vec<_>>() })
        };
        let result = |ids: &[&str]| {
            let one = |id: &&str| json!({ "type": "tool_result", "tool_use_id": id });
            json!({ "role": "user", "content": ids.iter().map(one).collect::<Vec<_>>() })
        };
        // Turns of one role are one turn, so results may come in two messages.
        let ok = [
            user.clone(),
            said.clone(),
            call(&["a", "b"]),
            result(&["b"]),
            result(&["a"]),
            user.clone(),
        ];
        assert_eq!(claude(&ok), Ok(()));
        broken(anthropic(&json!({ "messages": ok })), "no tools are declared");

        broken(claude(&[]), "at least one message");
        broken(claude(&[said.clone(), user.clone()]), "first message");
        broken(claude(&[user.clone(), said.clone()]), "must end with a user message");
        broken(claude(&[user.clone(), call(&["a"])]), "without `tool_result` blocks");
        broken(claude(&[user.clone(), call(&["a"]), user.clone()]), "without results");
        let late = [user.clone(), call(&["a"]), user.clone(), result(&["a"])];
        broken(claude(&late), "comes after other content");
        broken(claude(&[user.clone(), call(&["a"]), result(&["b"])]), "unexpected");
        broken(claude(&[user.clone(), call(&["a"]), result(&["a", "a"])]), "unexpected");
        broken(claude(&[result(&["a"])]), "unexpected");
        let again = [user.clone(), call(&["a"]), result(&["a"]), call(&["a"]), result(&["a"])];
        broken(claude(&again), "must be unique");
        broken(claude(&[user.clone(), call(&["a:1"]), result(&["a:1"])]), "no id");
        broken(claude(&[json!({ "role": "user", "content": [] })]), "non-empty content");
        broken(claude(&[json!({ "role": "user", "content": " " })]), "must be non-empty");
        broken(claude(&[json!({ "role": "system", "content": "x" })]), "no role `system`");
        let swapped = json!({ "role": "user", "content": call(&["a"])["content"] });
        broken(claude(&[swapped]), "cannot be in a message of this role");
    }
}
