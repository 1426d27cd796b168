//! The names of types in both versions, and values that are written as JSON.

use crate::source::arrays::DataType;
use half::f16;
use serde_json::Value;

impl DataType {
    /// The type of a name in version 3.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(own, _, _)| *own == name).map(|(_, _, data_type)| *data_type)
    }

    /// The type of NumPy's notation, such as `<u2`, and whether its values are big-endian.
    pub(super) fn by_numpy(text: &str) -> Option<(Self, bool)> {
        let mut letters = text.chars();
        let (order, kind, size) = (letters.next()?, letters.next()?, letters.as_str());
        let fits = |data_type: Self| size.parse() == Ok(data_type.size_bytes());
        let (_, _, found) = Self::ALL.into_iter().find(|(_, own, data_type)| *own == kind && fits(*data_type))?;
        match order {
            '<' => Some((found, false)),
            '>' => Some((found, true)),
            '|' if found.size_bytes() == 1 => Some((found, false)),
            _ => None,
        }
    }

    /// Number of bytes of a value.
    pub(super) const fn size_bytes(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    pub(super) const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64)
    }

    /// The whole number in a value's bytes, little-endian; `None` for floating-point numbers.
    pub(super) fn whole(self, bytes: [u8; 8]) -> Option<i128> {
        let [a, b, c, d, ..] = bytes;
        Some(match self {
            Self::Bool | Self::U8 => a.into(),
            Self::I8 => (a as i8).into(),
            Self::U16 => u16::from_le_bytes([a, b]).into(),
            Self::I16 => i16::from_le_bytes([a, b]).into(),
            Self::U32 => u32::from_le_bytes([a, b, c, d]).into(),
            Self::I32 => i32::from_le_bytes([a, b, c, d]).into(),
            Self::U64 => u64::from_le_bytes(bytes).into(),
            Self::I64 => i64::from_le_bytes(bytes).into(),
            Self::F16 | Self::F32 | Self::F64 => return None,
        })
    }

    /// The bytes of a value that is written as JSON, little-endian and followed by zeros. `None` if it is no value of
    /// this type.
    pub(super) fn read_json(self, value: &Value) -> Option<[u8; 8]> {
        let mut bytes = [0; 8];
        if !self.is_float() {
            let number: i128 = match value {
                Value::Bool(flag) => (*flag).into(),
                // Some writers give whole numbers as 0.0.
                Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                    (Some(number), _, _) => number.into(),
                    (_, Some(number), _) => number.into(),
                    (_, _, Some(number)) if number.fract() == 0.0 && number.abs() < 1e18 => number as i128,
                    _ => return None,
                },
                _ => return None,
            };
            bytes = (number as u64).to_le_bytes();
            bytes[self.size_bytes()..].fill(0);
            let allowed = if self == Self::Bool { matches!(number, 0 | 1) } else { self.whole(bytes) == Some(number) };
            return allowed.then_some(bytes);
        }
        let number = match value {
            Value::Number(number) => number.as_f64()?,
            Value::String(text) => match text.as_str() {
                "NaN" => f64::NAN,
                "Infinity" => f64::INFINITY,
                "-Infinity" => f64::NEG_INFINITY,
                // The bits themselves.
                _ => {
                    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 2 * self.size_bytes())?;
                    return Some(u64::from_str_radix(digits, 16).ok()?.to_le_bytes());
                }
            },
            _ => return None,
        };
        match self {
            Self::F16 => bytes[..2].copy_from_slice(&f16::from_f64(number).to_le_bytes()),
            Self::F32 => bytes[..4].copy_from_slice(&(number as f32).to_le_bytes()),
            _ => bytes = number.to_le_bytes(),
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_have_names_in_both_versions() {
        for (text, want) in [
            ("<u2", Some((DataType::U16, false))),
            (">f4", Some((DataType::F32, true))),
            ("|b1", Some((DataType::Bool, false))),
            ("|u1", Some((DataType::U8, false))),
            ("|u2", None),
            ("<c8", None),
            ("<M8[ns]", None),
            ("<u3", None),
            ("u2", None),
            ("", None),
        ] {
            assert_eq!(DataType::by_numpy(text), want, "{text}");
        }
        assert_eq!(DataType::by_name("int16"), Some(DataType::I16));
        assert_eq!((DataType::by_name("complex64"), DataType::F16.name()), (None, "float16"));
    }

    #[test]
    fn fill_values_have_the_type_of_the_array() {
        use DataType::{Bool, F16, F32, I8, I64, U8, U16, U64};
        for (data_type, value, want) in [
            (U16, json!(7), Some(7)),
            (U16, json!(65_536), None),
            (U16, json!(3.0), Some(3)),
            (U16, json!(3.5), None),
            (U8, json!(-1), None),
            (I8, json!(-2), Some(0xFE)),
            (U64, json!(u64::MAX), Some(u64::MAX)),
            (I64, json!(-1), Some(u64::MAX)),
            (Bool, json!(true), Some(1)),
            (Bool, json!(2), None),
            (U16, json!("NaN"), None),
            (F32, json!("NaN"), Some(0x7FC0_0000)),
            (F32, json!("-Infinity"), Some(0xFF80_0000)),
            (F32, json!("0x7fc00001"), Some(0x7FC0_0001)),
            (F32, json!("0x7fc0"), None),
            (F32, json!("nan"), None),
            (F32, json!(0.1), Some(0x3DCC_CCCD)),
            (F16, json!(-1), Some(0xBC00)),
            (F16, json!(null), None),
        ] {
            assert_eq!(data_type.read_json(&value).map(u64::from_le_bytes), want, "{data_type:?} {value}");
        }
    }
}
