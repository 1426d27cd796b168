//! Text without characters that a terminal, a page or a spreadsheet obeys.

/// Escapes control characters, including line breaks, and those that change the direction of text, for names within a
/// text.
pub fn escape(name: impl std::fmt::Display) -> String {
    let mut escaped = String::new();
    for character in name.to_string().chars() {
        match character {
            '\n' => escaped += "\\n",
            '\t' => escaped += "\\t",
            '\r' => escaped += "\\r",
            obeyed if obeyed.is_control() || is_direction(obeyed) => {
                escaped += &format!("\\u{:04x}", u32::from(obeyed))
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// Whether a character changes the direction of the text around it, or is a line break of Unicode's.
fn is_direction(character: char) -> bool {
    matches!(character, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text for a cell of a table in a file. A spreadsheet takes what begins with certain characters for a formula; an
/// apostrophe before it makes it a text.
pub(crate) fn cell(text: &str) -> String {
    let text = escape(text);
    let is_formula = text.starts_with(['=', '+', '-', '@']) && text.parse::<f64>().is_err();
    if is_formula { format!("'{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_is_obeyed() {
        assert_eq!(escape("a\u{1b}[31m\n\u{9b}b"), "a\\u001b[31m\\n\\u009bb");
        assert_eq!(escape("cat\u{202e}gpj.exe\u{2066}\u{200f}"), "cat\\u202egpj.exe\\u2066\\u200f");
        assert_eq!(escape("Katze, 猫, عربي, 👩\u{200d}👩"), "Katze, 猫, عربي, 👩\u{200d}👩");
    }

    #[test]
    fn no_cell_is_a_formula() {
        for (text, want) in [
            ("=cmd|'/c calc'!A1", "'=cmd|'/c calc'!A1"),
            ("@SUM(1)", "'@SUM(1)"),
            ("+1+2", "'+1+2"),
            ("-2+3", "'-2+3"),
            ("\t=1", "\\t=1"),
            ("-2.5", "-2.5"),
            ("+3e-4", "+3e-4"),
            ("a=b", "a=b"),
            ("\u{1b}[1m", "\\u001b[1m"),
        ] {
            assert_eq!(cell(text), want);
        }
    }
}
