//! Parsing of labels, for shards, Parquet files and lists.

use super::format::RecordFormat;
use super::options::RecordOptions;
use super::parser::Names;
use super::tar::FOLDER;
use crate::error::Error;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;

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

/// The name of a field that stands for no labels.
pub(in crate::source) const NONE: &str = "none";

/// Words in the names of fields that may hold labels.
const LIKE: [&str; 9] = ["label", "labels", "class", "classes", "cls", "target", "targets", "category", "categories"];

/// Whether a field's name sounds like that of labels: `fine_label`, `classId`, `image/class/text`. Fields of objects do
/// not count.
pub(in crate::source) fn is_like(name: &str) -> bool {
    let words = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let (mut like, mut of_objects) = (false, false);
    for word in words {
        // The words of camelCase.
        let starts = word.char_indices().filter(|(at, c)| *at == 0 || c.is_uppercase()).map(|(at, _)| at);
        let starts: Vec<usize> = starts.chain([word.len()]).collect();
        let inner = starts.windows(2).map(|ends| word[ends[0]..ends[1]].to_lowercase());
        for word in inner.chain([word.to_lowercase()]) {
            like |= LIKE.contains(&word.as_str());
            of_objects |= matches!(word.as_str(), "object" | "objects" | "bbox" | "segmentation");
        }
    }
    like && !of_objects
}

/// The error for a source in which only fields of other names sound like labels.
pub(in crate::source) fn ask(usual: &str, got: impl ToString) -> Error {
    let expected =
        format!("{usual}, or the name of the field with the labels (`--label-field`; {NONE} if there are none)");
    Error::parameter("open", "label", expected, got)
}

/// The error for a field that was named and is not there.
pub(in crate::source) fn not_there(kind: &str, name: &str, got: impl ToString) -> Error {
    Error::parameter(
        "open",
        "label",
        format!("the name of {kind} that is there ({NONE} for no labels), not {name}"),
        got,
    )
}

/// Part of the message for a label that belongs to no image.
pub(super) const NO_IMAGE: &str = "a label and no image";

/// Checks that samples without a label have none, given the names of their fields.
///
/// # Errors
/// [`Error::Parameter`] if the field that was named is not there, or if one is there that may hold labels.
pub(in crate::source) fn check_absent(
    format: RecordFormat,
    options: &RecordOptions,
    names: &Names,
    place: &dyn Display,
) -> Result<(), Error> {
    let there = || {
        let names: Vec<&str> = names.keys().map(String::as_str).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        format!("{place}, whose samples have the fields {names}")
    };
    match &options.label {
        Some(name) if name == NONE || name == FOLDER || names.contains_key(name) => Ok(()),
        Some(name) => Err(not_there("a field", name, there())),
        None => {
            // The usual field may be there with -1 or without a value.
            let (usual, description) = format.facts().labels;
            let may_be = |(name, &single): (&String, &bool)| single && is_like(name) && !usual.contains(&&**name);
            if names.iter().any(may_be) { Err(ask(description, there())) } else { Ok(()) }
        }
    }
}

/// The message for a sample that differs from the others by having a label, or by having none.
pub(in crate::source) fn differs(has: bool) -> &'static str {
    if has { "it has a label, and others have none" } else { "it has no label, and others have" }
}

/// Turns the texts among labels into the labels of classes.
#[derive(Debug)]
pub(in crate::source) struct Numbering {
    /// The names of the classes, label 0 first; empty if labels are numbers.
    pub(in crate::source) classes: Vec<String>,
    labels: HashMap<String, u32>,
}

impl Numbering {
    /// The numbering of all `texts` of a data set: by the given `classes`, or else by the sorted texts. Texts of digits
    /// that begin with 0 are numbers if all labels are. `numbers`: one of the labels that are numbers, and whether
    /// `has` another.
    ///
    /// # Errors
    /// [`Error::Parameter`] if some labels are numbers and some names, if two texts are the same number, or if a class
    /// is named twice.
    pub(in crate::source) fn new(
        texts: BTreeSet<&str>,
        classes: &[String],
        number: Option<u32>,
        has: impl Fn(u32) -> bool,
    ) -> Result<Self, Error> {
        if !classes.is_empty() {
            return Ok(Self { labels: super::options::numbers(classes)?, classes: classes.to_vec() });
        }
        let is_number = |text: &&&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let refuse = |a: &str, b: &str| {
            let expected = "all numbers or all names: name the classes (`--classes`) to take all as names";
            Err(Error::parameter("open", "labels", expected, format!("{a:?} and {b:?}")))
        };
        let name = texts.iter().find(|text| !is_number(text));
        let digits = texts.iter().find(is_number);
        match (name, digits, number) {
            (Some(name), Some(digits), _) => return refuse(name, digits),
            (Some(name), None, Some(number)) => return refuse(name, &number.to_string()),
            (Some(_), None, None) => {
                let classes: Vec<String> = texts.into_iter().map(str::to_owned).collect();
                return Ok(Self { labels: super::options::numbers(&classes)?, classes });
            }
            (None, ..) => {}
        }
        let (mut labels, mut by_label) = (HashMap::new(), HashMap::<u32, &str>::new());
        for text in texts {
            // A number that is too large stays without a label.
            let Ok(label) = text.parse::<u32>() else { continue };
            if let Some(other) = by_label.insert(label, text) {
                return refuse(other, text);
            }
            if has(label) {
                return refuse(text, &label.to_string());
            }
            labels.insert(text.to_owned(), label);
        }
        Ok(Self { classes: Vec::new(), labels })
    }

    /// The label of a text, or the message that it is not among the classes.
    pub(in crate::source) fn label(&self, text: &str) -> Result<u32, String> {
        self.labels.get(text).copied().ok_or_else(|| super::options::no_class(text))
    }
}

/// Whether the given classes have a name that looks like a number. Then all texts are names, also those of digits.
pub(in crate::source) fn digits_are_names(classes: &[String]) -> bool {
    classes.iter().any(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Parses a label written as text: a number, a name, or -1 for none. Digits after a 0 are a name until all labels are
/// known ([`Numbering`]). With `names` all texts are names.
pub(crate) fn from_text(text: &[u8], names: bool) -> Result<Label, String> {
    let text = text.trim_ascii();
    let shown = || String::from_utf8_lossy(&text[..text.len().min(40)]).into_owned();
    let wrong = || format!("its label is {:?}, not a number from 0 to 4294967295 or a name", shown());
    let text = std::str::from_utf8(text).map_err(|_| wrong())?;
    if text == "-1" {
        return Ok(Label::None);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let plain = text == "0" || !text.starts_with('0');
        if names || !plain && text.len() <= MAX_NAME_BYTES {
            return Ok(Label::Name(text.to_owned()));
        }
        return text.parse().map(Label::Number).map_err(|_| wrong());
    }
    // Numbers such as -2, 0.5 and inf are not names, and lists in JSON are several labels.
    let name = !text.starts_with(['[', '{'])
        && !text.is_empty()
        && text.len() <= MAX_NAME_BYTES
        && text.parse::<f64>().is_err();
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
pub(crate) fn from_json(text: &[u8], field: &str, names: bool) -> Result<Label, String> {
    let object: Value = serde_json::from_slice(text).map_err(|error| format!("its JSON is damaged: {error}"))?;
    match object.get(field) {
        None | Some(Value::Null) => Ok(Label::None),
        Some(Value::String(text)) => from_text(text.as_bytes(), names),
        Some(Value::Number(number)) => from_text(number.to_string().as_bytes(), false),
        Some(other) => Err(format!("its label is {other:.40}, not a number or a name")),
    }
}

/// Returns a label stored as an integer. -1 stands for none, as in the test sets of Hugging Face's hub.
pub(crate) fn from_integer(number: i64) -> Result<Label, String> {
    if number == -1 {
        return Ok(Label::None);
    }
    let wrong = |_| format!("its label is {number}, not a number from 0 to 4294967295");
    u32::try_from(number).map(Label::Number).map_err(wrong)
}

/// Returns a label stored as a floating-point number. -1 stands for none.
pub(crate) fn from_float(number: f32) -> Result<Label, String> {
    if number == -1.0 {
        return Ok(Label::None);
    }
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
        assert_eq!(from_text(b" 12\n", false), Ok(Label::Number(12)));
        assert_eq!(from_text(b"4294967295", false), Ok(Label::Number(u32::MAX)));
        assert_eq!(from_text("Größe 2".as_bytes(), false), name("Größe 2"));
        assert_eq!(from_json(br#"{"label": 3, "species": "n01440764"}"#, "label", false), Ok(Label::Number(3)));
        assert_eq!(from_json(br#"{"label": 3, "species": "n01440764"}"#, "species", false), name("n01440764"));
        assert_eq!(from_json(br#"{"label": null}"#, "label", false), Ok(Label::None));
        assert_eq!(from_json(b"[1]", "label", false), Ok(Label::None));
        assert_eq!(from_integer(7), Ok(Label::Number(7)));
        assert_eq!(from_float(7.0), Ok(Label::Number(7)));
        assert_eq!(
            (from_text(b"-1", true), from_integer(-1), from_float(-1.0)),
            (Ok(Label::None), Ok(Label::None), Ok(Label::None))
        );
        assert_eq!(from_json(br#"{"label": -1}"#, "label", false), Ok(Label::None));
        // Digits after a 0, and all digits where the classes have such names, are names at first.
        assert_eq!((from_text(b"01", false), from_text(b"0", false)), (name("01"), Ok(Label::Number(0))));
        assert_eq!((from_text(b"12", true), from_json(br#"{"label": "12"}"#, "label", true)), (name("12"), name("12")));
        assert_eq!(from_json(br#"{"label": 12}"#, "label", true), Ok(Label::Number(12)));
        for bad in [&b""[..], b"-2", b"0.5", b"4294967296", b"inf", b"[1, 2]", b"a\nb", b"\xff", &[b'a'; 257]] {
            assert!(from_text(bad, false).is_err(), "{bad:?}");
        }
        for bad in [&br#"{"label": -2}"#[..], br#"{"label": 1.5}"#, br#"{"label": true"#, br#"{"label": [1]}"#] {
            assert!(from_json(bad, "label", false).is_err(), "{bad:?}");
        }
        assert!(from_integer(-2).is_err() && from_float(0.5).is_err() && from_float(f32::NAN).is_err());
    }

    #[test]
    fn texts_are_numbered_over_all_of_a_data_set() {
        let given = |texts: &[&'static str], classes: &[&str], number| {
            let classes: Vec<String> = classes.iter().map(|name| (*name).to_owned()).collect();
            let texts: Vec<&str> = texts.to_vec();
            let numbering =
                Numbering::new(texts.iter().copied().collect(), &classes, number, |label| number == Some(label));
            numbering.map(|numbering| texts.iter().map(|text| numbering.label(text).ok()).collect::<Vec<_>>())
        };
        let labels = |texts: &[&'static str], classes: &[&str]| given(texts, classes, None).unwrap();
        assert_eq!(labels(&["dog", "cat"], &[]), [Some(1), Some(0)]);
        assert_eq!(labels(&["dog", "cat"], &["dog", "elk"]), [Some(0), None]);
        // Names of digits win where a list is given.
        assert_eq!(labels(&["10", "2"], &["10", "1", "2"]), [Some(0), Some(2)]);
        // Numbers that begin with 0.
        assert_eq!(labels(&["001", "010"], &[]), [Some(1), Some(10)]);
        for (texts, number) in
            [(&["1x", "01"][..], None), (&["cat"], Some(1)), (&["01", "001"], None), (&["01"], Some(1))]
        {
            let error = given(texts, &[], number).unwrap_err();
            assert!(
                error.is_parameter() && error.to_string().contains("all numbers or all names"),
                "{texts:?}: {error}"
            );
        }
        assert!(given(&["01"], &[], Some(2)).is_ok());
    }

    #[test]
    fn fields_that_sound_like_labels() {
        for name in
            ["label", "fine_label", "classId", "image/class/text", "json.target", "ClassName", "cls.txt", "TARGET"]
        {
            assert!(is_like(name), "{name}");
        }
        for name in ["image", "txt", "caption", "classical", "image/object/class/label", "objects.category", "url"] {
            assert!(!is_like(name), "{name}");
        }
    }
}
