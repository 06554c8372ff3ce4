//! Flows, steps, payloads and tools with parameters.

use std::marker::PhantomData;

use flow_core::prelude::*;
use flow_core::step::{FlowOf, StepTools};
use flow_core::testing::StepHarness;
use flow_core::tool::FlowTools;
use flow_core::transition::{Target, Transition};
use serde_json::json;

/// Where rows come from.
trait Db: Clone + Send + Sync + 'static {
    type Row: Serialize + serde::de::DeserializeOwned + JsonSchema + Send + Sync + 'static;
    fn row(&self, id: u32) -> Self::Row;
}

#[derive(Clone)]
struct Texts;

impl Db for Texts {
    type Row = String;
    fn row(&self, id: u32) -> String {
        format!("row {id}")
    }
}

/// Loads rows.
#[flow(id = "loader", steps(Load<D, 3>, Show<D>), tools)]
#[derive(Clone)]
struct Loader<D>
where
    D: Db,
{
    db: D,
}

impl<D: Db> Flow for Loader<D> {}

#[step(reply, tools, flow_tools(LookUp, GiveBack<D>), next(Show<D>(Loaded<D>), stay))]
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(bound = "")]
#[schemars(bound = "")]
struct Load<D: Db, const N: usize> {
    ids: Vec<u32>,
    #[serde(skip)]
    db: PhantomData<D>,
}

impl<D: Db, const N: usize> Default for Load<D, N> {
    fn default() -> Self {
        Self { ids: Vec::new(), db: PhantomData }
    }
}

impl<D: Db, const N: usize> Reply for Load<D, N> {
    type Flow = Loader<D>;
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(bound = "")]
#[schemars(bound = "")]
struct Loaded<D: Db>(D::Row);

#[step(collect, input = Loaded<D>, next(end))]
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(bound = "")]
#[schemars(bound = "")]
struct Show<D: Db> {
    #[slot(whole_message)]
    name: Option<String>,
    #[slot(optional)]
    row: Option<Kept<D>>,
}

/// What a slot keeps.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(bound = "")]
#[schemars(bound = "")]
struct Kept<D: Db>(D::Row);

impl<D: Db> Clone for Kept<D> {
    fn clone(&self) -> Self {
        let json = serde_json::to_value(&self.0).expect("a row is JSON");
        Self(serde_json::from_value(json).expect("a row reads back"))
    }
}

impl<D: Db> Default for Show<D> {
    fn default() -> Self {
        Self { name: None, row: None }
    }
}

impl<D: Db> Collect for Show<D> {
    type Flow = Loader<D>;
    async fn on_enter(&mut self, input: Loaded<D>, _: &mut StepCx<'_, Loader<D>>) -> Result<()> {
        self.row = Some(Kept(input.0));
        Ok(())
    }
    async fn complete(
        &mut self,
        data: ShowData<D>,
        _: &mut StepCx<'_, Loader<D>>,
    ) -> Result<ShowNext> {
        let row = data.row.map(|Kept(row)| serde_json::to_string(&row)).transpose()?;
        Ok(ShowNext::End(format!("{} {row:?}", data.name)))
    }
}

#[tools]
impl<D: Db, const N: usize> Load<D, N> {
    /// Loads one.
    #[tool]
    async fn load(&mut self, cx: &mut StepCx<'_, Loader<D>>, id: u32) -> Result<LoadNext<D>> {
        self.ids.push(id);
        Ok(LoadNext::Show(Loaded(cx.flow.db.row(id))))
    }

    /// Takes a row.
    #[tool]
    fn keep(&mut self, row: Loaded<D>, #[serde(default)] id: u32) -> Loaded<D> {
        self.ids.push(id);
        row
    }

    /// Counts rows.
    #[tool(parallel)]
    async fn count(&self, cx: &StepCx<'_, Loader<D>>, row: Loaded<D>, id: u32) -> usize {
        let _ = (cx.flow.db.row(id), row);
        self.ids.len() * N
    }
}

#[tools(flow)]
impl<D: Db> Loader<D> {
    /// Looks a row up.
    #[tool]
    async fn look_up(&self, id: u32) -> Result<Loaded<D>> {
        Ok(Loaded(self.db.row(id)))
    }

    /// Gives a row back.
    #[tool]
    fn give_back(&self, row: Loaded<D>, id: u32) -> Loaded<D> {
        let _ = id;
        row
    }
}

#[test]
fn the_metadata_is_that_of_the_instance() {
    assert_eq!(Loader::<Texts>::steps().len(), 2);
    assert_eq!(
        Load::<Texts, 3>::FLOW_TOOLS,
        flow_core::step::Exposure::Named(&["look_up", "give_back"])
    );
    assert_eq!(Load::<Texts, 3>::TARGETS, [Target::Step("Show".into()), Target::Stay]);
    let _: fn(FlowOf<Load<Texts, 3>>) -> Loader<Texts> = |flow| flow;
}

#[tokio::test]
async fn tools_of_a_generic_step_and_flow_work() {
    let mut harness = StepHarness::new(Loader { db: Texts });
    let mut step = Load::<Texts, 3>::default();
    let output =
        StepTools::call(&mut step, &mut harness.cx(), "load", json!({ "id": 7 })).await.unwrap();
    match output.into_transition() {
        Some(Transition::Go { step, input }) => {
            assert_eq!(step, "Show");
            assert_eq!(input.take::<Loaded<Texts>>().unwrap().0, "row 7");
        }
        other => panic!("{other:?}"),
    }
    let arguments = json!({ "row": "mine" });
    let output = StepTools::call(&mut step, &mut harness.cx(), "keep", arguments).await.unwrap();
    assert_eq!(output.result, "mine");
    assert_eq!(step.ids, [7, 0]);
    let cx = harness.cx();
    let arguments = || json!({ "row": "mine", "id": "1" });
    let (one, two) = futures_util::join!(
        StepTools::call_shared(&step, &cx, "count", arguments()),
        StepTools::call_shared(&step, &cx, "count", arguments()),
    );
    assert_eq!((one.unwrap().result, two.unwrap().result), (json!(6), json!(6)));
    let error = StepTools::call_shared(&step, &cx, "keep", arguments()).await.unwrap_err();
    assert_eq!(error.code(), "unknown-tool", "it does not share the step");
    let alone = StepTools::call(&mut step, &mut harness.cx(), "count", arguments()).await;
    assert_eq!(alone.unwrap().result, 6);

    let cx = ToolCx::new(SessionId::new("s").unwrap(), "t", "Load", "key");
    let flow = Loader { db: Texts };
    assert_eq!(LookUp { id: 1 }.call(&flow, &cx).await.unwrap().0, "row 1");
    let row = Loaded::<Texts>("own".into());
    assert_eq!(GiveBack { row, id: 1 }.call(&flow, &cx).await.unwrap().0, "own");
    let output = flow.call(&cx, "look_up", json!({ "id": 2 })).await.unwrap();
    assert_eq!(output.result, "row 2");
}
