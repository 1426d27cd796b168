//! Types of an array's values.

use warpfeed_image::planes::Element;

/// The type of an array's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::source) enum DataType {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
}

impl DataType {
    /// All types, with their names in NumPy, which are those of Zarr 3, and their kinds in Zarr 2.
    pub(in crate::source) const ALL: [(&str, char, Self); 12] = [
        ("bool", 'b', Self::Bool),
        ("uint8", 'u', Self::U8),
        ("int8", 'i', Self::I8),
        ("uint16", 'u', Self::U16),
        ("int16", 'i', Self::I16),
        ("uint32", 'u', Self::U32),
        ("int32", 'i', Self::I32),
        ("uint64", 'u', Self::U64),
        ("int64", 'i', Self::I64),
        ("float16", 'f', Self::F16),
        ("float32", 'f', Self::F32),
        ("float64", 'f', Self::F64),
    ];

    /// The name in NumPy.
    pub(in crate::source) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, _, own)| *own == self).map_or("", |(name, _, _)| name)
    }

    /// The type that the values have as pixels; `None` if there is none that holds all of them.
    pub(in crate::source) const fn element(self) -> Option<Element> {
        match self {
            Self::Bool | Self::U8 => Some(Element::U8),
            Self::U16 => Some(Element::U16),
            Self::I8 | Self::I16 | Self::F16 | Self::F32 => Some(Element::F32),
            Self::U32 | Self::I32 | Self::U64 | Self::I64 | Self::F64 => None,
        }
    }
}
