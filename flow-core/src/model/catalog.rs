use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{ChatModel, ModelError, ModelSelection};

/// Makes the models of one provider from their names.
type Provider = Arc<dyn Fn(&str) -> Result<Arc<dyn ChatModel>, ModelError> + Send + Sync>;

/// The models that an engine can select.
///
/// ```
/// use flow_core::model::ModelCatalog;
/// use flow_core::model::scripted::ScriptedModel;
///
/// let catalog = ModelCatalog::new().model("test::greeter", ScriptedModel::new().text("Hello!"));
/// assert!(catalog.find(&"test::greeter".parse()?).is_ok());
/// assert!(catalog.find(&"openai::gpt".parse()?).is_err());
/// # Ok::<(), flow_core::model::ModelSelectionError>(())
/// ```
#[derive(Clone, Default)]
pub struct ModelCatalog {
    models: BTreeMap<String, Arc<dyn ChatModel>>,
    providers: BTreeMap<String, Provider>,
}

impl ModelCatalog {
    /// No models.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a model under a selection `provider::name`.
    #[must_use]
    pub fn model(mut self, selection: impl Into<String>, model: impl ChatModel) -> Self {
        self.models.insert(selection.into(), Arc::new(model));
        self
    }

    /// Adds all models of a provider, made from their names when they are selected.
    #[must_use]
    pub fn provider(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&str) -> Result<Arc<dyn ChatModel>, ModelError> + Send + Sync + 'static,
    ) -> Self {
        self.providers.insert(name.into(), Arc::new(make));
        self
    }

    /// Finds the model of a selection. A model that was added by its whole selection comes
    /// before one of a provider.
    ///
    /// # Errors
    /// [`ModelError::Unknown`] with what is known, or what the provider says.
    pub fn find(&self, selection: &ModelSelection) -> Result<Arc<dyn ChatModel>, ModelError> {
        if let Some(model) = self.models.get(&selection.to_string()) {
            return Ok(model.clone());
        }
        if let Some(provider) = self.providers.get(selection.provider()) {
            return provider(selection.name());
        }
        let providers = self.providers.keys().map(|name| format!("{name}::*"));
        let known: Vec<String> = self.models.keys().cloned().chain(providers).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(ModelError::Unknown { model: selection.to_string(), known })
    }
}

impl fmt::Debug for ModelCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelCatalog")
            .field("models", &self.models.keys())
            .field("providers", &self.providers.keys())
            .finish()
    }
}
