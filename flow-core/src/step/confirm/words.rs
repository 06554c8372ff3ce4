//! The words that agree, decline and ask, by language.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde::Deserialize;

use super::Language;
use crate::step::resolve::fold;

/// What a phrase says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Yes.
    Affirm,
    /// No, or the contrary of what stands beside it.
    Decline,
    /// Asks, where it begins or ends a sentence.
    Question,
    /// Asks, where it ends a sentence.
    Tag,
    /// Neither yes nor no, though a part of it alone would be.
    Unclear,
    /// A courtesy, or a word that says nothing by itself.
    Filler,
}

/// A file of phrases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    affirm: Vec<String>,
    decline: Vec<String>,
    question: Vec<String>,
    tag: Vec<String>,
    unclear: Vec<String>,
    filler: Vec<String>,
}

impl List {
    pub(super) fn phrases(&self) -> impl Iterator<Item = (Kind, &String)> {
        let lists = [
            (Kind::Affirm, &self.affirm),
            (Kind::Decline, &self.decline),
            (Kind::Question, &self.question),
            (Kind::Tag, &self.tag),
            (Kind::Unclear, &self.unclear),
            (Kind::Filler, &self.filler),
        ];
        lists.into_iter().flat_map(|(kind, list)| list.iter().map(move |phrase| (kind, phrase)))
    }
}

/// The files; without a language what all share.
pub(super) const FILES: [(Option<Language>, &str); 10] = [
    (None, include_str!("words/shared.json")),
    (Some(Language::English), include_str!("words/english.json")),
    (Some(Language::German), include_str!("words/german.json")),
    (Some(Language::French), include_str!("words/french.json")),
    (Some(Language::Spanish), include_str!("words/spanish.json")),
    (Some(Language::Portuguese), include_str!("words/portuguese.json")),
    (Some(Language::Chinese), include_str!("words/chinese.json")),
    (Some(Language::Japanese), include_str!("words/japanese.json")),
    (Some(Language::Hindi), include_str!("words/hindi.json")),
    (Some(Language::Arabic), include_str!("words/arabic.json")),
];

struct Phrase {
    text: Vec<char>,
    kind: Kind,
    language: Option<Language>,
}

/// All phrases by their first character, the longest first.
pub(super) struct Words(HashMap<char, Vec<Phrase>>);

/// The phrases of all files, read once.
pub(super) fn words() -> &'static Words {
    static WORDS: OnceLock<Words> = OnceLock::new();
    WORDS.get_or_init(Words::read)
}

impl Words {
    fn read() -> Self {
        let mut phrases: HashMap<char, Vec<Phrase>> = HashMap::new();
        for (language, file) in FILES {
            // A file that is part of the program; the tests read all of them.
            let list: List = serde_json::from_str(file).expect("a word list is read");
            for (kind, phrase) in list.phrases() {
                let text = plain(phrase);
                if let Some(first) = text.first() {
                    phrases.entry(*first).or_default().push(Phrase { text, kind, language });
                }
            }
        }
        for phrases in phrases.values_mut() {
            phrases.sort_by_key(|phrase| std::cmp::Reverse(phrase.text.len()));
        }
        Self(phrases)
    }

    /// The longest phrase with which a text begins, and its length.
    pub(super) fn longest(
        &self,
        text: &[char],
        languages: &[Language],
        ends: impl Fn(usize) -> bool,
    ) -> Option<(Kind, usize)> {
        let phrases = self.0.get(text.first()?)?;
        let found = phrases.iter().find(|phrase| {
            phrase.language.is_none_or(|language| languages.contains(&language))
                && text.starts_with(&phrase.text)
                && ends(phrase.text.len())
        })?;
        Some((found.kind, found.text.len()))
    }
}

/// A text without differences of writing: what [`fold`] takes away, and full-width letters,
/// marks that are left out as often as they are written, and the ways to write an apostrophe.
pub(super) fn plain(text: &str) -> Vec<char> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // Zero-width characters, variants of emoji and skin tones, Arabic vowel signs and
            // tatweel, the nukta of Devanagari.
            '\u{200b}'..='\u{200f}' | '\u{61c}' | '\u{feff}' | '\u{fe00}'..='\u{fe0f}' => {}
            '\u{1f3fb}'..='\u{1f3ff}' | '\u{640}' | '\u{64b}'..='\u{65f}' | '\u{670}' => {}
            '\u{93c}' => {}
            '\u{300}'..='\u{36f}' => match plain.pop().map(|base| (base, compose(base, c))) {
                Some((_, Some(letter))) => plain.push(letter),
                Some((base, None)) => plain.extend([base, c]),
                None => {}
            },
            '\u{ff01}'..='\u{ff5e}' => {
                plain.extend(char::from_u32(u32::from(c) - 0xff01 + u32::from('!')));
            }
            '`' | '´' | '\u{2bc}' => plain.push('\''),
            // A dash between words is a pause, a hyphen within one is not.
            '\u{2012}'..='\u{2015}' => plain.push(','),
            '-' if plain.ends_with(char::is_whitespace)
                || chars.peek().is_some_and(|next| next.is_whitespace()) =>
            {
                plain.push(',');
            }
            'أ' | 'إ' | 'آ' | 'ٱ' => plain.push('ا'),
            'ى' | 'ی' => plain.push('ي'),
            'ة' => plain.push('ه'),
            'ँ' => plain.push('ं'),
            '\u{958}'..='\u{95f}' => plain.push(without_nukta(c)),
            c => plain.push(c),
        }
    }
    fold(&plain)
}

/// The letter that a Latin letter and an accent make.
fn compose(base: char, accent: char) -> Option<char> {
    const MARKS: [char; 6] = ['\u{300}', '\u{301}', '\u{302}', '\u{303}', '\u{308}', '\u{327}'];
    const LETTERS: [(char, &str); 8] = [
        ('a', "àáâãä-"),
        ('e', "èéê-ë-"),
        ('i', "ìíî-ï-"),
        ('o', "òóôõö-"),
        ('u', "ùúû-ü-"),
        ('n', "---ñ--"),
        ('c', "-----ç"),
        ('y', "-ý----"),
    ];
    let mark = MARKS.iter().position(|mark| *mark == accent)?;
    let (_, letters) = LETTERS.iter().find(|(plain, _)| *plain == base.to_ascii_lowercase())?;
    letters.chars().nth(mark).filter(|letter| *letter != '-')
}

/// A Devanagari letter with a nukta of its own, without it.
fn without_nukta(c: char) -> char {
    const BASES: [char; 8] = ['क', 'ख', 'ग', 'ज', 'ड', 'ढ', 'फ', 'य'];
    u32::from(c)
        .checked_sub(0x958)
        .and_then(|at| usize::try_from(at).ok())
        .and_then(|at| BASES.get(at).copied())
        .unwrap_or(c)
}
