//! Points in time and the clock that the engine reads.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A point in time with millisecond precision, written as RFC 3339 in UTC.
///
/// Stores keep it as their own date type. Milliseconds are what all of them can hold, so a
/// document reads back equal from each.
///
/// ```
/// use flow_core::time::Timestamp;
///
/// let time: Timestamp = "2026-11-30T12:00:00.250Z".parse()?;
/// assert_eq!(time.to_string(), "2026-11-30T12:00:00.25Z");
/// assert_eq!(time.as_millis() % 1000, 250);
/// # Ok::<(), flow_core::time::TimestampError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(jiff::Timestamp);

/// A text that is not an RFC 3339 point in time, or milliseconds beyond the year 9999.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a point in time: {0}")]
pub struct TimestampError(String);

impl Timestamp {
    /// The time by the system's clock.
    pub fn now() -> Self {
        Self::truncate(jiff::Timestamp::now())
    }

    /// From milliseconds since 1970-01-01T00:00:00Z.
    ///
    /// # Errors
    /// When the result is beyond the year 9999 or before -9999.
    pub fn from_millis(millis: i64) -> Result<Self, TimestampError> {
        jiff::Timestamp::from_millisecond(millis)
            .map(Self)
            .map_err(|e| TimestampError(e.to_string()))
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub fn as_millis(self) -> i64 {
        self.0.as_millisecond()
    }

    /// The time that lies `duration` after this one; at most the end of the year 9999.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self::from_millis(self.as_millis().saturating_add(millis))
            .unwrap_or_else(|_| Self::truncate(jiff::Timestamp::MAX))
    }

    /// How long ago `earlier` was; zero when it lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis((self.as_millis() - earlier.as_millis()).try_into().unwrap_or(0))
    }

    fn truncate(time: jiff::Timestamp) -> Self {
        Self(jiff::Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time))
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        text.parse().map(Self::truncate).map_err(|e: jiff::Error| TimestampError(e.to_string()))
    }
}

impl TryFrom<String> for Timestamp {
    type Error = TimestampError;

    fn try_from(text: String) -> Result<Self, TimestampError> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> Self {
        time.to_string()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// Where the engine reads the time for documents and events.
///
/// Leases are not timed by it: each store uses the clock that all its clients share.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The clock of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

impl<C: Clock> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        self.as_ref().now()
    }
}
