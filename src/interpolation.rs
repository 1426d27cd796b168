//! The filters that compute values between pixels.

use serde::{Deserialize, Serialize};

/// Filter that computes values between pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interpolation {
    /// The pixel whose area contains the point.
    Nearest,
    /// Mean of the pixels that a pixel of the result covers: Pillow's `BOX`.
    Box,
    /// Triangle filter, antialiased when it shrinks.
    #[default]
    Bilinear,
    /// Raised cosine over two pixels, antialiased when it shrinks: Pillow's `HAMMING`.
    Hamming,
    /// Cubic convolution with a = -0.5, antialiased when it shrinks.
    Bicubic,
    /// Windowed sinc over three lobes, antialiased when it shrinks.
    Lanczos,
}

impl Interpolation {
    /// The default of operations that sample through a map.
    pub(crate) const fn nearest() -> Self {
        Self::Nearest
    }
}
