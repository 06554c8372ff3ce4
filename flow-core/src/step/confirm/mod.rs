//! Questions of yes or no: the step that asks one, and how its answer is read.
//!
//! Answers are read in code, without a model, with word lists by [`Language`].

mod answer;
#[cfg(test)]
mod tests;
mod words;

use std::future::Future;

use super::hooks::step_hooks;
use super::{Crossing, FlowMeta, Gate, Step, StepCx, kind};
use crate::error::Result;
use crate::session::Question;

pub use answer::{Answer, read_answer};

/// A language in which answers are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Language {
    /// English.
    English,
    /// German.
    German,
    /// French.
    French,
    /// Spanish.
    Spanish,
    /// Portuguese.
    Portuguese,
    /// Chinese, in simplified and traditional characters.
    Chinese,
    /// Japanese.
    Japanese,
    /// Hindi, in Devanagari and a little in Latin letters.
    Hindi,
    /// Arabic.
    Arabic,
}

impl Language {
    /// All languages.
    pub const ALL: &'static [Self] = &[
        Self::English,
        Self::German,
        Self::French,
        Self::Spanish,
        Self::Portuguese,
        Self::Chinese,
        Self::Japanese,
        Self::Hindi,
        Self::Arabic,
    ];
}

/// A step that asks a question of yes or no and branches on the answer, without a model:
/// `#[step(decide, confirm, ..)]`.
///
/// The question is asked whenever the step is entered, and only what the user says after it
/// is an answer: never the message that led to the step, not even one that
/// [`on_crossing`](Self::on_crossing) passes on. [`read_answer`] reads it, and one that is
/// exactly one of the [`options`](Self::options) always counts. An answer that is neither yes
/// nor no gets the [`hint`](Self::hint) and the question again; so does a
/// [`confirmed`](Self::confirmed) that stays, without the hint.
///
/// ```
/// use flow_core::prelude::*;
/// # #[flow(id = "f", steps(Check))] #[derive(Clone)] struct Desk;
/// # impl Flow for Desk {}
/// /// Lets the guest check the table before it is reserved.
/// #[step(decide, confirm, next(end))]
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Check;
///
/// impl Confirm for Check {
///     type Flow = Desk;
///
///     fn question(&self, _: &StepCx<'_, Desk>) -> String {
///         "A table for two at noon. Shall I reserve it?".into()
///     }
///
///     async fn confirmed(&mut self, yes: bool, _: &mut StepCx<'_, Desk>) -> Result<CheckNext> {
///         Ok(CheckNext::End(if yes { "reserved" } else { "dropped" }.into()))
///     }
/// }
/// ```
///
/// In a module whose own step is named `Confirm` the trait is `flow_core::step::Confirm`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is a confirm step but does not implement `Confirm`",
    note = "write `impl Confirm for {Self} {{ type Flow = ..; fn question(..) .. async fn confirmed(..) .. }}`"
)]
pub trait Confirm: Step<Kind = kind::Confirm> {
    /// The flow that the step belongs to.
    type Flow: FlowMeta;

    /// What the user is asked.
    fn question(&self, cx: &StepCx<'_, Self::Flow>) -> String;

    /// The answers to choose from, the one for yes first: the options of the [`Question`],
    /// which a page may show as buttons. Default: `yes` and `no`.
    fn options(&self, cx: &StepCx<'_, Self::Flow>) -> [String; 2] {
        let _ = cx;
        ["yes".into(), "no".into()]
    }

    /// What the user is told when the answer is unclear, before the question is asked again.
    /// By default it names the options, in English.
    fn hint(&self, cx: &StepCx<'_, Self::Flow>) -> String {
        let [yes, no] = self.options(cx);
        format!("Please answer with {yes} or {no}.")
    }

    /// The languages in which the answer is read. Fewer make fewer words unclear: "no" is
    /// English and declines, and in Portuguese it means "in the". Default: all.
    fn languages(&self) -> &[Language] {
        Language::ALL
    }

    /// How often a visit may ask before the session is escalated. Default: no limit.
    fn max_turns(&self) -> Option<u32> {
        None
    }

    /// Runs when the user has answered, and says where to go.
    fn confirmed(
        &mut self,
        yes: bool,
        cx: &mut StepCx<'_, Self::Flow>,
    ) -> impl Future<Output = Result<Self::Next>> + Send;

    step_hooks!();
}

/// What the step asks, with its options.
pub(super) fn question<S: Confirm>(step: &S, cx: &StepCx<'_, S::Flow>) -> Question {
    let options = step.options(cx).into();
    Question { options, ..Question::new(step.question(cx)) }
}

/// Reads the answer to the step's question.
pub(super) fn read<S: Confirm>(step: &S, message: &str, cx: &StepCx<'_, S::Flow>) -> Answer {
    let chosen = step.options(cx).map(|option| answer::is_same(message, &option));
    match chosen {
        [true, false] => Answer::Yes,
        [false, true] => Answer::No,
        _ => read_answer(message, step.languages()),
    }
}
