use crate::json::encoded_len;
use crate::message::{Message, Part};

/// How many bytes of text make a token: the rule of thumb that OpenAI and Google give for
/// English, in characters. Other scripts have more bytes to a character and more tokens.
pub const BYTES_PER_TOKEN: usize = 4;

/// What a message costs beside its content: its role and its limits. OpenAI's cookbook counts
/// 3 for its current models and 4 for an older one.
pub const MESSAGE_TOKENS: usize = 4;

/// What an image costs, whatever its size: what Anthropic counts for the largest one that it
/// does not scale down. OpenAI and Google count less.
pub const IMAGE_TOKENS: usize = 1_600;

/// What a file costs: a page of a PDF, with its text and its picture, as Anthropic counts it.
/// How many pages a file has is not known here.
pub const FILE_TOKENS: usize = 3_000;

/// How many tokens a message has, more or less: [`BYTES_PER_TOKEN`] for its texts, calls and
/// results, and [`MESSAGE_TOKENS`] for itself. Each provider counts in its own way, so leave
/// room.
///
/// ```
/// use flow_core::memory::estimate_tokens;
/// use flow_core::message::{Message, Role};
/// use flow_core::time::Timestamp;
///
/// let message = Message::text(0, Role::User, "Two nights in Lisbon", Timestamp::now());
/// assert_eq!(estimate_tokens(&message), 4 + 5);
/// ```
pub fn estimate_tokens(message: &Message) -> usize {
    let mut bytes = 0;
    let mut tokens = MESSAGE_TOKENS;
    for part in &message.parts {
        match part {
            Part::Text { text } => bytes += text.len(),
            Part::Image(_) => tokens += IMAGE_TOKENS,
            Part::File(_) => tokens += FILE_TOKENS,
            Part::ToolCall(call) => {
                let arguments = usize::try_from(encoded_len(&call.arguments));
                bytes += call.id.len() + call.name.len() + arguments.unwrap_or(usize::MAX / 2);
            }
            Part::ToolResult(result) => bytes += result.id.len() + result.content.len(),
            Part::Reasoning { text, signature } => {
                bytes += text.len() + signature.as_ref().map_or(0, String::len);
            }
        }
    }
    tokens + text_tokens(bytes)
}

/// How many tokens so many bytes of text have.
pub(super) fn text_tokens(bytes: usize) -> usize {
    bytes.div_ceil(BYTES_PER_TOKEN)
}
