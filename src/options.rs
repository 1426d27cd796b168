//! Options: structs with a method for each field, choices with a name for each value, and values as text.

use crate::error::Error;
use crate::raster::Size;
use std::path::PathBuf;

/// Declares a struct of options, and a method with the name and the documentation of each field that sets it.
macro_rules! options {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[non_exhaustive]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $name {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

/// Gives the values of an enumeration names, by which command lines, files and Python say them.
macro_rules! choices {
    ($type:ident, $what:literal: $($value:ident = $name:literal, $description:literal;)*) => {
        impl $type {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$value),*];

            /// The name, which `parse` reads.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)*
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::error::Error;

            fn from_str(text: &str) -> $crate::error::Result<Self> {
                $crate::options::choice($what, Self::ALL, Self::name, text)
            }
        }

        impl $crate::options::TextValue for $type {
            const CHOICES: &'static [(&'static str, &'static str)] = &[$(($name, $description)),*];

            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| $crate::options::names(Self::ALL, Self::name))
            }
        }
    };
}

/// The value with this name.
pub(crate) fn choice<T: Copy>(
    what: &'static str,
    all: &[T],
    name: fn(T) -> &'static str,
    text: &str,
) -> Result<T, Error> {
    let found = all.iter().copied().find(|value| name(*value) == text);
    found.ok_or_else(|| Error::parameter(what, "name", names(all, name), format!("{text:?}")))
}

pub(crate) fn names<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> String {
    all.iter().map(|value| name(*value)).collect::<Vec<_>>().join(", ")
}

/// Reads the option `name`.
pub(crate) fn read<T: TextValue>(name: &'static str, text: &str) -> Result<T, Error> {
    T::read(text).map_err(|expected| Error::parameter("option", name, expected, format!("{text:?}")))
}

pub(crate) fn unknown(name: &str) -> Error {
    Error::parameter("option", "name", "that of an option", format!("{name:?}"))
}

/// A value that is written as text.
pub(crate) trait TextValue: Sized {
    /// The names of all values, with a line about each; empty if there are other values.
    const CHOICES: &'static [(&'static str, &'static str)] = &[];

    /// Reads a value. For other text: what is expected.
    fn read(text: &str) -> Result<Self, String>;
}

/// Lets a type be read as its `FromStr` reads it. Of other text is said what is expected: as given, or as the error says.
macro_rules! text_value {
    ($type:ty: $expected:literal) => {
        impl $crate::options::TextValue for $type {
            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| $expected.to_owned())
            }
        }
    };
    ($type:ty) => {
        impl $crate::options::TextValue for $type {
            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err($crate::options::expected)
            }
        }
    };
}

/// What an error says that is expected.
pub(crate) fn expected(error: Error) -> String {
    match error {
        Error::Parameter { expected, .. } => expected,
        other => other.to_string(),
    }
}

text_value!(bool: "true or false");
text_value!(u32: "a whole number");
text_value!(u64: "a whole number");
text_value!(usize: "a whole number");
text_value!(f32: "a number");
text_value!(f64: "a number");
text_value!(std::num::NonZeroU64: "a whole number, 1 or more");

impl<T: TextValue> TextValue for Option<T> {
    const CHOICES: &'static [(&'static str, &'static str)] = T::CHOICES;

    fn read(text: &str) -> Result<Self, String> {
        T::read(text).map(Some)
    }
}

impl TextValue for PathBuf {
    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("a path".to_owned()) } else { Ok(text.into()) }
    }
}

/// Names with commas between them.
impl TextValue for Vec<String> {
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }
}

/// Sides in pixels: `256` for both, or `640x480`.
impl TextValue for Size {
    fn read(text: &str) -> Result<Self, String> {
        let (width, height) = text.split_once('x').unwrap_or((text, text));
        let side = |text: &str| text.parse().ok().filter(|side: &u32| *side > 0);
        let size = side(width).zip(side(height)).map(|(width, height)| Self { width, height });
        size.ok_or_else(|| "a number of pixels, or width x height such as 640x480".to_owned())
    }
}
