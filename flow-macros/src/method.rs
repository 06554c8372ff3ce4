//! `#[tool]`: a method as a tool.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{
    Attribute, Expr, FnArg, GenericParam, LitStr, Pat, ReturnType, Signature, Token, Type,
    Visibility,
};

use crate::attributes::{self, Docs};
use crate::errors::{Errors, unknown_key};
use crate::slot::pascal;

const KEYS: [&str; 2] = ["name", "description"];

/// A method that a model may call.
pub(crate) struct Tool {
    pub(crate) method: Ident,
    pub(crate) vis: Visibility,
    /// The persisted name.
    pub(crate) name: String,
    pub(crate) name_span: Span,
    /// What it does, as a constant expression.
    pub(crate) description: TokenStream,
    pub(crate) conditions: Vec<TokenStream>,
    /// What the generated struct of a call takes over: documentation, deprecation.
    pub(crate) passed_on: Vec<Attribute>,
    pub(crate) has_receiver: bool,
    pub(crate) is_async: bool,
    /// The type of the context, if the method takes it.
    pub(crate) context: Option<Type>,
    pub(crate) arguments: Vec<Argument>,
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
        let (name, description) = keys(mark, errors);
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
        let has_receiver = receiver(signature, is_flow, errors);
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
                    context = Some((*input.ty).clone());
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
            conditions: attributes::conditions(attrs),
            passed_on,
            has_receiver,
            is_async: signature.asyncness.is_some(),
            context,
            arguments,
            output,
        })
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

/// Reads the keys of `#[tool(..)]`: the name and the description.
fn keys(mark: &Attribute, errors: &mut Errors) -> (Option<LitStr>, Option<Expr>) {
    let mut name = None;
    let mut description = None;
    let tokens = attributes::arguments(mark, errors);
    attributes::keys(tokens, errors, |key, input: ParseStream<'_>, _| {
        match key.to_string().as_str() {
            "name" => name = Some(attributes::text(key, input)?),
            "description" => {
                if !input.peek(Token![=]) {
                    return Err(syn::Error::new(
                        key.span(),
                        "`description` takes a text: `description = \"..\"`",
                    ));
                }
                input.parse::<Token![=]>()?;
                description = Some(input.parse()?);
            }
            other => {
                return Err(syn::Error::new(key.span(), unknown_key(other, "#[tool(..)]", &KEYS)));
            }
        }
        Ok(())
    });
    (name, description)
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
fn receiver(signature: &Signature, is_flow: bool, errors: &mut Errors) -> bool {
    let Some(receiver) = signature.receiver() else { return false };
    let tokens = receiver.to_token_stream().to_string();
    let is_reference = tokens.starts_with('&');
    let is_mutable = is_reference && tokens.contains("mut");
    if is_flow && is_mutable {
        errors.at(receiver, "a tool of a flow takes `&self`: the flow is shared by its sessions");
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
