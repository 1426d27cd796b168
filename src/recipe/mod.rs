//! Recipes: which operations, with which numbers. No pixels here.

pub(crate) mod filter;
pub(crate) mod lower;
pub(crate) mod op;
pub(crate) mod preset;
pub(crate) mod random;
pub(crate) mod rng;
pub(crate) mod rotation;

use op::{Fill, Interpolation, Op};

/// How a recipe is run. One meaning, three ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// One pass an operation, every intermediate image made: the specification of the others, and the honest load for
    /// a comparison with loaders that work so.
    Sequential,
    /// Geometric operations in a row become one gather, of which only what the output needs is computed and decoded.
    /// The bytes are those of [`Sequential`](Self::Sequential).
    #[default]
    Fused,
    /// Flips, crops and rotations in a row are multiplied into one affine map and the image is sampled once,
    /// bilinearly: sharper than sampling it for each rotation, and a different result. Its cost does not grow with the
    /// number of rotations: on the CPU it is half of [`Fused`](Self::Fused)'s for four bilinear ones, and no less for up
    /// to a dozen nearest ones.
    Composed,
}

/// The operations that bring an image stored with an EXIF orientation tag (1 to 8) upright.
pub(crate) fn orientation_ops(tag: u8) -> Vec<Op> {
    let turn = |degrees| Op::Rotate { degrees, interpolation: Interpolation::Nearest, expand: true, fill: Fill::BLACK };
    match tag {
        2 => vec![Op::Hflip],
        3 => vec![turn(180.0)],
        4 => vec![Op::Vflip],
        5 => vec![turn(90.0), Op::Vflip],
        6 => vec![turn(270.0)],
        7 => vec![turn(90.0), Op::Hflip],
        8 => vec![turn(90.0)],
        _ => Vec::new(),
    }
}
