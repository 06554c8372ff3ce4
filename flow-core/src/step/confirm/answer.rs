//! Reads yes or no from what a user wrote.

use super::Language;
use super::words::{Kind, Words, plain, words};
use crate::step::resolve::{is_inside_word, is_word};

/// What a user has answered to a question of yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// All of the message agrees.
    Yes,
    /// The message declines.
    No,
    /// Neither, or a question, or agreement with something else beside it.
    Unclear,
}

/// Reads yes or no from a message, without a model and without guessing.
///
/// * A word that declines, or a negation, makes it [`No`](Answer::No), whatever else is there:
///   "yes, no, wait", "not ok", "please don't".
/// * A question is [`Unclear`](Answer::Unclear): "yes?", "is that ok". It ends with a question
///   mark, or a word that asks, such as "why", stands at either end of it. Another sentence of the message may
///   still decline: "No. Is there a cheaper one?"
/// * It is [`Yes`](Answer::Yes) when something agrees and nothing else is said but courtesies
///   such as "please" and "thank you". A word that is not in the lists is something else:
///   "yes, but change the date" is unclear, and so is "yes, Tuesday".
/// * All the rest is unclear, silence too.
///
/// The longest phrase counts: "no problem" agrees, and "not sure" neither agrees nor declines.
/// Words such as "cancel" and "stop" say yes to one question and no to another, so they are in
/// no list. Case, punctuation and other symbols do not matter; thumbs up, thumbs down and their
/// like are words of every language.
///
/// ```
/// use flow_core::step::confirm::{Answer, Language, read_answer};
///
/// let read = |message| read_answer(message, Language::ALL);
/// assert_eq!(read("Yes, please!"), Answer::Yes);
/// assert_eq!(read("kein Problem 👍"), Answer::Yes);
/// assert_eq!(read("はい、違います"), Answer::No);
/// assert_eq!(read("¿sí?"), Answer::Unclear);
/// ```
pub fn read_answer(message: &str, languages: &[Language]) -> Answer {
    let words = words();
    let text = plain(message);
    let (mut agrees, mut asks, mut strays) = (false, false, false);
    for sentence in sentences(&text) {
        let found = scan(words, sentence.text, languages);
        let opens = found.first() == Some(&Some(Kind::Question));
        let closes = matches!(found.last(), Some(Some(Kind::Question | Kind::Tag)));
        if sentence.asks || opens || closes {
            asks = true;
            continue;
        }
        if found.contains(&Some(Kind::Decline)) {
            return Answer::No;
        }
        agrees |= found.contains(&Some(Kind::Affirm));
        strays |= found.iter().any(|kind| !matches!(kind, Some(Kind::Affirm | Kind::Filler)));
    }
    if agrees && !asks && !strays { Answer::Yes } else { Answer::Unclear }
}

/// Whether a message is these words and nothing else but punctuation.
pub(super) fn is_same(message: &str, words: &str) -> bool {
    let trim = |text: &str| -> Vec<char> {
        let text = plain(text);
        let is_end = |c: &&char| !matches!(c, '.' | '!' | '。' | ' ');
        text[..text.iter().rposition(|c| is_end(&c)).map_or(0, |at| at + 1)].to_vec()
    };
    let words = trim(words);
    !words.is_empty() && trim(message) == words
}

struct Sentence<'a> {
    text: &'a [char],
    /// Whether a question mark stands at either end.
    asks: bool,
}

/// The sentences of a text. What ends one may be a run of marks: "ok!?" is a question.
fn sentences(text: &[char]) -> Vec<Sentence<'_>> {
    let mut sentences = Vec::new();
    let (mut start, mut asks) = (0, false);
    while start < text.len() {
        let is_mark = |c: &char| is_question_mark(*c) || ".!;\n。؛।…".contains(*c);
        let len = text[start..].iter().position(is_mark).unwrap_or(text.len() - start);
        let end = start + len;
        let run = text[end..].iter().take_while(|c| is_mark(c) || **c == ' ').count();
        let marks = &text[end..end + run];
        // An inverted mark belongs to the sentence that follows.
        let opening = marks.iter().position(|c| *c == '¿').unwrap_or(run);
        asks |= marks[..opening].iter().any(|c| is_question_mark(*c));
        sentences.push(Sentence { text: &text[start..end], asks });
        asks = opening < run;
        start = end + run;
    }
    sentences
}

fn is_question_mark(c: char) -> bool {
    matches!(c, '?' | '¿' | '؟' | '⁇' | '⁈' | '⁉' | '❓' | '❔')
}

/// The phrases of a sentence in order; nothing in place of a word that is not known.
fn scan(words: &Words, text: &[char], languages: &[Language]) -> Vec<Option<Kind>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        if let Some((kind, len)) = words.longest(&text[at..], languages, |len| {
            !is_inside_word(text, at) && !is_inside_word(text, at + len)
        }) {
            found.push(Some(kind));
            at += len;
        } else if is_word(text[at]) {
            found.push(None);
            at += 1;
            while is_inside_word(text, at) {
                at += 1;
            }
        } else {
            at += 1;
        }
    }
    found
}
