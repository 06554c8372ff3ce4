use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::AssertUnwindSafe;

use super::{RawDoc, SessionDoc};
use crate::error::{BuildError, Result, SessionError, panic_message};
use crate::json::{MAX_DEPTH, is_deeper_than};

type Migrate = Box<dyn Fn(&mut RawDoc) -> Result<()> + Send + Sync>;

/// The chain that brings documents of older versions of a flow up to its `version`.
///
/// One migration leads from each version to the next. The chain may begin at any version
/// and has no gaps from there to the flow's, which is checked when the engine is built.
/// It may be empty as well: a flow at version 3 whose older documents are all gone needs no
/// migrations. Should a document turn up that is older than the chain, its turn fails with
/// [`SessionError::TooOld`] and the document stays as it is.
///
/// Migrations run once per document, under its lease, before `on_restore_session_doc`.
/// They get the document as JSON ([`RawDoc`]), since the types of the older version are no
/// longer there, and have to be deterministic: no clock, no network. The result is written
/// whole or not at all.
///
/// ```
/// use flow_core::session::Migrations;
/// use serde_json::json;
///
/// let migrations = Migrations::new()
///     .from(1, |doc| doc.rename_step("Browse", "Explore")) // 1 -> 2
///     .from(2, |doc| {
///         // 2 -> 3
///         doc.remove_step("Old", "Explore")?;
///         doc.rename_field("Explore", "seen", "shown")?;
///         doc.set_default("Explore", "count", 0)?;
///         doc.map_state(|mut state| {
///             state["currency"] = json!("EUR");
///             Ok(state)
///         })
///     });
/// # assert_eq!(format!("{migrations:?}"), "Migrations { from: [1, 2] }");
/// ```
#[derive(Default)]
pub struct Migrations {
    chain: BTreeMap<u32, Migrate>,
    /// Versions from which a second migration was declared.
    twice: BTreeSet<u32>,
}

impl Migrations {
    /// No migrations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the migration from a version to the one after it.
    ///
    /// A second one from the same version is found when the engine is built.
    #[must_use]
    pub fn from(
        mut self,
        version: u32,
        migrate: impl Fn(&mut RawDoc) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        if self.chain.insert(version, Box::new(migrate)).is_some() {
            self.twice.insert(version);
        }
        self
    }

    /// Checks that the chain leads from its first version to the flow's.
    pub(crate) fn check(&self, flow: &str, version: u32) -> Result<(), BuildError> {
        let wrong = |from: u32, reason| {
            let flow = flow.to_owned();
            Err(BuildError::Migration { flow, version, from, reason })
        };
        if self.chain.contains_key(&0) {
            return wrong(0, "versions are counted from 1");
        }
        if let Some((&from, _)) = self.chain.range(version..).next() {
            return wrong(from, "it has to start below the flow's version; raise `version`");
        }
        if let Some(&from) = self.twice.first() {
            return wrong(from, "there are two of them; join them into one");
        }
        let Some((&first, _)) = self.chain.first_key_value() else { return Ok(()) };
        match (first..version).find(|from| !self.chain.contains_key(from)) {
            Some(gap) => {
                Err(BuildError::MigrationGap { flow: flow.to_owned(), version, gap, next: gap + 1 })
            }
            None => Ok(()),
        }
    }

    /// Brings a document up to a version; `None` when it is there already.
    pub(crate) fn migrate(
        &self,
        doc: &SessionDoc,
        flow: &str,
        version: u32,
    ) -> Result<Option<SessionDoc>, SessionError> {
        if doc.version == version {
            return Ok(None);
        }
        if doc.version > version {
            return Err(failed(doc, version, "documents are not migrated to older versions"));
        }
        let mut migrated = None;
        for from in doc.version..version {
            let Some(migrate) = self.chain.get(&from) else {
                let oldest = self.chain.keys().find(|key| **key > from).copied();
                return Err(SessionError::TooOld {
                    session: doc.id.to_string(),
                    flow: flow.to_owned(),
                    found: from,
                    oldest: oldest.unwrap_or(version),
                });
            };
            migrated = Some(advance(migrated.as_ref().unwrap_or(doc), from + 1, migrate)?);
        }
        Ok(migrated)
    }
}

/// Runs one migration.
fn advance(doc: &SessionDoc, to: u32, migrate: &Migrate) -> Result<SessionDoc, SessionError> {
    let value = serde_json::to_value(doc).map_err(|e| failed(doc, to, e))?;
    let mut raw = RawDoc::new(value);
    std::panic::catch_unwind(AssertUnwindSafe(|| migrate(&mut raw)))
        .map_err(|payload| {
            failed(doc, to, format!("a migration panicked: {}", panic_message(&*payload)))
        })?
        .map_err(|e| failed(doc, to, e))?;
    let mut value = raw.into_value();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("version".into(), to.into());
    }
    let migrated = SessionDoc::read(value)
        .map_err(|e| failed(doc, to, format_args!("the result is no session document: {e}")))?;
    let steps = migrated.steps.iter().map(|(name, value)| (format!("steps.{name}"), value));
    let input = migrated.visit.input.iter().map(|value| ("visit.input".to_owned(), value));
    for (path, value) in steps.chain(input).chain([("state".to_owned(), &migrated.state)]) {
        if is_deeper_than(value, MAX_DEPTH) {
            let session = doc.id.to_string();
            return Err(SessionError::TooDeep { session, path, limit: MAX_DEPTH });
        }
    }
    match changed_identity(doc, &migrated) {
        Some(field) => {
            Err(failed(doc, to, format_args!("it changed `{field}`, which is the engine's own")))
        }
        None => Ok(migrated),
    }
}

fn failed(doc: &SessionDoc, to: u32, reason: impl fmt::Display) -> SessionError {
    SessionError::Migration {
        session: doc.id.to_string(),
        from: doc.version,
        to,
        reason: reason.to_string(),
    }
}

/// A field that says which document this is, and that differs between the two.
fn changed_identity(old: &SessionDoc, new: &SessionDoc) -> Option<&'static str> {
    [
        ("_id", old.id == new.id),
        ("flow", old.flow == new.flow),
        ("format", old.format == new.format),
        ("revision", old.revision == new.revision),
        ("next_message", old.next_message == new.next_message),
        ("archive", old.archive == new.archive),
        ("superseded", old.superseded == new.superseded),
        ("parent", old.parent == new.parent),
        ("moves", old.moves == new.moves),
        ("lease", old.lease == new.lease),
        ("created_at", old.created_at == new.created_at),
        ("updated_at", old.updated_at == new.updated_at),
    ]
    .into_iter()
    .find_map(|(field, same)| (!same).then_some(field))
}

impl fmt::Debug for Migrations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from: Vec<_> = self.chain.keys().collect();
        f.debug_struct("Migrations").field("from", &from).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StepError;
    use serde_json::{Value, json};

    fn doc(version: u32) -> SessionDoc {
        SessionDoc::read(json!({
            "_id": "s1",
            "flow": { "id": "hotel", "digest": "d" },
            "format": 1,
            "version": version,
            "revision": 9,
            "status": "waiting",
            "current_step": "Browse",
            "visit": { "number": 3, "entered": true, "asked": 0 },
            "state": { "big": u64::MAX, "small": i64::MIN, "float": 1.0, "a.$b": "ü" },
            "steps": { "Browse": { "seen": [1] }, "Old": {} },
            "memory": {},
            "path": [{ "step": "Browse", "level": 0, "at": "2026-01-01T00:00:00Z" }],
            "turns": [],
            "next_message": 4,
            "archive": { "from": 0, "next": 2 },
            "lease": { "holder": "w1", "token": 5, "until": "2026-01-01T00:01:00Z" },
            "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:30Z",
        }))
        .unwrap()
    }

    fn chain() -> Migrations {
        Migrations::new().from(1, |doc| doc.rename_step("Browse", "Explore")).from(2, |doc| {
            doc.remove_step("Old", "Explore")?;
            doc.rename_field("Explore", "seen", "shown")?;
            doc.set_default("Explore", "count", 0)
        })
    }

    fn nothing(_: &mut RawDoc) -> Result<()> {
        Ok(())
    }

    #[test]
    fn the_chain_runs_in_order_and_changes_what_it_says() {
        let migrated = chain().migrate(&doc(1), "hotel", 3).unwrap().unwrap();
        let mut expected = doc(3);
        expected.current_step = "Explore".into();
        expected.path[0].step = "Explore".into();
        expected.steps = [("Explore".to_owned(), json!({ "shown": [1], "count": 0 }))].into();
        assert_eq!(migrated, expected);
    }

    #[test]
    fn a_chain_in_one_go_and_in_two_gives_the_same_and_twice_changes_nothing() {
        let chain = chain();
        let at_once = chain.migrate(&doc(1), "hotel", 3).unwrap().unwrap();
        let half = chain.migrate(&doc(1), "hotel", 2).unwrap().unwrap();
        assert_eq!(half.version, 2);
        assert_eq!(chain.migrate(&half, "hotel", 3).unwrap().unwrap(), at_once);
        assert_eq!(chain.migrate(&at_once, "hotel", 3).unwrap(), None);
        assert_eq!(chain.migrate(&doc(1), "hotel", 3).unwrap().unwrap(), at_once);

        // Applying the closures to a document that only looks old changes the version alone.
        let again = chain.migrate(&SessionDoc { version: 1, ..at_once.clone() }, "hotel", 3);
        assert_eq!(again.unwrap().unwrap(), at_once);
    }

    #[test]
    fn each_migration_sees_the_version_that_it_leads_away_from() {
        let see = |expected: u32| {
            move |doc: &mut RawDoc| match doc.version() {
                found if found == expected => Ok(()),
                found => Err(StepError::terminal(format!("{found} instead of {expected}"))),
            }
        };
        let chain = Migrations::new().from(2, see(2)).from(3, see(3)).from(4, see(4));
        assert_eq!(chain.migrate(&doc(2), "hotel", 5).unwrap().unwrap(), doc(5));
    }

    #[test]
    fn a_complete_chain_passes_the_check() {
        chain().check("hotel", 3).unwrap();
        Migrations::new().check("hotel", 1).unwrap();
        Migrations::new().check("hotel", 7).unwrap();
        Migrations::new().from(5, nothing).from(6, nothing).check("hotel", 7).unwrap();
    }

    #[test]
    fn every_gap_is_named() {
        for gap in 2..=4 {
            let versions = (1..=4).filter(|version| *version != gap);
            let chain = versions.fold(Migrations::new(), |chain, v| chain.from(v, nothing));
            match chain.check("hotel", 5).unwrap_err() {
                BuildError::MigrationGap { flow, version: 5, gap: found, next } => {
                    assert_eq!((flow.as_str(), found, next), ("hotel", gap, gap + 1));
                }
                other => panic!("{other}"),
            }
        }
        let far = Migrations::new().from(1, nothing).check("hotel", u32::MAX).unwrap_err();
        assert!(matches!(far, BuildError::MigrationGap { gap: 2, next: 3, .. }), "{far}");
    }

    #[test]
    fn migrations_that_lead_nowhere_and_double_ones_are_refused() {
        for (chain, wrong) in [
            (chain().from(3, nothing), 3),
            (chain().from(9, nothing), 9),
            (chain().from(2, nothing), 2),
            (chain().from(0, nothing), 0),
        ] {
            match chain.check("hotel", 3).unwrap_err() {
                BuildError::Migration { from, version: 3, .. } => assert_eq!(from, wrong),
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn a_document_older_than_the_chain_is_refused_with_what_to_do() {
        for (chain, oldest) in [(Migrations::new(), 3), (Migrations::new().from(2, nothing), 2)] {
            let error = chain.migrate(&doc(1), "hotel", 3).unwrap_err();
            assert!(
                matches!(&error, SessionError::TooOld { found: 1, oldest: o, .. } if *o == oldest),
                "{error}"
            );
            assert!(error.to_string().contains(".from(1, |doc| ..)"), "{error}");
        }
    }

    fn reason(migrate: impl Fn(&mut RawDoc) -> Result<()> + Send + Sync + 'static) -> String {
        let chain = Migrations::new().from(1, nothing).from(2, migrate).from(3, nothing);
        match chain.migrate(&doc(1), "hotel", 4).unwrap_err() {
            SessionError::Migration { session, from: 2, to: 3, reason } => {
                assert_eq!(session, "s1");
                reason
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_migration_that_panics_has_failed() {
        let reason = reason(|_| panic!("out of reach"));
        assert_eq!(reason, "a migration panicked: out of reach");
    }

    #[test]
    fn a_migration_that_fails_is_named_with_its_reason() {
        assert_eq!(reason(|_| Err(StepError::terminal("no such room"))), "no such room");
        assert!(reason(|doc| doc.rename_step("Old", "Browse")).contains("has both"));
        let older = chain().migrate(&doc(4), "hotel", 3).unwrap_err();
        assert!(matches!(older, SessionError::Migration { from: 4, to: 3, .. }), "{older}");
    }

    #[test]
    fn a_result_that_is_no_document_is_refused_with_its_place() {
        let broken = reason(|doc| {
            doc.as_value_mut()["path"][0]["at"] = json!("yesterday");
            Ok(())
        });
        assert!(broken.contains("path[0].at"), "{broken}");
        let gone = reason(|doc| {
            *doc.as_value_mut() = Value::Null;
            Ok(())
        });
        assert!(gone.contains("no session document"), "{gone}");
    }

    #[test]
    fn a_result_that_stores_do_not_take_is_refused_with_its_place() {
        let deep = || (0..MAX_DEPTH).fold(json!([]), |value, _| json!([value]));
        for (path, migrate) in [
            ("state", Box::new(move |doc: &mut RawDoc| doc.map_state(|_| Ok(deep()))) as Migrate),
            ("steps.Old", Box::new(move |doc: &mut RawDoc| doc.map_step("Old", |_| Ok(deep())))),
            ("visit.input", Box::new(move |doc: &mut RawDoc| doc.move_to("Old", Some(deep())))),
        ] {
            let error =
                Migrations::new().from(1, migrate).migrate(&doc(1), "hotel", 2).unwrap_err();
            assert!(
                matches!(&error, SessionError::TooDeep { path: found, .. } if found == path),
                "{error}"
            );
        }
    }

    #[test]
    fn what_identifies_a_document_cannot_be_changed() {
        let changes = [
            ("_id", json!("s2")),
            ("flow", json!({ "id": "other", "digest": "d" })),
            ("format", json!(0)),
            ("revision", json!(10)),
            ("next_message", json!(0)),
            ("archive", json!({ "from": 0, "next": 3 })),
            ("superseded", json!(1)),
            ("moves", json!({ "origin": "other" })),
            ("lease", json!({ "token": 6 })),
            ("created_at", json!("2025-01-01T00:00:00Z")),
            ("updated_at", json!("2025-01-01T00:00:00Z")),
        ];
        for (field, value) in changes {
            let reason = reason(move |doc| {
                doc.as_value_mut()[field] = value.clone();
                Ok(())
            });
            assert!(reason.contains(&format!("`{field}`")), "{reason}");
        }
    }

    #[test]
    fn a_session_may_get_an_owner_labels_and_an_end() {
        let chain = Migrations::new().from(1, |doc| {
            let value = doc.as_value_mut();
            value["owner"] = json!("ada");
            value["labels"] = json!({ "tier": "gold" });
            value["expires_at"] = json!("2027-01-01T00:00:00Z");
            value["version"] = json!("the engine sets it");
            Ok(())
        });
        let migrated = chain.migrate(&doc(1), "hotel", 2).unwrap().unwrap();
        assert_eq!(migrated.owner.as_deref(), Some("ada"));
        assert_eq!(migrated.labels["tier"], "gold");
        assert!(migrated.expires_at.is_some());
        assert_eq!(migrated.version, 2);
    }

    /// A document in which every field has something in it.
    fn full(version: u32) -> SessionDoc {
        let at = "2026-01-01T00:00:00.001Z";
        let mut value = serde_json::to_value(doc(version)).unwrap();
        let question = json!({ "text": "Which?", "fields": ["room"], "options": ["a", "b"] });
        let error = json!({ "code": "step-failed", "message": "no", "retryable": true });
        let outcomes = [
            json!({ "kind": "waiting", "question": question }),
            json!({ "kind": "waiting" }),
            json!({ "kind": "ended", "reason": "done" }),
            json!({ "kind": "handed-off", "to": "support" }),
            json!({ "kind": "escalated", "reason": "angry" }),
            json!({ "kind": "failed", "error": error }),
        ];
        let turns = outcomes.iter().enumerate().map(|(i, outcome)| {
            json!({ "id": i.to_string(), "outcome": outcome, "replies": ["x"], "revision": i, "at": at })
        });
        for (field, part) in [
            (
                "visit",
                json!({ "number": 3, "entered": false, "from": "Old", "input": { "a": 1 }, "asked": 2,
                    "calls": 1, "message": "two nights", "turn": "m-1" }),
            ),
            (
                "memory",
                json!({ "main": { "messages": [
                { "seq": 3, "role": "user", "parts": [{ "type": "text", "text": "hi" }], "at": at },
            ] } }),
            ),
            ("context", json!({ "tenant": "t", "nested": { "$k.": [null, 0.1] } })),
            ("turns", turns.collect()),
            ("edges", json!([{ "from": "Old", "to": "Browse", "count": 2 }])),
            ("waiting", json!({ "kind": "message", "question": question })),
            ("wake_at", json!(at)),
            ("error", error.clone()),
            ("effects", json!({ "s1:3:0:charge": { "tool": "charge", "at": at } })),
            ("ended", json!("done")),
            ("superseded", json!(2)),
            ("owner", json!("ada")),
            ("labels", json!({ "tier": "gold" })),
            ("expires_at", json!(at)),
        ] {
            value[field] = part;
        }
        let doc = SessionDoc::read(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&doc).unwrap(), value, "a field was dropped or changed");
        doc
    }

    #[test]
    fn a_migration_leaves_alone_what_it_does_not_name() {
        let chain = Migrations::new().from(1, nothing);
        assert_eq!(chain.migrate(&full(1), "hotel", 2).unwrap().unwrap(), full(2));
        let escalated = |version| {
            let waiting = crate::session::Waiting::Escalation { reason: "angry".into() };
            SessionDoc { waiting: Some(waiting), ..full(version) }
        };
        assert_eq!(chain.migrate(&escalated(1), "hotel", 2).unwrap().unwrap(), escalated(2));
    }
}
