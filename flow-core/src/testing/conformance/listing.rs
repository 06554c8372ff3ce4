use super::Subject;
use super::clause::{done, equal, holds};
use crate::id::SessionId;
use crate::session::{FlowRef, SessionDoc, Status};
use crate::store::{ListQuery, SessionSummary};

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
        done("a document can be created", subject.store().create(&doc).await);
        docs.push(doc);
    }
    let flows = [None, Some("flow.0"), Some("flow.1"), Some("flow"), Some("FLOW.0"), Some("")];
    let owners = [None, Some("owner0"), Some("owner1"), Some("owner"), Some("$ne")];
    for (flow, owner) in flows.iter().flat_map(|flow| owners.map(|owner| (*flow, owner))) {
        for status in [None, Some(Status::Waiting), Some(Status::Superseded)] {
            for below_version in [None, Some(0), Some(2)] {
                let query = ListQuery {
                    flow: flow.map(Into::into),
                    owner: owner.map(Into::into),
                    status,
                    below_version,
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
