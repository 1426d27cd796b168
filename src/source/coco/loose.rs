//! JSON as Python's `json` module and pycocotools read it: NaN and Infinity are numbers, `1.0` is the number 1, an
//! image's number may be text, and the last of equal keys counts.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::{self, Read};

/// Text that stands for NaN and for Infinity, of either sign, in what serde_json reads.
const NO_NUMBER: &str = "\u{7f}";

/// A reader of JSON that hides a byte order mark, and what Python writes for numbers that are not finite.
pub(super) struct PythonJson<R> {
    inner: R,
    state: State,
    /// Whether a minus has been read that is not handed over yet.
    minus: bool,
    at_start: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Outside,
    Text,
    Escaped,
    /// Within this word, after this number of bytes.
    Word(&'static [u8], usize),
}

impl<R: Read> PythonJson<R> {
    pub fn new(inner: R) -> Self {
        Self { inner, state: State::Outside, minus: false, at_start: true }
    }

    /// Replaces a byte: a word becomes the text [`NO_NUMBER`], and blanks.
    fn replace(&mut self, byte: u8) -> io::Result<u8> {
        self.state = match (self.state, byte) {
            (State::Outside, b'"') => State::Text,
            (State::Outside, b'N') => State::Word(b"NaN", 1),
            (State::Outside, b'I') => State::Word(b"Infinity", 1),
            (State::Text, b'"') => State::Outside,
            (State::Text, b'\\') => State::Escaped,
            (State::Escaped, _) => State::Text,
            (State::Word(word, at), _) if word[at] != byte => {
                let message =
                    format!("a word of JSON that is none, where {} is expected", String::from_utf8_lossy(word));
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            (State::Word(word, at), _) if at + 1 == word.len() => {
                self.state = State::Outside;
                return Ok(if at == 2 { b'"' } else { b' ' });
            }
            (State::Word(word, at), _) => {
                self.state = State::Word(word, at + 1);
                return Ok(match at {
                    1 => NO_NUMBER.as_bytes()[0],
                    2 => b'"',
                    _ => b' ',
                });
            }
            (state, _) => state,
        };
        Ok(if let State::Word(..) = self.state { b'"' } else { byte })
    }
}

impl<R: Read> Read for PythonJson<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at_start {
            self.at_start = false;
            let mut mark = Vec::with_capacity(3);
            self.inner.by_ref().take(3).read_to_end(&mut mark)?;
            if mark != *b"\xef\xbb\xbf" {
                let (read, rest) = buffer.split_at_mut_checked(mark.len()).ok_or(io::ErrorKind::InvalidInput)?;
                read.copy_from_slice(&mark);
                let more = self.inner.read(rest)?;
                return self.hand_over(buffer, 0, mark.len() + more);
            }
        }
        let held = usize::from(std::mem::take(&mut self.minus));
        if held > 0 {
            buffer[0] = b'-';
        }
        let read = self.inner.read(&mut buffer[held..])?;
        if read == 0 {
            // A minus at the end, which is wrong and left to the parser.
            return Ok(held);
        }
        self.hand_over(buffer, held, held + read)
    }
}

impl<R: Read> PythonJson<R> {
    /// Replaces the bytes from `from` to `end`. Those before are replaced already.
    fn hand_over(&mut self, buffer: &mut [u8], from: usize, end: usize) -> io::Result<usize> {
        let mut at = from;
        loop {
            // Most bytes change nothing.
            let next = match self.state {
                State::Outside => buffer[at..end].iter().position(|byte| matches!(byte, b'"' | b'N' | b'I')),
                State::Text => buffer[at..end].iter().position(|byte| matches!(byte, b'"' | b'\\')),
                State::Escaped | State::Word(..) => (at < end).then_some(0),
            };
            let Some(next) = next else { break };
            at += next;
            if self.state == State::Outside && buffer[at] == b'I' && at > 0 && buffer[at - 1] == b'-' {
                buffer[at - 1] = b' ';
            }
            buffer[at] = self.replace(buffer[at])?;
            at += 1;
        }
        // What follows a minus decides what becomes of it.
        self.minus = end > 0 && self.state == State::Outside && buffer[end - 1] == b'-';
        match end - usize::from(self.minus) {
            // Nothing would mean the end.
            0 if end > 0 => self.read(buffer),
            end => Ok(end),
        }
    }
}

/// A value of unknown type.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Value {
    /// It is not there.
    #[default]
    Missing,
    Null,
    /// A whole number; true and false are 1 and 0, as in Python.
    Whole(i64),
    /// Another number; NaN also for Infinity.
    Number(f64),
    Text(String),
    List(Numbers),
    /// An object.
    Other,
}

/// A list that should have numbers alone.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Numbers {
    All(Vec<f64>),
    /// Something in it is not a number.
    Mixed,
}

impl Value {
    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Whole(number) => Some(*number as f64),
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The whole number, if it is one: 1.0 is.
    pub fn whole(&self) -> Option<i64> {
        /// Above this, not every whole number is a double.
        const EXACT: f64 = (1_u64 << 53) as f64;
        match self {
            Self::Whole(number) => Some(*number),
            Self::Number(number) if number.fract() == 0.0 && number.abs() <= EXACT => Some(*number as i64),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
                Ok(Value::Whole(truth.into()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
                Ok(Value::Whole(number))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
                Ok(i64::try_from(number).map_or(Value::Number(number as f64), Value::Whole))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
                Ok(Value::Number(number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(if text == NO_NUMBER { Value::Number(f64::NAN) } else { Value::Text(text.to_owned()) })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
                let (mut numbers, mut mixed) = (Vec::new(), false);
                while let Some(Number(number)) = seq.next_element()? {
                    match number {
                        Some(number) => numbers.push(number),
                        None => mixed = true,
                    }
                }
                Ok(Value::List(if mixed { Numbers::Mixed } else { Numbers::All(numbers) }))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Value::Other)
            }
        }

        deserializer.deserialize_any(Any)
    }
}

/// A number, or nothing for any other value.
pub(super) struct Number(pub Option<f64>);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_unit<E>(self) -> Result<Number, E> {
                Ok(Number(None))
            }

            fn visit_bool<E>(self, truth: bool) -> Result<Number, E> {
                Ok(Number(Some(truth.into())))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Number, E> {
                Ok(Number(Some(number as f64)))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Number, E> {
                Ok(Number(Some(number as f64)))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Number, E> {
                Ok(Number(Some(number)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Number, E> {
                Ok(Number((text == NO_NUMBER).then_some(f64::NAN)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Number, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Number(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Number, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Number(None))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

/// Makes a struct of the entries of an object that are read. Of equal keys the last counts, and others are skipped.
macro_rules! entries {
    ($(#[$doc:meta])* struct $name:ident($expected:literal) { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Default)]
        struct $name { $($(#[$field_doc])* $field: $type,)* }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Key(Option<&'static str>);

                impl<'de> serde::Deserialize<'de> for Key {
                    fn deserialize<D: serde::de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                        struct Text;

                        impl serde::de::Visitor<'_> for Text {
                            type Value = Key;

                            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                                f.write_str("a key")
                            }

                            fn visit_str<E>(self, key: &str) -> Result<Key, E> {
                                let known = [$(stringify!($field)),*];
                                Ok(Key(known.into_iter().find(|known| *known == key)))
                            }
                        }

                        deserializer.deserialize_identifier(Text)
                    }
                }

                struct Entries;

                impl<'de> serde::de::Visitor<'de> for Entries {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        let mut found = $name::default();
                        while let Some(Key(key)) = map.next_key()? {
                            match key {
                                $(Some(key) if key == stringify!($field) => found.$field = map.next_value()?,)*
                                _ => drop(map.next_value::<serde::de::IgnoredAny>()?),
                            }
                        }
                        Ok(found)
                    }
                }

                deserializer.deserialize_map(Entries)
            }
        }
    };
}
pub(super) use entries;

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that gives this number of bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let len = self.1.min(self.0.len()).min(buffer.len());
            buffer[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    #[test]
    fn what_python_writes_is_read_however_it_arrives() {
        let text = "\u{feff}[NaN, 1, -2, Infinity, -Infinity,-3.5, \"NaN -Infinity \\\" Infinity\", [Infinity], null]";
        for step in 1..text.len() {
            let mut read = Vec::new();
            let mut reader = PythonJson::new(Slow(text.as_bytes(), step));
            let mut part = [0; 16];
            loop {
                match reader.read(&mut part).unwrap() {
                    0 => break,
                    len => read.extend_from_slice(&part[..len]),
                }
            }
            let values: Vec<Value> = serde_json::from_slice(&read).unwrap();
            let is_nan = |value: &Value| value.number().is_some_and(f64::is_nan);
            assert!([0, 3, 4].iter().all(|i| is_nan(&values[*i])), "{values:?}");
            assert_eq!(values[1..3], [Value::Whole(1), Value::Whole(-2)]);
            assert_eq!(values[5], Value::Number(-3.5));
            assert_eq!(values[6], Value::Text("NaN -Infinity \" Infinity".to_owned()));
            assert!(matches!(&values[7], Value::List(Numbers::All(all)) if all[0].is_nan()), "{values:?}");
            assert_eq!(values[8], Value::Null);
        }
        for wrong in ["[NaM]", "[Inf]", "[-]", "[-NaN]", "[--Infinity]"] {
            let read = serde_json::from_reader::<_, Vec<Value>>(io::BufReader::new(PythonJson::new(wrong.as_bytes())));
            assert!(read.is_err(), "{wrong}: {read:?}");
        }
    }
}
