//! Pixels outside an image.

use super::ChannelNumbers;
use crate::error::{Error, Result};
use crate::raster::Pixel;
use serde::{Deserialize, Deserializer, Serialize};

/// The appearance of pixels outside the image.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Fill {
    /// One color: red, green, blue.
    Color([u8; 3]),
    /// Values of an image's own type: one for all channels, or one for each.
    Values(ChannelNumbers),
    /// The nearest pixel of the image's edge.
    Edge(Edge),
}

/// The word `"edge"` in a written recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Edge {
    /// Repeat the edge.
    Edge,
}

impl Fill {
    /// The color black.
    pub const BLACK: Self = Self::Color([0, 0, 0]);
    /// The nearest pixel of the image's edge.
    pub const EDGE: Self = Self::Edge(Edge::Edge);

    /// The color as kernels take it, with red in the lowest byte, and a flag that is not 0 for the edge.
    pub(crate) fn packed(self) -> (u32, u32) {
        match self {
            Self::Edge(_) => (0, 1),
            color => (packed(color.color()), 0),
        }
    }

    /// Red, green and blue. Operations on RGB images check that there is a color ([`check`](Self::check)).
    pub(crate) fn color(self) -> [u8; 3] {
        match self {
            Self::Color(color) => color,
            Self::Values(values) => values.three().map(|value| value as u8),
            Self::Edge(_) => [0; 3],
        }
    }

    /// The color of RGB images; `None` for the edge.
    #[inline]
    pub(crate) fn rgb(self) -> Option<[u8; 3]> {
        (!matches!(self, Self::Edge(_))).then(|| self.color())
    }

    /// The value of each channel; `None` for the edge.
    pub(crate) fn values(self) -> Option<ChannelNumbers> {
        match self {
            Self::Color([0, 0, 0]) => Some(ChannelNumbers::ZERO),
            Self::Color(color) => Some(ChannelNumbers::rgb(color.map(f32::from))),
            Self::Values(values) => Some(values),
            Self::Edge(_) => None,
        }
    }

    /// Refuses the edge.
    pub(crate) fn no_edge(self, name: &'static str) -> Result<()> {
        match self {
            Self::Edge(_) => Err(Error::parameter(name, "fill", "a color", "edge")),
            Self::Color(_) | Self::Values(_) => Ok(()),
        }
    }
}

impl From<[u8; 3]> for Fill {
    fn from(color: [u8; 3]) -> Self {
        Self::Color(color)
    }
}

impl From<ChannelNumbers> for Fill {
    /// Numbers that are a color become one.
    fn from(values: ChannelNumbers) -> Self {
        let byte = |value: f32| (value.fract() == 0.0 && (0.0..=255.0).contains(&value)).then_some(value as u8);
        match *values.as_slice() {
            [a, b, c] => match [a, b, c].map(byte) {
                [Some(a), Some(b), Some(c)] => Self::Color([a, b, c]),
                _ => Self::Values(values),
            },
            _ => Self::Values(values),
        }
    }
}

impl From<f32> for Fill {
    fn from(value: f32) -> Self {
        Self::Values(value.into())
    }
}

impl<'de> Deserialize<'de> for Fill {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "fill must be [r, g, b] with values 0 to 255, a number for each channel, or \"edge\""
        )]
        enum Written {
            Color([u8; 3]),
            Values(ChannelNumbers),
            Edge(Edge),
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Color(color) => Self::Color(color),
            Written::Values(values) => Self::from(values),
            Written::Edge(edge) => Self::Edge(edge),
        })
    }
}

impl Default for Fill {
    fn default() -> Self {
        Self::BLACK
    }
}

/// A color as a pixel.
pub(crate) fn opaque([red, green, blue]: [u8; 3]) -> Pixel {
    [red, green, blue, 255]
}

/// A color as kernels take it, with red in the lowest byte.
pub(crate) fn packed([red, green, blue]: [u8; 3]) -> u32 {
    u32::from_le_bytes([red, green, blue, 0])
}
