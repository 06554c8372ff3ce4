//! A flow that runs a batch of another one, for tests of batches.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flow_core::prelude::*;
use tokio::sync::{mpsc, oneshot};

/// What becomes of an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Fate {
    /// It ends.
    #[default]
    Ends,
    /// Its tool fails in a way that may pass, the first time in this process.
    Flaky,
    /// Its tool fails in a way that may pass, always.
    Down,
    /// Its tool fails for good.
    Broken,
    /// It waits for its user.
    Asks,
    /// It sleeps for an hour.
    Sleeps,
    /// It waits for a person who takes over.
    Escalates,
    /// It panics.
    Panics,
    /// It ends with a reason of its own.
    Talks,
}

/// What an item is given and what it works out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// Its number.
    pub n: usize,
    /// What becomes of it.
    pub fate: Fate,
    /// The square of the number, once it is known.
    pub square: Option<usize>,
}

/// What was really done: a line `done KEY N` or `failed KEY N` for each call of the tool.
#[derive(Debug, Clone, Default)]
pub struct Done {
    lines: Arc<Mutex<Vec<String>>>,
    /// The keys of calls that have failed.
    failed: Arc<Mutex<HashSet<String>>>,
    file: Option<PathBuf>,
}

impl Done {
    /// Appends each line to a file too.
    pub fn in_file(path: impl Into<PathBuf>) -> Self {
        Self { file: Some(path.into()), ..Self::default() }
    }

    fn push(&self, line: &str) -> std::io::Result<()> {
        if let Some(path) = &self.file {
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            file.write_all(format!("{line}\n").as_bytes())?;
        }
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
        Ok(())
    }

    /// What was done since the last time.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fails_first(&self, key: &str) -> bool {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned())
    }
}

/// An item that is at work, until it is let go.
pub type AtWork = (usize, oneshot::Sender<()>);

/// The flow of an item.
#[flow(id = "job", steps(Work), state = Job, tools)]
#[derive(Debug, Clone, Default)]
pub struct Jobs {
    /// What was really done.
    pub done: Done,
    /// Where each item that is at work is told, and waits to be let go.
    pub gate: Option<mpsc::UnboundedSender<AtWork>>,
}

impl Flow for Jobs {}

#[tools(flow)]
impl Jobs {
    /// Works out a square.
    #[tool]
    async fn square(&self, cx: &ToolCx, n: usize, fate: Fate) -> Result<usize> {
        if let Some(gate) = &self.gate {
            let (open, opened) = oneshot::channel();
            gate.send((n, open))?;
            opened.await?;
        }
        let key = cx.idempotency_key();
        let error = match fate {
            Fate::Broken => StepError::terminal("the job is broken"),
            Fate::Flaky if self.done.fails_first(key) => StepError::new("the job is flaky"),
            Fate::Down => StepError::new("the job is down"),
            _ => {
                self.done.push(&format!("done {key} {n}"))?;
                return Ok(n * n);
            }
        };
        self.done.push(&format!("failed {key} {n}"))?;
        Err(error)
    }
}

/// The only step of an item.
#[step(action, next(stay, end, escalate))]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Work;

impl Action for Work {
    type Flow = Jobs;

    async fn run(&mut self, cx: &mut ActionCx<'_, Jobs>) -> Result<WorkNext> {
        let Job { n, fate, .. } = *cx.state;
        if cx.message().is_some() {
            return Ok(WorkNext::End("answered".into()));
        }
        let square = cx.tool(Square { n, fate }).await?;
        cx.state.square = Some(square);
        match fate {
            Fate::Asks => {
                cx.say("what next?");
                Ok(WorkNext::Stay)
            }
            Fate::Sleeps => {
                cx.sleep(Duration::from_secs(3600)).await?;
                Ok(WorkNext::End("awake".into()))
            }
            Fate::Escalates => Ok(WorkNext::Escalate("too hard".into())),
            Fate::Panics => panic!("job {n} panics as told"),
            Fate::Talks => Ok(WorkNext::End(format!("job {n} says {}", "so ".repeat(200)))),
            _ => Ok(WorkNext::End("done".into())),
        }
    }
}

/// What a batch is told to do, as the message of its turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// How many items there are.
    pub total: usize,
    /// Which of them do not just end: of each so many the one of this number.
    pub fates: Vec<(usize, usize, Fate)>,
    /// How many run at once.
    pub limit: usize,
    /// How often an item is tried again.
    pub retries: u32,
    /// Whether it waits for an approval afterwards, and so keeps its journal.
    pub approve: bool,
}

impl Plan {
    /// All end.
    pub fn new(total: usize) -> Self {
        Self { total, fates: Vec::new(), limit: 8, retries: 2, approve: false }
    }

    /// Of a thousand items, 25 fail at first, and 25 for good.
    pub fn thousand() -> Self {
        let fates = vec![(40, 7, Fate::Flaky), (40, 27, Fate::Broken)];
        Self { fates, ..Self::new(1000) }
    }

    /// What becomes of an item.
    pub fn fate(&self, n: usize) -> Fate {
        let rule = self.fates.iter().find(|(each, rest, _)| n % each == *rest);
        rule.map_or(Fate::Ends, |(_, _, fate)| *fate)
    }

    /// The message.
    pub fn message(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What a batch has come to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// How many items have ended, wait, and have failed.
    pub counts: (usize, usize, usize),
    /// Those that have failed, with the code and the text.
    pub failures: Vec<(usize, String, String)>,
    /// The sum of what the ended ones have worked out.
    pub sum: usize,
}

/// The flow of a batch.
#[flow(id = "spread", steps(Spread), state = Summary)]
#[derive(Debug, Clone, Default)]
pub struct Spreads {
    /// Replaces the plan of the message, as another build of the program would.
    pub other: Option<Plan>,
    /// What the flow says about being a batch, whatever the context says.
    pub is_batch: Option<bool>,
    /// Whether what the ended items have worked out is summed up.
    pub sums: bool,
}

impl Flow for Spreads {
    fn is_batch(&self, context: &serde_json::Map<String, serde_json::Value>) -> bool {
        self.is_batch.unwrap_or_else(|| context.get("concurrent") == Some(&true.into()))
    }

    async fn spawn_steps(&self, cx: &mut ActionCx<'_, Self>) -> Result<Transition> {
        spread(cx).await?;
        Ok(Transition::End("spread by the flow".into()))
    }
}

/// The only step of a batch.
#[step(action, next(end))]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Spread;

impl Action for Spread {
    type Flow = Spreads;

    async fn run(&mut self, cx: &mut ActionCx<'_, Spreads>) -> Result<SpreadNext> {
        spread(cx).await?;
        Ok(SpreadNext::End("spread".into()))
    }
}

async fn spread(cx: &mut ActionCx<'_, Spreads>) -> Result<()> {
    let plan: Plan = serde_json::from_str(cx.message().unwrap_or_default())?;
    let plan = cx.flow.other.clone().unwrap_or(plan);
    let report = cx
        .concurrent(0..plan.total)
        .limit(plan.limit)
        .retries(plan.retries)
        .each::<Jobs>(|n| Job { n: *n, fate: plan.fate(*n), square: None })
        .await?;
    let failures = report.failures();
    let failures = failures.map(|(item, e)| (item.index, e.code.clone(), e.message.clone()));
    let mut summary = Summary {
        counts: (report.ended, report.waiting, report.failed),
        failures: failures.collect(),
        sum: 0,
    };
    for item in report.items.iter().filter(|item| cx.flow.sums && item.outcome.is_ended()) {
        summary.sum += cx.item_state::<Jobs>(item).await?.square.unwrap_or_default();
    }
    *cx.state = summary;
    if plan.approve {
        cx.approve("go on?").await?;
    }
    Ok(())
}
