//! Generic parameters of generated items.

use std::collections::HashSet;

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{GenericParam, Generics};

use crate::errors::Errors;

/// The parameters that some tokens mention, with those that their bounds mention.
pub(crate) fn mentioned(generics: &Generics, tokens: TokenStream) -> Generics {
    let mut names = HashSet::new();
    collect(tokens, &mut names);
    loop {
        let before = names.len();
        for param in &generics.params {
            if name(param).is_some_and(|name| names.contains(name)) {
                collect(param.to_token_stream(), &mut names);
            }
        }
        if names.len() == before {
            break;
        }
    }
    let is_used = |param: &GenericParam| name(param).is_some_and(|name| names.contains(name));
    let mut subset = generics.clone();
    subset.params = generics.params.iter().filter(|param| is_used(param)).cloned().collect();
    if let Some(clause) = &mut subset.where_clause {
        let unused: Vec<&Ident> =
            generics.params.iter().filter(|param| !is_used(param)).filter_map(name).collect();
        clause.predicates = clause
            .predicates
            .iter()
            .filter(|predicate| {
                let mut mentions = HashSet::new();
                collect(predicate.to_token_stream(), &mut mentions);
                !unused.iter().any(|param| mentions.contains(*param))
            })
            .cloned()
            .collect();
        if subset.params.is_empty() || clause.predicates.is_empty() {
            subset.where_clause = None;
        }
    }
    subset
}

/// Refuses lifetimes, since steps and flows own their data. Says whether there are any.
pub(crate) fn refuse_lifetimes(what: &str, generics: &Generics, errors: &mut Errors) -> bool {
    for lifetime in generics.lifetimes() {
        errors.at(
            lifetime,
            format_args!("{what} owns its data and cannot have a lifetime parameter"),
        );
    }
    generics.lifetimes().next().is_some()
}

fn name(param: &GenericParam) -> Option<&Ident> {
    match param {
        GenericParam::Type(param) => Some(&param.ident),
        GenericParam::Const(param) => Some(&param.ident),
        GenericParam::Lifetime(_) => None,
    }
}

fn collect(tokens: TokenStream, names: &mut HashSet<Ident>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                names.insert(ident);
            }
            TokenTree::Group(group) => collect(group.stream(), names),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}
