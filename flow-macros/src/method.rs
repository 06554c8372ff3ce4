//! `#[tool]`: a method as a tool.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{
    Attribute, Expr, FnArg, GenericParam, Generics, LitStr, Pat, ReturnType, Signature, Token,
    Type, Visibility,
};

use crate::attributes::{self, Docs};
use crate::errors::{Errors, unknown_key};
use crate::generics;
use crate::paths::{at, local};
use crate::replay::Replay;
use crate::slot::pascal;

const KEYS: [&str; 5] = ["name", "description", "parallel", "ask", "replay"];

/// A method that a model may call.
pub(crate) struct Tool {
    pub(crate) method: Ident,
    pub(crate) vis: Visibility,
    /// The persisted name.
    pub(crate) name: String,
    pub(crate) name_span: Span,
    /// What it does, as a constant expression.
    pub(crate) description: TokenStream,
    /// Whether calls of it may run at the same time.
    pub(crate) is_parallel: bool,
    /// Whether a person has to approve its calls.
    pub(crate) is_asked: bool,
    /// What becomes of an action's call that is repeated.
    pub(crate) replay: Replay,
    pub(crate) conditions: Vec<TokenStream>,
    /// What the generated struct of a call takes over: documentation, deprecation.
    pub(crate) passed_on: Vec<Attribute>,
    pub(crate) has_receiver: bool,
    pub(crate) is_async: bool,
    /// Where the context stands, if the method takes it.
    pub(crate) context: Option<Span>,
    pub(crate) arguments: Vec<Argument>,
    /// Whether serde or schemars is told something about an argument. Then one struct with
    /// their derives reads all arguments; else each is read by its type alone, which costs
    /// a fraction of the time to compile.
    pub(crate) is_read_as_struct: bool,
    /// The type that it returns; nothing for `()`.
    pub(crate) output: Option<Type>,
}

/// An argument that the model gives.
pub(crate) struct Argument {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) field: Ident,
    pub(crate) ty: Type,
}

impl Tool {
    /// Reads a method, and takes off its parameters what only we understand.
    pub(crate) fn read(
        mark: &Attribute,
        attrs: &[Attribute],
        vis: &Visibility,
        signature: &mut Signature,
        is_flow: bool,
        self_ty: &Type,
        errors: &mut Errors,
    ) -> Option<Self> {
        let known = errors.len();
        let Keys { name, description, is_parallel, is_asked, replay } = Keys::read(mark, errors);
        if let Some((key, _)) = replay.as_ref().filter(|_| !is_flow) {
            errors.at(key, "`replay` is about the calls of actions, which call the tools of the flow: a tool of a step is called by models, and what they ask for is not recorded call by call");
        }
        // The flow is shared anyway; a step is changed by the tools that run alone.
        let shares_step = is_parallel && !is_flow;
        let method = signature.ident.clone();
        let plain = method.unraw().to_string();
        let (name, name_span) = match name {
            Some(name) => (name.value(), name.span()),
            None => (plain, method.span()),
        };
        check_name(&name, name_span, errors);

        let docs = Docs::of(attrs);
        let description = match description {
            Some(text) => text.to_token_stream(),
            None => {
                if docs.is_empty() {
                    errors.at(&method, format_args!("the tool `{method}` needs a doc comment: it tells the model what the tool does"));
                }
                docs.constant()
            }
        };
        for param in &signature.generics.params {
            if !matches!(param, GenericParam::Lifetime(_)) {
                errors.at(param, "a tool cannot be generic: a model sends values of known types");
            }
        }
        let has_receiver = receiver(signature, is_flow, shares_step, errors);
        let mut context = None;
        let mut arguments = Vec::new();
        for (i, input) in signature.inputs.iter_mut().enumerate() {
            let FnArg::Typed(input) = input else { continue };
            let attrs: Vec<Attribute> = input
                .attrs
                .extract_if(.., |attribute| {
                    ["doc", "serde", "schemars"].iter().any(|name| attribute.path().is_ident(name))
                })
                .collect();
            for attribute in &input.attrs {
                if attribute.path().is_ident("cfg") {
                    errors.at(attribute, "an argument of a tool cannot be conditional: put the `#[cfg]` on the method");
                }
            }
            if let Type::Reference(reference) = &*input.ty {
                let is_first = i == usize::from(has_receiver);
                if is_first && !is_borrowed_data(&reference.elem) {
                    if shares_step && reference.mutability.is_some() {
                        errors.at(&input.ty, "a `parallel` tool takes its context as `&StepCx<'_, F>`: its calls run at the same time and share the context");
                    }
                    context = Some(place(&reference.elem));
                } else {
                    let example = if is_flow { "`&ToolCx`" } else { "`&mut StepCx<'_, F>`" };
                    errors.at(
                        &input.ty,
                        format_args!("the arguments of a tool are owned, e.g. `String` for `&str`; only the context {example}, the first argument, is borrowed"),
                    );
                }
                continue;
            }
            let Pat::Ident(pattern) = &*input.pat else {
                errors.at(&input.pat, "an argument of a tool needs a name, which the model sees");
                continue;
            };
            if let Type::ImplTrait(ty) = &*input.ty {
                errors.at(ty, "a tool cannot be generic: a model sends values of known types");
                continue;
            }
            let ty = match syn::parse2(without_self(input.ty.to_token_stream(), self_ty)) {
                Ok(ty) => ty,
                Err(_) => (*input.ty).clone(),
            };
            arguments.push(Argument { attrs, field: field(&pattern.ident), ty });
        }
        let output = match &signature.output {
            ReturnType::Default => None,
            ReturnType::Type(_, ty) => Some(
                syn::parse2(without_self(ty.to_token_stream(), self_ty))
                    .unwrap_or_else(|_| (**ty).clone()),
            ),
        };
        let passed_on = attrs
            .iter()
            .filter(|attribute| {
                ["doc", "deprecated"].iter().any(|name| attribute.path().is_ident(name))
            })
            .cloned()
            .collect();
        // A tool with an error of its own is left out, so that nothing follows from it.
        (errors.len() == known).then(|| Self {
            method,
            vis: vis.clone(),
            name,
            name_span,
            description,
            is_parallel,
            is_asked,
            replay: replay.map_or(Replay::ByKey, |(_, replay)| replay),
            conditions: attributes::conditions(attrs),
            passed_on,
            has_receiver,
            is_async: signature.asyncness.is_some(),
            context,
            is_read_as_struct: arguments.iter().any(Argument::is_told),
            arguments,
            output,
        })
    }

    /// The locals that hold the arguments.
    pub(crate) fn locals(&self) -> Vec<Ident> {
        let name = |(i, argument): (usize, &Argument)| {
            local(&format!("argument_{i}"), place(&argument.ty))
        };
        self.arguments.iter().enumerate().map(name).collect()
    }

    /// The function of an argument's trait to call: the only argument of a tool may be all
    /// of its arguments.
    pub(crate) fn item(&self, name: &str) -> String {
        if self.arguments.len() == 1 { format!("{name}_alone") } else { name.to_owned() }
    }

    /// The generic parameters that the arguments mention.
    pub(crate) fn generics(&self, generics: &Generics) -> Generics {
        let types = self.arguments.iter().map(|argument| argument.ty.to_token_stream());
        generics::mentioned(generics, types.collect())
    }

    /// The struct that reads all arguments, if there is one.
    pub(crate) fn arguments_type(&self, generics: &Generics) -> Option<TokenStream> {
        self.is_read_as_struct.then(|| {
            let ident = self.struct_ident("Arguments");
            let generics = self.generics(generics);
            let (_, ty_generics, _) = generics.split_for_impl();
            quote!(#ident #ty_generics)
        })
    }

    /// Where to say what is wrong with the value that it returns.
    pub(crate) fn output_place(&self) -> Span {
        self.output.as_ref().map_or(self.method.span(), place)
    }

    /// The type that a call of a flow's tool gives.
    pub(crate) fn value_type(&self, private: &TokenStream) -> TokenStream {
        let Some(ty) = &self.output else { return quote!(()) };
        if !self.is_called_result() {
            return ty.to_token_stream();
        }
        let open = at(place(ty), quote!(<));
        let close = at(place(ty), quote!(as #private::returns::Fallible>::Value));
        quote!(#open #ty #close)
    }

    /// The name of the struct that holds the arguments.
    pub(crate) fn struct_ident(&self, suffix: &str) -> Ident {
        let name = pascal(&self.method.unraw().to_string());
        if suffix.is_empty() {
            Ident::new(&name, self.method.span())
        } else {
            format_ident!("__{}{}", name, suffix, span = Span::call_site())
        }
    }

    /// Whether the return type is a `Result` by its name: `Result`, `ToolResult`, an alias.
    pub(crate) fn is_called_result(&self) -> bool {
        match &self.output {
            Some(Type::Path(ty)) => ty
                .path
                .segments
                .last()
                .is_some_and(|segment| segment.ident.to_string().ends_with("Result")),
            _ => false,
        }
    }
}

impl Argument {
    /// The name that a model sees, unless serde is told another.
    pub(crate) fn name(&self) -> String {
        self.field.unraw().to_string()
    }

    /// Whether serde or schemars is told something about it.
    fn is_told(&self) -> bool {
        self.attrs.iter().any(|attribute| !attribute.path().is_ident("doc"))
    }

    pub(crate) fn private_field(&self) -> TokenStream {
        let Self { attrs, field, ty } = self;
        quote!(#(#attrs)* #field: #ty)
    }

    pub(crate) fn public_field(&self) -> TokenStream {
        let Self { attrs, field, ty } = self;
        let attrs = attrs.iter().filter(|attribute| !attribute.path().is_ident("schemars"));
        quote!(#(#attrs)* pub #field: #ty)
    }

    /// A function of the argument's trait. All mentions are the same, so that the compiler
    /// says once what is wrong with the type.
    pub(crate) fn item(&self, name: &str, private: &TokenStream) -> TokenStream {
        let ty = &self.ty;
        let place = place(ty);
        let name = Ident::new(name, place);
        let open = at(place, quote!(<));
        let close = at(place, quote!(as #private::signature::Argument>::#name));
        quote!(#open #ty #close)
    }
}

/// The token of a type to which an error points: its name.
fn place(ty: &Type) -> Span {
    match ty {
        Type::Reference(reference) => place(&reference.elem),
        Type::Path(path) => path.path.segments.last().map_or(path.span(), |last| last.ident.span()),
        _ => ty.span(),
    }
}

/// What `#[tool(..)]` says.
#[derive(Default)]
struct Keys {
    name: Option<LitStr>,
    description: Option<Expr>,
    is_parallel: bool,
    is_asked: bool,
    replay: Option<(Ident, Replay)>,
}

impl Keys {
    fn read(mark: &Attribute, errors: &mut Errors) -> Self {
        let mut keys = Self::default();
        let tokens = attributes::arguments(mark, errors);
        attributes::keys(tokens, errors, |key, input: ParseStream<'_>, _| {
            match key.to_string().as_str() {
                "name" => keys.name = Some(attributes::text(key, input)?),
                "description" => {
                    if !input.peek(Token![=]) {
                        return Err(syn::Error::new(
                            key.span(),
                            "`description` takes a text: `description = \"..\"`",
                        ));
                    }
                    input.parse::<Token![=]>()?;
                    keys.description = Some(input.parse()?);
                }
                "parallel" => {
                    attributes::word(key, input)?;
                    keys.is_parallel = true;
                }
                "ask" => {
                    attributes::word(key, input)?;
                    keys.is_asked = true;
                }
                "replay" => keys.replay = Some((key.clone(), Replay::parse(key, input)?)),
                other => {
                    let message = unknown_key(other, "#[tool(..)]", &KEYS);
                    return Err(syn::Error::new(key.span(), message));
                }
            }
            Ok(())
        });
        keys
    }
}

/// Checks the name by the rule that all providers share.
fn check_name(name: &str, span: Span, errors: &mut Errors) {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_allowed) {
        errors.span(
            span,
            format_args!(
                "{name:?} cannot be the name of a tool: 1 to 64 ASCII letters, digits, _ and -"
            ),
        );
    }
}

/// Checks the receiver, and says whether there is one.
fn receiver(signature: &Signature, is_flow: bool, shares_step: bool, errors: &mut Errors) -> bool {
    let Some(receiver) = signature.receiver() else { return false };
    let tokens = receiver.to_token_stream().to_string();
    let is_reference = tokens.starts_with('&');
    let is_mutable = is_reference && tokens.contains("mut");
    if is_flow && is_mutable {
        errors.at(receiver, "a tool of a flow takes `&self`: the flow is shared by its sessions");
    } else if shares_step && is_mutable {
        errors.at(
            receiver,
            "a `parallel` tool takes `&self`: its calls run at the same time and share the step",
        );
    } else if !is_reference {
        errors.at(receiver, "a tool takes `&self` or `&mut self`");
    }
    true
}

/// `str` and slices, which are arguments that should be owned and no context.
fn is_borrowed_data(ty: &Type) -> bool {
    match ty {
        Type::Slice(_) => true,
        Type::Path(ty) => ty.path.is_ident("str"),
        _ => false,
    }
}

/// The field of an argument. `_name` marks an argument that is not used, which the model
/// does not need to know.
fn field(name: &Ident) -> Ident {
    let text = name.to_string();
    let trimmed = text.trim_start_matches('_');
    match syn::parse_str::<Ident>(trimmed) {
        Ok(_) if trimmed.len() < text.len() => Ident::new(trimmed, name.span()),
        _ => name.clone(),
    }
}

/// The tokens of a type with `Self` spelled out, for use outside of the block.
fn without_self(tokens: TokenStream, self_ty: &Type) -> TokenStream {
    tokens
        .into_iter()
        .map(|token| match token {
            TokenTree::Ident(ident) if ident == "Self" => quote!(<#self_ty>),
            TokenTree::Group(group) => {
                let delimiter: Delimiter = group.delimiter();
                let mut copy = Group::new(delimiter, without_self(group.stream(), self_ty));
                copy.set_span(group.span());
                TokenTree::Group(copy).to_token_stream()
            }
            token => token.to_token_stream(),
        })
        .collect()
}
