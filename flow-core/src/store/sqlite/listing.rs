use rusqlite::{Connection, ToSql};

use super::queries::{optional_timestamp, parse_status, session_id, timestamp};
use super::worker::Failure;
use crate::error::StoreError;
use crate::id::SessionId;
use crate::session::Status;
use crate::store::{ListQuery, SessionSummary};
use crate::time::Timestamp;

/// The statement that lists, for the filters of a query.
fn list_sql(query: &ListQuery) -> String {
    let mut sql = String::from(
        "SELECT id, flow, version, revision, status, current_step, owner, wake_at, created_at, \
         updated_at FROM sessions",
    );
    if query.due.is_some() {
        // Left to itself SQLite may read all sessions in the order of their ids, to find the
        // few that are due.
        sql.push_str(" INDEXED BY sessions_by_wake");
    }
    sql.push_str(" WHERE id > :after AND status IS NOT NULL");
    let filters = [
        (query.flow.is_some(), " AND flow = :flow"),
        (query.owner.is_some(), " AND owner = :owner"),
        (query.status.is_some(), " AND status = :status"),
        (query.below_version.is_some(), " AND version < :version"),
        (query.due.is_some(), " AND wake_at <= :due AND (holder IS NULL OR lease_until <= :now)"),
    ];
    for (_, condition) in filters.iter().filter(|(wanted, _)| *wanted) {
        sql.push_str(condition);
    }
    sql.push_str(" ORDER BY id LIMIT :limit");
    sql
}

pub(super) fn list(conn: &Connection, query: &ListQuery) -> Result<Vec<SessionSummary>, Failure> {
    let after = query.after.as_ref().map_or("", SessionId::as_str);
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let status = query.status.map(Status::as_str);
    let due = query.due.map(Timestamp::as_millis);
    let now = due.map(|_| Timestamp::now().as_millis());
    let mut named: Vec<(&str, &dyn ToSql)> = vec![(":after", &after), (":limit", &limit)];
    let optional: [(&str, Option<&dyn ToSql>); 6] = [
        (":flow", query.flow.as_ref().map(|v| v as _)),
        (":owner", query.owner.as_ref().map(|v| v as _)),
        (":status", status.as_ref().map(|v| v as _)),
        (":version", query.below_version.as_ref().map(|v| v as _)),
        (":due", due.as_ref().map(|v| v as _)),
        (":now", now.as_ref().map(|v| v as _)),
    ];
    named.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    let mut statement = conn.prepare_cached(&list_sql(query))?;
    let mut rows = statement.query(named.as_slice())?;
    let mut summaries = Vec::new();
    while let Some(row) = rows.next()? {
        let id = session_id(row.get("id")?)?;
        let status = parse_status(&row.get::<_, String>("status")?)
            .map_err(|reason| StoreError::Corrupt { session: id.clone(), reason })?;
        summaries.push(SessionSummary {
            id,
            flow: row.get("flow")?,
            version: row.get("version")?,
            revision: row.get("revision")?,
            status,
            current_step: row.get("current_step")?,
            owner: row.get("owner")?,
            wake_at: optional_timestamp(row, "wake_at")?,
            created_at: timestamp(row.get("created_at")?)?,
            updated_at: timestamp(row.get("updated_at")?)?,
        });
    }
    Ok(summaries)
}

/// A statement for each set of filters, for the test that looks at their plans.
#[cfg(all(test, feature = "testing"))]
pub(super) fn statements() -> impl Iterator<Item = String> {
    let some = || Some(String::new());
    (0..32_u8).map(move |filters| {
        list_sql(&ListQuery {
            flow: some().filter(|_| filters & 1 != 0),
            owner: some().filter(|_| filters & 2 != 0),
            status: Some(Status::Running).filter(|_| filters & 4 != 0),
            below_version: Some(1).filter(|_| filters & 8 != 0),
            due: Some(Timestamp::now()).filter(|_| filters & 16 != 0),
            ..ListQuery::default()
        })
    })
}
