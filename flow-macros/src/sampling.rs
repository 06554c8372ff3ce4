//! `sampling(..)`: the parameters of a model, checked where they stand.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Lit, LitStr, Token};

use crate::attributes;
use crate::errors::{Errors, nearest, unknown_key};

const KEYS: [&str; 6] =
    ["temperature", "top_p", "max_output_tokens", "reasoning_effort", "seed", "extra"];
const EXAMPLE: &str = "sampling(temperature = 0.2, max_output_tokens = 300)";

/// What `sampling(..)` says, as calls of the setters of `Sampling` in source order.
pub(crate) struct Sampling {
    key: Ident,
    calls: Vec<TokenStream>,
}

impl Sampling {
    /// Reads what stands behind the key.
    pub(crate) fn parse(
        key: &Ident,
        input: ParseStream<'_>,
        errors: &mut Errors,
    ) -> syn::Result<Self> {
        let tokens = attributes::list(key, EXAMPLE, input, |input| input.parse::<TokenStream>())?;
        if tokens.is_empty() {
            errors.at(key, format_args!("`{key}` is empty: write `{EXAMPLE}`, or leave it out"));
        }
        let mut calls = Vec::new();
        attributes::keys(tokens, errors, |key, input, errors| {
            match key.to_string().as_str() {
                "temperature" => {
                    let value = float(key, "a number from 0 to 2", "0.2", input, |value| {
                        (0.0..=2.0).contains(&value)
                    })?;
                    calls.push(quote!(.temperature(#value)));
                }
                "top_p" => {
                    let value =
                        float(key, "a number above 0 and up to 1", "0.9", input, |value| {
                            value > 0.0 && value <= 1.0
                        })?;
                    calls.push(quote!(.top_p(#value)));
                }
                "max_output_tokens" => {
                    let largest = u64::from(u32::MAX);
                    let what = "a whole number from 1 to 4294967295";
                    let value =
                        whole(key, what, "300", input, |value| (1..=largest).contains(&value))?;
                    let value = proc_macro2::Literal::u64_unsuffixed(value);
                    calls.push(quote!(.max_output_tokens(#value)));
                }
                "seed" => {
                    let what = "a whole number from 0 to 18446744073709551615";
                    let value = whole(key, what, "7", input, |_| true)?;
                    let value = proc_macro2::Literal::u64_unsuffixed(value);
                    calls.push(quote!(.seed(#value)));
                }
                "reasoning_effort" => {
                    let value = attributes::text(key, input)?;
                    if value.value().trim().is_empty() {
                        errors
                            .at(&value, "the effort is empty: write `reasoning_effort = \"low\"`");
                    }
                    calls.push(quote!(.reasoning_effort(#value)));
                }
                "extra" => calls.extend(extra(key, input, errors)?),
                other => {
                    let message = unknown_key(other, "sampling(..)", &KEYS);
                    let hint = match nearest(other, &KEYS) {
                        Some(_) => "",
                        None => "\nwhat only some providers take goes into `extra(key = value)`",
                    };
                    return Err(syn::Error::new(key.span(), format!("{message}{hint}")));
                }
            }
            Ok(())
        });
        Ok(Self { key: key.clone(), calls })
    }

    /// The key, for errors.
    pub(crate) fn key(&self) -> &Ident {
        &self.key
    }

    /// The function `model_sampling` of `FlowMeta` and `Step`.
    pub(crate) fn function(&self, private: &TokenStream) -> TokenStream {
        let calls = &self.calls;
        quote! {
            fn model_sampling() -> #private::Sampling {
                <#private::Sampling as ::core::default::Default>::default() #(#calls)*
            }
        }
    }
}

/// Reads the literal of a key: what it takes, and an example, are for the error.
fn literal<T>(
    key: &Ident,
    what: &str,
    example: &str,
    input: ParseStream<'_>,
    read: impl FnOnce(bool, &Lit) -> Option<T>,
) -> syn::Result<T> {
    let refuse = |span| syn::Error::new(span, format!("`{key}` takes {what}: `{key} = {example}`"));
    if !input.peek(Token![=]) {
        return Err(refuse(key.span()));
    }
    input.parse::<Token![=]>()?;
    if input.is_empty() {
        return Err(refuse(key.span()));
    }
    let minus = input.parse::<Option<Token![-]>>()?;
    let literal: Lit = input.parse().map_err(|error: syn::Error| refuse(error.span()))?;
    read(minus.is_some(), &literal).ok_or_else(|| refuse(literal.span()))
}

fn float(
    key: &Ident,
    what: &str,
    example: &str,
    input: ParseStream<'_>,
    is_allowed: impl FnOnce(f64) -> bool,
) -> syn::Result<proc_macro2::Literal> {
    literal(key, what, example, input, |minus, literal| {
        let value: f64 = match literal {
            Lit::Float(value) if matches!(value.suffix(), "" | "f64") => {
                value.base10_parse().ok()?
            }
            Lit::Int(value) if matches!(value.suffix(), "" | "f64") => {
                value.base10_digits().parse().ok()?
            }
            _ => return None,
        };
        let value = if minus { -value } else { value };
        is_allowed(value).then(|| proc_macro2::Literal::f64_unsuffixed(value.abs()))
    })
}

fn whole(
    key: &Ident,
    what: &str,
    example: &str,
    input: ParseStream<'_>,
    is_allowed: impl FnOnce(u64) -> bool,
) -> syn::Result<u64> {
    literal(key, what, example, input, |minus, literal| match literal {
        Lit::Int(value) if !minus && value.suffix().is_empty() => {
            value.base10_parse().ok().filter(|value| is_allowed(*value))
        }
        _ => None,
    })
}

/// Reads `extra(key = literal, "key" = literal)`.
fn extra(
    key: &Ident,
    input: ParseStream<'_>,
    errors: &mut Errors,
) -> syn::Result<Vec<TokenStream>> {
    let mut seen: Vec<String> = Vec::new();
    attributes::list(key, "extra(service_tier = \"flex\")", input, |input| {
        Ok(attributes::entries(input, errors, |input| {
            let name = if input.peek(LitStr) {
                input.parse::<LitStr>()?
            } else {
                let ident = input.call(Ident::parse_any)?;
                LitStr::new(&ident.unraw().to_string(), ident.span())
            };
            let text = name.value();
            let refuse = |message: String| Err(syn::Error::new(name.span(), message));
            if is_credential(&text) {
                return refuse(format!(
                    "`{text}` looks like a credential, and a program is no place for one: set the \
                     environment variable of the provider"
                ));
            }
            if KEYS[..5].contains(&text.as_str()) {
                return refuse(format!(
                    "`{text}` is a parameter of its own: write `sampling({text} = ..)`"
                ));
            }
            if seen.contains(&text) {
                return refuse(format!("`{text}` is given twice"));
            }
            seen.push(text.clone());
            let value = extra_value(&name, input)?;
            Ok(quote!(.extra(#name, #value)))
        }))
    })
}

fn extra_value(name: &LitStr, input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let refuse = |span| {
        let message = format!(
            "`{}` takes a text, a number, `true` or `false`; for anything else override \
             `config_model` of the flow, or `sampling` of the step",
            name.value()
        );
        syn::Error::new(span, message)
    };
    if !input.peek(Token![=]) {
        return Err(refuse(name.span()));
    }
    input.parse::<Token![=]>()?;
    let minus = input.parse::<Option<Token![-]>>()?;
    let literal: Lit = input.parse().map_err(|error: syn::Error| refuse(error.span()))?;
    match &literal {
        Lit::Str(value) if minus.is_none() => Ok(quote!(#value)),
        Lit::Bool(value) if minus.is_none() => Ok(quote!(#value)),
        Lit::Float(value) if value.suffix().is_empty() => Ok(quote!(#minus #value)),
        // As large as it may be: JSON does not tell the types apart.
        Lit::Int(value) if value.suffix().is_empty() => {
            let digits = value.base10_digits();
            let number = match minus {
                Some(_) => format!("-{digits}").parse::<i64>().map(|_| format!("{digits}i64")),
                None => digits.parse::<u64>().map(|_| format!("{digits}u64")),
            };
            let number = number.map_err(|_| refuse(value.span()))?;
            let number = syn::LitInt::new(&number, value.span());
            Ok(quote!(#minus #number))
        }
        _ => Err(refuse(literal.span())),
    }
}

/// Whether a key looks like that of a credential, by the same rule as
/// `flow_core::model::Sampling::check`.
fn is_credential(key: &str) -> bool {
    const ENDS: [&str; 13] = [
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "authkey",
        "token",
        "secret",
        "password",
        "passwd",
        "authorization",
        "bearer",
        "credential",
        "credentials",
    ];
    let key: String = key.chars().filter(|c| c.is_alphanumeric()).collect();
    let key = key.to_lowercase();
    ENDS.iter().any(|end| key.ends_with(end))
}
