//! What the actions of the script flow do, word by word, and the steps that run within them.

use flow_core::prelude::*;
use flow_core::step::BranchKey;

use super::{ActNext, Charge, Decline, Paid, Review, Script, Stall};

/// Does what its input says, within an action.
#[step(action, input = String, next(end))]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(super) struct Inner {
    text: String,
    notes: Vec<String>,
}

impl Action for Inner {
    type Flow = Script;

    async fn on_enter(&mut self, text: String, _: &mut StepCx<'_, Script>) -> Result<()> {
        self.text = text;
        Ok(())
    }

    async fn run(&mut self, cx: &mut ActionCx<'_, Script>) -> Result<InnerNext> {
        let text = self.text.clone();
        perform(&text, &mut self.notes, cx).await?;
        Ok(InnerNext::End("done".into()))
    }
}

/// Asks the user, within an action.
#[step(collect, next(end))]
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(super) struct Form {
    #[slot(one_of("Hamburg", "Lisbon"), ask = "Which city?")]
    city: Option<String>,
    #[slot(range(1, 8), ask = "How many guests?")]
    guests: Option<u8>,
}

impl Collect for Form {
    type Flow = Script;

    fn extracts(&self) -> bool {
        false
    }

    async fn complete(&mut self, data: FormData, cx: &mut StepCx<'_, Script>) -> Result<FormNext> {
        cx.state.notes.push(data.city);
        Ok(FormNext::End("complete".into()))
    }
}

/// What the user says to a question of the form.
pub(super) fn answer(question: &str) -> &'static str {
    match question {
        "Which city?" => "to Lisbon",
        "How many guests?" => "3",
        other => panic!("nobody answers `{other}`"),
    }
}

/// The words of a text, each with what is behind its colon or in its brackets.
fn words_of(text: &str) -> Vec<(&str, &str)> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let mut depth = 0;
        let end = rest.find(|c: char| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0 && c.is_whitespace()
        });
        let (word, left) = rest.split_at(end.unwrap_or(rest.len()));
        let bracket = word.split_once('(').filter(|(name, _)| !name.contains(':'));
        words.push(match bracket {
            Some((name, inner)) => (name, inner.strip_suffix(')').expect("brackets are closed")),
            None => word.split_once(':').unwrap_or((word, "")),
        });
        rest = left.trim_start();
    }
    words
}

type Performing<'a> = std::pin::Pin<Box<dyn Future<Output = Result<Option<ActNext>>> + Send + 'a>>;

/// Does what a text says, up to the word that leaves the step.
pub(super) fn perform<'a>(
    text: &'a str,
    notes: &'a mut Vec<String>,
    cx: &'a mut ActionCx<'_, Script>,
) -> Performing<'a> {
    Box::pin(async move {
        for (word, rest) in words_of(text) {
            match word {
                "note" => {
                    notes.push(rest.to_owned());
                    cx.state.notes.push(rest.to_owned());
                    cx.say(rest);
                }
                "charge" => {
                    let receipt = cx.tool(Charge { cents: rest.parse()? }).await?;
                    cx.say(receipt);
                }
                "decline" => match cx.tool(Decline {}).await {
                    Ok(text) => cx.say(text),
                    Err(error) => cx.say(format!("{}: {error}", error.code())),
                },
                "review" => {
                    cx.tool(Review {}).await?;
                }
                "stall" => cx.tool(Stall {}).await?,
                "insist" => {
                    cx.tool(Decline {}).await?;
                }
                "fail" if !cx.flow.works => return Err(StepError::new("as told")),
                "approve" => {
                    let approved = cx.approve("charge it").await?;
                    cx.say(format!("approved by {:?}", approved.by));
                }
                "ask" => {
                    let decision = cx.approve("may I?").decision().await?;
                    cx.say(format!("approved: {}", decision.is_approved()));
                }
                "sleep" => {
                    cx.sleep(std::time::Duration::from_secs(rest.parse()?)).await?;
                    cx.say("awake");
                }
                "hurry" => {
                    let limit = std::time::Duration::from_secs(60);
                    let request = flow_core::effect::ApprovalRequest::new("quick?").deadline(limit);
                    let decision = cx.approve(request).decision().await?;
                    cx.say(format!("approved in time: {}", decision.is_approved()));
                }
                "signal" => {
                    let Paid { cents } = cx.signal("paid").await?;
                    cx.say(format!("paid {cents}"));
                }
                "choose" => {
                    let color = cx.choose("which colour?", ["red", "blue"]).await?;
                    cx.say(color);
                }
                "run" => {
                    let done = cx.flow.done.clone();
                    let what = format!("run{rest}");
                    let count: u32 = cx
                        .run("count", || async move {
                            done.make(what).await;
                            Ok::<_, StepError>(7)
                        })
                        .await?;
                    cx.say(count.to_string());
                }
                "values" => {
                    let values = (cx.now().as_millis(), cx.uuid(), cx.random());
                    cx.flow.done.push(format!("values{rest} {values:?}"));
                }
                "both" => {
                    let (first, charge, second) = futures_util::join!(
                        cx.approve("first").decision(),
                        cx.tool(Charge { cents: 5 }),
                        cx.approve("second").decision(),
                    );
                    let text = (first?.is_approved(), charge?, second?.is_approved());
                    cx.say(format!("{text:?}"));
                }
                "pair" => {
                    let (first, second) = futures_util::join!(
                        cx.tool(Charge { cents: 70 }),
                        cx.tool(Charge { cents: 71 }),
                    );
                    cx.say(format!("{} {}", first?, second?));
                }
                "again" => return Ok(Some(ActNext::Act)),
                "over" => return Ok(Some(ActNext::Over)),
                "end" => return Ok(Some(ActNext::End("done".into()))),
                "step" => {
                    let inner: Inner = cx.run_step(rest.to_owned()).await?;
                    notes.extend(inner.notes);
                }
                "try" => match cx.run_step::<Inner>(rest.to_owned()).await {
                    Ok(inner) => notes.extend(inner.notes),
                    Err(error) => cx.say(format!("{}: {error}", error.code())),
                },
                "steps" => {
                    let policy = FailurePolicy::RetainSuccesses;
                    let mut branches = Branches::new().on_failure(policy);
                    let texts = rest.split('|');
                    let keys: Vec<BranchKey<Inner>> =
                        texts.map(|text| branches.add(text.to_owned())).collect();
                    let mut results = cx.run_steps(branches).await?;
                    for key in keys {
                        match results.take(key) {
                            Ok(inner) => notes.extend(inner.notes),
                            Err(error) => cx.say(format!("{}: {error}", error.code())),
                        }
                    }
                }
                "form" => {
                    let form: Form = cx.run_step(()).await?;
                    notes.push(format!("{form:?}"));
                }
                _ => {}
            }
        }
        Ok(None)
    })
}
