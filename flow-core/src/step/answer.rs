use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Scope;
use super::effect::{Wait, read};
use crate::effect::{Approved, Begun, Decision, Denied, Request};
use crate::error::{Result, StepError};
use crate::session::{Display, EffectKind, EffectOutcome};

/// A request for approval, to be awaited.
///
/// ```
/// # use flow_core::prelude::*;
/// # use flow_core::effect::Decision;
/// # #[flow(id = "f", steps(Pay))] #[derive(Clone)] struct Desk;
/// # impl Flow for Desk {}
/// # #[step(action, next(end))]
/// # #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// # struct Pay;
/// # impl Action for Pay {
/// # type Flow = Desk;
/// # async fn run(&mut self, cx: &mut ActionCx<'_, Desk>) -> Result<PayNext> {
/// cx.approve("charge 120 euros").await?; // a denial ends the run, see `Action::on_denied`
/// match cx.approve("ship at once").decision().await? {
///     Decision::Approved(_) => cx.say("It ships at once."),
///     Decision::Denied(denied) => cx.say(format!("It ships later: {denied}.")),
/// }
/// # Ok(PayNext::End("paid".into()))
/// # }
/// # }
/// ```
#[must_use = "nobody is asked before it is awaited"]
pub struct Approve<'a> {
    pub(super) scope: &'a Scope,
    pub(super) begun: Result<Begun, StepError>,
    pub(super) request: Request,
}

impl Approve<'_> {
    /// The decision as a value: a denial is not an error.
    ///
    /// # Errors
    /// When the journal says something else.
    pub async fn decision(self) -> Result<Decision> {
        let Request { display, deadline, approve_on_expiry, operation } = self.request;
        let reason = Some("nobody decided before the deadline".to_owned());
        let expired = if approve_on_expiry {
            Decision::Approved(Approved { by: None, reason })
        } else {
            Decision::Denied(Denied { by: None, reason })
        };
        let name = display.title.clone();
        let wait = Wait {
            kind: EffectKind::Approval,
            name: name.clone(),
            display,
            allowed: vec!["approved".to_owned(), "denied".to_owned()],
            response_schema: None,
            deadline,
            on_expiry: deadline
                .map(|_| serde_json::to_value(expired).map(EffectOutcome::Value))
                .transpose()?,
            operation,
        };
        let value = self.scope.wait(self.begun?, wait).await?;
        read(&name, value)
    }
}

impl<'a> IntoFuture for Approve<'a> {
    type Output = Result<Approved>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Approved>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.decision().await?.into_result()?) })
    }
}

impl fmt::Debug for Approve<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approve").field("request", &self.request).finish_non_exhaustive()
    }
}

/// A signal, choice or input that is waited for, to be awaited.
#[must_use = "nobody is asked before it is awaited"]
pub struct Answer<'a, T> {
    scope: &'a Scope,
    begun: Result<Begun, StepError>,
    wait: Wait,
    value: PhantomData<fn() -> T>,
}

impl<'a, T: DeserializeOwned> Answer<'a, T> {
    pub(super) fn new(
        scope: &'a Scope,
        kind: EffectKind,
        name: &str,
        allowed: Vec<String>,
        response_schema: Option<Value>,
    ) -> Self {
        let begun = scope.begin(kind, name, None);
        let display = Display { title: name.to_owned(), description: String::new() };
        let wait = Wait {
            kind,
            name: name.to_owned(),
            display,
            allowed,
            response_schema,
            deadline: None,
            on_expiry: None,
            operation: None,
        };
        Self { scope, begun, wait, value: PhantomData }
    }

    /// Says more to the person who is asked.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.wait.display.description = text.into();
        self
    }

    /// How long it is waited for. After that it is the error
    /// [`EffectError::Expired`](crate::error::EffectError::Expired). Default: for ever.
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.wait.deadline = Some(limit);
        self
    }
}

impl<'a, T: DeserializeOwned + 'a> IntoFuture for Answer<'a, T> {
    type Output = Result<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { scope, begun, wait, .. } = self;
        Box::pin(async move {
            let name = wait.name.clone();
            read(&name, scope.wait(begun?, wait).await?)
        })
    }
}

impl<T> fmt::Debug for Answer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("name", &self.wait.name).finish_non_exhaustive()
    }
}
