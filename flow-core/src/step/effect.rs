//! How the effects of an action are made: begun in the journal, done or waited for, recorded.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Scope;
use crate::effect::{Begun, Journal, Place};
use crate::error::{EffectError, Error, Result};
use crate::session::{Display, EffectKind, EffectOutcome, ErrorRecord, Interrupt, Operation};
use crate::time::Timestamp;
use crate::tool::ToolReplay;

/// What is waited for.
pub(super) struct Wait {
    pub(super) kind: EffectKind,
    pub(super) name: String,
    pub(super) display: Display,
    pub(super) allowed: Vec<String>,
    pub(super) response_schema: Option<Value>,
    pub(super) deadline: Option<Duration>,
    pub(super) on_expiry: Option<EffectOutcome>,
    pub(super) operation: Option<Operation>,
}

/// Takes a request back when its future is dropped.
pub(super) struct Waiting<'a>(pub(super) &'a Journal, pub(super) &'a Place);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.stop_waiting(self.1);
    }
}

pub(super) fn read<T: DeserializeOwned>(effect: &str, value: Value) -> Result<T> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let effect = format!("`{effect}`");
        Error::from(EffectError::Unreadable { effect, reason: error.to_string() }).into()
    })
}

pub(super) fn outcome_of(outcome: EffectOutcome) -> Result<Value> {
    match outcome {
        EffectOutcome::Value(value) => Ok(value),
        EffectOutcome::Error(error) => Err(Error::from(EffectError::Failed { error }).into()),
    }
}

impl Scope {
    pub(super) fn begin(
        &self,
        kind: EffectKind,
        name: &str,
        arguments: Option<&Value>,
    ) -> Result<Begun> {
        let begun = self.journal.begin(&self.frame, kind, name, arguments, self.clock.now());
        begun.map_err(|error| Error::from(error).into())
    }

    /// An effect that is over at once.
    pub(super) fn take<T: Serialize + DeserializeOwned>(
        &self,
        kind: EffectKind,
        make: impl FnOnce() -> T,
    ) -> T {
        match self.journal.begin(&self.frame, kind, kind.as_str(), None, self.clock.now()) {
            Ok(Begun::Replayed { outcome: EffectOutcome::Value(value), .. }) => {
                serde_json::from_value(value).unwrap_or_else(|_| make())
            }
            Ok(Begun::Fresh { place, .. }) => {
                let value = make();
                let written = serde_json::to_value(&value).unwrap_or(Value::Null);
                self.journal.finish(&place, EffectOutcome::Value(written));
                value
            }
            // The journal has kept the divergence: the run fails.
            Ok(Begun::Replayed { outcome: EffectOutcome::Error(_), .. }) | Err(_) => make(),
        }
    }

    /// Does the work of an effect, unless it is over already.
    pub(super) async fn perform<T, W>(
        &self,
        name: &str,
        replay: ToolReplay,
        begun: Begun,
        work: impl FnOnce(String, bool) -> W,
    ) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
        W: Future<Output = Result<T, ErrorRecord>>,
    {
        let once = replay == ToolReplay::Never;
        let (place, key, repeated) = match begun {
            Begun::Replayed { outcome, .. } => return read(name, outcome_of(outcome)?),
            Begun::Fresh { place, in_doubt: true, .. } if once => {
                return Err(Error::from(self.journal.doubt(&place)).into());
            }
            Begun::Fresh { place, key, repeated, .. } => (place, key, repeated),
        };
        let _running = self.journal.run(&place);
        self.events.ready().await;
        self.journal.mark(&place, once);
        self.record_effects(once).await;
        let mut result = work(key, repeated).await;
        if let Err(error) = &mut result {
            error.retryable &= !once;
        }
        let outcome = match &result {
            Ok(value) => EffectOutcome::Value(serde_json::to_value(value)?),
            Err(error) => EffectOutcome::Error(error.clone()),
        };
        if replay != ToolReplay::Always {
            self.journal.finish(&place, outcome);
        }
        if once {
            self.record_effects(true).await;
        }
        result.map_err(|error| Error::from(EffectError::Failed { error }).into())
    }

    /// Commits the journal, when the durability or an effect asks for it. When that fails the
    /// run ends here, whatever the code makes of errors: it is no outcome of an effect.
    pub(super) async fn record_effects(&self, asked: bool) {
        let Some(ledger) = &self.ledger else { return };
        if !asked && !ledger.records_effects() {
            return;
        }
        let effects = self.journal.records();
        if let Err(error) = ledger.commit_effects(effects, self.clock.now()).await {
            self.unrecorded.store(true, Ordering::Relaxed);
            self.journal.break_off(error);
            std::future::pending::<()>().await;
        }
    }

    /// Waits for an answer, unless it is there already.
    pub(super) async fn wait(&self, begun: Begun, wait: Wait) -> Result<Value> {
        let (place, due) = match begun {
            Begun::Replayed { outcome, .. } => return outcome_of(outcome),
            Begun::Fresh { place, due, .. } => (place, due),
        };
        let due = due.or_else(|| wait.deadline.map(|limit| self.clock.now().after(limit)));
        if let Some(due) = due {
            self.journal.set_due(&place, due);
        }
        let expired = || EffectOutcome::expired(&wait.name);
        let on_expiry = due.map(|_| wait.on_expiry.unwrap_or_else(expired));
        self.journal.wait(&place, |request_id| Interrupt {
            request_id,
            kind: wait.kind,
            step: self.step.to_string(),
            path: Vec::new(),
            name: wait.name,
            display: wait.display,
            allowed: wait.allowed,
            response_schema: wait.response_schema,
            deadline: due,
            on_expiry,
            operation: wait.operation,
        });
        let _waiting = Waiting(&self.journal, &place);
        // The engine puts the action aside and runs it again with the answer.
        std::future::pending().await
    }

    /// Waits for a time.
    pub(super) async fn rest(&self, begun: Begun, until: impl FnOnce() -> Timestamp) -> Result<()> {
        let due = match &begun {
            Begun::Replayed { .. } => return Ok(()),
            Begun::Fresh { place, due, .. } => {
                let due = due.unwrap_or_else(until);
                self.journal.set_due(place, due);
                if due <= self.clock.now() {
                    self.journal.finish(place, EffectOutcome::Value(Value::Null));
                    return Ok(());
                }
                due
            }
        };
        let wait = Wait {
            kind: EffectKind::Sleep,
            name: "sleep".to_owned(),
            display: Display { title: format!("until {due}"), description: String::new() },
            allowed: Vec::new(),
            response_schema: None,
            deadline: None,
            on_expiry: Some(EffectOutcome::Value(Value::Null)),
            operation: None,
        };
        let begun = match begun {
            Begun::Fresh { place, key, repeated, in_doubt, .. } => {
                Begun::Fresh { place, key, repeated, in_doubt, due: Some(due) }
            }
            replayed => replayed,
        };
        self.wait(begun, wait).await.map(drop)
    }
}
