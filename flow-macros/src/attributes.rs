//! Reading attributes: keys with values, documentation, conditions.

use proc_macro2::{Ident, Literal, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Lit, LitStr, Meta, Token};

use crate::errors::Errors;

/// Reads `key`, `key = value` and `key(..)`, separated by commas.
///
/// `read` gets each key and reads its value. What it refuses is recorded, and reading goes
/// on behind the next comma.
pub(crate) fn keys(
    tokens: TokenStream,
    errors: &mut Errors,
    mut read: impl FnMut(&Ident, ParseStream<'_>, &mut Errors) -> syn::Result<()>,
) {
    let parser = |input: ParseStream<'_>| {
        let mut seen: Vec<String> = Vec::new();
        while !input.is_empty() {
            match input.call(Ident::parse_any) {
                Ok(key) => {
                    let name = key.to_string();
                    if seen.contains(&name) {
                        errors.at(&key, format_args!("`{name}` is given twice"));
                    }
                    seen.push(name);
                    if let Err(error) = read(&key, input, errors) {
                        errors.add(error);
                        skip(input);
                    }
                }
                Err(error) => {
                    errors.add(error);
                    skip(input);
                }
            }
            comma(input, errors);
        }
        Ok(())
    };
    // The parser takes all tokens and keeps its errors itself.
    let _ = parser.parse2(tokens);
}

/// Reads entries separated by commas; a broken one is recorded and left out.
pub(crate) fn entries<T>(
    input: ParseStream<'_>,
    errors: &mut Errors,
    mut read: impl FnMut(ParseStream<'_>) -> syn::Result<T>,
) -> Vec<T> {
    let mut entries = Vec::new();
    while !input.is_empty() {
        match read(input) {
            Ok(entry) => entries.push(entry),
            Err(error) => {
                errors.add(error);
                skip(input);
            }
        }
        comma(input, errors);
    }
    entries
}

/// Takes the comma behind an entry, or says that it is missing.
fn comma(input: ParseStream<'_>, errors: &mut Errors) {
    if !input.is_empty() && !input.peek(Token![,]) {
        errors.add(input.error("expected `,`"));
        skip(input);
    }
    let _ = input.parse::<Option<Token![,]>>();
}

/// Goes on to the next comma that is not between angle brackets.
pub(crate) fn skip(input: ParseStream<'_>) {
    let mut depth = 0_usize;
    while !input.is_empty() && (depth > 0 || !input.peek(Token![,])) {
        if let Ok(TokenTree::Punct(punct)) = input.parse() {
            match punct.as_char() {
                '<' => depth += 1,
                '>' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
    }
}

/// Reads `= "text"`.
pub(crate) fn text(key: &Ident, input: ParseStream<'_>) -> syn::Result<LitStr> {
    let refuse = |span| syn::Error::new(span, format!("`{key}` takes a text: `{key} = \"..\"`"));
    if !input.peek(Token![=]) {
        return Err(refuse(key.span()));
    }
    input.parse::<Token![=]>()?;
    if input.is_empty() {
        return Err(refuse(key.span()));
    }
    input.parse::<LitStr>().map_err(|error| refuse(error.span()))
}

/// Reads nothing: the key stands alone.
pub(crate) fn word(key: &Ident, input: ParseStream<'_>) -> syn::Result<()> {
    if input.is_empty() || input.peek(Token![,]) {
        Ok(())
    } else {
        Err(input.error(format_args!("`{key}` stands alone and takes no value")))
    }
}

/// Reads the `(..)` of a key.
pub(crate) fn list<T>(
    key: &Ident,
    example: &str,
    input: ParseStream<'_>,
    read: impl FnOnce(ParseStream<'_>) -> syn::Result<T>,
) -> syn::Result<T> {
    if !input.peek(syn::token::Paren) {
        return Err(syn::Error::new(key.span(), format!("`{key}` takes a list: `{example}`")));
    }
    let content;
    syn::parenthesized!(content in input);
    read(&content)
}

/// Reads `= path` of the key `crate`.
pub(crate) fn path(key: &Ident, input: ParseStream<'_>) -> syn::Result<syn::Path> {
    if !input.peek(Token![=]) {
        return Err(syn::Error::new(
            key.span(),
            "`crate` takes the path of flow-core: `crate = ::flow_core`",
        ));
    }
    input.parse::<Token![=]>()?;
    input.call(syn::Path::parse_mod_style)
}

/// Checks a name that is persisted, by the same rule as `flow_core::id::check_name`.
pub(crate) fn check_name(what: &str, name: &LitStr, errors: &mut Errors) {
    let text = name.value();
    let allowed = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let first = text.chars().next();
    let reason = if text.is_empty() {
        "it is empty"
    } else if text.len() > 128 {
        "it has more than 128 bytes"
    } else if !text.chars().all(allowed) {
        "only letters, digits, _ and - are allowed"
    } else if first.is_some_and(|c| !c.is_alphabetic() && c != '_') {
        "it must begin with a letter or _"
    } else {
        return;
    };
    errors.at(name, format_args!("{text:?} cannot be {what}: {reason}"));
}

/// The documentation of an item.
#[derive(Default)]
pub(crate) struct Docs(Vec<Expr>);

impl Docs {
    pub(crate) fn of(attributes: &[Attribute]) -> Self {
        let docs = attributes.iter().filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("doc") => Some(pair.value.clone()),
            _ => None,
        });
        Self(docs.collect())
    }

    /// Whether there is no text, as far as it is known here.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|line| literal(line).is_some_and(|text| text.trim().is_empty()))
    }

    /// The text as a constant expression.
    pub(crate) fn constant(&self) -> TokenStream {
        let lines: Option<Vec<String>> = self.0.iter().map(literal).collect();
        if let Some(lines) = lines {
            let lines: Vec<&str> = lines
                .iter()
                .flat_map(|text| text.split('\n'))
                .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end())
                .collect();
            let text = Literal::string(lines.join("\n").trim());
            return quote!(#text);
        }
        let lines = self.0.iter();
        quote!(::core::concat!(#(#lines, "\n"),*))
    }
}

fn literal(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// The attributes that decide whether an item exists: `#[cfg(..)]`, and the `cfg`s of
/// `#[cfg_attr(..)]`. Everything that is generated for the item carries them too.
pub(crate) fn conditions(attributes: &[Attribute]) -> Vec<TokenStream> {
    attributes
        .iter()
        .filter_map(|attribute| {
            if attribute.path().is_ident("cfg") {
                return Some(attribute.to_token_stream());
            }
            let meta = condition(&attribute.meta)?;
            Some(quote!(#[#meta]))
        })
        .collect()
}

fn condition(meta: &Meta) -> Option<TokenStream> {
    let Meta::List(list) = meta else { return None };
    if list.path.is_ident("cfg") {
        return Some(list.to_token_stream());
    }
    if !list.path.is_ident("cfg_attr") {
        return None;
    }
    let parser = Punctuated::<Meta, Token![,]>::parse_terminated;
    let parts = parser.parse2(list.tokens.clone()).ok()?;
    let mut parts = parts.iter();
    let predicate = parts.next()?;
    let kept: Vec<TokenStream> = parts.filter_map(condition).collect();
    (!kept.is_empty()).then(|| quote!(cfg_attr(#predicate, #(#kept),*)))
}

/// Takes out the attributes of a name and gives them back.
pub(crate) fn take(attributes: &mut Vec<Attribute>, name: &str) -> Vec<Attribute> {
    attributes.extract_if(.., |attribute| attribute.path().is_ident(name)).collect()
}

/// The tokens between the parentheses of an attribute; none for `#[name]`.
pub(crate) fn arguments(attribute: &Attribute, errors: &mut Errors) -> TokenStream {
    match &attribute.meta {
        Meta::Path(_) => TokenStream::new(),
        Meta::List(list) => list.tokens.clone(),
        Meta::NameValue(pair) => {
            errors.at(pair, "write the keys of this attribute in parentheses");
            TokenStream::new()
        }
    }
}
