use serde_json::{Map, Value};
use similar::TextDiff;

/// The unified diff of two shapes.
pub(super) fn diff(old: &Value, new: &Value, old_name: &str, flow: &str) -> String {
    let (old, new) = (super::pretty(old), super::pretty(new));
    let new_name = format!("flow `{flow}` as it is now");
    TextDiff::from_lines(&old, &new)
        .unified_diff()
        .context_radius(4)
        .header(old_name, &new_name)
        .to_string()
}

/// What a migration from the one shape to the other may have to do, as lines of Rust on a
/// `RawDoc` named `doc`. Two dots stand for what only the author knows.
pub(super) fn migration(old: &Value, new: &Value) -> Vec<String> {
    let mut calls = Vec::new();
    let (was, is) = (object(old, "steps"), object(new, "steps"));
    let removed: Vec<_> = was.keys().filter(|name| !is.contains_key(*name)).collect();
    let added: Vec<_> = is.keys().filter(|name| !was.contains_key(*name)).collect();
    let mut kept: Vec<_> =
        was.keys().filter(|name| is.contains_key(*name)).map(|name| (name, name)).collect();
    match (removed.as_slice(), added.as_slice()) {
        ([from], [to]) if was[*from]["kind"] == is[*to]["kind"] => {
            calls.push(format!("doc.rename_step({from:?}, {to:?})?;"));
            kept.push((from, to));
        }
        _ => {
            calls.extend(removed.iter().map(|name| format!("doc.remove_step({name:?}, ..)?;")));
        }
    }
    for (from, to) in kept {
        fields(to, &was[from]["fields"], &is[to]["fields"], &mut calls);
        if let (Some(from), Some(to)) = (was[from]["memory"].as_str(), is[to]["memory"].as_str())
            && from != to
        {
            calls.push(format!("doc.rename_memory({from:?}, {to:?})?;"));
        }
    }
    if old["state"] != new["state"] {
        calls.push("doc.map_state(|state| ..)?;".to_owned());
    }
    calls
}

fn fields(step: &str, old: &Value, new: &Value, calls: &mut Vec<String>) {
    if old == new {
        return;
    }
    let (was, is) = (object(old, "properties"), object(new, "properties"));
    let required = |schema: &Value, field: &str| {
        schema["required"].as_array().is_some_and(|names| names.iter().any(|name| name == field))
    };
    let removed: Vec<_> = was.keys().filter(|name| !is.contains_key(*name)).collect();
    let added: Vec<_> = is.keys().filter(|name| !was.contains_key(*name)).collect();
    match (removed.as_slice(), added.as_slice()) {
        ([from], [to]) if was[*from] == is[*to] => {
            calls.push(format!("doc.rename_field({step:?}, {from:?}, {to:?})?;"));
        }
        _ => calls
            .extend(removed.iter().map(|field| format!("doc.remove_field({step:?}, {field:?})?;"))),
    }
    let renamed = removed.len() == 1 && added.len() == 1 && was[removed[0]] == is[added[0]];
    for (field, schema) in &is {
        match was.get(field) {
            Some(before) if before != schema => {
                calls.push(format!("doc.map_step({step:?}, |fields| ..)?; // `{field}`"));
            }
            Some(_) if required(old, field) => {}
            None if renamed => {}
            _ if required(new, field) => {
                calls.push(format!("doc.set_default({step:?}, {field:?}, ..)?;"));
            }
            _ => {}
        }
    }
    if without_fields(old) != without_fields(new) {
        calls.push(format!("doc.map_step({step:?}, |fields| ..)?;"));
    }
}

fn object(value: &Value, key: &str) -> Map<String, Value> {
    value[key].as_object().cloned().unwrap_or_default()
}

fn without_fields(schema: &Value) -> Value {
    let mut rest = schema.clone();
    if let Some(rest) = rest.as_object_mut() {
        rest.remove("properties");
        rest.remove("required");
    }
    rest
}
