//! A process of its own for tests that kill, stop or race processes.
//!
//! ```text
//! worker STORE SESSION MODE [JOURNAL] [KILL_AT]
//! ```
//!
//! In mode `once` it runs one turn with the message of its standard input's first line and
//! prints how that ended. With KILL_AT it kills itself with SIGKILL at that call of the store:
//! `3-` right before the third call, `3+` right after it. In mode `serve` it runs a turn for
//! each line, one after the other, and prints `holding` when a step waits for the next line.

#![allow(clippy::print_stdout, reason = "the parent process reads it")]

use std::io::BufRead as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use flow_core::error::StoreError;
use flow_core::event::Event;
use flow_core::id::SessionId;
use flow_core::session::SessionDoc;
use flow_core::store::{
    Commit, Grant, ListQuery, OpenRequest, Opened, SessionStore, SessionSummary, StoreLimits,
    StoreStats, Swept, Transcript,
};
use flow_core::time::Timestamp;
use flow_core::{Engine, TurnRequest};
use tests::route_flow::Route;

/// A store that kills the process at one of its calls.
struct KillingStore {
    inner: Arc<dyn SessionStore>,
    calls: AtomicU32,
    kill_at: u32,
    after: bool,
}

impl KillingStore {
    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let hit = number == self.kill_at;
        if hit && !self.after {
            kill();
        }
        let result = call.await;
        if hit {
            kill();
        }
        result
    }
}

fn kill() -> ! {
    let _ = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
    unreachable!("SIGKILL cannot be survived")
}

#[async_trait::async_trait]
impl SessionStore for KillingStore {
    fn limits(&self) -> StoreLimits {
        self.inner.limits()
    }

    fn encoded_len(&self, value: &serde_json::Value) -> u64 {
        self.inner.encoded_len(value)
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }

    async fn open(&self, request: &OpenRequest<'_>) -> Result<Opened, StoreError> {
        self.call(self.inner.open(request)).await
    }

    async fn renew(
        &self,
        id: &SessionId,
        grant: &Grant,
        ttl: Duration,
    ) -> Result<Timestamp, StoreError> {
        self.inner.renew(id, grant, ttl).await
    }

    async fn commit(&self, commit: &Commit<'_>) -> Result<(), StoreError> {
        self.call(self.inner.commit(commit)).await
    }

    async fn release(&self, id: &SessionId, grant: &Grant) -> Result<(), StoreError> {
        self.call(self.inner.release(id, grant)).await
    }

    async fn load(&self, id: &SessionId) -> Result<Option<SessionDoc>, StoreError> {
        self.call(self.inner.load(id)).await
    }

    async fn create(&self, doc: &SessionDoc) -> Result<(), StoreError> {
        self.call(self.inner.create(doc)).await
    }

    async fn delete(&self, id: &SessionId) -> Result<bool, StoreError> {
        self.call(self.inner.delete(id)).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<SessionSummary>, StoreError> {
        self.call(self.inner.list(query)).await
    }

    async fn transcript(&self, id: &SessionId) -> Result<Option<Transcript>, StoreError> {
        self.call(self.inner.transcript(id)).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        self.call(self.inner.sweep(limit)).await
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut arg = |name: &str| args.next().ok_or_else(|| format!("{name} is missing"));
    let (address, session, mode) = (arg("STORE")?, arg("SESSION")?, arg("MODE")?);
    let session = SessionId::new(session)?;
    let journal = args.next().filter(|path| path != "-").map(Into::into);
    let kill_at = args.next();

    let mut store = flow_core::store::open(&address).await?;
    if let Some(at) = kill_at {
        let kill_at = at.trim_end_matches(['+', '-']).parse()?;
        let after = at.ends_with('+');
        store = Arc::new(KillingStore { inner: store, calls: AtomicU32::new(0), kill_at, after });
    }
    // A commit needs the fencing token, not time: with a short lease nobody has to wait for
    // a process that was killed. Tests that stop a process give it more.
    let lease = std::env::var("LEASE_MILLIS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let engine = Engine::builder()
        .shared_store(store)
        .flow(Route { journal, ..Route::default() })
        .lease(Duration::from_millis(lease))
        .build()?;

    loop {
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut request = TurnRequest::new(session.clone());
        if !line.trim().is_empty() {
            request = request.message(line.trim());
        }
        let mut turn = engine.turn::<Route>(request);
        while let Some(event) = turn.next_event().await {
            if matches!(&event, Event::Custom { name, .. } if name == "holding") {
                println!("holding");
            }
        }
        match turn.await {
            Ok(outcome) => println!("done {} {}", outcome.revision, outcome.step),
            Err(error) => println!("error {}", error.code()),
        }
        if mode == "once" {
            return Ok(());
        }
    }
}
