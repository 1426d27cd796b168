//! Parsing of the labels in shards.

use serde_json::Value;

/// Longer texts are not names of classes.
const MAX_NAME_BYTES: usize = 256;

/// A sample's label as the shard has it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Label {
    /// The sample has no label.
    None,
    /// A class's number.
    Number(u32),
    /// A class's name.
    Name(String),
}

/// Parses a label written as text: a number or a name.
pub(crate) fn from_text(text: &[u8]) -> Result<Label, String> {
    let text = text.trim_ascii();
    let shown = || String::from_utf8_lossy(&text[..text.len().min(40)]).into_owned();
    let wrong = || format!("its label is {:?}, not a number from 0 to 4294967295 or a name", shown());
    let text = std::str::from_utf8(text).map_err(|_| wrong())?;
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map(Label::Number).map_err(|_| wrong());
    }
    // Numbers such as -1, 0.5 and inf are not names.
    let name = !text.is_empty() && text.len() <= MAX_NAME_BYTES && text.parse::<f64>().is_err();
    if name && !text.contains(char::is_control) { Ok(Label::Name(text.to_owned())) } else { Err(wrong()) }
}

/// Returns the name of a class, which may also look like a number.
pub(crate) fn from_name(name: &[u8]) -> Result<Label, String> {
    match std::str::from_utf8(name) {
        Ok(name) if name.len() <= MAX_NAME_BYTES && !name.contains(char::is_control) => {
            Ok(Label::Name(name.to_owned()))
        }
        _ => Err(format!("{:.40?} is no name of a class", String::from_utf8_lossy(name))),
    }
}

/// Returns the label in the field `field` of a JSON object.
pub(crate) fn from_json(text: &[u8], field: &str) -> Result<Label, String> {
    let object: Value = serde_json::from_slice(text).map_err(|error| format!("its JSON is damaged: {error}"))?;
    match object.get(field) {
        None | Some(Value::Null) => Ok(Label::None),
        Some(Value::String(text)) => from_text(text.as_bytes()),
        Some(Value::Number(number)) => from_text(number.to_string().as_bytes()),
        Some(other) => Err(format!("its label is {other:.40}, not a number or a name")),
    }
}

/// Returns a label stored as an integer.
pub(crate) fn from_integer(number: i64) -> Result<Label, String> {
    let wrong = |_| format!("its label is {number}, not a number from 0 to 4294967295");
    u32::try_from(number).map(Label::Number).map_err(wrong)
}

/// Returns a label stored as a floating-point number.
pub(crate) fn from_float(number: f32) -> Result<Label, String> {
    // Beyond 2^24, f32 cannot tell neighboring integers apart.
    if number.fract() == 0.0 && (0.0..=16_777_216.0).contains(&number) {
        return Ok(Label::Number(number as u32));
    }
    Err(format!("its label is {number}, not a whole number from 0 to 16777216"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_and_what_is_neither() {
        let name = |text: &str| Ok(Label::Name(text.to_owned()));
        assert_eq!(from_text(b" 12\n"), Ok(Label::Number(12)));
        assert_eq!(from_text(b"4294967295"), Ok(Label::Number(u32::MAX)));
        assert_eq!(from_text("Größe 2".as_bytes()), name("Größe 2"));
        assert_eq!(from_json(br#"{"label": 3, "species": "n01440764"}"#, "label"), Ok(Label::Number(3)));
        assert_eq!(from_json(br#"{"label": 3, "species": "n01440764"}"#, "species"), name("n01440764"));
        assert_eq!(from_json(br#"{"label": null}"#, "label"), Ok(Label::None));
        assert_eq!(from_json(b"[1]", "label"), Ok(Label::None));
        assert_eq!(from_integer(7), Ok(Label::Number(7)));
        assert_eq!(from_float(7.0), Ok(Label::Number(7)));
        for bad in [&b""[..], b"-1", b"0.5", b"4294967296", b"inf", b"a\nb", b"\xff", &[b'a'; 257]] {
            assert!(from_text(bad).is_err(), "{bad:?}");
        }
        for bad in [&br#"{"label": -1}"#[..], br#"{"label": 1.5}"#, br#"{"label": true"#, br#"{"label": [1]}"#] {
            assert!(from_json(bad, "label").is_err(), "{bad:?}");
        }
        assert!(from_integer(-1).is_err() && from_float(0.5).is_err() && from_float(f32::NAN).is_err());
    }
}
