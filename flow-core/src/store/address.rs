use std::sync::Arc;

use super::SessionStore;
use super::memory::MemoryStore;
use crate::error::StoreError;

/// Opens the store that an address names, as command lines and configuration files do:
///
/// | address | store | feature |
/// | --- | --- | --- |
/// | `memory` | [`MemoryStore`] | |
/// | `sqlite:PATH` | [`SqliteStore`](super::sqlite::SqliteStore) | `sqlite` |
/// | `mongodb://..`, `mongodb+srv://..` | [`MongoStore`](super::mongodb::MongoStore); the database is the one in the address, else `flow` | `mongodb` |
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = flow_core::store::open("memory").await?;
/// assert_eq!(store.stats().commits, 0);
/// # Ok::<(), flow_core::Error>(())
/// # }).unwrap();
/// ```
///
/// # Errors
/// [`StoreError::Address`] when the address names no store or one that this program was
/// built without; else what the store says when it is opened. Neither holds the address of
/// a database, since that may hold a password.
pub async fn open(address: &str) -> Result<Arc<dyn SessionStore>, StoreError> {
    if address == "memory" {
        return Ok(Arc::new(MemoryStore::new()));
    }
    #[cfg(feature = "sqlite")]
    if let Some(path) = address.strip_prefix("sqlite:") {
        return Ok(Arc::new(super::sqlite::SqliteStore::open(path).await?));
    }
    #[cfg(feature = "mongodb")]
    if address.starts_with("mongodb://") || address.starts_with("mongodb+srv://") {
        let path = address.splitn(4, '/').nth(3).unwrap_or_default();
        let database = match path.split('?').next() {
            None | Some("") => "flow",
            Some(name) => name,
        };
        return Ok(Arc::new(super::mongodb::MongoStore::connect(address, database).await?));
    }
    let scheme = address.split(':').next().unwrap_or_default();
    Err(StoreError::Address { scheme: scheme.chars().take(32).collect() })
}
