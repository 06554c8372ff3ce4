//! Whole conversations in a plain `#[tokio::test]`.

use std::panic::Location;

use crate::engine::{Engine, EngineBuilder, TurnOutcome, TurnRequest};
use crate::flow::Flow;
use crate::id::SessionId;
use crate::model::scripted::ScriptedModel;
use crate::model::{ChatModel, ModelCatalog, ModelSelection};
use crate::session::SessionDoc;
use crate::step::Step;
use crate::store::memory::MemoryStore;

/// A conversation with a flow and what is expected of it: written down first, then
/// [run](Self::run) on a memory store. A failed expectation names the line that it stands in.
///
/// ```
/// use flow_core::prelude::*;
/// use flow_core::testing::FlowTest;
///
/// #[flow(id = "table", steps(Reserve))]
/// #[derive(Clone)]
/// struct Table;
/// impl Flow for Table {}
///
/// #[step(collect, next(end))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Reserve {
///     #[slot(range(1, 8), ask = "For how many?")]
///     guests: Option<u8>,
/// }
/// impl Collect for Reserve {
///     type Flow = Table;
///     async fn complete(&mut self, data: ReserveData, cx: &mut StepCx<'_, Table>) -> Result<ReserveNext> {
///         cx.say(format!("A table for {}.", data.guests));
///         Ok(ReserveNext::End("reserved".into()))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// FlowTest::new(Table)
///     .start()
///     .expect_reply("For how many?")
///     .say("4, please")
///     .expect_reply_contains("for 4")
///     .expect_ended()
///     .run()
///     .await;
/// # }
/// ```
#[must_use = "nothing runs before `run` is called and awaited"]
pub struct FlowTest<F: Flow> {
    flow: F,
    models: ModelCatalog,
    lines: Vec<(Line<F>, &'static Location<'static>)>,
    change: Box<dyn FnOnce(EngineBuilder) -> EngineBuilder + Send>,
}

type Check<F> = Box<dyn FnOnce(&Seen<F>) -> Result<(), String> + Send>;

enum Line<F: Flow> {
    Say(Option<String>),
    /// A message whose turn is expected to fail with this code.
    Fail(String, String),
    Expect(Check<F>),
}

/// What has come of the conversation so far.
struct Seen<F> {
    outcome: Option<TurnOutcome>,
    doc: Option<SessionDoc>,
    flow: std::marker::PhantomData<fn() -> F>,
}

impl<F: Flow> FlowTest<F> {
    /// A conversation with a flow.
    pub fn new(flow: F) -> Self {
        Self {
            flow,
            models: ModelCatalog::new(),
            lines: Vec::new(),
            change: Box::new(|builder| builder),
        }
    }

    /// Answers from a script wherever the flow speaks through its own model
    /// ([`Flow::config_model`]).
    ///
    /// # Panics
    /// When the flow selects no model.
    #[track_caller]
    pub fn model(self, script: ScriptedModel) -> Self {
        let Some(model) = self.flow.config_model().map(|config| config.model) else {
            panic!("flow `{}` selects no model to be scripted", F::ID);
        };
        self.model_for(&model, script)
    }

    /// Puts a model in the place of the one that a flow or a step selects.
    pub fn model_for(mut self, selection: &ModelSelection, model: impl ChatModel) -> Self {
        self.models = self.models.model(selection.to_string(), model);
        self
    }

    /// Changes the engine: its clock, limits, durability or store.
    pub fn engine(
        mut self,
        change: impl FnOnce(EngineBuilder) -> EngineBuilder + Send + 'static,
    ) -> Self {
        self.change = Box::new(change);
        self
    }

    /// Runs a turn without a message.
    #[track_caller]
    pub fn start(self) -> Self {
        self.line(Line::Say(None))
    }

    /// The user says something.
    #[track_caller]
    pub fn say(self, text: impl Into<String>) -> Self {
        self.line(Line::Say(Some(text.into())))
    }

    /// The user says something and the turn fails with an error of this code.
    #[track_caller]
    pub fn say_expecting_error(self, text: impl Into<String>, code: impl Into<String>) -> Self {
        self.line(Line::Fail(text.into(), code.into()))
    }

    /// The session stands at a step.
    #[track_caller]
    pub fn expect_step<S: Step>(self) -> Self {
        self.expect(|seen| {
            let step = seen.last()?.step.as_str();
            if step == S::NAME {
                Ok(())
            } else {
                Err(format!("stands at `{step}`, not at `{}`", S::NAME))
            }
        })
    }

    /// The last turn said exactly this, all replies joined by line breaks.
    #[track_caller]
    pub fn expect_reply(self, text: impl Into<String>) -> Self {
        let text = text.into();
        self.expect(move |seen| {
            let said = seen.last()?.replies.join("\n");
            if said == text { Ok(()) } else { Err(format!("said {said:?}, not {text:?}")) }
        })
    }

    /// Something that the last turn said contains this.
    #[track_caller]
    pub fn expect_reply_contains(self, text: impl Into<String>) -> Self {
        let text = text.into();
        self.expect(move |seen| {
            let said = seen.last()?.replies.join("\n");
            if said.contains(&text) {
                Ok(())
            } else {
                Err(format!("said {said:?}, without {text:?}"))
            }
        })
    }

    /// The flow is over.
    #[track_caller]
    pub fn expect_ended(self) -> Self {
        self.expect(|seen| {
            let outcome = seen.last()?;
            if outcome.is_ended() { Ok(()) } else { Err(format!("goes on: {:?}", outcome.outcome)) }
        })
    }

    /// The shared state, as the document holds it, passes a check.
    #[track_caller]
    pub fn expect_state(self, check: impl FnOnce(&F::State) -> bool + Send + 'static) -> Self {
        self.expect(move |seen| {
            let doc = seen.doc.as_ref().ok_or("there is no session yet")?;
            let state: F::State =
                serde_json::from_value(doc.state.clone()).map_err(|e| e.to_string())?;
            if check(&state) { Ok(()) } else { Err(format!("the state is {}", doc.state)) }
        })
    }

    /// Runs the conversation.
    ///
    /// # Panics
    /// At the first expectation that is not met, and at the first turn that fails without
    /// being expected to.
    pub async fn run(self) {
        let builder =
            Engine::builder().store(MemoryStore::new()).flow(self.flow).models(self.models);
        let engine = match (self.change)(builder).build() {
            Ok(engine) => engine,
            Err(error) => panic!("the engine cannot be built: {error}"),
        };
        let session = SessionId::new("test").expect("`test` is a valid id");
        let mut seen = Seen { outcome: None, doc: None, flow: std::marker::PhantomData };
        for (line, place) in self.lines {
            let failed = match line {
                Line::Say(text) => match seen.say(&engine, &session, text).await {
                    Ok(()) => None,
                    Err(error) => Some(format!("the turn failed: {error}")),
                },
                Line::Fail(text, code) => match seen.say(&engine, &session, Some(text)).await {
                    Ok(()) => Some(format!("the turn did not fail with `{code}`")),
                    Err(error) if error.code() == code => None,
                    Err(error) => Some(format!("the turn failed with `{}`: {error}", error.code())),
                },
                Line::Expect(check) => check(&seen).err(),
            };
            if let Some(reason) = failed {
                panic!("{place}: {reason}");
            }
        }
    }

    #[track_caller]
    fn expect(self, check: impl FnOnce(&Seen<F>) -> Result<(), String> + Send + 'static) -> Self {
        self.line(Line::Expect(Box::new(check)))
    }

    #[track_caller]
    fn line(mut self, line: Line<F>) -> Self {
        self.lines.push((line, Location::caller()));
        self
    }
}

impl<F: Flow> Seen<F> {
    async fn say(
        &mut self,
        engine: &Engine,
        session: &SessionId,
        text: Option<String>,
    ) -> Result<(), crate::Error> {
        let mut request = TurnRequest::new(session.clone());
        if let Some(text) = text {
            request = request.message(text);
        }
        let result = engine.turn::<F>(request).await;
        self.doc = engine.session(session.clone()).load().await.ok();
        self.outcome = Some(result?);
        Ok(())
    }

    fn last(&self) -> Result<&TurnOutcome, String> {
        self.outcome.as_ref().ok_or_else(|| "nothing was said yet".to_owned())
    }
}
