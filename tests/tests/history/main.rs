//! Whatever happens in a conversation, its history is one that providers take: in the document,
//! in its transcript, in what models are asked, and in what is sent over the wire.

mod maze;
mod relay;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use flow_core::message::{Message, Part, Role};
use flow_core::model::provider::ProviderModel;
use flow_core::model::{ChatModel as _, ChatRequest, ModelCatalog};
use flow_core::prelude::*;
use flow_core::store::Transcript;
use flow_core::store::memory::MemoryStore;
use flow_core::{Durability, Engine, Error, TurnRequest};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tests::model_server::ModelServer;
use tests::ordering::{anthropic, anthropic_body, openai, openai_body};
use tokio::sync::Notify;

use maze::Maze;
use relay::{Answer, Relay, any_answer};

/// A conversation, and what happens in it.
#[derive(Debug, Clone)]
struct Case {
    durability: Durability,
    /// The window and the batch of the memory.
    memory: Option<(usize, usize)>,
    recovers: bool,
    rescues: bool,
    turns: Vec<Turn>,
}

#[derive(Debug, Clone)]
struct Turn {
    /// Nothing for a turn without a message.
    message: Option<&'static str>,
    turn_id: Option<&'static str>,
    answers: Vec<Answer>,
    /// After how many events it is cancelled, and whether by dropping its handle.
    cancel: Option<(usize, bool)>,
    /// Whether the process is another one.
    restart: bool,
}

fn any_case() -> impl Strategy<Value = Case> {
    let durability = vec![Durability::Crossing, Durability::Turn, Durability::Effect];
    let fields = (
        prop::sample::select(durability),
        prop::option::weighted(0.8, (1_usize..7, 1_usize..4)),
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(any_turn(), 1..9),
    );
    fields.prop_map(|(durability, memory, recovers, rescues, turns)| Case {
        durability,
        memory,
        recovers,
        rescues,
        turns,
    })
}

fn any_turn() -> impl Strategy<Value = Turn> {
    let words = vec!["hello", "3", "2 or 3", "", " "];
    let fields = (
        prop::option::weighted(0.8, prop::sample::select(words)),
        prop::option::weighted(0.2, prop::sample::select(vec!["t1", "t2"])),
        prop::collection::vec(any_answer(), 0..5),
        prop::option::weighted(0.2, (0_usize..12, any::<bool>())),
        prop::bool::weighted(0.2),
    );
    fields.prop_map(|(message, turn_id, answers, cancel, restart)| Turn {
        message,
        turn_id,
        answers,
        cancel,
        restart,
    })
}

/// Real providers' wire formats, with a server that refuses what they refuse.
struct Wires {
    server: ModelServer,
    models: [ProviderModel; 2],
}

impl Wires {
    async fn start() -> Self {
        let server = ModelServer::start([]).await;
        let model = |provider: &str| {
            let builder = ProviderModel::builder(provider, "m").base_url(server.url("/v1"));
            builder.key("sk-test").build().unwrap()
        };
        let models = [model("openai"), model("anthropic")];
        Self { server, models }
    }

    /// Sends a request in both dialects.
    async fn check(&self, request: &ChatRequest) -> Result<(), String> {
        for model in &self.models {
            // It says that its script has no more answers.
            model.complete(request).await.unwrap_err();
        }
        let violations = self.server.take_violations();
        if violations.is_empty() { Ok(()) } else { Err(violations.join("\n")) }
    }
}

/// What the cases have come to, to see that they come to something.
#[derive(Debug, Default)]
struct Tally(BTreeMap<&'static str, u32>);

impl Tally {
    fn count(&mut self, what: &'static str, yes: bool) {
        *self.0.entry(what).or_default() += u32::from(yes);
    }
}

/// Messages as one side of a conversation that goes on: providers want the user to speak first
/// and last, which the provider layer sees to. Blank texts are left out there too.
fn framed(messages: &[&Message]) -> Vec<Message> {
    let blank = |part: &Part| matches!(part, Part::Text { text } if text.trim().is_empty());
    let said = messages.iter().filter_map(|message| {
        let mut message = (*message).clone();
        message.parts.retain(|part| !blank(part));
        (!message.parts.is_empty()).then_some(message)
    });
    let user = || {
        let at = "2026-11-30T12:00:00Z".parse().unwrap();
        Message::text(0, Role::User, "Well?", at)
    };
    [user()].into_iter().chain(said).chain([user()]).collect()
}

fn check_order(place: &str, messages: &[&Message]) -> Result<(), String> {
    let framed = framed(messages);
    openai(&openai_body(&framed))
        .and_then(|()| anthropic(&anthropic_body(&framed)))
        .map_err(|error| format!("{place}: {error}\n{messages:#?}"))
}

/// Checks a whole conversation, in the document and with what has left it.
fn check_transcript(transcript: &Transcript) -> Result<(), String> {
    let mut whole: BTreeMap<&str, Vec<&Message>> = BTreeMap::new();
    for archived in transcript.archive.iter().flat_map(|entry| &entry.messages) {
        whole.entry(archived.namespace.as_str()).or_default().push(&archived.message);
    }
    for (namespace, memory) in &transcript.doc.memory {
        let kept: Vec<&Message> = memory.messages.iter().collect();
        check_order(&format!("document, `{namespace}`"), &kept)?;
        whole.entry(namespace.as_str()).or_default().extend(kept);
    }
    // No model is shown all of it, so that an id may come again once it has left the document.
    for (namespace, messages) in &whole {
        openai(&openai_body(&framed(messages)))
            .map_err(|error| format!("transcript, `{namespace}`: {error}\n{messages:#?}"))?;
    }
    let seqs: Vec<u64> = transcript.messages().iter().map(|message| message.seq).collect();
    if seqs != (0..transcript.doc.next_message).collect::<Vec<_>>() {
        return Err(format!("messages are lost or doubled: {seqs:?}"));
    }
    Ok(())
}

async fn run(wires: &Wires, case: &Case, tally: &RefCell<Tally>) -> Result<(), String> {
    let stuck = Arc::new(Notify::new());
    let relay = Relay::new(stuck.clone());
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    // The keys of calls that are part of the history for good.
    let mut used = BTreeSet::new();
    let store = Arc::new(MemoryStore::new());
    let memory = case.memory.map_or_else(MemoryPolicy::default, |(window, batch)| {
        MemoryPolicy::default().window(window).batch(batch)
    });
    let start = || {
        let (recovers, rescues) = (case.recovers, case.rescues);
        let (stuck, keys, memory) = (stuck.clone(), keys.clone(), memory.clone());
        let maze = Maze { recovers, rescues, memory, stuck, keys };
        let models = ModelCatalog::new().model("relay::m", relay.clone());
        let builder = Engine::builder().shared_store(store.clone()).flow(maze).models(models);
        builder.durability(case.durability).build().unwrap()
    };
    let session = SessionId::new("s").unwrap();
    let mut engine = start();
    let mut dropped = false;
    for turn in &case.turns {
        // Another process would be told that the session is busy, as long as it is.
        if turn.restart && !dropped {
            engine = start();
        }
        relay.load(&turn.answers);
        let mut request = TurnRequest::new(session.clone());
        request = turn.message.into_iter().fold(request, TurnRequest::message);
        request = turn.turn_id.into_iter().fold(request, TurnRequest::turn_id);
        let mut handle = engine.turn::<Maze>(request);
        let (limit, drops) = turn.cancel.unwrap_or((usize::MAX, false));
        let mut heard = 0;
        let cancelled = loop {
            if heard == limit {
                break true;
            }
            tokio::select! {
                biased;
                event = handle.next_event() => match event {
                    Some(_) => heard += 1,
                    None => break false,
                },
                () = stuck.notified() => break true,
            }
        };
        tally.borrow_mut().count("cancelled", cancelled);
        dropped = cancelled && drops;
        if dropped {
            drop(handle);
            keys.lock().unwrap().clear();
        } else {
            if cancelled {
                handle.cancel();
            }
            let result = handle.await;
            if let Err(error @ (Error::Store(_) | Error::Session(_))) = &result {
                return Err(format!("the session is spoilt: {error}"));
            }
            tally.borrow_mut().count("failed", result.is_err() && !cancelled);
            let repeated = result.as_ref().is_ok_and(|outcome| outcome.repeated);
            tally.borrow_mut().count("repeated", repeated);
            let rung = std::mem::take(&mut *keys.lock().unwrap());
            let kept = if result.is_ok() && !repeated { rung } else { Vec::new() };
            if let Some(key) = kept.into_iter().find(|key| !used.insert(key.clone())) {
                return Err(format!("the key `{key}` has two calls"));
            }
            let replies = result.map(|outcome| outcome.replies).unwrap_or_default();
            if replies.iter().any(|reply| reply.trim().is_empty()) {
                return Err(format!("the user is told nothing: {replies:?}"));
            }
        }
        for request in relay.take_requests() {
            check_order("request", &request.messages.iter().collect::<Vec<_>>())?;
            wires.check(&request).await?;
            let mut tally = tally.borrow_mut();
            let parts = request.messages.iter().flat_map(|message| &message.parts);
            let results = parts.filter(|part| matches!(part, Part::ToolResult(_))).count();
            tally.count("asked with results", results > 0);
        }
        if let Ok(transcript) = engine.session(session.clone()).transcript().await {
            check_transcript(&transcript)?;
            tally.borrow_mut().count("archived", !transcript.archive.is_empty());
        }
    }
    Ok(())
}

#[test]
fn any_conversation_leaves_a_history_that_providers_take() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let wires = runtime.block_on(Wires::start());
    let tally = RefCell::new(Tally::default());
    // `PROPTEST_CASES` asks for more.
    let more = Config::with_source_file(file!());
    let config = Config { cases: if more.cases == 256 { 96 } else { more.cases }, ..more };
    let result = TestRunner::new(config).run(&any_case(), |case| {
        let result = runtime.block_on(run(&wires, &case, &tally));
        result.map_err(TestCaseError::fail)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let tally = tally.into_inner();
    assert!(tally.0.len() == 5 && tally.0.values().all(|count| *count > 0), "{tally:?}");
}

#[test]
fn an_id_that_comes_again_when_its_call_is_archived_is_another_call() {
    let turn = |answers| Turn {
        message: Some("ring"),
        turn_id: None,
        answers,
        cancel: None,
        restart: false,
    };
    let case = Case {
        durability: Durability::Crossing,
        memory: Some((1, 1)),
        recovers: false,
        rescues: false,
        turns: vec![turn(vec![Answer::call("c", "ring")]), turn(vec![Answer::call("c", "ring")])],
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        run(&Wires::start().await, &case, &RefCell::default()).await.unwrap();
    });
}
