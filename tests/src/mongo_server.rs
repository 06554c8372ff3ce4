//! A real MongoDB server for tests.
//!
//! It is looked for in this order:
//!
//! 1. the address in `MONGODB_URI`;
//! 2. `mongod` on `PATH`;
//! 3. `secantusd-rs` on `PATH` or in the cache of test tools, where it is built on first
//!    use. It speaks MongoDB's wire protocol over the WiredTiger engine. It is GPL-2.0 and
//!    run as a process.
//!
//! The cache is the folder that `FLOW_TEST_TOOLS` names, else `flow-test-tools` in the
//! user's cache folder. `FLOW_SKIP_MONGODB=1` skips the tests that need a server.
//!
//! A server that is started here ends with the process that has started it, in whichever
//! way that ends: a shell that waits for the end of a pipe kills it and removes its folder.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flow_core::time::Timestamp;
use mongodb::bson::doc;
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use tokio::sync::OnceCell;

use crate::test_tools;

/// Databases of tests that are older are dropped; relevant for a server that stays.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);
const DATABASE_PREFIX: &str = "flow_test_";
/// How long a server may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Runs a server, and again when it is told to; kills it and removes its folder when the
/// pipe ends.
const SUPERVISOR: &str = r#"
trap '' INT TERM HUP
dir=$1; shift
run() { "$@" >>"$dir/log" 2>&1 & pid=$!; echo "$pid"; }
run "$@"
while read -r order; do
  case $order in
    kill) kill -9 "$pid"; wait "$pid" 2>/dev/null; echo killed ;;
    start) run "$@" ;;
  esac
done
kill -9 "$pid" 2>/dev/null
wait "$pid" 2>/dev/null
rm -rf "$dir"
"#;

/// A database of its own on the server that all tests of the process share; nothing when
/// tests with MongoDB are skipped.
///
/// # Panics
/// When no server can be had.
pub async fn mongo() -> Option<Database> {
    let client = Client::with_uri_str(uri().await?).await;
    Some(client.expect("MongoDB for tests: the address cannot be used").database(&fresh_database()))
}

/// The name of a database that no other test uses.
pub fn fresh_database() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = Timestamp::now().as_millis();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{DATABASE_PREFIX}{now}_{}_{count}", std::process::id())
}

/// The address of a database of its own on the server that all tests of the process share,
/// as `flow_core::store::open` takes it.
///
/// # Panics
/// When no server can be had.
pub async fn address() -> Option<String> {
    let uri = uri().await?;
    let (server, options) =
        uri.split_once('?').map_or((&*uri, ""), |(uri, options)| (uri, options));
    let mut parts = server.splitn(4, '/');
    let hosts: Vec<&str> = parts.by_ref().take(3).collect();
    let options = if options.is_empty() { String::new() } else { format!("?{options}") };
    Some(format!("{}/{}{options}", hosts.join("/"), fresh_database()))
}

/// The address of the server that all tests of the process share.
///
/// # Panics
/// When no server can be had.
pub async fn uri() -> Option<String> {
    // Also the reason why there is none, so that not each test tries to build one.
    static SHARED: OnceCell<Result<(String, Option<MongoServer>), String>> = OnceCell::const_new();
    if skipped() {
        return None;
    }
    let shared = SHARED.get_or_init(async || {
        if let Ok(uri) = std::env::var("MONGODB_URI") {
            drop_leftovers(&uri).await.map_err(|e| {
                format!("the server that MONGODB_URI names cannot be used: {}", e.kind)
            })?;
            return Ok((uri, None));
        }
        let server = MongoServer::launch(Kind::Store).await?;
        Ok((server.uri(), Some(server)))
    });
    match shared.await {
        Ok((uri, _)) => Some(uri.clone()),
        Err(reason) => no_server(reason),
    }
}

fn no_server(reason: &str) -> ! {
    panic!("MongoDB for tests: {reason}");
}

/// Databases that tests on a server that stays have left behind.
async fn drop_leftovers(uri: &str) -> Result<(), mongodb::error::Error> {
    let client = Client::with_uri_str(uri).await?;
    for name in client.list_database_names().await? {
        let made = name.strip_prefix(DATABASE_PREFIX).and_then(|rest| rest.split('_').next());
        let made = made.and_then(|millis| Timestamp::from_millis(millis.parse().ok()?).ok());
        if made.is_some_and(|made| Timestamp::now().since(made) > LEFTOVER_AGE) {
            // Another run may have dropped it.
            let _ = client.database(&name).drop().await;
        }
    }
    Ok(())
}

fn skipped() -> bool {
    let skipped = std::env::var("FLOW_SKIP_MONGODB").is_ok_and(|value| value == "1");
    if skipped {
        test_tools::announce(
            "SKIPPED: FLOW_SKIP_MONGODB=1 is set, so nothing of MongoDB is tested here",
        );
    }
    skipped
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// All that the store needs.
    Store,
    /// Has `failCommand`; compares `$$NOW` wrongly, so an ended lease cannot be taken.
    FailCommand,
}

/// A server for one test, ended when it is dropped.
#[derive(Debug)]
pub struct MongoServer {
    port: u16,
    folder: PathBuf,
    supervisor: Child,
    // Nothing only while it is dropped.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl MongoServer {
    /// A server of the kind that the store's tests run on; nothing when tests with MongoDB
    /// are skipped.
    ///
    /// # Panics
    /// When none can be had.
    pub async fn start() -> Option<Self> {
        Self::own(Kind::Store).await
    }

    /// Its address.
    pub fn uri(&self) -> String {
        self.uri_with_limit(START_LIMIT)
    }

    /// Its address for a client that gives up after `limit` when the server is not there.
    /// Such a client looks often whether it is back.
    pub fn uri_with_limit(&self, limit: Duration) -> String {
        format!(
            "mongodb://127.0.0.1:{}/?serverSelectionTimeoutMS={}&heartbeatFrequencyMS=500&serverMonitoringMode=poll",
            self.port,
            limit.as_millis()
        )
    }

    /// Kills the server (signal 9), and returns when it is dead.
    pub fn kill(&mut self) {
        assert_eq!(self.order("kill"), "killed", "the supervisor of the server is dead");
    }

    /// Starts a server that was killed on the same folder and port, and waits until it
    /// answers.
    pub async fn restart(&mut self) {
        self.order("start");
        self.wait_until_ready().await.expect("MongoDB for tests: the server did not come back");
    }

    fn order(&mut self, order: &str) -> String {
        let sent = self.orders.as_mut().map(|orders| writeln!(orders, "{order}"));
        sent.expect("it is not dropped").expect("the supervisor of the server is dead");
        self.answer().expect("the supervisor of the server is dead")
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    async fn own(kind: Kind) -> Option<Self> {
        if skipped() {
            return None;
        }
        Some(Self::launch(kind).await.unwrap_or_else(|reason| no_server(&reason)))
    }

    async fn launch(kind: Kind) -> Result<Self, String> {
        // Building a server takes minutes.
        let found = tokio::task::spawn_blocking(move || program(kind)).await;
        let program = found.expect("looking for a server does not panic").map_err(|reason| {
            format!(
                "{reason}. Set MONGODB_URI, put mongod on PATH, or set FLOW_SKIP_MONGODB=1 to leave these \
                 tests out"
            )
        })?;
        let mut reason = String::new();
        // Another process may take the free port before the server does.
        for _ in 0..3 {
            let server = Self::spawn(&program)
                .map_err(|e| format!("{} cannot be started: {e}", program.path.display()))?;
            match server.wait_until_ready().await {
                Ok(()) => return Ok(server),
                Err(e) => reason = e,
            }
        }
        Err(format!("{} does not answer: {reason}", program.path.display()))
    }

    fn spawn(program: &Program) -> io::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let folder = tempfile::Builder::new().prefix("flow-mongo-").tempdir()?.keep();
        let data = folder.join("data");
        std::fs::create_dir(&data)?;
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "supervisor"])
            .arg(&folder)
            .arg(&program.path)
            .args(program.arguments(port, &data))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = supervisor.stdin.take();
        let answers = supervisor.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut server =
            Self { port, folder, supervisor, orders, answers: BufReader::new(answers) };
        server.answer()?;
        Ok(server)
    }

    async fn wait_until_ready(&self) -> Result<(), String> {
        let options = ClientOptions::parse(self.uri_with_limit(START_LIMIT)).await;
        let client = options.and_then(Client::with_options).map_err(|e| e.to_string())?;
        let answer = client.database("admin").run_command(doc! { "ping": 1 }).await;
        answer.map(drop).map_err(|e| {
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(5).collect();
            format!("{e}; the end of its log, newest line first: {tail:?}")
        })
    }
}

impl Drop for MongoServer {
    fn drop(&mut self) {
        drop(self.orders.take());
        // The shell has nothing left to do but to end.
        let _ = self.supervisor.wait();
    }
}

/// A server with `failCommand`, for tests of injected failures alone; nothing when tests
/// with MongoDB are skipped.
///
/// # Panics
/// When it cannot be had.
pub async fn failcommand_server() -> Option<MongoServer> {
    MongoServer::own(Kind::FailCommand).await
}

#[derive(Debug, Clone)]
struct Program {
    path: PathBuf,
    flavour: Flavour,
}

#[derive(Debug, Clone, Copy)]
enum Flavour {
    Mongod,
    Secantus,
    SecantusPython,
}

impl Program {
    fn arguments(&self, port: u16, data: &Path) -> Vec<String> {
        let port = port.to_string();
        let data = data.display().to_string();
        let arguments: &[&str] = match self.flavour {
            Flavour::Mongod => &["--bind_ip", "127.0.0.1", "--port", &port, "--dbpath", &data],
            // Without syncing, acknowledged writes are lost when it is killed. The log file
            // is allocated whole.
            Flavour::Secantus => &[
                "--port",
                &port,
                "--storage-path",
                &data,
                "--sync-on-commit",
                "--log-file-max",
                "16MB",
                "--log-level",
                "WARNING",
            ],
            Flavour::SecantusPython => {
                &["--port", &port, "--storage-path", ":memory:", "--enable-test-commands"]
            }
        };
        arguments.iter().map(|&argument| argument.to_owned()).collect()
    }
}

fn program(kind: Kind) -> Result<Program, String> {
    if kind == Kind::FailCommand {
        let path = test_tools::secantus_python()?;
        return Ok(Program { path, flavour: Flavour::SecantusPython });
    }
    if let Some(path) = test_tools::on_path("mongod") {
        return Ok(Program { path, flavour: Flavour::Mongod });
    }
    Ok(Program { path: test_tools::secantus()?, flavour: Flavour::Secantus })
}
