//! The attribute macros of `flow-core`.

use proc_macro::TokenStream;

/// Placeholder.
#[proc_macro_attribute]
pub fn flow(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}
/// Placeholder.
#[proc_macro_attribute]
pub fn step(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}
/// Placeholder.
#[proc_macro_attribute]
pub fn tools(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}
/// Placeholder.
#[proc_macro_attribute]
pub fn tool(_: TokenStream, item: TokenStream) -> TokenStream {
    item
}
