use std::error::Error as StdError;
use std::fmt;

/// The result of code that users write: steps, tools and hooks.
pub type Result<T, E = StepError> = std::result::Result<T, E>;

/// The error of code that users write: steps, tools and hooks.
///
/// `?` turns every [`std::error::Error`] into it. For that reason it does not implement
/// `Error` itself; its source does. An error is retryable unless it is made with
/// [`terminal`](Self::terminal): the turn fails, the session stays at its last commit,
/// and the caller is told whether sending the turn again can help.
///
/// ```
/// use flow_core::StepError;
///
/// fn parse(text: &str) -> flow_core::Result<u8> {
///     let number: u8 = text.parse()?;
///     if number == 0 {
///         return Err(StepError::terminal("zero rooms cannot be booked"));
///     }
///     Ok(number)
/// }
/// assert!(parse("x").unwrap_err().retryable());
/// assert!(!parse("0").unwrap_err().retryable());
/// ```
pub struct StepError {
    message: String,
    retryable: bool,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl StepError {
    /// An error that may go away when the turn is sent again.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), retryable: true, source: None }
    }

    /// An error that will come back however often the turn is sent again.
    pub fn terminal(message: impl Into<String>) -> Self {
        Self { message: message.into(), retryable: false, source: None }
    }

    /// Marks the error as one that trying again cannot cure.
    #[must_use]
    pub fn into_terminal(mut self) -> Self {
        self.retryable = false;
        self
    }

    /// Whether trying again may help.
    pub fn retryable(&self) -> bool {
        self.retryable
    }

    /// The error that was turned into this one by `?`, if any.
    pub fn source(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.source.as_deref()
    }

    /// The source as a concrete type.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.source.as_deref().and_then(|source| source.downcast_ref())
    }

    /// The source as a concrete type, or the error itself when it has another source.
    pub(crate) fn into_source<E: StdError + 'static>(mut self) -> std::result::Result<E, Self> {
        match self.source.take().map(|source| source.downcast::<E>()) {
            Some(Ok(source)) => Ok(*source),
            Some(Err(source)) => Err(Self { source: Some(source), ..self }),
            None => Err(self),
        }
    }

    /// The code of the error of this crate that is the source, else `step-failed`.
    pub fn code(&self) -> &str {
        self.downcast_ref::<super::Error>().map_or("step-failed", super::Error::code)
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for StepError {
    fn from(error: E) -> Self {
        let error: Box<dyn StdError + Send + Sync> = Box::new(error);
        let retryable = error.downcast_ref::<super::Error>().is_none_or(super::Error::retryable);
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            let text = inner.to_string();
            if !message.contains(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            cause = inner.source();
        }
        Self { message, retryable, source: Some(error) }
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepError")
            .field("message", &self.message)
            .field("retryable", &self.retryable)
            .field("source", &self.source)
            .finish()
    }
}
