//! Reasons for leaving an image to the CPU's decoder.

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// Reason for leaving an image to the CPU's decoder when a device's decoder is in use.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            /// Names of the reasons, in the order of their numbers (`reason as usize`).
            pub const NAMES: &[&str] = &[$($name),*];
        }
    };
}

reasons! {
    /// The image is not a JPEG.
    Format "no JPEG",
    /// The coding is progressive.
    Progressive "progressive",
    /// The coding is lossless, arithmetic or hierarchical.
    Process "not Huffman-coded baseline",
    /// Samples do not have 8 bits.
    Precision "not 8 bits a sample",
    /// The number of components is neither one nor three, as in CMYK.
    Components "neither gray nor three colors",
    /// The sampling factors are others than those of luma with one chroma sample per MCU.
    Sampling "sampling factors",
    /// The components come in several scans.
    SeveralScans "several scans",
    /// A side has more pixels than libjpeg allows, or the data are longer than a bit position can count.
    TooLarge "too large",
    /// A header segment is odd, or could be read in two ways.
    Header "odd header",
    /// A quantization or Huffman table is missing or impossible.
    Tables "odd tables",
    /// The file has no end-of-image marker.
    NoEnd "no end marker",
    /// The data contain a code that does not exist, an unexpected marker, or a fill byte.
    Damaged "damaged or odd data",
    /// The data end before the MCUs that are needed.
    Truncated "truncated",
    /// The threads took too many rounds to find where their codes begin.
    Unsynchronized "not synchronized",
    /// The device had too little memory for the image.
    Memory "device memory",
    /// The image is decoded at a smaller scale.
    Draft "a draft",
    /// Truncated images are accepted, and libjpeg decides about their pixels.
    Tolerant "truncated images are accepted",
    /// The data were to come to the device past the host, and did not.
    Storage "not read by GPUDirect Storage",
}
