use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{StreamExt as _, stream};
use genai::Client;
use genai::chat::{
    ChatOptions, ChatRequest as GenaiRequest, ChatStream, ChatStreamEvent, StreamEnd,
};

use super::reply::{Reply, Told, own_id, read_usage};
use super::service::Dialect;
use super::{ChatResponse, ModelError, ModelStream, Target, quiet};
use crate::message::{Part, ToolCallPart};
use crate::model::{ModelEvent, TokenUsage};

/// Among how many events the one with the id of the response is.
const FIRST: u32 = 3;

/// Opens a stream. What fails before the first piece of the answer fails here.
pub(super) async fn open(
    client: &Client,
    target: Target,
    request: GenaiRequest,
    options: ChatOptions,
) -> Result<ModelStream, ModelError> {
    let told: Arc<Mutex<Told>> = Arc::default();
    let frames = told.clone();
    let options = options.with_raw_frame_fn(move |_, frame| {
        let mut told = frames.lock().unwrap_or_else(PoisonError::into_inner);
        let mentions = ["refusal", "incomplete_details", "blockReason", "output_tokens_details"];
        if (told.id.is_none() && frame.index < FIRST
            || mentions.iter().any(|word| frame.data.contains(word)))
            && let Some(value) = frame.json()
        {
            told.add(&value);
        }
    });
    let result = client.exec_chat_stream(target.for_request(), request, Some(&options));
    let result = quiet(result).await;
    let pieces = result.map_err(|error| target.error(error))?.stream;
    let mut answer =
        Answer { target, pieces, told, calls: Vec::new(), ready: VecDeque::new(), done: false };
    match answer.next().await {
        Some(Err(error)) => Err(error),
        Some(Ok(first)) => {
            answer.ready.push_front(first);
            let events = stream::unfold(answer, |mut answer| async move {
                answer.next().await.map(|event| (event, answer))
            });
            Ok(events.boxed())
        }
        None => Err(answer.broken()),
    }
}

struct Answer {
    target: Target,
    pieces: ChatStream,
    told: Arc<Mutex<Told>>,
    calls: Vec<Call>,
    ready: VecDeque<ModelEvent>,
    done: bool,
}

/// A call that has begun.
struct Call {
    /// The id as the provider crate has it.
    given: String,
    id: String,
    matched: bool,
}

impl Answer {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.done {
                return None;
            }
            let result = match quiet(self.pieces.next()).await {
                Some(Ok(piece)) => self.read(piece),
                Some(Err(error)) => Err(self.failed(error)),
                None => Err(self.broken()),
            };
            if let Err(error) = result {
                self.done = true;
                return Some(Err(error));
            }
        }
    }

    fn read(&mut self, piece: ChatStreamEvent) -> Result<(), ModelError> {
        match piece {
            ChatStreamEvent::Chunk(text) if !text.content.is_empty() => {
                self.ready.push_back(ModelEvent::TextDelta(text.content));
            }
            ChatStreamEvent::ReasoningChunk(text) if !text.content.is_empty() => {
                self.ready.push_back(ModelEvent::ReasoningDelta(text.content));
            }
            ChatStreamEvent::ToolCallChunk(chunk) => {
                let call = chunk.tool_call;
                self.begin(call.call_id, call.fn_name);
            }
            ChatStreamEvent::End(end) => {
                self.done = true;
                let response = self.whole(end)?;
                self.ready.push_back(ModelEvent::Done(Box::new(response)));
            }
            _ => {}
        }
        Ok(())
    }

    /// Begins a call, with the first of its chunks.
    fn begin(&mut self, given: String, name: String) {
        // Gemini sends whole calls, and their ids repeat.
        let whole = self.target.is(Dialect::Gemini);
        let known = !whole && self.calls.iter().any(|call| call.given == given);
        if known || name.is_empty() {
            return;
        }
        let id = own_id(&given, &name);
        self.ready.push_back(ModelEvent::ToolCallStart { id: id.clone(), name });
        self.calls.push(Call { given, id, matched: false });
    }

    fn whole(&mut self, mut end: StreamEnd) -> Result<ChatResponse, ModelError> {
        // The crate ends Gemini's streams also when the connection does.
        if self.target.is(Dialect::Gemini) && end.captured_stop_reason.is_none() {
            return Err(self.broken());
        }
        let told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        let mut content = end.captured_content.take().unwrap_or_default();
        for part in content.iter_mut() {
            if let genai::chat::ContentPart::ToolCall(call) = part {
                let begun = self.calls.iter_mut().find(|c| !c.matched && c.given == call.call_id);
                if let Some(begun) = begun {
                    begun.matched = true;
                    call.call_id.clone_from(&begun.id);
                }
            }
        }
        let mut parts = self.target.parts(content, end.captured_reasoning_content.take());
        // A gap in the numbers of calls makes the crate repeat one.
        parts.dedup_by(|a, b| matches!(a, Part::ToolCall(_)) && a == b);
        for part in &parts {
            if let Part::ToolCall(ToolCallPart { id, name, .. }) = part
                && !self.calls.iter().any(|call| call.id == *id)
            {
                let (id, name) = (id.clone(), name.clone());
                self.ready.push_back(ModelEvent::ToolCallStart { id, name });
            }
        }
        let usage = end.captured_usage.as_ref().map_or_else(TokenUsage::default, read_usage);
        let stop = end.captured_stop_reason.take();
        self.target.response(Reply { parts, stop, usage }, told)
    }

    /// What the crate cannot read may be a refusal, of which a frame has told.
    fn failed(&self, error: genai::Error) -> ModelError {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match told.refusal() {
            Some(reason) => self.target.refused(reason),
            None => self.target.error(error),
        }
    }

    fn broken(&self) -> ModelError {
        self.target.connection("the stream ended before the answer did")
    }
}
