//! The contract of [`SessionStore`] as a set of checks that every store has to pass.
//!
//! ```
//! mod my_store {
//!     # use flow_core::store::memory::MemoryStore as MyStore;
//!     flow_core::testing::store_conformance!(MyStore::new());
//! }
//! ```
//!
//! makes one `#[tokio::test]` of each check. The expression may `.await`; it is evaluated
//! once for each test, and nothing else may use what it makes meanwhile. It gives a store
//! or, where there is more to say, a [`Subject`]. The crate with the tests needs `tokio` as
//! a (development) dependency, and nothing else.
//!
//! [`run`] makes all checks one after the other, for a program that has no test harness;
//! each check can also be called by itself. A check panics when a clause of the contract
//! does not hold, and says which.

mod archive;
mod checkpoints;
mod clause;
mod document;
mod lease;
mod listing;
mod sample;
mod sweeping;

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

pub use self::archive::{
    archive_is_read_in_order, delete_takes_everything, failed_commit_leaves_no_archive,
    superseded_document_is_kept,
};
pub use self::checkpoints::{
    checkpoints_are_kept, checkpoints_go_with_the_session, checkpoints_read_their_archive,
    failed_commit_leaves_no_checkpoint,
};
pub use self::document::{
    counters_count, create_makes_only_new_sessions, delta_equals_document, every_value_reads_back,
    first_commit_reads_back, format_1_reads_back, revision_conflict_changes_nothing,
    size_limit_is_taken, times_read_back, uncommitted_is_invisible,
};
pub use self::lease::{
    busy_names_the_holder, deleted_stays_deleted, foreign_documents_are_refused,
    lost_lease_is_lost, racing_openers_have_one_winner, recreated_session_is_another,
    release_leaves_no_trace, renewal_prolongs, token_grows,
};
pub use self::listing::{
    due_sessions_are_claimed_once, due_sessions_are_listed, list_filters, list_pages,
};
pub use self::sample::{SAMPLE_FLOW, SAMPLE_VERSION, odd_values, sample_doc};
pub use self::sweeping::{expired_sessions_go, sweep_frees_each_session_once};
use crate::error::StoreError;
use crate::id::SessionId;
use crate::session::{Delta, SessionDoc};
use crate::store::{Commit, Grant, OpenRequest, Opened, SessionStore};

/// A document as format 1 is written, with every field in use.
pub const FORMAT_1: &str = include_str!("../session-format-1.json");

/// A store that is checked.
pub struct Subject {
    store: Arc<dyn SessionStore>,
    prefix: String,
    expires_by_itself: bool,
    _kept: Vec<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl<S: SessionStore> From<S> for Subject {
    fn from(store: S) -> Self {
        Self::new(Arc::new(store))
    }
}

impl Subject {
    /// A store to check.
    pub fn new(store: Arc<dyn SessionStore>) -> Self {
        // Ids of their own let the checks be made one after the other on one database.
        let prefix = Uuid::now_v7().simple().to_string();
        Self { store, prefix, expires_by_itself: false, _kept: Vec::new() }
    }

    /// The store deletes expired sessions by itself, at a time of its own choice, so a sweep
    /// need not.
    #[must_use]
    pub fn expires_by_itself(self) -> Self {
        Self { expires_by_itself: true, ..self }
    }

    /// Keeps something until the checks are done: a temporary folder, a server.
    #[must_use]
    pub fn keep(mut self, kept: impl Any + Send + Sync) -> Self {
        self._kept.push(Box::new(kept));
        self
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn SessionStore> {
        &self.store
    }

    fn id(&self, name: &str) -> SessionId {
        let text = format!("{}-{name}", self.prefix);
        SessionId::new(text).expect("the checks use names that are ids")
    }

    fn sample(&self, name: &str) -> SessionDoc {
        sample_doc(&self.id(name))
    }

    fn is_mine(&self, id: &SessionId) -> bool {
        id.as_str().starts_with(&self.prefix)
    }

    async fn open(&self, id: &SessionId, holder: &str) -> Result<Opened, StoreError> {
        self.open_for(id, holder, MINUTE).await
    }

    async fn open_for(
        &self,
        id: &SessionId,
        holder: &str,
        ttl: Duration,
    ) -> Result<Opened, StoreError> {
        let (flow, version) = (SAMPLE_FLOW, SAMPLE_VERSION);
        self.store.open(&OpenRequest { id, flow, version, holder, ttl }).await
    }

    /// Commits a document as a whole, on the revision before its own.
    async fn commit(&self, grant: &Grant, doc: &SessionDoc) -> Result<(), StoreError> {
        self.store.commit(&whole(grant, doc, &Delta::replace())).await
    }

    async fn release(&self, grant: &Grant, doc: &SessionDoc) -> Result<(), StoreError> {
        let delta = Delta::replace();
        self.store.commit(&Commit { release: true, ..whole(grant, doc, &delta) }).await
    }
}

/// Longer than any check takes.
const MINUTE: Duration = Duration::from_secs(60);

/// A lease of this length has ended when it begins.
const NO_TIME: Duration = Duration::ZERO;

fn whole<'a>(grant: &'a Grant, doc: &'a SessionDoc, delta: &'a Delta) -> Commit<'a> {
    let base = doc.revision - 1;
    let (release, checkpoints) = (false, 0);
    Commit { grant, base, doc, delta, archive: &[], supersede: None, release, checkpoints }
}

/// One check.
#[derive(Clone, Copy)]
pub struct Check {
    /// The name of the function and of the test.
    pub name: &'static str,
    run: for<'a> fn(&'a Subject) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.name).finish()
    }
}

impl Check {
    /// Makes the check.
    ///
    /// # Panics
    /// When a clause of the contract does not hold.
    pub async fn run(&self, subject: &Subject) {
        (self.run)(subject).await;
    }
}

/// Makes one check after the other, each on a store that `make` gives.
///
/// ```
/// use flow_core::store::memory::MemoryStore;
/// use flow_core::testing::conformance;
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// conformance::run(async || MemoryStore::new()).await;
/// # });
/// ```
///
/// # Panics
/// When a clause of the contract does not hold.
pub async fn run<F, S>(make: F)
where
    F: AsyncFn() -> S,
    S: Into<Subject>,
{
    for check in CHECKS {
        check.run(&make().await.into()).await;
    }
}

/// All checks.
pub const CHECKS: &[Check] = crate::__store_conformance!(@each checks []);

/// One test for each check of the [conformance suite](self).
#[doc(hidden)]
#[macro_export]
macro_rules! __store_conformance {
    (@each $what:ident $with:tt) => {
        $crate::__store_conformance! { @$what $with [
            archive_is_read_in_order
            busy_names_the_holder
            checkpoints_are_kept
            checkpoints_go_with_the_session
            checkpoints_read_their_archive
            counters_count
            create_makes_only_new_sessions
            delete_takes_everything
            deleted_stays_deleted
            delta_equals_document
            due_sessions_are_claimed_once
            due_sessions_are_listed
            every_value_reads_back
            expired_sessions_go
            failed_commit_leaves_no_archive
            failed_commit_leaves_no_checkpoint
            first_commit_reads_back
            foreign_documents_are_refused
            format_1_reads_back
            list_filters
            list_pages
            lost_lease_is_lost
            racing_openers_have_one_winner
            recreated_session_is_another
            release_leaves_no_trace
            renewal_prolongs
            revision_conflict_changes_nothing
            size_limit_is_taken
            superseded_document_is_kept
            sweep_frees_each_session_once
            times_read_back
            token_grows
            uncommitted_is_invisible
        ] }
    };
    (@checks [] [$($name:ident)*]) => {
        &[$(Check { name: stringify!($name), run: |subject| Box::pin($name(subject)) }),*]
    };
    (@tests [$make:expr] [$($name:ident)*]) => {
        $(
            #[::tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $name() {
                let subject = $crate::testing::conformance::Subject::from($make);
                $crate::testing::conformance::$name(&subject).await;
            }
        )*
    };
    ($make:expr) => {
        $crate::__store_conformance! { @each tests [$make] }
    };
}
