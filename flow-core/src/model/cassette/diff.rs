//! Where two JSON values differ, in a few short lines.

use std::fmt::Write as _;

use serde_json::Value;

/// The most differences that are shown.
const LINES: usize = 5;

/// The most characters of a value that are shown.
const SHOWN: usize = 60;

/// The first differences, one line each.
pub(super) fn difference(recorded: &Value, asked: &Value) -> String {
    let mut found = Vec::new();
    walk("", Some(recorded), Some(asked), &mut found);
    let more = found.len().saturating_sub(LINES);
    found.truncate(LINES);
    let mut text = found.join("\n");
    if more > 0 {
        let _ = write!(text, "\n  and {more} more");
    }
    text
}

fn walk(path: &str, recorded: Option<&Value>, asked: Option<&Value>, found: &mut Vec<String>) {
    match (recorded, asked) {
        (recorded, asked) if recorded == asked => {}
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let only = right.keys().filter(|name| !left.contains_key(*name));
            for name in left.keys().chain(only) {
                let dot = if path.is_empty() { "" } else { "." };
                walk(&format!("{path}{dot}{name}"), left.get(name), right.get(name), found);
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for place in 0..left.len().max(right.len()) {
                walk(&format!("{path}[{place}]"), left.get(place), right.get(place), found);
            }
        }
        (recorded, asked) => {
            let from = first_difference(recorded, asked);
            let (recorded, asked) = (show(recorded, from), show(asked, from));
            found.push(format!("  {path}: recorded {recorded}, asked {asked}"));
        }
    }
}

/// How many characters two texts share at their beginning.
fn first_difference(left: Option<&Value>, right: Option<&Value>) -> usize {
    match (left, right) {
        (Some(Value::String(left)), Some(Value::String(right))) => {
            left.chars().zip(right.chars()).take_while(|(a, b)| a == b).count()
        }
        _ => 0,
    }
}

/// A value, or the part of a text around a place.
fn show(value: Option<&Value>, place: usize) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    let (text, skip) = match value {
        Value::String(text) => (text.clone(), place.saturating_sub(SHOWN / 4)),
        other => (other.to_string(), 0),
    };
    let shown: String = text.chars().skip(skip).take(SHOWN).collect();
    let before = if skip > 0 { "…" } else { "" };
    let after = if text.chars().count() > skip + SHOWN { "…" } else { "" };
    match value {
        Value::String(_) => format!("{before}{shown:?}{after}"),
        _ => format!("{shown}{after}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_are_short_and_say_where() {
        let long = "a".repeat(10_000);
        let recorded = json!({ "m": [{ "text": format!("{long}X{long}") }], "t": 1, "gone": {} });
        let asked = json!({ "m": [{ "text": format!("{long}Y{long}") }, 2], "t": 1.5, "new": [] });
        let text = difference(&recorded, &asked);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(text.len() < 1000, "{text}");
        let a = "a".repeat(15);
        assert!(text.contains(&format!("  m[0].text: recorded …\"{a}Xaaa")), "{text}");
        assert!(text.contains("  m[1]: recorded nothing, asked 2"), "{text}");
        assert!(text.contains("  t: recorded 1, asked 1.5"), "{text}");
        assert!(text.contains("  gone: recorded {}, asked nothing"), "{text}");
        let many: Vec<u32> = (0..100).collect();
        let text = difference(&json!(many), &json!([]));
        assert!(text.ends_with("\n  and 95 more"), "{text}");
    }
}
