use serde::{Deserialize, Serialize};

use super::{ModelSelection, Sampling};

/// A model and the parameters of its calls.
///
/// ```
/// use flow_core::model::{ModelConfig, ModelSelection, Sampling};
///
/// let model: ModelSelection = "openai::gpt-5.1-mini".parse()?;
/// let config = ModelConfig::new(model).sampling(Sampling::default().temperature(0.2));
/// assert_eq!(config.sampling.temperature, Some(0.2));
/// # Ok::<(), flow_core::model::ModelSelectionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ModelConfig {
    /// The model.
    pub model: ModelSelection,
    /// How it picks its words. Default: as the provider does.
    #[serde(default)]
    pub sampling: Sampling,
}

impl ModelConfig {
    /// A model with the parameters that its provider chooses.
    pub fn new(model: ModelSelection) -> Self {
        Self { model, sampling: Sampling::default() }
    }

    /// Sets the parameters.
    #[must_use]
    pub fn sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = sampling;
        self
    }

    /// This config with the parameters of another one under its own, if both select the same
    /// provider and name; else as it is. How two sets of parameters merge is said by
    /// [`Sampling::over`].
    #[must_use]
    pub fn over(self, base: &Self) -> Self {
        if self.model != base.model {
            return self;
        }
        let sampling = self.sampling.over(&base.sampling);
        Self { sampling, ..self }
    }
}

impl From<ModelSelection> for ModelConfig {
    fn from(model: ModelSelection) -> Self {
        Self::new(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(model: &str, sampling: Sampling) -> ModelConfig {
        ModelConfig::new(model.parse().unwrap()).sampling(sampling)
    }

    #[test]
    fn parameters_merge_field_by_field_and_only_for_one_model() {
        let none = Sampling::default;
        let base = || {
            none()
                .temperature(0.9)
                .top_p(0.8)
                .max_output_tokens(100)
                .reasoning_effort("high")
                .seed(1)
                .extra("a", json!({ "x": 1 }))
                .extra("b", 1)
        };
        let table = [
            // What the step says, what the flow says, what comes of it.
            ("p::n", none(), base(), base()),
            ("p::n", base(), none(), base()),
            ("p::n", none().temperature(0.0), base(), base().temperature(0.0)),
            ("p::n", none().top_p(0.1), base(), base().top_p(0.1)),
            ("p::n", none().max_output_tokens(7), base(), base().max_output_tokens(7)),
            ("p::n", none().reasoning_effort("low"), base(), base().reasoning_effort("low")),
            ("p::n", none().seed(0), base(), base().seed(0)),
            (
                "p::n",
                none().extra("b", 2).extra("c", 3),
                base(),
                base().extra("b", 2).extra("c", 3),
            ),
            // An object is one value.
            (
                "p::n",
                none().extra("a", json!({ "y": 2 })),
                base(),
                base().extra("a", json!({ "y": 2 })),
            ),
            // Another name or another provider starts from nothing.
            ("p::other", none().seed(2), base(), none().seed(2)),
            ("other::n", none().seed(2), base(), none().seed(2)),
            ("other::n", none(), base(), none()),
        ];
        for (model, step, flow, merged) in table {
            let got = config(model, step).over(&config("p::n", flow));
            assert_eq!(got, config(model, merged));
        }
    }

    #[test]
    fn a_config_is_read_from_data() {
        let read: ModelConfig = serde_json::from_value(json!({ "model": "p::n" })).unwrap();
        assert_eq!(read, config("p::n", Sampling::default()));
        let wrong = json!({ "model": "p::n", "samplings": {} });
        assert!(serde_json::from_value::<ModelConfig>(wrong).is_err());
    }
}
