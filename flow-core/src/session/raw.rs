use std::fmt;

use serde_json::{Map, Value, json};

use crate::error::{Result, StepError};
use crate::id::check_name;

/// A session document as JSON, for a [migration](super::Migrations) to change.
///
/// Its layout is that of [`SessionDoc`](super::SessionDoc). Each method that changes a name
/// changes it in every place of the document that holds it. What has moved to the archive
/// is history that is only ever appended to: path entries and messages there keep the
/// names under which they were written.
///
/// A step or field that is not in the document is no error: a session that has never been
/// at a step has nothing of it, and the methods then do nothing. So they change nothing
/// either when they meet a document that is migrated already.
///
/// ```
/// use flow_core::session::RawDoc;
/// use serde_json::json;
///
/// let mut doc = RawDoc::new(json!({
///     "current_step": "Browse",
///     "steps": { "Browse": { "seen": [7] } },
///     "path": [{ "step": "Browse", "level": 0, "at": "2026-01-01T00:00:00Z" }],
/// }));
/// doc.rename_step("Browse", "Explore")?;
/// doc.rename_field("Explore", "seen", "shown")?;
/// doc.set_default("Explore", "count", 0)?;
///
/// assert_eq!(doc.current_step(), "Explore");
/// assert_eq!(doc.step("Explore"), Some(&json!({ "shown": [7], "count": 0 })));
/// assert_eq!(doc.as_value()["path"][0]["step"], "Explore");
/// # Ok::<(), flow_core::StepError>(())
/// ```
pub struct RawDoc {
    value: Value,
}

impl RawDoc {
    /// A document made of JSON, to try a migration on.
    pub fn new(value: Value) -> Self {
        Self { value }
    }

    /// The id of the session, for messages.
    pub fn session(&self) -> &str {
        self.text("_id")
    }

    /// The document version from which the migration that runs leads away.
    pub fn version(&self) -> u32 {
        self.value["version"].as_u64().and_then(|n| n.try_into().ok()).unwrap_or_default()
    }

    /// The step at which the session stands.
    pub fn current_step(&self) -> &str {
        self.text("current_step")
    }

    /// The state that all steps share.
    pub fn state(&self) -> &Value {
        &self.value["state"]
    }

    /// The names and fields of the steps that have been visited.
    pub fn steps(&self) -> impl Iterator<Item = (&str, &Value)> {
        let steps = self.value["steps"].as_object();
        steps.into_iter().flatten().map(|(name, fields)| (name.as_str(), fields))
    }

    /// The fields of a step that has been visited.
    pub fn step(&self, name: &str) -> Option<&Value> {
        self.value["steps"].get(name)
    }

    /// The whole document.
    pub fn as_value(&self) -> &Value {
        &self.value
    }

    /// The whole document, for what the other methods do not offer.
    ///
    /// The engine refuses the migration when the result is not a session document, or when
    /// it has changed a field that is the engine's own: `_id`, `flow`, `format`,
    /// `revision`, `next_message`, `archive`, `superseded`, `parent`, `moves`, `lease`,
    /// `created_at` and `updated_at`. The engine sets `version` itself.
    pub fn as_value_mut(&mut self) -> &mut Value {
        &mut self.value
    }

    /// Takes the document out.
    pub fn into_value(self) -> Value {
        self.value
    }

    /// Gives a step another persisted name: in the cursor, the fields, the path, the edge
    /// counts and the visit. Nothing happens when the document does not hold the old name.
    ///
    /// A memory namespace has a name of its own, see [`rename_memory`](Self::rename_memory).
    ///
    /// # Errors
    /// When the document has both steps, or the new name cannot be persisted.
    pub fn rename_step(&mut self, old: &str, new: &str) -> Result<()> {
        check_name("step name", new)?;
        if old == new {
            return Ok(());
        }
        if self.has_step(old) && self.has_step(new) {
            return Err(StepError::terminal(format!(
                "step `{old}` cannot be renamed to `{new}`, since the document has both; \
                 `remove_step(\"{old}\", \"{new}\")` drops the fields of `{old}`"
            )));
        }
        if let Some(steps) = self.object_mut("steps")
            && let Some(fields) = steps.remove(old)
        {
            steps.insert(new.into(), fields);
        }
        if self.current_step() == old {
            self.set("current_step", new.into());
        }
        for edge in self.items_mut("edges") {
            replace(edge.get_mut("from"), old, new);
            replace(edge.get_mut("to"), old, new);
        }
        self.merge_edges();
        self.rename_in_history(old, new);
        Ok(())
    }

    /// Takes a step out: its fields and edge counts are dropped, the path and the visit
    /// name the replacement instead, and a session that stands at it
    /// [moves](Self::move_to) to the replacement, which is entered with nothing in the next
    /// turn. Nothing happens when the document does not hold the name.
    ///
    /// When the replacement is a step with an input, call `move_to` with one before.
    ///
    /// # Errors
    /// When the replacement is the step itself, or its name cannot be persisted.
    pub fn remove_step(&mut self, name: &str, replacement: &str) -> Result<()> {
        check_name("step name", replacement)?;
        if name == replacement {
            return Err(StepError::terminal(format!(
                "step `{name}` cannot be its own replacement"
            )));
        }
        if self.current_step() == name {
            self.move_to(replacement, None)?;
        }
        if let Some(steps) = self.object_mut("steps") {
            steps.remove(name);
        }
        if let Some(edges) = self.value.get_mut("edges").and_then(Value::as_array_mut) {
            edges.retain(|edge| edge["from"] != name && edge["to"] != name);
        }
        self.rename_in_history(name, replacement);
        Ok(())
    }

    /// Makes the session stand at a step, which it enters in the next turn with the given
    /// input; `None` for a step without one. What was asked at the step before and what it
    /// waits for is forgotten, and so is which of its effects have begun. What the user said in an
    /// interrupted turn and no step has read waits for the new step.
    ///
    /// # Errors
    /// When the name cannot be persisted.
    pub fn move_to(&mut self, step: &str, input: Option<Value>) -> Result<()> {
        check_name("step name", step)?;
        let number = self.value["visit"]["number"].as_u64().unwrap_or_default() + 1;
        let mut visit = json!({ "number": number, "entered": false, "asked": 0 });
        if let Some(input) = input {
            visit["input"] = input;
        }
        for under_way in ["message", "turn"] {
            if let Some(part) = self.value["visit"].get(under_way) {
                visit[under_way] = part.clone();
            }
        }
        self.set("current_step", step.into());
        self.set("visit", visit);
        if self.value["waiting"]["kind"] == "interrupts" {
            self.set("wake_at", Value::Null);
        }
        if let Some(waiting) = self.object_mut("waiting") {
            waiting.remove("question");
            // Nobody is asked any more what the step before has asked for.
            if waiting.remove("pending").is_some() {
                waiting.insert("kind".to_owned(), "message".into());
            }
        }
        if let Some(effects) = self.object_mut("effects") {
            effects.clear();
        }
        Ok(())
    }

    /// Gives a field of a step another name, in its fields and in the question that the
    /// session waits on. Nothing happens when the document does not hold the old name.
    ///
    /// # Errors
    /// When the step has both fields, or its fields are not an object.
    pub fn rename_field(&mut self, step: &str, old: &str, new: &str) -> Result<()> {
        let Some(fields) = self.fields_mut(step)? else { return Ok(()) };
        if old == new {
            return Ok(());
        }
        if fields.contains_key(old) && fields.contains_key(new) {
            return Err(StepError::terminal(format!(
                "field `{old}` of step `{step}` cannot be renamed to `{new}`, since the step has \
                 both; drop one with `remove_field`"
            )));
        }
        if let Some(value) = fields.remove(old) {
            fields.insert(new.into(), value);
        }
        if self.current_step() == step {
            for field in self.asked_fields_mut().into_iter().flatten() {
                replace(Some(field), old, new);
            }
        }
        Ok(())
    }

    /// Drops a field of a step, also from the question that the session waits on. Nothing
    /// happens when it is not there.
    ///
    /// # Errors
    /// When the fields of the step are not an object.
    pub fn remove_field(&mut self, step: &str, field: &str) -> Result<()> {
        let Some(fields) = self.fields_mut(step)? else { return Ok(()) };
        fields.remove(field);
        if self.current_step() == step
            && let Some(asked) = self.asked_fields_mut()
        {
            asked.retain(|asked| asked != field);
        }
        Ok(())
    }

    /// Gives a field of a step a value where it has none. Nothing happens when the session
    /// has never been at the step, since the step then begins with its own defaults.
    ///
    /// # Errors
    /// When the fields of the step are not an object.
    pub fn set_default(&mut self, step: &str, field: &str, value: impl Into<Value>) -> Result<()> {
        if self.step(step).is_some_and(Value::is_null) {
            // The fields of a unit struct.
            self.map_step(step, |_| Ok(json!({})))?;
        }
        let Some(fields) = self.fields_mut(step)? else { return Ok(()) };
        fields.entry(field).or_insert_with(|| value.into());
        Ok(())
    }

    /// Makes new shared state of the old one.
    ///
    /// # Errors
    /// What the closure returns; the document is unchanged then.
    pub fn map_state(&mut self, map: impl FnOnce(Value) -> Result<Value>) -> Result<()> {
        let state = map(self.state().clone())?;
        self.set("state", state);
        Ok(())
    }

    /// Makes new fields of the old ones of a step, if it has been visited. The fields of a
    /// unit struct are `null`.
    ///
    /// # Errors
    /// What the closure returns; the document is unchanged then.
    pub fn map_step(&mut self, step: &str, map: impl FnOnce(Value) -> Result<Value>) -> Result<()> {
        if let Some(fields) = self.value.get_mut("steps").and_then(|steps| steps.get_mut(step)) {
            *fields = map(fields.clone())?;
        }
        Ok(())
    }

    /// Gives a memory namespace another name. Nothing happens when the document does not
    /// hold the old name. Messages in the archive keep the old one.
    ///
    /// # Errors
    /// When the document has both namespaces, or the new name cannot be persisted.
    pub fn rename_memory(&mut self, old: &str, new: &str) -> Result<()> {
        check_name("memory namespace", new)?;
        let Some(memory) = self.object_mut("memory") else { return Ok(()) };
        if old == new {
            return Ok(());
        }
        if memory.contains_key(old) && memory.contains_key(new) {
            return Err(StepError::terminal(format!(
                "memory namespace `{old}` cannot be renamed to `{new}`, since the document has both"
            )));
        }
        if let Some(messages) = memory.remove(old) {
            memory.insert(new.into(), messages);
        }
        Ok(())
    }

    fn text(&self, key: &str) -> &str {
        self.value[key].as_str().unwrap_or_default()
    }

    fn set(&mut self, key: &str, value: Value) {
        if let Some(doc) = self.value.as_object_mut() {
            doc.insert(key.into(), value);
        }
    }

    fn object_mut(&mut self, key: &str) -> Option<&mut Map<String, Value>> {
        self.value.get_mut(key).and_then(Value::as_object_mut)
    }

    fn items_mut(&mut self, key: &str) -> impl Iterator<Item = &mut Value> {
        self.value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
    }

    fn has_step(&self, name: &str) -> bool {
        self.current_step() == name || self.step(name).is_some()
    }

    /// The fields of a step that has been visited and has any.
    fn fields_mut(&mut self, step: &str) -> Result<Option<&mut Map<String, Value>>> {
        match self.object_mut("steps").and_then(|steps| steps.get_mut(step)) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(fields)),
            Some(_) => Err(StepError::terminal(format!(
                "the fields of step `{step}` have no names: use `map_step(\"{step}\", ..)`"
            ))),
        }
    }

    /// The slots that the question names on which the session waits.
    fn asked_fields_mut(&mut self) -> Option<&mut Vec<Value>> {
        self.value.pointer_mut("/waiting/question/fields").and_then(Value::as_array_mut)
    }

    /// Names a step anew in the visit and the path.
    fn rename_in_history(&mut self, old: &str, new: &str) {
        replace(self.value.pointer_mut("/visit/from"), old, new);
        for entry in self.items_mut("path") {
            replace(entry.get_mut("step"), old, new);
        }
        let pending = self.value.pointer_mut("/waiting/pending").and_then(Value::as_array_mut);
        for interrupt in pending.into_iter().flatten() {
            replace(interrupt.get_mut("step"), old, new);
        }
    }

    /// Adds up the counts of edges that have become the same.
    fn merge_edges(&mut self) {
        let Some(edges) = self.value.get_mut("edges").and_then(Value::as_array_mut) else {
            return;
        };
        let mut merged: Vec<Value> = Vec::with_capacity(edges.len());
        for edge in edges.drain(..) {
            let same =
                |other: &&mut Value| other["from"] == edge["from"] && other["to"] == edge["to"];
            match merged.iter_mut().find(same) {
                Some(other) => {
                    let count = |edge: &Value| edge["count"].as_u64().unwrap_or_default();
                    let sum = count(other).saturating_add(count(&edge));
                    other["count"] = sum.min(u32::MAX.into()).into();
                }
                None => merged.push(edge),
            }
        }
        *edges = merged;
    }
}

fn replace(name: Option<&mut Value>, old: &str, new: &str) {
    if let Some(name) = name
        && name == old
    {
        *name = new.into();
    }
}

/// Names the document without showing what is in it.
impl fmt::Debug for RawDoc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawDoc")
            .field("session", &self.session())
            .field("version", &self.version())
            .field("current_step", &self.current_step())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doc() -> RawDoc {
        RawDoc::new(json!({
            "_id": "s1",
            "version": 1,
            "current_step": "Old",
            "visit": { "number": 4, "entered": true, "from": "Browse", "asked": 1 },
            "state": { "room": 7 },
            "steps": { "Browse": { "seen": [1] }, "Old": { "name": "Ada" }, "Unit": null },
            "memory": { "main": { "messages": [] }, "browse": { "messages": [] } },
            "path": [{ "step": "Browse", "level": 0 }, { "step": "Old", "level": 0 }],
            "edges": [
                { "from": "Browse", "to": "Old", "count": 2 },
                { "from": "Old", "to": "Browse", "count": 1 },
                { "from": "Browse", "to": "Gone", "count": 1 },
            ],
            "waiting": {
                "kind": "message",
                "question": { "text": "Name?", "fields": ["name"] },
            },
            "effects": { "s1:4:0:charge": { "tool": "charge" } },
        }))
    }

    /// Whether a text is in any name or value of the document.
    fn mentions(doc: &RawDoc, name: &str) -> bool {
        doc.as_value().to_string().contains(&format!("\"{name}\""))
    }

    #[test]
    fn a_renamed_step_is_named_anew_everywhere() {
        for (old, new) in [("Browse", "Explore"), ("Old", "New")] {
            let mut raw = doc();
            raw.rename_step(old, new).unwrap();
            assert!(!mentions(&raw, old) && mentions(&raw, new), "{}", raw.as_value());
            assert_eq!(raw.step(new), doc().step(old));
        }
        let mut raw = doc();
        raw.rename_step("Old", "New").unwrap();
        assert_eq!(raw.current_step(), "New");
    }

    #[test]
    fn renaming_there_and_back_changes_nothing() {
        for step in ["Browse", "Old", "Unit", "Gone", "Never"] {
            let mut raw = doc();
            raw.rename_step(step, "Elsewhere").unwrap();
            raw.rename_step("Elsewhere", step).unwrap();
            assert_eq!(raw.as_value(), doc().as_value(), "{step}");
        }
        for (step, field) in [("Old", "name"), ("Browse", "seen"), ("Never", "x"), ("Unit", "x")] {
            let mut raw = doc();
            raw.rename_field(step, field, "other").unwrap();
            raw.rename_field(step, "other", field).unwrap();
            assert_eq!(raw.as_value(), doc().as_value(), "{step}.{field}");
        }
        let mut raw = doc();
        raw.rename_memory("browse", "other").unwrap();
        assert!(!mentions(&raw, "browse"));
        raw.rename_memory("other", "browse").unwrap();
        assert_eq!(raw.as_value(), doc().as_value());
    }

    #[test]
    fn a_name_that_is_taken_is_refused_and_both_are_named() {
        let mut raw = doc();
        let errors = [
            (raw.rename_step("Browse", "Old").unwrap_err(), ["`Browse`", "`Old`"]),
            (raw.rename_memory("browse", "main").unwrap_err(), ["`browse`", "`main`"]),
        ];
        assert_eq!(raw.as_value(), doc().as_value());
        raw.set_default("Old", "title", "Dr").unwrap();
        let field = (raw.rename_field("Old", "name", "title").unwrap_err(), ["`name`", "`title`"]);
        for (error, names) in errors.into_iter().chain([field]) {
            assert!(!error.retryable());
            assert!(names.iter().all(|name| error.to_string().contains(name)), "{error}");
        }
        assert!(raw.rename_step("Old", "a.b").is_err());
        assert!(raw.rename_memory("main", "$x").is_err());
    }

    #[test]
    fn steps_and_fields_that_are_not_there_are_left_alone() {
        let mut raw = doc();
        raw.rename_step("Never", "Old").unwrap();
        raw.remove_step("Never", "Old").unwrap();
        raw.rename_field("Never", "a", "b").unwrap();
        raw.rename_field("Old", "never", "name").unwrap();
        raw.remove_field("Old", "never").unwrap();
        raw.set_default("Never", "a", 1).unwrap();
        raw.map_step("Never", |_| Err(StepError::terminal("not called"))).unwrap();
        raw.rename_memory("never", "main").unwrap();
        assert_eq!(raw.as_value(), doc().as_value());
    }

    #[test]
    fn a_session_at_a_removed_step_enters_the_replacement_anew() {
        let mut raw = doc();
        raw.remove_step("Old", "Browse").unwrap();
        assert!(!mentions(&raw, "Old"), "{}", raw.as_value());
        assert_eq!(raw.current_step(), "Browse");
        let value = raw.as_value();
        assert_eq!(value["visit"], json!({ "number": 5, "entered": false, "asked": 0 }));
        assert_eq!(value["waiting"], json!({ "kind": "message" }));
        assert_eq!(value["effects"], json!({}));
        assert_eq!(value["edges"], json!([{ "from": "Browse", "to": "Gone", "count": 1 }]));
        assert_eq!(raw.step("Browse"), Some(&json!({ "seen": [1] })));
        let once = value.clone();
        raw.remove_step("Old", "Browse").unwrap();
        assert_eq!(*raw.as_value(), once);
        assert!(raw.remove_step("Browse", "Browse").is_err());
    }

    #[test]
    fn a_session_that_is_moved_waits_for_no_approval_any_more() {
        let mut raw = doc();
        raw.as_value_mut()["waiting"] =
            json!({ "kind": "interrupts", "pending": [{ "request_id": "4-7-0" }] });
        raw.as_value_mut()["visit"]["round"] = json!({ "asked": [{ "call": "a" }] });
        raw.move_to("Explore", None).unwrap();
        let value = raw.as_value();
        assert_eq!(value["waiting"], json!({ "kind": "message" }));
        assert_eq!(value["visit"], json!({ "number": 5, "entered": false, "asked": 0 }));
    }

    #[test]
    fn a_session_elsewhere_keeps_its_visit_when_a_step_is_removed() {
        let mut raw = doc();
        raw.remove_step("Browse", "Explore").unwrap();
        assert!(!mentions(&raw, "Browse"));
        assert_eq!(raw.current_step(), "Old");
        assert_eq!(raw.as_value()["visit"]["number"], 4);
        assert_eq!(raw.as_value()["visit"]["from"], "Explore");
        assert_eq!(raw.as_value()["waiting"], doc().as_value()["waiting"]);
    }

    #[test]
    fn a_session_that_is_moved_does_not_wait_for_what_the_step_before_asked_for() {
        let mut raw = doc();
        let pending = json!([{ "request_id": "4-0-0", "step": "Old" }]);
        raw.set("waiting", json!({ "kind": "interrupts", "pending": pending }));
        raw.set("wake_at", json!("2026-11-30T12:00:00Z"));
        raw.rename_step("Old", "New").unwrap();
        assert_eq!(raw.as_value()["waiting"]["pending"][0]["step"], "New");
        raw.move_to("Browse", None).unwrap();
        assert_eq!(raw.as_value()["waiting"], json!({ "kind": "message" }));
        assert_eq!(raw.as_value()["wake_at"], Value::Null);
    }

    #[test]
    fn an_input_given_before_the_removal_is_kept() {
        let mut raw = doc();
        if raw.current_step() == "Old" {
            raw.move_to("Pay", Some(json!({ "cents": 5 }))).unwrap();
        }
        raw.remove_step("Old", "Browse").unwrap();
        assert_eq!(raw.current_step(), "Pay");
        assert_eq!(raw.as_value()["visit"]["input"], json!({ "cents": 5 }));
    }

    #[test]
    fn the_question_follows_the_fields_of_the_current_step() {
        let asked = |raw: &RawDoc| raw.as_value()["waiting"]["question"]["fields"].clone();
        let mut raw = doc();
        raw.rename_field("Old", "name", "full_name").unwrap();
        assert_eq!(asked(&raw), json!(["full_name"]));
        raw.remove_field("Old", "full_name").unwrap();
        assert_eq!(asked(&raw), json!([]));
        assert_eq!(raw.step("Old"), Some(&json!({})));

        // A field of that name in another step is another field.
        let mut raw = doc();
        raw.set_default("Browse", "name", "x").unwrap();
        raw.rename_field("Browse", "name", "other").unwrap();
        raw.remove_field("Browse", "name").unwrap();
        assert_eq!(asked(&raw), json!(["name"]));
    }

    #[test]
    fn a_slot_that_was_never_filled_is_renamed_in_the_question() {
        let mut raw = doc();
        raw.remove_field("Old", "name").unwrap();
        raw.as_value_mut()["waiting"]["question"]["fields"] = json!(["name"]);
        raw.rename_field("Old", "name", "full_name").unwrap();
        assert_eq!(raw.as_value()["waiting"]["question"]["fields"], json!(["full_name"]));
    }

    #[test]
    fn defaults_fill_gaps_alone() {
        let mut raw = doc();
        raw.set_default("Old", "name", "Bob").unwrap();
        raw.set_default("Old", "guests", 2).unwrap();
        raw.set_default("Unit", "count", 0).unwrap();
        assert_eq!(raw.step("Old"), Some(&json!({ "name": "Ada", "guests": 2 })));
        assert_eq!(raw.step("Unit"), Some(&json!({ "count": 0 })));
        raw.map_step("Old", |_| Ok(json!([1]))).unwrap();
        assert!(raw.set_default("Old", "guests", 2).unwrap_err().to_string().contains("map_step"));
    }

    #[test]
    fn a_closure_that_fails_leaves_the_document_as_it_was() {
        let mut raw = doc();
        assert!(raw.map_state(|_| Err(StepError::terminal("no"))).is_err());
        assert!(raw.map_step("Old", |_| Err(StepError::terminal("no"))).is_err());
        assert_eq!(raw.as_value(), doc().as_value());
        raw.map_state(|state| Ok(json!({ "rooms": [state["room"]] }))).unwrap();
        assert_eq!(*raw.state(), json!({ "rooms": [7] }));
    }

    #[test]
    fn edges_that_become_the_same_are_counted_together() {
        let mut raw = doc();
        raw.rename_step("Old", "Gone").unwrap();
        assert_eq!(
            raw.as_value()["edges"],
            json!([
                { "from": "Browse", "to": "Gone", "count": 3 },
                { "from": "Gone", "to": "Browse", "count": 1 },
            ])
        );
    }

    #[test]
    fn a_value_that_is_no_document_makes_nothing_panic() {
        for value in [json!(null), json!([]), json!({ "steps": [], "path": 1, "edges": {} })] {
            let mut raw = RawDoc::new(value);
            raw.rename_step("a", "b").unwrap();
            raw.remove_step("b", "c").unwrap();
            raw.rename_field("c", "x", "y").unwrap();
            raw.set_default("c", "x", 1).unwrap();
            raw.map_state(Ok).unwrap();
            raw.rename_memory("m", "n").unwrap();
            assert_eq!((raw.session(), raw.version(), raw.steps().count()), ("", 0, 0));
        }
    }
}
