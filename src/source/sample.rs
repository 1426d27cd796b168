//! A sample, and the parts of it that a reader wants.

use super::no_fields;
use crate::decode::{Input, StoredImage};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::raster::Size;
use crate::targets::{self, Found, Target};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The parts of a sample that a reader wants ([`Source::read`](super::Source::read)).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ReadRequest<'a> {
    /// Whether the encoded image is wanted.
    pub image: bool,
    /// The field whose raw content is wanted, as the target; `None` if none is wanted.
    pub target: Option<&'a str>,
    /// The names of the fields that are wanted as boxes, masks and others ([`Fields`]); none by default.
    pub fields: &'a [String],
    /// Whether an image may be left where it is, to be read in parts ([`Sample::set_stored`]).
    pub parts: bool,
    stopped: Option<&'a AtomicBool>,
}

impl<'a> ReadRequest<'a> {
    /// The encoded image.
    pub const IMAGE: Self = Self { image: true, target: None, fields: &[], parts: false, stopped: None };

    /// Also takes images that are read in parts.
    #[must_use]
    pub fn or_parts(self, parts: bool) -> Self {
        Self { parts, ..self }
    }

    /// Wants the content of a field, without the image.
    #[must_use]
    pub fn target(field: &'a str) -> Self {
        Self::IMAGE.and_target(Some(field)).without_image()
    }

    /// Leaves the image out.
    #[must_use]
    pub fn without_image(self) -> Self {
        Self { image: false, ..self }
    }

    /// Also wants the content of a field as the target.
    #[must_use]
    pub fn and_target(self, target: Option<&'a str>) -> Self {
        Self { target, ..self }
    }

    /// Also wants these fields.
    #[must_use]
    pub fn and_fields(self, fields: &'a [String]) -> Self {
        Self { fields, ..self }
    }

    /// Whether nothing is wanted.
    pub(crate) fn is_nothing(&self) -> bool {
        !self.image && self.target.is_none() && self.fields.is_empty()
    }

    /// Lets the reader give up: soon after `stopped` has become true, a source that waits returns an error.
    #[must_use]
    pub fn unless(self, stopped: &'a AtomicBool) -> Self {
        Self { stopped: Some(stopped), ..self }
    }

    /// The flag that becomes true when the reader gives up.
    pub(super) fn stopped(&self) -> &AtomicBool {
        static NEVER: AtomicBool = AtomicBool::new(false);
        self.stopped.unwrap_or(&NEVER)
    }

    /// Whether the reader has given up. A source that waits, for example for a network, checks this repeatedly.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped().load(Relaxed)
    }
}

/// A sample that is being read: the image, encoded or as pixels, and, if wanted, a field's content. The next sample may
/// reuse its buffer.
///
/// ```
/// use warpfeed::source::{EncodedImages, Sample, Source, ReadRequest};
///
/// let source = EncodedImages::new([(vec![0xff, 0xd8], 7)]);
/// let mut sample = Sample::default();
/// source.read(0, &ReadRequest::IMAGE, &mut sample)?;
/// assert_eq!((sample.bytes(), source.label(0)), (&[0xff, 0xd8][..], Some(7)));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Sample<'a> {
    buffer: Vec<u8>,
    bytes: Bytes<'a>,
    /// Size and number of channels, if the bytes are pixels.
    pixels: Option<(Size, u8)>,
    /// The image, if it is read in parts.
    stored: Option<Arc<dyn StoredImage>>,
    target: Option<Target>,
    fields: Option<Fields>,
}

/// Location of the image.
#[derive(Debug)]
enum Bytes<'a> {
    /// Range of the buffer.
    Buffer(Range<usize>),
    /// Memory of the source.
    Lent(&'a [u8]),
}

impl Default for Bytes<'_> {
    fn default() -> Self {
        Self::Buffer(0..usize::MAX)
    }
}

impl<'a> Sample<'a> {
    /// Makes an empty sample that reuses a buffer.
    #[must_use]
    pub fn with_buffer(buffer: Vec<u8>) -> Self {
        Self { buffer, ..Self::default() }
    }

    /// Makes the buffer the encoded image and returns it. A source that has no memory to lend replaces its content.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        (self.bytes, self.pixels, self.stored) = (Bytes::default(), None, None);
        &mut self.buffer
    }

    /// Keeps only a range of the present [`bytes`](Self::bytes) as the encoded image; pixels are then none any more. A
    /// range beyond their end is cut off there.
    pub fn keep(&mut self, part: Range<usize>) {
        self.pixels = None;
        let within = |len: usize| part.start.min(len)..part.end.clamp(part.start.min(len), len);
        match &mut self.bytes {
            Bytes::Lent(bytes) => *bytes = &bytes[within(bytes.len())],
            Bytes::Buffer(of) => {
                let (start, end) = (of.start.min(self.buffer.len()), of.end.min(self.buffer.len()));
                let part = within(end - start);
                *of = start + part.start..start + part.end;
            }
        }
    }

    /// Lends the source's own memory as the encoded image, so that nothing is copied.
    pub fn lend(&mut self, bytes: &'a [u8]) {
        (self.bytes, self.pixels, self.stored) = (Bytes::Lent(bytes), None, None);
    }

    /// Leaves the image where it is. Only the parts that a pipeline needs are read. A source may do so if the request says
    /// that parts may be taken ([`ReadRequest::parts`]).
    pub fn set_stored(&mut self, image: Arc<dyn StoredImage>) {
        self.lend(&[]);
        self.stored = Some(image);
    }

    /// The image, if it is read in parts.
    pub(crate) fn take_stored(&mut self) -> Option<Arc<dyn StoredImage>> {
        self.stored.take()
    }

    /// Says that the present [`bytes`](Self::bytes) are not an encoded image but the pixels of an image of this size:
    /// row by row without gaps, one gray value (1 channel) or red, green and blue (3 channels).
    ///
    /// ```
    /// use warpfeed::{image::Size, source::Sample};
    ///
    /// let mut sample = Sample::default();
    /// sample.lend(&[10, 20, 30]);
    /// sample.set_pixels(Size::new(3, 1), 1)?;
    /// assert_eq!(*sample.encoded(), *b"P5\n3 1\n255\n\x0a\x14\x1e");
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Decode`] if the image is empty or there are more or fewer bytes, which makes the sample a bad one.
    pub fn set_pixels(&mut self, size: Size, channels: u8) -> Result<()> {
        let (found, wanted) = (self.bytes().len(), u128::from(size.area_px()) * u128::from(channels));
        if !matches!(channels, 1 | 3) || size.is_empty() || found as u128 != wanted {
            let message = format!("{found} bytes are not {size} pixels of {channels} channels, 1 or 3");
            return Err(Error::decode("pixels", message));
        }
        self.pixels = Some((size, channels));
        Ok(())
    }

    /// Sets the content of the field that was wanted.
    pub fn set_target(&mut self, target: Target) {
        self.target = Some(target);
    }

    /// Sets the fields that were wanted. Others among them are ignored.
    pub fn set_fields(&mut self, fields: Fields) {
        self.fields = Some(fields);
    }

    /// The encoded image, or the bytes of its pixels.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Lent(bytes) => bytes,
            Bytes::Buffer(part) => &self.buffer[part.start.min(self.buffer.len())..part.end.min(self.buffer.len())],
        }
    }

    /// The encoded image. Pixels are encoded as PNM.
    #[must_use]
    pub fn encoded(&self) -> Cow<'_, [u8]> {
        match self.image() {
            Input::Encoded(bytes) => bytes.into(),
            Input::Pixels(pixels) => pixels.to_pnm().into(),
            Input::Stored(_) => Cow::default(),
        }
    }

    /// Size and number of channels, if the image is not encoded.
    pub(crate) fn pixels(&self) -> Option<(Size, u8)> {
        self.pixels
    }

    pub(crate) fn image(&self) -> Input<'_> {
        match &self.stored {
            Some(image) => Input::Stored(&**image),
            None => Input::new(self.bytes(), self.pixels),
        }
    }

    /// The target and the fields that were set.
    pub(crate) fn found(&self) -> (Option<&Target>, Option<&Fields>) {
        (self.target.as_ref(), self.fields.as_ref())
    }

    /// Takes the content of the field that was wanted.
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) if the source has not set it, because it has no fields.
    pub(crate) fn take_target(&mut self, want: &ReadRequest<'_>) -> Result<Option<Target>> {
        let Some(field) = want.target else { return Ok(None) };
        self.target.take().ok_or_else(|| no_fields("a label alone", field)).map(Some)
    }

    /// Takes the fields; none if the source has set none.
    pub(super) fn take_fields(&mut self) -> Fields {
        self.fields.take().unwrap_or_default()
    }

    /// Takes all wanted parts besides the image.
    ///
    /// # Errors
    /// The errors of [`take_target`](Self::take_target); [`Error::Target`](crate::Error::Target) if a field is missing.
    #[doc(hidden)]
    pub fn take_found(&mut self, want: &ReadRequest<'_>) -> Result<Found> {
        let target = self.take_target(want)?;
        Ok(Found { target, fields: wanted_fields(want, self.fields.take().as_ref())? })
    }

    /// Returns the buffer, to reuse it.
    #[doc(hidden)]
    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }
}

/// The fields that were wanted, among those that a source has set; `None` if none were wanted.
///
/// # Errors
/// [`Error::Parameter`](crate::Error::Parameter) if the source has set none, [`Error::Target`](crate::Error::Target) if
/// one is missing.
pub(super) fn wanted_fields(want: &ReadRequest<'_>, found: Option<&Fields>) -> Result<Option<Arc<Fields>>> {
    let [first, ..] = want.fields else { return Ok(None) };
    let fields = found.ok_or_else(|| no_fields("a label alone", first))?;
    match want.fields.iter().find(|name| fields.get(name).is_none()) {
        Some(name) => Err(targets::missing(name)),
        None => Ok(Some(Arc::new(fields.only(want.fields)))),
    }
}
