//! `flow_tools`: which tools of its flow a reply step offers its model.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Token, Type};

use crate::attributes;
use crate::errors::Errors;
use crate::paths::at;

/// What `flow_tools` says.
pub(crate) enum Exposure {
    Closed,
    Open,
    /// The calls of the tools.
    Named(Vec<Type>),
}

impl Exposure {
    pub(crate) fn read(
        key: &Ident,
        input: ParseStream<'_>,
        errors: &mut Errors,
    ) -> syn::Result<Self> {
        const FORMS: &str = "`flow_tools = closed`, `flow_tools = open`, or the tools by the \
                             structs of their calls: `flow_tools(Charge, FindHotel)`";
        if input.peek(syn::token::Paren) {
            let content;
            syn::parenthesized!(content in input);
            if content.is_empty() {
                errors.at(key, "`flow_tools(..)` names no tool: write `flow_tools = closed`");
            }
            let calls: Vec<Type> = attributes::entries(&content, errors, Type::parse);
            for (i, call) in calls.iter().enumerate() {
                let shown = call.to_token_stream().to_string();
                if calls.iter().take(i).any(|other| other.to_token_stream().to_string() == shown) {
                    errors.at(call, format_args!("`{shown}` stands twice in `flow_tools(..)`"));
                }
            }
            return Ok(Self::Named(calls));
        }
        if !input.peek(Token![=]) {
            return Err(syn::Error::new(key.span(), format!("write {FORMS}")));
        }
        input.parse::<Token![=]>()?;
        let word = input
            .call(Ident::parse_any)
            .map_err(|error| syn::Error::new(error.span(), format!("write {FORMS}")))?;
        match word.to_string().as_str() {
            "closed" => Ok(Self::Closed),
            "open" => Ok(Self::Open),
            other => Err(syn::Error::new(word.span(), format!("not `{other}`; write {FORMS}"))),
        }
    }

    /// The constant of `Step`.
    pub(crate) fn constant(&self, flow: &TokenStream, private: &TokenStream) -> TokenStream {
        let value = match self {
            Self::Closed => quote!(Closed),
            Self::Open => quote!(Open),
            Self::Named(calls) => {
                let names = calls.iter().map(|call| {
                    let place = call.span();
                    let open = at(place, quote!(<));
                    let close = at(place, quote!(as #private::ToolCall<#flow>>::NAME));
                    quote!(#open #call #close)
                });
                quote!(Named(&[#(#names),*]))
            }
        };
        quote!(const FLOW_TOOLS: #private::Exposure = #private::Exposure::#value;)
    }
}
