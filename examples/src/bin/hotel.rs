//! Talks to the hotel in `examples::hotel`.
//!
//! ```text
//! cargo run -p examples --bin hotel                                  # a recorded conversation
//! cargo run -p examples --bin hotel -- --model ollama::qwen3         # a real model
//! ```
//!
//! Keys come from the usual environment variables.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it talks to a person")]

use std::process::ExitCode;

use clap::Parser;
use examples::hotel::{Hotel, RECORDED, recorded};
use flow_core::event::Event;
use flow_core::model::{ModelCatalog, ModelSelection, provider};
use flow_core::prelude::*;
use flow_core::{Engine, TurnRequest};
use tokio::io::{AsyncBufReadExt, BufReader};

/// Talks to a hotel.
#[derive(Parser)]
struct Args {
    /// The model, as provider::name; without it a recorded conversation is shown.
    #[arg(long)]
    model: Option<ModelSelection>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Err(error) = talk(Args::parse().model).await else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

async fn talk(model: Option<ModelSelection>) -> Result<()> {
    let mut script = model.is_none().then(|| RECORDED.into_iter());
    let model = model.map_or_else(|| "recorded::conversation".parse(), Ok)?;
    let models: ModelCatalog = provider::catalog().model("recorded::conversation", recorded());
    let store = flow_core::store::open("memory").await?;
    let builder = Engine::builder().shared_store(store).flow(Hotel { model });
    let engine = builder.models(models).build()?;

    let mut typed = BufReader::new(tokio::io::stdin()).lines();
    println!(
        "{}",
        match script {
            Some(_) => "(no --model: a recorded conversation)",
            None => "(ask for a room)",
        }
    );
    loop {
        let text = match &mut script {
            Some(script) => script.next().map(str::to_owned),
            None => typed.next_line().await?,
        };
        let Some(text) = text else { return Ok(()) };
        if script.is_some() {
            println!("> {text}");
        }
        let request = TurnRequest::new(SessionId::new("guest")?).message(text);
        let mut turn = engine.turn::<Hotel>(request);
        while let Some(event) = turn.next_event().await {
            match event {
                Event::ToolCall { tool, arguments, .. } => println!("  [{tool} {arguments}]"),
                Event::MemorySummary { messages, .. } => {
                    println!("  [{messages} messages summarised]");
                }
                _ => {}
            }
        }
        let outcome = turn.await?;
        for reply in &outcome.replies {
            println!("{reply}");
        }
        if outcome.is_ended() {
            return Ok(());
        }
    }
}
