use super::clause::{done, equal, holds, refused, same};
use super::sample::{message, path_entry};
use super::{Subject, whole};
use crate::session::{
    ArchiveEntry, ArchiveMark, ArchivedMessage, Delta, MAIN_MEMORY, SessionDoc, Status,
};
use crate::store::{Commit, Grant};

/// An entry with two messages and a step, all numbered by its seq.
pub(super) fn entry(seq: u64) -> ArchiveEntry {
    let archived = |n| ArchivedMessage { namespace: MAIN_MEMORY.into(), message: message(n) };
    ArchiveEntry {
        seq,
        messages: vec![archived(seq * 2), archived(seq * 2 + 1)],
        path: vec![path_entry(seq)],
    }
}

/// Commits the next revision with some entries, and a mark that ends after them.
async fn archive(
    subject: &Subject,
    grant: &Grant,
    doc: &mut SessionDoc,
    entries: &[ArchiveEntry],
    delta: Delta,
) {
    doc.archive.next = entries.last().map_or(doc.archive.next, |entry| entry.seq + 1);
    let delta = Delta { archive: Some(doc.archive.clone()), ..delta };
    let commit = Commit { archive: entries, ..whole(grant, doc, &delta) };
    done("a commit can move entries to the archive", subject.store().commit(&commit).await);
    doc.revision += 1;
}

async fn entries_of(subject: &Subject, doc: &SessionDoc) -> Vec<ArchiveEntry> {
    let found = done("a transcript can be read", subject.store().transcript(&doc.id).await);
    found.map(|transcript| transcript.archive).unwrap_or_default()
}

/// The archive is read oldest entry first, whole, and beside that of no other session.
pub async fn archive_is_read_in_order(subject: &Subject) {
    let names = ["order", "order-1", "order/1", "orde"];
    let mut sessions = Vec::new();
    for name in names {
        let doc = subject.sample(name);
        let grant = done("a new session can be opened", subject.open(&doc.id, "w").await).grant;
        sessions.push((doc, grant));
    }
    let mut wanted = Vec::new();
    let mut next = 0;
    for batch in [1, 3, 0, 2, 1, 7] {
        let entries: Vec<_> = (next..next + batch).map(entry).collect();
        next += batch;
        for (doc, grant) in &mut sessions {
            let delta = Delta { replace: doc.revision == 1, ..Delta::default() };
            archive(subject, grant, doc, &entries, delta).await;
        }
        wanted.extend(entries);
    }
    for (doc, _) in &sessions {
        let clause = "the archive is read in order and whole";
        equal(clause, entries_of(subject, doc).await, wanted.clone());
    }
    let found =
        done("a transcript can be read", subject.store().transcript(&sessions[0].0.id).await);
    let found = found.expect("the session exists");
    let seqs: Vec<u64> = found.messages().iter().map(|message| message.seq).collect();
    let sorted = seqs.is_sorted();
    holds("the messages of a transcript are in order", sorted && seqs.len() > wanted.len());
}

/// Entries of a commit that failed are not read, and make way for those of the next one.
pub async fn failed_commit_leaves_no_archive(subject: &Subject) {
    let store = subject.store();
    let mut doc = subject.sample("leftover");
    let grant = done("a new session can be opened", subject.open(&doc.id, "w").await).grant;
    archive(subject, &grant, &mut doc, &[entry(0)], Delta::replace()).await;

    let leftovers = [entry(1), entry(2)].map(|mut entry| {
        entry.path.clear();
        entry
    });
    let mut stale = SessionDoc { revision: 9, ..doc.clone() };
    stale.archive.next = 3;
    let delta = Delta::replace();
    let commit = Commit { archive: &leftovers, ..whole(&grant, &stale, &delta) };
    refused("a stale commit", store.commit(&commit).await, "revision-conflict");
    let clause = "entries of a commit that failed are not read";
    equal(clause, entries_of(subject, &doc).await, vec![entry(0)]);

    archive(subject, &grant, &mut doc, &[entry(1)], Delta::default()).await;
    let clause = "entries of a commit that failed make way for those of the next";
    equal(clause, entries_of(subject, &doc).await, vec![entry(0), entry(1)]);
    archive(subject, &grant, &mut doc, &[entry(2), entry(3)], Delta::default()).await;
    let wanted: Vec<_> = (0..4).map(entry).collect();
    equal(clause, entries_of(subject, &doc).await, wanted);
}

/// A superseded document is kept with its transcript, and its successor starts afresh.
pub async fn superseded_document_is_kept(subject: &Subject) {
    let store = subject.store();
    let mut doc = subject.sample("superseded");
    let id = doc.id.clone();
    let grant = done("a new session can be opened", subject.open(&id, "w").await).grant;
    archive(subject, &grant, &mut doc, &[entry(0), entry(1)], Delta::replace()).await;

    let mut kept = Vec::new();
    for n in 1..=2 {
        let from = doc.archive.next;
        let old = SessionDoc {
            id: id.superseded(n),
            revision: doc.revision - 1,
            status: Status::Superseded,
            ..doc.clone()
        };
        let entries: Vec<_> = (old.archive.from..old.archive.next).map(entry).collect();
        let mut new = SessionDoc { revision: doc.revision, ..subject.sample("superseded") };
        new.superseded = n;
        new.archive = ArchiveMark { from, next: from };
        let delta = Delta::replace();
        let commit = Commit { supersede: Some(&old), ..whole(&grant, &new, &delta) };
        done("a document can be superseded", store.commit(&commit).await);
        kept.push((old, entries));
        let found = done("a session can be loaded", store.load(&id).await);
        same("the successor reads back", found.as_ref(), &new);
        let clause = "the successor of a superseded document starts with an empty archive";
        equal(clause, entries_of(subject, &new).await, Vec::new());
        doc = new;
        doc.revision += 1;
        archive(subject, &grant, &mut doc, &[entry(from), entry(from + 1)], Delta::default()).await;
        let clause = "the successor of a superseded document reads its own entries";
        equal(clause, entries_of(subject, &doc).await, vec![entry(from), entry(from + 1)]);
    }
    for (old, entries) in kept {
        let found = done("a superseded document can be loaded", store.load(&old.id).await);
        same("a superseded document is kept as it is", found.as_ref(), &old);
        let clause = "a superseded document keeps its archive";
        equal(clause, entries_of(subject, &old).await, entries);
    }
}

/// Deleting a session takes its archive and its superseded documents, and nothing of others.
pub async fn delete_takes_everything(subject: &Subject) {
    let store = subject.store();
    let names = ["gone", "gone-1", "gone0", "gone=", "gone_", "gonea", "gon", "GONE"];
    let mut old_ids = Vec::new();
    for name in names {
        let mut doc = subject.sample(name);
        let grant = done("a new session can be opened", subject.open(&doc.id, "w").await).grant;
        archive(subject, &grant, &mut doc, &[entry(0)], Delta::replace()).await;
        let old = SessionDoc { id: doc.id.superseded(1), ..doc.clone() };
        let new = SessionDoc { archive: ArchiveMark { from: 1, next: 1 }, superseded: 1, ..doc };
        let delta = Delta::replace();
        let commit = Commit { supersede: Some(&old), ..whole(&grant, &new, &delta) };
        done("a document can be superseded", store.commit(&commit).await);
        old_ids.push(old.id);
    }
    let id = subject.id("gone");
    holds("delete returns whether there was one", done("delete", store.delete(&id).await));
    let clause = "deleting a session takes the documents that it has superseded";
    holds(clause, done(clause, store.load(&old_ids[0]).await).is_none());
    let clause = "deleting a session leaves others alone";
    for (name, old) in names.iter().zip(&old_ids).skip(1) {
        holds(clause, done(clause, store.load(&subject.id(name)).await).is_some());
        let kept = done(clause, store.transcript(old).await);
        equal(clause, kept.map(|transcript| transcript.archive), Some(vec![entry(0)]));
    }
    let clause = "deleting a session takes its archive";
    let again = SessionDoc { archive: ArchiveMark { from: 0, next: 5 }, ..subject.sample("gone") };
    done(clause, store.create(&again).await);
    equal(clause, entries_of(subject, &again).await, Vec::new());
}
