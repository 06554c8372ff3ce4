//! What the macros and the compiler refuse, and how they say it.
//!
//! `TRYBUILD=overwrite cargo test -p tests --test compile_fail` writes the messages anew;
//! read each before you commit it: plain words, at the right token, without follow-on errors.

#[test]
fn refusals_are_said_in_plain_words_at_the_right_token() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/fail/*.rs");
}
