//! What a turn does to the conversation: what is said, kept and told to listeners.

use std::sync::Arc;

use super::run::Run;
use crate::event::{Event, Rendered};
use crate::flow::Flow;
use crate::message::{Message, Part, Role};
use crate::step::Effect;

impl<F: Flow> Run<F> {
    /// Keeps a message in the memory of the current step.
    pub(super) fn record(&mut self, role: Role, parts: Vec<Part>) {
        let seq = self.ledger().doc().next_message + self.scope.unsaved.len() as u64;
        let message = Message { seq, role, parts, at: self.core.clock.now() };
        self.scope.unsaved.push((self.scope.namespace, message));
    }

    /// Keeps what was said in the memory of the current step.
    pub(super) fn record_message(&mut self, role: Role, text: String) {
        self.record(role, vec![Part::text(text)]);
    }

    /// Does to the conversation what the step has asked for, but what was done already.
    /// Returns how much that is of the run of an action, with what was done before.
    pub(super) fn flush_effects(&mut self) -> u32 {
        let step = self.scope.step.clone();
        // A run that goes on has no hooks before it, so theirs do not count.
        let mut hooks = self.before.as_ref().map_or(0, |before| before.hooks);
        let mut said = 0;
        for effect in std::mem::take(&mut self.scope.effects) {
            if effect.is_counted() && hooks > 0 {
                hooks -= 1;
            } else if effect.is_counted() {
                said += 1;
                if said <= self.scope.said {
                    continue;
                }
            }
            let step = step.clone();
            match effect {
                Effect::Relay { text, heard } => {
                    self.record_message(Role::Assistant, text.clone());
                    self.replies.push(text.clone());
                    if !heard {
                        let rendered = Rendered::Engine;
                        self.scope.events.emit(|| Event::Message { step, text, rendered });
                    }
                }
                Effect::Say { text, rendered } => {
                    self.record_message(Role::Assistant, text.clone());
                    self.replies.push(text.clone());
                    self.scope.events.emit(|| Event::Message { step, text, rendered });
                }
                Effect::Answer { parts, text } => {
                    self.record(Role::Assistant, parts);
                    self.tell_answer(step, text);
                }
                Effect::Aside(text) => self.tell_answer(step, text),
                Effect::Round { answer, text, results } => {
                    self.record(Role::Assistant, answer);
                    self.record(Role::Tool, results);
                    self.tell_answer(step, text);
                }
                Effect::Feedback(text) => {
                    self.replies.push(text.clone());
                    self.scope.events.emit(|| Event::Feedback { step, text });
                }
                Effect::Note(text) => {
                    self.scope.notes.push(text.clone());
                    self.scope.events.emit(|| Event::Note { step, text });
                }
                Effect::Ask(question) => {
                    self.record_message(Role::Assistant, question.text.clone());
                    self.replies.push(question.text.clone());
                    let text = question.text.clone();
                    self.scope.events.emit(|| Event::Message {
                        step,
                        text,
                        rendered: Rendered::Engine,
                    });
                    self.scope.events.emit(|| Event::Question(question.clone()));
                    self.question = Some(question);
                }
            }
        }
        self.scope.journal.pass_on();
        said.max(self.scope.said)
    }

    /// Says what a model has answered.
    fn tell_answer(&mut self, step: Arc<str>, text: String) {
        if !text.trim().is_empty() {
            self.replies.push(text.clone());
            let rendered = Rendered::Model;
            self.scope.events.emit(|| Event::Message { step, text, rendered });
        }
    }
}
