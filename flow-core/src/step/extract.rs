//! Fills a form from what the user said.

use serde_json::{Map, Value};

use super::generate::Failed;
use super::resolve::Resolved;
use super::structured::{FormShape, Offer, submit};
use super::{Collect, Resolver, Slot, StepCx};
use crate::event::{Event, Source};

/// The required slots that are empty.
pub(super) fn missing<S: Collect>(step: &S) -> Vec<&'static Slot> {
    let slots = S::slots().iter().enumerate();
    let empty = slots.filter(|(i, slot)| !slot.optional && step.get(*i).is_none());
    empty.map(|(_, slot)| slot).collect()
}

/// Adds slots to those that are asked for, each once.
pub(super) fn ask_also(
    mut asking: Vec<&'static Slot>,
    more: Vec<&'static Slot>,
) -> Vec<&'static Slot> {
    for slot in more {
        if !asking.iter().any(|other| std::ptr::eq(*other, slot)) {
            asking.push(slot);
        }
    }
    asking
}

/// One pass over a message.
struct Pass<'a, S> {
    step: &'a mut S,
    message: &'a str,
    sources: Vec<(String, Source)>,
    /// Slots for which the message could mean more than one value.
    ambiguous: Vec<&'static Slot>,
    /// The slot that took the whole message, so that no other reads it.
    whole: bool,
    /// Slots for which a model has given a value that they cannot have.
    refused: Vec<&'static Slot>,
}

/// Reads the user's message into the form. Returns the slots that have to be asked again,
/// since the message could mean more than one value for them.
pub(super) async fn fill<S: Collect>(
    step: &mut S,
    message: &str,
    cx: &mut StepCx<'_, S::Flow>,
) -> Result<Vec<&'static Slot>, Failed> {
    let slots = S::slots();
    let asked = std::mem::take(&mut cx.scope.asked_fields);
    let asked = match asked.as_slice() {
        [only] => slots.iter().position(|slot| slot.name == only),
        _ => None,
    };
    let message = message.trim();
    let (sources, ambiguous, refused) = (Vec::new(), Vec::new(), Vec::new());
    let mut pass = Pass { step, message, sources, ambiguous, whole: false, refused };
    pass.read(asked);
    let offers = pass.offers();
    if !offers.is_empty() && cx.scope.speaker.is_some() && pass.step.extracts() {
        let form = FormShape::of::<S>()?;
        let given = submit(cx.scope, &form, slots, &offers, message, S::DOC).await?;
        pass.merge(&form, offers, given);
    }
    let Pass { sources, ambiguous, refused, .. } = pass;

    if sources.is_empty() {
        let unclear = ambiguous.first().or(refused.first()).copied();
        let unclear = unclear.or_else(|| asked.map(|i| &slots[i]));
        if let Some(hint) = unclear.and_then(Slot::hint) {
            cx.feedback(hint);
        }
    }
    let name = cx.scope.step.clone();
    cx.scope.events.emit(|| {
        let values = slots.iter().enumerate();
        let collected: Map<String, Value> = values
            .filter_map(|(i, slot)| step.get(i).map(|value| (slot.name.to_owned(), value)))
            .collect();
        let missing = missing(step).iter().map(|slot| slot.name.to_owned()).collect();
        Event::CollectUpdate { step: name, collected, missing, sources }
    });
    Ok(ambiguous)
}

impl<S: Collect> Pass<'_, S> {
    fn read(&mut self, asked: Option<usize>) {
        let slots = S::slots();
        if let Some(i) = asked
            && matches!(slots[i].resolver, Some(Resolver::WholeMessage))
        {
            self.whole = true;
            if !self.message.is_empty() {
                self.set(i, Value::from(self.message));
            }
            return;
        }
        // A filled slot that was asked about is open again.
        let (empty, filled): (Vec<_>, Vec<_>) =
            (0..slots.len()).partition(|i| Some(*i) == asked || self.step.get(*i).is_none());

        let mut hits: Vec<(usize, Value)> = Vec::new();
        for i in empty {
            match slots[i].resolve(self.message) {
                Resolved::Value(value) => hits.push((i, value)),
                Resolved::Ambiguous => self.ambiguous.push(&slots[i]),
                Resolved::Nothing => {}
            }
        }
        // The slot that was asked for has the first claim on what was said; of two others,
        // neither has.
        let claimed = hits.iter().find(|(i, _)| Some(*i) == asked).map(|(_, value)| value.clone());
        for (i, value) in &hits {
            let shared = hits.iter().any(|(other, same)| other != i && same == value);
            if Some(*i) == asked || !shared {
                self.set(*i, value.clone());
            } else if claimed.as_ref() != Some(value) {
                self.ambiguous.push(&slots[*i]);
            }
        }
        if hits.is_empty() && self.ambiguous.is_empty() {
            self.correct(&filled);
        }
    }

    /// Overwrites the one filled slot that the message gives another value.
    fn correct(&mut self, filled: &[usize]) {
        let slots = S::slots();
        let mut changed: Vec<(usize, Option<Value>)> = Vec::new();
        for i in filled {
            match slots[*i].resolve(self.message) {
                Resolved::Value(value) => {
                    let before = self.step.get(*i);
                    if self.set(*i, value) && self.step.get(*i) != before {
                        changed.push((*i, before));
                    }
                }
                Resolved::Ambiguous => self.ambiguous.push(&slots[*i]),
                Resolved::Nothing => {}
            }
        }
        if changed.len() > 1 || !self.ambiguous.is_empty() {
            for (i, before) in changed {
                // A value that the slot had before reads as its type.
                let _ = self.step.set(i, before);
                self.ambiguous.push(&slots[i]);
            }
            self.sources.clear();
        } else {
            let changed: Vec<_> = changed.iter().map(|(i, _)| slots[*i].name).collect();
            self.sources =
                changed.iter().map(|name| ((*name).to_owned(), Source::Deterministic)).collect();
        }
    }

    /// What a model is asked to read from the message: nothing when the message is used up, or
    /// when it means more than one thing.
    fn offers(&self) -> Vec<Offer> {
        let slots = S::slots();
        let done = !self.sources.is_empty() && missing(self.step).is_empty();
        if self.whole || self.message.is_empty() || !self.ambiguous.is_empty() || done {
            return Vec::new();
        }
        let found = |i: usize| self.sources.iter().any(|(name, _)| name == slots[i].name);
        if let [(name, _)] = self.sources.as_slice()
            && let Some(i) = slots.iter().position(|slot| slot.name == name)
            && self.step.get(i).is_some_and(|value| says_only(self.message, &value))
        {
            return Vec::new();
        }
        let open = (0..slots.len()).filter(|i| !found(*i));
        open.map(|slot| Offer { slot, known: self.step.get(slot) }).collect()
    }

    /// Takes what a model has read from the message.
    fn merge(&mut self, form: &FormShape, offers: Vec<Offer>, mut given: Map<String, Value>) {
        for Offer { slot, known } in offers {
            let meta = &S::slots()[slot];
            let Some(value) = given.remove(meta.name) else { continue };
            let nothing =
                value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty());
            if nothing || known.as_ref() == Some(&value) {
                continue;
            }
            if meta.verbatim && !stands_in(self.message, &value) {
                continue;
            }
            if form.admits(slot, meta, &value) && self.step.set(slot, Some(value)).is_ok() {
                self.sources.push((meta.name.to_owned(), Source::Model));
            } else {
                // The user has said something else than what the slot holds. Clearing reads
                // nothing, so it cannot fail.
                let _ = self.step.set(slot, None);
                self.refused.push(meta);
            }
        }
    }

    /// Sets a slot, unless the value does not read as its type or is not the user's own.
    fn set(&mut self, slot: usize, value: Value) -> bool {
        let meta = &S::slots()[slot];
        if meta.verbatim && !stands_in(self.message, &value) {
            return false;
        }
        let fits = self.step.set(slot, Some(value)).is_ok();
        if fits {
            self.sources.push((meta.name.to_owned(), Source::Deterministic));
        }
        fits
    }
}

/// Whether all of a value stands in a message as it is.
fn stands_in(message: &str, value: &Value) -> bool {
    match value {
        Value::String(text) => message.contains(text.as_str()),
        Value::Array(items) => items.iter().all(|item| stands_in(message, item)),
        Value::Object(map) => map.values().all(|item| stands_in(message, item)),
        Value::Null => true,
        scalar => message.contains(&scalar.to_string()),
    }
}

/// Whether a message says a value and nothing else.
fn says_only(message: &str, value: &Value) -> bool {
    let letters = |text: &str| -> String {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    match value {
        Value::String(text) => letters(text) == letters(message),
        Value::Number(number) => letters(&number.to_string()) == letters(message),
        _ => false,
    }
}
