//! Where generated code finds `flow-core`.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use syn::Path;

/// The path of `flow-core` for the crate that is being compiled: what `crate = path` says,
/// else the name under which its manifest has it.
pub(crate) fn krate(explicit: Option<&Path>) -> TokenStream {
    if let Some(path) = explicit {
        return quote!(#path);
    }
    // In flow-core itself `extern crate self as flow_core` makes the name good everywhere,
    // in its examples and documentation tests too.
    let name = match crate_name("flow-core") {
        Ok(FoundCrate::Name(name)) => name,
        Ok(FoundCrate::Itself) | Err(_) => "flow_core".to_owned(),
    };
    let name = Ident::new(&name, Span::call_site());
    quote!(::#name)
}
