//! Reads values from what a user wrote, without a model and without guessing.

use regex::Regex;
use serde_json::Value;

/// What a resolver found in a message.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Resolved {
    /// One value.
    Value(Value),
    /// More than one value that could be meant.
    Ambiguous,
    /// No value.
    Nothing,
}

/// Finds the one option that the message names.
pub fn one_of(options: &[&str], message: &str) -> Resolved {
    let mut hits = options.iter().filter(|o| message.to_lowercase().contains(&o.to_lowercase()));
    match (hits.next(), hits.next()) {
        (Some(option), None) => Resolved::Value(Value::from(*option)),
        (Some(_), Some(_)) => Resolved::Ambiguous,
        (None, _) => Resolved::Nothing,
    }
}

/// Finds the one number of the message that lies in the range.
pub fn range(min: f64, max: f64, message: &str) -> Resolved {
    match message.trim().parse::<f64>() {
        Ok(n) if (min..=max).contains(&n) && n.fract() == 0.0 => {
            Resolved::Value(Value::from(n as i64))
        }
        _ => Resolved::Nothing,
    }
}

/// Finds the one thing that the pattern captures.
pub fn pattern(regex: &Regex, message: &str) -> Resolved {
    match regex.captures(message).and_then(|c| c.get(1)) {
        Some(found) => Resolved::Value(Value::from(found.as_str())),
        None => Resolved::Nothing,
    }
}
