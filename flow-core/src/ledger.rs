//! The document of a turn as it was last committed, and the only way to change it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use serde::Serialize;
use serde_json::Value;
use tracing::Instrument as _;

use crate::error::{Error, SessionError};
use crate::json::{self, MAX_DEPTH};
use crate::session::{ArchiveEntry, Delta, EffectRecord, MemoryDelta, SessionDoc};
use crate::store::{Commit, Grant, SessionStore};
use crate::time::Timestamp;

/// How many of the biggest parts an error names.
const NAMED_PARTS: usize = 4;

/// What a document has beside its sized parts: ids, dates, cursor, lease.
const FRAME_BYTES: u64 = 1024;

pub(crate) struct Ledger {
    store: Arc<dyn SessionStore>,
    grant: Grant,
    doc: RwLock<Arc<SessionDoc>>,
    /// One commit at a time: the effects of an action may be made side by side.
    writer: tokio::sync::Mutex<Writer>,
    /// Set when a commit that gives the lease back is on its way.
    closing: Arc<AtomicBool>,
    /// Whether effects are recorded before they are made.
    record_effects: bool,
    /// Whether there is a commit before an action runs.
    commit_begins: bool,
    /// How many checkpoints of the session are kept.
    checkpoints: usize,
}

/// What is known for the next commit.
#[derive(Default)]
struct Writer {
    /// The size of each part, once a commit has needed them.
    sizes: Option<BTreeMap<String, u64>>,
    /// The next commit writes the whole document.
    replace: bool,
    /// The document that the next commit puts aside.
    supersede: Option<SessionDoc>,
    /// The last commit was sent and not answered, or answered with an error: the store may not
    /// have what the document at hand has.
    unanswered: bool,
}

impl Ledger {
    /// The ledger of a session on which someone works, each commit of which leaves a
    /// checkpoint unless none are kept.
    pub(crate) fn new(
        store: Arc<dyn SessionStore>,
        grant: Grant,
        doc: SessionDoc,
        checkpoints: usize,
    ) -> Self {
        let writer = Writer { replace: doc.revision == 0, ..Writer::default() };
        Self {
            store,
            grant,
            doc: RwLock::new(Arc::new(doc)),
            writer: tokio::sync::Mutex::new(writer),
            closing: Arc::default(),
            record_effects: false,
            commit_begins: false,
            checkpoints,
        }
    }

    /// The document as it was last committed. Give it back before the next commit, which
    /// else has to copy it.
    pub(crate) fn doc(&self) -> Arc<SessionDoc> {
        self.doc.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets this flag before a commit that gives the lease back.
    pub(crate) fn on_closing(&mut self, closing: Arc<AtomicBool>) {
        self.closing = closing;
    }

    /// Lets [`records_effects`](Self::records_effects) say so.
    pub(crate) fn record_effects(&mut self) {
        self.record_effects = true;
        self.commit_begins = true;
    }

    /// Lets [`commits_begins`](Self::commits_begins) say so.
    pub(crate) fn commit_begins(&mut self) {
        self.commit_begins = true;
    }

    /// Whether what a turn has done is committed before an action runs, so that single effects
    /// of it may be recorded.
    pub(crate) fn commits_begins(&self) -> bool {
        self.commit_begins
    }

    /// Whether effects are recorded before they are made.
    pub(crate) fn records_effects(&self) -> bool {
        self.record_effects
    }

    /// The next commit writes this document in place of the stored one.
    pub(crate) fn replace(&mut self, doc: SessionDoc) {
        *self.doc.get_mut().unwrap_or_else(PoisonError::into_inner) = Arc::new(doc);
        let writer = self.writer.get_mut();
        writer.replace = true;
        writer.sizes = None;
    }

    /// The next commit keeps the stored document aside and puts this one in its place.
    pub(crate) fn supersede(&mut self, old: SessionDoc, new: SessionDoc) {
        self.writer.get_mut().supersede = Some(old);
        self.replace(new);
    }

    /// Makes a change: in the store, and in the document at hand.
    ///
    /// When it fails nothing was written, and the ledger is not to be used any more, except
    /// after an error about the document itself, which is found before anything is done.
    pub(crate) async fn commit(
        &self,
        delta: Delta,
        archive: &[ArchiveEntry],
        release: bool,
    ) -> Result<(), Error> {
        let mut writer = self.writer.lock().await;
        self.write(&mut writer, delta, archive, release).await
    }

    /// Makes sure that the store has these effects.
    pub(crate) async fn commit_effects(
        &self,
        effects: BTreeMap<String, EffectRecord>,
        now: Timestamp,
    ) -> Result<(), Error> {
        // Those of an effect beside it may be on their way.
        let mut writer = self.writer.lock().await;
        if !writer.unanswered && self.doc().effects == effects {
            return Ok(());
        }
        let effects = Some(effects);
        let delta = Delta { effects, updated_at: Some(now), ..Delta::default() };
        self.write(&mut writer, delta, &[], false).await
    }

    async fn write(
        &self,
        writer: &mut Writer,
        mut delta: Delta,
        archive: &[ArchiveEntry],
        release: bool,
    ) -> Result<(), Error> {
        writer.check(&*self.store, &self.doc(), &delta)?;
        delta.replace |= writer.replace;
        let (base, doc) = {
            let mut held = self.doc.write().unwrap_or_else(PoisonError::into_inner);
            let doc = Arc::make_mut(&mut held);
            delta.apply(doc);
            let base = doc.revision;
            doc.revision += 1;
            (base, held.clone())
        };
        if release {
            self.closing.store(true, Ordering::Relaxed);
        }
        let commit = Commit {
            grant: &self.grant,
            base,
            doc: &doc,
            delta: &delta,
            archive,
            supersede: writer.supersede.as_ref(),
            release,
            checkpoints: self.checkpoints,
        };
        let span = tracing::debug_span!("commit", session = %doc.id, revision = doc.revision);
        writer.unanswered = true;
        self.store.commit(&commit).instrument(span).await?;
        writer.unanswered = false;
        writer.replace = false;
        writer.supersede = None;
        Ok(())
    }
}

impl Writer {
    /// Checks that the document will not be too deep or too large.
    fn check(
        &mut self,
        store: &dyn SessionStore,
        doc: &SessionDoc,
        delta: &Delta,
    ) -> Result<(), Error> {
        let replaced = self.replace.then_some(doc);
        let state = delta.state.iter().chain(replaced.map(|doc| &doc.state));
        let state = state.map(|value| ("state".to_owned(), value));
        let steps = delta.steps.iter().chain(replaced.into_iter().flat_map(|doc| &doc.steps));
        let steps = steps.map(|(name, value)| (format!("steps.{name}"), value));
        let visit = delta.visit.iter().chain(replaced.map(|doc| &doc.visit));
        let input = visit.filter_map(|visit| visit.input.as_ref());
        let input = input.map(|value| ("visit.input".to_owned(), value));
        let context = delta.context.iter().chain(replaced.map(|doc| &doc.context)).flatten();
        let context = context.map(|(key, value)| (format!("context.{key}"), value));
        for (path, value) in state.chain(steps).chain(input).chain(context) {
            if json::is_deeper_than(value, MAX_DEPTH) {
                let session = doc.id.to_string();
                return Err(SessionError::TooDeep { session, path, limit: MAX_DEPTH }.into());
            }
        }
        let sizes = self.sizes.get_or_insert_with(|| measure(store, doc));
        let mut changed: Vec<(String, u64)> = Vec::new();
        if let Some(state) = &delta.state {
            changed.push(("state".into(), store.encoded_len(state)));
        }
        for (name, value) in &delta.steps {
            changed.push((format!("steps.{name}"), store.encoded_len(value)));
        }
        for (namespace, change) in &delta.memory {
            let part = format!("memory.{namespace}");
            let before = sizes.get(&part).copied().unwrap_or(0);
            let MemoryDelta { messages: appended, summary, start: _ } = change;
            let memory = doc.memory.get(namespace);
            let mut pushed: u64 = appended.push.iter().map(|m| size_of(store, m)).sum();
            let messages = memory.map_or(&[][..], |memory| &memory.messages);
            let total = messages.len() + appended.push.len();
            let dropped = total.saturating_sub(appended.keep).min(messages.len());
            let mut freed: u64 = messages[..dropped].iter().map(|m| size_of(store, m)).sum();
            if let Some(summary) = summary {
                pushed += size_of(store, summary);
                freed += memory.map_or(0, |memory| size_of(store, &memory.summary));
            }
            changed.push((part, (before + pushed).saturating_sub(freed)));
        }
        if !delta.turns.push.is_empty() {
            let before = sizes.get("turns").copied().unwrap_or(0);
            let pushed: u64 = delta.turns.push.iter().map(|turn| size_of(store, turn)).sum();
            let dropped =
                (doc.turns.len() + delta.turns.push.len()).saturating_sub(delta.turns.keep);
            let freed: u64 = doc.turns.iter().take(dropped).map(|turn| size_of(store, turn)).sum();
            changed.push(("turns".into(), (before + pushed).saturating_sub(freed)));
        }
        if let Some(context) = &delta.context {
            changed.push(("context".into(), size_of(store, context)));
        }
        if let Some(visit) = &delta.visit {
            changed.push(("visit".into(), size_of(store, visit)));
        }
        if let Some(waiting) = &delta.waiting {
            changed.push(("waiting".into(), size_of(store, waiting)));
        }
        if let Some(ended) = &delta.ended {
            changed.push(("ended".into(), size_of(store, ended)));
        }
        if let Some(effects) = &delta.effects {
            changed.push(("effects".into(), size_of(store, effects)));
        }
        if let Some(moves) = &delta.moves {
            changed.push(("moves".into(), size_of(store, moves)));
        }
        if let Some(gates) = &delta.gates {
            changed.push(("gates".into(), size_of(store, gates)));
        }
        let grown: BTreeMap<&str, u64> =
            changed.iter().map(|(part, size)| (part.as_str(), *size)).collect();
        let mut parts: Vec<(&str, u64)> = sizes
            .iter()
            .filter(|(part, _)| !grown.contains_key(part.as_str()))
            .map(|(part, size)| (part.as_str(), *size))
            .chain(grown.iter().map(|(part, size)| (*part, *size)))
            .collect();
        let size = FRAME_BYTES + parts.iter().map(|(_, size)| size).sum::<u64>();
        let limit = store.limits().document_bytes;
        if size > limit {
            parts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
            let named: Vec<String> = parts
                .iter()
                .take(NAMED_PARTS)
                .map(|(part, size)| format!("`{part}` with {size} bytes"))
                .collect();
            return Err(SessionError::TooLarge {
                session: doc.id.to_string(),
                size,
                limit,
                parts: named.join(", "),
            }
            .into());
        }
        sizes.extend(changed);
        Ok(())
    }
}

fn size_of(store: &dyn SessionStore, value: &impl Serialize) -> u64 {
    serde_json::to_value(value).map_or(0, |value: Value| store.encoded_len(&value))
}

/// The sizes of the parts of a document that can grow.
fn measure(store: &dyn SessionStore, doc: &SessionDoc) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    sizes.insert("state".to_owned(), store.encoded_len(&doc.state));
    for (name, fields) in &doc.steps {
        sizes.insert(format!("steps.{name}"), store.encoded_len(fields));
    }
    for (namespace, memory) in &doc.memory {
        let messages: u64 = memory.messages.iter().map(|message| size_of(store, message)).sum();
        let size = messages + size_of(store, &memory.summary);
        sizes.insert(format!("memory.{namespace}"), size);
    }
    for (part, size) in [
        ("context", size_of(store, &doc.context)),
        ("visit", size_of(store, &doc.visit)),
        ("turns", size_of(store, &doc.turns)),
        ("path", size_of(store, &doc.path)),
        ("labels", size_of(store, &doc.labels)),
        ("owner", size_of(store, &doc.owner)),
        ("waiting", size_of(store, &doc.waiting)),
        ("ended", size_of(store, &doc.ended)),
        ("effects", size_of(store, &doc.effects)),
        ("gates", size_of(store, &doc.gates)),
        ("error", size_of(store, &doc.error)),
        ("moves", size_of(store, &doc.moves)),
    ] {
        sizes.insert(part.to_owned(), size);
    }
    sizes
}
