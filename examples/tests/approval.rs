//! The approval example: one terminal hands in an expense, another one decides, and any of them
//! may be killed.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use tempfile::TempDir;

/// A folder with the sessions and the payments of one test.
struct Office(TempDir);

/// A conversation in a terminal.
struct Terminal {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Office {
    fn open() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_approval"));
        command.args(args).current_dir(self.0.path());
        command
    }

    fn talk(&self) -> Terminal {
        let mut command = self.command(&[]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the example starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped")).lines();
        Terminal { child, input, output }
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().expect("the example runs")
    }

    fn lines(&self, args: &[&str]) -> Vec<String> {
        let output = self.run(args);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("it prints text");
        text.lines().map(str::to_owned).collect()
    }

    fn error(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).expect("it prints text")
    }

    /// The id of the only request.
    fn request(&self) -> String {
        let lines = self.lines(&["pending"]);
        let [line] = &lines[..] else { panic!("one request: {lines:?}") };
        assert!(line.contains("  pay 450 euros for a chair  (until "), "{line}");
        line.split(' ').next().expect("an id").to_owned()
    }

    fn payments(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.path().join("payments.txt")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Terminal {
    fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it is open");
        writeln!(input, "{line}").expect("the example reads");
    }

    /// Reads until a line that begins so.
    fn hear(&mut self, start: &str) -> String {
        let mut lines = self.output.by_ref().map(|line| line.expect("it prints text"));
        let line = lines.find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("a line that begins with `{start}`"))
    }

    /// Hands in an expense that has to be approved.
    fn hand_in(&mut self) {
        self.hear("What did you buy?");
        self.say("a chair");
        self.hear("For how many euros?");
        self.say("450");
        self.hear("(waiting: pay 450 euros for a chair)");
    }

    /// The rest of what it prints, when it ends by itself.
    fn rest(mut self) -> Vec<String> {
        let lines = self.output.by_ref().map(|line| line.expect("it prints text")).collect();
        assert!(self.child.wait().expect("it ends").success());
        lines
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}

fn ends_paid(lines: &[String]) {
    let [.., paid, receipt] = lines else { panic!("{lines:?}") };
    assert_eq!(paid, "Paid 450 euros for a chair. The receipt is", "{lines:?}");
    assert!(receipt.starts_with("rc_"), "{lines:?}");
}

#[test]
fn another_terminal_approves_and_the_conversation_goes_on_by_itself() {
    let office = Office::open();
    let mut terminal = office.talk();
    terminal.hand_in();
    terminal.say("hello?");
    terminal.hear("I am still waiting: pay 450 euros for a chair.");
    let request = office.request();
    let lines = office.lines(&["approve", &request, "--by", "ada"]);
    assert_eq!(lines[0], "Approved by ada.");
    assert!(lines[1].starts_with("(waiting: until "), "{lines:?}");
    assert_eq!(office.lines(&["pending"]), ["Nothing waits for an approval."]);
    assert!(office.payments().is_empty(), "it is held back");

    terminal.hear("Approved by ada.");
    ends_paid(&terminal.rest());
    let payments = office.payments();
    assert_eq!(payments.len(), 1, "{payments:?}");
    assert!(payments[0].ends_with("\t450\ta chair"), "{payments:?}");
}

#[test]
fn killed_while_it_waits_and_while_it_pays_it_pays_once() {
    let office = Office::open();
    let mut terminal = office.talk();
    terminal.hand_in();
    terminal.kill();

    let request = office.request();
    let first = office.lines(&["approve", &request]);
    assert_eq!(office.lines(&["approve", &request]), first, "an approval that is made again");
    let error = office.error(&["deny", &request]);
    assert!(error.contains("does not wait for request"), "{error}");

    let mut terminal = office.talk();
    terminal.hear("(waiting: until ");
    // It is killed as soon as the bank has paid, before that is recorded.
    let payments = office.0.path().join("payments.txt");
    while std::fs::metadata(&payments).map_or(0, |file| file.len()) == 0 {
        std::thread::yield_now();
    }
    terminal.kill();
    assert_eq!(office.payments().len(), 1);

    let mut terminal = office.talk();
    terminal.input = None;
    let lines = terminal.rest();
    // In the rare case that it was recorded all the same, the next expense begins.
    if lines[0] != "(the expense before was paid)" {
        ends_paid(&lines);
    }
    assert_eq!(office.payments().len(), 1, "{:?}", office.payments());
}

#[test]
fn a_sweep_goes_on_with_what_was_killed() {
    let office = Office::open();
    let mut terminal = office.talk();
    terminal.hand_in();
    terminal.kill();
    office.lines(&["approve", &office.request()]);
    let swept = loop {
        match office.lines(&["sweep"]) {
            lines if lines.is_empty() => std::thread::yield_now(),
            lines => break lines,
        }
    };
    assert_eq!(swept, ["(the bank pays 450 euros)", "expense: paid"]);
    assert_eq!(office.payments().len(), 1);
    assert!(office.lines(&["sweep"]).is_empty());
    assert_eq!(office.lines(&[])[..2], ["(the expense before was paid)", "What did you buy?"]);
}

#[test]
fn a_denial_pays_nothing_and_says_why() {
    let office = Office::open();
    let mut terminal = office.talk();
    terminal.hand_in();
    let denied = ["Not paid: denied by eve: a stool will do."];
    let request = office.request();
    let args = ["deny", &request, "--by", "eve", "--reason", "a stool will do"];
    assert_eq!(office.lines(&args), denied);
    assert_eq!(terminal.rest(), denied);
    assert!(office.payments().is_empty());
}

#[test]
fn a_small_expense_is_paid_without_asking_anybody() {
    let office = Office::open();
    let mut receipts = Vec::new();
    for _ in 0..2 {
        let mut terminal = office.talk();
        terminal.say("a pen\n5000000\n40");
        terminal.input = None;
        let lines = terminal.rest();
        assert!(lines.contains(&"Please answer with one number from 1 to 10000.".to_owned()));
        assert!(lines.contains(&"(the bank pays 40 euros)".to_owned()), "{lines:?}");
        receipts.extend(lines.last().cloned());
    }
    assert_ne!(receipts[0], receipts[1], "each expense is paid");
    assert_eq!(office.payments().len(), 2);
}

#[test]
fn what_cannot_be_is_a_clear_error() {
    let office = Office::open();
    for (args, expected) in [
        (&["approve", "chair"][..], "it has to be SESSION/REQUEST, as `pending` shows it"),
        (&["approve", "a.b/1"], "only ASCII letters, digits and"),
        (&["deny", "nobody/1-0-0"], "does not wait for request `1-0-0`"),
        (&["pending", "--store", "redis:x"], "`redis` names no store of this program"),
        (&["talk", "--session", "a.b"], "only ASCII letters, digits and"),
    ] {
        let error = office.error(args);
        assert!(error.starts_with("error: ") && error.contains(expected), "{args:?}: {error}");
    }
    assert!(office.payments().is_empty());
}
