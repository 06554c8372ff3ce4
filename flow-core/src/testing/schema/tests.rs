//! Flows as they might be at one point of their life or another, written without macros.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::error::Result;
use crate::step::{Action, ActionCx, Step, Steps, kind};
use crate::transition::{Next, Target, Transition};

/// The only way out that the steps have.
enum End {
    End,
}

impl Next for End {}

/// A module with the flow `hotel` at a version, and the steps that are given.
macro_rules! hotel {
    ($module:ident, $version:literal, $state:ty, $(
        $(#[$meta:meta])*
        $name:literal $([$($alias:literal),*])? $(in $memory:literal)? => $step:ident
            { $($(#[$field_meta:meta])* $field:ident: $type:ty),* }
    ),* $(,)?) => {
        mod $module {
            use super::*;
            use schemars::JsonSchema;
            use serde::{Deserialize, Serialize};

            #[derive(Clone)]
            pub(super) struct Hotel;

            impl FlowMeta for Hotel {
                type State = $state;
                const ID: &'static str = "hotel";
                const VERSION: u32 = $version;
                fn steps() -> Steps<Self> {
                    Steps::new()$(.add::<$step>())*
                }
            }

            $(
                $(#[$meta])*
                #[derive(Default, Serialize, Deserialize, JsonSchema)]
                pub(super) struct $step { $($(#[$field_meta])* $field: $type),* }

                impl Step for $step {
                    type Kind = kind::Action;
                    type Input = ();
                    type Next = End;
                    const TARGETS: &'static [Target] = &[Target::End];
                    const NAME: &'static str = $name;
                    $(const ALIASES: &'static [&'static str] = &[$($alias),*];)?
                    $(const MEMORY: Option<&'static str> = Some($memory);)?

                    fn transition(End::End: End) -> Transition {
                        Transition::End("done".into())
                    }

                    fn is_stay(_: &End) -> bool {
                        false
                    }
                }

                impl Action for $step {
                    type Flow = Hotel;

                    async fn run(&mut self, _: &mut ActionCx<'_, Hotel>) -> Result<End> {
                        Ok(End::End)
                    }
                }
            )*
        }
    };
}

hotel!(first, 1, (),
    "Browse" in "browse" => Browse { seen: Vec<u32> },
    "Book" => Book { receipt: Option<String> },
);
hotel!(documented, 1, (),
    "Book" => Booking {
        /// What the guest gets.
        receipt: Option<String>
    },
    /// Looks around.
    "Browse" in "browse" => Searching { seen: Vec<u32> },
);
hotel!(forgotten, 1, u64,
    "Explore" ["Browse", "Areas"] in "explore" => Explore { shown: Vec<u32> },
    "Book" => Book { receipt: Option<u64>, cents: u32, note: Option<String> },
);
hotel!(second, 2, u64,
    "Explore" ["Browse", "Areas"] in "explore" => Explore { shown: Vec<u32> },
    "Book" => Book { receipt: Option<u64>, cents: u32, note: Option<String> },
);
hotel!(optional, 1, (),
    "Browse" in "browse" => Browse { seen: Vec<u32>, note: Option<String> },
    "Book" => Book { receipt: Option<String> },
);

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn snapshot(folder: &TempDir, version: u32) -> Value {
    let text = fs::read_to_string(folder.path().join(format!("hotel.v{version}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn write<F: FlowMeta>(folder: &TempDir) {
    check_session_schema::<F>(folder.path(), Update::New).unwrap();
}

fn failure<F: FlowMeta>(folder: &TempDir, update: Update) -> String {
    check_session_schema::<F>(folder.path(), update).unwrap_err().to_string()
}

#[test]
fn a_snapshot_holds_the_persisted_shape() {
    assert_eq!(
        session_schema::<second::Hotel>(),
        json!({
            "flow": "hotel",
            "version": 2,
            "state": { "type": "integer", "format": "uint64", "minimum": 0 },
            "steps": {
                "Explore": {
                    "kind": "action",
                    "aliases": ["Areas", "Browse"],
                    "memory": "explore",
                    "fields": {
                        "type": "object",
                        "properties": {
                            "shown": {
                                "type": "array",
                                "items": { "type": "integer", "format": "uint32", "minimum": 0 },
                            },
                        },
                        "required": ["shown"],
                    },
                },
                "Book": {
                    "kind": "action",
                    "fields": {
                        "type": "object",
                        "properties": {
                            "receipt": {
                                "type": ["integer", "null"], "format": "uint64", "minimum": 0,
                            },
                            "cents": { "type": "integer", "format": "uint32", "minimum": 0 },
                            "note": { "type": ["null", "string"] },
                        },
                        "required": ["cents"],
                    },
                },
            },
        })
    );
}

#[test]
fn a_first_snapshot_is_asked_for_and_written_on_demand() {
    let folder = folder();
    let nested = folder.path().join("a/b");
    let error = check_session_schema::<first::Hotel>(&nested, Update::Never).unwrap_err();
    assert!(matches!(&error, SchemaError::Missing { version: 1, since: None, .. }), "{error:?}");
    assert!(error.to_string().contains("FLOW_UPDATE_SCHEMAS=1 cargo test"), "{error}");
    assert!(!nested.exists());

    check_session_schema::<first::Hotel>(&nested, Update::New).unwrap();
    check_session_schema::<first::Hotel>(&nested, Update::Never).unwrap();
    let text = fs::read_to_string(nested.join("hotel.v1.json")).unwrap();
    assert!(text.starts_with("{\n  \"flow\": \"hotel\",\n") && text.ends_with("}\n"), "{text}");
}

#[test]
fn what_does_not_persist_can_change_freely() {
    let folder = folder();
    write::<first::Hotel>(&folder);
    check_session_schema::<documented::Hotel>(folder.path(), Update::Never).unwrap();
    // Line ends as some version control systems write them.
    let file = folder.path().join("hotel.v1.json");
    let text = fs::read_to_string(&file).unwrap().replace('\n', "\r\n");
    fs::write(&file, text).unwrap();
    check_session_schema::<first::Hotel>(folder.path(), Update::Never).unwrap();
}

#[test]
fn a_changed_shape_of_the_same_version_fails_with_the_difference_and_what_to_do() {
    let folder = folder();
    write::<first::Hotel>(&folder);
    let message = failure::<forgotten::Hotel>(&folder, Update::Never);
    for part in [
        "flow `hotel` have another shape, but its version is still 1",
        "hotel.v1.json\n+++ flow `hotel` as it is now\n@@",
        "\n-    \"Browse\": {\n",
        "\n+    \"Explore\": {\n",
        "declare `version = 2`",
        ".from(1, |doc| {\n",
        "doc.rename_step(\"Browse\", \"Explore\")?;\n",
        "doc.rename_field(\"Explore\", \"seen\", \"shown\")?;\n",
        "doc.rename_memory(\"browse\", \"explore\")?;\n",
        "doc.map_step(\"Book\", |fields| ..)?; // `receipt`\n",
        "doc.set_default(\"Book\", \"cents\", ..)?;\n",
        "doc.map_state(|state| ..)?;\n",
        "FLOW_UPDATE_SCHEMAS=1 cargo test",
        "FLOW_UPDATE_SCHEMAS=overwrite cargo test",
    ] {
        assert!(message.contains(part), "no {part:?} in\n{message}");
    }
    assert!(!message.contains("\"note\", .."), "an optional field needs nothing:\n{message}");
}

#[test]
fn a_changed_shape_is_overwritten_by_the_stronger_word_alone() {
    let folder = folder();
    write::<first::Hotel>(&folder);
    let message = failure::<forgotten::Hotel>(&folder, Update::New);
    assert!(message.contains("FLOW_UPDATE_SCHEMAS=overwrite"), "{message}");
    assert_eq!(snapshot(&folder, 1), session_schema::<first::Hotel>());

    check_session_schema::<forgotten::Hotel>(folder.path(), Update::Overwrite).unwrap();
    check_session_schema::<forgotten::Hotel>(folder.path(), Update::Never).unwrap();
}

#[test]
fn a_new_version_gets_a_snapshot_of_its_own_and_the_old_one_stays() {
    let folder = folder();
    write::<first::Hotel>(&folder);
    let message = failure::<second::Hotel>(&folder, Update::Never);
    for part in [
        "no schema snapshot of version 2 yet",
        "hotel.v1.json\n+++",
        "leads from 1 to 2",
        "doc.rename_step(\"Browse\", \"Explore\")?;",
        "FLOW_UPDATE_SCHEMAS=1 cargo test",
    ] {
        assert!(message.contains(part), "no {part:?} in\n{message}");
    }
    for update in [Update::New, Update::Overwrite] {
        check_session_schema::<second::Hotel>(folder.path(), update).unwrap();
        assert_eq!(snapshot(&folder, 1), session_schema::<first::Hotel>());
        assert_eq!(snapshot(&folder, 2), session_schema::<second::Hotel>());
    }
    check_session_schema::<second::Hotel>(folder.path(), Update::Never).unwrap();
}

#[test]
fn a_change_that_old_documents_survive_still_asks_for_a_version() {
    let folder = folder();
    write::<first::Hotel>(&folder);
    let message = failure::<optional::Hotel>(&folder, Update::Never);
    assert!(message.contains(".from(1, |_| Ok(())) // no field has to change"), "{message}");
}

#[test]
fn snapshots_of_other_flows_are_not_taken_for_earlier_versions() {
    let folder = folder();
    for name in ["hotel.v9.json", "hotels.v1.json", "hotel.vx.json", "hotel.v1.json.bak"] {
        fs::write(folder.path().join(name), "{}").unwrap();
    }
    let error = check_session_schema::<second::Hotel>(folder.path(), Update::Never).unwrap_err();
    assert!(matches!(&error, SchemaError::Missing { since: None, .. }), "{error}");
}

#[test]
fn a_snapshot_that_is_no_json_is_named() {
    let folder = folder();
    fs::write(folder.path().join("hotel.v1.json"), "<<<<<<< ours").unwrap();
    let message = failure::<first::Hotel>(&folder, Update::New);
    assert!(message.contains("hotel.v1.json cannot be read"), "{message}");
    check_session_schema::<first::Hotel>(folder.path(), Update::Overwrite).unwrap();
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error =
        check_session_schema::<first::Hotel>(&file.join("x"), Update::Overwrite).unwrap_err();
    assert!(matches!(&error, SchemaError::Write { .. }), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn settings_are_known_or_refused() {
    for (value, update) in [
        ("", Update::Never),
        ("0", Update::Never),
        ("1", Update::New),
        ("overwrite", Update::Overwrite),
    ] {
        assert_eq!(Update::parse(value).unwrap(), update);
    }
    let error = Update::parse("yes").unwrap_err().to_string();
    assert!(error.contains("\"yes\"") && error.contains("`overwrite`"), "{error}");
}

#[test]
fn steps_that_were_split_are_not_taken_for_renamed() {
    let step = |fields: Value| json!({ "kind": "action", "fields": fields });
    let old = json!({ "state": true, "steps": { "A": step(json!({ "type": "null" })) } });
    let new = json!({ "state": true, "steps": {
        "B": step(json!({ "type": "null" })),
        "C": step(json!({ "type": "null" })),
    } });
    assert_eq!(change::migration(&old, &new), ["doc.remove_step(\"A\", ..)?;"]);
    let other_kind = json!({ "state": true, "steps": { "A": { "kind": "reply", "fields": {} } } });
    assert!(change::migration(&old, &other_kind)[0].contains("map_step"));
    assert!(change::migration(&old, &old).is_empty());
}

#[test]
#[should_panic(expected = "invalid flow id \"a/b\"")]
fn the_assertion_panics_with_the_message_whatever_the_setting() {
    #[derive(Clone)]
    struct Slashed;
    impl FlowMeta for Slashed {
        type State = ();
        const ID: &'static str = "a/b";
        const VERSION: u32 = 1;
        fn steps() -> Steps<Self> {
            Steps::new()
        }
    }
    assert_session_schema::<Slashed>(folder().path());
}
