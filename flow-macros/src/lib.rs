//! The attribute macros of `flow-core`: [`#[flow]`](macro@flow), [`#[step]`](macro@step),
//! [`#[tools]`](macro@tools) and [`#[tool]`](macro@tool).
//!
//! Use them through `flow_core::prelude`, which re-exports them. Everything that they write
//! can be written by hand with public traits: `FlowMeta`, `HasStep`, `Step`, `Form`,
//! `StepTools`, `FlowTools`, `ToolCall`.
//!
//! # What they promise
//!
//! * The struct or `impl` block that carries the attribute stays as it is; only the marks
//!   that nobody else understands (`#[slot]`, `#[tool]`, attributes on parameters) are gone.
//! * The expansion is in source order and the same each time, byte by byte.
//! * Generated code finds everything by absolute paths: a renamed dependency, no prelude, and
//!   types of the user named `Result` or `Box` do not disturb it. Where `flow-core` cannot be
//!   found through the manifest, every macro takes `crate = path`.
//! * After an error the item is still there, all errors of an item are reported at once, and
//!   what is generated is cut down so that few errors follow from them.
//!
//! # How they are built
//!
//! Attributes are read by hand with `syn`, without `darling`. Building `darling` takes about
//! 8.7 seconds of CPU time (measured on two cores), more than everything else that this crate
//! needs together, for what comes to two hundred lines here; and reading by hand goes on after
//! an error in the middle of a list, which is what reports all of them.
//!
//! Expansions are thin: arguments of tools are read by generic functions of `flow-core`. Only
//! a tool with `#[serde(..)]` or `#[schemars(..)]` on a parameter gets a struct with their
//! derives, which take most of the time that compiling a tool costs.

mod attributes;
mod context;
mod errors;
mod exposure;
mod flow;
mod generics;
mod method;
mod paths;
mod replay;
mod sampling;
mod slot;
mod step;
#[cfg(test)]
mod tests;
mod tools;

use proc_macro::TokenStream;

/// Makes a struct a flow: its names, its registry of steps, its tools.
///
/// ```
/// use flow_core::prelude::*;
///
/// /// Books a hotel room.
/// #[flow(
///     id = "hotel",
///     version = 2,
///     steps(Ask, Farewell),
///     state = Booking,
///     model = "openai::gpt-5.1-mini",
///     sampling(temperature = 0.2, extra(service_tier = "flex")),
///     tools,
/// )]
/// #[derive(Clone)]
/// pub struct Hotel;
///
/// impl Flow for Hotel {}
///
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// pub struct Booking {
///     pub room: Option<u32>,
/// }
///
/// #[tools(flow)]
/// impl Hotel {
///     /// Charges money.
///     #[tool]
///     async fn charge(&self, cents: u32) -> Result<u32> {
///         Ok(cents)
///     }
/// }
/// # #[step(reply, next(Farewell, stay))]
/// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// # pub struct Ask;
/// # impl Reply for Ask { type Flow = Hotel; }
/// # #[step(reply, next(end))]
/// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// # pub struct Farewell;
/// # impl Reply for Farewell { type Flow = Hotel; }
///
/// assert_eq!((Hotel::ID, Hotel::VERSION, Hotel::steps().len()), ("hotel", 2, 2));
/// ```
///
/// # Keys
///
/// | key | meaning | default |
/// | --- | --- | --- |
/// | `steps(A, B)` | the steps; a new session begins at the first | required |
/// | `id = ".."` | the persisted id; it outlives a rename of the struct | the struct's name |
/// | `version = 2` | the version of the session documents that this program writes, from 1 | 1 |
/// | `state = Type` | the state that all steps share | `()` |
/// | `model = "provider::name"` | the model that the steps ask | none |
/// | `sampling(..)` | the parameters of that model, see below | the provider's |
/// | `tools` | registers the `#[tools(flow)]` block | no tools |
/// | `crate = path` | where `flow-core` is | found through the manifest |
///
/// # Parameters of a model
///
/// `sampling(..)` takes literals, here and on [`#[step]`](macro@step):
///
/// | key | value |
/// | --- | --- |
/// | `temperature = 0.2` | a number from 0 to 2 |
/// | `top_p = 0.9` | a number above 0 and up to 1 |
/// | `max_output_tokens = 300` | a whole number from 1 |
/// | `reasoning_effort = "low"` | the provider's word |
/// | `seed = 7` | a whole number from 0 |
/// | `extra(service_tier = "flex", "top-k" = 40)` | whatever else the provider takes: texts, numbers, `true` and `false`; no credentials |
///
/// Whether the provider takes them is found once per turn, before its session is touched. The
/// parameters of a step that speaks through the flow's model go over the flow's, one by one.
///
/// The struct is `Clone`: each turn works on a copy. It may be generic, without lifetimes.
/// The doc comment becomes `FlowMeta::DOC`.
///
/// # Errors
///
/// Refused where they stand: an unknown key, no steps, a step listed twice, what is no step
/// of this flow, two steps that answer to one persisted name (for a flow without type
/// parameters), a model that is not `provider::name`, a parameter that there is not or that is
/// out of its range, parameters without a model.
#[proc_macro_attribute]
pub fn flow(attr: TokenStream, item: TokenStream) -> TokenStream {
    flow::expand(attr.into(), item.into()).into()
}

/// Makes a struct a step: its names, the enum of its ways out, and the form of a collect
/// step.
///
/// ```
/// use flow_core::prelude::*;
/// # #[flow(steps(Explore, Checkout, Confirm))]
/// # #[derive(Clone)]
/// # pub struct Hotel;
/// # impl Flow for Hotel {}
///
/// #[derive(Serialize, Deserialize)]
/// pub struct Choice {
///     pub room: u32,
/// }
///
/// /// Finds rooms with the guest.
/// #[step(reply, memory = "explore", alias("Browse"), next(Checkout(Choice), stay))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// pub struct Explore {
///     pub shown: Vec<u32>,
/// }
///
/// impl Reply for Explore {
///     type Flow = Hotel;
///
///     async fn on_response(
///         &mut self,
///         _: &str,
///         _: &mut StepCx<'_, Hotel>,
///     ) -> Result<Option<ExploreNext>> {
///         Ok(Some(ExploreNext::Checkout(Choice { room: 12 })))
///     }
/// }
///
/// #[step(collect, input = Choice, next(Confirm, stay, escalate))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// pub struct Checkout {
///     /// Full name, exactly as the guest wrote it.
///     #[slot(verbatim, whole_message)]
///     pub name: Option<String>,
///     #[slot(range(1, 8), ask = "How many guests?")]
///     pub guests: Option<u8>,
///     #[slot(one_of("card", "cash"), optional)]
///     pub payment: Option<String>,
///     /// Persists, and is no part of the form.
///     pub room: u32,
/// }
///
/// impl Collect for Checkout {
///     type Flow = Hotel;
///
///     // `CheckoutData { name: String, guests: u8, payment: Option<String> }`
///     async fn complete(
///         &mut self,
///         data: CheckoutData,
///         cx: &mut StepCx<'_, Hotel>,
///     ) -> Result<CheckoutNext> {
///         cx.say(format!("{} guests, {}", data.guests, data.name));
///         Ok(CheckoutNext::Confirm)
///     }
/// }
/// # #[step(action, next(end))]
/// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// # pub struct Confirm;
/// # impl Action for Confirm {
/// #     type Flow = Hotel;
/// #     async fn run(&mut self, _: &mut ActionCx<'_, Hotel>) -> Result<ConfirmNext> {
/// #         Ok(ConfirmNext::End("confirmed".into()))
/// #     }
/// # }
///
/// assert_eq!(Checkout::slots().len(), 3);
/// ```
///
/// # Keys
///
/// | key | meaning | default |
/// | --- | --- | --- |
/// | `reply`, `collect`, `action`, `decide` | the kind: which trait the step implements | one is required |
/// | `confirm` | beside `decide`: the step asks a question of yes or no, and implements `Confirm` | a step that implements `Decide` |
/// | `next(..)` | the ways out, see below | required |
/// | `input = Type` | the payload that the step is entered with | `()` |
/// | `tools` | registers the step's `#[tools]` block, which its model is always offered | no tools |
/// | `flow_tools` | the tools of the flow that the model of a reply step is offered too, see below | `closed` |
/// | `memory = ".."` | the namespace of the step's conversation | the flow's main one |
/// | `context = ..` | what the step sees of that conversation from before it was entered: `append` for all of it, `reset` for the latest message of the user, `reset_with_summary` for that and a summary, `last(6)` for the latest 6 messages | `append` |
/// | `model = "provider::name"` | the model that speaks for a reply step | the flow's |
/// | `sampling(..)` | the [parameters](macro@flow#parameters-of-a-model) of that model; not for actions | the flow's, if it is the flow's model |
/// | `id = ".."` | the persisted name; it outlives a rename of the struct | the struct's name |
/// | `alias("Old", ..)` | persisted names from before a rename | none |
/// | `crate = path` | where `flow-core` is | found through the manifest |
///
/// # Ways out
///
/// `next(..)` on a struct `Explore` makes `enum ExploreNext` with a variant for each entry, in
/// source order, as visible as the struct:
///
/// | entry | variant | what happens |
/// | --- | --- | --- |
/// | `Farewell`, `steps::Farewell` | `Farewell` | that step is entered |
/// | `Checkout(Choice)` | `Checkout(Choice)` | that step is entered with its `input` |
/// | `stay` | `Stay` | the step waits for the user |
/// | `end` | `End(String)` | the flow ends, for a reason |
/// | `hand_off` | `HandOff(HandOff)` | another flow of the engine takes the conversation over: `HandOff("billing".into())`, or `HandOff(HandOff::to::<Billing>(state))` |
/// | `escalate` | `Escalate(String)` | the session is parked for a person, for a reason |
///
/// The enum is generic in those parameters of the struct that its payloads mention.
///
/// # Tools of the flow
///
/// | form | the model is offered |
/// | --- | --- |
/// | `flow_tools = closed` | none of the flow's tools |
/// | `flow_tools = open` | all of them, those of a later version of the flow too |
/// | `flow_tools(Charge, FindHotel)` | these, by the structs that `#[tools(flow)]` makes for their calls |
///
/// A name that is no tool of the step's flow does not compile. The key is not called `tools`
/// because that one registers the step's own block. What the flow's `define_tools` takes out
/// is not offered, and `Reply::tools` has the last word.
///
/// # Slots
///
/// The fields of a collect step that are marked `#[slot]` are its form. Their type is
/// `Option<..>`, written by this name. The struct of the complete form, `CheckoutData` for
/// `Checkout`, has them without the `Option`, as visible as the fields are.
///
/// | key of `#[slot(..)]` | meaning |
/// | --- | --- |
/// | `optional` | the form is complete without it; it stays an `Option` |
/// | `verbatim` | its value stands in the user's message as it is |
/// | `ask = ".."` | the question that asks for it; default: the field's doc comment |
/// | `whole_message` | takes the message when it alone was asked for |
/// | `range(1, 8)` | a number, both bounds included |
/// | `one_of("card", "cash")` | one of these words, whatever their case |
/// | `pattern("#(\\d+)")` | what the one capture of a regular expression matches |
///
/// The last four say how the slot is read without a model; a slot has at most one of them. They
/// bind a model too, which reads what they do not find. A slot is persisted, and known to the
/// model, under the name that serde gives the field; the model is also told its doc comment and
/// what the JSON Schema of the step says about it.
///
/// # Errors
///
/// Refused where they stand: an unknown key, no kind, no way out, a target that the flow does
/// not list, a payload that is not the target's input, a tool that the flow does not have, a
/// slot that is no `Option`, two ways to read a slot, names that cannot be persisted. The step implements the trait of its kind and
/// derives `Default`, `Serialize`, `Deserialize` and `JsonSchema`.
#[proc_macro_attribute]
pub fn step(attr: TokenStream, item: TokenStream) -> TokenStream {
    step::expand(attr.into(), item.into()).into()
}

/// Makes the methods of an `impl` block that are marked [`#[tool]`](macro@tool) tools: of a
/// step, or with `#[tools(flow)]` of a flow.
///
/// A step or flow has one such block and registers it with the key `tools`. The methods stay
/// what they are and can be called as any other.
///
/// ```
/// use flow_core::prelude::*;
///
/// #[flow(steps(Explore, Book), tools)]
/// #[derive(Clone)]
/// pub struct Hotel;
///
/// impl Flow for Hotel {}
///
/// #[derive(Deserialize, JsonSchema)]
/// pub struct SearchQuery {
///     /// Where to look.
///     city: String,
/// }
///
/// #[step(reply, tools, next(Book(u32), stay))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// pub struct Explore {
///     seen: Vec<u32>,
/// }
///
/// impl Reply for Explore {
///     type Flow = Hotel;
/// }
///
/// #[tools]
/// impl Explore {
///     /// Searches free rooms in a city.
///     #[tool]
///     async fn search(
///         &mut self,
///         cx: &mut StepCx<'_, Hotel>,
///         query: SearchQuery,
///     ) -> Result<Vec<u32>> {
///         cx.say(format!("Looking in {} ...", query.city));
///         self.seen.push(12);
///         Ok(vec![12])
///     }
///
///     /// The guest chose a room.
///     #[tool]
///     fn choose(&mut self, room: u32) -> ExploreNext {
///         ExploreNext::Book(room)
///     }
/// }
///
/// #[tools(flow)]
/// impl Hotel {
///     /// Charges money.
///     #[tool]
///     pub async fn charge(
///         &self,
///         cx: &ToolCx,
///         /// In cents.
///         cents: u32,
///     ) -> Result<String> {
///         Ok(format!("{cents} charged, key {}", cx.idempotency_key()))
///     }
/// }
///
/// #[step(action, input = u32, next(end))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// pub struct Book;
///
/// impl Action for Book {
///     type Flow = Hotel;
///
///     async fn run(&mut self, cx: &mut ActionCx<'_, Hotel>) -> Result<BookNext> {
///         Ok(BookNext::End(cx.tool(Charge { cents: 12_000 }).await?))
///     }
/// }
///
/// let tools = <Explore as Step>::tools();
/// assert_eq!(tools[0].name, "search");
/// assert_eq!(tools[0].parameters["properties"]["city"]["description"], "Where to look.");
/// assert_eq!(tools[1].parameters["required"][0], "room");
/// ```
///
/// # Arguments
///
/// The first argument after `self` may borrow the context: `&mut StepCx<'_, F>` or
/// `&StepCx<'_, F>` in a step, `&ToolCx` in a flow. All others are what the model sends:
/// owned, `Deserialize` and `JsonSchema`. They are one JSON object. A single argument whose
/// own schema is an object with properties is that object; else it is a field of it under its
/// name. Documentation of an argument goes to the model; `#[serde(..)]` and `#[schemars(..)]`
/// may stand on it as on a field. An argument of type `Option` may be left out.
///
/// # Results
///
/// A tool of a step returns what is `Serialize`, the next-enum of its step, a `ToolOutcome` of
/// both, or a `Result` of one of these. The error is any `std::error::Error`, a `StepError`, a
/// text or what else becomes a boxed error. It is told apart by traits, so aliases are fine.
///
/// A tool of a flow returns what is `Serialize` and `Deserialize`, or a `Result` of it under a
/// name that ends in `Result`. It does not move the flow; the step that calls it does.
///
/// # Calls of a flow's tools
///
/// Each tool of a flow gets a struct that is a call of it, for `ActionCx::tool`: the tool
/// `charge` the struct `Charge`, as visible as the method, with its arguments as fields.
///
/// # Keys
///
/// | key | meaning |
/// | --- | --- |
/// | `flow` | the block is one of a flow |
/// | `crate = path` | where `flow-core` is |
///
/// # Errors
///
/// Refused where they stand: a block of a trait, no tool in it, a block that is not
/// registered, two tools with one name, what [`#[tool]`](macro@tool) refuses. A tool that
/// awaits something that is not `Send` is refused at its name, since a turn may move to
/// another thread while it waits.
#[proc_macro_attribute]
pub fn tools(attr: TokenStream, item: TokenStream) -> TokenStream {
    tools::expand(attr.into(), item.into()).into()
}

/// Marks a method inside a [`#[tools]`](macro@tools) block as a tool.
///
/// The doc comment is the description that the model reads; a tool needs one. A method takes
/// `&self` or `&mut self` (in a flow `&self`), may be `async`, has any visibility and any
/// `#[cfg]`, and is not generic.
///
/// ```
/// # use flow_core::prelude::*;
/// # #[flow(steps(Explore))] #[derive(Clone)] pub struct Hotel;
/// # impl Flow for Hotel {}
/// # #[step(reply, tools, next(stay))]
/// # #[derive(Default, Serialize, Deserialize, JsonSchema)] pub struct Explore;
/// # impl Reply for Explore { type Flow = Hotel; }
/// #[tools]
/// impl Explore {
///     #[tool(name = "count-rooms", description = "Counts the free rooms in a city.")]
///     fn count(&self, city: String, #[serde(default)] floor: Option<u8>) -> usize {
///         city.len() + usize::from(floor.unwrap_or_default())
///     }
/// }
///
/// let tool = &<Explore as Step>::tools()[0];
/// assert_eq!(tool.name, "count-rooms");
/// assert_eq!(tool.description, "Counts the free rooms in a city.");
/// ```
///
/// # Keys
///
/// | key | meaning | default |
/// | --- | --- | --- |
/// | `name = ".."` | the persisted name: 1 to 64 ASCII letters, digits, `_` and `-` | the method's name |
/// | `description = ".."` | what the tool does, for the model | the doc comment |
/// | `parallel` | its calls may run at the same time as others | one after another |
/// | `ask` | a person has to approve a call that a model asks for | none has to |
/// | `replay = ..` | of a flow's tool: what becomes of a call when the action that makes it runs again | `by_key` |
///
/// # Parallel tools
///
/// A model may ask for several calls at once. Neighbouring calls of parallel tools run at the
/// same time, all others in the order of the model. A parallel tool of a step takes `&self`,
/// and its context, if any, as `&StepCx<'_, F>`; it cannot move the flow. Results are told to
/// the model in the order of the calls, whatever finished first.
///
/// ```
/// # use flow_core::prelude::*;
/// # #[flow(steps(Explore))] #[derive(Clone)] pub struct Hotel;
/// # impl Flow for Hotel {}
/// # #[step(reply, tools, next(stay))]
/// # #[derive(Default, Serialize, Deserialize, JsonSchema)] pub struct Explore;
/// # impl Reply for Explore { type Flow = Hotel; }
/// #[tools]
/// impl Explore {
///     /// Tells the weather in a city.
///     #[tool(parallel)]
///     async fn weather(&self, cx: &StepCx<'_, Hotel>, city: String) -> Result<String> {
///         Ok(format!("{city}: sunny, asked in turn {}", cx.turn()))
///     }
///
///     /// Cancels the booking.
///     #[tool(ask)]
///     async fn cancel(&mut self) -> Result<()> {
///         Ok(())
///     }
/// }
///
/// let tools = <Explore as Step>::tools();
/// assert!(tools[0].parallel);
/// assert_eq!(tools[1].policy, ToolPolicy::Ask);
/// ```
///
/// # Approval
///
/// The policy of a tool is about calls that a model asks for; an action calls what its code
/// says. With `ask` the session waits until a person has approved or denied each such call
/// with `Engine::deliver`; then the model goes on with the results. `ToolPolicy::Ask` says what
/// is promised. `ask` sets the default, which the flow's `define_tools` changes for a turn and
/// `Reply::tool_policy` for a single call.
///
/// # Calls that are repeated
///
/// An action that was interrupted runs again from its beginning, and the recorded results of
/// its calls are given back. `replay` says what else a tool of a flow can bear:
///
/// | `replay` | a call without a recorded result is | for tools |
/// | --- | --- | --- |
/// | `by_key` | made again with the same idempotency key | that honour the key |
/// | `never` | not made again if it was begun: `EffectError::InDoubt` | that act, and have no key |
/// | `always` | made by each run, and its result is not recorded | that look something up |
///
/// `ToolReplay` says what is promised. It is about the calls of actions: a tool of a step, which
/// only models call, cannot have this key, and for the calls that models make of a flow's tools
/// it means nothing.
///
/// ```
/// # use flow_core::prelude::*;
/// # #[flow(steps(Pay), tools)] #[derive(Clone)] pub struct Desk;
/// # impl Flow for Desk {}
/// # #[step(action, next(end))]
/// # #[derive(Default, Serialize, Deserialize, JsonSchema)] pub struct Pay;
/// # impl Action for Pay {
/// #     type Flow = Desk;
/// #     async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<PayNext> {
/// #         let balance = cx.tool(Balance).await?;
/// #         cx.tool(Transfer { cents: 500 }).await?;
/// #         Ok(PayNext::End(format!("{balance} before")))
/// #     }
/// # }
/// #[tools(flow)]
/// impl Desk {
///     /// Transfers money through a bank that knows no idempotency keys.
///     #[tool(replay = never)]
///     async fn transfer(&self, cents: u32) -> Result<()> {
///         Ok(())
///     }
///
///     /// Looks up what is on the account now.
///     #[tool(replay = always)]
///     async fn balance(&self) -> u32 {
///         700
///     }
/// }
///
/// assert_eq!(Transfer::REPLAY, ToolReplay::Never);
/// ```
#[proc_macro_attribute]
pub fn tool(_: TokenStream, item: TokenStream) -> TokenStream {
    tools::stray(item.into()).into()
}
