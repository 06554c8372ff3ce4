use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A model, selected as `provider::name`.
///
/// ```
/// use flow_core::model::ModelSelection;
///
/// let model: ModelSelection = "openai::gpt-5.1-mini".parse()?;
/// assert_eq!(model.provider(), "openai");
/// assert_eq!(model.name(), "gpt-5.1-mini");
/// assert!("gpt-5.1-mini".parse::<ModelSelection>().is_err());
/// # Ok::<(), flow_core::model::ModelSelectionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModelSelection {
    provider: String,
    name: String,
}

/// A text that does not select a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not of the form `provider::name`")]
pub struct ModelSelectionError(pub String);

impl ModelSelection {
    /// The provider, e.g. `openai`.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The provider's name of the model.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for ModelSelection {
    type Err = ModelSelectionError;

    fn from_str(text: &str) -> Result<Self, ModelSelectionError> {
        match text.split_once("::") {
            Some((provider, name)) if !provider.trim().is_empty() && !name.trim().is_empty() => {
                Ok(Self { provider: provider.trim().to_owned(), name: name.trim().to_owned() })
            }
            _ => Err(ModelSelectionError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for ModelSelection {
    type Error = ModelSelectionError;

    fn try_from(text: String) -> Result<Self, ModelSelectionError> {
        text.parse()
    }
}

impl From<ModelSelection> for String {
    fn from(model: ModelSelection) -> Self {
        model.to_string()
    }
}

impl fmt::Display for ModelSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.provider, self.name)
    }
}
