use std::fmt::Write as _;

use serde::Serialize;

use super::{Flow, FlowMeta, Steps};
use crate::step::Kind;
use crate::transition::Target;

/// The picture of a flow, made from the registry that runs it.
///
/// Nodes and edges are in the order of the registry, so the picture of one source is always
/// the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Graph {
    /// The flow's id.
    pub flow: String,
    /// The document version.
    pub version: u32,
    /// The step at which a session begins.
    pub start: String,
    /// The steps.
    pub nodes: Vec<Node>,
    /// The ways out of them. Staying is not an edge.
    pub edges: Vec<Edge>,
}

/// A step in the picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Node {
    /// The persisted name.
    pub name: String,
    /// The kind.
    pub kind: Kind,
    /// The doc comment.
    pub doc: String,
    /// The names of its tools.
    pub tools: Vec<String>,
}

/// A way out in the picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Edge {
    /// The step that is left.
    pub from: String,
    /// The step that is entered, or `end`, `hand_off`, `escalate`.
    pub to: String,
    /// Whether `to` is a step.
    pub is_step: bool,
}

impl Graph {
    /// The picture of a flow.
    ///
    /// Its `define_steps` and `initial_step` are asked as they are when the engine is built.
    pub fn of<F: Flow>(flow: &F) -> Self {
        let steps = flow.define_steps(F::steps());
        let start = flow.initial_step();
        Self::of_steps(&steps, start.as_deref())
    }

    pub(crate) fn of_steps<F: FlowMeta>(steps: &Steps<F>, start: Option<&str>) -> Self {
        let first = steps.iter().next().map(|entry| entry.info().name.to_string());
        let mut nodes = Vec::new();
        let mut edges = Vec::new();
        for entry in steps.iter() {
            let info = entry.info();
            nodes.push(Node {
                name: info.name.to_string(),
                kind: info.kind,
                doc: info.doc.to_owned(),
                tools: info.tools().iter().map(|tool| tool.name.clone()).collect(),
            });
            for target in info.targets {
                let (to, is_step) = match target {
                    Target::Stay => continue,
                    Target::Step(name) => (name.as_ref(), true),
                    Target::End => ("end", false),
                    Target::HandOff => ("hand_off", false),
                    Target::Escalate => ("escalate", false),
                };
                edges.push(Edge { from: info.name.to_string(), to: to.to_owned(), is_step });
            }
        }
        Self {
            flow: F::ID.to_owned(),
            version: F::VERSION,
            start: start.map(str::to_owned).or(first).unwrap_or_default(),
            nodes,
            edges,
        }
    }

    /// The picture as a Mermaid flowchart.
    pub fn to_mermaid(&self) -> String {
        let mut text = String::from("flowchart TD\n    start_((\"start\"))\n");
        for node in &self.nodes {
            let (open, close) = match node.kind {
                Kind::Reply => ("(", ")"),
                Kind::Collect => ("[/", "/]"),
                Kind::Action => ("[", "]"),
                Kind::Decide => ("{", "}"),
            };
            let id = self.mermaid_id(&node.name);
            let _ = writeln!(text, "    {id}{open}\"{}\"{close}", node.name);
        }
        for (name, label) in self.exits() {
            let _ = writeln!(text, "    {name}_([\"{label}\"])");
        }
        let _ = writeln!(text, "    start_ --> {}", self.mermaid_id(&self.start));
        for edge in &self.edges {
            let from = self.mermaid_id(&edge.from);
            let to = if edge.is_step { self.mermaid_id(&edge.to) } else { format!("{}_", edge.to) };
            let _ = writeln!(text, "    {from} --> {to}");
        }
        text
    }

    /// The id of a step: its name where Mermaid takes that, else its place.
    fn mermaid_id(&self, name: &str) -> String {
        if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return format!("s_{name}");
        }
        let place = self.nodes.iter().position(|node| node.name == name);
        format!("n{}", place.unwrap_or(self.nodes.len()))
    }

    /// The picture in Graphviz's DOT language.
    pub fn to_dot(&self) -> String {
        let mut text = format!("digraph {} {{\n    rankdir=TB;\n", dot_id(&self.flow));
        text.push_str("    \"$start\" [shape=circle, label=\"start\"];\n");
        for node in &self.nodes {
            let shape = match node.kind {
                Kind::Reply => "ellipse",
                Kind::Collect => "parallelogram",
                Kind::Action => "box",
                Kind::Decide => "diamond",
            };
            let _ = writeln!(text, "    {} [shape={shape}];", dot_id(&node.name));
        }
        for (name, label) in self.exits() {
            let _ = writeln!(text, "    \"${name}\" [shape=doublecircle, label=\"{label}\"];");
        }
        let _ = writeln!(text, "    \"$start\" -> {};", dot_id(&self.start));
        for edge in &self.edges {
            let to = if edge.is_step { dot_id(&edge.to) } else { format!("\"${}\"", edge.to) };
            let _ = writeln!(text, "    {} -> {to};", dot_id(&edge.from));
        }
        text.push_str("}\n");
        text
    }

    fn exits(&self) -> Vec<(&'static str, &'static str)> {
        [("end", "end"), ("hand_off", "hand off"), ("escalate", "escalate")]
            .into_iter()
            .filter(|(name, _)| self.edges.iter().any(|edge| !edge.is_step && edge.to == *name))
            .collect()
    }
}

/// A text as a quoted id, in which DOT escapes nothing but these.
fn dot_id(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
