use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Barrier;

use super::clause::{done, equal, holds, refused};
use super::sample::{far, time};
use super::{MINUTE, NO_TIME, SAMPLE_FLOW, SAMPLE_VERSION, Subject, whole};
use crate::id::SessionId;
use crate::session::{Delta, FlowRef, SessionDoc, Status};
use crate::store::{Commit, ListQuery, OpenRequest, SessionSummary};
use crate::time::Timestamp;

/// All that a query finds, page by page, without what others have stored.
async fn listed(subject: &Subject, query: &ListQuery) -> Vec<SessionSummary> {
    let mut query = ListQuery { limit: 7, ..query.clone() };
    let mut found = Vec::new();
    loop {
        let page = done("sessions can be listed", subject.store().list(&query).await);
        holds("a page has at most `limit` sessions", page.len() <= query.limit);
        let last = page.len() < query.limit;
        query.after = page.last().map(|summary| summary.id.clone());
        found.extend(page);
        if last {
            break;
        }
    }
    found.retain(|summary| subject.is_mine(&summary.id));
    found
}

/// Each filter keeps what it names, alone and with the others.
pub async fn list_filters(subject: &Subject) {
    let mut docs = Vec::new();
    let statuses = [Status::Running, Status::Waiting, Status::Completed, Status::Failed];
    for n in 0..32_u32 {
        let mut doc = subject.sample(&format!("filter-{n:02}"));
        doc.status = statuses[n as usize % 4];
        doc.version = n % 3;
        doc.owner = (n % 5 != 0).then(|| format!("owner{}", n % 2));
        doc.flow = FlowRef { id: format!("flow.{}", n % 2), digest: String::new() };
        doc.revision = u64::from(n);
        doc.wake_at = (n % 3 != 0).then(|| time(i64::from(n)));
        done("a document can be created", subject.store().create(&doc).await);
        docs.push(doc);
    }
    let flows = [None, Some("flow.0"), Some("flow.1"), Some("flow"), Some("FLOW.0"), Some("")];
    let owners = [None, Some("owner0"), Some("owner1"), Some("owner"), Some("$ne")];
    for (flow, owner) in flows.iter().flat_map(|flow| owners.map(|owner| (*flow, owner))) {
        for status in [None, Some(Status::Waiting), Some(Status::Superseded)] {
            for (below_version, due) in
                [(None, None), (Some(0), None), (Some(2), None), (None, Some(time(16)))]
            {
                let query = ListQuery {
                    flow: flow.map(Into::into),
                    owner: owner.map(Into::into),
                    status,
                    below_version,
                    due,
                    ..ListQuery::default()
                };
                let wanted: Vec<_> =
                    docs.iter().filter(|doc| fits(doc, &query)).map(SessionSummary::from).collect();
                let clause = format!("a list has what its filters name: {query:?}");
                equal(&clause, listed(subject, &query).await, wanted);
            }
        }
    }
}

fn fits(doc: &SessionDoc, query: &ListQuery) -> bool {
    query.flow.as_ref().is_none_or(|flow| doc.flow.id == *flow)
        && query.owner.as_ref().is_none_or(|owner| doc.owner.as_ref() == Some(owner))
        && query.status.is_none_or(|status| doc.status == status)
        && query.below_version.is_none_or(|version| doc.version < version)
        && query.due.is_none_or(|time| doc.wake_at.is_some_and(|at| at <= time))
}

/// Sessions are listed by the bytes of their ids, and a page begins after the one before.
pub async fn list_pages(subject: &Subject) {
    let store = subject.store();
    let owner = format!("owner of {}", subject.id("pages"));
    let mut ids = Vec::new();
    for name in
        ["b", "B", "a", "aa", "a-", "a+", "a/", "a0", "a:", "a=", "a@", "aA", "a_", "-", "="]
    {
        let mut doc = subject.sample(name);
        doc.owner = Some(owner.clone());
        done("a document can be created", store.create(&doc).await);
        ids.push(doc.id);
    }
    ids.sort();
    for limit in [1, 2, 4, ids.len(), 1000] {
        let mut found: Vec<SessionId> = Vec::new();
        loop {
            let after = found.last().cloned();
            let query =
                ListQuery { owner: Some(owner.clone()), after, limit, ..ListQuery::default() };
            let page = done("sessions can be listed", store.list(&query).await);
            let wanted = limit.min(ids.len() - found.len());
            equal("a page is full unless the list ends", page.len(), wanted);
            if page.is_empty() {
                break;
            }
            found.extend(page.into_iter().map(|summary| summary.id));
        }
        equal("sessions are listed by the bytes of their ids", found, ids.clone());
    }
}

/// The ids of the sessions that are due at a time.
pub(super) async fn due(subject: &Subject, at: Timestamp) -> Vec<SessionId> {
    let query = ListQuery { due: Some(at), ..ListQuery::default() };
    listed(subject, &query).await.into_iter().map(|summary| summary.id).collect()
}

/// A session is due from its time on, unless someone has a lease on it that lasts.
pub async fn due_sessions_are_listed(subject: &Subject) {
    let store = subject.store();
    let sample = |name: &str, wake_at| SessionDoc { wake_at, ..subject.sample(name) };
    let before = sample("due-a", Some(time(-1)));
    let on_time = sample("due-b", Some(time(0)));
    let after = sample("due-c", Some(time(1)));
    let never = sample("due-d", None);
    for doc in [&never, &after, &on_time, &before] {
        done("a document can be created", store.create(doc).await);
    }
    let unused = subject.id("due-unused");
    done("a new session can be opened", subject.open_for(&unused, "w", NO_TIME).await);
    let all = [&before.id, &on_time.id, &after.id].map(Clone::clone);
    for (at, wanted) in [(time(-2), 0), (time(-1), 1), (time(0), 2), (time(1), 3), (far(), 3)] {
        let clause = format!("sessions are due from their `wake_at` on, by ascending id ({at})");
        equal(&clause, due(subject, at).await, all[..wanted].to_vec());
    }
    let query = ListQuery { due: Some(time(0)), ..ListQuery::default() };
    let wanted: Vec<_> = [&before, &on_time].map(SessionSummary::from).into();
    equal("a list shows `wake_at`", listed(subject, &query).await, wanted);

    let others = vec![on_time.id.clone()];
    let both = vec![before.id.clone(), on_time.id.clone()];
    let clause = "a session with a lease that lasts is not due";
    let grant = done("a session can be opened", subject.open(&before.id, "w").await).grant;
    equal(clause, due(subject, time(0)).await, others.clone());
    done("a lease can be given back", store.release(&before.id, &grant).await);
    equal("a lease that was given back is over", due(subject, time(0)).await, both.clone());
    let opened = subject.open_for(&before.id, "w", NO_TIME).await;
    let grant = done("a session can be opened", opened).grant;
    let ended = "a session with a lease that has ended is due, freed by a sweep or not";
    equal(ended, due(subject, time(0)).await, both.clone());
    done("a renewal prolongs the lease", store.renew(&before.id, &grant, MINUTE).await);
    equal(clause, due(subject, time(0)).await, others.clone());

    let mut doc = before;
    let changes = [(None, false), (Some(time(0)), true), (None, true), (Some(time(1)), true)];
    for (wake_at, replace) in changes {
        let delta = Delta { wake_at: Some(wake_at), replace, ..Delta::default() };
        delta.apply(&mut doc);
        doc.wake_at = wake_at;
        doc.revision += 1;
        let grant = match doc.revision {
            2 => grant.clone(),
            _ => done("a free session can be opened", subject.open(&doc.id, "w").await).grant,
        };
        let commit = Commit { release: true, ..whole(&grant, &doc, &delta) };
        done("a commit under a lease", store.commit(&commit).await);
        let clause = format!("a commit sets `wake_at` to another time or none ({wake_at:?})");
        let wanted = if wake_at == Some(time(0)) { &both } else { &others };
        equal(&clause, &due(subject, time(0)).await, wanted);
        let found = done("a session can be loaded", store.load(&doc.id).await);
        equal(&clause, found.and_then(|found| found.wake_at), wake_at);
    }
    done("a session can be deleted", store.delete(&on_time.id).await);
    equal("a deleted session is not due", due(subject, time(0)).await, Vec::new());
}

/// Of several sweepers that have listed the same sessions, one gets each.
pub async fn due_sessions_are_claimed_once(subject: &Subject) {
    const CLAIMERS: usize = 4;
    let store = subject.store();
    let docs: Vec<_> = (0..20)
        .map(|n| SessionDoc { wake_at: Some(time(n)), ..subject.sample(&format!("claim-{n:02}")) })
        .collect();
    for doc in &docs {
        done("a document can be created", store.create(doc).await);
    }
    let ids: Vec<_> = docs.iter().map(|doc| doc.id.clone()).collect();
    let barrier = Arc::new(Barrier::new(CLAIMERS));
    let mut claimers = Vec::new();
    for n in 0..CLAIMERS {
        let found = due(subject, time(20)).await;
        equal("all sweepers may list the same sessions", &found, &ids);
        let (store, barrier) = (Arc::clone(store), Arc::clone(&barrier));
        claimers.push(tokio::spawn(async move {
            let holder = format!("sweeper-{n}");
            let mut claimed = Vec::new();
            for id in found {
                let (flow, version, ttl) = (SAMPLE_FLOW, SAMPLE_VERSION, MINUTE);
                let request = OpenRequest { id: &id, flow, version, holder: &holder, ttl };
                barrier.wait().await;
                match store.open(&request).await {
                    Ok(opened) => claimed.push((id, opened.grant)),
                    busy => drop(refused("who comes second gets Busy", busy, "session-busy")),
                }
            }
            claimed
        }));
    }
    let mut claimed = BTreeMap::new();
    for claimer in claimers {
        for (id, grant) in claimer.await.expect("it ends") {
            let other = claimed.insert(id, grant);
            equal("each due session is claimed once", other, None);
        }
    }
    equal("each due session is claimed", claimed.keys().cloned().collect(), ids);
    equal("what is claimed is not due", due(subject, time(20)).await, Vec::new());

    for doc in docs {
        let next = SessionDoc { revision: 2, wake_at: None, ..doc };
        done("a commit under a lease", subject.release(&claimed[&next.id], &next).await);
        let late = done("a free session can be opened", subject.open(&next.id, "late").await);
        let wake_at = late.doc.and_then(|doc| doc.wake_at);
        equal("who opens a session too late sees that it was woken", wake_at, None);
    }
}
