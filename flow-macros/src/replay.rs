//! The key `replay` of `#[tool]`.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::Token;
use syn::ext::IdentExt;
use syn::parse::ParseStream;

use crate::errors::nearest;

const WORDS: [&str; 3] = ["by_key", "never", "always"];

/// What becomes of a call when the action that makes it runs again.
#[derive(Clone, Copy)]
pub(crate) enum Replay {
    ByKey,
    Never,
    Always,
}

impl Replay {
    /// Reads `= by_key`, `= never` or `= always`.
    pub(crate) fn parse(key: &Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        let refuse = |span, reason: String| Err(syn::Error::new(span, reason));
        let known = "`by_key`, `never` or `always`";
        if !input.peek(Token![=]) {
            return refuse(
                key.span(),
                format!("`replay` takes a word: `replay = ..` with {known}"),
            );
        }
        input.parse::<Token![=]>()?;
        let Ok(word) = input.call(Ident::parse_any) else {
            return refuse(input.span(), format!("`replay` takes a word without quotes: {known}"));
        };
        let replay = match word.to_string().as_str() {
            "by_key" => Self::ByKey,
            "never" => Self::Never,
            "always" => Self::Always,
            other => {
                let hint = match nearest(other, &WORDS) {
                    Some(word) => format!("did you mean `{word}`?"),
                    None => format!("use {known}"),
                };
                return refuse(word.span(), format!("`{other}` is not a way to replay: {hint}"));
            }
        };
        if !input.is_empty() && !input.peek(Token![,]) {
            return refuse(input.span(), format!("`{word}` stands alone and takes no value"));
        }
        Ok(replay)
    }

    /// The variant of `ToolReplay`; nothing for the default.
    pub(crate) fn variant(self, private: &TokenStream) -> Option<TokenStream> {
        match self {
            Self::ByKey => None,
            Self::Never => Some(quote!(#private::ToolReplay::Never)),
            Self::Always => Some(quote!(#private::ToolReplay::Always)),
        }
    }
}
