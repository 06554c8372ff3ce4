//! A flow whose way is told by the messages it gets, for tests of the engine.
//!
//! Every step is an action or a reply that does what the script in the shared state says,
//! so that a test decides the crossings: `"b c ."` goes to `B`, then to `C`, then waits.
//! `"handoff"` hands the rest of the way to the flow anew, as another one.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use flow_core::prelude::*;

/// What happened, in order. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Writes down one thing.
    pub fn push(&self, what: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(what.into());
    }

    /// What happened since the last time.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The flow. Its steps `A`, `B`, `C` can all go to each other.
#[flow(id = "route", version = 1, steps(A, B, C), state = Way, tools)]
#[derive(Debug, Clone, Default)]
pub struct Route {
    /// Where hooks and steps write down that they ran.
    pub log: Log,
    /// What `on_restore_session_doc` says, if not to keep the document.
    pub fresh: Option<&'static str>,
    /// Whether `on_error` goes to `C`.
    pub recover: bool,
    /// Whether a session that has ended starts anew with the next turn.
    pub again: bool,
    /// How much of the conversation stays in the document.
    pub memory: MemoryPolicy,
    /// A file to which each run of a step is appended, for tests that kill the process.
    pub journal: Option<PathBuf>,
}

/// The rest of the way.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Way {
    /// Words that are still to be followed.
    pub rest: Vec<String>,
    /// How many steps have run.
    pub ran: u32,
}

impl Flow for Route {
    async fn init(&mut self, cx: &mut InitCx<'_>) -> Result<()> {
        self.log.push("init");
        if cx.message() == Some("fail init") {
            return Err(StepError::new("init fails as told"));
        }
        Ok(())
    }

    fn config_memory(&self) -> MemoryPolicy {
        self.memory.clone()
    }

    fn define_steps(&self, steps: Steps<Self>) -> Steps<Self> {
        self.log.push("define_steps");
        steps
    }

    fn define_tools(
        &self,
        tools: Vec<flow_core::tool::ToolDefinition>,
    ) -> Vec<flow_core::tool::ToolDefinition> {
        self.log.push("define_tools");
        tools
    }

    async fn on_restore_session_doc(&self, doc: SessionDoc) -> Result<Restore> {
        self.log.push("on_restore_session_doc");
        Ok(match self.fresh {
            Some(reason) => Restore::fresh(reason),
            None if self.again && doc.ended.is_some() => Restore::fresh("it had ended"),
            None => Restore::keep(doc),
        })
    }

    async fn run(&self, turn: &mut dyn Drive) -> Result<()> {
        self.log.push("run");
        Ok(turn.run_to_pause().await?)
    }

    async fn on_error(
        &self,
        error: &StepError,
        _: &mut StepCx<'_, Self>,
    ) -> Result<Option<Transition>> {
        self.log.push(format!("on_error: {error}"));
        Ok(self.recover.then(|| Transition::go::<C>(())))
    }
}

#[tools(flow)]
impl Route {
    /// Counts its calls.
    #[tool]
    async fn touch(&self, cx: &ToolCx) -> Result<String> {
        self.log.push(format!("touch {} repeated={}", cx.idempotency_key(), cx.is_repeated()));
        Ok(cx.idempotency_key().to_owned())
    }
}

/// What a step does with the next word of the way.
enum Word {
    A,
    B,
    C,
    Stay,
    End,
    HandOff,
    Escalate,
}

async fn follow(name: &str, cx: &mut ActionCx<'_, Route>) -> Result<Word> {
    cx.flow.log.push(format!("{name}.run"));
    cx.state.ran += 1;
    if let Some(journal) = &cx.flow.journal {
        let mut file = OpenOptions::new().create(true).append(true).open(journal)?;
        writeln!(file, "{} {name}", cx.visit())?;
    }
    if let Some(message) = cx.take_message() {
        cx.state.rest = message.split_whitespace().map(str::to_owned).collect();
    }
    loop {
        let rest = &mut cx.state.rest;
        let word = if rest.is_empty() { ".".to_owned() } else { rest.remove(0) };
        return Ok(match word.as_str() {
            "a" => Word::A,
            "b" => Word::B,
            "c" => Word::C,
            "end" => Word::End,
            "handoff" => Word::HandOff,
            "escalate" => Word::Escalate,
            "fail" => return Err(StepError::new("the step fails as told")),
            "terminal" => return Err(StepError::terminal("the step fails for good")),
            "panic" => panic!("the step panics as told"),
            "hang" => std::future::pending().await,
            "hold" => {
                cx.emit("holding", ())?;
                let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await?;
                line.transpose()?;
                continue;
            }
            "say" => {
                cx.say("hello");
                continue;
            }
            "tool" => {
                cx.tool(Touch {}).await?;
                continue;
            }
            "ping" => {
                cx.state.rest.push(if name == "A" { "b".into() } else { "a".into() });
                cx.state.rest.push("ping".into());
                continue;
            }
            _ => Word::Stay,
        });
    }
}

macro_rules! step {
    ($name:ident, $next:ident) => {
        /// Follows the way.
        #[step(action, next(A, B, C, stay, end, hand_off, escalate))]
        #[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
        pub struct $name {
            /// How often it was entered.
            pub entered: u32,
        }

        impl Action for $name {
            type Flow = Route;

            async fn run(&mut self, cx: &mut ActionCx<'_, Route>) -> Result<$next> {
                Ok(match follow(stringify!($name), cx).await? {
                    Word::A => $next::A,
                    Word::B => $next::B,
                    Word::C => $next::C,
                    Word::Stay => $next::Stay,
                    Word::End => $next::End("the way ends".into()),
                    Word::HandOff => {
                        let rest = std::mem::take(&mut cx.state.rest);
                        $next::HandOff(HandOff::to::<Route>(Way { rest, ran: cx.state.ran }))
                    }
                    Word::Escalate => $next::Escalate("the way is blocked".into()),
                })
            }

            async fn on_start(&mut self, cx: &mut StepCx<'_, Route>) -> Result<()> {
                cx.flow.log.push(concat!(stringify!($name), ".on_start"));
                Ok(())
            }

            async fn on_restore(&mut self, cx: &mut StepCx<'_, Route>) -> Result<()> {
                cx.flow.log.push(concat!(stringify!($name), ".on_restore"));
                if cx.message() == Some("fail restore") {
                    return Err(StepError::new("on_restore fails as told"));
                }
                Ok(())
            }

            async fn on_enter(&mut self, (): (), cx: &mut StepCx<'_, Route>) -> Result<()> {
                cx.flow.log.push(concat!(stringify!($name), ".on_enter"));
                self.entered += 1;
                Ok(())
            }

            async fn on_exit(&mut self, cx: &mut StepCx<'_, Route>) -> Result<()> {
                cx.flow.log.push(concat!(stringify!($name), ".on_exit"));
                Ok(())
            }

            async fn on_crossing(
                &mut self,
                crossing: Crossing<'_>,
                cx: &mut StepCx<'_, Route>,
            ) -> Result<Option<String>> {
                cx.flow.log.push(format!(
                    "{}.on_crossing from {}",
                    stringify!($name),
                    crossing.from
                ));
                Ok(None)
            }

            async fn verify(&mut self, _: &$next, cx: &mut StepCx<'_, Route>) -> Result<Gate> {
                cx.flow.log.push(concat!(stringify!($name), ".verify"));
                if cx.context("hold").is_some() {
                    return Ok(Gate::Hold("not yet".into()));
                }
                Ok(Gate::Pass)
            }
        }
    };
}

step!(A, ANext);
step!(B, BNext);
step!(C, CNext);
