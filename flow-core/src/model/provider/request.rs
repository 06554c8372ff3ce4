use std::collections::BTreeSet;

use genai::chat::{
    Binary, BinarySource, ChatMessage, ChatOptions, ChatRequest as GenaiRequest, ChatRole,
    ContentPart, CustomPart, JsonSpec, MessageContent, ReasoningEffort, Tool, ToolCall,
    ToolChoice as GenaiChoice, ToolResponse,
};
use serde_json::{Map, Value, json};

use super::service::Dialect;
use super::{ChatRequest, ModelError, Target, schema};
use crate::message::{Media, MediaSource, Message, Part, Role, ToolCallPart, ToolResultPart};
use crate::model::{OutputSchema, Sampling, ToolChoice};

/// Stands for the user's first words where there are none.
const OPENING: &str = "(The conversation begins here.)";

/// Stands for the user's words where they have not answered.
const SILENCE: &str = "(The user has said nothing since.)";

/// Makes the provider crate's request and options.
pub(super) fn to_genai(
    target: &Target,
    request: &ChatRequest,
) -> Result<(GenaiRequest, ChatOptions), ModelError> {
    let mut messages = Vec::with_capacity(request.messages.len());
    for message in &request.messages {
        target.push_message(message, &mut messages)?;
    }
    if messages.first().is_none_or(|first| first.role != ChatRole::User) {
        messages.insert(0, ChatMessage::user(OPENING));
    }
    if messages.last().is_some_and(|last| last.role == ChatRole::Assistant) {
        messages.push(ChatMessage::user(SILENCE));
    }
    let mut sent = GenaiRequest::new(messages);
    sent.system = request.system.clone().filter(|prompt| !prompt.trim().is_empty());

    target.check_sampling(&request.sampling)?;
    let mut options = target.sampling(&request.sampling);
    if target.is(Dialect::Responses) && !request.stop.is_empty() {
        return Err(target.unsupported("texts to stop at; `openai` takes them"));
    }
    options.stop_sequences.clone_from(&request.stop);
    let hidden = request.tool_choice == ToolChoice::None && !target.service.tool_choice;
    if !request.tools.is_empty() && !hidden {
        let tools = request.tools.iter().map(|tool| {
            Tool::new(tool.name.as_str())
                .with_description(tool.description.as_str())
                .with_schema(tool.parameters.clone())
        });
        sent = sent.with_tools(tools);
        options.tool_choice = match &request.tool_choice {
            ToolChoice::Auto => None,
            ToolChoice::None => Some(GenaiChoice::None),
            ToolChoice::Required => Some(GenaiChoice::Required),
            // llama.cpp drops a choice by name. Of one tool, to require any is the same.
            ToolChoice::Tool(_)
                if target.service.name == "openai-compatible" && request.tools.len() == 1 =>
            {
                Some(GenaiChoice::Required)
            }
            ToolChoice::Tool(name) => Some(GenaiChoice::tool(name)),
        };
    } else if target.is(Dialect::Anthropic) {
        let past = called(&request.messages);
        if !past.is_empty() {
            let schema = json!({ "type": "object" });
            sent = sent.with_tools(past.into_iter().map(|name| {
                Tool::new(name).with_description("Not available.").with_schema(schema.clone())
            }));
            options.tool_choice = Some(GenaiChoice::None);
        }
    }
    if let Some(output) = &request.output {
        target.set_output(output, &mut options);
    }
    Ok((sent, options))
}

/// The tools that were called in a conversation.
fn called(messages: &[Message]) -> BTreeSet<&str> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let names = parts.filter_map(|part| match part {
        Part::ToolCall(call) => Some(call.name.as_str()),
        _ => None,
    });
    names.collect()
}

impl Target {
    pub(super) fn is(&self, dialect: Dialect) -> bool {
        self.service.dialect == dialect
    }

    fn unsupported(&self, reason: impl Into<String>) -> ModelError {
        ModelError::Unsupported { model: self.model.clone(), reason: reason.into() }
    }

    /// The options for parameters that were checked.
    fn sampling(&self, sampling: &Sampling) -> ChatOptions {
        let mut options = ChatOptions::default()
            .with_capture_usage(true)
            .with_capture_content(true)
            .with_capture_tool_calls(true);
        options.temperature = sampling.temperature;
        options.top_p = sampling.top_p;
        options.max_tokens = sampling.max_output_tokens;
        options.seed = sampling.seed;
        let mut extra = sampling.extra.clone();
        if let Some(effort) = sampling.reasoning_effort.as_deref() {
            let budget = effort.parse().ok().filter(|_| self.service.takes.budget);
            options.reasoning_effort = ReasoningEffort::from_keyword(effort)
                .or_else(|| budget.map(ReasoningEffort::Budget));
            if options.reasoning_effort.is_none() {
                // A provider's own word.
                extra.insert("reasoning_effort".to_owned(), json!(effort));
            }
        }
        // With Gemini and OpenAI's responses this asks for summaries, which a model that
        // does not reason refuses.
        let asks = self.is(Dialect::Gemini) || self.is(Dialect::Responses);
        options.capture_reasoning_content = Some(!asks || sampling.reasoning_effort.is_some());
        // The crate takes the end of a name like `qwen3-max` for an effort and cuts it off,
        // unless there is an effort. A budget is one that OpenAI's dialects do not send.
        let openai = self.is(Dialect::Chat) || self.is(Dialect::Responses);
        if openai
            && options.reasoning_effort.is_none()
            && ReasoningEffort::from_model_name(&self.name).0.is_some()
        {
            options.reasoning_effort = Some(ReasoningEffort::Budget(0));
        }
        options.extra_body = (!extra.is_empty()).then_some(Value::Object(extra));
        options
    }

    fn set_output(&self, output: &OutputSchema, options: &mut ChatOptions) {
        let schema = schema::for_output(output.schema.clone().to_value(), self.service.dialect);
        options.response_format = Some(JsonSpec::new(&output.name, schema).into());
    }

    fn push_message(
        &self,
        message: &Message,
        messages: &mut Vec<ChatMessage>,
    ) -> Result<(), ModelError> {
        let mut parts = Vec::with_capacity(message.parts.len());
        for part in &message.parts {
            match (message.role, part) {
                (Role::User | Role::Assistant, Part::Text { text }) if !text.trim().is_empty() => {
                    parts.push(ContentPart::Text(text.clone()));
                }
                (Role::User, Part::Image(media) | Part::File(media)) => {
                    let image = matches!(part, Part::Image(_));
                    parts.push(self.media(media, image)?);
                }
                (Role::Assistant, Part::Reasoning { text, signature }) => {
                    self.push_reasoning(text, signature.as_deref(), &mut parts);
                }
                (Role::Assistant, Part::ToolCall(call)) => {
                    parts.push(ContentPart::ToolCall(self.call(call)));
                }
                (Role::Tool, Part::ToolResult(result)) => parts.push(self.result(result)),
                _ => {}
            }
        }
        let content = |parts: Vec<ContentPart>| MessageContent::from_parts(parts);
        match message.role {
            _ if parts.is_empty() => {}
            Role::User => messages.push(ChatMessage::user(content(parts))),
            Role::Assistant => messages.push(ChatMessage::assistant(content(parts))),
            Role::Tool => messages.push(ChatMessage::tool(content(parts))),
        }
        Ok(())
    }

    fn media(&self, media: &Media, image: bool) -> Result<ContentPart, ModelError> {
        let by_url = matches!(media.source, MediaSource::Url(_));
        match self.service.dialect {
            Dialect::Anthropic if image && let MediaSource::Url(url) = &media.source => {
                return Ok(custom(
                    json!({ "type": "image", "source": { "type": "url", "url": url } }),
                ));
            }
            Dialect::Chat if by_url && !image => {
                return Err(self.unsupported("a file by URL; send its bytes in Base64"));
            }
            _ => {}
        }
        let kind = media.media_type.trim().to_ascii_lowercase();
        if image != kind.starts_with("image/") {
            let wanted = if image { "`image/..`" } else { "that of a file" };
            return Err(self.unsupported(format!("the media type `{kind}` is not {wanted}")));
        }
        let source = match &media.source {
            MediaSource::Url(url) => BinarySource::Url(url.clone()),
            MediaSource::Base64(data) => BinarySource::Base64(data.as_str().into()),
        };
        Ok(ContentPart::Binary(Binary::new(kind, source, media.name.clone())))
    }

    /// Reasoning goes back only to where it came from; see [`sign`](Self::sign).
    fn push_reasoning(&self, text: &str, signature: Option<&str>, parts: &mut Vec<ContentPart>) {
        let own = signature
            .and_then(|signature| signature.split_once(':'))
            .filter(|(provider, _)| *provider == self.service.name)
            .map(|(_, signature)| signature);
        match own {
            Some(signature) => match serde_json::from_str::<Map<String, Value>>(signature) {
                Ok(block) => parts.push(custom(Value::Object(block))),
                Err(_) => {
                    parts.push(ContentPart::ThoughtSignature(signature.to_owned()));
                    // Anthropic wants a text to each signature, be it empty.
                    if self.is(Dialect::Anthropic) || !text.is_empty() {
                        parts.push(ContentPart::ReasoningContent(text.to_owned()));
                    }
                }
            },
            None if signature.is_none() && self.service.takes_reasoning => {
                parts.push(ContentPart::ReasoningContent(text.to_owned()));
            }
            None => {}
        }
    }

    /// A provider's signature, marked as the provider's own.
    pub(super) fn sign(&self, signature: &str) -> String {
        format!("{}:{signature}", self.service.name)
    }

    fn call(&self, call: &ToolCallPart) -> ToolCall {
        let fn_arguments = match &call.arguments {
            Value::Object(_) => call.arguments.clone(),
            Value::Null => json!({}),
            other => json!({ "arguments": other }),
        };
        ToolCall {
            call_id: self.call_id(&call.id),
            fn_name: call.name.clone(),
            fn_arguments,
            thought_signatures: None,
        }
    }

    fn result(&self, result: &ToolResultPart) -> ContentPart {
        let id = self.call_id(&result.id);
        if result.is_error && self.is(Dialect::Anthropic) {
            return custom(json!({
                "type": "tool_result",
                "tool_use_id": id,
                "content": result.content,
                "is_error": true,
            }));
        }
        ToolResponse::new(id, &result.content).with_fn_name(&result.name).into()
    }

    /// Anthropic takes only letters, digits, `_` and `-` in the ids of calls, also of those
    /// that another provider has made. Other letters become their number, so that two ids do
    /// not become one.
    fn call_id(&self, id: &str) -> String {
        if !self.is(Dialect::Anthropic) {
            return id.to_owned();
        }
        let mut taken = String::with_capacity(id.len());
        for c in id.chars() {
            if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
                taken.push(c);
            } else {
                taken.push_str(&format!("_{:x}_", u32::from(c)));
            }
        }
        taken
    }
}

fn custom(data: Value) -> ContentPart {
    ContentPart::Custom(CustomPart { model_iden: None, data })
}
