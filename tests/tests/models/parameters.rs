//! The parameters of models: how they merge, and what is refused before a session is touched.

use std::sync::Arc;

use flow_core::model::provider::ProviderModel;
use flow_core::model::{ModelConfig, ModelSelection};
use tests::recording_store::RecordingStore;

use super::*;

/// Speaks in five steps, one after the other.
#[flow(
    id = "choir",
    steps(Flows, Adds, Same, Other, Dynamic),
    model = "test::main",
    sampling(temperature = 0.9, top_p = 0.8, extra(a = 1, b = "flow"))
)]
#[derive(Clone)]
struct Choir;

impl Flow for Choir {}

/// A step of the choir that goes on when it has spoken.
macro_rules! voice {
    ($step:ident, $next:ident, $way:expr $(, $hook:item)?) => {
        impl Reply for $step {
            type Flow = Choir;

            async fn on_response(
                &mut self,
                _: &str,
                _: &mut StepCx<'_, Choir>,
            ) -> Result<Option<$next>> {
                Ok(Some($way))
            }

            $($hook)?
        }
    };
}

#[step(reply, next(Adds))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Flows;
voice!(Flows, FlowsNext, FlowsNext::Adds);

#[step(reply, sampling(seed = 7, reasoning_effort = "low"), next(Same))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Adds;
voice!(Adds, AddsNext, AddsNext::Same);

#[step(
    reply,
    model = "test::main",
    sampling(temperature = 0, extra(b = "step", c = true)),
    next(Other)
)]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Same;
voice!(Same, SameNext, SameNext::Other);

#[step(reply, model = "test::other", sampling(max_output_tokens = 5), next(Dynamic))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Other;
voice!(Other, OtherNext, OtherNext::Dynamic);

#[step(reply, sampling(seed = 7), next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Dynamic;
voice!(
    Dynamic,
    DynamicNext,
    DynamicNext::End("sung".into()),
    fn sampling(&self, _: &StepCx<'_, Choir>) -> Sampling {
        Sampling::default().seed(8).extra("a", 2)
    }
);

#[tokio::test]
async fn the_step_merges_over_the_flow_for_one_model_and_the_hook_comes_last() {
    let main = ScriptedModel::new().text("1").text("2").text("3").text("5");
    let other = ScriptedModel::new().text("4");
    let models =
        ModelCatalog::new().model("test::main", main.clone()).model("test::other", other.clone());
    let engine =
        Engine::builder().store(MemoryStore::new()).flow(Choir).models(models).build().unwrap();
    let outcome = engine.turn::<Choir>(TurnRequest::new(session()).message("sing")).await.unwrap();
    assert_eq!(outcome.replies, ["1", "2", "3", "4", "5"]);
    let flow = || Sampling::default().temperature(0.9).top_p(0.8).extra("a", 1).extra("b", "flow");
    let sent: Vec<_> = main.requests().into_iter().map(|request| request.sampling).collect();
    assert_eq!(sent[0], flow());
    assert_eq!(sent[1], flow().seed(7).reasoning_effort("low"));
    assert_eq!(sent[2], flow().temperature(0.0).extra("b", "step").extra("c", true));
    assert_eq!(sent[3], flow().seed(8).extra("a", 2));
    assert_eq!(other.requests()[0].sampling, Sampling::default().max_output_tokens(5));
}

/// A flow whose model is chosen at run time.
#[flow(id = "picky", steps(Ask, Seeded))]
#[derive(Clone)]
struct Picky {
    config: Option<ModelConfig>,
    hook: Sampling,
}

impl Flow for Picky {
    fn config_model(&self) -> Option<ModelConfig> {
        self.config.clone()
    }
}

#[step(reply, next(stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Ask;

impl Reply for Ask {
    type Flow = Picky;

    fn sampling(&self, cx: &StepCx<'_, Picky>) -> Sampling {
        cx.flow.hook.clone()
    }
}

#[step(reply, model = "claude::m", sampling(seed = 7), next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Seeded;

impl Reply for Seeded {
    type Flow = Picky;
}

/// A turn of a flow: what comes of it, and which calls of the store were made.
async fn picky(
    config: Option<ModelConfig>,
    hook: Sampling,
    claude: bool,
) -> (Result<Vec<String>, flow_core::Error>, Vec<&'static str>) {
    let claude_model: Arc<dyn flow_core::model::ChatModel> = match claude {
        true => Arc::new(ProviderModel::builder("anthropic", "m").key("k").build().unwrap()),
        false => Arc::new(ScriptedModel::new()),
    };
    let models = ModelCatalog::new()
        .model("test::main", ScriptedModel::new().text("Hello!"))
        .provider("claude", move |_| Ok(claude_model.clone()))
        .provider("keyless", |_| {
            let (provider, variable) = ("keyless".to_owned(), "KEYLESS_API_KEY".to_owned());
            Err(ModelError::MissingKey { provider, variable })
        });
    let store = RecordingStore::new(MemoryStore::new());
    let engine = Engine::builder()
        .store(store.clone())
        .flow(Picky { config, hook })
        .models(models)
        .build()
        .unwrap();
    let turn = engine.turn::<Picky>(TurnRequest::new(session()).message("hi")).await;
    (turn.map(|outcome| outcome.replies), store.take_names())
}

fn config(model: &str, sampling: Sampling) -> Option<ModelConfig> {
    let model: ModelSelection = model.parse().unwrap();
    Some(ModelConfig::from(model).sampling(sampling))
}

#[tokio::test]
async fn what_cannot_be_used_is_found_before_the_session_is_touched() {
    let none = Sampling::default;
    let flow = "flow `picky`: the model of the flow cannot be used: ";
    let table = [
        (config("acme::m", none()), false, "unknown-model", flow, "no model `acme::m` is known"),
        (config("keyless::m", none()), false, "missing-key", flow, "KEYLESS_API_KEY"),
        (
            config("test::main", none().temperature(3.0)),
            false,
            "model-parameter",
            flow,
            "`test::main` does not take the parameter `temperature`: it is a number from 0 to 2",
        ),
        (config("test::main", none().top_p(0.0)), false, "model-parameter", flow, "`top_p`"),
        (
            config("test::main", none().extra("apiKey", "canary")),
            false,
            "model-parameter",
            flow,
            "`extra.apiKey`",
        ),
        (config("claude::m", none().seed(7)), true, "model-parameter", flow, "`seed`"),
        // Only the step asks for what its model does not take.
        (
            config("test::main", none()),
            true,
            "model-parameter",
            "flow `picky`: the model of step `Seeded` cannot be used: ",
            "`anthropic::m` does not take the parameter `seed`",
        ),
    ];
    for (config, claude, code, place, reason) in table {
        let (result, calls) = picky(config, none(), claude).await;
        let error = result.unwrap_err();
        assert_eq!((error.code(), error.retryable()), (code, false), "{error}");
        let told = error.to_string();
        assert!(told.starts_with(place) && told.contains(reason), "{told}");
        assert!(!format!("{told} {error:?}").contains("canary"), "{error:?}");
        assert_eq!(calls, [""; 0], "{told}");
    }
    let (result, calls) = picky(config("test::main", none().seed(7)), none(), false).await;
    assert_eq!(result.unwrap(), ["Hello!"]);
    assert_eq!(calls.first(), Some(&"open"));
}

#[tokio::test]
async fn parameters_of_the_hook_are_checked_when_the_call_is_made() {
    let none = Sampling::default;
    for (hook, parameter) in [
        (none().temperature(9.0), "`temperature`"),
        (none().extra("token", "canary"), "`extra.token`"),
    ] {
        let (result, calls) = picky(config("test::main", none()), hook, false).await;
        let error = result.unwrap_err();
        assert_eq!(error.code(), "model-parameter", "{error}");
        let told = error.to_string();
        assert!(told.contains("step `Ask`") && told.contains(parameter), "{told}");
        assert!(!format!("{told} {error:?}").contains("canary"), "{error:?}");
        assert_eq!(calls.first(), Some(&"open"));
    }
}
