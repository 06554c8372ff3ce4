use std::sync::Arc;

use tokio::sync::Barrier;

use super::clause::{done, equal, holds, refused, same};
use super::{MINUTE, NO_TIME, SAMPLE_FLOW, SAMPLE_VERSION, Subject, whole};
use crate::error::StoreError;
use crate::id::SessionId;
use crate::session::{Delta, FORMAT, FlowRef, SessionDoc};
use crate::store::{Commit, OpenRequest};

/// A lease that has been taken over is lost: commit and renewal say so, and giving it back
/// does nothing. One that is only over, and was taken by no one, still holds.
pub async fn lost_lease_is_lost(subject: &Subject) {
    let store = subject.store();
    let doc = subject.sample("lost");
    let id = &doc.id;
    let first = done("a new session can be opened", subject.open_for(id, "first", NO_TIME).await);
    done(
        "a lease that has ended and was not taken over still allows a commit",
        subject.commit(&first.grant, &doc).await,
    );
    let clause = "a lease whose time is over can be taken by anyone";
    let second = done(clause, subject.open(id, "second").await);
    holds(
        "the fencing token grows when a lease is taken over",
        second.grant.token > first.grant.token,
    );

    let next = SessionDoc { revision: 2, ..doc.clone() };
    let clause = "a commit under a lost lease fails";
    let error = refused(clause, subject.commit(&first.grant, &next).await, "lease-lost");
    if let StoreError::LeaseLost { session, token, current } = error {
        let found = (session, token, current);
        let wanted = (id.clone(), first.grant.token, second.grant.token);
        equal("LeaseLost names the session and both tokens", found, wanted);
    }
    let clause = "a lost lease cannot be renewed";
    refused(clause, store.renew(id, &first.grant, MINUTE).await, "lease-lost");
    let clause = "giving back a lost lease does nothing";
    done(clause, store.release(id, &first.grant).await);
    refused(clause, subject.open(id, "third").await, "session-busy");

    let found = done("a session can be loaded", store.load(id).await);
    same("a commit under a lost lease changes nothing", found.as_ref(), &doc);
    let clause = "the new holder commits as if nothing had happened";
    done(clause, subject.commit(&second.grant, &next).await);
}

/// Each lease has a greater token than the one before, whichever way that one ended.
pub async fn token_grows(subject: &Subject) {
    let store = subject.store();
    let doc = subject.sample("token");
    let id = &doc.id;
    let clause = "the fencing token grows with every acquisition";
    let first = done(clause, subject.open(id, "first").await).grant;
    done(clause, subject.release(&first, &doc).await);
    let second = done(clause, subject.open(id, "second").await).grant;
    holds(
        "the fencing token grows after a commit has given the lease back",
        second.token > first.token,
    );
    done(clause, store.release(id, &second).await);
    let third = done(clause, subject.open_for(id, "third", NO_TIME).await).grant;
    holds("the fencing token grows after a release", third.token > second.token);
    let fourth = done(clause, subject.open(id, "third").await).grant;
    holds("the fencing token grows when the same holder comes again", fourth.token > third.token);
    let next = SessionDoc { revision: 2, ..doc.clone() };
    let clause = "a former lease of the same holder is lost too";
    refused(clause, subject.commit(&third, &next).await, "lease-lost");
    let found = done("a session can be loaded", store.load(id).await);
    let token = found.map(|doc| doc.lease.token);
    equal("a loaded document shows the token of the last lease", token, Some(fourth.token));
}

/// A renewal moves the end of a lease, also of one that is over and was taken by no one.
pub async fn renewal_prolongs(subject: &Subject) {
    let store = subject.store();
    let doc = subject.sample("renewal");
    let id = &doc.id;
    let opened = done("a new session can be opened", subject.open_for(id, "first", NO_TIME).await);
    done("a commit under a lease", subject.commit(&opened.grant, &doc).await);
    let clause = "a renewal prolongs the lease";
    let until = done(clause, store.renew(id, &opened.grant, MINUTE).await);
    holds("a renewal returns the new end", until > opened.grant.until);
    let error = refused(clause, subject.open(id, "second").await, "session-busy");
    if let StoreError::Busy { until: found, .. } = error {
        equal("Busy names the end that the renewal returned", found, until);
    }
    let loaded = done("a session can be loaded", store.load(id).await);
    let lease = loaded.as_ref().and_then(|doc| doc.lease.until);
    equal("a loaded document shows the new end", lease, Some(until));
    same("a renewal leaves the document alone", loaded.as_ref(), &doc);
    let unknown = subject.id("renewal-unknown");
    let clause = "the lease of no session cannot be renewed";
    refused(clause, store.renew(&unknown, &opened.grant, MINUTE).await, "session-not-found");
}

/// Who comes second is told who holds the lease and until when, and changes nothing.
pub async fn busy_names_the_holder(subject: &Subject) {
    let store = subject.store();
    let doc = subject.sample("busy");
    let id = &doc.id;
    let opened = done("a new session can be opened", subject.open(id, "worker-1").await);
    for committed in [false, true] {
        if committed {
            done("a commit under a lease", subject.commit(&opened.grant, &doc).await);
        }
        let before = done("a session can be loaded", store.load(id).await);
        let clause = "a session on which someone works is busy";
        match refused(clause, subject.open(id, "worker-2").await, "session-busy") {
            StoreError::Busy { session, holder, until } => equal(
                "Busy names the session, the holder and the end of the lease",
                (session, holder, until),
                (id.clone(), "worker-1".to_owned(), opened.grant.until),
            ),
            other => panic!("{clause}: {other}"),
        }
        let after = done("a session can be loaded", store.load(id).await);
        equal("an open that was refused has changed nothing, the lease included", after, before);
    }
    let next = SessionDoc { revision: 2, ..doc.clone() };
    let clause = "the holder is not disturbed by an open that was refused";
    done(clause, subject.release(&opened.grant, &next).await);
    done("a lease that was given back is free at once", subject.open(id, "worker-2").await);
}

/// What was deleted stays deleted, whatever a worker that had it open does.
pub async fn deleted_stays_deleted(subject: &Subject) {
    let store = subject.store();
    let doc = subject.sample("deleted");
    let id = &doc.id;
    for (committed, doc) in
        [(false, doc.clone()), (true, SessionDoc { revision: 2, ..doc.clone() })]
    {
        let grant =
            done("a session that is gone can be begun anew", subject.open(id, "w").await).grant;
        if committed {
            let first = SessionDoc { revision: 1, ..doc.clone() };
            done("a commit under a lease", subject.commit(&grant, &first).await);
        }
        let existed =
            done("a session can be deleted while it is worked on", store.delete(id).await);
        equal("delete returns whether there was a session", existed, committed);
        let clause = "a session that was deleted stays deleted";
        refused(clause, subject.commit(&grant, &doc).await, "session-not-found");
        refused(clause, store.renew(id, &grant, MINUTE).await, "session-not-found");
        done(
            "giving back the lease of a deleted session does nothing",
            store.release(id, &grant).await,
        );
        holds(clause, done(clause, store.load(id).await).is_none());
        holds(clause, done(clause, store.transcript(id).await).is_none());
        let again = done("deleting twice is no error", store.delete(id).await);
        holds("a second delete finds no session", !again);
    }
}

/// A session that was deleted and begun anew takes no commits of who had the old one open.
pub async fn recreated_session_is_another(subject: &Subject) {
    let store = subject.store();
    let doc = subject.sample("recreated");
    let id = &doc.id;
    let old = done("a new session can be opened", subject.open(id, "old").await).grant;
    done("a session can be deleted", store.delete(id).await);
    let new = done("a deleted session can be begun anew", subject.open(id, "new").await);
    holds("a deleted session begins without a document", new.doc.is_none());
    let clause = "a lease of a deleted session is not one of its successor";
    refused(clause, subject.commit(&old, &doc).await, "lease-lost");
    refused(clause, store.renew(id, &old, MINUTE).await, "lease-lost");
    done(clause, store.release(id, &old).await);
    holds(clause, done(clause, store.load(id).await).is_none());
    let other = SessionDoc { current_step: "Other".into(), ..doc.clone() };
    done(clause, subject.commit(&new.grant, &other).await);

    let clause = "a commit on a revision that the deleted session had is refused";
    let next = SessionDoc { revision: 2, ..doc.clone() };
    refused(clause, subject.commit(&old, &next).await, "lease-lost");
    let found = done("a session can be loaded", store.load(id).await);
    same("the successor is as its own worker left it", found.as_ref(), &other);
}

/// Of workers that open one session at once, one gets it and the others are told who.
pub async fn racing_openers_have_one_winner(subject: &Subject) {
    for (round, openers) in [2, 2, 2, 2, 2, 2, 2, 2, 16, 16].into_iter().enumerate() {
        let doc = subject.sample(&format!("race-{round}"));
        if round % 2 == 0 {
            done("a session can be created", subject.store().create(&doc).await);
        }
        race(subject, &doc.id, openers).await;
    }
}

async fn race(subject: &Subject, id: &SessionId, openers: usize) {
    let barrier = Arc::new(Barrier::new(openers));
    let mut workers = Vec::new();
    for n in 0..openers {
        let (store, id) = (Arc::clone(subject.store()), id.clone());
        let barrier = Arc::clone(&barrier);
        workers.push(tokio::spawn(async move {
            let holder = format!("worker-{n}");
            let request = OpenRequest {
                id: &id,
                flow: SAMPLE_FLOW,
                version: SAMPLE_VERSION,
                holder: &holder,
                ttl: MINUTE,
            };
            barrier.wait().await;
            store.open(&request).await
        }));
    }
    let mut winners = Vec::new();
    let mut named = Vec::new();
    for worker in workers {
        match worker.await.expect("the worker ends") {
            Ok(opened) => winners.push(opened.grant.holder),
            Err(StoreError::Busy { holder, .. }) => named.push(holder),
            Err(error) => {
                panic!("the contract is broken: who loses a race gets Busy, not: {error}")
            }
        }
    }
    equal("of workers that open one session at once, one gets it", winners.len(), 1);
    let clause = "who loses a race is told who has won";
    equal(clause, named, vec![winners[0].clone(); openers - 1]);
}

/// A document of another flow, of a newer version of the flow or of a newer format is
/// refused, and not even its lease is touched.
pub async fn foreign_documents_are_refused(subject: &Subject) {
    let store = subject.store();
    let sample = subject.sample("foreign");
    let docs = [
        (
            "wrong-flow",
            SessionDoc {
                id: subject.id("foreign-flow"),
                flow: FlowRef { id: "another".into(), digest: String::new() },
                ..sample.clone()
            },
        ),
        (
            "document-from-future",
            SessionDoc {
                id: subject.id("foreign-version"),
                version: SAMPLE_VERSION + 1,
                ..sample.clone()
            },
        ),
        (
            "document-from-future",
            SessionDoc { id: subject.id("foreign-format"), format: FORMAT + 1, ..sample.clone() },
        ),
    ];
    for (code, doc) in docs {
        let id = &doc.id;
        done("a document can be created as it is", store.create(&doc).await);
        let before = store.load(id).await.map_err(|e| e.to_string());
        let clause = "a document that the caller must not touch is refused";
        match refused(clause, subject.open(id, "w").await, code) {
            StoreError::WrongFlow { expected, found, .. } => equal(
                "WrongFlow names both flows",
                (expected, found),
                (SAMPLE_FLOW.to_owned(), doc.flow.id.clone()),
            ),
            StoreError::FromFuture { found, supported, .. } => equal(
                "FromFuture names both versions",
                (found, supported),
                if doc.format > FORMAT {
                    (doc.format, FORMAT)
                } else {
                    (doc.version, SAMPLE_VERSION)
                },
            ),
            other => panic!("{clause}: {other}"),
        }
        let after = store.load(id).await.map_err(|e| e.to_string());
        equal("an open that was refused has changed nothing, the lease included", after, before);
    }
    let request = OpenRequest {
        id: &subject.id("foreign-version"),
        flow: SAMPLE_FLOW,
        version: SAMPLE_VERSION + 1,
        holder: "w",
        ttl: MINUTE,
    };
    done("a program that knows the version gets the session at once", store.open(&request).await);
}

/// A lease that is given back without a commit leaves the session as it was; one that was
/// never committed leaves nothing.
pub async fn release_leaves_no_trace(subject: &Subject) {
    let store = subject.store();
    let doc = subject.sample("release");
    let id = &doc.id;
    let first = done("a new session can be opened", subject.open(id, "first").await).grant;
    let clause = "a session that was released and never committed is gone";
    done(clause, store.release(id, &first).await);
    refused(clause, subject.commit(&first, &doc).await, "session-not-found");
    done(clause, store.create(&doc).await);

    let second = done("a created session can be opened", subject.open(id, "second").await);
    same("open returns the document", second.doc.as_ref(), &doc);
    done("a lease can be given back", store.release(id, &second.grant).await);
    let found = done("a session can be loaded", store.load(id).await);
    same("a release leaves the document alone", found.as_ref(), &doc);
    let holder = found.and_then(|doc| doc.lease.holder);
    equal("a released session shows no holder", holder, None);

    let clause = "a lease that was given back is over";
    let delta = Delta::default();
    let next = SessionDoc { revision: 2, ..doc.clone() };
    let commit = Commit { release: true, ..whole(&second.grant, &next, &delta) };
    refused(clause, store.commit(&commit).await, "lease-lost");
    done("a released session is free at once", subject.open(id, "third").await);
}
