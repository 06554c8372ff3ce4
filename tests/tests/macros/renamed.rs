//! A crate that depends on flow-core alone, under another name, compiles without a prelude
//! and with types of its own named `Result`, `Option`, `Box`, `String` and `Vec`.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_macros_find_everything_by_absolute_paths() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = tests.parent().expect("the tests are in the workspace");
    let fixture = tests.join("fixtures/renamed");
    let build = Path::new(env!("CARGO_TARGET_TMPDIR")).join("renamed");
    fs::create_dir_all(build.join("src")).unwrap();

    // Checked outside of the source tree, with the versions of the workspace.
    let manifest = fs::read_to_string(fixture.join("Cargo.toml")).unwrap();
    let core = workspace.join("flow-core");
    let core = core.to_str().expect("a path in UTF-8").replace('\\', "/");
    assert!(manifest.contains("\"../../../flow-core\""));
    let manifest = manifest.replace("../../../flow-core", &core);
    fs::write(build.join("Cargo.toml"), manifest).unwrap();
    for file in ["lib.rs", "flow.md"] {
        fs::copy(fixture.join("src").join(file), build.join("src").join(file)).unwrap();
    }
    fs::copy(workspace.join("Cargo.lock"), build.join("Cargo.lock")).unwrap();

    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet", "--color=never"])
        .current_dir(&build)
        .env("CARGO_TARGET_DIR", build.join("target"))
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
