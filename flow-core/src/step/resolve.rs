//! Reads values from what a user wrote, without a model and without guessing.
//!
//! A resolver gives a value only where a message can mean nothing else. Where it could mean
//! two things the result is [`Resolved::Ambiguous`], and the user is asked again.

use regex::Regex;
use serde_json::Value;

/// What a resolver found in a message.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Resolved {
    /// One value.
    Value(Value),
    /// More than one value that could be meant.
    Ambiguous,
    /// No value.
    Nothing,
}

/// Finds the one option that the message names, and gives it as it is declared.
///
/// Case does not matter, in any script. An option is found as whole words only: `card` is
/// not in `discard`. Options in scripts that do not put spaces between words, such as
/// Chinese or Thai, are found anywhere. Spaces, hyphens and `_` are the same. Where one
/// option contains another, the longer one is meant. Two options are ambiguous, and so is
/// an option after a word such as "not" or "without" in the same clause; negation is known
/// in English, German, French and Spanish, and only before the option.
///
/// ```
/// use flow_core::step::resolve::{Resolved, one_of};
///
/// let options = ["express", "express_plus"];
/// assert_eq!(one_of(&options, "Express plus!"), Resolved::Value("express_plus".into()));
/// assert_eq!(one_of(&options, "not express"), Resolved::Ambiguous);
/// ```
pub fn one_of(options: &[&str], message: &str) -> Resolved {
    let text = fold(message);
    let names: Vec<Vec<char>> = options.iter().map(|option| fold(option)).collect();
    let mut hits: Vec<Hit> = Vec::new();
    let mut reach = 0;
    for start in (0..text.len()).filter(|at| !is_inside_word(&text, *at)) {
        let named = |name: &[char]| {
            !name.is_empty()
                && text[start..].starts_with(name)
                && !is_inside_word(&text, start + name.len())
        };
        let longest = names.iter().filter(|name| named(name)).map(Vec::len).max().unwrap_or(0);
        let end = start + longest;
        // What an option before it contains is part of that one.
        if end <= reach {
            continue;
        }
        let here = names.iter().enumerate().filter(|(_, n)| n.len() == longest && named(n));
        hits.extend(here.map(|(option, _)| Hit { option, start, end }));
        reach = end;
    }
    let Some(first) = hits.first() else { return Resolved::Nothing };
    if hits.iter().any(|hit| hit.option != first.option) || is_negated(&text, &hits) {
        return Resolved::Ambiguous;
    }
    Resolved::Value(Value::from(options[first.option]))
}

/// Where an option stands in a message.
struct Hit {
    option: usize,
    start: usize,
    end: usize,
}

/// Words that turn what follows into its contrary.
const NEGATIONS: &[&str] = &[
    "not", "no", "non", "never", "neither", "nor", "none", "without", "except", "cannot", "dont",
    "doesnt", "didnt", "wont", "isnt", "cant", "nicht", "nie", "kein", "keine", "keinen", "keinem",
    "keiner", "ohne", "pas", "sans", "jamais", "sin", "nunca",
];

/// Whether a word of negation stands before one of the hits in its clause. Words that belong
/// to a hit do not count: the answer "no" is not a negation.
fn is_negated(text: &[char], hits: &[Hit]) -> bool {
    let mut negated = false;
    let mut at = 0;
    for hit in hits {
        while at < hit.start {
            let word: String = text[at..hit.start].iter().take_while(|c| is_word(**c)).collect();
            // "don't": the apostrophe is no part of a word, the "t" alone is what is left of it.
            negated |= NEGATIONS.contains(&word.as_str())
                || word == "t" && at >= 2 && text[at - 2..at] == ['n', '\''];
            negated &= !".,;:!?\n，。；：！？、".contains(text[at]);
            at += word.chars().count().max(1);
        }
        if negated {
            return true;
        }
        at = at.max(hit.end);
    }
    false
}

/// A text without the differences that do not matter: case, and which character separates
/// words.
pub(super) fn fold(text: &str) -> Vec<char> {
    let mut folded: Vec<char> = Vec::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => folded.push(c),
            '_' | '-' | '\u{2010}'..='\u{2015}' => folded.push(' '),
            '\u{2018}' | '\u{2019}' => folded.push('\''),
            // What is left of the Turkish dotted capital I.
            '\u{307}' => {}
            c if c.is_whitespace() => folded.push(' '),
            // By way of upper case, so that `ß` is `ss` and both small sigmas are one.
            c => folded
                .extend(c.to_uppercase().flat_map(char::to_lowercase).filter(|c| *c != '\u{307}')),
        }
    }
    folded.dedup_by(|next, last| *next == ' ' && *last == ' ');
    let end = folded.iter().rposition(|c| *c != ' ').map_or(0, |at| at + 1);
    let start = folded.iter().position(|c| *c != ' ').unwrap_or(end);
    folded[start..end].to_vec()
}

/// Whether a place in a text is between two characters of one word or number.
pub(super) fn is_inside_word(text: &[char], at: usize) -> bool {
    if at == 0 || at >= text.len() {
        return false;
    }
    let (before, after) = (text[at - 1], text[at]);
    let joins = |c: char| is_word(c) && !is_unspaced(c);
    let is_digit = |at: Option<&char>| at.is_some_and(char::is_ascii_digit);
    let decimal =
        (matches!(after, '.' | ',') && before.is_ascii_digit() && is_digit(text.get(at + 1)))
            || (matches!(before, '.' | ',')
                && after.is_ascii_digit()
                && at >= 2
                && is_digit(text.get(at - 2)));
    decimal || (joins(before) && joins(after))
}

/// Whether a character is part of a word; combining accents are, and what joins the
/// consonants of Indian scripts.
pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric()
        || matches!(c, '\u{300}'..='\u{36f}')
        // The nukta and the virama, at the same place in the block of each script.
        || matches!(c, '\u{900}'..='\u{d7f}') && matches!(u32::from(c) & 0x7f, 0x3c | 0x4d)
}

/// Whether a character is of a script that does not put spaces between words.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{e00}'..='\u{eff}'       // Thai, Lao
        | '\u{1000}'..='\u{109f}'   // Burmese
        | '\u{1780}'..='\u{17ff}'   // Khmer
        | '\u{3040}'..='\u{30ff}'   // Hiragana, Katakana
        | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{9fff}'   // Han
        | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}')
}

/// Finds the one number of the message, if it lies in the range; both bounds belong to it.
///
/// A whole number is given as a JSON integer, another as a JSON float. A number that is
/// written twice is one. Any second number makes the message ambiguous, also one outside
/// the range: in "12 guests, room 3" neither must be taken for the other. So `2-3`, `2 to 3`,
/// `10:30` and `1/2` are ambiguous.
///
/// Numbers are read as people write them:
/// * `1,200`, `1,200.50`, `1.200,50`, `1.200.300` and `1'200` have thousands separators;
/// * `1.200` and `1,5` are ambiguous, for they mean different numbers in different countries;
/// * a space separates two numbers, a no-break space separates thousands;
/// * digits that are joined to letters, as in `b2b`, `3rd`, `30m` and `covid-19`, are no numbers;
/// * a minus sign is one only at the start of a word;
/// * a number from 2^53 on is ambiguous, for it may not be exact;
/// * signs such as `%`, `€`, `#` and `+` are ignored; Arabic, Persian, Devanagari, Bengali,
///   Thai and full-width digits are digits.
///
/// Numbers in words are for a model.
///
/// ```
/// use flow_core::step::resolve::{Resolved, range};
///
/// assert_eq!(range(1.0, 8.0, "we are 3"), Resolved::Value(3.into()));
/// assert_eq!(range(1.0, 8.0, "2-3"), Resolved::Ambiguous);
/// assert_eq!(range(1.0, 8.0, "12"), Resolved::Nothing);
/// ```
pub fn range(min: f64, max: f64, message: &str) -> Resolved {
    let found = numbers(message);
    let within = |n: &Option<f64>| n.is_none_or(|n| (min..=max).contains(&n));
    if !found.iter().any(within) {
        return Resolved::Nothing;
    }
    match found.as_slice() {
        [Some(number), rest @ ..] if rest.iter().all(|other| *other == Some(*number)) => {
            Resolved::Value(to_json(*number))
        }
        _ => Resolved::Ambiguous,
    }
}

/// Integers below this, 2^53, are exact in `f64`.
const EXACT: f64 = 9_007_199_254_740_992.0;

fn to_json(number: f64) -> Value {
    if number.fract() == 0.0 { Value::from(number as i64) } else { Value::from(number) }
}

/// The numbers of a message; nothing in place of one that can be read in two ways.
fn numbers(message: &str) -> Vec<Option<f64>> {
    let text: Vec<char> = message.chars().map(as_ascii_digit).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < text.len() {
        if !is_joined(text[at]) {
            at += 1;
            continue;
        }
        let start = at;
        at = end_of_chunk(&text, start);
        let chunk = &text[start..at];
        if chunk.iter().any(|c| is_joined(*c) && !c.is_ascii_digit() || matches!(c, '_' | '@')) {
            continue;
        }
        let opens = |at: Option<usize>| at.is_none_or(|at| text[at].is_whitespace());
        let before = start.checked_sub(1).map(|at| text[at]);
        // ".5" at the start of a word.
        let bare = before == Some('.') && opens(start.checked_sub(2));
        let negative = matches!(before, Some('-' | '\u{2212}')) && is_sign(&text[..start - 1]);
        for (i, part) in chunk.split(|c| is_hyphen(*c)).enumerate() {
            let number = if bare && i == 0 { None } else { read_number(part) };
            found.push(number.map(|n| if negative && i == 0 { 0.0 - n } else { n }));
        }
    }
    found
}

/// Whether a hyphen after this text is a minus sign: not when it hangs on a word, another
/// hyphen or a number before it.
fn is_sign(before: &[char]) -> bool {
    let touches = before.last().is_some_and(|c| is_word(*c) || is_hyphen(*c) || *c == ')');
    let number = before.iter().rfind(|c| !c.is_whitespace()).is_some_and(char::is_ascii_digit);
    !touches && !number
}

fn is_hyphen(c: char) -> bool {
    matches!(c, '-' | '\u{2010}'..='\u{2015}' | '\u{2212}')
}

/// Whether a character takes digits beside it into its word.
fn is_joined(c: char) -> bool {
    is_word(c) && !is_unspaced(c)
}

/// Where the run of letters, digits and what joins them ends.
fn end_of_chunk(text: &[char], start: usize) -> usize {
    let mut at = start;
    while at < text.len() {
        let joined = is_joined(text[at])
            || at + 1 < text.len() && at > start && {
                let (before, after) = (text[at - 1], text[at + 1]);
                let digits = before.is_ascii_digit() && after.is_ascii_digit();
                match text[at] {
                    '.' | '_' | '@' => is_joined(before) && is_joined(after),
                    c if is_hyphen(c) => is_joined(before) && is_joined(after),
                    ',' | '\'' | '’' | '\u{a0}' | '\u{202f}' => digits,
                    _ => false,
                }
            };
        if !joined {
            break;
        }
        at += 1;
    }
    at
}

/// Reads digits with separators between them. Nothing where there are two readings or none.
fn read_number(text: &[char]) -> Option<f64> {
    let separators: Vec<char> = text.iter().copied().filter(|c| !c.is_ascii_digit()).collect();
    let groups: Vec<String> =
        text.split(|c| !c.is_ascii_digit()).map(|group| group.iter().collect()).collect();
    let (fraction, thousands) = match separators.as_slice() {
        [] => (None, None),
        // One dot is a decimal point, unless it could separate thousands.
        ['.'] if !are_thousands(&groups) => (groups.last(), None),
        ['.'] => return None,
        [all @ .., last] if !all.is_empty() && matches!(last, '.' | ',') && !all.contains(last) => {
            (groups.last(), all.first())
        }
        [first, ..] => (None, Some(first)),
    };
    let whole = &groups[..groups.len() - usize::from(fraction.is_some())];
    if let Some(thousands) = thousands {
        let count = whole.len() - 1;
        if separators[..count].iter().any(|c| c != thousands) || !are_thousands(whole) {
            return None;
        }
    }
    let whole = whole.concat();
    let number = match fraction {
        Some(fraction) => format!("{whole}.{fraction}"),
        None => whole,
    };
    number.parse().ok().filter(|n: &f64| *n < EXACT)
}

/// Whether groups of digits can be those of thousands: `1 200 300`, but not `0 200`.
fn are_thousands(groups: &[String]) -> bool {
    let [first, rest @ ..] = groups else { return false };
    (1..=3).contains(&first.len())
        && !first.starts_with('0')
        && rest.iter().all(|group| group.len() == 3)
}

/// A digit of a script that has its own, as ASCII; any other character as it is.
fn as_ascii_digit(c: char) -> char {
    // Arabic, Persian, Devanagari, Bengali, Thai, full-width.
    const ZEROS: [u32; 6] = [0x660, 0x6f0, 0x966, 0x9e6, 0xe50, 0xff10];
    let value = ZEROS.iter().find_map(|zero| u32::from(c).checked_sub(*zero).filter(|v| *v < 10));
    value.and_then(|value| char::from_digit(value, 10)).unwrap_or(c)
}

/// Finds the one text that the pattern captures. The same text captured twice is one; two
/// different ones are ambiguous.
///
/// ```
/// use flow_core::step::resolve::{Resolved, pattern};
///
/// let order = regex::Regex::new(r"#(\d+)").unwrap();
/// assert_eq!(pattern(&order, "where is #17?"), Resolved::Value("17".into()));
/// assert_eq!(pattern(&order, "#17 or #18"), Resolved::Ambiguous);
/// ```
pub fn pattern(regex: &Regex, message: &str) -> Resolved {
    let captures = regex.captures_iter(message).filter_map(|found| found.get(1));
    let mut texts = captures.map(|found| found.as_str()).filter(|text| !text.is_empty());
    match texts.next() {
        Some(first) if texts.all(|other| other == first) => Resolved::Value(Value::from(first)),
        Some(_) => Resolved::Ambiguous,
        None => Resolved::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::Resolved::{Ambiguous, Nothing};
    use super::*;
    use proptest::prelude::*;

    fn value(value: impl Into<Value>) -> Resolved {
        Resolved::Value(value.into())
    }

    #[test]
    fn options_that_are_named() {
        let pay: &[&str] = &["card", "Cash", "bank transfer", "gift-card", "pay_later"];
        let ship: &[&str] = &["standard", "express", "express plus"];
        let words: &[&str] = &["Größe", "Οδός", "İptal", "Да", "café"];
        let east: &[&str] = &["現金", "カード", "บัตร", "VISA"];
        let answer: &[&str] = &["yes", "no"];
        let sizes: &[&str] = &["1", "2", "1.5"];
        let code: &[&str] = &["C", "C++", "", "_"];
        for (options, message, expected) in [
            (pay, "card", value("card")),
            (pay, "By CARD, please.", value("card")),
            (pay, "cash!", value("Cash")),
            (pay, "discard it", Nothing),
            (pay, "cards", Nothing),
            (pay, "", Nothing),
            (pay, "a bank   transfer", value("bank transfer")),
            (pay, "bank-transfer", value("bank transfer")),
            (pay, "Bank_Transfer", value("bank transfer")),
            (pay, "gift card", value("gift-card")),
            (pay, "gift card or card", Ambiguous),
            (pay, "I pay later", value("pay_later")),
            (pay, "pay-later", value("pay_later")),
            (pay, "pay_later", value("pay_later")),
            (pay, "card or cash", Ambiguous),
            (pay, "card, yes: card", value("card")),
            (ship, "express plus", value("express plus")),
            (ship, "EXPRESS", value("express")),
            (ship, "express, or express plus", Ambiguous),
            (ship, "not express", Ambiguous),
            (ship, "I don't want express", Ambiguous),
            (ship, "don’t send it by express", Ambiguous),
            (ship, "without express", Ambiguous),
            (ship, "not express, standard", Ambiguous),
            (ship, "no, standard", value("standard")),
            (ship, "I am not in a hurry. Standard", value("standard")),
            (ship, "bitte nicht express", Ambiguous),
            (ship, "I want express", value("express")),
            (answer, "no", value("no")),
            (answer, "No, no!", value("no")),
            (answer, "no thanks", value("no")),
            (answer, "I know", Nothing),
            (answer, "yes and no", Ambiguous),
            (words, "GRÖSSE", value("Größe")),
            (words, "ΟΔΌΣ", value("Οδός")),
            (words, "οδός", value("Οδός")),
            (words, "iptal", value("İptal")),
            (words, "да!", value("Да")),
            (words, "дай", Nothing),
            (words, "CAFÉ", value("café")),
            (words, "cafés", Nothing),
            (&["न"], "न", value("न")),
            (&["न"], "न्यू", Nothing),
            (east, "我要用現金付款", value("現金")),
            (east, "カードで", value("カード")),
            (east, "จ่ายด้วยบัตรครับ", value("บัตร")),
            (east, "用visa卡", value("VISA")),
            (east, "現金かカード", Ambiguous),
            (sizes, "1", value("1")),
            (sizes, "12", Nothing),
            (sizes, "1.5", value("1.5")),
            (sizes, "2.5", Nothing),
            (sizes, "number 2.", value("2")),
            (sizes, "1-2", Ambiguous),
            (code, "C++", value("C++")),
            (code, "in C", value("C")),
            (code, "_", Nothing),
            (&[], "card", Nothing),
        ] {
            assert_eq!(one_of(options, message), expected, "`{message}` of {options:?}");
        }
    }

    #[test]
    fn long_messages_take_linear_time() {
        let message = "a b, ".repeat(50_000);
        assert_eq!(one_of(&["a b", "b, a", "c"], &message), Ambiguous);
        assert_eq!(one_of(&["a"], &message), value("a"));
        assert_eq!(range(1.0, 8.0, &"3-".repeat(50_000)), value(3));
    }

    #[test]
    fn an_accent_that_is_a_character_of_its_own_is_part_of_the_word() {
        assert_eq!(one_of(&["cafe"], "cafe\u{301}"), Nothing);
    }

    #[test]
    fn numbers_in_a_range() {
        for (min, max, message, expected) in [
            (1.0, 8.0, "3", value(3)),
            (1.0, 8.0, "we are 3.", value(3)),
            (1.0, 8.0, "1", value(1)),
            (1.0, 8.0, "8", value(8)),
            (1.0, 8.0, "9", Nothing),
            (1.0, 8.0, "three", Nothing),
            (1.0, 8.0, "", Nothing),
            (1.0, 8.0, "3 3", value(3)),
            (1.0, 8.0, "3, no, 4", Ambiguous),
            (1.0, 8.0, "2-3", Ambiguous),
            (1.0, 8.0, "2 - 3", Ambiguous),
            (1.0, 8.0, "2–3", Ambiguous),
            (1.0, 8.0, "2 -3", Ambiguous),
            (1.0, 8.0, "2 to 3", Ambiguous),
            (-8.0, 8.0, "2-3", Ambiguous),
            (1.0, 8.0, "12 guests, room 3", Ambiguous),
            (1.0, 8.0, "1/2", Ambiguous),
            (1.0, 12.0, "10:30", Ambiguous),
            (1.0, 31.0, "2026-12-24", Ambiguous),
            (1.0, 31.0, "24.12.2026", Ambiguous),
            (1.0, 8.0, "2.5", value(2.5)),
            (1.0, 8.0, "2.0", value(2)),
            (1.0, 8.0, "2,5", Ambiguous),
            (1.0, 8.0, "2, 5", Ambiguous),
            (1.0, 8.0, "yes,3,thanks", value(3)),
            (1.0, 8.0, "guests:3", value(3)),
            (1.0, 8.0, ".5", Ambiguous),
            (0.0, 8.0, "0.125", value(0.125)),
            (-8.0, 8.0, "-3", value(-3)),
            (-8.0, 8.0, "−3.5 °C", value(-3.5)),
            (-8.0, 8.0, "(-3)", value(-3)),
            (-8.0, 8.0, "- 3", value(3)),
            (-8.0, 8.0, "-0", value(0)),
            (1.0, 8.0, "-3", Nothing),
            (1.0, 8.0, "b2b", Nothing),
            (1.0, 8.0, "the 3rd", Nothing),
            (1.0, 300.0, "221b", Nothing),
            (1.0, 30.0, "covid-19", Nothing),
            (1.0, 8.0, "a 3-star hotel", Nothing),
            (1.0, 8.0, "2-3pm", Nothing),
            (1.0, 8.0, "v1.2.3", Nothing),
            (1.0, 8.0, "me@2.example", Nothing),
            (1.0, 8.0, "1e5", Nothing),
            (1.0, 8.0, "2½", Nothing),
            (0.0, 100.0, "20%", value(20)),
            (0.0, 100.0, "€20", value(20)),
            (0.0, 100.0, "20€", value(20)),
            (0.0, 100.0, "$ 20.50", value(20.5)),
            (1.0, 8.0, "#5", value(5)),
            (1.0, 8.0, "No.5", Nothing),
            (1.0, 8.0, "No. 5", value(5)),
            (1.0, 8.0, "+5", value(5)),
            (1.0, 5e6, "1,200", value(1200)),
            (1.0, 5e6, "1,200.50", value(1200.5)),
            (1.0, 5e6, "1.200,50", value(1200.5)),
            (1.0, 5e6, "1,200,300", value(1_200_300)),
            (1.0, 5e6, "1.200.300", value(1_200_300)),
            (1.0, 5e6, "1'200", value(1200)),
            (1.0, 5e6, "1\u{a0}200", value(1200)),
            (1.0, 5e6, "1 200", Ambiguous),
            (1.0, 5e6, "1.200", Ambiguous),
            (1.0, 5e6, "1234.500", value(1234.5)),
            (0.0, 5e6, "0,200", Ambiguous),
            (1.0, 5e6, "1,20,300", Ambiguous),
            (1.0, 5e6, "1,200.300.400", Ambiguous),
            (1.0, 8.0, "٣", value(3)),
            (1.0, 8.0, "３人です", value(3)),
            (1.0, 8.0, "我们3个人", value(3)),
            (0.0, 1e300, "9007199254740993", Ambiguous),
            (0.0, 1e300, "123456789012345678901234567890", Ambiguous),
            (f64::NAN, 8.0, "3", Nothing),
        ] {
            assert_eq!(range(min, max, message), expected, "`{message}` in {min}..={max}");
        }
        let endless = "9".repeat(400);
        assert_eq!(range(0.0, f64::MAX, &endless), Ambiguous);
    }

    #[test]
    fn captures() {
        let order = Regex::new(r"#(\d+)").unwrap();
        let optional = Regex::new(r"room(?: (\w+))?").unwrap();
        let empty = Regex::new("x(y*)").unwrap();
        for (regex, message, expected) in [
            (&order, "#17", value("17")),
            (&order, "#17, again #17", value("17")),
            (&order, "#17 and #18", Ambiguous),
            (&order, "17", Nothing),
            (&optional, "room", Nothing),
            (&optional, "a room, room 12b", value("12b")),
            (&empty, "x", Nothing),
        ] {
            assert_eq!(pattern(regex, message), expected, "`{message}` by {regex}");
        }
    }

    proptest! {
        #[test]
        fn one_of_gives_a_declared_option(
            options in prop::collection::vec("[a-cß_ 0-9İ語-]{0,4}", 0..5),
            message in prop_oneof![".{0,40}", "[a-cßnot'_ 0-9.,İ語-]{0,40}"],
        ) {
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            if let Resolved::Value(found) = one_of(&options, &message) {
                prop_assert!(options.iter().any(|option| found == **option));
            }
        }

        #[test]
        fn an_option_alone_names_itself(option in "[a-zäöß語]{1,6}", case in any::<bool>()) {
            let message = if case { option.to_uppercase() } else { option.clone() };
            prop_assert_eq!(one_of(&[&option, "zzzzzzzz"], &message), value(option));
        }

        #[test]
        fn range_gives_a_number_within(
            bounds in (-100.0..100.0, -100.0..100.0_f64),
            message in prop_oneof![".{0,40}", "[0-9a., '€–\u{a0}-]{0,24}"],
        ) {
            if let Resolved::Value(found) = range(bounds.0, bounds.1, &message) {
                let found = found.as_f64().unwrap();
                prop_assert!((bounds.0..=bounds.1).contains(&found));
            }
        }

        #[test]
        fn a_number_alone_is_read(number in -1_000_000_i64..1_000_000) {
            prop_assert_eq!(range(-1e6, 1e6, &number.to_string()), value(number));
        }

        #[test]
        fn pattern_gives_a_part_of_the_message(message in ".{0,40}") {
            let regex = Regex::new(r"(\w+)\s*$").unwrap();
            if let Resolved::Value(found) = pattern(&regex, &message) {
                prop_assert!(message.contains(found.as_str().unwrap()));
            }
        }
    }
}
