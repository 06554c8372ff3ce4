use serde_json::json;

use super::archive::entry;
use super::clause::{done, equal, holds, refused, same};
use super::sample::{far, message, time};
use super::{NO_TIME, Subject, odd_values, whole};
use crate::session::{
    Appended, ArchiveMark, Delta, Lease, MAIN_MEMORY, MemoryDelta, SessionDoc, Status,
};
use crate::store::{CheckpointSummary, Commit, Grant};

/// Commits the next revision of a document, and keeps so many checkpoints.
async fn commit(
    subject: &Subject,
    grant: &Grant,
    doc: &mut SessionDoc,
    delta: Delta,
    checkpoints: usize,
) {
    doc.revision += 1;
    delta.apply(doc);
    let commit = Commit { checkpoints, ..whole(grant, doc, &delta) };
    done("a commit can leave a checkpoint", subject.store().commit(&commit).await);
}

/// Checks that a session has these checkpoints, and no other up to the last of them.
async fn check(clause: &str, subject: &Subject, session: &SessionDoc, kept: &[SessionDoc]) {
    let store = subject.store();
    let listed = done(clause, store.checkpoints(&session.id).await);
    let newest_first = kept.iter().rev().map(CheckpointSummary::from).collect::<Vec<_>>();
    equal(clause, listed, newest_first);
    for revision in 0..=session.revision + 1 {
        let found = done(clause, store.checkpoint(&session.id, revision).await);
        let Some(wanted) = kept.iter().find(|doc| doc.revision == revision) else {
            holds(clause, found.is_none());
            continue;
        };
        let found = found.map(|transcript| transcript.doc);
        same(clause, found.as_ref(), wanted);
        equal("a checkpoint holds no lease", found.map(|doc| doc.lease), Some(Lease::default()));
    }
    let clause = "a revision that no session can have is no checkpoint";
    holds(clause, done(clause, store.checkpoint(&session.id, u64::MAX).await).is_none());
}

/// After a commit the session has the checkpoints of the last commits, as many as that asks
/// for, each as the document was.
pub async fn checkpoints_are_kept(subject: &Subject) {
    let mut doc = SessionDoc { revision: 0, ..subject.sample("kept") };
    let clause = "a session that does not exist has no checkpoints";
    check(clause, subject, &doc, &[]).await;
    let mut grant = done("a new session can be opened", subject.open(&doc.id, "w").await).grant;
    let clause = "a session that was never committed has no checkpoints";
    check(clause, subject, &doc, &[]).await;
    let other = subject.sample("kept-1");
    let held = done("a new session can be opened", subject.open(&other.id, "w").await).grant;
    let delta = Delta::replace();
    let only = Commit { checkpoints: 1, ..whole(&held, &other, &delta) };
    done("a commit can leave a checkpoint", subject.store().commit(&only).await);

    let mut kept: Vec<SessionDoc> = Vec::new();
    let values = odd_values();
    // In the order of the commits: how many are asked for.
    let asked = [2, 2, 2, 2, 0, 0, 3, 3, 1, 0, 4, 4, 4, 4, 4, 4, 4, 2, 5];
    for (n, keep) in asked.into_iter().enumerate() {
        let messages = Appended { push: vec![message(n as u64 + 10)], keep: 3 };
        let memory = MemoryDelta::from(messages);
        let delta = Delta {
            replace: n % 4 == 0,
            status: Some([Status::Running, Status::Waiting, Status::Failed][n % 3]),
            current_step: Some(format!("Step{n}")),
            state: Some(values[n % values.len()].clone()),
            memory: [(MAIN_MEMORY.to_owned(), memory)].into(),
            wake_at: Some((n % 2 == 0).then(far)),
            updated_at: Some(time(n as i64)),
            ..Delta::default()
        };
        commit(subject, &grant, &mut doc, delta, keep).await;
        if keep > 0 {
            kept.push(doc.clone());
            kept.drain(..kept.len().saturating_sub(keep));
        }
        let clause = format!("a session has the checkpoints of its last commits (commit {n})");
        check(&clause, subject, &doc, &kept).await;
        if n % 5 == 0 {
            let clause = "a session with checkpoints can be given back and opened";
            done(clause, subject.store().release(&doc.id, &grant).await);
            grant = done(clause, subject.open(&doc.id, "w").await).grant;
        }
        let found = done("a session can be loaded", subject.store().load(&doc.id).await);
        same("checkpoints change nothing of the document", found.as_ref(), &doc);
    }
    let clause = "checkpoints are those of one session";
    check(clause, subject, &other, std::slice::from_ref(&other)).await;
}

/// A commit that failed leaves no checkpoint, and changes none that is there.
pub async fn failed_commit_leaves_no_checkpoint(subject: &Subject) {
    let store = subject.store();
    let mut doc = SessionDoc { revision: 0, ..subject.sample("no-checkpoint") };
    let opened = subject.open_for(&doc.id, "late", NO_TIME).await;
    let late = done("a new session can be opened", opened).grant;
    let grant = done("a lease that has ended is free", subject.open(&doc.id, "w").await).grant;
    let mut kept = Vec::new();
    for n in 0..2 {
        let state = Some(json!(n));
        let delta = Delta { replace: n == 0, state, ..Delta::default() };
        commit(subject, &grant, &mut doc, delta, 3).await;
        kept.push(doc.clone());
    }
    let lie = |revision| SessionDoc { revision, state: json!("lie"), ..doc.clone() };
    let clause = "a commit that failed leaves no checkpoint and changes none";
    for (revision, replace) in [(2, false), (2, true), (1, true), (4, false), (9, true)] {
        let stale = lie(revision);
        let delta = Delta { replace, state: Some(stale.state.clone()), ..Delta::default() };
        let stale = Commit { checkpoints: 1, ..whole(&grant, &stale, &delta) };
        refused("a stale commit", store.commit(&stale).await, "revision-conflict");
        check(clause, subject, &doc, &kept).await;
    }
    let next = lie(3);
    let delta = Delta::replace();
    let lost = Commit { checkpoints: 1, ..whole(&late, &next, &delta) };
    refused("a commit under a lost lease", store.commit(&lost).await, "lease-lost");
    check(clause, subject, &doc, &kept).await;

    let clause = "what a commit that failed has left does not become a checkpoint";
    commit(subject, &grant, &mut doc, Delta::default(), 0).await;
    check(clause, subject, &doc, &kept).await;
    for n in 0..8 {
        let state = Some(json!({ "n": n }));
        commit(subject, &grant, &mut doc, Delta { state, ..Delta::default() }, 3).await;
        kept.push(doc.clone());
        kept.drain(..kept.len().saturating_sub(3));
        check(clause, subject, &doc, &kept).await;
    }
}

/// A checkpoint has the archive that belonged to its document, also when the document has
/// another one now.
pub async fn checkpoints_read_their_archive(subject: &Subject) {
    let store = subject.store();
    let mut doc = SessionDoc { revision: 0, ..subject.sample("then") };
    let grant = done("a new session can be opened", subject.open(&doc.id, "w").await).grant;
    let marks = [(0, 0), (0, 2), (0, 3), (3, 3), (3, 5), (5, 7)];
    let mut written = 0;
    for (from, next) in marks {
        doc.revision += 1;
        doc.archive = ArchiveMark { from, next };
        let delta = Delta {
            replace: doc.revision == 1,
            archive: Some(doc.archive.clone()),
            ..Delta::default()
        };
        let entries: Vec<_> = (written..next).map(entry).collect();
        written = next;
        let change = Commit { archive: &entries, checkpoints: 9, ..whole(&grant, &doc, &delta) };
        done("a commit can leave a checkpoint", store.commit(&change).await);
        for (revision, (from, next)) in (1..=doc.revision).zip(marks) {
            let clause = "a checkpoint is read with the archive that belonged to it";
            let found = done(clause, store.checkpoint(&doc.id, revision).await);
            let found = found.map(|transcript| transcript.archive);
            equal(clause, found, Some((from..next).map(entry).collect()));
        }
    }
}

/// Checkpoints go with their session, however that goes, and stay when a document is
/// superseded.
pub async fn checkpoints_go_with_the_session(subject: &Subject) {
    let store = subject.store();
    let past = time(0);
    let names = ["leaves", "leaves-1", "expires"];
    let mut docs = Vec::new();
    for name in names {
        let mut doc = SessionDoc { revision: 0, ..subject.sample(name) };
        let grant = done("a new session can be opened", subject.open(&doc.id, "w").await).grant;
        let mut kept = Vec::new();
        for _ in 0..2 {
            let replace = doc.revision == 0;
            commit(subject, &grant, &mut doc, Delta { replace, ..Delta::default() }, 5).await;
            kept.push(doc.clone());
        }
        let old = SessionDoc { id: doc.id.superseded(1), ..doc.clone() };
        let mut new = SessionDoc { revision: 3, superseded: 1, ..subject.sample(name) };
        if name == "expires" {
            new.expires_at = Some(past);
        }
        let delta = Delta::replace();
        let whole = whole(&grant, &new, &delta);
        let change = Commit { supersede: Some(&old), release: true, checkpoints: 5, ..whole };
        done("a document can be superseded", store.commit(&change).await);
        kept.push(new.clone());
        if !subject.expires_by_itself || name != "expires" {
            let clause = "a document that is superseded leaves its checkpoints to its successor";
            check(clause, subject, &new, &kept).await;
        }
        check("a superseded document has no checkpoints", subject, &old, &[]).await;
        docs.push((new, kept));
    }
    done("a session can be deleted", store.delete(&docs[0].0.id).await);
    check("deleting a session takes its checkpoints", subject, &docs[0].0, &[]).await;
    let clause = "deleting a session leaves the checkpoints of others alone";
    check(clause, subject, &docs[1].0, &docs[1].1).await;
    if !subject.expires_by_itself {
        done("a sweep", store.sweep(100).await);
        check("an expired session takes its checkpoints along", subject, &docs[2].0, &[]).await;
    }
    for (doc, _) in [&docs[0], &docs[2]] {
        done("a session can be deleted", store.delete(&doc.id).await);
        let clause = "a session that is made again has none of the checkpoints of before";
        let again = SessionDoc { expires_at: None, ..doc.clone() };
        done(clause, store.create(&again).await);
        check(clause, subject, &again, &[]).await;
    }
}
