use std::collections::HashMap;

use proptest::prelude::*;

use super::words::{FILES, Kind, List, plain};
use super::{Answer, Language, answer, read_answer};
use Answer::{No, Unclear, Yes};

/// Checks a table, with all languages and with the given one alone.
fn check(language: Language, table: &[(&str, Answer)]) {
    for (message, expected) in table {
        assert_eq!(read_answer(message, Language::ALL), *expected, "`{message}` in any language");
        assert_eq!(read_answer(message, &[language]), *expected, "`{message}` in {language:?}");
    }
}

#[test]
fn english() {
    check(
        Language::English,
        &[
            ("yes", Yes),
            ("  YES!!! ", Yes),
            ("Y", Yes),
            ("yes please", Yes),
            ("Yes, that's right, thank you.", Yes),
            ("yeah sure", Yes),
            ("ok", Yes),
            ("ＯＫ！", Yes),
            ("I am sure", Yes),
            ("no problem", Yes),
            ("Sure, no problem at all", Yes),
            ("not a problem", Yes),
            ("go ahead", Yes),
            ("looks good to me", Yes),
            ("yes - go ahead", Yes),
            ("do it", Yes),
            ("no", No),
            ("No, thanks.", No),
            ("yes, no wait", No),
            ("yes no", No),
            ("no, no problem", No),
            ("no - problem", No),
            ("no, problem with the date", No),
            ("no — worries", No),
            ("No. 5 is wrong", No),
            ("not ok", No),
            ("that is not ok", No),
            ("Don't", No),
            ("don’t do it", No),
            ("don`t", No),
            ("dont", No),
            ("please do not", No),
            ("I can't agree", No),
            ("absolutely not", No),
            ("I disagree", No),
            ("No. Is there a cheaper one?", No),
            ("no, that's not what I want", No),
            ("yes?", Unclear),
            ("no?", Unclear),
            ("no...?", Unclear),
            ("ok!?", Unclear),
            ("ok?!", Unclear),
            ("is that ok?", Unclear),
            ("is that ok", Unclear),
            ("Why not", Unclear),
            ("what if I say no", Unclear),
            ("Yes. Does it cost more?", Unclear),
            ("yes ❓", Unclear),
            ("yes but change the date", Unclear),
            ("yes, Tuesday", Unclear),
            ("ok 3", Unclear),
            ("not sure", Unclear),
            ("I'm not sure, sorry", Unclear),
            ("I don't know", Unclear),
            ("yes or no", Unclear),
            ("yes, not sure", Unclear),
            ("not sure. no", No),
            ("maybe", Unclear),
            ("yes, cancel", Unclear),
            ("cancel", Unclear),
            ("thanks", Unclear),
            ("good morning", Unclear),
            ("yesterday", Unclear),
            ("know", Unclear),
            ("nothing", Unclear),
            ("42", Unclear),
        ],
    );
}

#[test]
fn german() {
    check(
        Language::German,
        &[
            ("ja", Yes),
            ("JA BITTE!", Yes),
            ("Ja, gerne.", Yes),
            ("na klar", Yes),
            ("natürlich", Yes),
            ("natu\u{308}rlich", Yes),
            ("kein Problem", Yes),
            ("Das ist richtig, danke", Yes),
            ("passt so", Yes),
            ("in Ordnung", Yes),
            ("auf jeden Fall", Yes),
            ("nein", No),
            ("Nein danke", No),
            ("nö", No),
            ("ja, nein, moment", No),
            ("nicht ok", No),
            ("das passt nicht", No),
            ("lieber nicht", No),
            ("auf keinen Fall", No),
            ("bitte nicht buchen", No),
            ("kein Interesse", No),
            ("ja?", Unclear),
            ("nicht wahr", Unclear),
            ("ist das richtig", Unclear),
            ("warum nicht", Unclear),
            ("ja, aber am Dienstag", Unclear),
            ("weiß nicht", Unclear),
            ("WEISS NICHT", Unclear),
            ("keine Ahnung", Unclear),
            ("jein", Unclear),
            ("Jahr", Unclear),
        ],
    );
}

#[test]
fn french() {
    check(
        Language::French,
        &[
            ("oui", Yes),
            ("Oui, s'il vous plaît.", Yes),
            ("oui merci", Yes),
            ("d’accord", Yes),
            ("D'ACCORD", Yes),
            ("bien sûr", Yes),
            ("bien su\u{302}r !", Yes),
            ("pas de problème", Yes),
            ("sans souci", Yes),
            ("c'est bon pour moi", Yes),
            ("tout à fait", Yes),
            ("vas-y", Yes),
            ("je confirme", Yes),
            ("non", No),
            ("Non merci", No),
            ("oui, euh non", No),
            ("ce n'est pas bon", No),
            ("je ne confirme pas", No),
            ("pas d'accord", No),
            ("pas du tout", No),
            ("bien sûr que non", No),
            ("hors de question", No),
            ("oui ?", Unclear),
            ("c'est bon, n'est-ce pas", Unclear),
            ("est-ce que c'est bon", Unclear),
            ("pourquoi pas", Unclear),
            ("je ne sais pas", Unclear),
            ("pas sûr", Unclear),
            ("oui mais demain", Unclear),
            ("si tu veux", Unclear),
            ("bonjour", Unclear),
        ],
    );
}

#[test]
fn spanish() {
    check(
        Language::Spanish,
        &[
            ("sí", Yes),
            ("SI", Yes),
            ("si\u{301}", Yes),
            ("sí, por favor", Yes),
            ("claro que sí", Yes),
            ("¡Por supuesto!", Yes),
            ("vale, gracias", Yes),
            ("de acuerdo", Yes),
            ("está bien", Yes),
            ("no hay problema", Yes),
            ("sin problema", Yes),
            ("adelante", Yes),
            ("no", No),
            ("no, gracias", No),
            ("sí, no, espera", No),
            ("no está bien", No),
            ("claro que no", No),
            ("de ninguna manera", No),
            ("todavía no", No),
            ("ni hablar", No),
            ("¿sí?", Unclear),
            ("sí. ¿cuánto cuesta?", Unclear),
            ("No. ¿Hay otro?", No),
            ("por qué no", Unclear),
            ("no sé", Unclear),
            ("no estoy seguro", Unclear),
            ("sí, pero el martes", Unclear),
            ("quizás", Unclear),
            ("como no", Unclear),
            ("siesta", Unclear),
        ],
    );
}

#[test]
fn portuguese() {
    check(
        Language::Portuguese,
        &[
            ("sim", Yes),
            ("Sim, por favor!", Yes),
            ("claro", Yes),
            ("com certeza", Yes),
            ("tá bom, obrigada", Yes),
            ("isso mesmo", Yes),
            ("está certo", Yes),
            ("pode confirmar", Yes),
            ("não tem problema", Yes),
            ("sem problemas", Yes),
            ("concordo", Yes),
            ("não", No),
            ("NÃO", No),
            ("na\u{303}o", No),
            ("nao obrigado", No),
            ("sim, não, espera", No),
            ("não está certo", No),
            ("de jeito nenhum", No),
            ("nem pensar", No),
            ("claro que não", No),
            ("sim?", Unclear),
            ("está certo, né", Unclear),
            ("por que não", Unclear),
            ("não sei", Unclear),
            ("não tenho certeza", Unclear),
            ("pode ser", Unclear),
            ("sim, mas na terça", Unclear),
            ("talvez", Unclear),
            ("ja\u{301}", Unclear),
        ],
    );
    // What fewer languages are good for.
    assert_eq!(read_answer("sim, no hotel", Language::ALL), No);
    assert_eq!(read_answer("sim, no hotel", &[Language::Portuguese]), Unclear);
}

#[test]
fn chinese() {
    check(
        Language::Chinese,
        &[
            ("是", Yes),
            ("是的，谢谢", Yes),
            ("好的。", Yes),
            ("好", Yes),
            ("對", Yes),
            ("可以", Yes),
            ("没问题", Yes),
            ("沒問題！", Yes),
            ("不错", Yes),
            ("没错", Yes),
            ("ok啦", Yes),
            ("我同意", Yes),
            ("那就这样吧", Unclear),
            ("就这样吧", Yes),
            ("不", No),
            ("不是", No),
            ("不可以", No),
            ("不好", No),
            ("不用了，谢谢", No),
            ("好的，不，等一下", No),
            ("不對", No),
            ("没有", No),
            ("我不同意", No),
            ("别", No),
            ("是吗", Unclear),
            ("可以吗", Unclear),
            ("好不好", Unclear),
            ("是不是", Unclear),
            ("好？", Unclear),
            ("不知道", Unclear),
            ("不确定", Unclear),
            ("好，但是改到周二", Unclear),
            ("可以，不过要改时间", Unclear),
            ("特别", Unclear),
            ("你好", Unclear),
            ("银行", Unclear),
        ],
    );
}

#[test]
fn japanese() {
    check(
        Language::Japanese,
        &[
            ("はい", Yes),
            ("はい、お願いします。", Yes),
            ("ええ", Yes),
            ("うん", Yes),
            ("そうです", Yes),
            ("オッケー", Yes),
            ("もちろんです！", Yes),
            ("問題ありません", Yes),
            ("問題ないです", Yes),
            ("いいですよ", Yes),
            ("はい、大丈夫です", Yes),
            ("それでお願いします", Yes),
            ("いいえ", No),
            ("いや", No),
            ("違います", No),
            ("だめです", No),
            ("はい、いや、違います", No),
            ("結構です", No),
            ("いりません", No),
            ("予約しない", No),
            ("よくありません", No),
            ("はい？", Unclear),
            ("だめですか", Unclear),
            ("かなり違います", No),
            ("いいですか", Unclear),
            ("いいでしょうか。", Unclear),
            ("なぜ", Unclear),
            ("いいです", Unclear),
            ("大丈夫です", Unclear),
            ("わかりません", Unclear),
            ("かもしれない", Unclear),
            ("はい、でも火曜日に", Unclear),
            ("すみません", Unclear),
            ("ノートで", Unclear),
        ],
    );
}

#[test]
fn hindi() {
    check(
        Language::Hindi,
        &[
            ("हाँ", Yes),
            ("हां", Yes),
            ("जी हाँ, धन्यवाद।", Yes),
            ("जी", Yes),
            ("ठीक है", Yes),
            ("बिल्कुल", Yes),
            ("ज़रूर", Yes),
            ("ज\u{93c}रूर", Yes),
            ("\u{95b}रूर", Yes),
            ("यह सही है", Yes),
            ("कोई दिक्कत नहीं", Yes),
            ("haan ji", Yes),
            ("नहीं", No),
            ("जी नहीं", No),
            ("हाँ, नहीं, रुको", No),
            ("ठीक नहीं है", No),
            ("बिल्कुल नहीं", No),
            ("मत करो", No),
            ("गलत", No),
            ("न", No),
            ("nahi", No),
            ("हाँ?", Unclear),
            ("क्या ठीक है", Unclear),
            ("ठीक है क्या", Unclear),
            ("ठीक नहीं क्या", Unclear),
            ("क्यों नहीं", Unclear),
            ("पता नहीं", Unclear),
            ("हाँ या नहीं", Unclear),
            ("हाँ, लेकिन मंगलवार को", Unclear),
            ("शायद", Unclear),
            ("न्यू", Unclear),
        ],
    );
}

#[test]
fn arabic() {
    check(
        Language::Arabic,
        &[
            ("نعم", Yes),
            ("نَعَمْ", Yes),
            ("نعـــم", Yes),
            ("نعم، من فضلك.", Yes),
            ("ايوه", Yes),
            ("أجل", Yes),
            ("موافق", Yes),
            ("أنا موافقة", Yes),
            ("بالتأكيد", Yes),
            ("حسنًا", Yes),
            ("لا مشكلة", Yes),
            ("لا مانع لدي", Yes),
            ("لا", No),
            ("لا، شكرا", No),
            ("كلا", No),
            ("نعم، لا، انتظر", No),
            ("غير موافق", No),
            ("ليس صحيحا", No),
            ("لست موافقا", No),
            ("مش موافق", No),
            ("ما أريد", No),
            ("أرفض", No),
            ("نعم؟", Unclear),
            ("هل هذا صحيح", Unclear),
            ("لماذا لا", Unclear),
            ("صحيح أليس كذلك", Unclear),
            ("لا أعرف", Unclear),
            ("لست متأكدا", Unclear),
            ("نعم ولكن غير التاريخ", Unclear),
            ("ربما", Unclear),
            ("نعم أو لا", Unclear),
        ],
    );
}

#[test]
fn signs_are_words_of_every_language() {
    for (message, expected) in [
        ("👍", Yes),
        ("👍🏽", Yes),
        ("👍👍🏿", Yes),
        ("✔️", Yes),
        ("yes 🙂🎉", Yes),
        ("sí 👍", Yes),
        ("👎", No),
        ("👎🏻", No),
        ("👍👎", No),
        ("yes 👎", No),
        ("🙅‍♀️", No),
        ("❌", No),
        ("🤔", Unclear),
        ("yes 🤷🏽‍♂️", Unclear),
        ("👍?", Unclear),
        ("👍 tuesday", Unclear),
        ("🙂", Unclear),
        ("", Unclear),
        (" \n\t ", Unclear),
        ("...", Unclear),
        ("?", Unclear),
        ("\u{301}", Unclear),
        ("yes\u{200d}", Yes),
        ("да", Unclear),
    ] {
        assert_eq!(read_answer(message, Language::ALL), expected, "`{message}`");
    }
}

#[test]
fn only_the_given_languages_count() {
    assert_eq!(read_answer("👍", &[]), Yes);
    assert_eq!(read_answer("yes", &[]), Unclear);
    assert_eq!(read_answer("yes", &[Language::German]), Unclear);
    assert_eq!(read_answer("ja", &[Language::German, Language::French]), Yes);
    assert_eq!(read_answer("oui", &[Language::German, Language::French]), Yes);
}

#[test]
fn an_option_is_the_same_whatever_its_case_and_punctuation() {
    for (message, option, same) in [
        ("Book it", "book it", true),
        (" BOOK-IT! ", "book it", true),
        ("予約。", "予約", true),
        ("book it?", "book it", false),
        ("book", "book it", false),
        ("", "", false),
        ("!", "!", false),
    ] {
        assert_eq!(answer::is_same(message, option), same, "`{message}` for `{option}`");
    }
}

fn lists() -> Vec<(Option<Language>, List)> {
    FILES.iter().map(|(language, file)| (*language, serde_json::from_str(file).unwrap())).collect()
}

#[test]
fn every_language_has_words_and_no_phrase_says_two_things() {
    let mut said: HashMap<Vec<char>, (Kind, Option<Language>)> = HashMap::new();
    let mut clashes = Vec::new();
    for (language, list) in lists() {
        for (kind, phrase) in list.phrases() {
            let (before, whose) = *said.entry(plain(phrase)).or_insert((kind, language));
            if before != kind {
                clashes.push(format!("`{phrase}`: {kind:?} {language:?}, {before:?} {whose:?}"));
            }
        }
    }
    assert!(clashes.is_empty(), "{clashes:#?}");
    for language in Language::ALL {
        assert!(FILES.iter().any(|(file, _)| *file == Some(*language)), "{language:?}");
    }
}

#[test]
fn every_phrase_is_found_as_what_it_is() {
    for (_, list) in lists() {
        for (kind, phrase) in list.phrases() {
            let expected = match kind {
                Kind::Affirm => Yes,
                Kind::Decline => No,
                Kind::Question | Kind::Tag | Kind::Unclear | Kind::Filler => Unclear,
            };
            assert_eq!(read_answer(phrase, Language::ALL), expected, "`{phrase}` of {kind:?}");
        }
    }
}

#[test]
fn long_messages_take_linear_time() {
    let message = "no problem, y no-one ".repeat(5_000);
    assert_eq!(read_answer(&message, Language::ALL), No);
    assert_eq!(read_answer(&"yes. ".repeat(20_000), Language::ALL), Yes);
    assert_eq!(read_answer(&"?!. ".repeat(20_000), Language::ALL), Unclear);
}

fn phrases_of(wanted: Kind) -> Vec<String> {
    lists()
        .iter()
        .flat_map(|(_, list)| list.phrases())
        .filter(|(kind, _)| *kind == wanted)
        .map(|(_, phrase)| phrase.clone())
        .collect()
}

/// Anything that a user may write between two commas.
fn clause() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(phrases_of(Kind::Affirm)),
        2 => prop::sample::select(phrases_of(Kind::Filler)),
        1 => prop::sample::select(phrases_of(Kind::Unclear)),
        1 => prop::sample::select(phrases_of(Kind::Question)),
        1 => "[^,]{0,12}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_word_that_declines_by_itself_is_never_a_yes(
        before in prop::collection::vec(clause(), 0..4),
        decline in prop::sample::select(phrases_of(Kind::Decline)),
        after in prop::collection::vec(clause(), 0..4),
        upper in any::<bool>(),
        comma in prop::sample::select(vec![", ", ". ", "\n", " - ", " — ", "! ", "、", "، "]),
    ) {
        let decline = if upper { decline.to_uppercase() } else { decline };
        let all: Vec<String> = before.into_iter().chain([decline]).chain(after).collect();
        let message = all.join(comma);
        prop_assert_ne!(read_answer(&message, Language::ALL), Yes, "`{}`", message);
    }

    #[test]
    fn what_is_not_known_is_never_a_yes(
        affirm in prop::sample::select(phrases_of(Kind::Affirm)),
        word in "[bcdfghjklmpqrstvwxz]{4,9}",
    ) {
        prop_assert_eq!(read_answer(&format!("{affirm} {word}"), Language::ALL), Unclear);
        prop_assert_eq!(read_answer(&format!("{word} {affirm}"), Language::ALL), Unclear);
    }

    #[test]
    fn a_question_is_never_a_yes(
        message in prop_oneof![".{0,40}", prop::sample::select(phrases_of(Kind::Affirm))],
        end in prop::sample::select(vec!["?", "??", " ?", "!?", "?!", "...?", "？", "؟", "❓"]),
    ) {
        let message = format!("{message}{end}");
        prop_assert_ne!(read_answer(&message, Language::ALL), Yes, "`{}`", message);
    }
}
