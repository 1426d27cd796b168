//! Conversion of targets to numbers, whichever form they are stored in.

use super::Target;
use crate::output::npy;
use serde_json::Value;

impl Target {
    /// The target's numbers, rounded to f32.
    pub(crate) fn f32s(&self) -> Result<Vec<f32>, String> {
        Ok(self.numbers()?.into_iter().map(|number| number as f32).collect())
    }

    /// The target as JSON from which the same target can be read again. Numbers, and bytes that are JSON, stay as they
    /// are; other bytes become a text.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Class(label) => Value::from(*label),
            Self::Integers(numbers) => Value::from(numbers.as_slice()),
            Self::Floats(numbers) => Value::from(numbers.as_slice()),
            Self::Bytes(bytes) => {
                let json =
                    serde_json::from_slice(bytes).ok().filter(|json: &Value| json.to_string().as_bytes() == bytes);
                json.unwrap_or_else(|| Value::from(String::from_utf8_lossy(bytes)))
            }
        }
    }

    /// The target's numbers, which must all be finite.
    pub(super) fn numbers(&self) -> Result<Vec<f64>, String> {
        let numbers = match self {
            Self::Class(label) => vec![f64::from(*label)],
            Self::Integers(numbers) => numbers.iter().map(|&number| number as f64).collect(),
            Self::Floats(numbers) => numbers.iter().copied().map(f64::from).collect(),
            Self::Bytes(bytes) if bytes.starts_with(npy::MAGIC) => npy::numbers(bytes)?,
            Self::Bytes(bytes) => from_text(bytes)?,
        };
        match numbers.iter().find(|number| !number.is_finite()) {
            Some(number) => Err(format!("it has {number}, which is no number to train towards")),
            None => Ok(numbers),
        }
    }
}

/// The numbers of a text: a JSON array, which may contain arrays, or numbers with blanks or commas between them.
fn from_text(text: &[u8]) -> Result<Vec<f64>, String> {
    let shown = || String::from_utf8_lossy(&text[..text.len().min(40)]).into_owned();
    if text.trim_ascii_start().starts_with(b"[") {
        let json: Value = serde_json::from_slice(text).map_err(|error| format!("its JSON is damaged: {error}"))?;
        let mut numbers = Vec::new();
        flatten(&json, &mut numbers).map_err(|other| format!("it has {other:.40}, which is no number"))?;
        return Ok(numbers);
    }
    let text = std::str::from_utf8(text).map_err(|_| format!("it is {:?}, which is no text", shown()))?;
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let number = |word: &str| word.parse().map_err(|_| format!("it has {word:.40?}, which is no number"));
    let mut numbers = Vec::new();
    for (i, cell) in text.split(',').enumerate() {
        if cell.trim().is_empty() {
            // Without it, the numbers after it would move up.
            return Err(format!("number {} of {text:.40?} is empty", i + 1));
        }
        for word in cell.split_ascii_whitespace() {
            numbers.push(number(word)?);
        }
    }
    Ok(numbers)
}

fn flatten<'a>(json: &'a Value, numbers: &mut Vec<f64>) -> Result<(), &'a Value> {
    match json {
        Value::Array(items) => items.iter().try_for_each(|item| flatten(item, numbers)),
        other => {
            numbers.push(other.as_f64().ok_or(other)?);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Result<Vec<f64>, String> {
        Target::Bytes(text.as_bytes().to_vec()).numbers()
    }

    #[test]
    fn numbers_are_read_from_texts_and_json() {
        assert_eq!(bytes(" 1 -2.5,3e2\n").unwrap(), [1.0, -2.5, 300.0]);
        assert_eq!(bytes("[1, [2.5, 3]]").unwrap(), [1.0, 2.5, 3.0]);
        assert_eq!(bytes("").unwrap(), [0.0; 0]);
        assert_eq!(Target::Integers(vec![-7]).numbers().unwrap(), [-7.0]);
        assert_eq!(Target::Floats(vec![0.5]).numbers().unwrap(), [0.5]);
        assert_eq!(Target::Class(3).numbers().unwrap(), [3.0]);
        assert_eq!(bytes("1 2, 3 4 ,5").unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0]);
        for bad in ["1 x", "1,,3", ",1", "1,2,", "1, ,2", ",", "[1, true]", "[1", "nan", "1 inf", "{\"a\": 1}"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert!(Target::Floats(vec![f32::NAN]).numbers().is_err());
        assert!(Target::Bytes(vec![0xff, 0xfe]).numbers().is_err());
    }
}
