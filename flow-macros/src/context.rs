//! The key `context` of `#[step]`.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{LitInt, Token};

use crate::errors::nearest;

const STRATEGIES: [&str; 4] = ["append", "reset", "reset_with_summary", "last"];

/// What a step sees of the conversation from before it was entered.
pub(crate) enum Context {
    Append,
    Reset,
    ResetWithSummary,
    Last(usize),
}

impl Context {
    /// Reads `= append`, `= reset`, `= reset_with_summary` or `= last(6)`.
    pub(crate) fn parse(key: &Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        let refuse = |span, reason: String| Err(syn::Error::new(span, reason));
        let known = "`append`, `reset`, `reset_with_summary` or `last(6)`";
        if !input.peek(Token![=]) {
            return refuse(
                key.span(),
                format!("`context` takes a strategy: `context = ..` with {known}"),
            );
        }
        input.parse::<Token![=]>()?;
        let Ok(word) = input.call(Ident::parse_any) else {
            return refuse(
                input.span(),
                format!("`context` takes a strategy without quotes: {known}"),
            );
        };
        let strategy = match word.to_string().as_str() {
            "append" => Self::Append,
            "reset" => Self::Reset,
            "reset_with_summary" => Self::ResetWithSummary,
            "last" => return Self::parse_last(&word, input),
            other => {
                let hint = match nearest(other, &STRATEGIES) {
                    Some(word) => format!("did you mean `{word}`?"),
                    None => format!("use {known}"),
                };
                return refuse(word.span(), format!("`{other}` is not a context strategy: {hint}"));
            }
        };
        if !input.is_empty() && !input.peek(Token![,]) {
            return refuse(input.span(), format!("`{word}` stands alone and takes no value"));
        }
        Ok(strategy)
    }

    fn parse_last(word: &Ident, input: ParseStream<'_>) -> syn::Result<Self> {
        let wanted = "`last` takes how many messages the step sees, from 1: `last(6)`";
        if !input.peek(syn::token::Paren) {
            return Err(syn::Error::new(word.span(), wanted));
        }
        let content;
        let parens = syn::parenthesized!(content in input);
        let refuse = || syn::Error::new(parens.span.join(), wanted);
        let number = content.parse::<LitInt>().map_err(|_| refuse())?;
        match number.base10_parse::<usize>() {
            Ok(count) if count > 0 && content.is_empty() => Ok(Self::Last(count)),
            Ok(0) => Err(syn::Error::new(
                number.span(),
                "`last(0)` leaves nothing; `reset` leaves the latest message of the user",
            )),
            _ => Err(refuse()),
        }
    }

    /// The variant of `ContextStrategy`.
    pub(crate) fn strategy(&self) -> TokenStream {
        match self {
            Self::Append => quote!(Append),
            Self::Reset => quote!(Reset),
            Self::ResetWithSummary => quote!(ResetWithSummary),
            Self::Last(count) => quote!(Last(#count)),
        }
    }
}
