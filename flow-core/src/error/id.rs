/// An id or a persisted name that cannot be used.
///
/// Nothing has been read or written when this is returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {kind} {shown}: {reason}")]
pub struct IdError {
    /// What the text was meant to be: `session id`, `flow id`, `step name`, ...
    pub kind: &'static str,
    /// The text, escaped and cut to 64 characters, so that it is safe to print.
    pub shown: String,
    /// Why it was refused.
    pub reason: &'static str,
}
