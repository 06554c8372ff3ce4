//! Programs that tests run and that a fresh machine does not have: found on `PATH` or in a
//! cache folder, and built there on first use.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SECANTUS: &str = "0.5.3-beta.196";
const SECANTUS_PYTHON: &str = "0.7.0b3";

/// The program of that name on `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// `secantusd-rs`, from `PATH` or the cache.
pub(crate) fn secantus() -> Result<PathBuf, String> {
    if let Some(program) = on_path("secantusd-rs") {
        return Ok(program);
    }
    let cache = cache()?;
    let root = cache.join(format!("secantus-{SECANTUS}"));
    let program = root.join("bin/secantusd-rs");
    built_once(&cache, &program, || {
        announce(&format!(
            "tests of MongoDB: building secantusd-rs {SECANTUS} in {}, once, 4 minutes on two cores: they need a server, and there is neither MONGODB_URI nor mongod on PATH",
            root.display()
        ));
        let cmake = cmake(&cache)?;
        let build = cache.join("build");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(cmake).chain(std::env::split_paths(&path));
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut install = Command::new(cargo);
        install
            .args([
                "install",
                "secantus-mdb",
                "--version",
                SECANTUS,
                "--ignore-rust-version",
                "--root",
            ])
            .arg(&root)
            // What the flags of this workspace are must not matter.
            .current_dir(&cache)
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env("CARGO_TARGET_DIR", &build)
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
            .env("PATH", std::env::join_paths(folders).map_err(|e| e.to_string())?);
        run(&mut install, "cargo install secantus-mdb")?;
        // A gigabyte that nothing needs any more.
        let _ = fs::remove_dir_all(build);
        Ok(())
    })?;
    Ok(program)
}

/// `secantusd-py`, from the cache.
pub(crate) fn secantus_python() -> Result<PathBuf, String> {
    let cache = cache()?;
    let environment = cache.join(format!("secantus-py-{SECANTUS_PYTHON}"));
    let program = environment.join("bin/secantusd-py");
    built_once(&cache, &program, || {
        announce(&format!(
            "tests of MongoDB: installing secantusd-py {SECANTUS_PYTHON} in {}, once: those of injected failures need a server with \
             failCommand",
            environment.display()
        ));
        install_python(&environment, &format!("SecantusDB=={SECANTUS_PYTHON}"))
    })?;
    Ok(program)
}

/// The folder with `cmake`.
fn cmake(cache: &Path) -> Result<PathBuf, String> {
    if let Some(folder) = on_path("cmake").and_then(|program| Some(program.parent()?.to_owned())) {
        return Ok(folder);
    }
    let environment = cache.join("cmake");
    let folder = environment.join("bin");
    if !folder.join("cmake").is_file() {
        announce("tests of MongoDB: installing cmake from PyPI, which secantusd-rs is built with");
        install_python(&environment, "cmake")?;
    }
    Ok(folder)
}

fn install_python(environment: &Path, package: &str) -> Result<(), String> {
    run(Command::new("python3").args(["-m", "venv"]).arg(environment), "python3 -m venv")?;
    let mut pip = Command::new(environment.join("bin/pip"));
    run(pip.args(["install", "--quiet", "--disable-pip-version-check", package]), "pip install")
}

/// Builds a program unless it is there. Test processes that run at once wait for the one
/// that builds.
fn built_once(
    cache: &Path,
    program: &Path,
    build: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    if program.is_file() {
        return Ok(());
    }
    let failed = |e: std::io::Error| format!("{} cannot be used: {e}", cache.display());
    fs::create_dir_all(cache).map_err(failed)?;
    // The lock ends with the process, however that ends.
    let lock = File::create(cache.join("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    if program.is_file() {
        return Ok(());
    }
    build()?;
    if program.is_file() { Ok(()) } else { Err(format!("{} was not made", program.display())) }
}

fn cache() -> Result<PathBuf, String> {
    if let Some(folder) = std::env::var_os("FLOW_TEST_TOOLS") {
        return std::path::absolute(folder)
            .map_err(|e| format!("FLOW_TEST_TOOLS cannot be used: {e}"));
    }
    let user =
        std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let user = user.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let user = user.ok_or("there is no cache folder; set FLOW_TEST_TOOLS to one")?;
    Ok(user.join("flow-test-tools"))
}

fn run(command: &mut Command, name: &str) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("`{name}` could not be started: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let log = String::from_utf8_lossy(&output.stderr);
    let tail: Vec<&str> = log.lines().rev().take(10).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    Err(format!("`{name}` failed:\n{}\n", tail.join("\n")))
}

/// Says something that must be seen: past the test harness, which keeps what is printed.
pub(crate) fn announce(what: &str) {
    // One write, so that lines of several tests do not mix.
    let _ = std::io::stderr().write_all(format!("\n{what}\n").as_bytes());
}
