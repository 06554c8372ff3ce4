//! The picture of a flow, and the digest of its registry.

#![allow(dead_code, reason = "the flows are drawn, not run, so no way out is taken")]

use flow_core::Engine;
use flow_core::flow::digest;
use flow_core::prelude::*;
use flow_core::step::Kind;
use flow_core::store::memory::MemoryStore;

/// Ships parcels: every kind of step, every way out.
#[flow(id = "parcel-service", version = 3, steps(Details, Weigh, Book, Receipt, Help), tools)]
#[derive(Clone)]
struct Parcels;

impl Flow for Parcels {}

/// Collects the shipment.
#[step(collect, next(Weigh, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Details {
    #[slot(range(1, 20))]
    parcels: Option<u8>,
}

impl Collect for Details {
    type Flow = Parcels;

    async fn complete(
        &mut self,
        _: DetailsData,
        _: &mut StepCx<'_, Parcels>,
    ) -> Result<DetailsNext> {
        Ok(DetailsNext::Weigh)
    }
}

#[step(decide, next(Book(u8), Details, hand_off))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Weigh;

impl Decide for Weigh {
    type Flow = Parcels;
    type Verdict = bool;

    async fn verdict(&mut self, _: &mut StepCx<'_, Parcels>) -> Result<bool> {
        Ok(true)
    }

    async fn decide(&mut self, _: bool, _: &mut StepCx<'_, Parcels>) -> Result<WeighNext> {
        Ok(WeighNext::Book(1))
    }
}

/// Books with the carrier.
#[step(action, input = u8, next(Receipt, Help, Book(u8)))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Book;

impl Action for Book {
    type Flow = Parcels;

    async fn run(&mut self, _: &mut ActionCx<'_, Parcels>) -> Result<BookNext> {
        Ok(BookNext::Receipt)
    }
}

#[step(reply, tools, id = "Quittung-für-Ämter", next(end, Help, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Receipt;

impl Reply for Receipt {
    type Flow = Parcels;
}

#[tools]
impl Receipt {
    /// Prints it.
    #[tool]
    fn print(&self, copies: u8) -> u8 {
        copies
    }
}

// A name that is a word of both languages and of this picture.
#[step(reply, id = "end", next(escalate))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Help;

impl Reply for Help {
    type Flow = Parcels;
}

#[tools(flow)]
impl Parcels {
    /// Looks a parcel up.
    #[tool]
    fn track(&self, id: String) -> String {
        id
    }
}

fn graph() -> Graph {
    let engine = Engine::builder().store(MemoryStore::new()).flow(Parcels).build().unwrap();
    let graph = engine.graph("parcel-service").unwrap();
    assert_eq!(graph, Graph::of(&Parcels), "the engine shows the registry that it runs");
    assert_eq!(engine.graph("nothing").unwrap_err().code(), "unknown-flow");
    graph
}

#[test]
fn the_graph_is_a_value() {
    let graph = graph();
    insta::assert_json_snapshot!(graph);
    let kinds: Vec<Kind> = graph.nodes.iter().map(|node| node.kind).collect();
    assert_eq!(kinds, [Kind::Collect, Kind::Decide, Kind::Action, Kind::Reply, Kind::Reply]);
}

#[test]
fn the_graph_as_mermaid() {
    insta::assert_snapshot!(graph().to_mermaid());
}

#[test]
fn the_graph_as_dot() {
    insta::assert_snapshot!(graph().to_dot());
}

#[test]
fn mermaid_ids_are_words_and_labels_are_the_names() {
    let text = graph().to_mermaid();
    for line in text.lines().skip(1) {
        let line = line.trim();
        let ids: Vec<&str> = match line.split_once(" --> ") {
            Some((from, to)) => vec![from, to],
            None => vec![line.split(['(', '[', '{']).next().unwrap()],
        };
        for id in ids {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            assert!(id.chars().all(plain), "{id:?} in {line:?}");
        }
    }
    assert!(text.contains("\"Quittung-für-Ämter\""), "{text}");
}

#[test]
fn dot_writes_names_as_they_are() {
    let mut graph = graph();
    // Vowel signs are letters in names, and combining marks for Rust's `Debug`.
    graph.flow = "\"हुआ\" \\".into();
    let text = graph.to_dot();
    let first = text.lines().next().unwrap();
    assert_eq!(first, r#"digraph "\"हुआ\" \\" {"#);
    assert!(text.contains("\"Quittung-für-Ämter\""), "{text}");
}

/// One flow in several shapes.
macro_rules! shape {
    ($module:ident, version $version:literal, doc $doc:literal, memory $memory:literal,
     width $width:ty, next($($next:tt)*)) => {
        mod $module {
            use flow_core::prelude::*;

            #[doc = $doc]
            #[flow(id = "shape", version = $version, steps(One, Two), tools)]
            #[derive(Clone)]
            pub(crate) struct Shape;

            impl Flow for Shape {}

            #[doc = $doc]
            #[step(reply, memory = $memory, next($($next)*))]
            #[derive(Default, Serialize, Deserialize, JsonSchema)]
            pub(crate) struct One;

            impl Reply for One {
                type Flow = Shape;
            }

            #[step(reply, next(end))]
            #[derive(Default, Serialize, Deserialize, JsonSchema)]
            pub(crate) struct Two;

            impl Reply for Two {
                type Flow = Shape;
            }

            #[tools(flow)]
            impl Shape {
                /// Measures.
                #[tool]
                pub(crate) fn measure(&self, width: $width) -> String {
                    width.to_string()
                }
            }
        }
    };
}

shape!(base, version 1, doc "A shape.", memory "one", width u8, next(Two, stay));
shape!(documented, version 1, doc "Another text.", memory "one", width u8, next(Two, stay));
shape!(newer, version 2, doc "A shape.", memory "one", width u8, next(Two, stay));
shape!(remembered, version 1, doc "A shape.", memory "two", width u8, next(Two, stay));
shape!(wider, version 1, doc "A shape.", memory "one", width u16, next(Two, stay));
shape!(rewired, version 1, doc "A shape.", memory "one", width u8, next(Two, stay, end));

/// The base with another kind of step.
mod acting {
    use flow_core::prelude::*;

    /// A shape.
    #[flow(id = "shape", version = 1, steps(One, Two), tools)]
    #[derive(Clone)]
    pub(crate) struct Shape;

    impl Flow for Shape {}

    #[step(action, memory = "one", next(Two, stay))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct One;

    impl Action for One {
        type Flow = Shape;

        async fn run(&mut self, _: &mut ActionCx<'_, Shape>) -> Result<OneNext> {
            Ok(OneNext::Two)
        }
    }

    #[step(reply, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct Two;

    impl Reply for Two {
        type Flow = Shape;
    }

    #[tools(flow)]
    impl Shape {
        /// Measures.
        #[tool]
        pub(crate) fn measure(&self, width: u8) -> String {
            width.to_string()
        }
    }
}

fn digest_of<F: FlowMeta>() -> String {
    digest(&F::steps())
}

#[test]
fn the_digest_of_one_source_is_always_the_same() {
    let digests = [digest_of::<base::Shape>(), digest_of::<Parcels>()];
    insta::assert_snapshot!(digests.join("\n"));
}

#[test]
fn the_digest_tells_graphs_apart_and_not_their_docs() {
    let base = digest_of::<base::Shape>();
    assert_eq!(digest_of::<documented::Shape>(), base);
    let others = [
        ("version", digest_of::<newer::Shape>()),
        ("memory", digest_of::<remembered::Shape>()),
        ("a tool's schema", digest_of::<wider::Shape>()),
        ("a way out", digest_of::<rewired::Shape>()),
        ("a kind", digest_of::<acting::Shape>()),
        ("a step", digest(&base::Shape::steps().remove("Two"))),
    ];
    for (place, (what, digest)) in others.iter().enumerate() {
        assert_ne!(*digest, base, "{what}");
        assert!(others[..place].iter().all(|(_, other)| other != digest), "{what}");
    }
}

#[tokio::test]
async fn a_session_knows_the_digest_of_the_program_that_wrote_it() {
    let engine = Engine::builder().store(MemoryStore::new()).flow(Parcels).build().unwrap();
    let session = SessionId::new("s").unwrap();
    engine.turn::<Parcels>(flow_core::TurnRequest::new(session.clone())).await.unwrap();
    let doc = engine.session(session).load().await.unwrap();
    assert_eq!(doc.flow.digest, digest_of::<Parcels>());
}
