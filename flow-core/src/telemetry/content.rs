//! What is said, in the forms that the convention gives it.

use serde_json::{Value, json};

use crate::message::{Media, MediaSource, Message, Part};
use crate::tool::ToolDefinition;

pub(super) fn instructions(system: &str) -> Value {
    json!([{ "type": "text", "content": system }])
}

pub(super) fn input(messages: &[Message]) -> Value {
    let messages = messages.iter().map(|message| {
        let parts: Vec<Value> = message.parts.iter().map(part).collect();
        json!({ "role": message.role, "parts": parts })
    });
    messages.collect()
}

pub(super) fn output(parts: &[Part], finish: &str) -> Value {
    let parts: Vec<Value> = parts.iter().map(part).collect();
    json!([{ "role": "assistant", "parts": parts, "finish_reason": finish }])
}

pub(super) fn tools(tools: &[ToolDefinition]) -> Value {
    let tools = tools.iter().map(|tool| {
        json!({
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        })
    });
    tools.collect()
}

fn part(part: &Part) -> Value {
    match part {
        Part::Text { text } => json!({ "type": "text", "content": text }),
        Part::Reasoning { text, .. } => json!({ "type": "reasoning", "content": text }),
        Part::ToolCall(call) => json!({
            "type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments,
        }),
        Part::ToolResult(result) => json!({
            "type": "tool_call_response", "id": result.id, "response": result.content,
        }),
        Part::Image(media) => medium(media, "image"),
        Part::File(media) => medium(media, "document"),
    }
}

fn medium(media: &Media, modality: &str) -> Value {
    let kind = &media.media_type;
    match &media.source {
        MediaSource::Url(uri) => {
            json!({ "type": "uri", "modality": modality, "mime_type": kind, "uri": uri })
        }
        MediaSource::Base64(data) => {
            json!({ "type": "blob", "modality": modality, "mime_type": kind, "content": data })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Role, ToolCallPart, ToolResultPart};

    #[test]
    fn parts_have_the_forms_of_the_convention() {
        let media = |source| Media { media_type: "image/png".into(), source, name: None };
        let parts = vec![
            Part::text("hi"),
            Part::Reasoning { text: "hm".into(), signature: Some("s".into()) },
            Part::ToolCall(ToolCallPart {
                id: "1".into(),
                name: "t".into(),
                arguments: json!({ "a": 1 }),
            }),
            Part::ToolResult(ToolResultPart {
                id: "1".into(),
                name: "t".into(),
                content: "done".into(),
                is_error: false,
            }),
            Part::Image(media(MediaSource::Url("https://a/b.png".into()))),
            Part::File(media(MediaSource::Base64("AA==".into()))),
        ];
        let at = "2026-11-30T12:00:00Z".parse().unwrap();
        let message = Message { seq: 4, role: Role::User, parts, at };
        assert_eq!(
            input(&[message]),
            json!([{ "role": "user", "parts": [
                { "type": "text", "content": "hi" },
                { "type": "reasoning", "content": "hm" },
                { "type": "tool_call", "id": "1", "name": "t", "arguments": { "a": 1 } },
                { "type": "tool_call_response", "id": "1", "response": "done" },
                { "type": "uri", "modality": "image", "mime_type": "image/png", "uri": "https://a/b.png" },
                { "type": "blob", "modality": "document", "mime_type": "image/png", "content": "AA==" },
            ] }])
        );
    }
}
