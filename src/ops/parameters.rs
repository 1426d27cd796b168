//! The parameters that the written form of a type has.

use super::Transform;
use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};
use serde_json::Value;
use std::iter::once;

/// A parameter of a transform or an operation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parameter {
    /// Name in the written form.
    pub name: String,
    /// Type in Python's notation, with the aliases of the module `warpfeed.transforms`.
    pub python_type: String,
    /// Value if the parameter is left out: null if the written form of that value has none. `None` if the parameter is
    /// required.
    pub default: Option<Value>,
}

/// The parameters of `T`, in the order of its fields. `written` is the written form of an example.
pub(super) fn parameters<T: DeserializeOwned>(written: &Value) -> Vec<Parameter> {
    let ask =
        |question: Question<'_>| T::deserialize(question).map_or_else(|answer| answer.to_string(), |_| String::new());
    let parameter = |name: &str| {
        let python_type = with_alias(name, ask(Question::TypeOf(name)));
        Parameter { name: name.to_owned(), python_type, default: default(name, written.clone()) }
    };
    ask(Question::Fields).split_whitespace().map(parameter).collect()
}

/// The value of a parameter that is left out. `None` if the parameter is required.
fn default(name: &str, mut written: Value) -> Option<Value> {
    written.as_object_mut()?.remove(name);
    match Transform::deserialize(written) {
        Ok(read) => Some(serde_json::to_value(read).ok()?[name].take()),
        // Without its height a resize is refused for its width: neither is required.
        Err(error) => (!error.to_string().contains("missing field")).then_some(Value::Null),
    }
}

/// The type of a parameter, more precisely where its name tells more.
fn with_alias(name: &str, python_type: String) -> String {
    let alias = match (name, python_type.as_str()) {
        ("center", "tuple[float, float]") => "Point",
        ("fill", "tuple[int, int, int]") => "Color",
        ("size" | "target", "tuple[int, int]") => "Size",
        ("startpoints" | "endpoints", _) => "Sequence[Point]",
        ("tiles", _) => "Literal[4, 9]",
        ("transforms", _) => "Sequence[Transform]",
        // An untagged enumeration reads any value.
        ("fill", "Any") => "Fill",
        ("mean" | "std" | "value", "Any") => "float | Sequence[float]",
        ("interpolation", "Any") => "Interpolation | tuple[Interpolation, Interpolation]",
        _ => return python_type,
    };
    alias.to_owned()
}

/// A deserializer that reads nothing, but asks which type is wanted. Its error is the answer.
enum Question<'a> {
    /// Asks a struct for the names of its fields.
    Fields,
    /// Asks a struct for the type of this field.
    TypeOf(&'a str),
    /// Asks a value for its type, in Python's notation.
    Type,
}

impl IntoDeserializer<'_, Error> for Question<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Methods of [`Deserializer`] that answer with a type.
macro_rules! types {
    ($($answer:literal: $($method:ident)*,)*) => {
        $($(
            fn $method<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
                Err(Error::custom($answer))
            }
        )*)*
    };
}

impl<'de> Deserializer<'de> for Question<'_> {
    type Error = Error;

    types! {
        "bool": deserialize_bool,
        "int": deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64,
        "int": deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64,
        "float": deserialize_f32 deserialize_f64,
        "str": deserialize_str deserialize_string,
        "Any": deserialize_any,
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let item = visitor.visit_seq(SeqDeserializer::new(once(self)));
        item.map_err(|item| Error::custom(format_args!("Sequence[{item}]")))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        let item = visitor.visit_seq(SeqDeserializer::new(once(self)));
        item.map_err(|item| match (length, item.to_string().as_str()) {
            (2, item) => Error::custom(format_args!("tuple[{item}, {item}]")),
            (3, "int") => Error::custom("tuple[int, int, int]"),
            (_, item) => Error::custom(format_args!("Sequence[{item}]")),
        })
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, _visitor: V) -> Result<V::Value, Error> {
        Err(Error::custom(""))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Self::Fields => Err(Error::custom(fields.join(" "))),
            Self::TypeOf(field) => visitor.visit_map(MapDeserializer::new(once((field, Self::Type)))),
            Self::Type => Err(Error::custom("Mapping[str, Any]")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Error> {
        let is_alias = name == "Interpolation";
        Err(if is_alias { Error::custom(name) } else { Error::custom(format_args!("Literal{variants:?}")) })
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit newtype_struct tuple_struct map identifier ignored_any
    }
}
