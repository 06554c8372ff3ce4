//! Bad input gives a clear error, and nothing is written.

use flow_core::id::SessionId;
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::store::{SessionStore, StoreLimits};
use flow_core::{Engine, TurnRequest};
use serde_json::Value;
use tests::route_flow::Route;

use super::{say, session, setup};

#[tokio::test]
async fn a_message_over_the_limit() {
    let setup = setup();
    let error = setup.turn(&"x".repeat(20 * 1024 * 1024)).await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("message-too-large", 413));
    assert!(error.to_string().contains("Limits::message_bytes"), "{error}");
    assert!(setup.store.take_names().is_empty());
    assert!(setup.log.take().is_empty());
}

#[tokio::test]
async fn ids_with_operators_and_control_characters() {
    for bad in ["$where", "a.b", "a\0b", ""] {
        let error = flow_core::Error::from(SessionId::new(bad).unwrap_err());
        assert_eq!((error.code(), error.status()), ("invalid-id", 400));
    }
    let setup = setup();
    let error = setup.engine.turn::<Route>(say("b").turn_id("")).await.unwrap_err();
    assert_eq!(error.code(), "invalid-id");
    assert!(setup.store.take_names().is_empty());
}

#[tokio::test]
async fn an_unknown_session() {
    let setup = setup();
    let error = setup.engine.session(SessionId::new("nobody").unwrap()).load().await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("session-not-found", 404));
    assert_eq!(error.to_string(), "there is no session `nobody`");
}

/// A flow whose state is whatever the test makes of it.
#[flow(id = "heap", steps(Grow), state = Heap)]
#[derive(Clone)]
struct HeapFlow;

impl Flow for HeapFlow {}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Heap(Value);

#[step(action, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Grow;

impl Action for Grow {
    type Flow = HeapFlow;

    async fn run(&mut self, cx: &mut ActionCx<'_, HeapFlow>) -> Result<GrowNext> {
        let message = cx.take_message().unwrap_or_default();
        if let Some(json) = message.strip_prefix("json ") {
            cx.state.0 = serde_json::from_str(json)?;
        } else if let Some(bytes) = message.strip_prefix("large ") {
            cx.state.0 = Value::String("x".repeat(bytes.parse()?));
        }
        Ok(GrowNext::Stay)
    }
}

fn heap(limits: StoreLimits) -> Engine {
    Engine::builder().store(MemoryStore::with_limits(limits)).flow(HeapFlow).build().unwrap()
}

#[tokio::test]
async fn a_session_of_another_flow() {
    let store = std::sync::Arc::new(MemoryStore::new());
    let engine = Engine::builder()
        .shared_store(store.clone())
        .flow(HeapFlow)
        .flow(Route::default())
        .build()
        .unwrap();
    engine.turn::<Route>(say("b")).await.unwrap();
    let before = store.load(&session()).await.unwrap().unwrap();
    let error = engine.turn::<HeapFlow>(say("b")).await.unwrap_err();
    assert_eq!(error.code(), "wrong-flow");
    assert_eq!(error.to_string(), "session `s` belongs to flow `route`, not to `heap`");
    assert_eq!(store.load(&session()).await.unwrap().unwrap(), before);
}

fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[tokio::test]
async fn json_nested_ten_thousand_levels_deep() {
    let engine = heap(StoreLimits::default());
    let say_json = |levels| say(&format!("json {}", nested(levels)));
    engine.turn::<HeapFlow>(say_json(64)).await.unwrap();
    let error = engine.turn::<HeapFlow>(say_json(10_000)).await.unwrap_err();
    assert!(error.to_string().contains("recursion limit exceeded"), "{error}");
    // What the parser takes and a store does not.
    let error = engine.turn::<HeapFlow>(say_json(100)).await.unwrap_err();
    assert_eq!(error.code(), "document-too-deep");
    assert_eq!(error.to_string(), "session `s`: `state` is nested deeper than 64 levels");
    let deep: Value = serde_json::from_str(&nested(100)).unwrap();
    let error = engine.turn::<HeapFlow>(say("").context("deep", deep)).await.unwrap_err();
    assert_eq!(error.to_string(), "session `s`: `context.deep` is nested deeper than 64 levels");
    let doc = engine.session(session()).load().await.unwrap();
    assert_eq!(doc.memory["main"].messages.len(), 1, "nothing of the failed turns is written");
    engine.turn::<HeapFlow>(say_json(2)).await.expect("the session is usable");
}

#[tokio::test]
async fn a_document_over_the_limit_names_its_biggest_parts() {
    let engine = heap(StoreLimits { document_bytes: 64 * 1024 });
    engine.turn::<HeapFlow>(say("large 1000")).await.unwrap();
    let error = engine.turn::<HeapFlow>(say("large 100000")).await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("document-too-large", 413));
    assert!(error.to_string().contains("`state` with 100002 bytes"), "{error}");
    let doc = engine.session(session()).load().await.unwrap();
    assert_eq!(doc.state.as_str().map(str::len), Some(1000));
    engine.turn::<HeapFlow>(TurnRequest::new(session()).message("large 10")).await.expect("usable");
}
