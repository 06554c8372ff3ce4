/// The most characters of a name that all providers take.
pub(crate) const MAX_NAME: usize = 64;

/// A name in snake case, of the characters that all providers take in the name of a tool.
pub(crate) fn snake(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut snake = String::with_capacity(name.len());
    for (i, c) in chars.iter().enumerate() {
        if !c.is_ascii_alphanumeric() {
            snake.push('_');
            continue;
        }
        let before = i.checked_sub(1).map_or('_', |at| chars[at]);
        let after = chars.get(i + 1);
        let begins_word = before.is_ascii_lowercase()
            || before.is_ascii_digit()
            || before.is_ascii_uppercase() && after.is_some_and(char::is_ascii_lowercase);
        if c.is_ascii_uppercase() && begins_word {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_parted_where_a_reader_parts_them() {
        for (name, expected) in [
            ("Checkout", "checkout"),
            ("TravelDates", "travel_dates"),
            ("HTTPRequest", "http_request"),
            ("Step2Form", "step2_form"),
            ("check-out.form", "check_out_form"),
            ("Größe", "gr__e"),
            ("Vec<Row>", "vec_row_"),
        ] {
            assert_eq!(snake(name), expected);
        }
    }
}
