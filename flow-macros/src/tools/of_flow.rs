//! The tools of a flow: with a struct for the calls of each.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::Generics;

use super::{Head, Names, Parts, arguments_struct, bound, call, prelude};
use crate::method::{Argument, Tool};
use crate::paths::{at, local};

/// The struct of a call of a flow's tool.
fn call_struct(tool: &Tool, generics: &Generics, private: &TokenStream) -> TokenStream {
    let Tool { conditions, passed_on, vis, .. } = tool;
    let ident = tool.struct_ident("");
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    if tool.arguments.is_empty() {
        return quote!(#(#conditions)* #(#passed_on)* #vis struct #ident;);
    }
    let fields = tool.arguments.iter().map(Argument::public_field);
    let serde = quote!(#private::serde);
    let serde_path = serde.to_string();
    let bounds = (!generics.params.is_empty()).then(|| {
        let bound = bound(tool, generics, &quote!(#serde::Serialize));
        quote!(#[serde(bound(serialize = #bound))])
    });
    quote! {
        #(#conditions)* #(#passed_on)*
        #[derive(#serde::Serialize)]
        #bounds
        #[serde(crate = #serde_path)]
        #[allow(missing_docs)]
        #vis struct #ident #impl_generics #where_clause { #(#fields),* }
    }
}

pub(super) fn write(head: &Head, tools: &[Tool], private: &TokenStream) -> TokenStream {
    let self_ty = &head.self_ty;
    let (impl_generics, _, where_clause) = head.generics.split_for_impl();
    let mut parts = Parts::default();
    let Names { cx, tool: key, input, flow } = Names::new();
    for tool in tools {
        let generics = tool.generics(&head.generics);
        let (_, own_ty, _) = generics.split_for_impl();
        let ident = tool.struct_ident("");
        let ty = quote!(#ident #own_ty);
        let Tool { name, conditions, .. } = tool;
        parts.structs.extend(call_struct(tool, &generics, private));
        if tool.arguments.is_empty() {
            parts.calls.extend(quote! {
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
        }
        if tool.is_read_as_struct {
            parts.calls.extend(arguments_struct(tool, &generics, private));
        }
        parts.describe(tool, head, private);

        let fields: Vec<&Ident> = tool.arguments.iter().map(|argument| &argument.field).collect();
        let locals = tool.locals();
        let place = tool.output_place();
        let returned = local("returned", place);
        let call = call(tool, &quote!(<#self_ty>), &quote!(#flow), private);
        let output = tool.value_type(private);
        let value = local("value", place);
        let take = if tool.is_called_result() {
            quote!((&&&&#private::returns::probe(&#returned)).failure().take(#name, #returned)?)
        } else {
            quote! {
                #private::returns::infallible(
                    (&&&&#private::returns::probe(&#returned)).failure(), #returned,
                )?
            }
        };
        let convert = at(
            place,
            quote! {
                let #value = #take;
                #private::returns::still((&&&&#private::returns::probe(&#value)).value());
                ::core::result::Result::Ok(#value)
            },
        );
        let replay = tool
            .replay
            .variant(private)
            .map(|replay| quote!(const REPLAY: #private::ToolReplay = #replay;));
        parts.calls.extend(quote! {
            #(#conditions)*
            #[automatically_derived]
            #[allow(deprecated, unused_variables)]
            impl #impl_generics #private::ToolCall<#self_ty> for #ty #where_clause {
                type Output = #output;
                const NAME: &'static ::core::primitive::str = #name;
                #replay
                async fn call(
                    self,
                    #flow: &#self_ty,
                    #cx: &#private::ToolCx,
                ) -> ::core::result::Result<Self::Output, #private::ToolError> {
                    use #private::returns::{
                        FailureA as _, FailureB as _, FailureC as _, FailureD as _,
                        ValueA as _, ValueB as _, ValueC as _, ValueD as _,
                    };
                    let #ident { #(#fields: #locals),* } = self;
                    let #returned = #call;
                    #convert
                }
            }
        });

        let work = quote! {
            #private::returns::answer(self, #cx, #ident { #(#fields: #locals),* }).await
        };
        let arm = Parts::arm(tool, head, private, &work);
        parts.arms.extend(arm);
    }
    let Parts { structs, calls, definitions, arms, .. } = parts;
    let prelude = prelude(tools);
    quote! {
        #structs

        const _: () = {
            #prelude
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
                        _ => ::core::result::Result::Err(
                            #private::signature::unknown(#key, &Self::definitions()),
                        ),
                    }
                }
            }
        };
    }
}
