use serde::{Deserialize, Serialize};

/// What a person has decided about a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "lowercase")]
pub enum Decision {
    /// Yes.
    Approved(Approved),
    /// No.
    Denied(Denied),
}

/// A request that was approved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approved {
    /// Who approved it; nothing when nobody said who they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, if a reason was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A request that was denied, or that nobody answered in time.
///
/// As an error it ends the run of the action, unless the action takes the
/// [decision](crate::step::Approve::decision) as a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("denied{}{}", shown(" by ", self.by.as_deref()), shown(": ", self.reason.as_deref()))]
pub struct Denied {
    /// Who denied it; nothing for a deadline that has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, if a reason was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

fn shown(before: &str, text: Option<&str>) -> String {
    text.map_or_else(String::new, |text| format!("{before}{text}"))
}

impl Decision {
    /// Whether it is a yes.
    pub fn is_approved(&self) -> bool {
        matches!(self, Self::Approved(_))
    }

    /// The approval, or the denial as an error.
    ///
    /// # Errors
    /// The denial.
    pub fn into_result(self) -> Result<Approved, Denied> {
        match self {
            Self::Approved(approved) => Ok(approved),
            Self::Denied(denied) => Err(denied),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_decision_is_written_flat_and_a_denial_says_who_and_why() {
        let denied = Denied { by: Some("eve".into()), reason: Some("too much".into()) };
        assert_eq!(denied.to_string(), "denied by eve: too much");
        assert_eq!(Denied::default().to_string(), "denied");
        let decision = Decision::Denied(denied);
        let written = json!({ "decision": "denied", "by": "eve", "reason": "too much" });
        assert_eq!(serde_json::to_value(&decision).unwrap(), written);
        assert_eq!(serde_json::from_value::<Decision>(written).unwrap(), decision);
    }
}
