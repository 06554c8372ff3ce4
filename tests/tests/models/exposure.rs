//! Which tools a model is offered, and which of its calls are made.

use flow_core::Engine;
use flow_core::model::scripted::ScriptedModel;
use flow_core::prelude::*;
use flow_core::step::Exposure;
use flow_core::store::memory::MemoryStore;
use serde_json::json;

use super::errands::{Closed, Errands, Named, Open, Talk};

async fn offered(flow: Errands) -> Vec<String> {
    let talk = Talk::new(flow, ScriptedModel::new().text("Hi."));
    talk.say("hi").await.unwrap();
    talk.offered()
}

#[tokio::test]
async fn a_step_offers_the_tools_of_the_flow_that_it_names() {
    assert_eq!(Closed::FLOW_TOOLS, Exposure::Closed);
    assert_eq!(Open::FLOW_TOOLS, Exposure::Open);
    assert_eq!(Named::FLOW_TOOLS, Exposure::Named(&["refund", "fetch"]));

    assert_eq!(offered(Errands::at("Closed")).await, [""; 0]);
    // Its own first, then those of the flow in the flow's order.
    assert_eq!(offered(Errands::at("Named")).await, ["rest", "fetch", "refund"]);
    assert_eq!(
        offered(Errands::at("Open")).await,
        [
            "look", "count", "go_home", "fetch", "race", "meet", "work", "hang", "crash", "pay",
            "refund"
        ]
    );
}

#[tokio::test]
async fn a_tool_that_the_flow_has_taken_out_is_neither_offered_nor_called() {
    let mut flow = Errands::at("Named");
    flow.removed = vec!["refund"];
    let model = ScriptedModel::new().tool_call("refund", json!({ "cents": 1 })).text("No.");
    let talk = Talk::new(flow, model);
    talk.say("refund").await.unwrap();
    assert_eq!(talk.offered(), ["rest", "fetch"]);
    let told = &talk.told()[0];
    assert_eq!(told.content, "there is no tool `refund`; known tools: rest, fetch");
    assert_eq!(talk.stage.take_log(), [""; 0]);
}

#[tokio::test]
async fn a_step_may_deny_a_single_call_by_what_the_tool_would_read() {
    let pay = |cents| ("pay", json!({ "cents": cents }));
    let model = ScriptedModel::new()
        .tool_calls([
            pay(json!("5")),
            pay(json!("500")),
            ("count", json!({ "by": 1, "fail": false })),
            pay(json!(500)),
            pay(json!(7)),
        ])
        .text("Done.");
    let talk = Talk::new(Errands::at("Open"), model);
    talk.say("pay").await.unwrap();
    let told: Vec<_> = talk.told().into_iter().map(|r| (r.is_error, r.content)).collect();
    let denied =
        |calls| format!("tool `pay` was not called: at most 100 cents, {calls} calls so far");
    let expected = [
        (false, "paid".to_owned()),
        (true, denied(0)),
        (false, "1".to_owned()),
        (true, denied(1)),
        (false, "paid".to_owned()),
    ];
    assert_eq!(told, expected);
    let paid: Vec<String> = talk.stage.take_log();
    assert!(paid.len() == 2 && paid[0].starts_with("pay 5 ") && paid[1].starts_with("pay 7 "));
}

#[tokio::test]
async fn a_flow_may_deny_a_tool_for_a_turn() {
    let mut flow = Errands::at("Named");
    flow.denied = vec!["fetch"];
    let model = ScriptedModel::new().tool_call("fetch", json!({ "number": 9 })).text("No.");
    let talk = Talk::new(flow, model);
    talk.say("fetch").await.unwrap();
    assert_eq!(talk.told()[0].content, "tool `fetch` was not called: not on a Sunday");
}

mod cached {
    use std::borrow::Cow;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use flow_core::TurnRequest;
    use flow_core::model::ModelCatalog;
    use schemars::{Schema, SchemaGenerator};

    use super::*;

    #[flow(steps(Count), model = "test::main")]
    #[derive(Clone)]
    struct Desk;

    impl Flow for Desk {}

    #[step(reply, tools, next(stay))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Count;

    impl Reply for Count {
        type Flow = Desk;
    }

    /// An argument that knows how often its schema was made.
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Number(u32);

    static MADE: AtomicUsize = AtomicUsize::new(0);

    impl JsonSchema for Number {
        fn schema_name() -> Cow<'static, str> {
            "Number".into()
        }

        fn json_schema(generator: &mut SchemaGenerator) -> Schema {
            MADE.fetch_add(1, Ordering::SeqCst);
            u32::json_schema(generator)
        }
    }

    #[tools]
    impl Count {
        /// Adds.
        #[tool]
        fn add(&self, to: u32, number: Number) -> u32 {
            to + number.0
        }
    }

    #[tokio::test]
    async fn the_schemas_of_a_step_are_made_once() {
        let model = ScriptedModel::new()
            .tool_call("add", json!({ "to": 1, "number": 2 }))
            .text("3")
            .text("Hi.");
        let models = ModelCatalog::new().model("test::main", model.clone());
        let builder = Engine::builder().store(MemoryStore::new()).flow(Desk).models(models);
        let engine = builder.build().unwrap();
        for text in ["add", "hi"] {
            let request = TurnRequest::new(SessionId::new("s").unwrap()).message(text);
            engine.turn::<Desk>(request).await.unwrap();
        }
        assert_eq!(model.requests()[2].tools[0].name, "add");
        assert_eq!(MADE.load(Ordering::SeqCst), 1);
    }
}

mod clash {
    use super::*;

    #[flow(steps(Greet), tools)]
    #[derive(Clone)]
    struct Desk;

    impl Flow for Desk {}

    #[tools(flow)]
    impl Desk {
        /// Looks something up.
        #[tool]
        fn look_up(&self) {}
    }

    #[step(reply, tools, flow_tools(LookUp), next(stay))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    struct Greet;

    impl Reply for Greet {
        type Flow = Desk;
    }

    #[tools]
    impl Greet {
        /// Looks something else up.
        #[tool]
        fn look_up(&self) {}
    }

    #[test]
    fn a_tool_of_a_step_cannot_have_the_name_of_one_of_the_flow() {
        let built = Engine::builder().store(MemoryStore::new()).flow(Desk).build();
        let error = built.err().unwrap();
        assert_eq!(error.code(), "duplicate-tool");
        assert!(
            error.to_string().contains("step `Greet` offers two tools named `look_up`"),
            "{error}"
        );
    }
}
