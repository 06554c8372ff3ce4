use super::{ModelError, Sampling, Target};

impl Target {
    /// Refuses parameters that the provider does not take, whatever its model, by what its
    /// documentation says; the pages are named in the docs of [`provider`](super).
    pub(super) fn check_sampling(&self, sampling: &Sampling) -> Result<(), ModelError> {
        sampling.check(&self.model)?;
        let takes = self.service.takes;
        if sampling.temperature.is_some_and(|value| value > takes.temperature) {
            let most = takes.temperature;
            return self.refuse("temperature", format!("this provider takes 0 to {most}"));
        }
        if sampling.seed.is_some() && !takes.seed {
            return self.refuse("seed", "this provider has none; leave it out".to_owned());
        }
        if let (Some(effort), Some(words)) = (&sampling.reasoning_effort, takes.efforts) {
            let is_budget = takes.budget && effort.parse::<u32>().is_ok();
            if !is_budget && !words.contains(&effort.as_str()) {
                let budget = if takes.budget { ", or a number of tokens" } else { "" };
                let reason = format!("this provider knows {}{budget}", words.join(", "));
                return self.refuse("reasoning_effort", reason);
            }
        }
        Ok(())
    }

    fn refuse(&self, parameter: &str, reason: String) -> Result<(), ModelError> {
        let (model, parameter) = (self.model.clone(), parameter.to_owned());
        Err(ModelError::Parameter { model, parameter, reason })
    }
}

#[cfg(test)]
mod tests {
    use crate::model::provider::ProviderModel;
    use crate::model::{ChatModel as _, ModelError, Sampling};

    /// The parameter that a provider refuses.
    fn refused(provider: &str, sampling: &Sampling) -> Option<String> {
        let builder = ProviderModel::builder(provider, "m").key("k").base_url("http://localhost");
        match builder.build().unwrap().check_sampling(sampling) {
            Ok(()) => None,
            Err(ModelError::Parameter { parameter, model, .. }) => {
                assert_eq!(model, format!("{provider}::m"));
                Some(parameter)
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_provider_refuses_what_its_documentation_rules_out() {
        let none = Sampling::default;
        let effort = |word: &str| none().reasoning_effort(word);
        let table = [
            (none().temperature(1.5), "temperature", vec!["anthropic"]),
            (none().temperature(1.0), "temperature", vec![]),
            (none().seed(7), "seed", vec!["openai-responses", "anthropic"]),
            (effort("low"), "reasoning_effort", vec![]),
            (effort("none"), "reasoning_effort", vec!["deepseek"]),
            (
                effort("default"),
                "reasoning_effort",
                vec![
                    "openai",
                    "openai-responses",
                    "anthropic",
                    "gemini",
                    "openrouter",
                    "deepseek",
                    "xai",
                ],
            ),
            (
                effort("2048"),
                "reasoning_effort",
                vec!["openai", "openai-responses", "openrouter", "deepseek", "groq", "xai"],
            ),
            // What holds for all models.
            (none().top_p(2.0), "top_p", super::super::service::SERVICES.map(|s| s.name).to_vec()),
        ];
        for (sampling, parameter, refusing) in table {
            for service in super::super::service::SERVICES {
                let expected = refusing.contains(&service.name).then(|| parameter.to_owned());
                assert_eq!(
                    refused(service.name, &sampling),
                    expected,
                    "{}: {sampling:?}",
                    service.name
                );
            }
        }
    }

    #[test]
    fn a_refused_word_is_answered_with_the_known_ones() {
        let model = ProviderModel::builder("anthropic", "m").key("k").build().unwrap();
        let error =
            model.check_sampling(&Sampling::default().reasoning_effort("lots")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`anthropic::m` does not take the parameter `reasoning_effort`: this provider knows none, minimal, \
             low, medium, high, xhigh, max, or a number of tokens"
        );
    }
}
