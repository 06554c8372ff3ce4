//! Spans and metrics by the OpenTelemetry conventions for generative AI, as an exporter gets
//! them.

mod content;
mod metrics;
mod spans;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use flow_core::message::Part;
use flow_core::model::scripted::ScriptedModel;
use flow_core::model::{CallPolicy, ChatResponse, ModelCatalog, ModelError, Sampling, TokenUsage};
use flow_core::prelude::*;
use flow_core::store::memory::MemoryStore;
use flow_core::{Engine, TurnRequest};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Array, Value as Attribute};
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use serde_json::{Value, json};
use tracing_subscriber::layer::SubscriberExt as _;

const MODEL: &str = "gemini::gemini-test";

/// What must be in no span.
const CANARY: &str = "canary-4711";

/// Finds rooms.
#[flow(id = "hotel", version = 1, steps(Explore, Pay), model = "gemini::gemini-test", tools)]
#[derive(Clone)]
struct Hotel;

impl Flow for Hotel {
    fn config_call_policy(&self) -> CallPolicy {
        CallPolicy::default().attempt_timeout(Duration::from_secs(10))
    }
}

#[tools(flow)]
impl Hotel {
    /// Charges a card.
    #[tool]
    async fn charge(&self, card: String) -> Result<String> {
        Ok(format!("charged {card}"))
    }
}

#[step(reply, tools, next(Pay, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Explore;

impl Reply for Explore {
    type Flow = Hotel;

    fn instructions(&self, _: &StepCx<'_, Hotel>) -> Prompt {
        format!("You find rooms. {CANARY}").into()
    }

    fn sampling(&self, _: &StepCx<'_, Hotel>) -> Sampling {
        Sampling::default().temperature(0.5).top_p(0.9).max_output_tokens(300).seed(7)
    }
}

#[tools]
impl Explore {
    /// Searches.
    #[tool]
    async fn search(&mut self, city: String) -> Result<Value> {
        match city.as_str() {
            "Atlantis" => Err(StepError::new(format!("no such city: {CANARY}"))),
            city => Ok(json!({ "city": city, "rooms": [7] })),
        }
    }

    /// Rests.
    #[tool]
    async fn rest(&mut self, seconds: u64) -> Result<()> {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok(())
    }

    /// Never returns.
    #[tool]
    async fn hang(&mut self) -> Result<()> {
        std::future::pending().await
    }

    /// Goes and pays.
    #[tool]
    async fn pay(&mut self) -> ExploreNext {
        ExploreNext::Pay
    }
}

#[step(action, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Pay;

impl Action for Pay {
    type Flow = Hotel;

    async fn run(&mut self, cx: &mut ActionCx<'_, Hotel>) -> Result<PayNext> {
        cx.tool(Charge { card: CANARY.to_owned() }).await?;
        Ok(PayNext::End("paid".into()))
    }
}

/// The exporters of the process, since the turns run on threads of the runtime.
struct Exporters {
    spans: InMemorySpanExporter,
    metrics: InMemoryMetricExporter,
    tracers: SdkTracerProvider,
    meters: SdkMeterProvider,
}

static EXPORTERS: LazyLock<Exporters> = LazyLock::new(|| {
    let spans = InMemorySpanExporter::default();
    let tracers = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(tracers.tracer("tests"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))
        .expect("nobody else has set one");
    let metrics = InMemoryMetricExporter::default();
    let reader = PeriodicReader::builder(metrics.clone()).build();
    let meters = SdkMeterProvider::builder().with_reader(reader).build();
    opentelemetry::global::set_meter_provider(meters.clone());
    Exporters { spans, metrics, tracers, meters }
});

fn exporter() -> &'static InMemorySpanExporter {
    &EXPORTERS.spans
}

/// What was measured until now.
fn metrics() -> Vec<ResourceMetrics> {
    EXPORTERS.meters.force_flush().unwrap();
    EXPORTERS.metrics.get_finished_metrics().unwrap().pop().into_iter().collect()
}

fn engine(model: ScriptedModel) -> Engine {
    exporter();
    Engine::builder()
        .store(MemoryStore::new())
        .flow(Hotel)
        .models(ModelCatalog::new().model(MODEL, model))
        .build()
        .unwrap()
}

async fn say(engine: &Engine, session: &str, text: &str) -> Result<Vec<String>, flow_core::Error> {
    let request = TurnRequest::new(SessionId::new(session).unwrap()).message(text);
    engine.turn::<Hotel>(request).await.map(|outcome| outcome.replies)
}

/// The spans of a session of models and tools, in the order of their beginnings.
fn spans(session: &str) -> Vec<SpanData> {
    EXPORTERS.tracers.force_flush().unwrap();
    let mut spans = exporter().get_finished_spans().unwrap();
    spans.retain(|span| {
        attributes(span).get("gen_ai.conversation.id").is_some_and(|id| id == session)
    });
    spans.sort_by_key(|span| span.start_time);
    spans
}

/// The attributes of the convention.
fn attributes(span: &SpanData) -> BTreeMap<String, Value> {
    let attributes = span.attributes.iter();
    let own = attributes.filter(|attribute| {
        let name = attribute.key.as_str();
        name.starts_with("gen_ai.") || name.starts_with("error.")
    });
    own.map(|attribute| (attribute.key.to_string(), value(&attribute.value))).collect()
}

fn value(value: &Attribute) -> Value {
    match value {
        Attribute::Bool(value) => json!(value),
        Attribute::I64(value) => json!(value),
        Attribute::F64(value) => json!(value),
        Attribute::Array(Array::String(values)) => {
            values.iter().map(|value| value.as_str()).collect()
        }
        other => json!(other.as_str()),
    }
}

fn response(text: &str) -> ChatResponse {
    let mut usage = TokenUsage::new(20, 9);
    usage.cached = 16;
    usage.reasoning = 4;
    let mut response = ChatResponse::new(vec![Part::text(text)]).usage(usage);
    response.metadata.insert("id".into(), "resp-1".into());
    response.metadata.insert("model".into(), "gemini-test-001".into());
    response
}

fn status(status: u16) -> ModelError {
    ModelError::Status {
        model: MODEL.into(),
        status,
        message: "no".into(),
        retry_after: Some(Duration::from_secs(2)),
    }
}
