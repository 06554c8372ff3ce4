use genai::chat::{
    Binary, BinarySource, ChatResponse as GenaiResponse, ContentPart, MessageContent, StopReason,
    ToolCall, Usage,
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::service::Dialect;
use super::{ChatResponse, ModelError, Target};
use crate::message::{Media, MediaSource, Part, ToolCallPart};
use crate::model::{FinishReason, TokenUsage};

/// Makes our response of the provider crate's, and of the body that it read.
pub(super) fn from_genai(
    target: &Target,
    result: genai::Result<GenaiResponse>,
) -> Result<ChatResponse, ModelError> {
    match result {
        Ok(response) => {
            let body = response.captured_raw_body.unwrap_or_default();
            let usage = read_usage(&response.usage);
            if target.is(Dialect::Chat) {
                return target.chat_body(&body, usage);
            }
            if body.get("error").is_some_and(|error| !error.is_null()) {
                return Err(target.told(&body));
            }
            let told = Told::from_body(&body);
            let reply = Reply {
                parts: target.parts(response.content, response.reasoning_content),
                stop: response.stop_reason,
                usage,
            };
            target.response(reply, told)
        }
        // The crate gives up on arguments that are not JSON.
        Err(genai::Error::ChatResponseGeneration { response_body, .. })
            if target.is(Dialect::Chat) && response_body.get("choices").is_some() =>
        {
            let usage = response_body.get("usage").cloned().unwrap_or_default();
            let usage = serde_json::from_value(usage).unwrap_or_default();
            target.chat_body(&response_body, read_usage(&usage))
        }
        Err(genai::Error::ChatResponseGeneration { response_body, .. })
            if response_body.pointer("/promptFeedback/blockReason").is_some() =>
        {
            Err(target.refused(Told::from_body(&response_body).refusal))
        }
        Err(error) => Err(target.error(error)),
    }
}

/// What an answer holds.
pub(super) struct Reply {
    pub(super) parts: Vec<Part>,
    pub(super) stop: Option<StopReason>,
    pub(super) usage: TokenUsage,
}

/// What the provider tells and its crate leaves out.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) id: Option<String>,
    model: Option<String>,
    refusal: String,
    /// Tokens of reasoning, of Anthropic's streams.
    reasoning: Option<u64>,
}

impl Told {
    fn from_body(body: &Value) -> Self {
        let mut told = Self::default();
        told.add(body);
        told
    }

    pub(super) fn refusal(&self) -> Option<&str> {
        Some(self.refusal.as_str()).filter(|reason| !reason.is_empty())
    }

    /// Adds what a body, or an event of a stream, tells.
    pub(super) fn add(&mut self, value: &Value) {
        let response = value.get("message").or_else(|| value.get("response")).unwrap_or(value);
        let text = |name: &str| response.get(name).and_then(Value::as_str).map(str::to_owned);
        if self.id.is_none() {
            self.id = text("id").or_else(|| text("responseId"));
            self.model = text("model").or_else(|| text("modelVersion"));
        }
        let delta = (value.get("type").and_then(Value::as_str) == Some("response.refusal.delta"))
            .then(|| value.get("delta"))
            .flatten();
        let refusals = [
            value.pointer("/choices/0/message/refusal"),
            value.pointer("/choices/0/delta/refusal"),
            value.pointer("/promptFeedback/blockReason"),
            delta,
        ];
        for refusal in refusals.into_iter().flatten().filter_map(Value::as_str) {
            self.refusal.push_str(refusal);
        }
        // A whole response, which at the end of a stream repeats the deltas.
        if self.refusal.is_empty() {
            let output = response.get("output").and_then(Value::as_array).into_iter().flatten();
            let content = output.filter_map(|item| item.get("content")?.as_array()).flatten();
            self.refusal.extend(content.filter_map(|part| part.get("refusal")?.as_str()));
        }
        let filtered = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
        if filtered == Some("content_filter") && self.refusal.is_empty() {
            "content_filter".clone_into(&mut self.refusal);
        }
        if let Some(tokens) = value.pointer("/usage/output_tokens_details/thinking_tokens") {
            self.reasoning = tokens.as_u64().or(self.reasoning);
        }
    }
}

impl Target {
    /// The whole response, unless it is a refusal.
    pub(super) fn response(&self, reply: Reply, told: Told) -> Result<ChatResponse, ModelError> {
        let Reply { parts, stop, mut usage } = reply;
        if let Some(reason) = told.refusal() {
            return Err(self.refused(reason));
        }
        if let Some(StopReason::ContentFilter(reason)) = &stop {
            return Err(self.refused(reason));
        }
        let mut response = ChatResponse::new(parts);
        if response.tool_calls().next().is_none() {
            response.finish = match stop {
                Some(StopReason::MaxTokens(_)) => FinishReason::Length,
                Some(StopReason::Other(_)) => FinishReason::Other,
                _ => FinishReason::Stop,
            };
        }
        usage.reasoning = told.reasoning.unwrap_or(usage.reasoning);
        response.usage = usage;
        let metadata = [("id", told.id), ("model", told.model)];
        response.metadata = metadata
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), json!(value?))))
            .collect();
        Ok(response)
    }

    /// Reads the body of a chat completion. The provider crate trims its text and fails on
    /// broken arguments.
    fn chat_body(&self, body: &Value, usage: TokenUsage) -> Result<ChatResponse, ModelError> {
        let Some(choice) = body.pointer("/choices/0") else {
            return Err(match body.get("error") {
                Some(error) if !error.is_null() => self.told(body),
                _ => self.malformed("it has no `choices`"),
            });
        };
        let message = &choice["message"];
        let mut parts = Vec::new();
        let details = message.get("reasoning_details").and_then(Value::as_array);
        parts.extend(details.into_iter().flatten().filter_map(|detail| self.block(detail)));
        let reasoning = ["reasoning", "reasoning_content"];
        let reasoning = reasoning.iter().find_map(|name| message.get(name)?.as_str());
        if let (true, Some(text)) = (parts.is_empty(), reasoning)
            && !text.is_empty()
        {
            parts.push(Part::Reasoning { text: text.to_owned(), signature: None });
        }
        let text = match &message["content"] {
            Value::String(text) => text.clone(),
            Value::Array(content) => {
                content.iter().filter_map(|part| part.get("text")?.as_str()).collect()
            }
            _ => String::new(),
        };
        if !text.is_empty() {
            parts.push(Part::text(text));
        }
        for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let function = &call["function"];
            let Some(name) = function["name"].as_str() else {
                return Err(self.malformed("it has a tool call without a name"));
            };
            let id = call.get("id").and_then(Value::as_str).unwrap_or_default();
            parts.push(Part::ToolCall(ToolCallPart {
                id: own_id(id, name),
                name: name.to_owned(),
                arguments: read_arguments(function["arguments"].clone()),
            }));
        }
        let stop = choice.get("finish_reason").and_then(Value::as_str);
        let stop = stop.map(|stop| StopReason::from(stop.to_owned()));
        self.response(Reply { parts, stop, usage }, Told::from_body(body))
    }

    /// The parts of an answer that the provider crate has read.
    pub(super) fn parts(&self, content: MessageContent, reasoning: Option<String>) -> Vec<Part> {
        let mut reading = Reading { target: self, parts: Vec::new(), signature: None };
        // Gemini's streams tell the signatures of calls ahead of all other parts.
        let of_calls: Vec<String> = match self.service.dialect {
            Dialect::Gemini => content
                .tool_calls()
                .iter()
                .flat_map(|call| call.thought_signatures.iter().flatten().cloned())
                .collect(),
            _ => Vec::new(),
        };
        for part in content {
            match part {
                ContentPart::ThoughtSignature(signature) if of_calls.contains(&signature) => {}
                ContentPart::ThoughtSignature(signature) => {
                    reading.finish_reasoning(String::new());
                    reading.signature = Some(signature);
                }
                ContentPart::ReasoningContent(text) => reading.finish_reasoning(text),
                part => {
                    reading.finish_reasoning(String::new());
                    reading.add(part);
                }
            }
        }
        reading.finish_reasoning(String::new());
        let mut parts = reading.parts;
        let Some(reasoning) = reasoning.filter(|text| !text.is_empty()) else { return parts };
        let told = |part: &Part| matches!(part, Part::Reasoning { text, .. } if !text.is_empty());
        if parts.iter().any(told) {
            return parts;
        }
        match parts.first_mut() {
            Some(Part::Reasoning { text, .. }) if self.is(Dialect::Responses) => *text = reasoning,
            _ => parts.insert(0, Part::Reasoning { text: reasoning, signature: None }),
        }
        parts
    }

    /// A provider's own block of reasoning, which has to go back as it came.
    fn block(&self, data: &Value) -> Option<Part> {
        let kind = data.get("type").and_then(Value::as_str)?;
        let ours = kind == "redacted_thinking" || kind.starts_with("reasoning.");
        let text = data.get("text").or_else(|| data.get("summary")).and_then(Value::as_str);
        ours.then(|| Part::Reasoning {
            text: text.unwrap_or_default().to_owned(),
            signature: Some(self.sign(&data.to_string())),
        })
    }
}

struct Reading<'a> {
    target: &'a Target,
    parts: Vec<Part>,
    /// A signature whose text may follow.
    signature: Option<String>,
}

impl Reading<'_> {
    fn finish_reasoning(&mut self, text: String) {
        let signature = self.signature.take().map(|signature| self.target.sign(&signature));
        if signature.is_some() || !text.is_empty() {
            self.parts.push(Part::Reasoning { text, signature });
        }
    }

    fn add(&mut self, part: ContentPart) {
        match part {
            ContentPart::Text(text) if !text.is_empty() => self.parts.push(Part::Text { text }),
            ContentPart::ToolCall(call) => {
                let signatures = match self.target.service.dialect {
                    Dialect::Gemini => call.thought_signatures.clone().unwrap_or_default(),
                    _ => Vec::new(),
                };
                self.parts.extend(signatures.iter().map(|signature| Part::Reasoning {
                    text: String::new(),
                    signature: Some(self.target.sign(signature)),
                }));
                self.parts.push(Part::ToolCall(read_call(call)));
            }
            ContentPart::Binary(binary) => self.parts.push(read_media(binary)),
            ContentPart::Custom(custom) => self.parts.extend(self.target.block(&custom.data)),
            _ => {}
        }
    }
}

fn read_call(call: ToolCall) -> ToolCallPart {
    ToolCallPart {
        id: own_id(&call.call_id, &call.fn_name),
        name: call.fn_name,
        arguments: read_arguments(call.fn_arguments),
    }
}

/// The id of a call. Where the provider gives none, its crate counts from zero in each answer
/// (`call_0`, Gemini's `call#name#0`), which is not unique.
pub(super) fn own_id(id: &str, name: &str) -> String {
    let counted = |n: &str| n.len() < 4 && n.parse::<u16>().is_ok();
    match (id.strip_prefix("call#"), id.strip_prefix("call_")) {
        // The form by which the crate knows that Gemini has not given it.
        (Some(rest), _) if rest.rsplit_once('#').is_some_and(|(_, n)| counted(n)) => {
            format!("call#{name}#{}", Uuid::now_v7().as_u64_pair().1)
        }
        (_, Some(n)) if counted(n) => format!("call_{}", Uuid::now_v7().simple()),
        _ if id.is_empty() => format!("call_{}", Uuid::now_v7().simple()),
        _ => id.to_owned(),
    }
}

/// Arguments that are text are JSON, or stay text.
fn read_arguments(arguments: Value) -> Value {
    match arguments {
        Value::Null => json!({}),
        Value::String(text) if text.trim().is_empty() => json!({}),
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        other => other,
    }
}

fn read_media(binary: Binary) -> Part {
    let image = binary.is_image();
    let source = match binary.source {
        BinarySource::Url(url) => MediaSource::Url(url),
        BinarySource::Base64(data) => MediaSource::Base64(data.to_string()),
    };
    let media = Media { media_type: binary.content_type, source, name: binary.name };
    if image { Part::Image(media) } else { Part::File(media) }
}

pub(super) fn read_usage(usage: &Usage) -> TokenUsage {
    let count = |tokens: Option<i32>| u64::try_from(tokens.unwrap_or(0)).unwrap_or(0);
    let cached = usage.prompt_tokens_details.as_ref().and_then(|d| d.cached_tokens);
    let reasoning = usage.completion_tokens_details.as_ref().and_then(|d| d.reasoning_tokens);
    TokenUsage {
        input: count(usage.prompt_tokens),
        output: count(usage.completion_tokens),
        cached: count(cached),
        reasoning: count(reasoning),
    }
}
