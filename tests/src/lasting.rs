//! What of a session document is the same however often its turns were tried.

use flow_core::session::SessionDoc;
use serde_json::Value;

/// What does not depend on when and how often something was tried.
pub fn lasting(doc: &SessionDoc) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, _| !key.ends_with("_at") && key != "at");
                map.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(doc).unwrap();
    for part in ["revision", "lease", "turns"] {
        value.as_object_mut().unwrap().remove(part);
    }
    strip(&mut value);
    value
}
