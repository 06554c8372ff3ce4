//! `#[tools]` and `#[tool]`.

use std::fmt;

use flow_core::error::ToolError;
use flow_core::id::SessionId;
use flow_core::prelude::*;
use flow_core::step::StepTools;
use flow_core::testing::StepHarness;
use flow_core::tool::{FlowTools, ToolDefinition, ToolOutput};
use flow_core::transition::Transition;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

#[flow(steps(Explore, Farewell), tools)]
#[derive(Clone, Default)]
pub(crate) struct Shop {
    fee: u32,
}

impl Flow for Shop {}

#[step(reply, tools, next(Farewell(String), stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Explore {
    seen: Vec<String>,
}

impl Reply for Explore {
    type Flow = Shop;
}

#[step(reply, input = String, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Farewell;

impl Reply for Farewell {
    type Flow = Shop;
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Query {
    /// The city.
    city: String,
    #[serde(default)]
    nights: u8,
}

#[derive(Debug)]
pub(crate) struct OwnError;

impl fmt::Display for OwnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("own error")
    }
}

impl std::error::Error for OwnError {}

type Alias<T> = Result<T, OwnError>;

#[tools]
impl Explore {
    const LIMIT: usize = 2;

    /// Searches.
    ///
    /// In a city.
    #[tool]
    async fn search(&mut self, cx: &mut StepCx<'_, Shop>, query: Query) -> ToolResult<Vec<String>> {
        cx.say("one moment");
        self.seen.push(query.city.clone());
        Ok(vec![query.city; query.nights as usize])
    }

    /// Two arguments.
    #[tool(name = "two-args")]
    pub(crate) fn two(
        &self,
        _cx: &StepCx<'_, Shop>,
        /// The first.
        city: String,
        #[serde(default, rename = "n")] nights: Option<u8>,
    ) -> String {
        format!("{city} {nights:?}")
    }

    #[tool(description = "One plain argument.")]
    fn one(&self, _id: u32) -> Alias<u32> {
        if _id == 0 { Err(OwnError) } else { Ok(_id) }
    }

    #[doc = include_str!("pick.md")]
    #[tool]
    async fn pick(&mut self, city: String) -> ExploreNext {
        ExploreNext::Farewell(city)
    }

    /// Picks and says so.
    #[tool]
    fn pick_aloud(
        &mut self,
        city: String,
    ) -> Result<ToolOutcome<&'static str, ExploreNext>, String> {
        if city.is_empty() {
            return Err("no city".into());
        }
        Ok(ToolOutcome::new("picked").go(ExploreNext::Farewell(city)))
    }

    /// Needs nothing and gives nothing.
    #[tool]
    fn ping(&self) {}

    /// Borrows across awaits.
    #[tool]
    async fn stream(&mut self, ids: Vec<u32>) -> Result<Vec<u32>> {
        // A stream over `&ids` cannot be `Send` in any crate: rust-lang/rust#64552.
        let seen = &self.seen;
        let sums = futures_util::stream::iter(ids)
            .map(|id| async move { id + seen.len() as u32 })
            .buffer_unordered(4)
            .collect::<Vec<_>>()
            .await;
        Ok(sums)
    }

    /// Never there.
    #[cfg(any())]
    #[tool]
    fn gone(&self, what: Missing) -> Missing {
        what
    }

    /// There under one of two conditions.
    #[cfg(test)]
    #[tool]
    fn either(&self) -> u8 {
        1
    }

    /// There under the other.
    #[cfg_attr(all(), cfg(not(test)))]
    #[tool]
    fn either(&self) -> u8 {
        2
    }

    /// Takes what schemars is told.
    #[tool]
    fn few(&self, #[schemars(range(min = 1, max = 3))] n: u8) -> u8 {
        n
    }

    /// Fails for good.
    #[tool]
    fn fail(&self) -> Result<()> {
        Err(StepError::terminal("never"))
    }

    #[allow(dead_code)]
    fn limit(&self) -> usize {
        Self::LIMIT
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) total: u32,
    pub(crate) key: String,
}

#[tools(flow)]
impl Shop {
    /// Charges money.
    #[tool]
    pub(crate) async fn charge(
        &self,
        cx: &ToolCx,
        /// In cents.
        cents: u32,
        #[serde(default, rename = "remark")]
        #[schemars(length(max = 20))]
        note: Option<String>,
    ) -> ToolResult<Receipt> {
        if cents == 0 {
            return Err(StepError::terminal(note.unwrap_or_default()));
        }
        Ok(Receipt { total: cents + self.fee, key: cx.idempotency_key().to_owned() })
    }

    /// Looks something up.
    #[tool]
    fn look_up(&self, query: Query) -> u8 {
        query.nights
    }

    /// Answers.
    #[tool]
    pub(crate) fn ping(&self) -> Result<String, OwnError> {
        Ok("pong".into())
    }
}

fn cx() -> ToolCx {
    ToolCx::new(SessionId::new("s").unwrap(), "t", "Explore", "key")
}

fn find(tools: Vec<ToolDefinition>, name: &str) -> ToolDefinition {
    tools.into_iter().find(|tool| tool.name == name).unwrap()
}

#[test]
fn tools_are_listed_in_source_order() {
    let names: Vec<String> = Explore::definitions().into_iter().map(|tool| tool.name).collect();
    assert_eq!(
        names,
        [
            "search",
            "two-args",
            "one",
            "pick",
            "pick_aloud",
            "ping",
            "stream",
            "either",
            "few",
            "fail"
        ]
    );
    assert_eq!(<Explore as Step>::tools(), Explore::definitions());
    let names: Vec<String> =
        <Shop as FlowMeta>::tools().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["charge", "look_up", "ping"]);
}

#[test]
fn a_description_is_the_doc_comment_or_what_the_attribute_says() {
    let of = |name| find(Explore::definitions(), name).description;
    assert_eq!(of("search"), "Searches.\n\nIn a city.");
    assert_eq!(of("one"), "One plain argument.");
    assert_eq!(of("pick"), "Takes the city that the guest\nhas chosen.");
}

#[test]
fn parameters_are_the_arguments() {
    let of = |name| find(Explore::definitions(), name).parameters;
    assert_eq!(
        of("search")["properties"]["city"],
        json!({ "type": "string", "description": "The city." })
    );
    assert_eq!(
        of("two-args"),
        json!({
            "type": "object",
            "properties": {
                "city": { "type": "string", "description": "The first." },
                "n": {
                    "type": ["integer", "null"], "format": "uint8", "minimum": 0, "maximum": 255,
                    "default": null
                },
            },
            "required": ["city"],
        })
    );
    assert_eq!(of("few")["properties"]["n"]["maximum"], 3);
    assert_eq!(of("one")["required"], json!(["id"]));
    assert_eq!(of("ping"), json!({ "type": "object", "properties": {} }));
    let charge = find(Shop::definitions(), "charge").parameters;
    assert_eq!(charge["properties"]["cents"]["description"], "In cents.");
    assert_eq!(charge["required"], json!(["cents"]));
    assert_eq!(charge["properties"]["remark"]["maxLength"], 20);
    assert!(charge.get("description").is_none() && charge.get("title").is_none());
}

#[tokio::test]
async fn a_call_struct_calls_the_tool() {
    let shop = Shop { fee: 5 };
    let receipt = Charge { cents: 10, note: None }.call(&shop, &cx()).await.unwrap();
    assert_eq!(receipt, Receipt { total: 15, key: "key".into() });
    let query = Query { city: "Ulm".into(), nights: 3 };
    assert_eq!(LookUp { query }.call(&shop, &cx()).await.unwrap(), 3);
    assert_eq!(Ping.call(&shop, &cx()).await.unwrap(), "pong");
    assert_eq!(serde_json::to_value(&Ping).unwrap(), json!({}));
    let call = Charge { cents: 1, note: Some("x".into()) };
    assert_eq!(serde_json::to_value(&call).unwrap(), json!({ "cents": 1, "remark": "x" }));
    let error = Charge { cents: 0, note: Some("no".into()) }.call(&shop, &cx()).await.unwrap_err();
    assert!(
        matches!(&error, ToolError::Failed { tool, reason, retryable: false } if tool == "charge" && reason == "no"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_flow_dispatches_by_name() {
    let shop = Shop { fee: 1 };
    let call = |tool, arguments| {
        let shop = &shop;
        async move { shop.call(&cx(), tool, arguments).await }
    };
    assert_eq!(call("charge", json!({ "cents": 1 })).await.unwrap().result["total"], 2);
    assert_eq!(call("look_up", json!({ "city": "Ulm", "nights": 4 })).await.unwrap().result, 4);
    assert_eq!(call("ping", json!({})).await.unwrap().result, "pong");
    let error = call("change", json!({})).await.unwrap_err().to_string();
    assert_eq!(error, "there is no tool `change`; known tools: charge, look_up, ping");
    let error = call("charge", json!({ "cents": [] })).await.unwrap_err().to_string();
    assert!(error.starts_with("invalid arguments for tool `charge` at `cents`"), "{error}");
}

/// Calls a tool of the step, as the engine does for a model.
async fn call(step: &mut Explore, tool: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
    let mut harness = StepHarness::new(Shop::default());
    StepTools::call(step, &mut harness.cx(), tool, arguments).await
}

#[tokio::test]
async fn a_step_dispatches_by_name() {
    let mut step = Explore::default();
    let output = call(&mut step, "search", json!({ "city": "Ulm", "nights": "2" })).await.unwrap();
    assert_eq!(output.result, json!(["Ulm", "Ulm"]));
    assert!(output.next.is_none());
    assert_eq!(step.seen, ["Ulm"]);

    let two = call(&mut step, "two-args", json!({ "city": "Bonn", "n": 1 })).await.unwrap();
    assert_eq!(two.result, "Bonn Some(1)");
    assert_eq!(call(&mut step, "one", json!({ "id": 7.0 })).await.unwrap().result, 7);
    assert_eq!(call(&mut step, "ping", Value::Null).await.unwrap().result, Value::Null);
    assert_eq!(call(&mut step, "stream", json!({ "ids": [1] })).await.unwrap().result, json!([2]));
    assert_eq!(call(&mut step, "either", json!({})).await.unwrap().result, 1);
}

#[tokio::test]
async fn a_tool_says_something_to_the_user_through_its_context() {
    let mut harness = StepHarness::new(Shop::default());
    let mut step = Explore::default();
    let arguments = json!({ "city": "Ulm" });
    StepTools::call(&mut step, &mut harness.cx(), "search", arguments).await.unwrap();
    assert_eq!(harness.said(), ["one moment"]);
}

#[tokio::test]
async fn a_tool_moves_the_flow_with_or_without_a_result() {
    let mut step = Explore::default();
    for (tool, result) in [("pick", Value::Null), ("pick_aloud", json!("picked"))] {
        let output = call(&mut step, tool, json!({ "city": "Ulm" })).await.unwrap();
        assert_eq!(output.result, result);
        match output.into_transition() {
            Some(Transition::Go { step, input }) => {
                assert_eq!(step, "Farewell");
                assert_eq!(input.take::<String>().unwrap(), "Ulm");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn every_kind_of_error_says_what_happened() {
    let mut step = Explore::default();
    let mut errors = Vec::new();
    for (tool, arguments) in [
        ("one", json!({ "id": 0 })),
        ("pick_aloud", json!({ "city": "" })),
        ("fail", json!({})),
        ("one", json!({ "id": "many" })),
        ("one", json!({})),
        ("gone", json!({})),
    ] {
        let error = call(&mut step, tool, arguments).await.unwrap_err();
        errors.push((error.retryable(), error.to_string()));
    }
    let expected = [
        (true, "tool `one` failed: own error"),
        (true, "tool `pick_aloud` failed: no city"),
        (false, "tool `fail` failed: never"),
        (
            false,
            "invalid arguments for tool `one` at `id`: invalid type: string \"many\", expected u32",
        ),
        (false, "invalid arguments for tool `one` at `.`: missing field `id`"),
        (
            false,
            "there is no tool `gone`; known tools: search, two-args, one, pick, pick_aloud, ping, \
             stream, either, few, fail",
        ),
    ];
    assert_eq!(errors, expected.map(|(retryable, text)| (retryable, text.to_owned())));
}
