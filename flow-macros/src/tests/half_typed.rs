//! What an editor sends while somebody types. The item must come back, so that completion
//! works in it, and nothing may panic.

use proc_macro2::TokenStream;

use super::{MACROS, errors, expand};

const STRUCT: &str = "pub struct Explore { shown: u8 }";
const IMPL: &str =
    "impl Explore { /// Searches.\n #[tool] fn search(&self, city: String) -> u8 { 1 } }";

/// Attributes as they look on the way to a good one.
const STEP: &[&str] = &[
    "",
    "r",
    "reply",
    "reply,",
    "reply, n",
    "reply, next",
    "reply, next()",
    "reply, next(C)",
    "reply, next(Checkout(",
    "reply, next(Checkout()",
    "reply, next(Checkout(Cho",
    "reply, next(a::",
    "reply, next(a::)",
    "reply, next(Gen<)",
    "reply, next(Gen<D)",
    "reply, next(Gen<D>(",
    "reply, next(,)",
    "reply, next(stay stay)",
    "reply, next(<T as X>::Y)",
    "reply, next(1)",
    "reply, next = 3",
    "reply, input",
    "reply, input =",
    "reply, input = Vec<",
    "reply, input = , next(end)",
    "reply, memory = ",
    "reply, memory = \"a",
    "reply, id",
    "reply, alias",
    "reply, alias(",
    "reply, alias(\"a\" \"b\")",
    "reply, tools,, next(end)",
    "reply, flow_tools",
    "reply, flow_tools =",
    "reply, flow_tools = all",
    "reply, flow_tools(",
    "reply, flow_tools(Cha",
    "reply, flow_tools(a::",
    "reply, flow_tools(A<B",
    "action, flow_tools = open, next(end)",
    "= 3",
    "::",
    "#[x]",
    "reply reply",
    "reply, crate",
    "reply, crate =",
    "reply, crate = a::",
    "reply, next(end), input = Map<A, B>, memry = Map<A, B>, id = \"x\"",
    "<>",
    ">",
    "reply, foo = A<B, next(end)",
];
const FLOW: &[&str] = &[
    "",
    "id",
    "id =",
    "id = 3",
    "version",
    "version =",
    "version = -1",
    "version = 99999999999",
    "steps",
    "steps(",
    "steps()",
    "steps(A",
    "steps(A,",
    "steps(A B)",
    "steps(A::)",
    "steps(A<)",
    "steps(A(B))",
    "steps(1, A)",
    "state",
    "state =",
    "state = Vec<",
    "model = \"a::\"",
    "model = \"::b\"",
    "tools = 1, steps(A)",
    ",",
    "crate = 1",
];
const TOOLS: &[&str] = &["", "f", "flow", "flow,", "flow = 1", "crate =", "crate = a", "1"];

const ITEMS: &[&str] = &[
    "",
    "struct",
    "struct Explore",
    "struct Explore {",
    "struct Explore { a }",
    "struct Explore { a: }",
    "struct Explore { #[slot] a: Option<String> }",
    "struct Explore { #[slot(] a: u8 }",
    "struct Explore { #[slot(range(1, ))] a: Option<u8> }",
    "struct Explore { #[slot(range(] a: Option<> }",
    "struct Explore(#[slot] Option<u8>);",
    "struct Explore<'a, T>(&'a T);",
    "enum Explore {}",
    "fn explore() {}",
    "impl",
    "impl Explore",
    "impl Explore {",
    "impl Explore { fn }",
    "impl Explore { #[tool] }",
    "impl Explore { #[tool] fn }",
    "impl Explore { #[tool] fn search }",
    "impl Explore { #[tool] fn search() }",
    "impl Explore { #[tool] fn search() {} }",
    "impl Explore { #[tool(name)] fn search(&self) {} }",
    "impl Explore { #[tool(name = )] fn search(&self, a: ) {} }",
    "impl Explore { /// A.\n #[tool(parallel = )] fn search(&self) {} }",
    "impl Explore { /// A.\n #[tool(parallel, ask, par)] fn search(&mut self, cx: &mut ) {} }",
    "impl Explore { #[tool(] fn search(&self) { self. } }",
    "impl Explore { /// A.\n #[tool] fn search(&self, a: u8) { self. } fn b(&self) { let }",
    "impl Explore { /// A.\n #[tool] fn search(self: Box<Self>, a: &'static str, b: impl Fn(), (c, d): (u8, u8), mut e: u8, f: fn()) -> impl Fn() {} }",
    "impl X for Explore { #[tool] fn a(&self) {} }",
    "impl<'a, T: 'a> Explore<'a, T> where T: { m! {} const A: u8; type B = u8; #[tool] m!(a); }",
    "pub struct r#type { r#fn: u8 }",
    "impl r#type { /// A.\n #[tool] fn r#fn(&self, r#in: u8, _: u8, __: u8) {} }",
    "mod a {}",
    "1 + 1",
    "#[a] #[b",
];

/// Parses as far as brackets allow: an editor closes them, and so does this.
fn tokens(text: &str) -> TokenStream {
    let mut closed = text.to_owned();
    if text.matches('"').count() % 2 == 1 {
        closed.push('"');
    }
    let mut open = Vec::new();
    let mut is_text = false;
    let mut balanced = String::new();
    for c in closed.chars() {
        match c {
            '"' => is_text = !is_text,
            '(' if !is_text => open.push(')'),
            '[' if !is_text => open.push(']'),
            '{' if !is_text => open.push('}'),
            ')' | ']' | '}' if !is_text => {
                while let Some(expected) = open.pop() {
                    if expected == c {
                        break;
                    }
                    balanced.push(expected);
                }
            }
            _ => {}
        }
        balanced.push(c);
    }
    balanced.extend(open.into_iter().rev());
    balanced.parse().unwrap_or_else(|error| panic!("{balanced}: {error}"))
}

/// The names in some tokens, without those of attributes that only we read.
fn names(tokens: TokenStream) -> Vec<String> {
    tokens
        .into_iter()
        .flat_map(|token| match token {
            proc_macro2::TokenTree::Ident(ident) => vec![ident.to_string()],
            proc_macro2::TokenTree::Group(group) => names(group.stream()),
            _ => Vec::new(),
        })
        .filter(|name| !["tool", "slot", "range"].contains(&name.as_str()))
        .collect()
}

fn check(name: &str, attr: &str, item: &str) -> TokenStream {
    let (_, macro_fn) = MACROS.iter().find(|(known, _)| *known == name).expect("a known macro");
    let expanded = macro_fn(tokens(attr), tokens(item));
    let back = names(expanded.clone());
    let place = format!("#[{name}({attr})] {item}");
    if !["#[tool(name", "#[tool(parallel"].iter().any(|keys| item.contains(keys)) {
        for expected in names(tokens(item)) {
            assert!(back.contains(&expected), "`{expected}` of {place} is gone: {expanded}");
        }
    }
    errors(expanded.clone());
    expanded
}

#[test]
fn half_an_attribute_still_gives_the_item() {
    for (name, attrs, item) in
        [("step", STEP, STRUCT), ("flow", FLOW, STRUCT), ("tools", TOOLS, IMPL)]
    {
        for attr in attrs {
            check(name, attr, item);
        }
    }
}

#[test]
fn half_an_item_still_comes_back() {
    for item in ITEMS {
        check("step", "reply, next(end)", item);
        check("step", "collect, next(end)", item);
        check("flow", "steps(A)", item);
        check("tools", "", item);
        check("tools", "flow", item);
    }
}

#[test]
fn every_prefix_of_good_input_gives_tokens() {
    let attr = r#"collect, input = Map<A, B>, id = "x", alias("y"), next(a::B<C>(D), stay), tools"#;
    let item = r#"pub struct Explore<T> where T: Db { #[slot(one_of("a", "b"), ask = "c")] pub a: Option<T> }"#;
    for end in (0..=attr.len()).filter(|end| attr.is_char_boundary(*end)) {
        check("step", &attr[..end], STRUCT);
    }
    for end in 0..=item.len() {
        let prefix = &item[..end];
        // A quote that is open in the middle of an attribute swallows the rest of the item.
        if prefix.matches('"').count().is_multiple_of(2) {
            tokens_only("step", attr, prefix);
        }
    }
}

/// Only that expanding does not panic.
fn tokens_only(name: &str, attr: &str, item: &str) {
    let (_, macro_fn) = MACROS.iter().find(|(known, _)| *known == name).expect("a known macro");
    macro_fn(tokens(attr), tokens(item));
}

#[test]
fn all_errors_of_an_attribute_are_found() {
    let found = errors(expand(
        "step",
        r#"reply, memry = "a", next(handoff, Checkout(A, B), end), id = 7, action"#,
        STRUCT,
    ));
    let begins: Vec<&str> = found.iter().map(|text| text.split(':').next().unwrap_or("")).collect();
    assert_eq!(
        begins,
        [
            "unknown key `memry` in `#[step(..)]`, did you mean `memory`?\nknown keys",
            "`handoff` is not a way out",
            "`Checkout` is entered with one payload; write a struct, or a tuple as `Checkout((A, B))`",
            "`id` takes a text",
            "a step has one kind",
        ]
    );
}
