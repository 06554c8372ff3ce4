//! Batches: one flow for each of many items.

mod report;
mod run;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

pub use report::{BatchReport, ItemReport};

use self::report::BatchRecord;
use self::run::Batch;
use super::call::{link, too_deep};
use super::{ActionCx, FlowMeta, Scope, registry};
use crate::effect::Begun;
use crate::error::{EffectError, Error, Result, SessionError, StepError, StoreError};
use crate::json;
use crate::session::{EffectKind, Relation};
use crate::tool::ToolReplay;

/// How many items of a batch run at the same time, unless [`Concurrent::limit`] says otherwise.
pub const BATCH_CONCURRENCY: usize = 8;

/// How often an item of a batch is tried again, unless [`Concurrent::retries`] says otherwise.
pub const BATCH_RETRIES: u32 = 2;

/// The wait before an item is tried again for the first time. It doubles each time.
pub const ITEM_FIRST_WAIT: Duration = Duration::from_millis(500);

/// The longest wait before an item is tried again.
pub const ITEM_LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How long an item waits for somebody else who works on its session, such as a worker that has
/// died and whose lease is not over. That is no attempt.
pub const ITEM_BUSY_PATIENCE: Duration = Duration::from_secs(60);

/// The most bytes of the reason or the error of an item in a report. The rest is in the item's
/// session.
pub const ITEM_TEXT_BYTES: usize = 256;

/// With [`Durability::Effect`](crate::engine::Durability::Effect) a batch records at most so
/// often which of its items are over.
pub const BATCH_RECORDS: usize = 20;

/// The fewest items that come to an end between two such records.
pub const BATCH_RECORD_ITEMS: usize = 32;

impl<F: FlowMeta> ActionCx<'_, F> {
    /// Runs a flow for each of some items, several at the same time: see [`Concurrent`].
    pub fn concurrent<T: Serialize>(
        &self,
        items: impl IntoIterator<Item = T>,
    ) -> Concurrent<'_, T> {
        Concurrent {
            scope: &*self.scope,
            items: items.into_iter().collect(),
            limit: BATCH_CONCURRENCY,
            retries: BATCH_RETRIES,
        }
    }

    /// The state in which the flow of an item has left its session: what it has worked out.
    ///
    /// It is read from the store and not journaled. That of an item which has ended stays as it
    /// is; one that waits or has failed may go on.
    ///
    /// # Errors
    /// `session-not-found` when the session was deleted, `unreadable-field` when the state does
    /// not fit the type, and those of the store.
    pub fn item_state<G: FlowMeta>(
        &self,
        item: &ItemReport,
    ) -> impl Future<Output = Result<G::State>> + Send {
        let children = self.scope.children.clone();
        let session = item.session.clone();
        async move {
            let children = children.ok_or_else(no_engine)?;
            let doc = children
                .load(&session)
                .await?
                .ok_or_else(|| Error::from(StoreError::NotFound { session: session.clone() }))?;
            let state = registry::read::<G::State>(doc.state).map_err(|misfit| {
                Error::from(SessionError::Unreadable {
                    session: session.to_string(),
                    version: doc.version,
                    path: format!("state.{}", misfit.path),
                    reason: misfit.reason,
                })
            })?;
            Ok(state)
        }
    }
}

/// A batch: a flow that runs for each of some items, in a session of its own.
///
/// ```
/// use flow_core::prelude::*;
///
/// /// Sends one parcel. Its state is what it is given, and what it comes to.
/// #[flow(id = "parcel", steps(Send), state = Parcel)]
/// #[derive(Clone)]
/// struct Sending;
///
/// impl Flow for Sending {}
///
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Parcel {
///     address: String,
///     tracking: Option<String>,
/// }
///
/// #[step(action, next(end))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Send;
///
/// impl Action for Send {
///     type Flow = Sending;
///
///     async fn run(&mut self, cx: &mut ActionCx<'_, Sending>) -> Result<SendNext> {
///         let address = cx.state.address.clone();
///         let tracking = cx.run("send", || async move { hand_over(&address) }).await?;
///         cx.state.tracking = Some(tracking);
///         Ok(SendNext::End("sent".into()))
///     }
/// }
///
/// /// Sends many.
/// #[flow(id = "shift", steps(Dispatch), state = Shift)]
/// #[derive(Clone)]
/// struct Shifts;
///
/// impl Flow for Shifts {}
///
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Shift {
///     addresses: Vec<String>,
/// }
///
/// #[step(action, next(end))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Dispatch;
///
/// impl Action for Dispatch {
///     type Flow = Shifts;
///
///     async fn run(&mut self, cx: &mut ActionCx<'_, Shifts>) -> Result<DispatchNext> {
///         let report = cx
///             .concurrent(&cx.state.addresses)
///             .limit(4)
///             .each::<Sending>(|address| Parcel { address: address.to_string(), tracking: None })
///             .await?;
///         for (item, error) in report.failures() {
///             let address = &cx.state.addresses[item.index];
///             let text = format!("{address}: {} (session {})", error.message, item.session);
///             cx.say(text);
///         }
///         Ok(DispatchNext::End(format!("{} of {} sent", report.ended, report.items.len())))
///     }
/// }
/// # fn hand_over(address: &str) -> std::io::Result<String> { Ok(format!("to {address}")) }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let engine = flow_core::Engine::builder()
///     .store(flow_core::store::memory::MemoryStore::new())
///     .flow(Shifts)
///     .flow(Sending) // the flow of the items is registered too
///     .build()?;
/// # let turn = flow_core::TurnRequest::new(SessionId::new("monday")?);
/// # let outcome = engine.turn::<Shifts>(turn).await?.outcome;
/// # assert_eq!(outcome, flow_core::outcome::Outcome::Ended { reason: "0 of 0 sent".into() });
/// # Ok(())
/// # }
/// ```
///
/// # Sessions
///
/// Each item has a session, whose id is made of the session of the batch, the visit, the items
/// and the item's place. It begins with the state that is made for the item, has the owner and
/// the labels of the batch's session and names it as its [`parent`](crate::session::Parent).
/// [`ItemReport::session`] tells the id, and [`ActionCx::item_state`] reads what the item has
/// worked out. The sessions stay until the session of the batch is deleted, or somebody deletes
/// them, or the engine's `session_ttl` is over. What their flows say is in them, and is not told
/// to the user of the batch.
///
/// A batch takes one turn of each item. A flow that then waits, for its user or for anything
/// else, is reported as [`ItemOutcome::Waiting`](crate::session::ItemOutcome::Waiting) with its
/// session, which the host can take further as any other; the batch does not wait for it.
///
/// # Failures
///
/// An item that fails in a way that may pass is tried again after a wait
/// ([`ITEM_FIRST_WAIT`], doubled each time, with jitter), as often as
/// [`retries`](Self::retries) says, and goes on from its last commit. It counts as running
/// meanwhile. After that, and at once for a terminal error or a panic, it is reported as failed
/// and the others go on. The batch itself fails only when none of it can run: the flow is not
/// registered, there are more items than
/// [`Limits::batch_items`](crate::engine::Limits::batch_items), or it would be within more calls
/// and batches than [`Limits::call_depth`](crate::engine::Limits::call_depth).
///
/// # Crashes
///
/// A batch is one effect of its action: once it is over, its report is recorded as any other
/// outcome. One that was cut off goes on with the next turn of its session. An item that is over
/// is not run again, one that was under way goes on in its session. With
/// [`Durability::Effect`](crate::engine::Durability::Effect) the batch records from time to time
/// which items are over, each [`BATCH_RECORD_ITEMS`] of them or each [`BATCH_RECORDS`]th part of
/// all, whatever is more. Those are not looked at any more; of the others it opens the sessions
/// (two calls of the store for one that is over) and takes the outcomes that they have. With the
/// other durabilities it opens all of them. What is repeated is an item that has *failed* since
/// the last record: it is tried again, with all its retries.
///
/// An item that fails before anything of it was committed leaves no session, as any first turn
/// that fails; the session that is reported for it does not exist.
///
/// Items that are not those of before are another effect, which fails the turn with
/// [`EffectError::Diverged`] when the action goes on after a crash. The states that are made of
/// the items may change: they matter only for items that have not begun.
///
/// # Progress
///
/// Listeners of the turn get an [`Event::BatchProgress`](crate::event::Event::BatchProgress)
/// when the batch begins and each time a hundredth of it is over.
///
/// # Size
///
/// The report is kept in the session document with items of the same outcome together, so that
/// a thousand items take some kilobytes. It is largest when each item ends with another reason:
/// then it grows by up to [`ITEM_TEXT_BYTES`] and a few for each. A document that would pass the
/// store's limit is refused as always, with `document-too-large`.
#[must_use = "nothing runs before `each` is awaited"]
pub struct Concurrent<'a, T> {
    scope: &'a Scope,
    items: Vec<T>,
    limit: usize,
    retries: u32,
}

impl<'a, T: Serialize> Concurrent<'a, T> {
    /// How many items run at the same time; at least 1. Default: [`BATCH_CONCURRENCY`].
    pub fn limit(mut self, items: usize) -> Self {
        self.limit = items.max(1);
        self
    }

    /// How often an item that has failed is tried again, if that may help. Default:
    /// [`BATCH_RETRIES`].
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Runs the flow `G` for each item, with a state that is made of it, and reports what they
    /// have come to, in the order of the items.
    ///
    /// # Errors
    /// `batch-too-large`, `unknown-flow`; `effect-diverged` when the items are not those of
    /// before. What fails in an item is in the report.
    pub fn each<G: FlowMeta>(
        self,
        state: impl FnMut(&T) -> G::State,
    ) -> impl Future<Output = Result<BatchReport>> + Send {
        let scope = self.scope;
        let begun = self.begin::<G>(state);
        async move {
            let (begun, batch) = begun?;
            let (Begun::Fresh { place, .. } | Begun::Replayed { place, .. }) = &begun;
            let place = place.clone();
            let work = |_, _| batch.run(place);
            let record: BatchRecord = scope.perform(G::ID, ToolReplay::ByKey, begun, work).await?;
            Ok(record.into_report()?)
        }
    }

    fn begin<G: FlowMeta>(self, state: impl FnMut(&T) -> G::State) -> Result<(Begun, Batch<'a>)> {
        let children = self.scope.children.clone().ok_or_else(no_engine)?;
        let limit = self.scope.limits.items;
        if self.items.len() > limit {
            let (flow, items) = (G::ID.to_owned(), self.items.len());
            return Err(Error::from(EffectError::BatchTooLarge { flow, items, limit }).into());
        }
        let ledger = self.scope.ledger.as_ref().ok_or_else(no_engine)?;
        let parent = ledger.doc();
        let link = link(&parent, Relation::Item);
        if link.depth > self.scope.limits.calls {
            return Err(too_deep(self.scope, &parent, G::ID).into());
        }
        let states = self.items.iter().map(state).map(serde_json::to_value);
        let states = states.collect::<serde_json::Result<Vec<Value>>>()?;
        let digest = json::digest(&json!([G::ID, self.items]));
        let begun =
            self.scope.begin(EffectKind::Batch, G::ID, Some(&Value::from(digest.as_str())))?;
        let batch = Batch {
            scope: self.scope,
            children,
            flow: G::ID,
            parent: link,
            states,
            digest,
            limit: self.limit,
            retries: self.retries,
        };
        Ok((begun, batch))
    }
}

fn no_engine() -> StepError {
    StepError::terminal("a batch needs an engine, and this step runs outside of a turn")
}

impl<T> fmt::Debug for Concurrent<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concurrent")
            .field("items", &self.items.len())
            .field("limit", &self.limit)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}
