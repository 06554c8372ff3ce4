//! Pays expenses. Above 100 euros somebody has to approve, in another terminal, days later
//! if need be.
//!
//! ```text
//! cargo run -p examples --bin approval                    # hands in an expense
//! cargo run -p examples --bin approval -- pending         # in another terminal: what waits
//! cargo run -p examples --bin approval -- approve ID      # or: deny ID --reason "too much"
//! ```
//!
//! Stop any of them at any point (Ctrl-C, or even `kill -9`) and start it again: an expense is
//! paid once. The sessions live in `approval.sqlite`, the payments in `payments.txt`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to a person")]

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use flow_core::engine::Delivery;
use flow_core::error::StoreError;
use flow_core::event::Event;
use flow_core::message::{Part, Role};
use flow_core::prelude::*;
use flow_core::session::{EffectKind, Interrupt, Status, Waiting};
use flow_core::store::ListQuery;
use flow_core::{Engine, Error, TurnOutcome, TurnRequest};
use tokio::sync::mpsc;

/// What is paid without asking anybody.
const LIMIT: u32 = 100;
/// How long somebody may think about it. After that it is denied.
const PATIENCE: Duration = Duration::from_secs(3 * 24 * 3600);
/// How long a payment is held back.
const PAUSE: Duration = Duration::from_secs(2);
/// How long `talk` waits until it looks at its session again.
const GLANCE: Duration = Duration::from_millis(200);
/// What the bank of this example has paid: a line each, beginning with the idempotency key.
const PAYMENTS: &str = "payments.txt";

/// Pays expenses.
#[flow(id = "expenses", version = 1, steps(Ask, Pay), state = Expense, tools)]
#[derive(Clone)]
struct Expenses;

/// What was bought.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Expense {
    what: String,
    euros: u32,
}

impl Flow for Expenses {
    /// An expense that is done with is not touched again: the next one starts afresh.
    async fn on_restore_session_doc(&self, doc: SessionDoc) -> Result<Restore> {
        match &doc.ended {
            Some(reason) => Ok(Restore::fresh(format!("the expense before was {reason}"))),
            None => Ok(Restore::keep(doc)),
        }
    }
}

/// Asks for the expense.
#[step(collect, next(Pay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Ask {
    #[slot(whole_message, verbatim, ask = "What did you buy?")]
    what: Option<String>,
    #[slot(range(1, 10_000), ask = "For how many euros?")]
    euros: Option<u32>,
}

impl Collect for Ask {
    type Flow = Expenses;

    async fn complete(&mut self, data: AskData, cx: &mut StepCx<'_, Expenses>) -> Result<AskNext> {
        *cx.state = Expense { what: data.what, euros: data.euros };
        Ok(AskNext::Pay)
    }
}

#[tools(flow)]
impl Expenses {
    /// Pays an expense and returns the number of the receipt.
    #[tool]
    async fn charge(&self, cx: &ToolCx, what: String, euros: u32) -> Result<String> {
        // A bank that honours the key pays once, however often this call is made.
        let key = cx.idempotency_key();
        let mut bank = File::options().read(true).append(true).create(true).open(PAYMENTS)?;
        let mut paid = String::new();
        bank.read_to_string(&mut paid)?;
        if !paid.lines().any(|line| line.split('\t').next() == Some(key)) {
            bank.write_all(format!("{key}\t{euros}\t{what}\n").as_bytes())?;
            bank.sync_data()?;
            println!("(the bank pays {euros} euros)");
        }
        let id = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, key.as_bytes());
        Ok(format!("rc_{}", &id.simple().to_string()[..10]))
    }
}

/// Pays the expense: at once, or when somebody has approved it.
#[step(action, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Pay;

impl Action for Pay {
    type Flow = Expenses;

    async fn run(&mut self, cx: &mut ActionCx<'_, Expenses>) -> Result<PayNext> {
        let Expense { what, euros } = &*cx.state;
        let charge = Charge { what: what.clone(), euros: *euros };
        let payment = format!("{euros} euros for {what}");
        if charge.euros > LIMIT {
            let request =
                Request::new(format!("pay {payment}")).deadline(PATIENCE).operation(&charge);
            cx.say(format!("More than {LIMIT} euros: somebody has to approve it."));
            let approved = cx.approve(request).await?;
            cx.say(format!("Approved by {}.", approved.by.as_deref().unwrap_or("somebody")));
        }
        cx.sleep(PAUSE).await?;
        let receipt = cx.tool(charge).await?;
        cx.say(format!("Paid {payment}. The receipt is\n{receipt}"));
        Ok(PayNext::End("paid".into()))
    }

    async fn on_denied(
        &mut self,
        denied: &Denied,
        cx: &mut StepCx<'_, Expenses>,
    ) -> Result<Option<PayNext>> {
        cx.say(format!("Not paid: {denied}."));
        Ok(Some(PayNext::End("denied".into())))
    }
}

/// Pays expenses. Above 100 euros somebody has to approve, in another terminal.
#[derive(Parser)]
struct Cli {
    /// sqlite:PATH or mongodb://HOST/DATABASE, the same in all terminals.
    #[arg(long, global = true, default_value = "sqlite:approval.sqlite")]
    store: String,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Hands in an expense and shows what becomes of it. This is what happens without a command.
    Talk {
        /// The conversation to go on with.
        #[arg(long, default_value = "expense")]
        session: SessionId,
    },
    /// Lists what waits, with the ids of the requests.
    Pending,
    /// Approves a request.
    Approve(Answer),
    /// Denies a request.
    Deny(Answer),
    /// Goes on with what is due, once: payments that were held back, and conversations that were
    /// killed. `talk` does so by itself.
    Sweep,
}

#[derive(Args)]
struct Answer {
    /// The request, as `pending` shows it.
    id: RequestId,
    /// Who decides.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
}

/// A session and one of its requests: `SESSION/REQUEST`.
#[derive(Clone)]
struct RequestId(SessionId, String);

impl FromStr for RequestId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let id = text.rsplit_once('/').filter(|(_, request)| !request.is_empty());
        let (session, request) = id.ok_or("it has to be SESSION/REQUEST, as `pending` shows it")?;
        let session = SessionId::new(session).map_err(|error| error.to_string())?;
        Ok(Self(session, request.to_owned()))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Err(error) = run(Cli::parse()).await else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

async fn run(cli: Cli) -> Result<()> {
    let store = flow_core::store::open(&cli.store).await?;
    // A short lease: a run that was killed in the middle of a turn blocks the next one as long.
    let lease = Duration::from_secs(3);
    let engine = Engine::builder().shared_store(store).flow(Expenses).lease(lease).build()?;
    match cli.command {
        None => talk(&engine, SessionId::new("expense")?).await,
        Some(Command::Talk { session }) => talk(&engine, session).await,
        Some(Command::Pending) => list_pending(&engine).await,
        Some(Command::Approve(answer)) => answer.deliver(&engine, true).await,
        Some(Command::Deny(answer)) => answer.deliver(&engine, false).await,
        Some(Command::Sweep) => sweep(&engine).await,
    }
}

async fn talk(engine: &Engine, session: SessionId) -> Result<()> {
    let sweeper = engine.clone();
    tokio::spawn(async move { sweeper.run_sweeper(Duration::from_millis(500)).await });
    let handle = engine.session(session.clone());
    let before = match handle.load().await {
        Ok(doc) => Some(doc).filter(|doc| doc.ended.is_none()),
        Err(Error::Store(StoreError::NotFound { .. })) => None,
        Err(error) => return Err(error.into()),
    };
    let mut heard = before.as_ref().map_or(0, |doc| doc.next_message);
    // One that waits, or was killed at work, goes on by itself.
    let goes_on = before.is_some_and(|d| d.status == Status::Running || !pending(&d).is_empty());
    let mut request = (!goes_on).then(|| TurnRequest::new(session.clone()));
    let mut lines = read_lines();
    let mut shown = String::new();
    loop {
        if let Some(request) = request {
            take_turn(engine, request).await?;
        }
        request = loop {
            // Other processes go on with the session too, so it is looked at again and again.
            let doc = handle.load().await?;
            heard = show_replies(&doc, heard);
            match (&doc.ended, &doc.error) {
                (Some(_), _) => return Ok(()),
                (None, Some(error)) => return Err(StepError::new(&*error.message)),
                (None, None) => {}
            }
            let waits = titles(pending(&doc));
            if waits != shown && !waits.is_empty() {
                println!("(waiting: {waits})");
            }
            shown = waits;
            let asks = pending(&doc).iter().any(|request| request.kind == EffectKind::Approval);
            let asks = asks || matches!(doc.waiting, Some(Waiting::Message { .. }));
            match tokio::time::timeout(GLANCE, lines.recv()).await {
                Ok(Some(line)) => {
                    break Some(TurnRequest::new(session.clone()).message(line.trim()));
                }
                Ok(None) if asks => return Ok(()),
                Ok(None) => tokio::time::sleep(GLANCE).await,
                Err(_) => {}
            }
        };
    }
}

/// Reads on a thread of its own: a read of the terminal cannot be cancelled.
fn read_lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lines() {
            match line {
                Ok(line) => drop(sender.send(line)),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    println!("That line is not valid UTF-8; please type it again.");
                }
                Err(_) => return,
            }
        }
    });
    lines
}

/// Takes a turn. While another process works on the session, or is gone without having given its
/// lease back, it tries again.
async fn take_turn(engine: &Engine, request: TurnRequest) -> Result<TurnOutcome> {
    loop {
        let mut turn = engine.turn::<Expenses>(request.clone());
        while let Some(event) = turn.next_event().await {
            match event {
                Event::SessionSuperseded { reason, .. } => println!("({reason})"),
                Event::Feedback { text, .. } => println!("{text}"),
                _ => {}
            }
        }
        match turn.await {
            Err(Error::Store(StoreError::Busy { .. })) => tokio::time::sleep(GLANCE).await,
            outcome => return Ok(outcome?),
        }
    }
}

/// Shows what the flow has said since a message, and returns the number of the next one.
fn show_replies(doc: &SessionDoc, heard: u64) -> u64 {
    let messages = doc.memory.values().flat_map(|memory| &memory.messages);
    let new = messages.filter(|message| message.role == Role::Assistant && message.seq >= heard);
    for part in new.flat_map(|message| &message.parts) {
        if let Part::Text { text } = part {
            println!("{text}");
        }
    }
    doc.next_message
}

fn pending(doc: &SessionDoc) -> &[Interrupt] {
    match &doc.waiting {
        Some(Waiting::Interrupts { pending }) => pending,
        _ => &[],
    }
}

fn titles(requests: &[Interrupt]) -> String {
    let titles: Vec<&str> = requests.iter().map(|request| &*request.display.title).collect();
    titles.join(", ")
}

async fn list_pending(engine: &Engine) -> Result<()> {
    let (flow, status) = (Some(Expenses::ID.to_owned()), Some(Status::Waiting));
    let query = ListQuery { flow, status, limit: 1000, ..ListQuery::default() };
    let mut list = String::new();
    for session in engine.sessions(&query).await? {
        let doc = engine.session(session.id.clone()).load().await?;
        for request in pending(&doc).iter().filter(|request| request.operation.is_some()) {
            let Interrupt { request_id, display, deadline, .. } = request;
            list += &format!("{}/{request_id}  {}", session.id, display.title);
            list += &deadline.map_or_else(String::new, |time| format!("  (until {time})"));
            list += "\n";
        }
    }
    print!("{}", if list.is_empty() { "Nothing waits for an approval.\n" } else { &list });
    Ok(())
}

impl Answer {
    async fn deliver(self, engine: &Engine, approves: bool) -> Result<()> {
        let RequestId(session, request) = self.id;
        // Made from the request: when it is killed and made again, it is the same delivery.
        let signal_id = format!("{request} {approves}");
        let delivery = if approves { Delivery::approve(request) } else { Delivery::deny(request) };
        let mut delivery = delivery.signal_id(signal_id);
        if let Some(name) = self.by {
            delivery = delivery.by(name);
        }
        if let Some(reason) = self.reason {
            delivery = delivery.reason(reason);
        }
        let outcome = take_turn(engine, TurnRequest::new(session).deliver(delivery)).await?;
        for reply in &outcome.replies {
            println!("{reply}");
        }
        if !outcome.interrupts().is_empty() {
            println!("(waiting: {})", titles(outcome.interrupts()));
        }
        Ok(())
    }
}

async fn sweep(engine: &Engine) -> Result<()> {
    let report = engine.sweep().await?;
    for session in &report.woken {
        let doc = engine.session(session.clone()).load().await?;
        println!("{session}: {}", doc.ended.clone().unwrap_or_else(|| titles(pending(&doc))));
    }
    match report.failed.first() {
        Some((session, error)) => Err(StepError::new(format!("{session}: {}", error.message))),
        None => Ok(()),
    }
}
