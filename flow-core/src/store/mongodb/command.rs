//! The filters and updates that the store sends.
//!
//! Text of a caller is only ever a value (in a pipeline inside `$literal`) or a key that
//! [`codec::key`] has escaped, never an operator or a field path.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};

use super::{checkpoints, codec};
use crate::id::SessionId;
use crate::session::{Appended, Delta, FORMAT, Lease, MemoryDelta};
use crate::store::{Commit, Grant, ListQuery, OpenRequest};

/// Longer leases are cut to this, so that their end stays a date.
const LONGEST_LEASE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Marks a session that was opened and never committed.
pub(super) const UNCOMMITTED: &str = "uncommitted";

/// Keeps a filter to committed documents.
pub(super) fn committed(mut filter: Document) -> Document {
    filter.insert(UNCOMMITTED, Bson::Null);
    filter
}

/// Keeps a filter to sessions that were never committed.
pub(super) fn uncommitted(mut filter: Document) -> Document {
    filter.insert(UNCOMMITTED, true);
    filter
}

/// The time at which a lease of `ttl` that begins now ends, by the server's clock.
fn lease_end(ttl: Duration) -> Document {
    let millis = i64::try_from(ttl.min(LONGEST_LEASE).as_millis()).unwrap_or(i64::MAX);
    doc! { "$dateAdd": { "startDate": "$$NOW", "unit": "millisecond", "amount": millis } }
}

/// Takes the lease if it is free and the session one that the caller may have, and changes
/// nothing otherwise. `mark` is then the lease's own, by which the caller knows that it won.
///
/// The condition is part of the update since a filter of an upsert cannot hold `$expr`,
/// and only `$expr` can compare with the server's clock.
pub(super) fn acquire(request: &OpenRequest<'_>, mark: &str) -> Vec<Document> {
    let literal = |text: &str| doc! { "$literal": text };
    // Only a document that this very upsert makes has no flow.
    let new = doc! { "$eq": [{ "$type": "$flow" }, "missing"] };
    let uncommitted = doc! { "$eq": ["$uncommitted", true] };
    let ours = doc! { "$and": [
        { "$eq": ["$flow.id", literal(request.flow)] },
        { "$lte": ["$version", i64::from(request.version)] },
        { "$lte": ["$format", i64::from(FORMAT)] },
    ] };
    let free = free_now();
    let next_token = doc! { "$add": [{ "$ifNull": ["$lease.token", 0_i64] }, 1_i64] };
    let lease = doc! {
        "holder": literal(request.holder),
        // Not below the time in milliseconds, so that tokens go on growing when a session
        // is made again after it was deleted, and fence off workers of the former one.
        "token": { "$max": [next_token, { "$toLong": "$$NOW" }] },
        "until": lease_end(request.ttl),
        "mark": mark,
    };
    let taken = doc! { "$cond": [{ "$and": [free, { "$or": [&new, &uncommitted, ours] }] }, lease, "$lease"] };
    let placeholder = doc! { "$and": [{ "$eq": ["$lease.mark", mark] }, &uncommitted] };
    let or_kept = |value: Bson, field: &str| doc! { "$cond": [&placeholder, value, field] };
    vec![
        doc! { "$set": {
            "lease": taken,
            "uncommitted": { "$cond": [new, true, "$uncommitted"] },
        } },
        doc! { "$set": {
            "flow": or_kept(doc! { "id": literal(request.flow) }.into(), "$flow"),
            "version": or_kept(i64::from(request.version).into(), "$version"),
            "format": or_kept(i64::from(FORMAT).into(), "$format"),
            "revision": { "$ifNull": ["$revision", 0_i64] },
        } },
    ]
}

/// Whether anyone may take the lease, by the server's clock.
fn free_now() -> Document {
    doc! { "$lte": [{ "$ifNull": ["$lease.until", "$$NOW"] }, "$$NOW"] }
}

/// Prolongs the lease from now.
pub(super) fn renew(ttl: Duration) -> Vec<Document> {
    vec![doc! { "$set": { "lease.until": lease_end(ttl) } }]
}

/// A session whose lease is the given one.
pub(super) fn held(id: &SessionId, grant: &Grant) -> Document {
    doc! {
        "_id": id.as_str(),
        "lease.token": codec::token(grant.token),
        "lease.holder": &grant.holder,
    }
}

/// A free lease that keeps its token.
pub(super) fn free_lease(token: u64) -> Document {
    codec::lease(&Lease { holder: None, token, until: None })
}

/// Sessions whose lease has ended without being given back. The first condition is what
/// the index is used for.
pub(super) fn abandoned() -> Document {
    doc! {
        "lease.until": { "$gt": DateTime::from_millis(0) },
        "$expr": { "$lte": ["$lease.until", "$$NOW"] },
    }
}

/// Frees a lease; a session that was at work then waits, and is due.
pub(super) fn free(token: i64) -> Vec<Document> {
    let at_work = doc! { "$eq": ["$status", "running"] };
    // `$min` passes over a field that is missing.
    let due = doc! { "$min": ["$wake_at", "$$NOW"] };
    vec![doc! { "$set": {
        "lease": { "$literal": { "holder": Bson::Null, "token": token, "until": Bson::Null } },
        "status": { "$cond": [&at_work, "waiting", "$status"] },
        codec::WAKE_AT: { "$cond": [at_work, due, "$wake_at"] },
    } }]
}

/// The documents that belong to a session: those that it has superseded (`id~1`) and those
/// of its children (`id~c1-0`). No other id begins like them.
pub(super) fn family(field: &str, id: &SessionId) -> Document {
    doc! { field: { "$gte": format!("{id}~"), "$lt": format!("{id}\u{7f}") } }
}

/// The filter of a list.
pub(super) fn listed(query: &ListQuery) -> Document {
    let mut filter = Document::new();
    if let Some(after) = &query.after {
        filter.insert("_id", doc! { "$gt": after.as_str() });
    }
    if let Some(flow) = &query.flow {
        filter.insert("flow.id", flow);
    }
    if let Some(status) = query.status {
        filter.insert("status", status.as_str());
    }
    if let Some(owner) = &query.owner {
        filter.insert("owner", owner);
    }
    if let Some(version) = query.below_version {
        filter.insert("version", doc! { "$lt": i64::from(version) });
    }
    if let Some(time) = query.due {
        filter.insert(codec::WAKE_AT, doc! { "$lte": codec::date(time) });
        filter.insert("$expr", free_now());
    }
    committed(filter)
}

/// What a commit sends.
pub(super) enum Change {
    /// The parts that change.
    Parts(Document),
    /// The whole document; the lease that is stored stays.
    Whole(Vec<Document>),
}

/// The change that a commit makes, with the id of its checkpoint if it leaves one.
pub(super) fn change(
    commit: &Commit<'_>,
    checkpoint: Option<&str>,
) -> Result<Change, serde_json::Error> {
    let keep = i32::try_from(commit.checkpoints).unwrap_or(i32::MAX);
    if commit.delta.replace || commit.base == 0 {
        let mut whole = codec::document(commit.doc, Bson::Null)?;
        whole.remove("lease");
        let lease: Bson = if commit.release {
            doc! { "$literal": free_lease(commit.grant.token) }.into()
        } else {
            "$lease".into()
        };
        let listed: Bson = match checkpoint {
            Some(id) => {
                let before = doc! { "$ifNull": ["$checkpoints", []] };
                let all = doc! { "$concatArrays": [before, [id]] };
                doc! { "$slice": [all, -keep] }.into()
            }
            // A field that is missing stays so.
            None => "$checkpoints".into(),
        };
        let own = doc! { "lease": lease, checkpoints::LISTED: listed };
        let merged = doc! { "$mergeObjects": [{ "$literal": whole }, own] };
        return Ok(Change::Whole(vec![doc! { "$replaceWith": merged }]));
    }
    let mut update = parts(commit.delta)?;
    if let Some(id) = checkpoint {
        let push = update.entry("$push").or_insert_with(|| Document::new().into());
        if let Some(push) = push.as_document_mut() {
            push.insert(checkpoints::LISTED, doc! { "$each": [id], "$slice": -keep });
        }
    }
    let set = update.entry("$set").or_insert_with(|| Document::new().into());
    if let Some(set) = set.as_document_mut() {
        set.insert("revision", codec::token(commit.doc.revision));
        if commit.release {
            set.insert("lease", free_lease(commit.grant.token));
        }
    }
    Ok(Change::Parts(update))
}

fn parts(delta: &Delta) -> Result<Document, serde_json::Error> {
    // By name, so that a part that is added to `Delta` is not forgotten here.
    let Delta {
        replace: _,
        status,
        flow,
        current_step,
        visit,
        state,
        steps,
        memory,
        context,
        path,
        turns,
        edges,
        effects,
        ended,
        waiting,
        wake_at,
        gates,
        error,
        usage,
        next_message,
        archive,
        moves,
        updated_at,
        expires_at,
    } = delta;
    let mut set = Document::new();
    let mut push = Document::new();
    if let Some(status) = status {
        set.insert("status", status.as_str());
    }
    if let Some(flow) = flow {
        set.insert("flow", codec::part(flow)?);
    }
    if let Some(step) = current_step {
        set.insert("current_step", step);
    }
    if let Some(visit) = visit {
        set.insert("visit", codec::part(visit)?);
    }
    if let Some(state) = state {
        set.insert("state", codec::part(state)?);
    }
    for (step, fields) in steps {
        set.insert(format!("steps.{}", codec::key(step)), codec::part(fields)?);
    }
    for (namespace, MemoryDelta { messages, summary, start }) in memory {
        let place = format!("memory.{}", codec::key(namespace));
        let items = codec::messages(&messages.push)?;
        push.insert(format!("{place}.messages"), each(items, messages));
        if let Some(summary) = summary {
            set.insert(format!("{place}.summary"), codec::part(summary)?);
        }
        if let Some(start) = start {
            set.insert(format!("{place}.start"), codec::part(start)?);
        }
    }
    if let Some(context) = context {
        set.insert("context", codec::part(context)?);
    }
    if !path.is_empty() {
        push.insert("path", each(codec::path(&path.push)?, path));
    }
    if !turns.is_empty() {
        push.insert("turns", each(codec::turns(&turns.push)?, turns));
    }
    if let Some(edges) = edges {
        set.insert("edges", codec::part(edges)?);
    }
    if let Some(effects) = effects {
        set.insert("effects", codec::effects(effects)?);
    }
    if let Some(ended) = ended {
        set.insert("ended", codec::part(ended)?);
    }
    if let Some(waiting) = waiting {
        set.insert("waiting", codec::part(waiting)?);
    }
    if let Some(error) = error {
        set.insert("error", codec::part(error)?);
    }
    if let Some(usage) = usage {
        set.insert("usage", codec::part(usage)?);
    }
    if let Some(next) = next_message {
        set.insert("next_message", codec::part(next)?);
    }
    if let Some(archive) = archive {
        set.insert("archive", codec::part(archive)?);
    }
    if let Some(moves) = moves {
        set.insert("moves", codec::part(moves)?);
    }
    if let Some(at) = *updated_at {
        set.insert("updated_at", codec::date(at));
    }
    if let Some(at) = *expires_at {
        set.insert("expires_at", codec::optional_date(at));
    }
    let mut unset = Document::new();
    if let Some(at) = *wake_at {
        match at {
            Some(at) => set.insert(codec::WAKE_AT, codec::date(at)),
            None => unset.insert(codec::WAKE_AT, ""),
        };
    }
    if let Some(gates) = gates {
        match gates.is_empty() {
            false => set.insert("gates", codec::part(gates)?),
            true => unset.insert("gates", ""),
        };
    }
    let mut update = doc! { "$set": set };
    if !unset.is_empty() {
        update.insert("$unset", unset);
    }
    if !push.is_empty() {
        update.insert("$push", push);
    }
    Ok(update)
}

fn each<T>(items: Bson, appended: &Appended<T>) -> Document {
    let mut each = doc! { "$each": items };
    // No document holds as many items as an i32 can count.
    if let Ok(keep) = i32::try_from(appended.keep) {
        each.insert("$slice", -keep);
    }
    each
}
