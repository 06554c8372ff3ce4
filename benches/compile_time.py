#!/usr/bin/env python3
"""Prints the CPU seconds that `cargo check` and `cargo build` take for flows of 10, 50 and 200
steps, with the macros and with the serde and schemars derives alone.

    python3 benches/compile_time.py [STEPS ...]

The difference, divided by the number of steps, is what one step costs beyond its derives.
Dependencies are built first and are not counted.
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


def source(steps, with_macros):
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
        print(f"{'command':8} {'steps':>5} {'derives':>8} {'macros':>8} {'ms per step beyond derives':>27}")
        for command in (["cargo", "check"], ["cargo", "build"]):
            library.write_text("use flow_core as _;")
            cpu_seconds(command, package, target)
            for steps in counts:
                seconds = []
                for with_macros in (False, True):
                    library.write_text(source(steps, with_macros))
                    seconds.append(cpu_seconds(command, package, target))
                per_step = (seconds[1] - seconds[0]) / steps * 1000
                print(f"{command[1]:8} {steps:5} {seconds[0]:8.2f} {seconds[1]:8.2f} {per_step:27.1f}")


if __name__ == "__main__":
    main()
