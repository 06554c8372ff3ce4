//! `#[tools]`: the methods that a model may call, as definitions and a dispatcher.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Attribute, Generics, Path, Signature, Token, Type, Visibility};

use crate::attributes;
use crate::errors::{Errors, unknown_key};
use crate::method::{Argument, Tool};
use crate::{generics, paths};

const KEYS: [&str; 2] = ["flow", "crate"];

/// What `#[tools(..)]` says.
#[derive(Default)]
struct Args {
    flow: bool,
    krate: Option<Path>,
}

/// What stands before the braces of an `impl` block.
struct Head {
    generics: Generics,
    self_ty: Type,
}

pub(crate) fn expand(attr: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(attr, &mut errors);
    let mut tokens: Vec<TokenTree> = item.clone().into_iter().collect();
    let body = match tokens.pop() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => group,
        _ => return refuse(item, errors, Span::call_site(), NOT_AN_IMPL),
    };
    let head_tokens: TokenStream = tokens.into_iter().collect();
    let head = match Head::parse.parse2(head_tokens.clone()) {
        Ok(head) => head,
        Err(error) => return refuse(item, errors, error.span(), &error.to_string()),
    };

    let mut members = TokenStream::new();
    let mut tools: Vec<Tool> = Vec::new();
    let parser = |input: ParseStream<'_>| {
        while !input.is_empty() {
            member(input, args.flow, &head.self_ty, &mut members, &mut tools, &mut errors)?;
        }
        Ok(())
    };
    if let Err(error) = parser.parse2(body.stream()) {
        errors.add(error);
        let errors = errors.finish();
        return quote!(#item #errors);
    }
    let mut body_out = Group::new(Delimiter::Brace, members);
    body_out.set_span(body.span());

    if tools.is_empty() && errors.is_empty() {
        errors.at(&head.self_ty, "a `#[tools]` block needs a method marked `#[tool]`");
    }
    refuse_duplicates(&tools, &mut errors);

    let krate = paths::krate(args.krate.as_ref());
    let generated = if args.flow {
        flow_tools(&head, &tools, &krate)
    } else {
        step_tools(&head, &tools, &krate)
    };
    let checks = if errors.is_empty() { registered(&head, &krate) } else { TokenStream::new() };
    let errors = errors.finish();
    quote!(#head_tokens #body_out #generated #checks #errors)
}

const NOT_AN_IMPL: &str =
    "`#[tools]` goes on an `impl` block of a step, `#[tools(flow)]` on one of a flow";

fn refuse(item: TokenStream, mut errors: Errors, span: Span, message: &str) -> TokenStream {
    errors.span(span, message);
    let errors = errors.finish();
    quote!(#item #errors)
}

impl Args {
    fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        attributes::keys(tokens, errors, |key, input, _| match key.to_string().as_str() {
            "flow" => {
                args.flow = true;
                attributes::word(key, input)
            }
            "crate" => {
                args.krate = Some(attributes::path(key, input)?);
                Ok(())
            }
            other => Err(syn::Error::new(key.span(), unknown_key(other, "#[tools(..)]", &KEYS))),
        });
        args
    }
}

impl Head {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.call(Attribute::parse_outer)?;
        if !input.peek(Token![impl]) {
            return Err(input.error(NOT_AN_IMPL));
        }
        input.parse::<Token![impl]>()?;
        let mut generics: Generics = input.parse()?;
        let self_ty: Type = input.parse()?;
        if input.peek(Token![for]) {
            return Err(syn::Error::new_spanned(
                self_ty,
                "`#[tools]` goes on an `impl` block without a trait: `#[tools] impl Explore { .. }`",
            ));
        }
        generics.where_clause = input.parse()?;
        Ok(Self { generics, self_ty })
    }
}

/// Reads one member of the block. A tool is written back without what only we understand,
/// everything else as it stands.
fn member(
    input: ParseStream<'_>,
    is_flow: bool,
    self_ty: &Type,
    members: &mut TokenStream,
    tools: &mut Vec<Tool>,
    errors: &mut Errors,
) -> syn::Result<()> {
    let inner = input.call(Attribute::parse_inner)?;
    members.extend(inner.iter().map(ToTokens::to_token_stream));
    let mut attrs = input.call(Attribute::parse_outer)?;
    let marks: Vec<Attribute> = attrs
        .extract_if(.., |attribute| {
            attribute.path().segments.last().is_some_and(|segment| segment.ident == "tool")
        })
        .collect();
    let vis: Visibility = input.parse()?;
    let ahead = input.fork();
    if ahead.parse::<Signature>().is_err() {
        if let Some(mark) = marks.first() {
            errors.at(mark, "`#[tool]` goes on a method");
        }
        let rest = rest(input)?;
        members.extend(quote!(#(#attrs)* #vis #rest));
        return Ok(());
    }
    let mut signature: Signature = input.parse()?;
    let body: TokenTree = input.parse()?;
    if let Some(mark) = marks.first() {
        if let Some(second) = marks.get(1) {
            errors.at(second, "write the keys of a tool into one `#[tool(..)]`");
        }
        let tool = Tool::read(mark, &attrs, &vis, &mut signature, is_flow, self_ty, errors);
        tools.extend(tool);
    }
    members.extend(quote!(#(#attrs)* #vis #signature #body));
    Ok(())
}

/// The tokens of a member that is not a function: a constant, a type, a macro call.
fn rest(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let is_macro = input.fork().call(Path::parse_mod_style).is_ok()
        && !input.peek(Token![const])
        && !input.peek(Token![type]);
    let mut tokens = TokenStream::new();
    while !input.is_empty() {
        let ends_here = input.peek(Token![;]);
        let is_braced = is_macro && input.peek(syn::token::Brace);
        tokens.extend([input.parse::<TokenTree>()?]);
        if ends_here || is_braced {
            break;
        }
    }
    Ok(tokens)
}

fn refuse_duplicates(tools: &[Tool], errors: &mut Errors) {
    for (i, tool) in tools.iter().enumerate() {
        // Two methods under opposite conditions may share a name.
        let clash = tools.iter().take(i).find(|other| {
            other.name == tool.name && (other.conditions.is_empty() || tool.conditions.is_empty())
        });
        if let Some(first) = clash {
            let mut error = syn::Error::new(
                tool.name_span,
                format!(
                    "two tools are named `{}`: rename one with `#[tool(name = \"..\")]`",
                    tool.name
                ),
            );
            error.combine(syn::Error::new(first.name_span, "the other one is here"));
            errors.add(error);
        }
    }
}

/// A generated local with the place of some tokens of the user.
fn local(name: &str, place: Span) -> Ident {
    Ident::new(name, Span::mixed_site().located_at(place))
}

fn locals(tool: &Tool) -> Vec<Ident> {
    let name = |(i, arg): (usize, &Argument)| local(&format!("argument_{i}"), arg.ty.span());
    tool.arguments.iter().enumerate().map(name).collect()
}

/// The call of the method itself.
fn call(tool: &Tool, owner: &TokenStream, receiver: &TokenStream, cx: &str) -> TokenStream {
    let method = &tool.method;
    let receiver = tool.has_receiver.then(|| quote!(#receiver,));
    let context = tool.context.as_ref().map(|ty| {
        let cx = local(cx, ty.span());
        quote!(#cx,)
    });
    let arguments = locals(tool);
    let call = quote_spanned! {method.span()=>
        #owner::#method(#receiver #context #(#arguments),*)
    };
    if tool.is_async { quote_spanned!(method.span()=> #call.await) } else { call }
}

/// The struct of the arguments, without its name and attributes.
fn fields(tool: &Tool, vis: &TokenStream) -> TokenStream {
    let fields = tool.arguments.iter().map(|argument| {
        let Argument { attrs, field, ty } = argument;
        quote!(#(#attrs)* #vis #field: #ty)
    });
    quote!({ #(#fields),* })
}

/// `#[derive]` and what the derives need to find their crates.
fn derives(private: &TokenStream, serialize: bool) -> TokenStream {
    let serde = quote!(#private::serde).to_string();
    let schemars = quote!(#private::schemars).to_string();
    let serialize = serialize.then(|| quote!(#private::serde::Serialize,));
    quote! {
        #[derive(#serialize #private::serde::Deserialize, #private::schemars::JsonSchema)]
        #[serde(crate = #serde, expecting = "an object with the arguments of the tool")]
        #[schemars(crate = #schemars)]
    }
}

fn arguments_generics(head: &Head, tool: &Tool) -> Generics {
    let types: TokenStream = tool.arguments.iter().map(|a| a.ty.to_token_stream()).collect();
    generics::mentioned(&head.generics, types)
}

fn definition(tool: &Tool, arguments: &TokenStream, private: &TokenStream) -> TokenStream {
    let Tool { name, description, conditions, .. } = tool;
    let make = match tool.arguments.as_slice() {
        [] => quote!(bare_definition),
        [lone] => {
            let ty = &lone.ty;
            quote!(lone_definition::<#arguments, #ty>)
        }
        _ => quote!(definition::<#arguments>),
    };
    quote! {
        #(#conditions)*
        tools.push(#private::signature::#make(#name, #description));
    }
}

fn step_tools(head: &Head, tools: &[Tool], krate: &TokenStream) -> TokenStream {
    let private = quote!(#krate::__private);
    let self_ty = &head.self_ty;
    let (impl_generics, _, where_clause) = head.generics.split_for_impl();
    let mut structs = TokenStream::new();
    let mut definitions = TokenStream::new();
    let mut arms = TokenStream::new();
    for tool in tools {
        let generics = arguments_generics(head, tool);
        let (own_impl, own_ty, own_where) = generics.split_for_impl();
        let ident = &tool.struct_ident("Arguments");
        let Tool { name, conditions, .. } = tool;
        if !tool.arguments.is_empty() {
            let derives = derives(&private, false);
            let fields = fields(tool, &TokenStream::new());
            structs.extend(quote! {
                #(#conditions)* #derives
                struct #ident #own_impl #own_where #fields
            });
        }
        let arguments = quote!(#ident #own_ty);
        definitions.extend(definition(tool, &arguments, &private));

        let names = locals(tool);
        let fields = tool.arguments.iter().map(|argument| &argument.field);
        let unpack = quote!(#ident { #(#fields: #names),* });
        let input = local("input", Span::call_site());
        let key = local("tool", Span::call_site());
        let read = match tool.arguments.as_slice() {
            [] => TokenStream::new(),
            [lone] => {
                let ty = &lone.ty;
                let name = &names[0];
                quote! {
                    let #name = match #private::signature::read_lone::<#arguments, #ty>(#key, #input)? {
                        #private::signature::Lone::Whole(#name) => #name,
                        #private::signature::Lone::Field(#unpack) => #name,
                    };
                }
            }
            _ => quote!(let #unpack = #private::signature::read::<#arguments>(#key, #input)?;),
        };
        let call = call(tool, &quote!(Self), &quote!(self), "cx");
        let place = tool.output.as_ref().map_or(tool.method.span(), Spanned::span);
        let returned = local("returned", place);
        let value = local("value", place);
        let convert = quote_spanned! {place=>
            let #value = (&&&&#private::returns::probe(&#returned)).failure().take(#key, #returned)?;
            (&&&&#private::returns::probe(&#value)).value().output(
                #private::returns::step::<#self_ty>(), #key, #value,
            )
        };
        arms.extend(quote! {
            #(#conditions)*
            #name => {
                #read
                let #returned = #call;
                #convert
            }
        });
    }
    let cx = local("cx", Span::call_site());
    let input = local("input", Span::call_site());
    let key = local("tool", Span::call_site());
    quote! {
        const _: () = {
            #structs

            #[automatically_derived]
            #[allow(deprecated, unused_variables, unused_mut)]
            impl #impl_generics #private::StepTools for #self_ty #where_clause {
                fn definitions() -> #private::std::vec::Vec<#private::ToolDefinition> {
                    let mut tools = #private::std::vec::Vec::new();
                    #definitions
                    tools
                }

                async fn call<'a>(
                    &'a mut self,
                    #cx: &'a mut #private::StepCx<'_, #private::FlowOf<Self>>,
                    #key: &'a ::core::primitive::str,
                    #input: #private::serde_json::Value,
                ) -> ::core::result::Result<#private::ToolOutput, #private::ToolError> {
                    use #private::returns::{
                        FailureA as _, FailureB as _, FailureC as _, FailureD as _,
                        ValueA as _, ValueB as _, ValueC as _, ValueD as _,
                    };
                    match #key {
                        #arms
                        _ => ::core::result::Result::Err(#private::signature::unknown(
                            #key, &<Self as #private::StepTools>::definitions(),
                        )),
                    }
                }
            }
        };
    }
}

fn flow_tools(head: &Head, tools: &[Tool], krate: &TokenStream) -> TokenStream {
    let private = quote!(#krate::__private);
    let self_ty = &head.self_ty;
    let (impl_generics, _, where_clause) = head.generics.split_for_impl();
    let mut structs = TokenStream::new();
    let mut calls = TokenStream::new();
    let mut definitions = TokenStream::new();
    let mut arms = TokenStream::new();
    for tool in tools {
        let generics = arguments_generics(head, tool);
        let (own_impl, own_ty, own_where) = generics.split_for_impl();
        let ident = &tool.struct_ident("");
        let Tool { name, conditions, vis, passed_on, .. } = tool;
        if tool.arguments.is_empty() {
            structs.extend(quote! {
                #(#conditions)* #(#passed_on)*
                #vis struct #ident;
            });
            calls.extend(quote! {
                #(#conditions)*
                #[automatically_derived]
                impl #private::serde::Serialize for #ident {
                    fn serialize<S: #private::serde::Serializer>(
                        &self,
                        serializer: S,
                    ) -> ::core::result::Result<S::Ok, S::Error> {
                        #private::no_arguments(serializer)
                    }
                }
            });
        } else {
            let derives = derives(&private, true);
            let fields = fields(tool, &quote!(pub));
            structs.extend(quote! {
                #(#conditions)* #(#passed_on)* #derives
                #[allow(missing_docs)]
                #vis struct #ident #own_impl #own_where #fields
            });
        }
        let arguments = quote!(#ident #own_ty);
        definitions.extend(definition(tool, &arguments, &private));

        let cx = local("cx", Span::call_site());
        let flow = local("flow", Span::call_site());
        let place = tool.output.as_ref().map_or(tool.method.span(), Spanned::span);
        let returned = local("returned", place);
        let names = locals(tool);
        let fields = tool.arguments.iter().map(|argument| &argument.field);
        let call = call(tool, &quote!(<#self_ty>), &quote!(#flow), "cx");
        let output = output(tool, &private);
        let plain = (!tool.is_called_result()).then(|| {
            quote_spanned! {place=>
                #private::returns::infallible((&&&&#private::returns::probe(&#returned)).failure());
            }
        });
        let convert = quote_spanned! {place=>
            (&&&&#private::returns::probe(&#returned)).failure().take(#name, #returned)
        };
        calls.extend(quote! {
            #(#conditions)*
            #[automatically_derived]
            #[allow(deprecated, unused_variables)]
            impl #impl_generics #private::ToolCall<#self_ty> for #arguments #where_clause {
                type Output = #output;
                const NAME: &'static ::core::primitive::str = #name;
                async fn call(
                    self,
                    #flow: &#self_ty,
                    #cx: &#private::ToolCx,
                ) -> ::core::result::Result<#output, #private::ToolError> {
                    use #private::returns::{
                        FailureA as _, FailureB as _, FailureC as _, FailureD as _,
                    };
                    let #ident { #(#fields: #names),* } = self;
                    let #returned = #call;
                    #plain
                    #convert
                }
            }
        });

        let key = local("tool", Span::call_site());
        let input = local("input", Span::call_site());
        let read = match tool.arguments.as_slice() {
            [] => quote!(#ident),
            [lone] => {
                let Argument { ty, field, .. } = lone;
                let value = local("value", Span::call_site());
                quote! {
                    match #private::signature::read_lone::<#arguments, #ty>(#key, #input)? {
                        #private::signature::Lone::Whole(#value) => #ident { #field: #value },
                        #private::signature::Lone::Field(#value) => #value,
                    }
                }
            }
            _ => quote!(#private::signature::read::<#arguments>(#key, #input)?),
        };
        arms.extend(quote! {
            #(#conditions)*
            #name => #private::returns::answer(self, #cx, #read).await,
        });
    }
    let cx = local("cx", Span::call_site());
    let input = local("input", Span::call_site());
    let key = local("tool", Span::call_site());
    quote! {
        #structs

        const _: () = {
            #calls

            #[automatically_derived]
            #[allow(deprecated, unused_variables, unused_mut)]
            impl #impl_generics #private::FlowTools for #self_ty #where_clause {
                fn definitions() -> #private::std::vec::Vec<#private::ToolDefinition> {
                    let mut tools = #private::std::vec::Vec::new();
                    #definitions
                    tools
                }

                async fn call<'a>(
                    &'a self,
                    #cx: &'a #private::ToolCx,
                    #key: &'a ::core::primitive::str,
                    #input: #private::serde_json::Value,
                ) -> ::core::result::Result<#private::ToolOutput, #private::ToolError> {
                    match #key {
                        #arms
                        _ => ::core::result::Result::Err(#private::signature::unknown(
                            #key, &<Self as #private::FlowTools>::definitions(),
                        )),
                    }
                }
            }
        };
    }
}

/// The type that a call of a flow's tool gives.
fn output(tool: &Tool, private: &TokenStream) -> TokenStream {
    let Some(ty) = &tool.output else { return quote!(()) };
    let value = if tool.is_called_result() {
        quote_spanned!(ty.span()=> <#ty as #private::returns::Fallible>::Value)
    } else {
        ty.to_token_stream()
    };
    quote_spanned!(ty.span()=> <#value as #private::returns::FlowReturned>::Value)
}

/// Says at the type of the block when its tools are not registered.
fn registered(head: &Head, krate: &TokenStream) -> TokenStream {
    let self_ty = &head.self_ty;
    let (impl_generics, _, where_clause) = head.generics.split_for_impl();
    let check = quote_spanned!(self_ty.span()=> #krate::__private::registered::<#self_ty>(););
    quote! {
        const _: () = {
            fn __registered #impl_generics () #where_clause { #check }
        };
    }
}

/// `#[tool]` outside of a `#[tools]` block: the item, and an error.
pub(crate) fn stray(item: TokenStream) -> TokenStream {
    refuse(
        item,
        Errors::default(),
        Span::call_site(),
        "`#[tool]` marks a method inside a `#[tools] impl` block; put `#[tools]` on the block",
    )
}
