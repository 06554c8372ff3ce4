//! Several processes on one store: killed, stopped, racing.

mod answers;
mod batches;
mod crash;
mod race;
mod rebuilds;
mod sweepers;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use tempfile::TempDir;

/// A worker process.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Worker {
    fn start(store: &str, session: &str, args: &[&str], lease_millis: u64) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command.args([store, session]).args(args);
        command.env("LEASE_MILLIS", lease_millis.to_string());
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the worker starts");
        let input = child.stdin.take().expect("the worker's input is piped");
        let output = child.stdout.take().expect("the worker's output is piped");
        Self { child, input, output: BufReader::new(output).lines() }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the worker reads");
    }

    /// The next line that the worker prints; nothing when it is gone.
    fn hear(&mut self) -> Option<String> {
        self.output.next().map(|line| line.expect("the worker prints text"))
    }

    /// Waits for the end of the worker.
    fn join(mut self) -> ExitStatus {
        drop(self.input);
        self.child.wait().expect("the worker ends")
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args([signal, &id]).status().expect("`kill` runs");
        assert!(status.success());
    }
}

/// The addresses of the stores to test, each with what has to live as long as the test.
async fn stores() -> Vec<(String, Option<TempDir>)> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("sessions.sqlite");
    let mut stores = vec![(format!("sqlite:{}", path.display()), Some(folder))];
    if let Some(address) = tests::mongo_server::address().await {
        stores.push((address, None));
    }
    stores
}
