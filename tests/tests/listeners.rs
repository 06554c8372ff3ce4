//! Listeners of a turn: slow ones, ones that stop reading, and none. The turn, its outcome
//! and its document are the same for all of them.

use std::time::Duration;

use flow_core::event::Event;
use flow_core::message::Part;
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{
    CallPolicy, ChatModel, ChatRequest, ChatResponse, FinishReason, ModelCatalog, ModelError,
    ModelStream, TokenUsage,
};
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::testing::ManualClock;
use flow_core::{Engine, Limits, TurnHandle, TurnRequest};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

/// Talks, and tells when it has.
#[flow(id = "talk", version = 1, steps(Talk, Work), model = "test::model")]
#[derive(Clone)]
struct Chat {
    over: watch::Sender<Option<Instant>>,
    timeout: Duration,
}

impl Chat {
    fn new() -> Self {
        Self { over: watch::Sender::new(None), timeout: Duration::from_secs(60) }
    }
}

impl Flow for Chat {
    fn config_call_policy(&self) -> CallPolicy {
        CallPolicy::default().attempt_timeout(self.timeout)
    }
}

#[step(reply, tools, next(Work, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Talk {
    found: u32,
}

impl Reply for Talk {
    type Flow = Chat;

    async fn on_response(
        &mut self,
        _: &str,
        cx: &mut StepCx<'_, Chat>,
    ) -> Result<Option<TalkNext>> {
        cx.flow.over.send_replace(Some(Instant::now()));
        Ok(None)
    }
}

#[tools]
impl Talk {
    /// Finds rooms.
    #[tool]
    async fn find(&mut self, city: String) -> Result<Value> {
        self.found += 1;
        if city == "Atlantis" {
            return Err(StepError::new("there is no such city"));
        }
        Ok(json!({ "city": city, "rooms": [7, 12] }))
    }

    /// Works.
    #[tool]
    async fn work(&mut self) -> TalkNext {
        TalkNext::Work
    }
}

/// Tells more than anybody reads.
#[step(action, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Work;

impl Action for Work {
    type Flow = Chat;

    async fn run(&mut self, cx: &mut ActionCx<'_, Chat>) -> Result<WorkNext> {
        for n in 0..50 {
            cx.emit("progress", n)?;
        }
        cx.flow.over.send_replace(Some(Instant::now()));
        Ok(WorkNext::End("done".into()))
    }
}

struct Setup {
    engine: Engine,
    over: watch::Receiver<Option<Instant>>,
}

impl Setup {
    fn new(model: impl ChatModel, limits: Limits) -> Self {
        Self::with(Chat::new(), model, limits)
    }

    fn with(chat: Chat, model: impl ChatModel, limits: Limits) -> Self {
        let over = chat.over.subscribe();
        let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap());
        let engine = Engine::builder()
            .store(MemoryStore::new())
            .flow(chat)
            .models(ModelCatalog::new().model("test::model", model))
            .limits(limits)
            .clock(clock)
            .build()
            .unwrap();
        Self { engine, over }
    }

    fn say(&self, turn: &str) -> TurnHandle {
        let request = TurnRequest::new(session()).message("hi").turn_id(turn);
        self.engine.turn::<Chat>(request)
    }

    /// Waits for the end of the step, and tells when that was.
    async fn over(&mut self) -> Instant {
        let change = self.over.changed();
        let change = tokio::time::timeout(Duration::from_secs(1000), change).await;
        change.expect("the step ends").unwrap();
        self.over.borrow_and_update().unwrap()
    }

    async fn doc(&self) -> String {
        let doc = self.engine.session(session()).load().await.unwrap();
        serde_json::to_string_pretty(&doc).unwrap()
    }
}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

fn letters(n: usize) -> ScriptedModel {
    ScriptedModel::new().chunks((0..n).map(|n| char::from(b'a' + (n % 26) as u8).to_string()))
}

fn narrow() -> Limits {
    Limits::default().events(8)
}

async fn rest(turn: &mut TurnHandle) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = turn.next_event().await {
        events.push(event);
    }
    events
}

fn text(events: &[Event]) -> String {
    let deltas = events.iter().map(|event| match event {
        Event::TextDelta { text, .. } => text.as_str(),
        _ => "",
    });
    deltas.collect()
}

fn count(events: &[Event], name: &str) -> usize {
    events.iter().filter(|event| event.name() == name).count()
}

/// How many deltas, custom and other events were left out.
fn missed(events: &[Event]) -> (u64, u64, u64) {
    events.iter().fold((0, 0, 0), |sum, event| match event {
        Event::Lagged { text_deltas, custom_events, other_events } => {
            (sum.0 + text_deltas, sum.1 + custom_events, sum.2 + other_events)
        }
        _ => sum,
    })
}

#[tokio::test(start_paused = true)]
async fn the_turn_waits_for_a_listener_that_is_a_little_slow() {
    let setup = Setup::new(letters(300), narrow());
    let begin = Instant::now();
    let mut turn = setup.say("1");
    let mut events = Vec::new();
    while let Some(event) = turn.next_event().await {
        events.push(event);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(count(&events, "text-delta"), 300);
    assert_eq!(missed(&events), (0, 0, 0));
    assert!(begin.elapsed() > Duration::from_secs(3), "{:?}", begin.elapsed());
    assert_eq!(turn.await.unwrap().replies, [text(&events)]);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_stops_reading_holds_the_turn_up_no_longer_than_its_patience() {
    let limits = narrow().listener_patience(Duration::from_secs(7));
    let mut setup = Setup::new(letters(10_000), limits);
    let begin = Instant::now();
    let mut turn = setup.say("1");
    let first = turn.next_event().await.unwrap();
    assert_eq!(first.name(), "turn-start");
    assert_eq!(setup.over().await - begin, Duration::from_secs(7));

    let events = rest(&mut turn).await;
    assert!(events.len() < 8 * 4 + 4, "{}", events.len());
    let told = count(&events, "text-delta") as u64;
    assert_eq!(missed(&events), (10_000 - told, 0, 0));
    let names: Vec<&str> = events.iter().map(Event::name).collect();
    let end = names.iter().position(|name| *name == "lagged").unwrap();
    assert_eq!(names[end..], ["lagged", "text-end", "usage", "message", "turn-end"]);
    let Event::Message { text: message, .. } = &events[end + 3] else { panic!("{events:?}") };
    assert!(message.len() == 10_000 && message.starts_with(&text(&events)));
    assert_eq!(turn.await.unwrap().replies, std::slice::from_ref(message));
}

#[tokio::test(start_paused = true)]
async fn each_turn_has_a_patience_of_five_seconds_by_default() {
    let mut setup = Setup::new(letters(5000).chunks(["z"; 5000]), Limits::default());
    for turn in ["1", "2"] {
        let begin = Instant::now();
        let mut turn = setup.say(turn);
        turn.next_event().await.unwrap();
        assert_eq!(setup.over().await - begin, Duration::from_secs(5));
        assert!(missed(&rest(&mut turn).await).0 > 3900);
        turn.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_only_awaited_waits_for_nobody() {
    let limits = Limits::default().events(1);
    let setup = Setup::new(letters(10_000), limits);
    let begin = Instant::now();
    let mut turn = setup.say("1");
    assert_eq!((&mut turn).await.unwrap().replies[0].len(), 10_000);
    assert_eq!(begin.elapsed(), Duration::ZERO);
    // What was told can still be read, up to the limit.
    let events = rest(&mut turn).await;
    assert!(events.len() <= 8 && events[0].name() == "turn-start", "{events:?}");
    assert_eq!(events.last().map(Event::name), Some("turn-end"));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_goes_on_as_soon_as_its_outcome_is_awaited() {
    let setup = Setup::new(letters(10_000), narrow());
    let begin = Instant::now();
    let mut turn = setup.say("1");
    turn.next_event().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    turn.await.unwrap();
    assert_eq!(begin.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_handle_of_a_turn_that_waits_cancels_it() {
    let setup = Setup::new(letters(10_000), narrow());
    let mut turn = setup.say("1");
    turn.next_event().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(turn);
    let begin = Instant::now();
    // The next turn of the session finds the first one gone: its script is used up.
    let error = setup.say("2").await.unwrap_err();
    assert_eq!(error.code(), "model-malformed");
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    assert!(setup.over.borrow().is_none(), "the step did not end");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_does_not_time_out_while_the_listener_is_waited_for() {
    /// Takes a millisecond for each piece.
    struct Trickle(ScriptedModel);
    #[async_trait::async_trait]
    impl ChatModel for Trickle {
        async fn complete(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
            self.0.complete(request).await
        }

        async fn stream(&self, request: &ChatRequest) -> Result<ModelStream, ModelError> {
            let pieces = self.0.stream(request).await?;
            let slow = pieces.then(|piece| async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                piece
            });
            Ok(slow.boxed())
        }
    }
    let chat = Chat { timeout: Duration::from_secs(1), ..Chat::new() };
    let mut setup = Setup::with(chat.clone(), Trickle(letters(900)), narrow());
    let begin = Instant::now();
    let mut turn = setup.say("1");
    turn.next_event().await.unwrap();
    assert_eq!(setup.over().await - begin, Duration::from_millis(5000 + 901));
    assert_eq!(count(&rest(&mut turn).await, "text-start"), 1);
    turn.await.unwrap();
    // The model's own time still counts.
    let setup = Setup::with(chat, Trickle(letters(1100)), narrow());
    assert_eq!(setup.say("1").await.unwrap_err().code(), "model-malformed");
}

#[tokio::test(start_paused = true)]
async fn a_steps_own_events_are_left_out_at_once_when_there_is_no_room() {
    let setup = Setup::new(ScriptedModel::new().tool_call("work", json!({})), narrow());
    let mut turn = setup.say("1");
    let begin = Instant::now();
    let events = rest(&mut turn).await;
    assert_eq!(begin.elapsed(), Duration::ZERO);
    let told = count(&events, "custom") as u64;
    assert!((1..=8).contains(&told), "{told}");
    assert_eq!(missed(&events), (0, 50 - told, 0));
    assert_eq!(events.last().map(Event::name), Some("turn-end"));
    turn.await.unwrap();
}

#[tokio::test]
async fn calls_results_cost_and_end_of_an_answer_are_told() {
    let answer = ChatResponse::new(vec![Part::text("Two rooms, and")]).finish(FinishReason::Length);
    let model = ScriptedModel::new()
        .tool_calls([("find", json!({ "city": "Rome" })), ("find", json!({ "city": "Atlantis" }))])
        .response(answer.usage(TokenUsage::new(20, 4)));
    let setup = Setup::new(model, Limits::default());
    let mut turn = setup.say("1");
    let events: Vec<Value> =
        rest(&mut turn).await.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    let from = events.iter().position(|event| event["type"] == "text-start").unwrap();
    let step = "Talk";
    let usage = |input: u64, output: u64| {
        let usage = json!({ "input": input, "output": output, "cached": 0, "reasoning": 0 });
        json!({ "type": "usage", "step": step, "model": "test::model", "usage": usage })
    };
    let call = |id: &str, city: &str| {
        let arguments = json!({ "city": city });
        json!({ "type": "tool-call", "id": id, "tool": "find", "arguments": arguments })
    };
    let found = json!({ "city": "Rome", "rooms": [7, 12] });
    let failed = "tool `find` failed: there is no such city";
    assert_eq!(
        events[from..events.len() - 1],
        [
            json!({ "type": "text-start", "step": step }),
            json!({ "type": "text-end", "step": step, "finish": "tool-calls" }),
            usage(0, 0),
            call("call-1", "Rome"),
            json!({ "type": "tool-result", "id": "call-1", "tool": "find", "result": found, "failed": false }),
            call("call-2", "Atlantis"),
            json!({ "type": "tool-result", "id": "call-2", "tool": "find", "result": failed, "failed": true }),
            json!({ "type": "text-start", "step": step }),
            json!({ "type": "text-delta", "step": step, "text": "Two rooms, and" }),
            json!({ "type": "text-end", "step": step, "finish": "length" }),
            usage(20, 4),
            json!({ "type": "message", "step": step, "text": "Two rooms, and", "rendered": "model" }),
        ]
    );
    turn.await.unwrap();
}

/// How a turn is listened to.
#[derive(Debug, Clone, Copy)]
enum Listener {
    None,
    Eager,
    Slow,
    Stuck,
}

/// A conversation with text in pieces, tools that work and fail, attempts that are made
/// again, and a turn that fails.
fn script() -> ScriptedModel {
    let status = |status, seconds: Option<u64>| ModelError::Status {
        model: "test::model".into(),
        status,
        message: "no".into(),
        retry_after: seconds.map(Duration::from_secs),
    };
    let usage = ChatResponse::new(vec![Part::text("Fine.")]).usage(TokenUsage::new(9, 2));
    letters(40)
        .error(status(429, Some(3)))
        .tool_calls([("find", json!({ "city": "Rome" })), ("find", json!({ "city": "Atlantis" }))])
        .tool_call("fly", json!({}))
        .response(usage)
        .error(status(401, None))
        .tool_call("work", json!({}))
}

#[tokio::test(start_paused = true)]
async fn the_document_is_the_same_whoever_listens() {
    let mut documents: Vec<(Listener, Vec<String>)> = Vec::new();
    for listener in [Listener::None, Listener::Eager, Listener::Slow, Listener::Stuck] {
        let setup = Setup::new(script(), narrow());
        let mut states = Vec::new();
        for turn in ["1", "2", "3", "4"] {
            let mut handle = setup.say(turn);
            match listener {
                Listener::None => {}
                Listener::Eager => drop(rest(&mut handle).await),
                Listener::Slow => {
                    while handle.next_event().await.is_some() {
                        tokio::time::sleep(Duration::from_millis(400)).await;
                    }
                }
                Listener::Stuck => {
                    handle.next_event().await.unwrap();
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
            }
            let failed = handle.await.is_err();
            assert_eq!(failed, turn == "3", "{listener:?} {turn}");
            states.push(setup.doc().await);
        }
        documents.push((listener, states));
    }
    let (_, plain) = &documents[0];
    assert!(plain[2].contains("model-status"), "the failure is recorded: {}", plain[2]);
    assert!(plain[3].contains("completed"), "{}", plain[3]);
    for (listener, states) in &documents[1..] {
        assert_eq!(states, plain, "{listener:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_reach_a_listener_on_another_thread_in_order() {
    let setup = Setup::new(letters(20_000), narrow());
    let mut turn = setup.say("1");
    let (events, outcome) =
        tokio::spawn(async move { (rest(&mut turn).await, turn.await) }).await.unwrap();
    assert_eq!(missed(&events), (0, 0, 0));
    assert_eq!(outcome.unwrap().replies, [text(&events)]);
}

#[test]
fn limits_have_defaults() {
    let limits = Limits::default();
    assert_eq!((limits.events, limits.listener_patience), (1024, Duration::from_secs(5)));
    let event = Event::Lagged { text_deltas: 3, custom_events: 1, other_events: 0 };
    assert_eq!(
        serde_json::to_string(&event).unwrap(),
        r#"{"type":"lagged","textDeltas":3,"customEvents":1,"otherEvents":0}"#
    );
}
