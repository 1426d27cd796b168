//! Pixels outside an image.

use crate::raster::Pixel;
use serde::{Deserialize, Serialize};

/// The appearance of pixels outside the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "fill must be [r, g, b] with values 0 to 255, or \"edge\"")]
pub enum Fill {
    /// One color: red, green, blue.
    Color([u8; 3]),
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
            Self::Color(color) => (packed(color), 0),
            Self::Edge(_) => (0, 1),
        }
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
