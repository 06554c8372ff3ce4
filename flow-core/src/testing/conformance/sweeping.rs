use std::collections::BTreeMap;
use std::sync::Arc;

use super::clause::{done, equal, holds, refused, same};
use super::listing::due;
use super::sample::{far, time};
use super::{NO_TIME, Subject};
use crate::id::SessionId;
use crate::session::{SessionDoc, Status};
use crate::time::Timestamp;

/// A sweep frees the sessions whose workers died, each once, however many sweeps there are.
pub async fn sweep_frees_each_session_once(subject: &Subject) {
    let store = subject.store();
    let mut dead = Vec::new();
    for n in 0..20 {
        let status = if n % 4 == 3 { Status::Failed } else { Status::Running };
        let wake_at = [None, Some(time(0)), Some(far())][n % 3];
        let doc = SessionDoc { status, wake_at, ..subject.sample(&format!("dead-{n}")) };
        let opened = subject.open_for(&doc.id, "dead", NO_TIME).await;
        let grant = done("a new session can be opened", opened).grant;
        done("a commit under a lease", subject.commit(&grant, &doc).await);
        dead.push((doc, grant));
    }
    let live = subject.sample("live");
    let grant = done("a new session can be opened", subject.open(&live.id, "live").await).grant;
    done("a commit under a lease", subject.commit(&grant, &live).await);
    let free = subject.sample("free");
    done("a document can be created", store.create(&free).await);
    let unused = subject.id("unused");
    done("a new session can be opened", subject.open_for(&unused, "dead", NO_TIME).await);

    let began = clock(subject, "clock-before").await;
    let reports = sweep_all(subject).await;
    let ended = clock(subject, "clock-after").await;
    let clause = "a session whose lease has ended is freed by one sweep";
    let wanted = dead.iter().map(|(doc, _)| (doc.id.clone(), 1)).collect();
    equal(clause, reports, wanted);
    let mut wanted: Vec<_> = dead
        .iter()
        .map(|(doc, _)| doc)
        .filter(|doc| doc.status == Status::Running || doc.wake_at == Some(time(0)))
        .map(|doc| doc.id.clone())
        .collect();
    wanted.sort();
    let clause = "a session whose worker died in a turn is due after a sweep";
    equal(clause, due(subject, ended).await, wanted);
    for (doc, grant) in dead {
        let found = done("a session can be loaded", store.load(&doc.id).await);
        let was_at_work = doc.status == Status::Running;
        let status = if was_at_work { Status::Waiting } else { doc.status };
        let wake_at = found.as_ref().and_then(|doc| doc.wake_at);
        if was_at_work && doc.wake_at != Some(time(0)) {
            let now = wake_at.is_some_and(|at| began <= at && at <= ended);
            holds("a session whose worker died in a turn is due from the moment of the sweep", now);
        } else {
            let clause = "a sweep leaves an earlier `wake_at` and that of other sessions alone";
            equal(clause, wake_at, doc.wake_at);
        }
        let swept = SessionDoc { status, wake_at, ..doc };
        let clause = "beside `wake_at` a sweep turns `running` into `waiting` and changes nothing";
        same(clause, found.as_ref(), &swept);
        let holder = found.and_then(|doc| doc.lease.holder);
        equal("a session that a sweep has freed shows no holder", holder, None);
        let next = SessionDoc { revision: 2, ..swept };
        let clause = "a lease that a sweep has ended is lost";
        refused(clause, subject.commit(&grant, &next).await, "lease-lost");
        let opened = done("a freed session can be opened", subject.open(&next.id, "w").await);
        holds("the fencing token grows after a sweep", opened.grant.token > grant.token);
        let found = opened.doc.map(|doc| doc.status);
        equal("open returns the status that the sweep has set", found, Some(status));
    }
    let clause = "a sweep leaves a lease alone that has not ended";
    refused(clause, subject.open(&live.id, "w").await, "session-busy");
    let clause = "a sweep leaves a free session alone";
    same(clause, done(clause, store.load(&free.id).await).as_ref(), &free);
    let clause = "a session that was opened and never committed is gone or free after a sweep";
    holds(clause, done(clause, subject.open(&unused, "w").await).doc.is_none());
}

/// The time by the store's clock.
async fn clock(subject: &Subject, name: &str) -> Timestamp {
    let id = subject.id(name);
    done("a new session can be opened", subject.open_for(&id, "w", NO_TIME).await).grant.until
}

/// Sweeps from four tasks at once until nothing is left. Returns how many reports have each
/// of the subject's sessions.
async fn sweep_all(subject: &Subject) -> BTreeMap<SessionId, usize> {
    let mut reports = BTreeMap::new();
    loop {
        let sweeps: Vec<_> = (0..4)
            .map(|_| {
                let store = Arc::clone(subject.store());
                tokio::spawn(async move { store.sweep(3).await })
            })
            .collect();
        let mut freed = 0;
        for sweep in sweeps {
            let swept = done("any number of sweeps may run at once", sweep.await.expect("it ends"));
            holds("a sweep frees at most `limit` sessions", swept.freed.len() <= 3);
            freed += swept.freed.len();
            for id in swept.freed.into_iter().filter(|id| subject.is_mine(id)) {
                *reports.entry(id).or_insert(0) += 1;
            }
        }
        if freed == 0 {
            return reports;
        }
    }
}

/// A sweep deletes what has expired, unless the store does so by itself.
pub async fn expired_sessions_go(subject: &Subject) {
    let store = subject.store();
    let past = Timestamp::from_millis(1_000).expect("the time is within the range");
    let later = subject.sample("expires-later");
    let never = SessionDoc { expires_at: None, ..subject.sample("expires-never") };
    for doc in [&later, &never] {
        done("a document can be created", store.create(doc).await);
    }
    let expired: Vec<_> = (0..70)
        .map(|n| SessionDoc { expires_at: Some(past), ..subject.sample(&format!("expired-{n}")) })
        .collect();
    for doc in &expired {
        done("a document can be created", store.create(doc).await);
    }
    let swept = done("a sweep", store.sweep(1).await);
    if !subject.expires_by_itself {
        holds("a sweep counts what has expired", swept.expired >= expired.len() as u64);
        for doc in &expired {
            let clause = "a sweep deletes what has expired";
            holds(clause, done(clause, store.load(&doc.id).await).is_none());
        }
    }
    for doc in [&later, &never] {
        let clause = "a sweep deletes nothing that has not expired";
        same(clause, done(clause, store.load(&doc.id).await).as_ref(), doc);
    }
}
