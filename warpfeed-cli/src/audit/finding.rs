//! What an audit finds about images.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use warpfeed::{Error, Result};

macro_rules! findings {
    ($($(#[$doc:meta])* $variant:ident $name:literal $meaning:literal,)*) => {
        /// A finding about an image.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Finding {
            $($(#[$doc])* $variant,)*
        }

        impl Finding {
            /// All findings, in the order of reports.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Name of the finding on the command line and in files.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Meaning of the finding, for reports.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)*
                }
            }
        }
    };
}

findings! {
    /// The file cannot be read, or its bytes cannot be decoded.
    Unreadable "unreadable" "cannot be read or decoded",
    /// The bytes end before the image does.
    Truncated "truncated" "ends before the image is complete",
    /// Boxes, labels, keypoints or masks that cannot be used, of a source whose images have them.
    Annotations "annotations" "has annotations that cannot be used",
    /// The content is of another format than the file name's ending says.
    Extension "extension" "is of another format than its name says",
    /// An EXIF tag turns or mirrors the image.
    Turned "turned" "is turned or mirrored by its EXIF tag",
    /// Four inks, or luma, colors and black.
    Cmyk "cmyk" "has four inks (CMYK or YCCK)",
    /// One gray channel.
    Gray "gray" "has one gray channel",
    /// More than 8 bits a sample.
    SixteenBits "16-bit" "has more than 8 bits a sample",
    /// Transparency, which decoding drops.
    Alpha "alpha" "has transparency, which decoding drops",
    /// Several images; only the first is read.
    Animated "animated" "is an animation, of which the first image is read",
    /// A side of few pixels.
    Tiny "tiny" "has a short side",
    /// Very many pixels.
    Huge "huge" "has very many pixels",
    /// A side that is many times as long as the other.
    Ratio "ratio" "is long and narrow",
    /// Decoding takes much longer than of other images of its format.
    Slow "slow" "decodes slowly",
    /// The bytes are those of an earlier image of the split.
    Duplicate "duplicate" "has the bytes of an earlier image",
    /// The picture is that of an earlier image of the split, in other bytes.
    NearDuplicate "near-duplicate" "shows what an earlier image shows",
    /// A copy, exact or near, has another label.
    OtherLabel "other-label" "has a copy with another label",
    /// A copy, exact or near, is in another split.
    OtherSplit "other-split" "has a copy in another split",
}

impl Finding {
    /// The finding's bit in a set of findings.
    pub(super) fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The bits of these findings.
    pub(super) fn bits(findings: &[Self]) -> u32 {
        findings.iter().fold(0, |bits, finding| bits | finding.bit())
    }

    /// The findings of a set, in the order of reports.
    pub(super) fn of(bits: u32) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |finding| bits & finding.bit() != 0)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FromStr for Finding {
    type Err = Error;

    /// Reads a finding's name.
    ///
    /// ```
    /// use warpfeed_cli::audit::Finding;
    ///
    /// assert_eq!("near-duplicate".parse::<Finding>()?, Finding::NearDuplicate);
    /// assert!("ugly".parse::<Finding>().unwrap_err().to_string().contains("unreadable, truncated"));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|finding| finding.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|finding| finding.name()).collect();
            Error::parameter("audit", "finding", format!("one of {}", names.join(", ")), text)
        })
    }
}
