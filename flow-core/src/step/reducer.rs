use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Number, Value};

/// How the writes of steps that run side by side to one field of the shared state become one.
type Reduce = Arc<dyn Fn(&Value, &[Value]) -> Result<Value, String> + Send + Sync>;

/// How writes to the same field of the shared state are put together, for
/// [steps side by side](super::ActionCx::run_steps). A field is one at the top of the state.
///
/// Each reducer gets the value from before and the values that the steps have left, in the
/// order of the request, whatever finished first; those of steps that have not written the
/// field are left out. A field that one step alone has written needs none.
///
/// ```
/// use flow_core::step::Reducers;
///
/// let reducers = Reducers::new()
///     .sum("cents")
///     .append("log")
///     .append_unique_by("hotels", "id")
///     .with("best", |before, found| {
///         let all = found.iter().chain([before]);
///         all.max_by_key(|v| v.as_u64()).cloned().ok_or("no value".to_owned())
///     });
/// ```
#[derive(Clone, Default)]
pub struct Reducers(BTreeMap<String, Reduce>);

impl Reducers {
    /// None: two writes to one field are a conflict.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds up by how much each step has changed a number. Whole numbers stay whole.
    #[must_use]
    pub fn sum(self, field: impl Into<String>) -> Self {
        self.with(field, sum)
    }

    /// Appends to a list what each step has appended.
    #[must_use]
    pub fn append(self, field: impl Into<String>) -> Self {
        self.with(field, |before, found| append(before, found, |_, _| Ok(true)))
    }

    /// Appends to a list what each step has appended, but objects whose `key` has a value that
    /// is in the list already.
    #[must_use]
    pub fn append_unique_by(self, field: impl Into<String>, key: impl Into<String>) -> Self {
        let key = key.into();
        self.with(field, move |before, found| {
            append(before, found, |list, item| {
                let value = item.get(&key).ok_or_else(|| format!("an item has no `{key}`"))?;
                Ok(!list.iter().any(|other| other.get(&key) == Some(value)))
            })
        })
    }

    /// Merges objects: each key that one step has set or removed. Two steps may not give one
    /// key two values.
    #[must_use]
    pub fn merge(self, field: impl Into<String>) -> Self {
        self.with(field, merge)
    }

    /// Takes a list as records with a `key` each: puts in those that are new, and in place of
    /// the one before those that have changed. Two steps may not give one key two records.
    #[must_use]
    pub fn keyed(self, field: impl Into<String>, key: impl Into<String>) -> Self {
        let key = key.into();
        self.with(field, move |before, found| keyed(before, found, &key))
    }

    /// Puts the values together by a function of the value from before and those that the
    /// steps have left.
    ///
    /// An error is a conflict; its text says why.
    #[must_use]
    pub fn with(
        mut self,
        field: impl Into<String>,
        reduce: impl Fn(&Value, &[Value]) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(field.into(), Arc::new(reduce));
        self
    }

    /// The fields that have a reducer.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Debug for Reducers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reducers").field(&self.0.keys()).finish()
    }
}

/// Two writes that do not become one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) field: String,
    /// The places of two of the steps that have written it.
    pub(super) branches: (usize, usize),
    pub(super) reason: String,
}

/// Puts together what steps have made of a state, each by its place in the request.
pub(super) fn reduce(
    reducers: &Reducers,
    before: &Value,
    after: &[(usize, Value)],
) -> Result<Value, Conflict> {
    let changed: Vec<_> = after.iter().filter(|(_, state)| state != before).collect();
    let (Value::Object(fields), true) = (before, changed.iter().all(|(_, s)| s.is_object())) else {
        // A state without fields is one field.
        return match changed[..] {
            [] => Ok(before.clone()),
            [(_, state)] => Ok(state.clone()),
            [(a, _), (b, _), ..] => Err(Conflict {
                field: ".".to_owned(),
                branches: (*a, *b),
                reason: "the state is no object, so it is one field".to_owned(),
            }),
        };
    };
    let written = changed.iter().flat_map(|(_, state)| state.as_object()).flat_map(Map::keys);
    let names: BTreeSet<&String> = fields.keys().chain(written).collect();
    let mut merged = Map::new();
    for name in names {
        let base = fields.get(name);
        let writes: Vec<(usize, Option<&Value>)> = changed
            .iter()
            .map(|(branch, state)| (*branch, state.get(name)))
            .filter(|(_, value)| *value != base)
            .collect();
        let value = match writes[..] {
            [] => base.cloned(),
            [(_, value)] => value.cloned(),
            [(a, _), (b, _), ..] => {
                let conflict = |reason| Conflict { field: name.clone(), branches: (a, b), reason };
                let reducer = reducers.0.get(name).ok_or_else(|| {
                    conflict("the field has no reducer in `config_reducers`".to_owned())
                })?;
                let left = writes.iter().map(|(_, value)| value.cloned().unwrap_or_default());
                let left: Vec<Value> = left.collect();
                Some(reducer(base.unwrap_or(&Value::Null), &left).map_err(conflict)?)
            }
        };
        if let Some(value) = value {
            merged.insert(name.clone(), value);
        }
    }
    Ok(Value::Object(merged))
}

fn sum(before: &Value, found: &[Value]) -> Result<Value, String> {
    let all = || std::iter::once(before).chain(found).filter(|value| !value.is_null());
    let no_sum = || "it is no number, or the sum is too large for one".to_owned();
    let whole: Option<Vec<i128>> = all().map(whole).collect();
    if let Some(whole) = whole {
        let base = if before.is_null() { 0 } else { whole[0] };
        let added = &whole[usize::from(!before.is_null())..];
        let sum = added.iter().try_fold(base, |sum, value| {
            value.checked_sub(base).and_then(|more| sum.checked_add(more))
        });
        return sum.and_then(Number::from_i128).map(Value::Number).ok_or_else(no_sum);
    }
    let numbers: Option<Vec<f64>> = all().map(Value::as_f64).collect();
    let numbers = numbers.ok_or_else(no_sum)?;
    let base = before.as_f64().unwrap_or(0.0);
    let added = numbers.iter().skip(usize::from(!before.is_null()));
    let sum = base + added.map(|value| value - base).sum::<f64>();
    Number::from_f64(sum).map(Value::Number).ok_or_else(no_sum)
}

fn whole(value: &Value) -> Option<i128> {
    value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))
}

fn list(value: &Value) -> Result<&[Value], String> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => Err("it is no list".to_owned()),
    }
}

fn append(
    before: &Value,
    found: &[Value],
    takes: impl Fn(&[Value], &Value) -> Result<bool, String>,
) -> Result<Value, String> {
    let base = list(before)?;
    let mut all = base.to_vec();
    for value in found {
        let more = list(value)?
            .strip_prefix(base)
            .ok_or("a step has changed what was in the list, and not only appended")?;
        for item in more {
            if takes(&all, item)? {
                all.push(item.clone());
            }
        }
    }
    Ok(Value::Array(all))
}

fn merge(before: &Value, found: &[Value]) -> Result<Value, String> {
    let object = |value: &Value| match value {
        Value::Null => Ok(Map::new()),
        Value::Object(map) => Ok(map.clone()),
        _ => Err("it is no object".to_owned()),
    };
    let base = object(before)?;
    let mut merged = base.clone();
    let mut written: BTreeMap<String, Option<Value>> = BTreeMap::new();
    for value in found {
        let mut map = object(value)?;
        let keys: BTreeSet<String> = base.keys().chain(map.keys()).cloned().collect();
        for key in keys {
            let value = map.remove(&key);
            if base.get(&key) == value.as_ref() {
                continue;
            }
            match &value {
                Some(value) => merged.insert(key.clone(), value.clone()),
                None => merged.remove(&key),
            };
            if written.get(&key).is_some_and(|other| *other != value) {
                return Err(format!("two steps give the key `{key}` two values"));
            }
            written.insert(key, value);
        }
    }
    Ok(Value::Object(merged))
}

fn keyed(before: &Value, found: &[Value], key: &str) -> Result<Value, String> {
    let key_of = |item: &Value| item.get(key).cloned().ok_or(format!("an item has no `{key}`"));
    let base = list(before)?;
    let mut all = base.to_vec();
    let mut written: Vec<(Value, &Value)> = Vec::new();
    for value in found {
        for item in list(value)? {
            if base.contains(item) {
                continue;
            }
            let id = key_of(item)?;
            match written.iter().find(|(other, _)| *other == id) {
                Some((_, other)) if *other != item => {
                    return Err(format!("two steps give the key {id} two records"));
                }
                Some(_) => continue,
                None => written.push((id.clone(), item)),
            }
            match all.iter_mut().find(|other| other.get(key) == Some(&id)) {
                Some(other) => *other = item.clone(),
                None => all.push(item.clone()),
            }
        }
    }
    Ok(Value::Array(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn put(reducers: &Reducers, before: Value, after: &[Value]) -> Result<Value, Conflict> {
        let after: Vec<(usize, Value)> = after.iter().cloned().enumerate().collect();
        reduce(reducers, &before, &after)
    }

    fn reason(result: Result<Value, Conflict>) -> String {
        result.unwrap_err().reason
    }

    #[test]
    fn fields_that_one_step_has_written_need_no_reducer() {
        let before = json!({ "a": 1, "b": 2, "c": 3 });
        let after = [json!({ "a": 9, "b": 2, "c": 3 }), json!({ "a": 1, "b": 2, "d": 4 })];
        let merged = put(&Reducers::new(), before.clone(), &after).unwrap();
        assert_eq!(merged, json!({ "a": 9, "b": 2, "d": 4 }), "one has removed `c`");
        assert_eq!(put(&Reducers::new(), before.clone(), &[]).unwrap(), before);
    }

    #[test]
    fn a_conflict_names_the_field_and_the_first_two_steps() {
        let after = [json!({ "a": 1 }), json!({ "a": 2 }), json!({ "a": 0 }), json!({ "a": 3 })];
        let conflict = put(&Reducers::new(), json!({ "a": 0 }), &after[1..]).unwrap_err();
        assert_eq!((conflict.field.as_str(), conflict.branches), ("a", (0, 2)));
        assert!(conflict.reason.contains("config_reducers"), "{}", conflict.reason);
    }

    #[test]
    fn a_state_that_is_no_object_is_one_field() {
        let merged = put(&Reducers::new(), json!(1), &[json!(1), json!(2)]).unwrap();
        assert_eq!(merged, json!(2));
        let conflict = put(&Reducers::new(), json!(1), &[json!(3), json!(2)]).unwrap_err();
        assert_eq!(conflict.field, ".");
    }

    #[test]
    fn sums_keep_whole_numbers_whole_and_refuse_what_does_not_fit() {
        let sum = |before: Value, after: &[Value]| {
            let after: Vec<Value> = after.iter().map(|n| json!({ "n": n })).collect();
            let merged = put(&Reducers::new().sum("n"), json!({ "n": before }), &after);
            merged.map(|merged| merged["n"].clone())
        };
        assert_eq!(sum(json!(10), &[json!(11), json!(8)]).unwrap(), json!(9));
        assert_eq!(sum(json!(0), &[json!(u64::MAX - 1), json!(1)]).unwrap(), json!(u64::MAX));
        assert_eq!(sum(json!(0.5), &[json!(1.5), json!(1.0)]).unwrap(), json!(2.0));
        assert_eq!(sum(Value::Null, &[json!(1), json!(2)]).unwrap(), json!(3));
        assert!(reason(sum(json!(0), &[json!(u64::MAX), json!(1)])).contains("too large"));
        assert!(reason(sum(json!(0), &[json!("1"), json!(1)])).contains("no number"));
    }

    #[test]
    fn lists_are_appended_to_in_the_order_of_the_steps() {
        let reducers = Reducers::new().append("l").append_unique_by("u", "id");
        let before = json!({ "l": [1], "u": [{ "id": 1 }] });
        let after = [
            json!({ "l": [1, 2], "u": [{ "id": 1 }, { "id": 2, "by": "a" }] }),
            json!({ "l": [1, 2, 3], "u": [{ "id": 1 }, { "id": 2, "by": "b" }, { "id": 3 }] }),
        ];
        let merged = put(&reducers, before.clone(), &after).unwrap();
        let unique = json!([{ "id": 1 }, { "id": 2, "by": "a" }, { "id": 3 }]);
        assert_eq!(merged, json!({ "l": [1, 2, 2, 3], "u": unique }));
        let rewritten = [json!({ "l": [0, 2] }), json!({ "l": [1, 3] })];
        assert!(
            reason(put(&reducers, json!({ "l": [1] }), &rewritten)).contains("not only appended")
        );
        let keyless = [json!({ "u": [{}] }), json!({ "u": [{ "id": 1 }] })];
        assert!(reason(put(&reducers, json!({ "u": [] }), &keyless)).contains("no `id`"));
        let numbers = [json!({ "l": 1 }), json!({ "l": 2 })];
        assert!(reason(put(&reducers, json!({ "l": [] }), &numbers)).contains("no list"));
    }

    #[test]
    fn objects_are_merged_by_their_keys() {
        let merge = |after: &[Value]| {
            let after: Vec<Value> = after.iter().map(|m| json!({ "m": m })).collect();
            put(&Reducers::new().merge("m"), json!({ "m": { "a": 1, "b": 1 } }), &after)
        };
        let merged = merge(&[json!({ "a": 2, "b": 1 }), json!({ "a": 1, "c": 3 })]).unwrap();
        assert_eq!(merged, json!({ "m": { "a": 2, "c": 3 } }));
        let same = merge(&[json!({ "a": 2, "b": 1 }), json!({ "a": 2, "b": 1, "c": 1 })]).unwrap();
        assert_eq!(same, json!({ "m": { "a": 2, "b": 1, "c": 1 } }));
        let two = merge(&[json!({ "a": 2, "b": 1 }), json!({ "a": 3, "b": 1 })]);
        assert!(reason(two).contains("the key `a` two values"));
        let removed = merge(&[json!({ "b": 1 }), json!({ "a": 3, "b": 1 })]);
        assert!(reason(removed).contains("the key `a` two values"));
    }

    #[test]
    fn records_are_replaced_by_their_keys() {
        let keyed = |after: &[Value]| {
            let before = json!({ "r": [{ "id": 1, "n": 0 }, { "id": 2, "n": 0 }] });
            let after: Vec<Value> = after.iter().map(|r| json!({ "r": r })).collect();
            put(&Reducers::new().keyed("r", "id"), before, &after)
        };
        let merged = keyed(&[
            json!([{ "id": 1, "n": 5 }, { "id": 2, "n": 0 }]),
            json!([{ "id": 1, "n": 0 }, { "id": 2, "n": 0 }, { "id": 3, "n": 7 }]),
        ]);
        let expected = json!([{ "id": 1, "n": 5 }, { "id": 2, "n": 0 }, { "id": 3, "n": 7 }]);
        assert_eq!(merged.unwrap(), json!({ "r": expected }));
        let two = keyed(&[json!([{ "id": 1, "n": 5 }]), json!([{ "id": 1, "n": 6 }])]);
        assert!(reason(two).contains("the key 1 two records"));
    }

    #[test]
    fn a_function_gets_the_value_from_before_and_those_that_were_written() {
        let largest = |before: &Value, found: &[Value]| {
            let all = found.iter().chain([before]).filter_map(Value::as_u64);
            all.max().map(Value::from).ok_or_else(|| "no number".to_owned())
        };
        let reducers = Reducers::new().with("n", largest);
        let after = [json!({ "n": 4 }), json!({ "n": 3 }), json!({ "n": 9 })];
        assert_eq!(put(&reducers, json!({ "n": 3 }), &after).unwrap(), json!({ "n": 9 }));
        let texts = [json!({ "n": "a" }), json!({ "n": "b" })];
        assert_eq!(reason(put(&reducers, json!({ "n": "c" }), &texts)), "no number");
    }
}
