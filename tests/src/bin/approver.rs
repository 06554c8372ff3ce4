//! A process that asks for approvals and gives them, as others do at the same time.
//!
//! ```text
//! approver STORE JOURNAL NAME
//! ```
//!
//! It reads `ask SESSION`, begins that session and prints the id of its request; and `approve
//! SESSION REQUEST`, approves in its own name and prints `done` or `error CODE`. A session that
//! goes on appends a line to the journal.

#![allow(clippy::print_stdout, reason = "the parent process reads it")]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

use flow_core::engine::Delivery;
use flow_core::prelude::*;
use flow_core::{Engine, TurnRequest};

#[flow(id = "vault", steps(Ask), tools)]
#[derive(Clone)]
struct Vault {
    journal: PathBuf,
}

impl Flow for Vault {}

#[tools(flow)]
impl Vault {
    /// Writes down what was opened.
    #[tool]
    async fn open(&self, cx: &ToolCx) -> Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.journal)?;
        file.write_all(format!("{}\n", cx.session()).as_bytes())?;
        Ok(())
    }
}

#[step(action, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Ask;

impl Action for Ask {
    type Flow = Vault;

    async fn run(&mut self, cx: &mut ActionCx<'_, Vault>) -> Result<AskNext> {
        let approved = cx.approve("open the vault").await?;
        cx.tool(Open).await?;
        Ok(AskNext::End(approved.by.unwrap_or_default()))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, journal, name] = &args[..] else { return Err("STORE JOURNAL NAME".into()) };
    let store = flow_core::store::open(address).await?;
    let vault = Vault { journal: journal.into() };
    let engine = Engine::builder().shared_store(store).flow(vault).build()?;
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line)? > 0 {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["ask", session] => {
                let request = TurnRequest::new(SessionId::new(session)?);
                let outcome = engine.turn::<Vault>(request).await?;
                println!("{}", outcome.interrupts()[0].request_id);
            }
            ["approve", session, request] => {
                let yes = Delivery::approve(request).by(name);
                match engine.deliver(SessionId::new(session)?, yes).await {
                    Ok(_) => println!("done"),
                    Err(error) => println!("error {}", error.code()),
                }
            }
            _ => return Err(format!("what is {line:?}?").into()),
        }
        line.clear();
    }
    Ok(())
}
