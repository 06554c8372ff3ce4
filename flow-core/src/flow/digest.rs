use serde_json::json;

use super::{FlowMeta, Steps};
use crate::json;
use crate::step::Exposure;
use crate::transition::Target;

/// The digest of a flow's registry: SHA-256 over the canonical form of its id, version,
/// steps with their kinds, ways out and tools, and the flow's own tools.
///
/// It says whether two programs run the same graph.
pub fn digest<F: FlowMeta>(steps: &Steps<F>) -> String {
    let steps: Vec<_> = steps
        .iter()
        .map(|entry| {
            let info = entry.info();
            let targets: Vec<_> = info.targets.iter().map(target_name).collect();
            let mut step = json!({
                "name": &*info.name,
                "kind": info.kind,
                "next": targets,
                "memory": info.memory,
                "tools": &*info.tools(),
            });
            if info.flow_tools != Exposure::Closed {
                step["flow_tools"] = json!(info.flow_tools);
            }
            step
        })
        .collect();
    json::digest(&json!({
        "id": F::ID,
        "version": F::VERSION,
        "steps": steps,
        "tools": F::tools(),
    }))
}

/// A target in the digest. The keywords cannot be step names, since those never hold `$`.
fn target_name(target: &Target) -> &str {
    match target {
        Target::Step(name) => name,
        Target::Stay => "$stay",
        Target::End => "$end",
        Target::HandOff => "$hand_off",
        Target::Escalate => "$escalate",
    }
}
