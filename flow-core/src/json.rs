//! What the engine needs of JSON beyond `serde_json`: a canonical form, sizes and depths.

use std::fmt::Write as _;
use std::io;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The most levels of nesting that a value in a session document may have.
///
/// MongoDB takes 100 levels and `serde_json` reads 128; the rest is left to what surrounds
/// the value in the document.
pub const MAX_DEPTH: usize = 64;

/// Writes a value in canonical form: keys sorted by code point, no white space.
///
/// Integers are written exactly, unlike in RFC 8785, where all numbers pass through `f64`
/// and two states that differ beyond 2^53 would look the same.
///
/// ```
/// use flow_core::json::canonical;
/// use serde_json::json;
///
/// assert_eq!(canonical(&json!({"b": 1, "a": [true, null]})), r#"{"a":[true,null],"b":1}"#);
/// ```
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort();
            out.push('{');
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                let _ = write!(out, "{}:", Value::from(key.as_str()));
                write_canonical(&map[key], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        scalar => {
            let _ = write!(out, "{scalar}");
        }
    }
}

/// The SHA-256 digest of the canonical form, as 64 lower-case hexadecimal digits.
pub fn digest(value: &Value) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(canonical(value).as_bytes()) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The number of bytes that a value has as compact JSON, without writing it anywhere.
/// Zero for a value that cannot be written as JSON.
pub fn encoded_len<T: Serialize + ?Sized>(value: &T) -> u64 {
    struct Counter(u64);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    match serde_json::to_writer(&mut counter, value) {
        Ok(()) => counter.0,
        Err(_) => 0,
    }
}

/// Whether a value is nested deeper than `limit` levels; a scalar has none. Does not recurse.
pub fn is_deeper_than(value: &Value, limit: usize) -> bool {
    let mut open = vec![(value, 1)];
    while let Some((value, level)) = open.pop() {
        match value {
            Value::Array(_) | Value::Object(_) if level > limit => return true,
            Value::Array(items) => open.extend(items.iter().map(|item| (item, level + 1))),
            Value::Object(map) => open.extend(map.values().map(|item| (item, level + 1))),
            _ => {}
        }
    }
    false
}

/// One part of a path into a value.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Key(&'a str),
    Place(usize),
}

/// The parts of a path such as `state.rooms[1].guests`; nothing for what is not one.
fn split_path(path: &str) -> Option<Vec<Part<'_>>> {
    let mut parts = Vec::new();
    for segment in path.split('.') {
        let mut places = segment.split('[');
        let key = places.next().filter(|key| !key.is_empty() && !key.contains(']'))?;
        parts.push(Part::Key(key));
        for place in places {
            let digits = place.strip_suffix(']')?;
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            parts.push(Part::Place(digits.parse().ok().filter(|_| plain)?));
        }
    }
    Some(parts)
}

/// Whether a text is a path, as [`find`] takes it.
pub(crate) fn is_path(path: &str) -> bool {
    split_path(path).is_some()
}

/// What stands at a path: keys of objects joined with `.`, places of arrays as `[1]`.
pub(crate) fn find<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    split_path(path)?.into_iter().try_fold(value, |value, part| match part {
        Part::Key(key) => value.as_object()?.get(key),
        Part::Place(place) => value.as_array()?.get(place),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn canonical_form_keeps_integers_that_f64_cannot_hold() {
        assert_eq!(canonical(&json!(9_007_199_254_740_993_u64)), "9007199254740993");
        assert_ne!(
            digest(&json!(9_007_199_254_740_993_u64)),
            digest(&json!(9_007_199_254_740_992_u64))
        );
        assert_eq!(canonical(&json!({"é": "\"", "a": 1.5})), r#"{"a":1.5,"é":"\""}"#);
    }

    #[test]
    fn length_is_that_of_the_text() {
        let value = json!({"a": [1, 2, {"b": "ü\n"}]});
        assert_eq!(encoded_len(&value), value.to_string().len() as u64);
    }

    #[test]
    fn a_path_leads_to_one_value_and_to_no_other() {
        let value = json!({
            "a": { "b": [1, [2, { "c.d": 3, "c": { "d": 4 } }]], "ö": null },
            "a.b": "elsewhere", "0": "key"
        });
        for (path, found) in [
            ("a.b[0]", Some(json!(1))),
            ("a.b[1][1].c.d", Some(json!(4))),
            ("a.ö", Some(json!(null))),
            ("0", Some(json!("key"))),
            ("a.b[2]", None),
            ("a.b.0", None),
            ("a[0]", None),
            ("a.b[0].c", None),
            ("A", None),
        ] {
            assert!(is_path(path), "{path}");
            assert_eq!(find(&value, path).cloned(), found, "{path}");
        }
        for path in
            ["", ".", "a.", ".a", "a..b", "[0]", "a.[0]", "a[", "a[]", "a[x]", "a[+1]", "a]"]
        {
            assert!(!is_path(path), "{path}");
            assert_eq!(find(&value, path), None, "{path}");
        }
        assert!(!is_path("a[1]b") && !is_path("a[99999999999999999999]"));
    }

    #[test]
    fn depth_is_counted_without_recursion() {
        let mut value = json!(1);
        for _ in 0..10_000 {
            value = Value::Array(vec![value]);
        }
        assert!(is_deeper_than(&value, MAX_DEPTH));
        assert!(!is_deeper_than(&json!([[1], {"a": 2}]), 2));
        assert!(is_deeper_than(&json!([[1], {"a": [2]}]), 2));
        // Dropping it recursively would need a deep stack.
        while let Value::Array(mut items) = value {
            value = items.pop().unwrap_or_default();
        }
    }
}
