//! The attribute macros of `flow-core`: `#[flow]`, `#[step]`, `#[tools]`, `#[tool]`.

mod attributes;
mod errors;
mod flow;
mod generics;
mod method;
mod paths;
mod slot;
mod step;
#[cfg(test)]
mod tests;
mod tools;

use proc_macro::TokenStream;

/// Makes a struct a flow.
#[proc_macro_attribute]
pub fn flow(attr: TokenStream, item: TokenStream) -> TokenStream {
    flow::expand(attr.into(), item.into()).into()
}

/// Makes a struct a step.
#[proc_macro_attribute]
pub fn step(attr: TokenStream, item: TokenStream) -> TokenStream {
    step::expand(attr.into(), item.into()).into()
}

/// Makes the methods of an `impl` block tools.
#[proc_macro_attribute]
pub fn tools(attr: TokenStream, item: TokenStream) -> TokenStream {
    tools::expand(attr.into(), item.into()).into()
}

/// Marks a method as a tool.
#[proc_macro_attribute]
pub fn tool(_: TokenStream, item: TokenStream) -> TokenStream {
    tools::stray(item.into()).into()
}
