//! Session documents as BSON: nested documents that a person can read, with real dates.
//!
//! Every JSON value reads back equal. BSON and MongoDB lack three things that JSON has, and
//! each has an escape here that no other value is written as:
//!
//! | JSON | BSON |
//! | --- | --- |
//! | a key with `.`, NUL or `%`, a key that begins with `$` | `%2E`, `%00`, `%25`, `%24` in its place |
//! | the empty key | `%` |
//! | an integer above `i64::MAX` | `{"%u64": "18446744073709551615"}` |
//!
//! JSON has no dates, so a BSON date can only be a [`Timestamp`] of the layout.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mongodb::bson::{Bson, DateTime, Document, doc};
use serde::Serialize;
use serde_json::{Map, Number, Value};

use crate::message::Message;
use crate::session::{
    ArchiveEntry, EffectRecord, Lease, Memory, PathEntry, SessionDoc, TurnRecord,
};
use crate::time::Timestamp;

/// The key of an integer that BSON has no type for. No key of a caller is written so, since
/// a `%` of theirs becomes `%25`.
const WIDE_INTEGER: &str = "%u64";

/// The field that is not there in a session without a timer, since its index has all
/// sessions that have the field.
pub(super) const WAKE_AT: &str = "wake_at";

type Encoded<T> = Result<T, serde_json::Error>;

/// A key as it is stored.
pub(super) fn key(key: &str) -> Cow<'_, str> {
    if key.is_empty() {
        return "%".into();
    }
    if !key.starts_with('$') && !key.contains(['%', '.', '\0']) {
        return key.into();
    }
    let mut out = String::with_capacity(key.len() + 8);
    for (at, c) in key.char_indices() {
        match c {
            '%' => out.push_str("%25"),
            '.' => out.push_str("%2E"),
            '\0' => out.push_str("%00"),
            '$' if at == 0 => out.push_str("%24"),
            other => out.push(other),
        }
    }
    out.into()
}

/// A stored key as the caller wrote it.
fn original_key(key: String) -> Result<String, String> {
    if !key.contains('%') {
        return Ok(key);
    }
    if key == "%" {
        return Ok(String::new());
    }
    let mut out = String::with_capacity(key.len());
    let mut parts = key.split('%');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (code, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        out.push(match code {
            "25" => '%',
            "2E" => '.',
            "24" => '$',
            "00" => '\0',
            _ => return Err(format!("the key {key:?} has an escape that is not known")),
        });
        out.push_str(rest);
    }
    Ok(out)
}

/// A JSON value as BSON.
pub(super) fn bson(value: Value) -> Bson {
    match value {
        Value::Null => Bson::Null,
        Value::Bool(flag) => Bson::Boolean(flag),
        Value::String(text) => Bson::String(text),
        Value::Number(number) => number_bson(&number),
        Value::Array(items) => Bson::Array(items.into_iter().map(bson).collect()),
        Value::Object(map) => Bson::Document(
            map.into_iter().map(|(name, value)| (key(&name).into_owned(), bson(value))).collect(),
        ),
    }
}

fn number_bson(number: &Number) -> Bson {
    if let Some(integer) = number.as_i64() {
        Bson::Int64(integer)
    } else if let Some(wide) = number.as_u64() {
        Bson::Document(doc! { WIDE_INTEGER: wide.to_string() })
    } else {
        number.as_f64().map_or(Bson::Null, Bson::Double)
    }
}

/// BSON as the JSON value that it was written for, or what is wrong and where.
pub(super) fn json(bson: Bson) -> Result<Value, String> {
    Ok(match bson {
        Bson::Null => Value::Null,
        Bson::Boolean(flag) => Value::Bool(flag),
        Bson::String(text) => Value::String(text),
        Bson::Int32(integer) => integer.into(),
        Bson::Int64(integer) => integer.into(),
        Bson::Double(float) => Number::from_f64(float)
            .map(Value::Number)
            .ok_or_else(|| format!("{float} is not a number that JSON has"))?,
        Bson::DateTime(date) => Timestamp::from_millis(date.timestamp_millis())
            .map_err(|e| e.to_string())?
            .to_string()
            .into(),
        Bson::Array(items) => {
            let items = items.into_iter().enumerate();
            let items =
                items.map(|(i, item)| json(item).map_err(|e| format!("[{i}]{}", below(&e))));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Bson::Document(document) => {
            if document.len() == 1
                && let Ok(digits) = document.get_str(WIDE_INTEGER)
            {
                let wide: u64 = digits.parse().map_err(|_| format!("{digits:?} is not a u64"))?;
                return Ok(wide.into());
            }
            let mut map = Map::new();
            for (name, value) in document {
                let value = json(value).map_err(|e| format!("{name}{}", below(&e)))?;
                map.insert(original_key(name)?, value);
            }
            Value::Object(map)
        }
        other => {
            return Err(format!(": a BSON {:?} is not part of a document", other.element_type()));
        }
    })
}

/// Joins a path and what is wrong there.
fn below(inner: &str) -> String {
    if inner.starts_with(['[', ':']) { inner.to_owned() } else { format!(".{inner}") }
}

/// A part of the document that holds no dates.
pub(super) fn part<T: Serialize + ?Sized>(value: &T) -> Encoded<Bson> {
    serde_json::to_value(value).map(bson)
}

/// A point in time.
pub(super) fn date(time: Timestamp) -> Bson {
    Bson::DateTime(DateTime::from_millis(time.as_millis()))
}

/// A point in time that may be missing.
pub(super) fn optional_date(time: Option<Timestamp>) -> Bson {
    time.map_or(Bson::Null, date)
}

fn dated<T: Serialize>(value: &T, at: Timestamp) -> Encoded<Bson> {
    let mut encoded = part(value)?;
    if let Bson::Document(document) = &mut encoded {
        document.insert("at", date(at));
    }
    Ok(encoded)
}

fn list<T>(items: &[T], encode: impl Fn(&T) -> Encoded<Bson>) -> Encoded<Bson> {
    items.iter().map(encode).collect::<Encoded<Vec<_>>>().map(Bson::Array)
}

/// Messages of one namespace.
pub(super) fn messages(items: &[Message]) -> Encoded<Bson> {
    list(items, |message| dated(message, message.at))
}

/// Entries of the path.
pub(super) fn path(items: &[PathEntry]) -> Encoded<Bson> {
    list(items, |entry| dated(entry, entry.at))
}

/// Recorded turns.
pub(super) fn turns(items: &[TurnRecord]) -> Encoded<Bson> {
    list(items, |turn| dated(turn, turn.at))
}

/// Tool calls that were begun, by idempotency key.
pub(super) fn effects(items: &BTreeMap<String, EffectRecord>) -> Encoded<Bson> {
    let items = items.iter();
    let items = items.map(|(id, effect)| Ok((key(id).into_owned(), dated(effect, effect.at)?)));
    items.collect::<Encoded<Document>>().map(Bson::Document)
}

/// A lease with these contents.
pub(super) fn lease(lease: &Lease) -> Document {
    doc! {
        "holder": lease.holder.as_deref(),
        "token": token(lease.token),
        "until": optional_date(lease.until),
    }
}

/// A fencing token or revision; neither comes near the end of `i64`.
pub(super) fn token(token: u64) -> i64 {
    i64::try_from(token).unwrap_or(i64::MAX)
}

/// An integer in whichever of the number types it is stored.
pub(super) fn integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(integer) => Some(i64::from(*integer)),
        Bson::Int64(integer) => Some(*integer),
        // Exact: the shell and some servers store small integers as doubles.
        Bson::Double(float) if float.fract() == 0.0 && float.abs() < 9.0e15 => Some(*float as i64),
        _ => None,
    }
}

/// A whole document with another lease than its own.
pub(super) fn document(doc: &SessionDoc, lease: impl Into<Bson>) -> Encoded<Document> {
    // By name, so that a field that is added to `SessionDoc` is not forgotten here.
    let SessionDoc {
        id,
        flow,
        format,
        version,
        revision,
        status,
        current_step,
        visit,
        state,
        steps,
        memory,
        context,
        path: entered,
        turns: recorded,
        edges,
        effects: begun,
        waiting,
        wake_at,
        ended,
        gates,
        error,
        usage,
        next_message,
        archive,
        superseded,
        parent,
        moves,
        owner,
        labels,
        lease: _,
        created_at,
        updated_at,
        expires_at,
    } = doc;
    let mut namespaces = Document::new();
    for (namespace, Memory { messages: kept, summary, start }) in memory {
        let mut encoded = doc! { "messages": messages(kept)? };
        if let Some(summary) = summary {
            encoded.insert("summary", part(summary)?);
        }
        if let Some(start) = start {
            encoded.insert("start", part(start)?);
        }
        namespaces.insert(key(namespace), encoded);
    }
    let mut document = doc! {
        "_id": id.as_str(),
        "flow": part(flow)?,
        "format": i64::from(*format),
        "version": i64::from(*version),
        "revision": token(*revision),
        "status": status.as_str(),
        "current_step": current_step,
        "visit": part(visit)?,
        "state": part(state)?,
        "steps": part(steps)?,
        "memory": namespaces,
        "context": part(context)?,
        "path": path(entered)?,
        "turns": turns(recorded)?,
        "edges": part(edges)?,
        "effects": effects(begun)?,
        "waiting": part(waiting)?,
        "ended": part(ended)?,
        "error": part(error)?,
        "usage": part(usage)?,
        "next_message": part(next_message)?,
        "archive": part(archive)?,
        "superseded": i64::from(*superseded),
        "owner": owner.as_deref(),
        "labels": part(labels)?,
        "lease": lease.into(),
        "created_at": date(*created_at),
        "updated_at": date(*updated_at),
        "expires_at": optional_date(*expires_at),
    };
    if let Some(parent) = parent {
        document.insert("parent", part(parent)?);
    }
    if let Some(moves) = moves {
        document.insert("moves", part(moves)?);
    }
    if let Some(at) = *wake_at {
        document.insert(WAKE_AT, date(at));
    }
    if !gates.is_empty() {
        document.insert("gates", part(gates)?);
    }
    Ok(document)
}

/// Reads a whole document.
pub(super) fn read_document(document: Document) -> Result<SessionDoc, String> {
    SessionDoc::read(json(Bson::Document(document))?).map_err(|e| e.to_string())
}

/// The fields of an archive entry.
pub(super) fn archive_entry(entry: &ArchiveEntry) -> Encoded<Document> {
    let ArchiveEntry { seq, messages, path: entered } = entry;
    Ok(doc! {
        "seq": token(*seq),
        "messages": list(messages, |archived| dated(archived, archived.message.at))?,
        "path": path(entered)?,
    })
}

/// Reads an archive entry.
pub(super) fn read_archive_entry(document: Document) -> Result<ArchiveEntry, String> {
    serde_json::from_value(json(Bson::Document(document))?).map_err(|e| e.to_string())
}

/// The bytes of a JSON value as BSON, without its type and key.
pub(super) fn json_len(value: &Value) -> u64 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::String(text) => text_len(text),
        Value::Number(number) if number.is_u64() && !number.is_i64() => {
            bson_len(&number_bson(number))
        }
        Value::Number(_) => 8,
        Value::Array(items) => {
            let items = items.iter().enumerate();
            5 + items.map(|(i, item)| 2 + digits(i) + json_len(item)).sum::<u64>()
        }
        Value::Object(map) => {
            5 + map
                .iter()
                .map(|(name, item)| 2 + key(name).len() as u64 + json_len(item))
                .sum::<u64>()
        }
    }
}

/// The bytes of a BSON value, without its type and key.
pub(super) fn bson_len(value: &Bson) -> u64 {
    match value {
        Bson::Boolean(_) => 1,
        Bson::Int32(_) => 4,
        Bson::Int64(_) | Bson::Double(_) | Bson::DateTime(_) => 8,
        Bson::String(text) => text_len(text),
        Bson::Array(items) => {
            let items = items.iter().enumerate();
            5 + items.map(|(i, item)| 2 + digits(i) + bson_len(item)).sum::<u64>()
        }
        Bson::Document(document) => document_len(document),
        // This module writes no other type than these and null.
        _ => 0,
    }
}

/// The bytes of a BSON document.
pub(super) fn document_len(document: &Document) -> u64 {
    5 + document.iter().map(|(name, item)| 2 + name.len() as u64 + bson_len(item)).sum::<u64>()
}

fn text_len(text: &str) -> u64 {
    5 + text.len() as u64
}

fn digits(number: usize) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn samples() -> Vec<Value> {
        vec![
            json!(null),
            json!([0, -1, 1, i64::MIN, i64::MAX, i64::MAX as u64 + 1, u64::MAX]),
            json!([0.0, -0.0, 1.0, 1.5e300, 5e-324, f64::MAX, 9_007_199_254_740_993.0_f64]),
            json!(["", "a\0b", "\u{10FFFF}", "日本語", "$where", "%u64"]),
            json!({"": 1, "%": 2, "%25": 3, "$": 4, "$$": 5, "a.b": 6, ".": 7, "..": 8, "\0": 9, "a\0b": 10}),
            json!({"%u64": "1", "u64": {"%u64": "18446744073709551615"}, "$oid": "x", "$numberLong": "5"}),
            json!({"$date": {"$numberLong": "0"}, "2026": "2026-11-30T12:00:00Z", "_id": 1, "a$b": 2, "%2E": 3}),
            json!([[], {}, [[{}]], {"a": {"b": [null, true, false]}}]),
        ]
    }

    #[test]
    fn every_json_value_reads_back_equal_through_bytes() {
        for value in samples() {
            let bytes = doc! { "v": bson(value.clone()) }.to_vec().unwrap();
            let mut read = Document::from_reader(bytes.as_slice()).unwrap();
            let read = json(read.remove("v").unwrap()).unwrap();
            // `to_string` tells 1 from 1.0 and 0.0 from -0.0; equality does not.
            assert_eq!(read.to_string(), value.to_string());
            assert_eq!(read, value);
        }
    }

    #[test]
    fn lengths_are_those_of_the_bytes() {
        for value in samples() {
            let encoded = doc! { "v": bson(value.clone()) };
            let bytes = encoded.to_vec().unwrap().len() as u64;
            assert_eq!(document_len(&encoded), bytes);
            assert_eq!(json_len(&value) + 8, bytes, "{value}");
        }
        let long = json!(vec![1; 1001]);
        assert_eq!(json_len(&long) + 8, doc! { "v": bson(long) }.to_vec().unwrap().len() as u64);
    }

    #[test]
    fn stored_keys_have_no_operator_and_no_separator() {
        for name in ["$set", "$", "a.b", "a\0", "", "%", "$.\0%"] {
            let stored = key(name);
            assert!(!stored.is_empty() && !stored.starts_with('$'), "{stored}");
            assert!(!stored.contains(['.', '\0']), "{stored}");
            assert_eq!(original_key(stored.into_owned()).unwrap(), name);
        }
    }

    #[test]
    fn what_was_not_written_here_is_an_error_with_its_place() {
        let foreign = doc! { "a": [{ "b": mongodb::bson::oid::ObjectId::new() }] };
        let error = json(foreign.into()).unwrap_err();
        assert!(error.starts_with("a[0].b: a BSON ObjectId"), "{error}");
        assert!(json(doc! { "a%2": 1 }.into()).unwrap_err().contains("a%2"));
        assert!(json(doc! { "a": f64::NAN }.into()).is_err());
        assert!(json(doc! { "%u64": "-1" }.into()).is_err());
    }
}
