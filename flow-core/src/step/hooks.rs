/// Where a flow comes from when it arrives at a step.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Crossing<'a> {
    /// The step that was left.
    pub from: &'a str,
    /// What the user said in this turn, consumed by an earlier step or not.
    pub message: Option<&'a str>,
}

impl<'a> Crossing<'a> {
    pub(crate) fn new(from: &'a str, message: Option<&'a str>) -> Self {
        Self { from, message }
    }
}

/// What a step's own gate says about a transition out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gate {
    /// The transition is made.
    Pass,
    /// The flow holds its position, the user is told this text, and the step waits.
    Hold(String),
}

/// The hooks that steps of all kinds have, with their defaults.
macro_rules! step_hooks {
    () => {
        /// Runs when a new session begins at this step, before [`on_enter`](Self::on_enter).
        fn on_start(
            &mut self,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> impl Future<Output = Result<()>> + Send {
            let _ = cx;
            std::future::ready(Ok(()))
        }

        /// Runs when a stored session is taken up again and stands at this step.
        fn on_restore(
            &mut self,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> impl Future<Output = Result<()>> + Send {
            let _ = cx;
            std::future::ready(Ok(()))
        }

        /// Runs when the flow enters the step, with the payload of the transition. A step
        /// that declares `input` keeps here what it needs of it.
        fn on_enter(
            &mut self,
            input: Self::Input,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> impl Future<Output = Result<()>> + Send {
            let _ = (input, cx);
            std::future::ready(Ok(()))
        }

        /// Runs when the flow leaves the step for another, once the transition has passed
        /// [`verify`](Self::verify).
        fn on_exit(
            &mut self,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> impl Future<Output = Result<()>> + Send {
            let _ = cx;
            std::future::ready(Ok(()))
        }

        /// What the step receives as fresh user input when the flow arrives from another
        /// step. By default nothing: a message is consumed by one step.
        fn on_crossing(
            &mut self,
            crossing: Crossing<'_>,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> impl Future<Output = Result<Option<String>>> + Send {
            let _ = (crossing, cx);
            std::future::ready(Ok(None))
        }

        /// The step's own gate: runs before a transition out of the step is made. By
        /// default every transition passes.
        fn verify(
            &mut self,
            next: &Self::Next,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> impl Future<Output = Result<Gate>> + Send {
            let _ = (next, cx);
            std::future::ready(Ok(Gate::Pass))
        }
    };
}

/// The hook that steps of the kinds that may ask a model have, with its default.
macro_rules! model_hook {
    () => {
        /// Runs when the model of the step gave no answer, or refused, and may answer, leave
        /// the step or ask another model once. Default: the flow is asked
        /// ([`Flow::on_model_error`](crate::flow::Flow::on_model_error)).
        fn on_model_error(
            &mut self,
            error: &ModelError,
            cx: &mut StepCx<'_, Self::Flow>,
        ) -> impl Future<Output = Result<Recovery<Self::Next>>> + Send {
            let _ = (error, cx);
            std::future::ready(Ok(Recovery::Pass))
        }
    };
}

pub(super) use {model_hook, step_hooks};
