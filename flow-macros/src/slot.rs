//! `#[slot]`: the form of a collect step.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{
    Attribute, Field, GenericArgument, ItemStruct, Lit, LitStr, Meta, PathArguments, Token, Type,
};

use crate::attributes::{self, Docs};
use crate::errors::{Errors, unknown_key};
use crate::generics;
use crate::paths::at;

const KEYS: [&str; 7] =
    ["verbatim", "optional", "whole_message", "range", "one_of", "pattern", "ask"];

/// What `#[slot(..)]` says.
#[derive(Default)]
struct Args {
    verbatim: bool,
    optional: bool,
    ask: Option<LitStr>,
    resolver: Option<(Ident, Resolver)>,
}

enum Resolver {
    WholeMessage,
    Range(f64, f64),
    OneOf(Vec<LitStr>),
    Pattern(LitStr),
}

/// A slot of a form.
pub(crate) struct Slot {
    field: Field,
    /// The type of the value.
    value: Type,
    args: Args,
    name: String,
}

/// Takes the `#[slot]` attributes off the struct.
pub(crate) fn take(item: &mut ItemStruct, is_collect: bool, errors: &mut Errors) -> Vec<Slot> {
    let rename_all = serde_text(&item.attrs, "rename_all").and_then(Case::from_name);
    let mut slots = Vec::new();
    for field in &mut item.fields {
        let marks = attributes::take(&mut field.attrs, "slot");
        let Some(mark) = marks.first() else { continue };
        if let Some(second) = marks.get(1) {
            errors.at(second, "write the keys of a slot into one `#[slot(..)]`");
        }
        let args = Args::parse(attributes::arguments(mark, errors), errors);
        if !is_collect {
            errors.at(mark, "only a collect step has slots: `#[step(collect, ..)]`");
            continue;
        }
        let Some(ident) = &field.ident else {
            errors.at(mark, "a slot is a field with a name");
            continue;
        };
        if serde_has(&field.attrs, "skip") {
            errors.at(mark, "a slot persists with the session: remove `#[serde(skip)]`");
        }
        let plain = ident.unraw().to_string();
        let name = serde_text(&field.attrs, "rename")
            .or_else(|| rename_all.map(|case| case.apply(&plain)))
            .unwrap_or(plain);
        let Some(value) = option_of(&field.ty).cloned() else {
            let shown = field.ty.to_token_stream();
            errors.at(
                &field.ty,
                format_args!(
                    "a slot is an `Option`, by this name, which is empty until the user has \
                     given its value: write `Option<{shown}>`"
                ),
            );
            continue;
        };
        slots.push(Slot { field: field.clone(), value, args, name });
    }
    if is_collect && slots.is_empty() && errors.is_empty() {
        errors.at(
            &item.ident,
            format_args!("`{}` is a collect step without a field marked `#[slot]`", item.ident),
        );
    }
    slots
}

/// The form: the struct of its complete data, and how its slots are read and set.
pub(crate) fn form(item: &ItemStruct, slots: &[Slot], private: &TokenStream) -> TokenStream {
    let ident = &item.ident;
    let vis = &item.vis;
    let data = format_ident!("{}Data", ident.unraw(), span = ident.span());
    let types: TokenStream = slots.iter().map(|slot| slot.field.ty.to_token_stream()).collect();
    let data_generics = generics::mentioned(&item.generics, types);
    let (data_impl, data_ty, data_where) = data_generics.split_for_impl();
    let (impl_generics, ty_generics, where_clause) = item.generics.split_for_impl();

    let allows = item.attrs.iter().filter(|attribute| attribute.path().is_ident("allow"));
    let doc = format!("The complete form of the step `{}`.", ident.unraw());
    let fields = slots.iter().map(|slot| slot.data_field());
    let entries = slots.iter().map(|slot| slot.entry(private));
    let gets = slots.iter().enumerate().map(|(i, slot)| {
        let name = &slot.field.ident;
        let get = slot.slot_field(quote!(get), private);
        quote!(#i => #get(&self.#name),)
    });
    let sets = slots.iter().enumerate().map(|(i, slot)| {
        let name = &slot.field.ident;
        let set = slot.slot_field(quote!(set), private);
        quote!(#i => #set(&mut self.#name, value),)
    });
    let values = slots.iter().map(|slot| slot.data_value(private));
    let derive = data_generics.params.is_empty().then(|| quote!(#[derive(::core::clone::Clone)]));
    let count = slots.len();
    quote! {
        #[doc = #doc]
        #derive
        #(#allows)*
        #[allow(dead_code)]
        #vis struct #data #data_impl #data_where { #(#fields),* }

        #[automatically_derived]
        impl #impl_generics #private::Form for #ident #ty_generics #where_clause {
            type Data = #data #data_ty;
            fn slots() -> &'static [#private::Slot] {
                static SLOTS: [#private::Slot; #count] = [#(#entries),*];
                &SLOTS
            }
            fn get(
                &self,
                slot: ::core::primitive::usize,
            ) -> ::core::option::Option<#private::serde_json::Value> {
                match slot { #(#gets)* _ => ::core::option::Option::None }
            }
            fn set(
                &mut self,
                slot: ::core::primitive::usize,
                value: ::core::option::Option<#private::serde_json::Value>,
            ) -> ::core::result::Result<(), #private::std::string::String> {
                match slot { #(#sets)* _ => #private::no_slot(value) }
            }
            fn data(&self) -> ::core::option::Option<#data #data_ty> {
                ::core::option::Option::Some(#data { #(#values),* })
            }
        }
    }
}

impl Slot {
    fn data_field(&self) -> TokenStream {
        let Field { vis, ident, ty, attrs, .. } = &self.field;
        let docs = attrs.iter().filter(|attribute| attribute.path().is_ident("doc"));
        let ty = if self.args.optional { ty } else { &self.value };
        quote!(#(#docs)* #vis #ident: #ty)
    }

    /// An item of the trait of a slot's type. All mentions are the same, so that the compiler
    /// says once what is wrong with the type.
    fn slot_field(&self, item: TokenStream, private: &TokenStream) -> TokenStream {
        let ty = &self.field.ty;
        let place = ty.span();
        let open = at(place, quote!(<));
        let close = at(place, quote!(as #private::SlotField>::#item));
        quote!(#open #ty #close)
    }

    fn data_value(&self, private: &TokenStream) -> TokenStream {
        let ident = &self.field.ident;
        if self.args.optional {
            quote!(#ident: ::core::clone::Clone::clone(&self.#ident))
        } else {
            let value = self.slot_field(quote!(value), private);
            quote!(#ident: #value(&self.#ident).cloned()?)
        }
    }

    fn entry(&self, private: &TokenStream) -> TokenStream {
        let name = &self.name;
        let doc = Docs::of(&self.field.attrs).constant();
        let Args { verbatim, optional, .. } = self.args;
        let ask = optional_value(self.args.ask.as_ref());
        let resolver = self.args.resolver.as_ref().map(|(_, resolver)| match resolver {
            Resolver::WholeMessage => quote!(#private::Resolver::WholeMessage),
            Resolver::Range(min, max) => {
                let (min, max) = (number(*min), number(*max));
                quote!(#private::Resolver::Range(#min, #max))
            }
            Resolver::OneOf(values) => quote!(#private::Resolver::OneOf(&[#(#values),*])),
            Resolver::Pattern(text) => {
                quote!(#private::Resolver::Pattern(#private::Pattern::new(#text)))
            }
        });
        let resolver = optional_value(resolver);
        quote! {
            #private::Slot {
                name: #name,
                doc: #doc,
                ask: #ask,
                optional: #optional,
                verbatim: #verbatim,
                resolver: #resolver,
            }
        }
    }
}

/// The type in an `Option`. It stands in the struct of the complete data, so the name has to
/// be there; that it names the real `Option` is checked by the trait of slots.
fn option_of(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    match &last.arguments {
        PathArguments::AngleBracketed(list) if last.ident == "Option" => {
            list.args.iter().find_map(|argument| match argument {
                GenericArgument::Type(value) => Some(value),
                _ => None,
            })
        }
        _ => None,
    }
}

fn optional_value(value: Option<impl ToTokens>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}

fn number(value: f64) -> TokenStream {
    let size = Literal::f64_suffixed(value.abs());
    if value < 0.0 { quote!(-#size) } else { quote!(#size) }
}

impl Args {
    fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        attributes::keys(tokens, errors, |key, input, errors| {
            let resolver = match key.to_string().as_str() {
                "verbatim" => {
                    args.verbatim = true;
                    return attributes::word(key, input);
                }
                "optional" => {
                    args.optional = true;
                    return attributes::word(key, input);
                }
                "ask" => {
                    args.ask = Some(attributes::text(key, input)?);
                    return Ok(());
                }
                "whole_message" => {
                    attributes::word(key, input)?;
                    Resolver::WholeMessage
                }
                "range" => {
                    let (min, max) = attributes::list(key, "range(1, 8)", input, bounds)?;
                    if min > max {
                        errors.at(key, format_args!("no number is from {min} to {max}"));
                    }
                    Resolver::Range(min, max)
                }
                "one_of" => {
                    let example = "one_of(\"card\", \"cash\")";
                    let values = attributes::list(key, example, input, |input| {
                        if input.is_empty() {
                            errors.at(key, "`one_of` needs at least one value");
                        }
                        Ok(attributes::entries(input, errors, |input| input.parse::<LitStr>()))
                    })?;
                    check_values(&values, errors);
                    Resolver::OneOf(values)
                }
                "pattern" => {
                    let example = "pattern(\"#(\\\\d+)\")";
                    let text = attributes::list(key, example, input, |input| {
                        input.parse::<LitStr>().map_err(|error| {
                            syn::Error::new(
                                error.span(),
                                format!("`pattern` takes a regular expression with one capture: `{example}`"),
                            )
                        })
                    })?;
                    Resolver::Pattern(text)
                }
                other => {
                    return Err(syn::Error::new(
                        key.span(),
                        unknown_key(other, "#[slot(..)]", &KEYS),
                    ));
                }
            };
            match &args.resolver {
                Some((first, _)) if first != key => errors
                    .at(key, format_args!("a slot is read in one way: it has `{first}` already")),
                _ => args.resolver = Some((key.clone(), resolver)),
            }
            Ok(())
        });
        args
    }
}

fn check_values(values: &[LitStr], errors: &mut Errors) {
    for (i, value) in values.iter().enumerate() {
        let text = value.value().to_lowercase();
        if text.trim().is_empty() {
            errors.at(value, "a value of `one_of` cannot be empty");
        } else if values.iter().take(i).any(|other| other.value().to_lowercase() == text) {
            errors.at(value, format_args!("`{text}` stands twice in `one_of`, whatever its case"));
        }
    }
}

fn bounds(input: ParseStream<'_>) -> syn::Result<(f64, f64)> {
    let min = bound(input)?;
    comma(input)?;
    let max = bound(input)?;
    let _ = input.parse::<Option<Token![,]>>()?;
    if input.is_empty() { Ok((min, max)) } else { Err(syn::Error::new(input.span(), TWO_NUMBERS)) }
}

const TWO_NUMBERS: &str = "`range` takes two numbers, which both belong to it: `range(1, 8)`";

fn comma(input: ParseStream<'_>) -> syn::Result<()> {
    match input.parse::<Option<Token![,]>>()? {
        Some(_) => Ok(()),
        None => Err(syn::Error::new(input.span(), TWO_NUMBERS)),
    }
}

fn bound(input: ParseStream<'_>) -> syn::Result<f64> {
    let minus = input.parse::<Option<Token![-]>>()?;
    let value = match input.fork().parse::<Lit>() {
        Ok(Lit::Int(value)) => value.base10_parse::<f64>()?,
        Ok(Lit::Float(value)) => value.base10_parse::<f64>()?,
        _ => return Err(syn::Error::new(input.span(), TWO_NUMBERS)),
    };
    input.parse::<Lit>()?;
    Ok(if minus.is_some() { -value } else { value })
}

/// The value of a `#[serde(key = "..")]`, or of its `serialize` side.
fn serde_text(attributes: &[Attribute], key: &str) -> Option<String> {
    let mut found = None;
    serde(attributes, |meta| {
        if !meta.path.is_ident(key) {
            return ignore(meta);
        }
        if meta.input.peek(Token![=]) {
            found = Some(meta.value()?.parse::<LitStr>()?.value());
            return Ok(());
        }
        meta.parse_nested_meta(|side| {
            let text = side.value()?.parse::<LitStr>()?.value();
            if side.path.is_ident("serialize") {
                found = Some(text);
            }
            Ok(())
        })
    });
    found
}

fn serde_has(attributes: &[Attribute], key: &str) -> bool {
    let mut found = false;
    serde(attributes, |meta| {
        found |= meta.path.is_ident(key);
        ignore(meta)
    });
    found
}

/// Visits what serde is told. Serde itself reports what it cannot read.
fn serde(
    attributes: &[Attribute],
    mut visit: impl FnMut(syn::meta::ParseNestedMeta<'_>) -> syn::Result<()>,
) {
    for attribute in attributes {
        if let Meta::List(list) = &attribute.meta
            && list.path.is_ident("serde")
        {
            let _ = syn::meta::parser(&mut visit).parse2(list.tokens.clone());
        }
    }
}

fn ignore(meta: syn::meta::ParseNestedMeta<'_>) -> syn::Result<()> {
    if meta.input.peek(Token![=]) {
        meta.value()?.parse::<syn::Expr>()?;
    } else if meta.input.peek(syn::token::Paren) {
        let content;
        syn::parenthesized!(content in meta.input);
        content.parse::<TokenStream>()?;
    }
    Ok(())
}

/// A value of serde's `rename_all`.
#[derive(Clone, Copy)]
enum Case {
    Lower,
    Upper,
    Pascal,
    Camel,
    ScreamingSnake,
    Kebab,
    ScreamingKebab,
}

impl Case {
    fn from_name(name: String) -> Option<Self> {
        Some(match name.as_str() {
            "lowercase" | "snake_case" => Self::Lower,
            "UPPERCASE" => Self::Upper,
            "PascalCase" => Self::Pascal,
            "camelCase" => Self::Camel,
            "SCREAMING_SNAKE_CASE" => Self::ScreamingSnake,
            "kebab-case" => Self::Kebab,
            "SCREAMING-KEBAB-CASE" => Self::ScreamingKebab,
            _ => return None,
        })
    }

    /// The name that serde gives to a field.
    fn apply(self, field: &str) -> String {
        match self {
            Self::Lower => field.to_owned(),
            Self::Upper | Self::ScreamingSnake => field.to_ascii_uppercase(),
            Self::Pascal => pascal(field),
            Self::Camel => {
                let name = pascal(field);
                let mut chars = name.chars();
                let first = chars.next().map(|c| c.to_ascii_lowercase());
                first.into_iter().chain(chars).collect()
            }
            Self::Kebab => field.replace('_', "-"),
            Self::ScreamingKebab => field.to_ascii_uppercase().replace('_', "-"),
        }
    }
}

/// `one_word` as `OneWord`.
pub(crate) fn pascal(name: &str) -> String {
    name.split('_')
        .flat_map(|word| {
            let mut chars = word.chars();
            chars.next().into_iter().flat_map(char::to_uppercase).chain(chars)
        })
        .collect()
}
