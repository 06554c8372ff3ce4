//! `#[tools]`: the methods that a model may call, as definitions and a dispatcher.

mod of_flow;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Attribute, Generics, Path, Signature, Token, Type, Visibility};

use crate::attributes::{self, Docs};
use crate::errors::{Errors, unknown_key};
use crate::generics;
use crate::method::{Argument, Tool};
use crate::paths::{Krate, at, local};

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

    let private = Krate::find(args.krate.as_ref()).private();
    let generated = if args.flow {
        of_flow::write(&head, &tools, &private)
    } else {
        step_tools(&head, &tools, &private)
    };
    let check = errors.is_empty().then(|| registered(&head, &private));
    let errors = errors.finish();
    quote!(#head_tokens #body_out #generated #check #errors)
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

/// What is generated for each tool of a block, put together.
#[derive(Default)]
struct Parts {
    structs: TokenStream,
    calls: TokenStream,
    definitions: TokenStream,
    /// The arms of the dispatcher.
    arms: TokenStream,
    /// The arms of the dispatcher of a step's parallel tools.
    shared_arms: TokenStream,
}

impl Parts {
    /// Adds the description of a tool.
    fn describe(&mut self, tool: &Tool, head: &Head, private: &TokenStream) {
        let Tool { name, description, conditions, .. } = tool;
        let parallel = tool.is_parallel.then(|| quote!(.parallel()));
        let ask = tool.is_asked.then(|| quote!(.policy(#private::ToolPolicy::Ask)));
        let replay = tool.replay.variant(private).map(|replay| quote!(.replay(#replay)));
        let marks = quote!(#parallel #ask #replay);
        let define = match tool.arguments_type(&head.generics) {
            Some(arguments) => quote! {
                tools.push(
                    #private::signature::describe::<#arguments>(#name, #description) #marks
                );
            },
            None => {
                let describe = tool.item("describe");
                let arguments = tool.arguments.iter().map(|argument| {
                    let item = argument.item(&describe, private);
                    let name = argument.name();
                    let doc = Docs::of(&argument.attrs).constant();
                    quote!(#item(&mut parameters, #name, #doc);)
                });
                quote! {
                    let mut parameters = #private::signature::Parameters::new();
                    #(#arguments)*
                    tools.push(parameters.into_tool(#name, #description) #marks);
                }
            }
        };
        self.definitions.extend(quote!(#(#conditions)* { #define }));
    }

    /// Makes the arm of the dispatcher: reads the arguments into locals, then does `work`.
    fn arm(tool: &Tool, head: &Head, private: &TokenStream, work: &TokenStream) -> TokenStream {
        let Tool { name, conditions, .. } = tool;
        let Names { tool: key, input, .. } = Names::new();
        let locals = tool.locals();
        let read = match tool.arguments_type(&head.generics) {
            Some(ty) => {
                let ident = tool.struct_ident("Arguments");
                let fields = tool.arguments.iter().map(|argument| &argument.field);
                quote! {
                    let #ident { #(#fields: #locals),* } =
                        #private::signature::read::<#ty>(#key, #input)?;
                }
            }
            None if tool.arguments.is_empty() => TokenStream::new(),
            None => {
                let read = tool.item("read");
                let reads = tool.arguments.iter().zip(&locals).map(|(argument, local)| {
                    let item = argument.item(&read, private);
                    let name = argument.name();
                    quote!(let #local = #item(&mut #input, #name)?;)
                });
                quote! {
                    let mut #input =
                        #private::signature::Input::new(#key, #input, Self::definitions)?;
                    #(#reads)*
                }
            }
        };
        quote! {
            #(#conditions)*
            #name => {
                #read
                #work
            }
        }
    }
}

/// The parameters of the generated functions.
struct Names {
    cx: Ident,
    tool: Ident,
    input: Ident,
    flow: Ident,
}

impl Names {
    fn new() -> Self {
        let name = |name| local(name, Span::call_site());
        Self { cx: name("cx"), tool: name("tool"), input: name("input"), flow: name("flow") }
    }
}

/// The call of the method itself, awaited.
fn call(
    tool: &Tool,
    owner: &TokenStream,
    receiver: &TokenStream,
    private: &TokenStream,
) -> TokenStream {
    let method = &tool.method;
    let place = method.span();
    let receiver = tool.has_receiver.then(|| quote!(#receiver,));
    let context = tool.context.as_ref().map(|context| {
        let cx = local("cx", *context);
        quote!(#cx,)
    });
    let arguments = tool.locals();
    let owner = at(place, owner.clone());
    let call = quote_spanned!(place=> #owner::#method(#receiver #context #(#arguments),*));
    if tool.is_async {
        let run = at(place, quote!(#private::run));
        quote_spanned!(place=> #run(#call).await)
    } else {
        call
    }
}

/// The bound that the types of a generic struct need, as serde and schemars take it.
fn bound(tool: &Tool, generics: &Generics, bound: &TokenStream) -> String {
    let types = tool
        .arguments
        .iter()
        .map(|argument| &argument.ty)
        .filter(|ty| !generics::mentioned(generics, ty.to_token_stream()).params.is_empty());
    quote!(#(#types: #bound),*).to_string()
}

/// The struct that reads the arguments of a tool when serde or schemars is told something
/// about one of them.
fn arguments_struct(tool: &Tool, generics: &Generics, private: &TokenStream) -> TokenStream {
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let ident = tool.struct_ident("Arguments");
    let conditions = &tool.conditions;
    let fields = tool.arguments.iter().map(Argument::private_field);
    let (serde, schemars) = (quote!(#private::serde), quote!(#private::schemars));
    let (serde_path, schemars_path) = (serde.to_string(), schemars.to_string());
    let bounds = (!generics.params.is_empty()).then(|| {
        let read = bound(tool, generics, &quote!(#serde::de::DeserializeOwned));
        let schema = bound(tool, generics, &quote!(#schemars::JsonSchema));
        quote!(#[serde(bound(deserialize = #read))] #[schemars(bound = #schema)])
    });
    quote! {
        #(#conditions)*
        #[derive(#serde::Deserialize, #schemars::JsonSchema)]
        #bounds
        #[serde(crate = #serde_path, expecting = "an object with the arguments of the tool")]
        #[schemars(crate = #schemars_path)]
        struct #ident #impl_generics #where_clause { #(#fields),* }
    }
}

/// What the derive of schemars takes from the prelude, if a struct of arguments is derived.
fn prelude(tools: &[Tool]) -> Option<TokenStream> {
    tools.iter().any(|tool| tool.is_read_as_struct).then(|| {
        quote! {
            #[allow(unused_imports)]
            use ::core::{convert::Into as _, option::Option::{None, Some}};
        }
    })
}

fn step_tools(head: &Head, tools: &[Tool], private: &TokenStream) -> TokenStream {
    let self_ty = &head.self_ty;
    let (impl_generics, _, where_clause) = head.generics.split_for_impl();
    let mut parts = Parts::default();
    let Names { cx, tool: key, input, .. } = Names::new();
    for tool in tools {
        parts.describe(tool, head, private);
        if tool.is_read_as_struct {
            parts.structs.extend(arguments_struct(tool, &tool.generics(&head.generics), private));
        }

        let call = call(tool, &quote!(Self), &quote!(self), private);
        let place = tool.output_place();
        let (returned, value) = (local("returned", place), local("value", place));
        let kind = quote!((&&&&#private::returns::probe(&#value)).value());
        let kind = if tool.is_parallel { quote!(#private::returns::steady(#kind)) } else { kind };
        let convert = at(
            place,
            quote! {
                let #value = (&&&&#private::returns::probe(&#returned)).failure().take(#key, #returned)?;
                #kind.output(#private::returns::step::<Self>(), #key, #value)
            },
        );
        let arm = Parts::arm(tool, head, private, &quote!(let #returned = #call; #convert));
        if tool.is_parallel { &mut parts.shared_arms } else { &mut parts.arms }.extend(arm);
    }
    let Parts { structs, definitions, arms, shared_arms, .. } = parts;
    let prelude = prelude(tools);
    let unknown = quote! {
        ::core::result::Result::Err(#private::signature::unknown(#key, &Self::definitions()))
    };
    // A parallel tool that is called by itself takes the same way.
    let (fallback, shared) = if shared_arms.is_empty() {
        (unknown, TokenStream::new())
    } else {
        let body = select(&key, &shared_arms, &unknown, private);
        let shared = quote! {
            async fn call_shared<'a>(
                &'a self,
                #cx: &'a #private::StepCx<'_, #private::FlowOf<Self>>,
                #key: &'a ::core::primitive::str,
                #input: #private::serde_json::Value,
            ) -> ::core::result::Result<#private::ToolOutput, #private::ToolError> { #body }
        };
        let call = quote!(<Self as #private::StepTools>::call_shared(self, #cx, #key, #input));
        (quote!(#call.await), shared)
    };
    let body = select(&key, &arms, &fallback, private);
    quote! {
        const _: () = {
            #prelude
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
                ) -> ::core::result::Result<#private::ToolOutput, #private::ToolError> { #body }

                #shared
            }
        };
    }
}

/// The body of a dispatcher of a step.
fn select(
    key: &Ident,
    arms: &TokenStream,
    fallback: &TokenStream,
    private: &TokenStream,
) -> TokenStream {
    if arms.is_empty() {
        return fallback.clone();
    }
    quote! {
        use #private::returns::{
            FailureA as _, FailureB as _, FailureC as _, FailureD as _,
            ValueA as _, ValueB as _, ValueC as _, ValueD as _,
        };
        match #key {
            #arms
            _ => #fallback,
        }
    }
}

/// Says at the type of the block when its tools are not registered.
fn registered(head: &Head, private: &TokenStream) -> TokenStream {
    let self_ty = &head.self_ty;
    let (impl_generics, _, where_clause) = head.generics.split_for_impl();
    let check = at(self_ty.span(), quote!(#private::registered::<#self_ty>();));
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
