//! The expansion itself: what it looks like, that it is the same each time, and that input
//! which is half typed still gives tokens.

mod expansion;
mod half_typed;

use proc_macro2::TokenStream;

type Expand = fn(TokenStream, TokenStream) -> TokenStream;

/// The macros by their names.
const MACROS: [(&str, Expand); 3] =
    [("step", crate::step::expand), ("flow", crate::flow::expand), ("tools", crate::tools::expand)];

/// Expands source text.
fn expand(name: &str, attr: &str, item: &str) -> TokenStream {
    let (_, expand) = MACROS.iter().find(|(known, _)| *known == name).expect("a known macro");
    expand(attr.parse().expect("tokens"), item.parse().expect("tokens"))
}

/// The messages of the `compile_error!`s in an expansion.
fn errors(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_next = false;
    for token in tokens {
        match token {
            proc_macro2::TokenTree::Ident(ident) if ident == "compile_error" => is_next = true,
            proc_macro2::TokenTree::Group(group) => {
                if is_next {
                    let text: syn::LitStr =
                        syn::parse2(group.stream()).expect("an error is one text");
                    found.push(text.value());
                }
                is_next = false;
                found.extend(errors(group.stream()));
            }
            _ => {}
        }
    }
    found
}
