//! The `tracing` spans of a turn: their tree, their fields, and what must not stand in them.

use std::collections::HashMap;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::{Durability, Engine, TurnRequest};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument as _, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// A span or an event as it was recorded.
#[derive(Debug, Clone)]
struct Entry {
    name: String,
    fields: Vec<(String, String)>,
    /// The place of the span around it.
    parent: Option<usize>,
}

/// Records every span and event of the process.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    entries: Vec<Entry>,
    open: HashMap<Id, usize>,
}

struct Fields<'a>(&'a mut Vec<(String, String)>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name().to_owned(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.name().to_owned(), format!("{value:?}")));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let around = cx.span(id).and_then(|span| span.parent().map(|parent| parent.id()));
        let mut fields = Vec::new();
        attributes.record(&mut Fields(&mut fields));
        let mut recorded = self.lock();
        let parent = around.and_then(|id| recorded.open.get(&id).copied());
        let place = recorded.entries.len();
        let name = attributes.metadata().name().to_owned();
        recorded.entries.push(Entry { name, fields, parent });
        recorded.open.insert(id.clone(), place);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut recorded = self.lock();
        if let Some(place) = recorded.open.get(id).copied() {
            values.record(&mut Fields(&mut recorded.entries[place].fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let mut fields = Vec::new();
        event.record(&mut Fields(&mut fields));
        let around = cx.event_span(event).map(|span| span.id());
        let mut recorded = self.lock();
        let parent = around.and_then(|id| recorded.open.get(&id).copied());
        recorded.entries.push(Entry { name: "event".to_owned(), fields, parent });
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.lock().open.remove(&id);
    }
}

impl Recorder {
    fn lock(&self) -> std::sync::MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one recorder, since the turns run on threads of the runtime.
    fn install() -> Self {
        static RECORDER: LazyLock<Recorder> = LazyLock::new(|| {
            let recorder = Recorder::default();
            let subscriber = tracing_subscriber::registry().with(recorder.clone());
            tracing::subscriber::set_global_default(subscriber).expect("nobody else has set one");
            recorder
        });
        RECORDER.clone()
    }

    /// What was recorded within the turns of a session, as places in the whole record.
    fn of(&self, session: &str) -> (Vec<Entry>, Vec<usize>) {
        let entries = self.lock().entries.clone();
        let is_turn = |entry: &Entry| {
            entry.name == "turn" && entry.fields.contains(&("session".into(), session.into()))
        };
        let within = |mut place: usize| loop {
            if is_turn(&entries[place]) {
                return true;
            }
            match entries[place].parent {
                Some(parent) => place = parent,
                None => return false,
            }
        };
        let places = (0..entries.len()).filter(|place| within(*place)).collect();
        (entries, places)
    }

    /// The spans of a session's turns, one per line, indented by depth, and the events that
    /// the flow itself made.
    fn tree(&self, session: &str) -> String {
        let (entries, places) = self.of(session);
        let mut text = String::new();
        for place in places {
            let entry = &entries[place];
            let own = entry.fields.iter().any(|(name, _)| name == "here");
            if entry.name == "event" && !own {
                continue;
            }
            let around = std::iter::successors(entry.parent, |place| entries[*place].parent);
            let depth = around.count();
            let _ = write!(text, "{}{}", "  ".repeat(depth), entry.name);
            for (name, value) in &entry.fields {
                let _ = write!(text, " {name}={value}");
            }
            text.push('\n');
        }
        text
    }
}

/// Takes a secret and pays with it.
#[flow(id = "payment", version = 1, steps(Ask, Pay, Done), state = Secret, tools)]
#[derive(Clone)]
struct Payment;

impl Flow for Payment {}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Secret {
    card: String,
}

#[step(collect, next(Pay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Ask {
    #[slot(whole_message)]
    card: Option<String>,
}

impl Collect for Ask {
    type Flow = Payment;

    async fn complete(&mut self, data: AskData, cx: &mut StepCx<'_, Payment>) -> Result<AskNext> {
        cx.state.card = data.card;
        Ok(AskNext::Pay)
    }
}

#[step(action, next(Done))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Pay;

impl Action for Pay {
    type Flow = Payment;

    async fn run(&mut self, cx: &mut ActionCx<'_, Payment>) -> Result<PayNext> {
        move_about().await?;
        tracing::info!(here = "step");
        let call = Charge { card: cx.state.card.clone() };
        cx.tool(call).await?;
        move_about().await?;
        tracing::info!(here = "step again");
        Ok(PayNext::Done)
    }
}

#[tools(flow)]
impl Payment {
    /// Charges the card.
    #[tool]
    async fn charge(&self, card: String) -> Result<usize> {
        move_about().await?;
        tracing::info!(here = "tool");
        Ok(card.len())
    }
}

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Done;

impl Reply for Done {
    type Flow = Payment;

    fn response(&self, cx: &StepCx<'_, Payment>) -> Option<String> {
        Some(format!("Paid with {}.", cx.state.card))
    }

    async fn on_response(
        &mut self,
        _: &str,
        _: &mut StepCx<'_, Payment>,
    ) -> Result<Option<DoneNext>> {
        Ok(Some(DoneNext::End("paid".into())))
    }
}

/// Lets the task be woken from other threads, so that it may go on on another worker.
async fn move_about() -> Result<()> {
    for _ in 0..4 {
        tokio::task::spawn_blocking(|| {}).await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

const SECRET: &str = "4000 0012 3456 7899";

fn engine(durability: Durability) -> Engine {
    let builder = Engine::builder().store(MemoryStore::new()).durability(durability);
    builder.flow(Payment).build().unwrap()
}

fn request(session: &str, turn: &str) -> TurnRequest {
    TurnRequest::new(SessionId::new(session).unwrap()).turn_id(turn)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_turn_is_a_tree_of_spans_with_the_ids_as_fields() {
    let recorder = Recorder::install();
    let engine = engine(Durability::Crossing);
    engine.turn::<Payment>(request("tree", "one")).await.unwrap();
    engine.turn::<Payment>(request("tree", "two").message(SECRET)).await.unwrap();
    assert_eq!(
        recorder.tree("tree"),
        "\
turn flow=payment session=tree turn=one
  open session=tree
  step step=Ask visit=1
  commit session=tree revision=1
turn flow=payment session=tree turn=two
  open session=tree
  step step=Ask visit=1
  commit session=tree revision=2
  step step=Pay visit=2
    event here=step
    execute_tool otel.name=execute_tool charge otel.kind=internal gen_ai.operation.name=execute_tool gen_ai.conversation.id=tree gen_ai.tool.name=charge gen_ai.tool.call.id=tree:2:0:charge:77964593e7da gen_ai.tool.type=function
      event here=tool
    event here=step again
  commit session=tree revision=3
  step step=Done visit=3
  commit session=tree revision=4
"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_commit_before_an_effect_belongs_to_the_step() {
    let recorder = Recorder::install();
    let engine = engine(Durability::Effect);
    engine.turn::<Payment>(request("effect", "one")).await.unwrap();
    engine.turn::<Payment>(request("effect", "two").message(SECRET)).await.unwrap();
    let tree = recorder.tree("effect");
    let pay = tree.split_once("  step step=Pay visit=2\n").unwrap().1;
    let expected = "    \
    event here=step
    commit session=effect revision=3
    execute_tool otel.name=execute_tool charge otel.kind=internal gen_ai.operation.name=execute_tool gen_ai.conversation.id=effect gen_ai.tool.name=charge gen_ai.tool.call.id=effect:2:0:charge:77964593e7da gen_ai.tool.type=function
      event here=tool
";
    assert!(pay.starts_with(expected), "{tree}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn turns_that_run_at_once_have_a_tree_each() {
    let recorder = Recorder::install();
    let engine = engine(Durability::Crossing);
    let sessions: Vec<String> = (0..32).map(|n| format!("at-once-{n}")).collect();
    for session in &sessions {
        engine.turn::<Payment>(request(session, "one")).await.unwrap();
    }
    let turns: Vec<_> = sessions
        .iter()
        .map(|session| engine.turn::<Payment>(request(session, "two").message(SECRET)))
        .collect();
    for turn in turns {
        turn.await.unwrap();
    }
    let first = recorder.tree(&sessions[0]);
    assert_eq!(first.lines().count(), 16, "{first}");
    for session in &sessions {
        assert_eq!(recorder.tree(session), first.replace(&sessions[0], session));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_turn_belongs_to_the_span_of_the_caller() {
    let recorder = Recorder::install();
    let engine = engine(Durability::Crossing);
    let call = tracing::info_span!("http", path = "/chat");
    async { engine.turn::<Payment>(request("called", "one")).await.unwrap() }
        .instrument(call)
        .await;
    let (entries, places) = recorder.of("called");
    let turn = &entries[places[0]];
    let around = turn.parent.map(|place| entries[place].name.as_str());
    assert_eq!((turn.name.as_str(), around), ("turn", Some("http")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_that_was_said_stands_in_spans_or_events() {
    let recorder = Recorder::install();
    let engine = engine(Durability::Effect);
    engine.turn::<Payment>(request("secret", "one")).await.unwrap();
    let said = request("secret", "two").message(SECRET).context("token", "tok_abcdef");
    let outcome = engine.turn::<Payment>(said).await.unwrap();
    assert!(outcome.replies[0].contains(SECRET), "the flow has worked with the secret");
    // The flow is over: an error, which is logged.
    let after = request("secret", "three").message(SECRET);
    engine.turn::<Payment>(after).await.unwrap_err();
    let (entries, places) = recorder.of("secret");
    assert!(places.len() > 20, "{}", places.len());
    let mut failures = 0;
    for entry in places.iter().map(|place| &entries[*place]) {
        for (name, value) in &entry.fields {
            let leaks = [SECRET, "tok_abcdef", "Paid with", "Please tell me"];
            assert!(!leaks.iter().any(|leak| value.contains(leak)), "{name} of {entry:?}");
            failures += usize::from(value == "session-ended");
        }
    }
    assert_eq!(failures, 1, "the failed turn is logged with its code");
}
