//! `#[flow]`: the names, the state and the registry of a flow.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{ItemStruct, LitInt, LitStr, Path, Token, Type};

use crate::attributes::{self, Docs};
use crate::errors::{Errors, unknown_key};
use crate::generics;
use crate::paths::{Krate, at};
use crate::sampling::Sampling;

const KEYS: [&str; 8] = ["id", "version", "steps", "state", "model", "sampling", "tools", "crate"];

/// What `#[flow(..)]` says.
#[derive(Default)]
struct Args {
    id: Option<LitStr>,
    version: Option<LitInt>,
    steps: Option<(Ident, Vec<Path>)>,
    state: Option<Type>,
    model: Option<LitStr>,
    sampling: Option<Sampling>,
    tools: Option<Ident>,
    krate: Option<Path>,
}

pub(crate) fn expand(attr: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(attr, &mut errors);
    let item: ItemStruct = match syn::parse2(item.clone()) {
        Ok(item) => item,
        Err(error) => {
            errors.span(error.span(), format_args!("`#[flow]` goes on a struct: {error}"));
            let errors = errors.finish();
            return quote!(#item #errors);
        }
    };
    let steps = args.check(&mut errors);
    if generics::refuse_lifetimes("a flow", &item.generics, &mut errors) {
        // With a lifetime nothing that is generated compiles.
        let errors = errors.finish();
        return quote!(#item #errors);
    }

    let private = Krate::find(args.krate.as_ref()).private();
    let meta = args.meta_impl(&item, &steps, &private);
    let check = (errors.is_empty() && item.generics.params.is_empty())
        .then(|| args.names_check(&item, &steps, &private));
    let errors = errors.finish();
    quote!(#item #meta #check #errors)
}

impl Args {
    fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        attributes::keys(tokens, errors, |key, input, errors| {
            match key.to_string().as_str() {
                "id" => args.id = Some(attributes::text(key, input)?),
                "version" => {
                    let refuse = |span| {
                        syn::Error::new(
                            span,
                            "`version` takes a whole number from 1: `version = 2`",
                        )
                    };
                    if !input.peek(Token![=]) {
                        return Err(refuse(key.span()));
                    }
                    input.parse::<Token![=]>()?;
                    let number: LitInt =
                        input.parse().map_err(|error: syn::Error| refuse(error.span()))?;
                    match number.base10_parse::<u32>() {
                        Ok(1..) => args.version = Some(number),
                        _ => return Err(refuse(number.span())),
                    }
                }
                "steps" => {
                    let example = "steps(Explore, Checkout)";
                    let steps = attributes::list(key, example, input, |input| {
                        if input.is_empty() {
                            errors.at(key, NO_STEPS);
                        }
                        Ok(attributes::entries(input, errors, |input| input.parse::<Path>()))
                    })?;
                    args.steps = Some((key.clone(), steps));
                }
                "state" => {
                    if !input.peek(Token![=]) {
                        return Err(syn::Error::new(
                            key.span(),
                            "`state` takes a type: `state = Booking`",
                        ));
                    }
                    input.parse::<Token![=]>()?;
                    args.state = Some(input.parse()?);
                }
                "model" => args.model = Some(attributes::text(key, input)?),
                "sampling" => args.sampling = Some(Sampling::parse(key, input, errors)?),
                "tools" => {
                    attributes::word(key, input)?;
                    args.tools = Some(key.clone());
                }
                "crate" => args.krate = Some(attributes::path(key, input)?),
                other => {
                    return Err(syn::Error::new(
                        key.span(),
                        unknown_key(other, "#[flow(..)]", &KEYS),
                    ));
                }
            }
            Ok(())
        });
        args
    }

    /// Checks the values, and gives the steps without those that stand twice.
    fn check(&self, errors: &mut Errors) -> Vec<&Path> {
        if let Some(id) = &self.id {
            attributes::check_name("a flow id", id, errors);
        }
        if let Some(model) = &self.model {
            let text = model.value();
            let parts = text.split_once("::");
            if !parts.is_some_and(|(provider, name)| !provider.is_empty() && !name.is_empty()) {
                errors.at(
                    model,
                    format_args!(
                        "{text:?} is not a model: write `provider::name`, e.g. `openai::gpt-5.1-mini`"
                    ),
                );
            }
        }
        if let (Some(sampling), None) = (&self.sampling, &self.model) {
            errors.at(
                sampling.key(),
                "`sampling` says how a model picks its words, so name the model too: \
                 `model = \"provider::name\"`; a flow that names it in `config_model` says it there",
            );
        }
        let Some((_, steps)) = &self.steps else {
            errors.span(Span::call_site(), NO_STEPS);
            return Vec::new();
        };
        let mut distinct: Vec<&Path> = Vec::new();
        for step in steps {
            let shown = step.to_token_stream().to_string();
            match distinct.iter().find(|other| other.to_token_stream().to_string() == shown) {
                Some(first) => {
                    let mut error = syn::Error::new_spanned(
                        step,
                        format!("the step `{shown}` is listed twice"),
                    );
                    error.combine(syn::Error::new_spanned(first, "it is listed here first"));
                    errors.add(error);
                }
                None => distinct.push(step),
            }
        }
        distinct
    }

    fn meta_impl(&self, item: &ItemStruct, steps: &[&Path], private: &TokenStream) -> TokenStream {
        let ident = &item.ident;
        let (impl_generics, ty_generics, where_clause) = item.generics.split_for_impl();
        let id = self.id.as_ref().map_or_else(|| ident.unraw().to_string(), LitStr::value);
        let version = self.version.as_ref().map_or_else(
            || quote!(1),
            |version| version.base10_digits().parse().unwrap_or_else(|_| quote!(1)),
        );
        let state = self.state.as_ref().map_or_else(|| quote!(()), ToTokens::to_token_stream);
        let docs = Docs::of(&item.attrs).constant();
        let model = self.model.as_ref().map(|model| {
            quote! {
                const MODEL: ::core::option::Option<&'static ::core::primitive::str> =
                    ::core::option::Option::Some(#model);
            }
        });
        let sampling = self.sampling.as_ref().map(|sampling| sampling.function(private));
        let adds = steps.iter().map(|step| {
            let step_of = step_of(step, &quote!(Self), private);
            quote!(let steps = #step_of::add(steps);)
        });
        let tools = self.tools.as_ref().map(|key| {
            let call = at(key.span(), quote!(<Self as #private::FlowTools>::definitions()));
            quote! {
                fn tools() -> #private::std::vec::Vec<#private::ToolDefinition> { #call }
                fn call_tool<'a>(
                    &'a self,
                    cx: &'a #private::ToolCx,
                    tool: &'a ::core::primitive::str,
                    arguments: #private::serde_json::Value,
                ) -> #private::ToolFuture<'a> {
                    #private::std::boxed::Box::pin(
                        <Self as #private::FlowTools>::call(self, cx, tool, arguments)
                    )
                }
            }
        });
        let registered = self.tools.as_ref().map(|_| {
            quote! {
                #[automatically_derived]
                impl #impl_generics #private::ToolsRegistered for #ident #ty_generics #where_clause {}
            }
        });
        let has_steps = steps.iter().map(|step| {
            quote! {
                #[automatically_derived]
                impl #impl_generics #private::HasStep<#step> for #ident #ty_generics #where_clause {}
            }
        });
        quote! {
            #[automatically_derived]
            impl #impl_generics #private::FlowMeta for #ident #ty_generics #where_clause {
                type State = #state;
                const ID: &'static ::core::primitive::str = #id;
                const VERSION: ::core::primitive::u32 = #version;
                const DOC: &'static ::core::primitive::str = #docs;
                #model
                #sampling
                fn steps() -> #private::Steps<Self> {
                    let steps = #private::Steps::new();
                    #(#adds)*
                    steps
                }
                #tools
            }
            #registered
            #(#has_steps)*
        }
    }

    /// Checks at compile time that no two steps answer to one persisted name.
    fn names_check(
        &self,
        item: &ItemStruct,
        steps: &[&Path],
        private: &TokenStream,
    ) -> TokenStream {
        let ident = &item.ident;
        let names = steps.iter().map(|step| {
            let step_of = step_of(step, &quote!(#ident), private);
            quote!(#step_of::NAMES)
        });
        let place = self.steps.as_ref().map_or_else(Span::call_site, |(key, _)| key.span());
        let panic = at(place, quote!(::core::panic!("{}", clash.as_str())));
        quote! {
            const _: () = if let ::core::option::Option::Some(clash) =
                #private::find_clash(&[#(#names),*])
            {
                #panic
            };
        }
    }
}

/// A step as one of the flow. All mentions are the same, so that the compiler says once what
/// is wrong with them.
fn step_of(step: &Path, flow: &TokenStream, private: &TokenStream) -> TokenStream {
    let open = at(step.span(), quote!(<));
    let close = at(step.span(), quote!(as #private::StepOf<#flow>>));
    quote!(#open #step #close)
}

const NO_STEPS: &str =
    "a flow needs its steps: `steps(Explore, Checkout)`; the first one is where it starts";
