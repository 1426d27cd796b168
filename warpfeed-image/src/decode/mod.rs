//! From a file's bytes to pixels: JPEG, PNG, WebP, PNM, NPY and TIFF, the whole image or a part.
//!
//! Pixels must be Pillow's: accurate integer DCT, fancy upsampling, Pillow's CMYK. Pure-Rust decoders differ slightly,
//! so mozjpeg-sys builds libjpeg's code. We use its internals, so its version is fixed. libjpeg's inverse DCTs differ
//! on the absurd coefficients of crafted files, and Pillow's wheels for x86 have the assembler. Elsewhere, blocks that
//! may leave the common range go through our own version with the assembler's arithmetic (`idct.h`). libjpeg reports
//! errors through a callback that must not return. `jpeg.c` sets a jump target in each call, and all frames in between
//! are C. Each image gets a new decompression object, because libjpeg keeps tables from one image to the next.
//!
//! `huffman.h` replaces libjpeg's Huffman decoder for baseline images. One look-up gives the length of code and
//! coefficient together, and blocks outside of the rectangle are only walked through. Damaged data give the same pixels
//! as in libjpeg. libjpeg's fast path leaves remains of a first attempt where a marker interrupts the data, and where a
//! fill byte precedes a stuffed 0xFF (`FF FF 00`); Pillow has these pixels too, so libjpeg decodes such images.
//!
//! With a store (`entry_point_store`) a decoder records places at which decoding can begin, and uses them later
//! (`entry_points`). Nothing is recorded of an image with a warning, or with meaningless bytes in its data
//! (`oddities`). Only the walk that the rectangle needs is recorded; another rectangle continues it to the end. With
//! vectors, 32 stretches are decoded at a time (`lanes`). If no entry points of a baseline image without restarts are
//! known, vectors find them first (`lanes::find`). Without vectors, and for drafts, libjpeg decodes from the entry point
//! before the crop.
//!
//! The columns of a rectangle are widened to MCUs and by one chroma sample; decoding stops after the last row. libjpeg
//! smooths progressive images with incomplete coefficients over neighbors, so these are decoded from the first row at
//! full width. libjpeg's warnings that mean missing or wrong pixels are errors here. If a file has no end-of-image
//! marker, decoding goes on to its last row, so that a missing end is found wherever the rectangle lies. If it has the
//! marker, damage below the rectangle is not searched for. With `accept_truncated` the existing pixels are used, as by
//! Pillow with `LOAD_TRUNCATED_IMAGES`. The caller checks headers against a pixel limit
//! ([`check_pixels`](crate::check_pixels)).

mod bands;
mod baseline;
mod device_points;
mod entry_point_bytes;
mod entry_point_folder;
mod entry_point_segment;
mod entry_point_starts;
mod entry_point_store;
mod entry_points;
mod exif;
mod folder_lock;
mod huffman;
mod inks;
mod jpeg;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod lossless;
mod lossless_jpeg;
mod npy;
mod npz;
#[cfg(any(test, feature = "testing"))]
pub mod oddities;
mod pack_key;
mod packed_points;
mod pixels;
mod png_planes;
mod pnm;
mod probe;
mod probe_parts;
mod reason;
mod restarts;
mod shared_folder;
mod stored;
#[cfg(feature = "tiff")]
mod tiff;
#[cfg(feature = "webp")]
mod webp;
mod window;
#[cfg(target_arch = "x86_64")]
mod ycc;

pub use bands::join_bands;
pub use entry_point_store::{EntryPointStore, EntryPointUsage};
pub use jpeg::{DecodeOptions, PriorKnowledge};
pub use pack_key::PackKey;
pub use pixels::StoredImage;
pub use probe::probe;
pub use restarts::{indexed, is_indexed};
#[cfg(feature = "tiff")]
pub use tiff::TiffFile;

// For warpfeed alone: a device's JPEG decoder, caches of decoded images, and reports. They trust their arguments, and
// no version number covers them.
#[doc(hidden)]
pub use baseline::{Baseline, BaselineColor, Component};
#[doc(hidden)]
pub use device_points::{DeviceBytes, DevicePoints, KnownStretch, KnownSums, NewPoints, PointMemory};
#[doc(hidden)]
pub use entry_point_store::ImageKey;
#[doc(hidden)]
pub use huffman::Code;
#[doc(hidden)]
pub use jpeg::{has_end, libjpeg_has_simd};
#[doc(hidden)]
pub use pixels::{Input, Pixels};
#[doc(hidden)]
pub use pnm::written as pnm_header;
#[doc(hidden)]
pub use probe_parts::probe_parts;
#[doc(hidden)]
pub use reason::Reason;
#[doc(hidden)]
pub use stored::{all_bands, half_to_f32};
#[doc(hidden)]
pub use window::DecodeWindow;

use crate::error::{Error, Result};
use crate::planes::{MAX_CHANNELS, PixelKind, Planes};
use crate::raster::{Image, Pixel, Rect, Size};
use std::ops::Range;

/// Second byte of the frame marker of a lossless JPEG.
const LOSSLESS_JPEG: u8 = 0xC3;

/// The file formats that are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG, baseline, progressive or lossless, 8 bits a sample.
    Jpeg,
    /// PNG.
    Png,
    /// WebP, lossy or lossless. An animation gives its first image.
    WebP,
    /// PNM, binary, with one or three channels of 8 bits: .pgm and .ppm.
    Pnm,
    /// An array in NumPy's .npy format: [H, W] or [H, W, C].
    Npy,
    /// An archive in NumPy's .npz format: its only array, or the one that is named `arr_0` or `image`.
    Npz,
    /// TIFF or BigTIFF, the first page that is no thumbnail.
    Tiff,
    /// Several files as one image ([`join_bands`]).
    Bands,
}

impl Format {
    /// All formats.
    pub const ALL: &'static [Self] =
        &[Self::Jpeg, Self::Png, Self::WebP, Self::Pnm, Self::Npy, Self::Npz, Self::Tiff, Self::Bands];

    /// The format's name: `JPEG`, `PNG`, `WebP`, `PNM`, `NPY`, `NPZ` or `TIFF`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Pnm => "PNM",
            Self::Npy => "NPY",
            Self::Npz => "NPZ",
            Self::Tiff => "TIFF",
            Self::Bands => "bands",
        }
    }

    /// The endings of such files' names, in lower case and without the dot, the usual one first.
    ///
    /// ```
    /// assert_eq!(warpfeed_image::Format::Jpeg.extensions(), ["jpg", "jpeg"]);
    /// ```
    #[must_use]
    pub const fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Jpeg => &["jpg", "jpeg"],
            Self::Png => &["png"],
            Self::WebP => &["webp"],
            Self::Pnm => &["pgm", "ppm"],
            Self::Npy => &["npy"],
            Self::Npz => &["npz"],
            Self::Tiff => &["tif", "tiff"],
            Self::Bands => &["bands"],
        }
    }

    /// Whether files of this format hold arrays, of images or of anything else.
    #[must_use]
    pub const fn is_array(self) -> bool {
        matches!(self, Self::Npy | Self::Npz)
    }

    /// The format of files whose names have this ending, without the dot and in lower or upper case.
    #[must_use]
    pub fn by_extension(extension: &[u8]) -> Option<Self> {
        let is_it = |own: &&str| own.as_bytes().eq_ignore_ascii_case(extension);
        Self::ALL.iter().copied().find(|format| format.extensions().iter().any(is_it))
    }
}

/// The content of an image's header.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// The file format.
    pub format: Format,
    /// Width and height of the decoded image, before [`orientation`](Self::orientation) is applied.
    pub size: Size,
    /// Width and height as stored: [`size`](Self::size), unless this is a draft.
    pub(crate) full_size: Size,
    /// Denominator of the scale at which the image is decoded.
    pub(crate) scale_denom: u32,
    /// EXIF orientation, 1 to 8; 1 if it is absent or absurd.
    pub orientation: u8,
    /// Whether a JPEG comes in scans of rising quality. `false` for other formats.
    pub progressive: bool,
    /// Number of color components of a pixel, alpha included; 3 for a palette.
    pub components: u8,
    /// Number of bits of a sample or of a palette's index.
    pub precision_bits: u8,
    /// Type and number of the values of a pixel, as [`Decoder::decode_planes`] gives them. A palette's are its colors.
    pub kind: PixelKind,
    /// Horizontal and vertical sampling factors of a JPEG's components; (0, 0) for components that do not exist.
    pub sampling: [(u8, u8); 4],
    /// Restart interval of a JPEG in MCUs; 0 without restarts.
    pub restart_interval_mcus: u16,
    /// Whether a JPEG of three components is marked as red, green and blue instead of luma and chroma.
    pub rgb: bool,
    /// Second byte of a JPEG's frame marker, which names the process: 0xC0 and 0xC1 are sequential (baseline), 0xC2
    /// progressive, 0xC3 lossless. 0 for other formats.
    pub process: u8,
    /// Offset of the data of a JPEG's first scan, or of the pixels of a PNM or NPY file.
    pub scan_offset_bytes: usize,
    /// Whether there is an alpha channel.
    pub(crate) has_alpha: bool,
    /// Place of a JPEG's row index, after its signature.
    pub(crate) row_index: Option<Range<usize>>,
    /// Place of a JPEG's own entry points, after their signature.
    pub(crate) packed_points: Option<Range<usize>>,
}

impl Header {
    /// The header of an image whose values are those of an array, such as a [`StoredImage`].
    ///
    /// ```
    /// use warpfeed_image::planes::{Element, PixelKind};
    /// use warpfeed_image::{Header, Size};
    ///
    /// let kind = PixelKind { element: Element::U16, channels: 13 };
    /// let header = Header::of_array(Size::new(64, 48), kind);
    /// assert_eq!((header.size, header.kind, header.precision_bits), (Size::new(64, 48), kind, 16));
    /// ```
    #[must_use]
    pub fn of_array(size: Size, kind: PixelKind) -> Self {
        Self {
            components: kind.channels as u8,
            precision_bits: 8 * kind.element.size_bytes() as u8,
            kind,
            ..probe::header(Format::Npy, size.width, size.height)
        }
    }

    /// Whether decoding keeps only the high 8 bits of each sample.
    #[must_use]
    pub fn has_more_bits(&self) -> bool {
        self.precision_bits > 8
    }

    /// Whether the image has an alpha channel, which decoding drops.
    #[must_use]
    pub fn has_alpha(&self) -> bool {
        self.has_alpha
    }

    /// Makes this the header of a draft: a JPEG is then decoded at 1/2, 1/4 or 1/8 of its size, the smallest of these
    /// whose sides are not below `size`, and [`size`](Self::size) is that of the result. Nothing changes for images of
    /// less than twice `size`, for lossless JPEGs, and for other formats.
    ///
    /// The rule, and the pixels, are those of Pillow's `Image.draft`. A draft is cheaper, because its pixels come from
    /// a smaller transform of each block of 8 x 8 coefficients. They are not those that a resize would make of the
    /// whole image.
    ///
    /// ```
    /// use warpfeed_image::{Image, JpegOptions, Size, encode_jpeg, probe};
    ///
    /// let mut header = probe(&encode_jpeg(&Image::new(Size::new(1001, 750)), &JpegOptions::default())?)?;
    /// header.draft(Size::new(256, 256));
    /// assert_eq!(header.size, Size::new(501, 375));
    /// # Ok::<(), warpfeed_image::Error>(())
    /// ```
    pub fn draft(&mut self, size: Size) {
        let Size { width, height } = self.full_size;
        let times = (width / size.width.max(1)).min(height / size.height.max(1));
        if self.format == Format::Jpeg && self.process != LOSSLESS_JPEG {
            self.scale_denom = [8, 4, 2].into_iter().find(|denom| times >= *denom).unwrap_or(1);
            self.size = Size::new(width.div_ceil(self.scale_denom), height.div_ceil(self.scale_denom));
        }
    }

    /// Width and height as stored: [`size`](Self::size), unless this is the header of a draft.
    #[must_use]
    pub fn full_size(&self) -> Size {
        self.full_size
    }

    /// The denominator of the scale at which the image is decoded: 1, or 2, 4 or 8 if this is the header of a draft.
    #[must_use]
    pub fn scale_denom(&self) -> u32 {
        self.scale_denom
    }

    /// Whether the image is decoded at a smaller scale than it is stored.
    #[must_use]
    pub fn is_draft(&self) -> bool {
        self.scale_denom != 1
    }

    /// The rectangle of the whole image that `part` shows, with a margin of one sample if this is a draft.
    fn full_part(&self, part: Rect) -> Rect {
        let (denom, Size { width, height }) = (self.scale_denom, self.full_size);
        if !self.is_draft() {
            return part;
        }
        let (x, y) = (part.x.saturating_sub(1) * denom, part.y.saturating_sub(1) * denom);
        let (right, bottom) = (width.min((part.right() + 1) * denom), height.min((part.bottom() + 1) * denom));
        Rect { x, y, width: right - x, height: bottom - y }
    }

    /// The usual ending of such files' names.
    ///
    /// ```
    /// assert_eq!(warpfeed_image::probe(b"P5 2 1 255 ab")?.file_extension(), "pgm");
    /// # Ok::<(), warpfeed_image::Error>(())
    /// ```
    #[must_use]
    pub fn file_extension(&self) -> &'static str {
        match (self.format, self.components) {
            (Format::Pnm, 2..) => "ppm",
            (format, _) => format.extensions()[0],
        }
    }
}

/// A decoder of images, one at a time. Each thread has its own.
///
/// # Examples
/// ```
/// use warpfeed_image::{Decoder, Image, JpegOptions, Rect, Size, encode_jpeg, probe};
///
/// let bytes = encode_jpeg(&Image::new(Size::new(64, 48)), &JpegOptions::default())?;
/// let header = probe(&bytes)?;
/// let mut image = Image::default();
/// let part = Rect { x: 10, y: 20, width: 30, height: 8 };
/// Decoder::new()?.decode(&bytes, &header, part, false, &mut image)?;
/// assert_eq!(image.size(), Size::new(30, 8));
/// assert_eq!(image.whole(), Size::new(64, 48));
/// # Ok::<(), warpfeed_image::Error>(())
/// ```
pub struct Decoder {
    jpeg: jpeg::JpegDecoder,
    /// Memory for the values of an image that is converted to RGB.
    planes: Planes,
    /// Memory for the pixels of an image whose channels are asked for.
    image: Image,
    #[cfg(feature = "tiff")]
    tiff: tiff::TiffScratch,
}

/// Memory of more bytes is not kept from one image to the next.
const KEEP_BYTES: usize = 64 << 20;

impl Decoder {
    /// A new decoder.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is too little memory; [`Error::Parameter`] if the environment variable
    /// `WARPFEED_SIMD` is not `none`, `avx2` or `avx512`.
    pub fn new() -> Result<Self> {
        crate::simd::check()?;
        Ok(Self {
            jpeg: jpeg::JpegDecoder::new()?,
            planes: Planes::default(),
            image: Image::default(),
            #[cfg(feature = "tiff")]
            tiff: tiff::TiffScratch::default(),
        })
    }

    /// Decodes the rectangle `part` of an image into `out`. The pixels are those of a full decode, at less cost.
    /// `header` is the result of [`probe`] for these `bytes`; its orientation is not applied. After an error, the
    /// content of `out`'s pixels is unspecified.
    ///
    /// Arrays and TIFFs have an RGB form if their values are whole numbers and their channels are gray or colors, with
    /// alpha or without; arrays must be of bytes. Others are refused: see [`decode_planes`](Self::decode_planes).
    ///
    /// If the file lacks its end, missing or damaged data are an error even outside of `part`. With `accept_truncated`
    /// a JPEG is decoded as Pillow does with `ImageFile.LOAD_TRUNCATED_IMAGES`: missing parts are gray, or black if
    /// decoding could not go on.
    ///
    /// # Errors
    /// [`Error::Decode`] if the image is damaged, truncated, or of a kind that is not supported; [`Error::OutOfMemory`]
    /// if there is too little memory for its pixels; [`Error::Parameter`] if `part` is empty or not inside the image.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        header: &Header,
        part: Rect,
        accept_truncated: bool,
        out: &mut Image,
    ) -> Result<()> {
        self.decode_with(bytes, header, part, DecodeOptions { accept_truncated, ..DecodeOptions::default() }, out)
            .map(drop)
    }

    /// Like [`decode`](Self::decode), with a store for entry points. Returns the knowledge that the store had about the
    /// image.
    ///
    /// # Errors
    /// See [`decode`](Self::decode).
    pub fn decode_with(
        &mut self,
        bytes: &[u8],
        header: &Header,
        part: Rect,
        options: DecodeOptions<'_>,
        out: &mut Image,
    ) -> Result<PriorKnowledge> {
        check_part(header, part)?;
        // The memory is allocated here, because the decoders' own allocation would end the process if there is none.
        out.reserve(part.size())?;
        match header.format {
            Format::Jpeg => self.jpeg.decode(bytes, header, part, options, out),
            Format::Png | Format::WebP => lossless::decode(bytes, header, part, out).map(|()| PriorKnowledge::Nothing),
            Format::Pnm => Pixels::of_pnm(bytes, header)?.to_image(part, out).map(|()| PriorKnowledge::Nothing),
            Format::Npy | Format::Npz => {
                npy::check_rgb(header)?;
                let decode = if header.format == Format::Npz { npz::decode } else { npy::decode };
                decode(bytes, header, part, stored::all_bands(header.kind), &mut self.planes)?;
                planes_to_image(&self.planes, out);
                self.planes.shrink(KEEP_BYTES);
                Ok(PriorKnowledge::Nothing)
            }
            Format::Bands => {
                npy::check_rgb(header)?;
                let mut planes = std::mem::take(&mut self.planes);
                let decoded = self.decode_planes(bytes, header, part, None, options, &mut planes);
                if decoded.is_ok() {
                    planes_to_image(&planes, out);
                }
                planes.shrink(KEEP_BYTES);
                self.planes = planes;
                decoded
            }
            #[cfg(feature = "tiff")]
            Format::Tiff => {
                let Self { jpeg, planes, tiff, .. } = self;
                let decoded = tiff::decode_rgb(&bytes, header, part, jpeg, tiff, planes, out);
                planes.shrink(KEEP_BYTES);
                tiff.shrink(KEEP_BYTES);
                decoded.map(|()| PriorKnowledge::Nothing)
            }
            #[cfg(not(feature = "tiff"))]
            Format::Tiff => Err(probe::no_tiff()),
        }
    }

    /// Decodes the rectangle `part` of a JPEG into gray pixels, whose three channels are its own luma: libjpeg's gray output,
    /// which OpenCV and torchvision give. A JPEG of red, green and blue has their luma by ITU-R BT.601.
    ///
    /// # Errors
    /// The errors of [`decode`](Self::decode); [`Error::Unsupported`] for other formats and for CMYK.
    pub fn decode_luma(&mut self, bytes: &[u8], header: &Header, part: Rect, out: &mut Image) -> Result<()> {
        if header.format != Format::Jpeg || header.components == 4 {
            let feature =
                format!("the luma of a {}", if header.components == 4 { "CMYK JPEG" } else { header.format.name() });
            return Err(Error::Unsupported { feature, remedy: "decode to RGB, and convert that".to_owned() });
        }
        self.jpeg.luma = true;
        let decoded = self.decode(bytes, header, part, false, out);
        self.jpeg.luma = false;
        decoded?;
        for pixel in out.pixels_mut() {
            let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
            let luma = ((19_595 * red + 38_470 * green + 7_471 * blue + 0x8000) >> 16) as u8;
            *pixel = [luma, luma, luma, 255];
        }
        Ok(())
    }

    /// Decodes the rectangle `part` of an image, in its own element type and with all its channels ([`Header::kind`]), or
    /// with the channels `bands` alone, in that order. Values are those that are stored; alpha is a channel like any
    /// other. A JPEG has the values of [`decode_with`](Self::decode_with), and one channel if it is gray.
    ///
    /// Values of fewer bits than their type are not scaled: a PNG of 1 bit has the values 0 and 1. Signed numbers of 8
    /// and 16 bits and floating-point numbers of 16 bits become `f32`, which is exact. In a TIFF whose 0 is white, 0
    /// stays 0, and colors that were multiplied by alpha stay so.
    ///
    /// ```
    /// use warpfeed_image::decode::DecodeOptions;
    /// use warpfeed_image::planes::{Element, PixelKind, Planes};
    /// use warpfeed_image::{Decoder, Rect, probe};
    ///
    /// let text = "{'descr': '<u2', 'fortran_order': False, 'shape': (1, 2, 2), }\n";
    /// let mut bytes = [&b"\x93NUMPY\x01\0"[..], &[text.len() as u8, 0], text.as_bytes()].concat();
    /// bytes.extend([1000_u16, 2, 3000, 4].map(u16::to_le_bytes).concat());
    /// let header = probe(&bytes)?;
    /// assert_eq!(header.kind, PixelKind { element: Element::U16, channels: 2 });
    ///
    /// let (mut decoder, mut planes) = (Decoder::new()?, Planes::default());
    /// let whole = Rect::full(header.size);
    /// decoder.decode_planes(&bytes, &header, whole, None, DecodeOptions::default(), &mut planes)?;
    /// assert_eq!(planes.plane::<u16>(0), [1000, 3000]);
    /// decoder.decode_planes(&bytes, &header, whole, Some(&[1]), DecodeOptions::default(), &mut planes)?;
    /// assert_eq!(planes.values::<u16>(), [2, 4]);
    /// # Ok::<(), warpfeed_image::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`decode`](Self::decode); [`Error::Parameter`] for a band that the image does not have.
    pub fn decode_planes(
        &mut self,
        bytes: &[u8],
        header: &Header,
        part: Rect,
        bands: Option<&[u16]>,
        options: DecodeOptions<'_>,
        out: &mut Planes,
    ) -> Result<PriorKnowledge> {
        check_part(header, part)?;
        let bands = match bands {
            Some(bands) => check_bands(header, bands)?,
            None => stored::all_bands(header.kind),
        };
        let mut knew = PriorKnowledge::Nothing;
        match header.format {
            Format::Png => png_planes::decode(bytes, header, part, bands, out)?,
            Format::Pnm => Pixels::of_pnm(bytes, header)?.to_planes(part, bands, out)?,
            Format::Npy => npy::decode(bytes, header, part, bands, out)?,
            Format::Npz => npz::decode(bytes, header, part, bands, out)?,
            Format::Bands => knew = bands::decode(self, bytes, header, part, bands, options, out)?,
            #[cfg(feature = "tiff")]
            Format::Tiff => {
                let decoded = tiff::decode(&bytes, header, part, bands, &mut self.jpeg, &mut self.tiff, out);
                self.tiff.shrink(KEEP_BYTES);
                decoded?;
            }
            #[cfg(not(feature = "tiff"))]
            Format::Tiff => return Err(probe::no_tiff()),
            Format::Jpeg | Format::WebP => {
                self.image.reserve(part.size())?;
                if header.format == Format::Jpeg {
                    knew = self.jpeg.decode(bytes, header, part, options, &mut self.image)?;
                } else {
                    lossless::webp(bytes, header, part, header.has_alpha(), &mut self.image)?;
                }
                Pixels::from(&self.image).to_planes(Rect::full(part.size()), bands, out)?;
                out.moved_to(header.size, part);
                self.image.shrink(KEEP_BYTES / size_of::<Pixel>());
            }
        }
        Ok(knew)
    }

    /// Puts entry points into a JPEG, so that decoders with a store have them from the first decode on
    /// ([`DecodeOptions::entry_points`]). Decodes the image into `out`. No other byte of the image is changed, but for
    /// entry points that it has already: these are replaced. `None` if the image cannot have entry points: it is
    /// progressive, too small, or has bytes without a meaning in its data.
    ///
    /// `key` seals them: stores with this key ([`EntryPointStore::with_pack_key`]) trust them. Others check them in the
    /// first decode, which takes longer.
    ///
    /// ```
    /// use warpfeed_image::decode::{DecodeOptions, PriorKnowledge};
    /// use warpfeed_image::{Decoder, Image, JpegOptions, Size, encode_jpeg, probe};
    ///
    /// let bytes = encode_jpeg(&Image::new(Size::new(640, 480)), &JpegOptions::default())?;
    /// let (mut decoder, mut image) = (Decoder::new()?, Image::default());
    /// let with = decoder.with_entry_points(&bytes, &probe(&bytes)?, None, &mut image)?.expect("a baseline image");
    /// assert!(with.len() > bytes.len() && with.ends_with(&bytes[100..]));
    /// # Ok::<(), warpfeed_image::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`decode`](Self::decode).
    pub fn with_entry_points(
        &mut self,
        bytes: &[u8],
        header: &Header,
        key: Option<&PackKey>,
        out: &mut Image,
    ) -> Result<Option<Vec<u8>>> {
        out.reserve(header.size)?;
        match header.format {
            Format::Jpeg => self.jpeg.with_entry_points(bytes, header, key, out),
            _ => Ok(None),
        }
    }
}

/// Refuses an empty part, and one that is not inside the image.
fn check_part(header: &Header, part: Rect) -> Result<()> {
    if !part.size().is_empty() && part.fits(header.size) {
        return Ok(());
    }
    Err(Error::parameter(
        "decode",
        "part",
        format!("a rectangle inside the image of {}, at least one pixel", header.size),
        format!("{} at ({}, {})", part.size(), part.x, part.y),
    ))
}

/// Refuses channels that the image does not have.
fn check_bands<'a>(header: &Header, bands: &'a [u16]) -> Result<&'a [u16]> {
    let channels = header.kind.channels;
    if (1..=usize::from(MAX_CHANNELS)).contains(&bands.len()) && bands.iter().all(|band| *band < channels) {
        return Ok(bands);
    }
    let expected = format!("1 to {MAX_CHANNELS} numbers of channels, each from 0 to {}", channels - 1);
    Err(Error::parameter("decode", "bands", expected, format!("{bands:?}")))
}

/// Copies values of 8 bits to pixels: one channel as gray, the first three of others as colors.
fn planes_to_image(planes: &Planes, out: &mut Image) {
    out.reset_part(planes.whole(), planes.part());
    let color = |channel| planes.plane::<u8>(if planes.kind().channels < 3 { 0 } else { channel });
    let colors = color(0).iter().zip(color(1)).zip(color(2));
    out.pixels_mut().iter_mut().zip(colors).for_each(|(to, ((r, g), b))| *to = [*r, *g, *b, 255]);
}

/// The error for an image that has no RGB form.
fn no_rgb(format: Format, kind: PixelKind) -> Error {
    let remedy = "ask for them as they are (pixels), or convert the image to RGB";
    Error::decode(format.name(), format!("{kind} cannot be read as RGB: {remedy}"))
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}
