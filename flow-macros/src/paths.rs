//! Where generated code finds `flow-core`.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::quote;
use syn::Path;

/// The path of `flow-core` in the crate that is being compiled.
pub(crate) struct Krate(TokenStream);

impl Krate {
    /// What `crate = path` says, else the name under which the manifest has the crate.
    pub(crate) fn find(explicit: Option<&Path>) -> Self {
        if let Some(path) = explicit {
            return Self(quote!(#path));
        }
        // In flow-core itself `extern crate self as flow_core` makes the name good
        // everywhere, in its examples and documentation tests too.
        let name = match crate_name("flow-core") {
            Ok(FoundCrate::Name(name)) => name,
            Ok(FoundCrate::Itself) | Err(_) => "flow_core".to_owned(),
        };
        let name = Ident::new(&name, Span::call_site());
        Self(quote!(::#name))
    }

    /// The module that holds what generated code names.
    pub(crate) fn private(&self) -> TokenStream {
        let krate = &self.0;
        quote!(#krate::__private)
    }
}

/// The same tokens with another place, so that an error about them points there.
pub(crate) fn at(place: Span, tokens: TokenStream) -> TokenStream {
    let moved = |token: TokenTree| {
        let mut token = match token {
            TokenTree::Group(group) => {
                TokenTree::Group(Group::new(group.delimiter(), at(place, group.stream())))
            }
            token => token,
        };
        token.set_span(token.span().located_at(place));
        token
    };
    tokens.into_iter().map(moved).collect()
}

/// A local of generated code, apart from all names of the user. An error about it points to
/// `place`.
pub(crate) fn local(name: &str, place: Span) -> Ident {
    Ident::new(name, Span::mixed_site().located_at(place))
}
