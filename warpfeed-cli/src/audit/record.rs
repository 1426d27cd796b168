//! The record of one image, and reading it.

use super::content::{self, alpha_and_animation, format_of, lacks_end, named_format};
use super::look::{COMPARED_PX, HASHED_PX, Hasher, show_the_same, upright};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use warpfeed::fields::{Field, Fields, LABELS};
use warpfeed::image::{Decoder, Format, Header, Image, Rect, Size, probe};
use warpfeed::internal::hex::hex;
use warpfeed::internal::route;
use warpfeed::ops::Resize;
use warpfeed::source::{ReadRequest, Sample, Source};
use warpfeed::{Error, Result};
use warpfeed_image::raster::{DEFAULT_MAX_PIXELS, check_pixels};

/// Pixels of memory that a thread keeps between images.
const KEEP_PX: usize = 1 << 24;

/// One line of `audit.jsonl`: an image as it is stored. Numbers are 0 and texts are missing where they are not known.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    /// Number of the image over all splits.
    pub(super) image: u32,
    pub(super) name: String,
    /// The label; `None` if the image has none.
    pub(super) label: Option<u32>,
    /// Distinguishes the file that the image is in from others of its name; 0 if it is in no file.
    pub(super) version: u64,
    /// Size of the file.
    pub(super) bytes: u32,
    /// The first 128 bits of SHA-256 of the file, in hexadecimal; empty if it could not be read.
    pub(super) sha256: String,
    /// The perceptual hash, in hexadecimal; empty without one.
    pub(super) look: String,
    /// The format: JPEG, PNG, WebP, PNM; empty if the header cannot be read.
    pub(super) format: String,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) orientation: u8,
    pub(super) components: u8,
    pub(super) bits: u8,
    pub(super) alpha: bool,
    pub(super) animated: bool,
    /// The coding of a JPEG: baseline, progressive or lossless.
    pub(super) coding: String,
    /// The chroma subsampling of a JPEG.
    pub(super) sampling: String,
    /// The quality of a JPEG in libjpeg's scale; 0 if it is not known.
    pub(super) quality: u8,
    /// The decoder that takes the image on `--jpeg-decoder hardware`: hardware, hybrid or cpu.
    pub(super) decoder: String,
    /// Whether our kernels decode the image, on `--jpeg-decoder auto` and `device`.
    pub(super) device: bool,
    /// The time that decoding took, in microseconds.
    pub(super) decode_us: f32,
    /// The format of the content, if it is another than the name says.
    pub(super) content: String,
    pub(super) truncated: bool,
    /// Why the image cannot be read or decoded.
    pub(super) error: String,
    /// Why its annotations cannot be used.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) annotations: String,
    /// The labels of its objects, each with the number of objects.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) objects: BTreeMap<i64, u64>,
}

/// The version of the file that an image is in; 0 if it is in none.
pub(super) fn version_of(name: &str) -> u64 {
    warpfeed::internal::file::version_of_sample(name).unwrap_or(0)
}

/// The decoder and the memory of one thread.
pub(super) struct Inspector {
    decoder: Decoder,
    hasher: Hasher,
    buffer: Vec<u8>,
    image: Image,
    spare: Image,
}

impl Inspector {
    pub(super) fn new() -> Result<Self> {
        let (image, spare) = (Image::default(), Image::default());
        Ok(Self { decoder: Decoder::new()?, hasher: Hasher::new(), buffer: Vec::new(), image, spare })
    }

    /// Reads and decodes sample `index` of a source, and reads these fields. An image that cannot be used has an error
    /// in its record, and so has one whose fields cannot be used.
    ///
    /// # Errors
    /// Errors that are not the sample's fault.
    pub(super) fn inspect(
        &mut self,
        source: &dyn Source,
        index: u64,
        fields: &[String],
        stopped: &AtomicBool,
    ) -> Result<Record> {
        let (name, label) = (source.name(index).into_owned(), source.label(index));
        let version = version_of(&name);
        let mut record = Record { name, label, version, orientation: 1, ..Record::default() };
        let mut sample = Sample::with_buffer(std::mem::take(&mut self.buffer));
        let want = ReadRequest::IMAGE.unless(stopped);
        let mut read = source.read(index, &want.and_fields(fields), &mut sample);
        if !fields.is_empty() {
            let found = read.and_then(|()| sample.take_found(&want.and_fields(fields)));
            read = match found {
                Ok(found) => {
                    note_objects(found.fields.as_deref(), &mut record);
                    Ok(())
                }
                Err(error) if is_of_image(&error) => {
                    record.annotations = error.to_string();
                    source.read(index, &want, &mut sample)
                }
                Err(error) => Err(error),
            };
        }
        let examined = read.and_then(|()| self.examine(&sample.encoded(), &mut record));
        if examined.is_err() {
            // What is wrong with the image is said of the image.
            record.annotations.clear();
        }
        self.buffer = sample.into_buffer();
        for image in [&mut self.image, &mut self.spare] {
            image.shrink(KEEP_PX);
        }
        match examined {
            Err(error) if is_of_image(&error) => record.error = error.to_string(),
            examined => examined?,
        }
        Ok(record)
    }

    /// Notes what the bytes tell, step by step, so that a record has what was found before an error.
    fn examine(&mut self, bytes: &[u8], record: &mut Record) -> Result<()> {
        record.bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if !bytes.is_empty() {
            record.sha256 = hex(&Sha256::digest(bytes)[..16]);
        }
        let named = named_format(&record.name);
        record.content =
            format_of(bytes).filter(|content| named.is_some_and(|named| named != *content)).unwrap_or("").into();
        let header = match probe(bytes) {
            Ok(header) => header,
            Err(error) => {
                // The header itself is cut off: the bytes begin as an image's.
                record.truncated = error.to_string().contains("truncated:");
                return Err(error.into());
            }
        };
        describe(bytes, &header, record);
        let decoded = self.decode(bytes, &header, HASHED_PX);
        if matches!(&decoded, Err(Error::Decode { .. })) {
            record.truncated = lacks_end(bytes, &header);
        }
        record.decode_us = (decoded? * 1e6) as f32;
        upright(&mut self.image, &mut self.spare, Resize::new(Size::from(HASHED_PX)), header.orientation)?;
        record.look = self.hasher.hash(&self.image).map_or_else(String::new, |hash| format!("{hash:016x}"));
        Ok(())
    }

    /// Decodes an image, a JPEG at the smallest scale whose sides are not below `side_px`. Returns the seconds that it
    /// took.
    fn decode(&mut self, bytes: &[u8], header: &Header, side_px: u32) -> Result<f64> {
        check_pixels(header.size, DEFAULT_MAX_PIXELS)?;
        let mut header = header.clone();
        header.draft(Size::from(side_px));
        let start = Instant::now();
        self.decoder.decode(bytes, &header, Rect::full(header.size), false, &mut self.image)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Decodes an image `times` times as [`inspect`](Self::inspect) does, and returns the microseconds of the fastest:
    /// where the system tells, those that the thread ran.
    ///
    /// # Errors
    /// The errors of reading and decoding.
    pub(super) fn fastest_us(&mut self, source: &dyn Source, index: u64, times: usize) -> Result<f32> {
        let bytes = source.encoded(index)?;
        let header = probe(&bytes)?;
        let mut fastest = f64::INFINITY;
        for _ in 0..times {
            let before = processor_s();
            fastest = self.decode(&bytes, &header, HASHED_PX)?.min(fastest);
            if let (Some(before), Some(now)) = (before, processor_s()) {
                fastest = (now - before).min(fastest);
            }
        }
        Ok((fastest * 1e6) as f32)
    }

    /// Whether two images show the same.
    ///
    /// # Errors
    /// The errors of reading and decoding.
    pub(super) fn same(&mut self, a: (&dyn Source, u64), b: (&dyn Source, u64)) -> Result<bool> {
        let mut first = self.small(a.0, a.1)?;
        let mut second = self.small(b.0, b.1)?;
        show_the_same(&mut first, &mut second, &mut self.spare)
    }

    /// An image upright, with a shorter side of the length at which images are compared, if it is not smaller itself.
    fn small(&mut self, source: &dyn Source, index: u64) -> Result<Image> {
        let bytes = source.encoded(index)?;
        let header = probe(&bytes)?;
        // Whole, because a JPEG at a smaller scale is not quite what a resize makes of it.
        self.decode(&bytes, &header, u32::MAX)?;
        let shorter = self.image.size().width.min(self.image.size().height);
        let resize = Resize::shorter_side(shorter.min(COMPARED_PX));
        upright(&mut self.image, &mut self.spare, resize, header.orientation)?;
        Ok(std::mem::take(&mut self.image))
    }

    /// A picture of an image for reports, upright, with a longer side of `side_px`. Of a damaged image, what can be
    /// decoded; `None` if that is nothing.
    pub(super) fn thumbnail(&mut self, source: &dyn Source, index: u64, side_px: u32) -> Option<Image> {
        let bytes = source.encoded(index).ok()?;
        let mut header = probe(&bytes).ok()?;
        check_pixels(header.size, DEFAULT_MAX_PIXELS).ok()?;
        header.draft(Size::from(side_px));
        self.decoder.decode(&bytes, &header, Rect::full(header.size), true, &mut self.image).ok()?;
        let resize = Resize::longer_side(side_px);
        upright(&mut self.image, &mut self.spare, resize, header.orientation).ok()?;
        Some(std::mem::take(&mut self.image))
    }
}

/// Seconds that this thread has run, without those that it waited for a processor; `None` if the system does not say.
fn processor_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse::<u64>().ok().map(|ns| ns as f64 / 1e9)
}

/// Whether an error is noted as a finding about the image, and does not end the audit.
fn is_of_image(error: &Error) -> bool {
    // A build without WebP cannot read such images.
    error.is_bad_sample() || matches!(error, Error::Unsupported { .. })
}

/// Notes the labels of objects.
fn note_objects(fields: Option<&Fields>, record: &mut Record) {
    if let Some(Field::Integers(labels)) = fields.and_then(|fields| fields.get(LABELS)) {
        labels.iter().for_each(|label| *record.objects.entry(*label).or_default() += 1);
    }
}

/// Notes what a header tells.
fn describe(bytes: &[u8], header: &Header, record: &mut Record) {
    record.format = header.format.name().into();
    (record.width, record.height) = (header.size.width, header.size.height);
    (record.orientation, record.components) = (header.orientation, header.components);
    record.bits = header.precision_bits;
    (record.alpha, record.animated) = alpha_and_animation(bytes, header);
    if header.format == Format::Jpeg {
        record.coding = match header.process {
            0xC3 => "lossless",
            _ if header.progressive => "progressive",
            _ => "baseline",
        }
        .into();
        record.sampling = content::sampling(header).unwrap_or("other").into();
        record.quality = content::quality(bytes).unwrap_or(0);
    }
    record.decoder = route::on_hardware(header).into();
    record.device = route::is_jpeg_for_device(header);
}
