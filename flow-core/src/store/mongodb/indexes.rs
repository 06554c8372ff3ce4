//! The indexes that the store needs: made when they are missing, left alone when they are
//! as they should be.

use futures_util::TryStreamExt as _;
use mongodb::bson::{Document, doc};
use mongodb::options::IndexOptions;
use mongodb::{Collection, Database, IndexModel};

use super::{codec, failure};
use crate::error::StoreError;

const OPERATION: &str = "prepare the indexes";
const NAMESPACE_NOT_FOUND: i32 = 26;
const INDEX_OPTIONS_CONFLICT: i32 = 85;

/// Makes what is missing in the collections.
pub(super) async fn ensure(
    database: &Database,
    sessions: &Collection<Document>,
    archive: &Collection<Document>,
    checkpoints: &Collection<Document>,
) -> Result<(), StoreError> {
    let found = indexes(sessions).await?;
    let full = IndexOptions::default();
    let sparse = IndexOptions::builder().sparse(true).build();
    let wanted = [
        (doc! { "flow.id": 1, "_id": 1 }, full.clone()),
        (doc! { "owner": 1, "_id": 1 }, full.clone()),
        (doc! { "lease.until": 1 }, full.clone()),
        (timers(), sparse),
    ];
    add(sessions, &found, wanted.into()).await?;
    expire(database, sessions, &found).await?;
    let entries = (doc! { "session": 1, "seq": 1 }, full.clone());
    add(archive, &indexes(archive).await?, vec![entries]).await?;
    let revisions = (doc! { "session": 1, "revision": 1 }, full);
    add(checkpoints, &indexes(checkpoints).await?, vec![revisions]).await
}

/// The keys of the index by which due sessions are found.
pub(super) fn timers() -> Document {
    doc! { codec::WAKE_AT: 1 }
}

async fn add(
    collection: &Collection<Document>,
    found: &[IndexModel],
    wanted: Vec<(Document, IndexOptions)>,
) -> Result<(), StoreError> {
    let missing =
        wanted.into_iter().filter(|(keys, _)| !found.iter().any(|index| same(&index.keys, keys)));
    let models: Vec<_> = missing
        .map(|(keys, options)| IndexModel::builder().keys(keys).options(options).build())
        .collect();
    if models.is_empty() {
        return Ok(());
    }
    collection.create_indexes(models).await.map_err(|e| failure::driver(OPERATION, e))?;
    Ok(())
}

/// Sees to it that the server deletes a document when its `expires_at` is reached.
async fn expire(
    database: &Database,
    sessions: &Collection<Document>,
    found: &[IndexModel],
) -> Result<(), StoreError> {
    let keys = doc! { "expires_at": 1 };
    if let Some(index) = found.iter().find(|index| same(&index.keys, &keys)) {
        if deletes_at_once(index) {
            return Ok(());
        }
    } else {
        let options = IndexOptions::builder().expire_after(std::time::Duration::ZERO).build();
        let model = IndexModel::builder().keys(keys.clone()).options(options).build();
        match sessions.create_index(model).await {
            Ok(_) => return Ok(()),
            // Another process was faster, with another lifetime.
            Err(e) if failure::code(&e) == Some(INDEX_OPTIONS_CONFLICT) => {}
            Err(e) => return Err(failure::driver(OPERATION, e)),
        }
    }
    let change = doc! {
        "collMod": sessions.name(),
        "index": { "keyPattern": &keys, "expireAfterSeconds": 0_i64 },
    };
    let changed = database.run_command(change).await;
    let now = indexes(sessions).await?;
    if now.iter().any(|index| same(&index.keys, &keys) && deletes_at_once(index)) {
        return Ok(());
    }
    match changed {
        Err(e)
            if matches!(failure::driver(OPERATION, e.clone()), StoreError::Unavailable { .. }) =>
        {
            Err(failure::driver(OPERATION, e))
        }
        _ => Err(failure::refused(
            OPERATION,
            format!(
                "the collection `{}` has an index on `expires_at` that does not delete expired sessions and \
                 cannot be changed; drop that index, it is then made anew",
                sessions.name()
            ),
        )),
    }
}

fn deletes_at_once(index: &IndexModel) -> bool {
    let lifetime = index.options.as_ref().and_then(|options| options.expire_after);
    lifetime.is_some_and(|lifetime| lifetime.is_zero())
}

/// Whether two indexes have the same keys. Servers answer with other number types than
/// they were sent.
fn same(left: &Document, right: &Document) -> bool {
    fn normal(keys: &Document) -> impl Iterator<Item = (&String, Option<i64>)> {
        keys.iter().map(|(name, order)| (name, codec::integer(order)))
    }
    normal(left).eq(normal(right))
}

async fn indexes(collection: &Collection<Document>) -> Result<Vec<IndexModel>, StoreError> {
    match collection.list_indexes().await {
        Ok(cursor) => cursor.try_collect().await.map_err(|e| failure::driver(OPERATION, e)),
        Err(e) if failure::code(&e) == Some(NAMESPACE_NOT_FOUND) => Ok(Vec::new()),
        Err(e) => Err(failure::driver(OPERATION, e)),
    }
}
