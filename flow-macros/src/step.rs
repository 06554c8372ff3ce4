//! `#[step]`: the metadata of a step and the enum of its ways out.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{ItemStruct, LitStr, Path, PathArguments, Token, Type};

use crate::attributes::{self, Docs};
use crate::context::Context;
use crate::errors::{Errors, nearest, unknown_key};
use crate::exposure::Exposure;
use crate::generics;
use crate::paths::{Krate, at, local};
use crate::sampling::Sampling;
use crate::slot;

const KINDS: [&str; 4] = ["reply", "collect", "action", "decide"];
const WORDS: [&str; 4] = ["stay", "end", "hand_off", "escalate"];
const KEYS: [&str; 16] = [
    "reply",
    "collect",
    "action",
    "decide",
    "confirm",
    "next",
    "input",
    "tools",
    "flow_tools",
    "memory",
    "context",
    "model",
    "sampling",
    "id",
    "alias",
    "crate",
];

/// What `#[step(..)]` says.
#[derive(Default)]
struct Args {
    kind: Option<Ident>,
    confirm: Option<Ident>,
    next: Option<Vec<WayOut>>,
    input: Option<Type>,
    tools: Option<Ident>,
    flow_tools: Option<(Ident, Exposure)>,
    memory: Option<LitStr>,
    context: Option<Context>,
    model: Option<LitStr>,
    sampling: Option<Sampling>,
    id: Option<LitStr>,
    aliases: Vec<LitStr>,
    krate: Option<Path>,
}

/// An entry of `next(..)`.
struct WayOut {
    variant: Ident,
    to: To,
}

enum To {
    Step { target: Box<Path>, payload: Option<Box<Type>> },
    Stay,
    End,
    HandOff,
    Escalate,
}

pub(crate) fn expand(attr: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(attr, &mut errors);
    let mut item: ItemStruct = match syn::parse2(item.clone()) {
        Ok(item) => item,
        Err(error) => {
            errors.span(error.span(), format_args!("`#[step]` goes on a struct: {error}"));
            let errors = errors.finish();
            return quote!(#item #errors);
        }
    };
    args.check(&item, &mut errors);
    let is_collect = args.kind.as_ref().is_some_and(|kind| kind == "collect");
    let slots = slot::take(&mut item, is_collect, &mut errors);
    if generics::refuse_lifetimes("a step", &item.generics, &mut errors) {
        // With a lifetime nothing that is generated compiles.
        let errors = errors.finish();
        return quote!(#item #errors);
    }

    let private = Krate::find(args.krate.as_ref()).private();
    let form = is_collect.then(|| slot::form(&item, &slots, &private));
    let next = args.next_enum(&item, &private);
    let step = args.step_impl(&item, &private, errors.is_empty());
    let errors = errors.finish();
    quote!(#item #next #form #step #errors)
}

impl Args {
    fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        attributes::keys(tokens, errors, |key, input, errors| {
            match key.to_string().as_str() {
                name if KINDS.contains(&name) => {
                    attributes::word(key, input)?;
                    match &args.kind {
                        Some(first) if first != key => errors
                            .at(key, format_args!("a step has one kind: it is `{first}` already")),
                        _ => args.kind = Some(key.clone()),
                    }
                }
                "confirm" => {
                    args.confirm = Some(key.clone());
                    attributes::word(key, input)?;
                }
                "next" => {
                    let example = "next(Checkout(Choice), Farewell, stay)";
                    let ways = attributes::list(key, example, input, |input| {
                        if input.is_empty() {
                            errors.at(key, NO_WAY_OUT);
                        }
                        Ok(attributes::entries(input, errors, WayOut::parse))
                    })?;
                    args.next = Some(ways);
                }
                "input" => {
                    if !input.peek(Token![=]) {
                        return Err(syn::Error::new(
                            key.span(),
                            "`input` takes a type: `input = Choice`",
                        ));
                    }
                    input.parse::<Token![=]>()?;
                    args.input = Some(input.parse()?);
                }
                "tools" => {
                    attributes::word(key, input)?;
                    args.tools = Some(key.clone());
                }
                "flow_tools" => {
                    args.flow_tools = Some((key.clone(), Exposure::read(key, input, errors)?));
                }
                "memory" => args.memory = Some(attributes::text(key, input)?),
                "context" => args.context = Some(Context::parse(key, input)?),
                "model" => args.model = Some(attributes::text(key, input)?),
                "sampling" => args.sampling = Some(Sampling::parse(key, input, errors)?),
                "id" => args.id = Some(attributes::text(key, input)?),
                "alias" => {
                    args.aliases = attributes::list(key, "alias(\"OldName\")", input, |input| {
                        Ok(attributes::entries(input, errors, |input| input.parse::<LitStr>()))
                    })?;
                }
                "crate" => args.krate = Some(attributes::path(key, input)?),
                other => {
                    return Err(syn::Error::new(
                        key.span(),
                        unknown_key(other, "#[step(..)]", &KEYS),
                    ));
                }
            }
            Ok(())
        });
        args
    }

    fn check(&self, item: &ItemStruct, errors: &mut Errors) {
        if self.kind.is_none() {
            errors.span(
                Span::call_site(),
                "`#[step]` needs the kind of the step: `reply`, `collect`, `action` or `decide`",
            );
        }
        if let (Some(kind), Some(confirm)) = (&self.kind, &self.confirm)
            && kind != "decide"
        {
            errors.at(
                confirm,
                format_args!("`confirm` is a way to decide, and the step is `{kind}`: write `decide, confirm`"),
            );
        }
        if self.next.is_none() {
            errors.at(
                &item.ident,
                format_args!(
                    "`#[step]` on `{}` needs `next(..)`, the ways out of the step, \
                     e.g. `next(Farewell, stay)`",
                    item.ident
                ),
            );
        }
        if let (Some(sampling), Some(kind)) = (&self.sampling, &self.kind)
            && kind == "action"
        {
            errors.at(
                sampling.key(),
                "no model speaks for an action step, so there is nothing to say about its words",
            );
        }
        if let (Some((key, _)), Some(kind)) = (&self.flow_tools, &self.kind)
            && kind != "reply"
        {
            errors.at(
                key,
                "`flow_tools` is for a reply step: it offers tools of the flow to the model that \
                 speaks for the step",
            );
        }
        for (name, what) in [(&self.memory, "a memory namespace"), (&self.id, "a step name")] {
            if let Some(name) = name {
                attributes::check_name(what, name, errors);
            }
        }
        let name = self.name(item);
        let mut taken = vec![name];
        for alias in &self.aliases {
            attributes::check_name("a step name", alias, errors);
            if taken.contains(&alias.value()) {
                errors.at(alias, format_args!("the step answers to `{}` already", alias.value()));
            }
            taken.push(alias.value());
        }
        let ways = self.ways();
        for (i, way) in ways.iter().enumerate() {
            if ways.iter().take(i).any(|other| other.variant == way.variant) {
                errors
                    .at(&way.variant, format_args!("`{}` stands twice in `next(..)`", way.shown()));
            }
        }
    }

    fn ways(&self) -> &[WayOut] {
        self.next.as_deref().unwrap_or_default()
    }

    fn name(&self, item: &ItemStruct) -> String {
        self.id.as_ref().map_or_else(|| item.ident.unraw().to_string(), LitStr::value)
    }

    /// The ways out without those that stand twice.
    fn distinct(&self) -> Vec<&WayOut> {
        let ways = self.ways();
        let is_first =
            |i: usize, way: &WayOut| ways.iter().take(i).all(|other| other.variant != way.variant);
        ways.iter().enumerate().filter(|(i, way)| is_first(*i, way)).map(|(_, way)| way).collect()
    }

    fn next_enum(&self, item: &ItemStruct, private: &TokenStream) -> TokenStream {
        let vis = &item.vis;
        let name = next_name(item);
        let ways = self.distinct();
        let payloads: TokenStream =
            ways.iter().filter_map(|way| way.payload()).map(ToTokens::to_token_stream).collect();
        let generics = generics::mentioned(&item.generics, payloads);
        let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
        let allows = item.attrs.iter().filter(|attribute| attribute.path().is_ident("allow"));
        let doc = format!("The ways out of the step `{}`.", item.ident.unraw());
        let variants = ways.iter().map(|way| way.variant(private));
        let shown = ways.iter().map(|way| {
            let variant = &way.variant;
            let text = variant.unraw().to_string();
            quote!(Self::#variant { .. } => #text)
        });
        let body = if ways.is_empty() {
            quote!(match *self {})
        } else {
            quote!(__f.write_str(match self { #(#shown),* }))
        };
        quote! {
            #[doc = #doc]
            #(#allows)*
            #vis enum #name #impl_generics #where_clause { #(#variants),* }

            #[automatically_derived]
            impl #impl_generics ::core::fmt::Debug for #name #ty_generics #where_clause {
                fn fmt(&self, __f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    #body
                }
            }

            #[automatically_derived]
            impl #impl_generics #private::Next for #name #ty_generics #where_clause {}
        }
    }

    /// The implementation of `Step`, and what it rests on. The ways out are checked against
    /// the flow unless something is wrong already.
    fn step_impl(&self, item: &ItemStruct, private: &TokenStream, is_checked: bool) -> TokenStream {
        let ident = &item.ident;
        let (impl_generics, ty_generics, where_clause) = item.generics.split_for_impl();
        let kind = self.kind_trait();
        let flow = at(ident.span(), quote!(<#ident #ty_generics as #private::#kind>::Flow));
        let input = self.input.as_ref().map_or_else(|| quote!(()), ToTokens::to_token_stream);
        let ways = self.distinct();
        let payloads: TokenStream =
            ways.iter().filter_map(|way| way.payload()).map(ToTokens::to_token_stream).collect();
        let next_generics = generics::mentioned(&item.generics, payloads);
        let (_, next_ty_generics, _) = next_generics.split_for_impl();
        let next_ident = next_name(item);
        let next = quote!(#next_ident #next_ty_generics);
        let name = self.name(item);
        let docs = Docs::of(&item.attrs).constant();
        let aliases = &self.aliases;
        let aliases = (!aliases.is_empty()).then(|| {
            quote!(const ALIASES: &'static [&'static ::core::primitive::str] = &[#(#aliases),*];)
        });
        let memory = self.memory.as_ref().map(|memory| {
            quote! {
                const MEMORY: ::core::option::Option<&'static ::core::primitive::str> =
                    ::core::option::Option::Some(#memory);
            }
        });
        let context = self.context.as_ref().map(|context| {
            let strategy = context.strategy();
            quote!(const CONTEXT: #private::ContextStrategy = #private::ContextStrategy::#strategy;)
        });
        let targets = ways.iter().map(|way| way.target(&flow, private));
        let targets = is_checked.then(|| quote!(#(#targets),*));
        let body = if is_checked {
            let arms = ways.iter().map(|way| way.arm(&next_ident, private));
            quote!(match next { #(#arms)* })
        } else {
            // There is an error already; the way out is not made, so that none follows from it.
            quote!({ let _ = next; #private::Way::Stay })
        };
        let is_stay = if ways.iter().any(|way| matches!(way.to, To::Stay)) {
            quote!(::core::matches!(next, #next_ident::Stay))
        } else {
            quote!({
                let _ = next;
                false
            })
        };
        let tools = self.tools.as_ref().map(|key| {
            let call = at(key.span(), quote!(<Self as #private::StepTools>::definitions()));
            quote! {
                fn tools() -> #private::std::vec::Vec<#private::ToolDefinition> { #call }
            }
        });
        let flow_tools = self.flow_tools.as_ref().filter(|_| is_checked);
        let flow_tools = flow_tools.map(|(_, exposure)| exposure.constant(&flow, private));
        let registered = self.tools.as_ref().map(|_| {
            quote! {
                #[automatically_derived]
                impl #impl_generics #private::ToolsRegistered for #ident #ty_generics #where_clause {}
            }
        });
        let is_reply = self.kind.as_ref().is_some_and(|kind| kind == "reply");
        let tool_host = is_reply.then(|| {
            let call = self.tools.as_ref().map(|key| {
                let call = at(key.span(), quote!(<Self as #private::StepTools>::call));
                let shared = at(key.span(), quote!(<Self as #private::StepTools>::call_shared));
                quote! {
                    fn call_tool<'a>(
                        &'a mut self,
                        cx: &'a mut #private::StepCx<'_, #flow>,
                        tool: &'a ::core::primitive::str,
                        arguments: #private::serde_json::Value,
                    ) -> #private::ToolFuture<'a> {
                        #private::std::boxed::Box::pin(#call(self, cx, tool, arguments))
                    }
                    fn call_tool_shared<'a>(
                        &'a self,
                        cx: &'a #private::StepCx<'_, #flow>,
                        tool: &'a ::core::primitive::str,
                        arguments: #private::serde_json::Value,
                    ) -> #private::ToolFuture<'a> {
                        #private::std::boxed::Box::pin(#shared(self, cx, tool, arguments))
                    }
                }
            });
            quote! {
                #[automatically_derived]
                impl #impl_generics #private::ToolHost for #ident #ty_generics #where_clause {
                    type Flow = #flow;
                    #call
                }
            }
        });
        let model = self.model.as_ref().map(|model| {
            quote! {
                const MODEL: ::core::option::Option<&'static ::core::primitive::str> =
                    ::core::option::Option::Some(#model);
            }
        });
        let sampling = self.sampling.as_ref().map(|sampling| sampling.function(private));
        // The ways out name the flow and so need the kind's trait; without one say it here.
        let is_named = ways.iter().any(|way| matches!(way.to, To::Step { .. }));
        let kind_check = (is_checked && !is_named).then(|| {
            quote! {
                const _: () = {
                    fn __kind #impl_generics (_: #flow) #where_clause {}
                };
            }
        });
        quote! {
            #[automatically_derived]
            impl #impl_generics #private::Step for #ident #ty_generics #where_clause {
                type Kind = #private::kind::#kind;
                type Input = #input;
                type Next = #next;
                const TARGETS: &'static [#private::Target] = &[#targets];
                const NAME: &'static ::core::primitive::str = #name;
                #aliases
                #memory
                #context
                #model
                #flow_tools
                const DOC: &'static ::core::primitive::str = #docs;
                #sampling
                fn transition(next: #next) -> #private::Way { #body }
                fn is_stay(next: &#next) -> ::core::primitive::bool { #is_stay }
                #tools
            }
            #registered
            #tool_host
            #kind_check
        }
    }

    /// The trait of the kind, which is also the name of its type.
    fn kind_trait(&self) -> Ident {
        let name = match self.kind.as_ref().map(Ident::to_string).as_deref() {
            Some("collect") => "Collect",
            Some("action") => "Action",
            Some("decide") if self.confirm.is_some() => "Confirm",
            Some("decide") => "Decide",
            _ => "Reply",
        };
        Ident::new(name, Span::call_site())
    }
}

const NO_WAY_OUT: &str =
    "a step without a way out never leaves: name a step, or `stay`, `end`, `hand_off`, `escalate`";

impl WayOut {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let ahead = input.fork();
        if let Ok(word) = ahead.call(Ident::parse_any)
            && !ahead.peek(Token![::])
            && word.to_string().starts_with(|c: char| c.is_lowercase())
            && word.unraw() == word
            && word != "crate"
        {
            let text = word.to_string();
            let (variant, to) = match text.as_str() {
                "stay" => ("Stay", To::Stay),
                "end" => ("End", To::End),
                "hand_off" => ("HandOff", To::HandOff),
                "escalate" => ("Escalate", To::Escalate),
                _ => {
                    let hint = match nearest(&text, &WORDS) {
                        Some(word) => format!("did you mean `{word}`?"),
                        None => format!("name a step, or one of {}", WORDS.join(", ")),
                    };
                    return Err(syn::Error::new(
                        word.span(),
                        format!("`{text}` is not a way out: {hint}"),
                    ));
                }
            };
            input.call(Ident::parse_any)?;
            if !input.is_empty() && !input.peek(Token![,]) {
                return Err(input.error(format_args!("`{text}` stands alone and has no payload")));
            }
            return Ok(Self { variant: Ident::new(variant, word.span()), to });
        }

        let mut target: Path = input.parse()?;
        let mut payloads: Option<Vec<Type>> = None;
        let Some(last) = target.segments.last_mut() else {
            return Err(input.error("expected the name of a step"));
        };
        let variant = last.ident.clone();
        if let PathArguments::Parenthesized(list) = &last.arguments {
            payloads = Some(
                list.inputs
                    .iter()
                    .map(|input| input.to_token_stream())
                    .map(syn::parse2)
                    .collect::<syn::Result<_>>()?,
            );
            last.arguments = PathArguments::None;
        } else if input.peek(syn::token::Paren) {
            let content;
            syn::parenthesized!(content in input);
            let list = content.parse_terminated(Type::parse, Token![,])?;
            payloads = Some(list.into_iter().collect());
        }
        let mut payloads = payloads.unwrap_or_default().into_iter();
        let payload = payloads.next();
        if let Some(second) = payloads.next() {
            return Err(syn::Error::new_spanned(
                second,
                format!(
                    "`{variant}` is entered with one payload; write a struct, or a tuple as `{variant}((A, B))`"
                ),
            ));
        }
        let to = To::Step { target: Box::new(target), payload: payload.map(Box::new) };
        Ok(Self { variant, to })
    }

    fn shown(&self) -> String {
        match self.to {
            To::Step { .. } => self.variant.to_string(),
            To::Stay => "stay".to_owned(),
            To::End => "end".to_owned(),
            To::HandOff => "hand_off".to_owned(),
            To::Escalate => "escalate".to_owned(),
        }
    }

    fn payload(&self) -> Option<&Type> {
        match &self.to {
            To::Step { payload, .. } => payload.as_deref(),
            _ => None,
        }
    }

    /// The variant of the next-enum.
    fn variant(&self, private: &TokenStream) -> TokenStream {
        let variant = &self.variant;
        let string = quote!(#private::std::string::String);
        match &self.to {
            To::Step { payload, .. } => {
                let doc = format!("Enters the step `{}`.", variant.unraw());
                let payload = payload.as_ref().map(|payload| quote!((#payload)));
                quote!(#[doc = #doc] #variant #payload)
            }
            // A reply step stays by default, so few name this variant where it is declared.
            To::Stay => quote! {
                #[doc = "Stays at the step and waits for the user."] #[allow(dead_code)] #variant
            },
            To::End => quote!(#[doc = "Ends the flow, for a reason."] #variant(#string)),
            To::HandOff => {
                let to = quote!(#private::HandOff);
                quote!(#[doc = "Hands the conversation to another flow."] #variant(#to))
            }
            To::Escalate => {
                quote!(#[doc = "Parks the session for a person, for a reason."] #variant(#string))
            }
        }
    }

    /// The entry of `TARGETS`.
    fn target(&self, flow: &TokenStream, private: &TokenStream) -> TokenStream {
        match &self.to {
            To::Step { target, .. } => {
                // All of it stands at the target, the flow at the step's own name, so that
                // the compiler says what is wrong with either where it is.
                let place = target.span();
                let open = at(place, quote!(<));
                let reach = at(place, quote!(as #private::Reach<));
                let close = at(place, quote!(>>::TARGET));
                quote!(#open #target #reach #flow #close)
            }
            _ => {
                let word = &self.variant;
                quote!(#private::Target::#word)
            }
        }
    }

    /// The arm of `transition`.
    fn arm(&self, next: &Ident, private: &TokenStream) -> TokenStream {
        let variant = &self.variant;
        match &self.to {
            To::Step { target, payload } => {
                let place = payload.as_ref().map_or(target.span(), Spanned::span);
                let value = local("payload", place);
                let go = at(place, quote!(#private::go));
                let (pattern, enter) = match payload {
                    Some(payload) => {
                        (quote!((#value)), quote_spanned!(place=> #go::<#target, #payload>(#value)))
                    }
                    None => (TokenStream::new(), quote_spanned!(place=> #go::<#target, ()>(()))),
                };
                quote!(#next::#variant #pattern => #enter,)
            }
            To::Stay => quote!(#next::Stay => #private::Way::Stay,),
            To::End | To::HandOff | To::Escalate => {
                let value = local("text", variant.span());
                quote!(#next::#variant(#value) => #private::Way::#variant(#value),)
            }
        }
    }
}

/// The name of the next-enum.
fn next_name(item: &ItemStruct) -> Ident {
    format_ident!("{}Next", item.ident.unraw(), span = item.ident.span())
}
