//! All errors of one expansion, so that a user sees them at once.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// Collects errors; [`finish`](Self::finish) gives them as tokens.
#[derive(Default)]
pub(crate) struct Errors(Vec<syn::Error>);

impl Errors {
    /// An error at some tokens.
    pub(crate) fn at(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.0.push(syn::Error::new_spanned(tokens, message));
    }

    /// An error at a place.
    pub(crate) fn span(&mut self, span: Span, message: impl std::fmt::Display) {
        self.0.push(syn::Error::new(span, message));
    }

    /// An error that a parser gave.
    pub(crate) fn add(&mut self, error: syn::Error) {
        self.0.push(error);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A `compile_error!` for each.
    pub(crate) fn finish(self) -> TokenStream {
        self.0.iter().map(syn::Error::to_compile_error).collect()
    }
}

/// The known name that is most like a mistyped one.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), *candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// The message for a key that does not exist.
pub(crate) fn unknown_key(key: &str, place: &str, known: &[&str]) -> String {
    let hint = match nearest(key, known) {
        Some(name) => format!(", did you mean `{name}`?"),
        None => String::new(),
    };
    format!("unknown key `{key}` in `{place}`{hint}\nknown keys: {}", known.join(", "))
}
