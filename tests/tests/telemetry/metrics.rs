use flow_core::model::{ChatRequest, complete};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Histogram, MetricData};

use super::*;

/// A point of a histogram.
#[derive(Debug, PartialEq)]
struct Point {
    attributes: Value,
    count: u64,
    sum: f64,
}

fn points<T: Copy>(
    histogram: &Histogram<T>,
    bounds: &[f64],
    number: impl Fn(T) -> f64,
) -> Vec<Point> {
    let points = histogram.data_points().map(|point| {
        let found: Vec<f64> = point.bounds().collect();
        assert!(found.iter().zip(bounds).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
        assert_eq!(found.len(), bounds.len());
        let mut attributes: Value =
            point.attributes().map(|pair| (pair.key.to_string(), value(&pair.value))).collect();
        attributes.sort_all_objects();
        Point { attributes, count: point.count(), sum: number(point.sum()) }
    });
    points.collect()
}

/// The points of a histogram of this crate which have an attribute.
fn read(name: &str, unit: &str, bounds: &[f64], with: (&str, &str)) -> Vec<Point> {
    let told = metrics();
    let metrics = told.iter().flat_map(|resource| resource.scope_metrics());
    let metrics = metrics.filter(|scope| scope.scope().name() == "flow-core");
    let metric = metrics.flat_map(|scope| scope.metrics()).find(|metric| metric.name() == name);
    let metric = metric.unwrap_or_else(|| panic!("no metric `{name}`"));
    assert_eq!(metric.unit(), unit);
    let mut points = match metric.data() {
        AggregatedMetrics::F64(MetricData::Histogram(data)) => points(data, bounds, |n| n),
        AggregatedMetrics::U64(MetricData::Histogram(data)) => points(data, bounds, |n| n as f64),
        other => panic!("no histogram: {other:?}"),
    };
    points.retain(|point| point.attributes[with.0] == with.1);
    points.sort_by_key(|point| point.attributes.to_string());
    points
}

const TOKENS: [f64; 14] = [
    1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0,
    16777216.0, 67108864.0,
];

const SECONDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

#[tokio::test(start_paused = true)]
async fn calls_of_models_are_counted_in_tokens_and_seconds() {
    exporter();
    let model = ScriptedModel::new()
        .delay(Duration::from_millis(250))
        .response(response("One."))
        .delay(Duration::from_millis(500))
        .response(response("Two."))
        .error(status(401))
        .text("It does not say what it costs.");
    for _ in 0..4 {
        let request = ChatRequest::default();
        let _ = complete(&model, "groq::measured", &request, &CallPolicy::default()).await;
    }
    let of = ("gen_ai.request.model", "measured");
    let attributes = |more: Value| {
        let mut all = json!({
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "groq",
            "gen_ai.request.model": "measured",
        });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let response = "gen_ai.response.model";
    let kind = |kind| attributes(json!({ response: "gemini-test-001", "gen_ai.token.type": kind }));
    assert_eq!(
        read("gen_ai.client.token.usage", "{token}", &TOKENS, of),
        [
            Point { attributes: kind("input"), count: 2, sum: 40.0 },
            Point { attributes: kind("output"), count: 2, sum: 18.0 },
        ]
    );
    let failed = attributes(json!({ "error.type": "401" }));
    let answered = attributes(json!({ response: "gemini-test-001" }));
    assert_eq!(
        read("gen_ai.client.operation.duration", "s", &SECONDS, of),
        [
            Point { attributes: failed, count: 1, sum: 0.0 },
            Point { attributes: answered, count: 2, sum: 0.75 },
            Point { attributes: attributes(json!({})), count: 1, sum: 0.0 },
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn calls_of_tools_are_counted_in_seconds_and_made_up_ones_are_not() {
    let model = ScriptedModel::new()
        .tool_calls([("rest", json!({ "seconds": 3 })), ("rest", json!({ "seconds": 90 }))])
        .tool_calls([("rest", json!({ "seconds": "many" })), ("made_up", json!({}))])
        .response(response("Rested."));
    say(&engine(model), "rest", "rest").await.unwrap();
    let of = |error: Option<&str>| {
        let mut all = json!({ "gen_ai.tool.name": "rest", "gen_ai.tool.type": "function" });
        if let Some(error) = error {
            all["error.type"] = json!(error);
        }
        all
    };
    let read =
        |tool| read("gen_ai.execute_tool.duration", "s", &SECONDS, ("gen_ai.tool.name", tool));
    assert_eq!(
        read("rest"),
        [
            Point { attributes: of(Some("invalid-arguments")), count: 1, sum: 0.0 },
            Point { attributes: of(Some("tool-failed")), count: 1, sum: 60.0 },
            Point { attributes: of(None), count: 1, sum: 3.0 },
        ]
    );
    assert_eq!(read("made_up"), []);
}
