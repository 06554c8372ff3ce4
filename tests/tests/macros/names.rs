//! Names that could be mistaken for those of generated code, and code that a macro wrote.

use flow_core::prelude::*;
use flow_core::step::StepTools;
use flow_core::testing::StepHarness;
use serde_json::json;

#[flow(steps(r#type, Stay, One, Two), tools)]
#[derive(Clone)]
pub(crate) struct Odd;

impl Flow for Odd {}

/// Named by a keyword.
#[allow(non_camel_case_types, dead_code)]
#[step(collect, tools, next(Stay, end, r#type))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct r#type {
    /// Named by a keyword.
    #[slot(whole_message)]
    r#fn: Option<String>,
    #[slot(optional)]
    slot: Option<u8>,
    #[slot(optional)]
    value: Option<u8>,
}

impl Collect for r#type {
    type Flow = Odd;
    async fn complete(&mut self, data: typeData, _: &mut StepCx<'_, Odd>) -> Result<typeNext> {
        Ok(typeNext::End(format!("{} {:?} {:?}", data.r#fn, data.slot, data.value)))
    }
}

/// Named as a word of `next(..)`.
#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Stay;

impl Reply for Stay {
    type Flow = Odd;
}

#[tools]
impl r#type {
    /// Takes arguments that are named as the dispatcher's own.
    #[tool]
    #[allow(clippy::too_many_arguments)]
    async fn r#match(
        &mut self,
        context: &mut StepCx<'_, Odd>,
        cx: u8,
        tool: u8,
        tools: u8,
        input: u8,
        returned: u8,
        parameters: u8,
        argument_0: u8,
        r#in: u8,
    ) -> Vec<u8> {
        let _ = context;
        vec![cx, tool, tools, input, returned, parameters, argument_0, r#in]
    }
}

#[tools(flow)]
impl Odd {
    /// Named by a keyword.
    #[tool]
    fn r#loop(&self, flow: u8, r#in: u8) -> u8 {
        flow + r#in
    }
}

/// Steps that are written by a macro of the user.
macro_rules! steps {
    ($($name:ident($field:ident: $ty:ty) => $next:ident),*) => {$(
        #[allow(dead_code)]
        #[step(collect, next($next))]
        #[derive(Default, Serialize, Deserialize, JsonSchema)]
        pub(crate) struct $name {
            #[slot]
            pub(crate) $field: Option<$ty>,
        }

        impl Collect for $name {
            type Flow = Odd;
            async fn complete(
                &mut self,
                data: steps!(@data $name),
                _: &mut StepCx<'_, Odd>,
            ) -> Result<<$name as Step>::Next> {
                let _: $ty = data.$field;
                Err(StepError::new("not run"))
            }
        }
    )*};
    (@data $name:ident) => { <$name as Form>::Data };
}

steps!(One(a: u8) => Two, Two(b: String) => Stay);

#[test]
fn persisted_names_have_no_marks_of_raw_identifiers() {
    assert_eq!(r#type::NAME, "type");
    assert_eq!(r#type::slots()[0].name, "fn");
    assert_eq!(r#type::tools()[0].name, "match");
    assert_eq!(r#type::tools()[0].parameters["properties"]["in"]["type"], "integer");
    assert_eq!(<Odd as FlowMeta>::tools()[0].name, "loop");
    let data = typeData { r#fn: "x".into(), slot: None, value: None };
    assert_eq!(data.r#fn, "x");
}

#[tokio::test]
async fn names_of_the_user_do_not_meet_generated_ones() {
    let mut harness = StepHarness::new(Odd);
    let arguments = json!({
        "cx": 1, "tool": 2, "tools": 3, "input": 4, "returned": 5, "parameters": 6,
        "argument_0": 7, "in": 8,
    });
    let mut step = r#type::default();
    let output = StepTools::call(&mut step, &mut harness.cx(), "match", arguments).await.unwrap();
    assert_eq!(output.result, json!([1, 2, 3, 4, 5, 6, 7, 8]));
    let cx = ToolCx::new(SessionId::new("s").unwrap(), "t", "type", "key");
    assert_eq!(Loop { flow: 1, r#in: 2 }.call(&Odd, &cx).await.unwrap(), 3);
}

#[test]
fn a_macro_may_write_steps() {
    let mut one = One::default();
    one.set(0, Some(3.into())).unwrap();
    assert_eq!(one.data().unwrap().a, 3);
    assert_eq!(Two::slots()[0].name, "b");
}
