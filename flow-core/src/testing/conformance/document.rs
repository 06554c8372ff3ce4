use serde_json::{Map, Value, json};

use super::clause::{done, equal, holds, refused, same};
use super::sample::{gate_verdict, message, moves, path_entry, pending_round, time, turn};
use super::{FORMAT_1, Subject, odd_values, whole};
use crate::message::Message;
use crate::session::{
    Appended, ContextStart, Delta, EdgeCount, ErrorRecord, FlowRef, GateVerdict, Lease,
    MemoryDelta, SessionDoc, Status, Summary, Visit, Waiting,
};
use crate::store::{Commit, DOCUMENT_BYTES, ListQuery};
use crate::time::Timestamp;

/// What is not committed is invisible, and so is a session that was only opened.
pub async fn uncommitted_is_invisible(subject: &Subject) {
    let store = subject.store();
    let id = &subject.id("invisible");
    let opened = done("a new session can be opened", subject.open(id, "w").await);
    holds("a new session has no document", opened.doc.is_none());
    let clause = "a session that was opened and never committed does not exist";
    holds(clause, done(clause, store.load(id).await).is_none());
    holds(clause, done(clause, store.transcript(id).await).is_none());
    let query = ListQuery { limit: 1000, ..ListQuery::default() };
    let listed = done(clause, store.list(&query).await);
    holds(clause, listed.iter().all(|summary| summary.id != *id));
    holds(clause, !done(clause, store.delete(id).await));
}

/// A document is created as it is, with a free lease, when there is none.
pub async fn create_makes_only_new_sessions(subject: &Subject) {
    let store = subject.store();
    let held =
        Lease { holder: Some("x".into()), token: 7, until: Some(time(0).after(super::MINUTE)) };
    let doc = SessionDoc { revision: 42, lease: held, ..subject.sample("create") };
    done("a document can be created", store.create(&doc).await);
    let found = done("a session can be loaded", store.load(&doc.id).await);
    same("a created document reads back as it is, its revision too", found.as_ref(), &doc);
    let lease = found.map(|doc| (doc.lease.holder, doc.lease.until));
    equal("a created session has a free lease", lease, Some((None, None)));

    let other = SessionDoc { current_step: "Other".into(), ..doc.clone() };
    let clause = "what exists cannot be created";
    refused(clause, store.create(&other).await, "session-exists");
    let found = done("a session can be loaded", store.load(&doc.id).await);
    same("a create that was refused has changed nothing", found.as_ref(), &doc);

    let opened = done("a created session can be opened", subject.open(&doc.id, "w").await);
    let next = SessionDoc { revision: 43, ..other };
    let clause = "a commit goes on from the revision of the created document";
    done(clause, subject.commit(&opened.grant, &next).await);
}

/// The first commit makes the session, and it reads back as it was committed.
pub async fn first_commit_reads_back(subject: &Subject) {
    let store = subject.store();
    let liar = Lease { holder: Some("liar".into()), token: 999, until: None };
    let doc = SessionDoc { lease: liar, ..subject.sample("first") };
    let grant = done("a new session can be opened", subject.open(&doc.id, "w").await).grant;
    done("the first commit makes the session", subject.commit(&grant, &doc).await);
    let found = done("a session can be loaded", store.load(&doc.id).await);
    same("a committed document reads back as it is", found.as_ref(), &doc);
    let lease = Lease { holder: Some("w".into()), token: grant.token, until: Some(grant.until) };
    let clause = "the lease is the store's, not that of the committed document";
    equal(clause, found.map(|doc| doc.lease), Some(lease));

    let next = SessionDoc { revision: 2, ..doc };
    done("a commit can give the lease back", subject.release(&grant, &next).await);
    let lease = done("a session can be loaded", store.load(&next.id).await).map(|doc| doc.lease);
    let free = Lease { token: grant.token, ..Lease::default() };
    equal("a lease that was given back is free", lease, Some(free));
    let opened = done("a free session can be opened", subject.open(&next.id, "w2").await);
    same("open returns the document as it was last committed", opened.doc.as_ref(), &next);
    let transcript = done("a transcript can be read", store.transcript(&next.id).await);
    same("a transcript has the document", transcript.map(|t| t.doc).as_ref(), &next);
}

/// Whether a store writes the delta or the whole document: the same reads back.
pub async fn delta_equals_document(subject: &Subject) {
    let store = subject.store();
    let mut doc = subject.sample("delta");
    let mut grant = done("a new session can be opened", subject.open(&doc.id, "w").await).grant;
    done("the first commit makes the session", subject.commit(&grant, &doc).await);
    let mut dice = fastrand::Rng::with_seed(7);
    for round in 2..=80 {
        let delta = any_delta(&mut dice, &doc, round);
        delta.apply(&mut doc);
        doc.revision = round;
        let release = dice.u8(..4) == 0;
        let commit = Commit { release, ..whole(&grant, &doc, &delta) };
        done("a delta can be committed", store.commit(&commit).await);
        let found = done("a session can be loaded", store.load(&doc.id).await);
        let clause = format!("a delta has the effect of its document (round {round}: {delta:?})");
        same(&clause, found.as_ref(), &doc);
        if release {
            grant = done("a free session can be opened", subject.open(&doc.id, "w").await).grant;
        }
    }
}

fn any_delta(dice: &mut fastrand::Rng, doc: &SessionDoc, round: u64) -> Delta {
    let mut delta = Delta { updated_at: Some(time(round as i64)), ..Delta::default() };
    let values = odd_values();
    let mut value = {
        let mut dice = dice.fork();
        move || values[dice.usize(..values.len())].clone()
    };
    let part = |dice: &mut fastrand::Rng| dice.u8(..3) == 0;
    if part(dice) {
        let all = [Status::Running, Status::Waiting, Status::Completed, Status::Failed];
        delta.status = dice.choice(all);
    }
    if part(dice) {
        delta.flow = Some(FlowRef { digest: format!("{round}"), ..doc.flow.clone() });
    }
    if part(dice) {
        delta.current_step = Some(format!("Step{round}"));
        delta.visit = Some(Visit {
            number: round,
            entered: dice.bool(),
            from: dice.bool().then(|| "A".into()),
            input: dice.bool().then(&mut value),
            asked: dice.u32(..),
            calls: dice.u32(..),
            said: dice.u32(..),
            message: dice.bool().then(|| format!("said in {round}")),
            heard: dice.bool().then(|| format!("heard in {round}")),
            turn: dice.bool().then(|| format!("turn {round}")),
            round: dice.bool().then(pending_round),
        });
    }
    if part(dice) {
        delta.state = Some(value());
    }
    for name in ["Explore", "Größe_1", "New", "_x-1"] {
        if part(dice) {
            delta.steps.insert(name.into(), value());
        }
    }
    for namespace in ["main", "explore", "ö", "a-b"] {
        if part(dice) {
            let messages = any_appended(dice, |n| Message { seq: round * 10 + n, ..message(n) });
            let text = format!("$a.b \0 {round}");
            let summary = Summary { text, through: dice.u64(..) };
            let start = ContextStart { seq: round, kept: dice.bool().then_some(u64::MAX) };
            let appended = MemoryDelta {
                messages,
                summary: part(dice).then(|| dice.bool().then_some(summary)),
                start: part(dice).then(|| dice.bool().then_some(start)),
            };
            if !appended.messages.push.is_empty() || doc.memory.contains_key(namespace) {
                delta.memory.insert(namespace.into(), appended);
            }
        }
    }
    if part(dice) {
        delta.context = Some(Map::from_iter([("a.b".into(), value()), ("$c\0".into(), value())]));
    }
    if part(dice) {
        delta.path = any_appended(dice, |n| path_entry(round * 10 + n));
    }
    if part(dice) {
        delta.turns = any_appended(dice, |n| turn(round * 10 + n));
    }
    if part(dice) {
        let edge = |n| EdgeCount { from: format!("S{n}"), to: "T".into(), count: n };
        delta.edges = Some((0..dice.u32(..3)).map(edge).collect());
    }
    if part(dice) {
        let reason = "a.b $c \0".to_owned();
        delta.waiting = Some(dice.bool().then_some(Waiting::Escalation { reason }));
    }
    if part(dice) {
        delta.wake_at = Some(dice.bool().then_some(time(round as i64 * 1_000)));
    }
    if part(dice) {
        let verdict = |n| GateVerdict { passed: n == 1, ..gate_verdict(&format!("gate-{n}")) };
        delta.gates = Some((0..dice.u32(..3)).map(verdict).collect());
    }
    if part(dice) {
        let error = ErrorRecord { code: "c".into(), message: "$m".into(), retryable: dice.bool() };
        delta.error = Some(dice.bool().then_some(error));
    }
    if part(dice) {
        delta.moves = Some(dice.bool().then(|| moves(&SessionDoc { moves: None, ..doc.clone() })));
    }
    if part(dice) {
        delta.next_message = Some(u64::MAX >> dice.u32(1..64));
    }
    if part(dice) {
        let far = time(86_400_000 * 36_500 + round as i64);
        delta.expires_at = Some(dice.bool().then_some(far));
    }
    delta
}

fn any_appended<T>(dice: &mut fastrand::Rng, item: impl Fn(u64) -> T) -> Appended<T> {
    let keep = match dice.u8(..4) {
        0 => dice.usize(..4),
        1 => dice.usize(..32),
        _ => usize::MAX,
    };
    Appended { push: (0..dice.u64(..4)).map(item).collect(), keep }
}

/// A commit on another revision than the stored one is refused and changes nothing.
pub async fn revision_conflict_changes_nothing(subject: &Subject) {
    let store = subject.store();
    let doc = subject.sample("conflict");
    let grant = done("a new session can be opened", subject.open(&doc.id, "w").await).grant;
    let clause = "a commit must be based on the stored revision";
    for revision in [3, 2] {
        let early = SessionDoc { revision, ..doc.clone() };
        refused(clause, subject.commit(&grant, &early).await, "revision-conflict");
        let found = done("a session can be loaded", store.load(&doc.id).await);
        holds("a commit that was refused has made no session", found.is_none());
    }
    done("the first commit makes the session", subject.commit(&grant, &doc).await);
    for revision in [1, 3, 100] {
        let other = SessionDoc { revision, state: json!("other"), ..doc.clone() };
        let release = Delta { state: Some(json!("other")), ..Delta::default() };
        let commit = Commit { release: true, ..whole(&grant, &other, &release) };
        let error = refused(clause, store.commit(&commit).await, "revision-conflict");
        if let crate::error::StoreError::Conflict { expected, found, .. } = error {
            equal("Conflict names both revisions", (expected, found), (revision - 1, 1));
        }
        let found = done("a session can be loaded", store.load(&doc.id).await);
        same("a commit that was refused has changed nothing", found.as_ref(), &doc);
        let clause = "a commit that was refused has not given the lease back";
        refused(clause, subject.open(&doc.id, "w2").await, "session-busy");
    }
    let next = SessionDoc { revision: 2, ..doc };
    done("a commit on the stored revision", subject.commit(&grant, &next).await);
}

/// Every JSON value reads back equal, wherever in the document it stands.
pub async fn every_value_reads_back(subject: &Subject) {
    let store = subject.store();
    let mut doc = subject.sample("values");
    let grant = done("a new session can be opened", subject.open(&doc.id, "w").await).grant;
    let mut values = odd_values();
    values.push(Value::Array(odd_values()));
    values.push(random_floats());
    for (n, value) in values.into_iter().enumerate() {
        let clause = format!("every JSON value reads back equal (value {n})");
        let key = "a.b/$c\0%\"";
        doc.revision = n as u64 + 1;
        doc.state = value.clone();
        doc.steps.insert("Explore".into(), value.clone());
        doc.visit.input = Some(value.clone());
        doc.context = Map::from_iter([(String::new(), value.clone()), (key.into(), value.clone())]);
        doc.labels.insert(key.into(), "$x\0".into());
        doc.owner = Some("a.b $c \0 ü".into());
        done(&clause, subject.commit(&grant, &doc).await);
        same(&clause, done(&clause, store.load(&doc.id).await).as_ref(), &doc);
        let copy = SessionDoc { id: subject.id(&format!("values-{n}")), ..doc.clone() };
        done(&clause, store.create(&copy).await);
        same(&clause, done(&clause, store.load(&copy.id).await).as_ref(), &copy);
    }
}

fn random_floats() -> Value {
    let mut dice = fastrand::Rng::with_seed(11);
    let floats = (0..2000).map(|_| f64::from_bits(dice.u64(..))).filter(|float| float.is_finite());
    floats.map(Value::from).collect()
}

/// Points in time read back to the millisecond.
pub async fn times_read_back(subject: &Subject) {
    let store = subject.store();
    let millis = [0, 1, -1, 999, 1_767_225_600_123, -62_135_596_800_000, 253_402_207_200_000];
    for (n, at) in millis.into_iter().enumerate() {
        let clause = format!("times read back to the millisecond ({at} ms)");
        let at = Timestamp::from_millis(at).expect("the time is within the range");
        let mut doc = subject.sample(&format!("times-{n}"));
        doc.created_at = at;
        doc.updated_at = at;
        doc.wake_at = Some(at);
        doc.path[0].at = at;
        doc.turns[0].at = at;
        doc.memory.values_mut().for_each(|memory| memory.messages[0].at = at);
        done(&clause, store.create(&doc).await);
        same(&clause, done(&clause, store.load(&doc.id).await).as_ref(), &doc);
    }
}

/// The size that a store names is one that it takes.
pub async fn size_limit_is_taken(subject: &Subject) {
    let store = subject.store();
    let size = |doc: &SessionDoc| {
        store.encoded_len(&serde_json::to_value(doc).expect("documents are JSON"))
    };
    let mut doc = subject.sample("size");
    doc.state = json!({"filler": ""});
    let bare = size(&doc);
    holds("a document has a size", bare > 0);
    let mut last = bare;
    for filler in [1, 10, 1_000, 100_000] {
        doc.state = json!({"filler": "x".repeat(filler)});
        let now = size(&doc);
        holds("a longer document has a greater size", now > last);
        last = now;
    }
    let limit = store.limits().document_bytes.min(DOCUMENT_BYTES);
    let room = limit.checked_sub(bare + 64).expect("the limit leaves room for a document");
    let room = usize::try_from(room).expect("the document fits into memory");
    doc.state = json!({"filler": "x".repeat(room)});
    holds("text makes a document as much greater as it is long", size(&doc) <= limit);
    let clause = "a document just below the limit is taken";
    let grant = done(clause, subject.open(&doc.id, "w").await).grant;
    done(clause, subject.commit(&grant, &doc).await);
    same(clause, done(clause, store.load(&doc.id).await).as_ref(), &doc);
}

/// A document of format 1 is read, stored and read back as it was written.
pub async fn format_1_reads_back(subject: &Subject) {
    let store = subject.store();
    let mut text: Value = serde_json::from_str(FORMAT_1).expect("the fixture is JSON");
    text["_id"] = json!(subject.id("format-1"));
    let doc = SessionDoc::read(text.clone()).expect("format 1 can be read");
    let clause = "a document of format 1 reads back as it was written";
    done(clause, store.create(&doc).await);
    let found = done(clause, store.load(&doc.id).await);
    same(clause, found.as_ref(), &doc);
    // Only the lease is the store's.
    let mut found = serde_json::to_value(found).expect("documents are JSON");
    found["lease"] = text["lease"].clone();
    equal(clause, found, text);
}

/// The store counts the calls that changed a document.
pub async fn counters_count(subject: &Subject) {
    let store = subject.store();
    let doc = subject.sample("counters");
    let before = store.stats();
    let grant = done("a new session can be opened", subject.open(&doc.id, "w").await).grant;
    equal("opening a session is no commit", store.stats().commits, before.commits);
    done("the first commit makes the session", subject.commit(&grant, &doc).await);
    equal("a commit is counted", store.stats().commits, before.commits + 1);
    refused("a stale commit", subject.commit(&grant, &doc).await, "revision-conflict");
    equal("a commit that was refused is not counted", store.stats().commits, before.commits + 1);
    let next = SessionDoc { revision: 2, ..doc };
    done("a second commit", subject.release(&grant, &next).await);
    equal("a commit that releases is counted once", store.stats().commits, before.commits + 2);
    holds("bytes are never uncounted", store.stats().bytes_written >= before.bytes_written);
}
