//! Turns a sample into the bytes that are packed.

use super::PackOptions;
use super::reading::SampleReader;
use crate::apply::field_mover::FieldMover;
use crate::decode::{Decoder, Format, Header, PackKey, has_end, indexed, is_indexed, probe};
use crate::encode::{ChromaSampling, JpegColor, JpegOptions, encode_jpeg, to_baseline};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::ops::filter::PassOrder;
use crate::ops::orientation::{Orientation, oriented};
use crate::ops::{Op, Resize};
use crate::pipeline::pack_key;
use crate::plan::{Planner, Strategy};
use crate::raster::{DEFAULT_MAX_PIXELS, Image, Rect, Size, check_pixels};
use crate::source::records::NewSample;
use crate::source::records::fields::{Part, packed};
use crate::source::{MAX_ENCODED_BYTES, Sample};
use crate::targets::{self, Found, Target};

/// The conversion that an image went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Copied,
    Shrunk,
    MadeBaseline,
    MadeYcc,
}

/// A sample that was read: its image, or why it is left out.
pub(super) struct Prepared {
    /// The checksum over the source's data.
    pub checksum: u32,
    pub image: Result<PackableImage>,
}

/// An image to be packed.
pub(super) struct PackableImage {
    pub bytes: Vec<u8>,
    pub label: Option<u32>,
    /// The extension of its file name.
    pub ending: &'static str,
    pub done: Done,
    /// Whether the image is a JPEG with restart markers and an index of its rows.
    pub restarts: bool,
    /// Whether the image is a JPEG with entry points.
    pub entry_points: bool,
    /// The name and the target of the field that is packed with the image.
    pub target: Option<(String, Target)>,
    /// The parts or features that hold its fields.
    pub fields: Vec<(String, Part)>,
}

impl PackableImage {
    /// The record of the image as sample `index` of its shards.
    pub fn record(&self, index: u64) -> NewSample<'_> {
        let target = self.target.as_ref().map(|(field, target)| (field.as_str(), target));
        NewSample { index, label: self.label, image: &self.bytes, ending: self.ending, target, fields: &self.fields }
    }
}

/// The decoder and memory of one worker.
pub(super) struct PackScratch {
    decoder: Decoder,
    image: Image,
    other: Image,
    follower: FieldMover,
}

impl PackScratch {
    pub fn new() -> Result<Self> {
        let (image, other, follower) = (Image::default(), Image::default(), FieldMover::default());
        Ok(Self { decoder: Decoder::new()?, image, other, follower })
    }

    /// Decodes a whole image as it is stored.
    fn decode(&mut self, bytes: &[u8], header: &Header) -> Result<()> {
        Ok(self.decoder.decode(bytes, header, Rect::full(header.size), false, &mut self.image)?)
    }

    /// Returns a JPEG with restart markers, an index of its rows, and the same pixels. `None` if that is not possible.
    ///
    /// # Errors
    /// Errors that are not the image's fault.
    fn with_restarts(&mut self, bytes: &[u8], header: &Header) -> Result<Option<Vec<u8>>> {
        if is_indexed(bytes, header) {
            return Ok(Some(bytes.to_vec()));
        }
        self.rewritten(bytes, header, |bytes| Ok(indexed(&to_baseline(bytes, true)?)))
    }

    /// Returns a JPEG that is written in another way, with the same pixels. `None` if that is not possible.
    ///
    /// # Errors
    /// Errors that are not the image's fault.
    fn rewritten(
        &mut self,
        bytes: &[u8],
        header: &Header,
        rewrite: impl Fn(&[u8]) -> Result<Option<Vec<u8>>>,
    ) -> Result<Option<Vec<u8>>> {
        let written = match self.decode(bytes, header).and_then(|()| rewrite(bytes)) {
            Err(error) if error.is_bad_sample() => return Ok(None),
            written => written?,
        };
        let Some(written) = written else { return Ok(None) };
        std::mem::swap(&mut self.image, &mut self.other);
        self.decode(&written, &probe(&written)?)?;
        // libjpeg guesses missing coefficients of progressive images, but not of baseline ones, so the pixels may
        // differ.
        Ok((self.image.pixels() == self.other.pixels()).then_some(written))
    }

    /// Puts entry points into a JPEG. `None` if it cannot have any.
    ///
    /// # Errors
    /// Errors that are not the image's fault.
    fn with_entry_points(&mut self, bytes: &[u8], key: Option<&PackKey>) -> Result<Option<Vec<u8>>> {
        let packed = probe(bytes)
            .and_then(|header| self.decoder.with_entry_points(bytes, &header, key, &mut self.image))
            .map_err(Error::from);
        match packed {
            Err(error) if error.is_bad_sample() => Ok(None),
            packed => packed,
        }
    }
}

/// Reads samples and converts them as the options ask.
pub(super) struct Preparer<'a> {
    reader: &'a SampleReader<'a>,
    options: &'a PackOptions,
    key: Option<PackKey>,
}

impl<'a> Preparer<'a> {
    /// # Errors
    /// [`Error::Io`] if entry points are packed and the folder of their key cannot be used.
    pub fn new(reader: &'a SampleReader<'a>, options: &'a PackOptions) -> Result<Self> {
        let key = if options.entry_points { pack_key()? } else { None };
        Ok(Self { reader, options, key })
    }

    /// Announces to the source that a sample will be read.
    pub fn announce(&self, index: u64) {
        self.reader.source.prefetch(index);
    }

    /// The name of a sample in the source.
    pub fn name(&self, index: u64) -> String {
        self.reader.source.name(index).into_owned()
    }

    pub fn sample(&self, index: u64, work: &mut PackScratch) -> Prepared {
        let (checksum, sample) = self.reader.read(index);
        Prepared { checksum, image: sample.and_then(|sample| self.packable(index, sample, work)) }
    }

    fn packable(&self, index: u64, mut sample: Sample<'_>, work: &mut PackScratch) -> Result<PackableImage> {
        let (field, label) = (self.options.target.as_deref(), self.reader.source.label(index));
        let Found { target, fields } = sample.take_found(&self.reader.want())?;
        let target = field.zip(target);
        if let Some((field, target)) = &target {
            let checked = self.options.format.rules().check_packed(field, target, label);
            checked.map_err(|message| targets::wrong(Some(field), message))?;
        }
        let target = target.map(|(field, target)| (field.to_owned(), target));
        let mut image = self.image(&sample.encoded(), label, work)?;
        if self.options.entry_points
            && image.ending == "jpg"
            && let Some(bytes) = work.with_entry_points(&image.bytes, self.key.as_ref())?
        {
            (image.bytes, image.entry_points) = (bytes, true);
        }
        let fields = match fields {
            Some(fields) => self.fields(&fields, &sample.image().header()?, image.bytes.len(), work)?,
            None => Vec::new(),
        };
        Ok(PackableImage { target, fields, ..image })
    }

    /// The parts that hold the fields of an image with this header, which takes `image_bytes` when packed.
    fn fields(
        &self,
        fields: &Fields,
        header: &Header,
        image_bytes: usize,
        work: &mut PackScratch,
    ) -> Result<Vec<(String, Part)>> {
        let ops = self.shrinking(header);
        let planner = Planner {
            strategy: Strategy::Sequential,
            order: PassOrder::default(),
            max_px: DEFAULT_MAX_PIXELS,
            values: None,
        };
        let (fields, size) = match ops[..] {
            [] => (fields.clone(), header.size),
            _ => work.follower.follow(fields.clone(), header.size, &ops, &planner)?,
        };
        let parts = packed(self.options.format.facts().field_storage, &fields, size)
            .map_err(|(field, message)| targets::wrong(Some(&field), message))?;
        let fields_bytes: u64 = parts.iter().map(|(_, part)| part.len_bytes()).sum();
        // A TFRecord holds them all; names and lengths take little.
        if image_bytes as u64 + fields_bytes > MAX_ENCODED_BYTES - (1 << 20) {
            return Err(Error::Limits {
                what: "an image and its fields, in bytes,",
                got: image_bytes as u64 + fields_bytes,
                limit: MAX_ENCODED_BYTES - (1 << 20),
                remedy: "shrink the image or leave the sample out",
            });
        }
        Ok(parts)
    }

    /// The operations that shrink an image as the options ask; none if it is small enough.
    fn shrinking(&self, header: &Header) -> Vec<Op> {
        let longer = header.size.width.max(header.size.height);
        let Some(side) = self.options.max_side_px.filter(|side| longer > *side) else { return Vec::new() };
        let mut ops = oriented(header.orientation, Orientation::Apply);
        let upright = if header.orientation >= 5 { header.size.transposed() } else { header.size };
        ops.push(Resize::new(shrunk(upright, side)).into());
        ops
    }

    fn image(&self, bytes: &[u8], label: Option<u32>, work: &mut PackScratch) -> Result<PackableImage> {
        let header = probe(bytes)?;
        check_pixels(header.size, DEFAULT_MAX_PIXELS)?;
        let restarts = self.options.restarts;
        let packable = |bytes, ending, done, restarts| {
            Ok(PackableImage {
                bytes,
                label,
                ending,
                done,
                restarts,
                entry_points: false,
                target: None,
                fields: Vec::new(),
            })
        };
        let jpeg = |bytes, done, restarts| packable(bytes, "jpg", done, restarts);
        let encoded = |image: &Image, mut options: JpegOptions, done| {
            if restarts {
                options.restart_interval_rows = 1;
                // A single component's sampling factors have no meaning except the number of rows that are decoded at a
                // time.
                if options.color == JpegColor::Gray {
                    options.sampling = ChromaSampling::S444;
                }
            }
            let bytes = encode_jpeg(image, &options)?;
            match indexed(&bytes) {
                Some(bytes) => jpeg(bytes, done, true),
                None => jpeg(bytes, done, false),
            }
        };
        let shrinking = self.shrinking(&header);
        if !shrinking.is_empty() {
            work.decode(bytes, &header)?;
            let (image, order) = (&mut work.image, PassOrder::default());
            for op in shrinking {
                op.apply_reusing(order, image, &mut work.other)?;
            }
            let color = if header.components == 1 { JpegColor::Gray } else { JpegColor::Ycc };
            let options = JpegOptions { quality: self.options.quality, color, ..JpegOptions::default() };
            return encoded(image, options, Done::Shrunk);
        }
        if header.format == Format::Jpeg {
            if self.options.baseline && header.components == 4 {
                work.decode(bytes, &header)?;
                let options = JpegOptions {
                    quality: self.options.quality,
                    sampling: ChromaSampling::S444,
                    orientation: (header.orientation != 1).then_some(header.orientation.into()),
                    ..JpegOptions::default()
                };
                return encoded(&work.image, options, Done::MadeYcc);
            }
            if restarts && let Some(bytes) = work.with_restarts(bytes, &header)? {
                let done = if header.progressive { Done::MadeBaseline } else { Done::Copied };
                return jpeg(bytes, done, true);
            }
            if self.options.baseline && header.progressive {
                return jpeg(to_baseline(bytes, false)?, Done::MadeBaseline, false);
            }
            if self.options.entry_points
                && header.progressive
                && let Some(bytes) = work.rewritten(bytes, &header, |bytes| Ok(Some(to_baseline(bytes, false)?)))?
            {
                return jpeg(bytes, Done::MadeBaseline, false);
            }
            if !has_end(bytes, &header) {
                work.decode(bytes, &header)?;
            }
        }
        packable(bytes.to_vec(), header.file_extension(), Done::Copied, false)
    }
}

/// The size whose longer side is `side`, as torchvision's `max_size` computes it.
fn shrunk(size: Size, side: u32) -> Size {
    let scaled = |short: u32, long: u32| {
        let scaled = u64::from(side) * u64::from(short) / u64::from(long);
        (scaled as u32).max(1)
    };
    if size.width >= size.height {
        Size::new(side, scaled(size.height, size.width))
    } else {
        Size::new(scaled(size.width, size.height), side)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_side_is_what_was_asked_for() {
        for (size, want) in [((1000, 500), (512, 256)), ((300, 999), (153, 512)), ((9000, 1), (512, 1))] {
            assert_eq!(shrunk(Size::new(size.0, size.1), 512), Size::new(want.0, want.1));
        }
    }
}
