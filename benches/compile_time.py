#!/usr/bin/env python3
"""Prints the CPU seconds that `cargo check` and `cargo build` take for flows of 10, 50 and 200
steps: with the serde and schemars derives alone, with the derives in use (a function per
struct that writes it, reads it and makes its schema, since the compiler builds nothing of a
derive that nobody calls), and with the macros and an action for each step.

    python3 benches/compile_time.py [STEPS ...]

The differences to the macros, divided by the number of steps, are what one step costs beyond
its derives. Of three runs the fastest counts. Dependencies are built first and not counted.
"""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

MANIFEST = """
[package]
name = "{name}"
version = "0.0.0"
edition = "2024"

[dependencies]
flow-core = {{ path = "{root}/flow-core" }}
serde = {{ version = "1", features = ["derive"] }}
serde_json = "1"
serde_path_to_error = "0.1"
schemars = "1"

[workspace]
"""

STEP = """
/// Step {i}.
{attribute}
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub struct Step{i} {{
    pub name: Option<String>,
    pub count: u32,
    pub done: bool,
}}
"""

ACTION = """
impl Action for Step{i} {{
    type Flow = Big;
    async fn run(&mut self, cx: &mut ActionCx<'_, Big>) -> Result<Step{i}Next> {{
        self.count += 1;
        Ok(if cx.message().is_some() {{ Step{i}Next::Step{next} }} else {{ Step{i}Next::Stay }})
    }}
}}
"""

USE = """
pub fn save{i}(step: &Step{i}) -> serde_json::Result<serde_json::Value> {{
    serde_json::to_value(step)
}}
pub fn load{i}(
    fields: serde_json::Value,
) -> std::result::Result<Step{i}, serde_path_to_error::Error<serde_json::Error>> {{
    serde_path_to_error::deserialize(fields)
}}
pub fn schema{i}() -> schemars::Schema {{
    schemars::schema_for!(Step{i})
}}
"""

KINDS = ("derives", "used", "macros")
RUNS = 3


def source(steps, kind):
    with_macros = kind == "macros"
    lines = ["#![allow(dead_code)]", "use flow_core::prelude::*;"]
    if with_macros:
        names = ", ".join(f"Step{i}" for i in range(steps))
        lines.append(f'#[flow(id = "big", steps({names}))]\n#[derive(Clone)]\npub struct Big;')
        lines.append("impl Flow for Big {}")
    for i in range(steps):
        following = (i + 1) % steps
        attribute = f"#[step(action, next(Step{following}, stay))]" if with_macros else ""
        lines.append(STEP.format(i=i, attribute=attribute))
        if with_macros:
            lines.append(ACTION.format(i=i, next=following))
        elif kind == "used":
            lines.append(USE.format(i=i))
    return "\n".join(lines)


def cpu_seconds(command, folder, target):
    environment = dict(os.environ, CARGO_TARGET_DIR=str(target), CARGO_INCREMENTAL="0")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    counts = [int(text) for text in sys.argv[1:]] or [10, 50, 200]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        target = folder / "target"
        package = folder / "fixture"
        (package / "src").mkdir(parents=True)
        (package / "Cargo.toml").write_text(MANIFEST.format(name="fixture", root=ROOT))
        lock = ROOT / "Cargo.lock"
        if lock.exists():
            (package / "Cargo.lock").write_bytes(lock.read_bytes())
        library = package / "src" / "lib.rs"
        print("command  steps  derives   in use   macros  ms per step beyond derives, in use")
        for command in (["cargo", "check"], ["cargo", "build"]):
            library.write_text("use flow_core as _;")
            cpu_seconds(command, package, target)
            for steps in counts:
                seconds = {kind: float("inf") for kind in KINDS}
                for _ in range(RUNS):
                    for kind in KINDS:
                        library.write_text(source(steps, kind))
                        seconds[kind] = min(seconds[kind], cpu_seconds(command, package, target))
                derives, used, macros = (seconds[kind] for kind in KINDS)
                beyond = [(macros - base) / steps * 1000 for base in (derives, used)]
                print(
                    f"{command[1]:7} {steps:6} {derives:8.2f} {used:8.2f} {macros:8.2f}"
                    f"  {beyond[0]:26.1f}, {beyond[1]:6.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
