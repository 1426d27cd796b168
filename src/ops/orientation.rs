//! EXIF orientation tags as operations.

use super::{Hflip, Op, Rotate, Vflip};
use serde::{Deserialize, Serialize};

/// Handling of an image's EXIF orientation tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Orientation {
    /// The image is turned as the tag says, before any other operation.
    #[default]
    Apply,
    /// The tag is ignored.
    Ignore,
}

choices! {
    Orientation, "orientation":
    Apply = "apply", "Turn images as their EXIF tag says.";
    Ignore = "ignore", "Leave images as they are stored.";
}

/// The operations that an orientation tag asks for; none if it is ignored.
pub fn oriented(tag: u8, orientation: Orientation) -> Vec<Op> {
    match orientation {
        Orientation::Apply => orientation_ops(tag),
        Orientation::Ignore => Vec::new(),
    }
}

/// The operations that bring an image stored with an EXIF orientation tag (1 to 8) upright.
fn orientation_ops(tag: u8) -> Vec<Op> {
    let turn = |degrees| Rotate::new(degrees).expand(true).into();
    match tag {
        2 => vec![Hflip.into()],
        3 => vec![turn(180.0)],
        4 => vec![Vflip.into()],
        5 => vec![turn(90.0), Vflip.into()],
        6 => vec![turn(270.0)],
        7 => vec![turn(90.0), Hflip.into()],
        8 => vec![turn(90.0)],
        _ => Vec::new(),
    }
}
