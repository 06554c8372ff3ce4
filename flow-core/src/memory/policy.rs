use crate::model::ModelConfig;

/// How much of a conversation stays in the document, and how much of it a model is shown.
///
/// ```
/// use flow_core::memory::{MemoryPolicy, SummaryPolicy};
///
/// let policy = MemoryPolicy::default()
///     .shown_tokens(6_000) // a small local model
///     .summary(SummaryPolicy::default().min_messages(30).keep_recent(8));
/// assert_eq!(policy.window, 64);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MemoryPolicy {
    /// How many messages of each namespace stay in the document. A tool call and its results
    /// stay together, so it may be a few more. Default: 64.
    pub window: usize,
    /// How many messages beyond the window make a batch that moves to the archive.
    /// Default: 32.
    pub batch: usize,
    /// The most messages of a namespace that a model is shown, of those in the document.
    /// Default: 64.
    pub shown_messages: usize,
    /// The most tokens of a namespace that a model is shown, as
    /// [`estimate_tokens`](super::estimate_tokens) counts them. The system prompt, the tools,
    /// the answer and what tools return on the way to it come on top. Default: 32,000, a quarter of what hosted models take.
    pub shown_tokens: usize,
    /// When the oldest messages are summarised. Default: never, since it costs calls of a
    /// model.
    pub summary: Option<SummaryPolicy>,
}

impl MemoryPolicy {
    /// Sets [`window`](Self::window).
    #[must_use]
    pub fn window(mut self, messages: usize) -> Self {
        self.window = messages;
        self
    }

    /// Sets [`batch`](Self::batch); at least 1.
    #[must_use]
    pub fn batch(mut self, messages: usize) -> Self {
        self.batch = messages.max(1);
        self
    }

    /// Sets [`shown_messages`](Self::shown_messages).
    #[must_use]
    pub fn shown_messages(mut self, messages: usize) -> Self {
        self.shown_messages = messages;
        self
    }

    /// Sets [`shown_tokens`](Self::shown_tokens).
    #[must_use]
    pub fn shown_tokens(mut self, tokens: usize) -> Self {
        self.shown_tokens = tokens;
        self
    }

    /// Sets [`summary`](Self::summary).
    #[must_use]
    pub fn summary(mut self, policy: SummaryPolicy) -> Self {
        self.summary = Some(policy);
        self
    }
}

impl Default for MemoryPolicy {
    fn default() -> Self {
        Self { window: 64, batch: 32, shown_messages: 64, shown_tokens: 32_000, summary: None }
    }
}

/// When the oldest messages of a namespace are summarised, and by which model.
///
/// They stay in the document and its archive; a model is shown the summary in their place.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SummaryPolicy {
    /// How many messages that are in no summary yet are enough to make one. A value above
    /// [`MemoryPolicy::window`] counts as the window, since what has left the document can
    /// not be summarised any more. Default: 40.
    pub min_messages: usize,
    /// How many of the latest messages are left out of it and shown as they are; fewer than
    /// `min_messages`. The latest message of the user always is, and a tool call stays with
    /// its results, so it may be more. Default: 10.
    pub keep_recent: usize,
    /// The model that writes it. Default: the one that speaks for the step.
    pub model: Option<ModelConfig>,
}

impl SummaryPolicy {
    /// Sets [`min_messages`](Self::min_messages).
    #[must_use]
    pub fn min_messages(mut self, messages: usize) -> Self {
        self.min_messages = messages;
        self
    }

    /// Sets [`keep_recent`](Self::keep_recent).
    #[must_use]
    pub fn keep_recent(mut self, messages: usize) -> Self {
        self.keep_recent = messages;
        self
    }

    /// Sets [`model`](Self::model).
    #[must_use]
    pub fn model(mut self, model: impl Into<ModelConfig>) -> Self {
        self.model = Some(model.into());
        self
    }
}

impl Default for SummaryPolicy {
    fn default() -> Self {
        Self { min_messages: 40, keep_recent: 10, model: None }
    }
}
