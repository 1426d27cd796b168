//! Comparison of a device's decoders with the CPU's.
//!
//! The crate's own decoder must have the CPU's bytes. nvJPEG rounds and interpolates in other ways: single values
//! differ by 50 and more, so the means of an image and of blocks of 8 x 8 pixels decide.

use super::inputs::Inputs;
use serde::Serialize;
use std::sync::Arc;
use warpfeed::image::{Decoder, Header, Image, Rect, Size, probe};
use warpfeed::internal::measure::{Whole, WholeDecoder};
use warpfeed::ops::CenterCrop;
use warpfeed::source::Source;
use warpfeed::{Batch, DType, Device, Error, JpegDecoder, Layout, OnError, Pipeline, Result};

/// Limit of an image's mean difference from the CPU's, of 255. libjpeg's own alternatives stay within 2.6 of its
/// default on 200 photographs.
const IMAGE_LIMIT: f64 = 4.0;
/// Limit of the difference of the mean of a block of 8 x 8 pixels in a channel, of 255. libjpeg's alternatives stay
/// within 8.7; wrong blocks are off by tens.
const BLOCK_LIMIT: f64 = 12.0;
/// Share of the images with a suitable header that a decoder must decode itself. The CPU decodes the images that it
/// refuses: a few strange files cost nothing, more make the decoder useless.
const LEAST_SHARE: f64 = 0.9;
/// The side of a block in pixels.
const BLOCK_PX: usize = 8;
/// Number of images that are decoded together.
const TOGETHER: usize = 8;
/// Values that fill the memory before each of two decodings. No image has both everywhere, so unwritten pixels show.
const POISONS: [u8; 2] = [0x00, 0xFF];
/// Number of faults that are listed. All are counted.
const LISTED: usize = 20;
/// Side of the center crops in the pipelines, in pixels.
const MIDDLE_PX: u32 = 224;

/// Results of a decoder on a device.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct Decoding {
    /// Name of the decoder.
    pub decode: String,
    /// Reason why nothing was decoded: the device has no such decoder, or nvJPEG is missing. That is no fault.
    pub absent: Option<String>,
    /// Number of images that the CPU decodes and whose headers suit this decoder.
    pub images: u64,
    /// Number of these images that it decoded. It refused the others.
    pub decoded: u64,
    /// Number of values that differ from the CPU's by 0, 1, 2, ... 7, and by 8 or more, of 255.
    pub histogram: [u64; 9],
    /// Largest difference of a value, of 255.
    pub max: u8,
    /// Mean difference of all values, of 255.
    pub mean: f64,
    /// Largest mean difference of an image, of 255.
    pub worst_image: f64,
    /// Largest difference of the mean of 8 x 8 pixels in a channel, of 255.
    pub worst_block: f64,
    /// Number of images by decoder, in a pipeline that asked for this one.
    pub pipeline: DecodedBy,
    /// Number of faults: images beyond a limit, images that were not written or not written the same twice, too many
    /// refusals, other samples than on the CPU, failed calls.
    pub fault_count: u64,
    /// The first 20 faults, as text.
    pub faults: Vec<String>,
    #[serde(skip)]
    sum: u64,
}

/// Number of images by decoder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DecodedBy {
    /// Images decoded by the CPU.
    pub cpu: u64,
    /// Images decoded by the crate's own decoder on the device.
    pub device: u64,
    /// Images decoded by nvJPEG's hybrid decoder.
    pub hybrid: u64,
    /// Images decoded by the device's hardware decoder.
    pub hardware: u64,
}

/// Decodes images with a decoder on a device and compares them with the CPU's: the first `limit` of `images`, and
/// generated ones of each usual kind, truncated ones, and ones with several scans.
///
/// nvJPEG decodes each image as a whole twice, into memory with two different fillings, so that unwritten pixels show.
/// Then a pipeline decodes the middles of all images in batches. They must have the same samples as on the CPU, and
/// with the crate's own decoder also the CPU's bytes.
///
/// # Errors
/// [`Error::Device`] if `device` is no GPU or is missing; [`Error::Parameter`] if `decode` is not
/// [`JpegDecoder::Device`], [`JpegDecoder::Hybrid`] or [`JpegDecoder::Hardware`]. Later failures count as faults.
///
/// ```no_run
/// use warpfeed::{JpegDecoder, Device};
/// use warpfeed_bench::gpu_check::decoding;
///
/// let found = decoding(Device::Cuda(0), JpegDecoder::Hybrid, None, 200)?;
/// assert_eq!(found.fault_count, 0, "{:?}", found.faults);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn decoding(device: Device, decode: JpegDecoder, images: Option<&Arc<dyn Source>>, limit: u64) -> Result<Decoding> {
    let ordinal = device.resolve()?.ok_or_else(|| Error::parameter("decoding", "device", "a GPU", "the CPU"))?;
    if !matches!(decode, JpegDecoder::Device | JpegDecoder::Hybrid | JpegDecoder::Hardware) {
        return Err(Error::parameter("decoding", "decode", "Device, Hybrid or Hardware", format!("{decode:?}")));
    }
    let is_own = decode == JpegDecoder::Device;
    let usual: Arc<dyn Source> = Arc::new(Inputs::usual()?);
    let awkward: Arc<dyn Source> = Arc::new(Inputs::awkward()?);
    let mut found = Decoding { decode: format!("{decode:?}").to_lowercase(), ..Decoding::default() };
    let of_each = |source: &Arc<dyn Source>| if Arc::ptr_eq(source, &usual) { source.len() } else { limit };
    if !is_own {
        let mut decoder = match WholeDecoder::open(ordinal, decode) {
            Ok(decoder) => decoder,
            Err(error @ Error::Device { .. }) => {
                found.absent = Some(error.to_string());
                return Ok(found);
            }
            Err(error) => return Err(error),
        };
        for source in images.into_iter().chain([&usual]) {
            if let Err(error) = found.whole_images(&mut decoder, &**source, of_each(source)) {
                found.fault(error);
            }
        }
    }
    for source in images.into_iter().chain([&usual]) {
        match found.middles(device, decode, source, of_each(source)) {
            Ok(by) => found.pipeline += by,
            Err(error) => found.fault(error),
        }
    }
    let by_it = match decode {
        JpegDecoder::Hardware => found.pipeline.hardware,
        JpegDecoder::Device => found.pipeline.device,
        _ => found.pipeline.hybrid,
    };
    if is_own {
        (found.images, found.decoded) = (by_it + found.pipeline.cpu, by_it);
    }
    for (what, count) in [("alone", found.decoded), ("in a pipeline", by_it)] {
        // The crate's decoder takes only the baseline ones of the generated images.
        if !is_own && (count as f64) < LEAST_SHARE * found.images as f64 {
            found.fault(format!("{what} it decoded {count} of {} images that are for it", found.images));
        }
    }
    if let Err(error) = found.middles(device, decode, &awkward, awkward.len()) {
        found.fault(error);
    }
    if is_own && found.max > 0 {
        let apart: u64 = found.histogram[1..].iter().sum();
        found.fault(format!("{apart} values are not the CPU's"));
    }
    found.mean = found.sum as f64 / found.histogram.iter().sum::<u64>().max(1) as f64;
    Ok(found)
}

impl Decoding {
    fn fault(&mut self, what: impl ToString) {
        self.fault_count += 1;
        if self.faults.len() < LISTED {
            self.faults.push(what.to_string());
        }
    }

    /// Decodes whole images and compares them.
    fn whole_images(&mut self, decoder: &mut WholeDecoder, source: &dyn Source, limit: u64) -> Result<()> {
        let mut cpu = Decoder::new()?;
        let (mut images, mut expected) = (Vec::new(), Vec::new());
        let count = source.len().min(limit);
        for index in 0..count {
            // Damaged images are not this decoder's fault. The pipeline below reports them.
            let read = source.encoded(index);
            let decoded = read.and_then(|bytes| on_cpu(&mut cpu, &bytes).map(|decoded| (bytes, decoded)));
            if let Some((bytes, (header, pixels))) = decoded.ok().filter(|(_, (header, _))| decoder.takes(header)) {
                images.push((Arc::from(bytes), header.size));
                expected.push((source.name(index).into_owned(), pixels));
            }
            if images.len() == TOGETHER || index + 1 == count {
                self.together(decoder, &images, &expected)?;
                images.clear();
                expected.clear();
            }
        }
        Ok(())
    }

    fn together(&mut self, decoder: &mut WholeDecoder, images: &[Whole], expected: &[(String, Vec<u8>)]) -> Result<()> {
        let [first, second] = POISONS.map(|poison| decoder.decode(images, poison));
        for (((_, size), (name, expected)), got) in images.iter().zip(expected).zip(first?.into_iter().zip(second?)) {
            self.images += 1;
            match got {
                (Some(first), Some(second)) => {
                    self.decoded += 1;
                    let apart = first.iter().zip(&second).filter(|(a, b)| a != b).count();
                    let poison = |(a, b): (&u8, &u8)| (*a, *b) == (POISONS[0], POISONS[1]);
                    let unwritten = first.iter().zip(&second).filter(|pair| poison(*pair)).count();
                    if apart > 0 {
                        let of = first.len();
                        self.fault(format!(
                            "{name}: {apart} of {of} bytes differ when decoded twice, {unwritten} were not written"
                        ));
                    }
                    self.compare(name, expected, &first, *size);
                }
                (None, None) => {}
                _ => self.fault(format!("{name}: decoded once and refused once")),
            }
        }
        Ok(())
    }

    /// Compares RGB bytes with the CPU's.
    fn compare(&mut self, name: &str, expected: &[u8], got: &[u8], size: Size) {
        let mut sum = 0;
        for (a, b) in expected.iter().zip(got) {
            let difference = a.abs_diff(*b);
            self.histogram[usize::from(difference.min(8))] += 1;
            self.max = self.max.max(difference);
            sum += u64::from(difference);
        }
        self.sum += sum;
        let mean = sum as f64 / expected.len().max(1) as f64;
        let (block, x, y) = worst_block(expected, got, size);
        self.worst_image = self.worst_image.max(mean);
        self.worst_block = self.worst_block.max(block);
        if mean > IMAGE_LIMIT || block > BLOCK_LIMIT {
            self.fault(format!(
                "{name}: differs from the CPU's by {mean:.2} on average (at most {IMAGE_LIMIT}), and by {block:.1} in the \
                 mean of the block at ({x}, {y}) (at most {BLOCK_LIMIT})"
            ));
        }
    }

    /// Decodes the middles of images with pipelines on both devices and compares their batches.
    fn middles(
        &mut self,
        device: Device,
        decode: JpegDecoder,
        images: &Arc<dyn Source>,
        limit: u64,
    ) -> Result<DecodedBy> {
        let make = |device| {
            Pipeline::builder(Arc::clone(images))
                .batch_size(16)
                .limit(limit)
                .device(device)
                .jpeg_decoder(decode)
                .hardware_share(1.0)
                .on_error(OnError::Skip)
                .transform(CenterCrop::new(MIDDLE_PX))
                .output(DType::U8, Layout::Nhwc)
                .build()
        };
        let (cpu, gpu) = (make(Device::Cpu)?, make(device)?);
        let (mut expected, mut got) = (cpu.epoch(0), gpu.epoch(0));
        loop {
            let (expected, got) = match (expected.next().transpose()?, got.next().transpose()?) {
                (None, None) => break,
                (Some(expected), Some(got)) if expected.indices() == got.indices() => (expected, got),
                (expected, got) => {
                    let indices = |batch: Option<Batch>| batch.map_or(Vec::new(), |b| b.indices().to_vec());
                    self.fault(format!(
                        "a pipeline on the device gives samples {:?} where the CPU gives {:?}: one of them takes what the \
                         other refuses",
                        indices(got),
                        indices(expected)
                    ));
                    break;
                }
            };
            let on_host = got.images().to_host()?;
            for (place, &index) in expected.indices().iter().enumerate() {
                let name = format!("{}, in a pipeline", images.name(index));
                let size = Size::new(MIDDLE_PX, MIDDLE_PX);
                self.compare(&name, expected.images().image_bytes(place)?, on_host.image_bytes(place)?, size);
            }
        }
        let stats = got.stats();
        Ok(DecodedBy {
            cpu: stats.decoded.cpu,
            device: stats.decoded.device,
            hybrid: stats.decoded.hybrid,
            hardware: stats.decoded.hardware,
        })
    }
}

impl std::ops::AddAssign for DecodedBy {
    fn add_assign(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.device += other.device;
        self.hybrid += other.hybrid;
        self.hardware += other.hardware;
    }
}

/// An image's header, and its RGB bytes as the CPU decodes them.
pub(super) fn on_cpu(decoder: &mut Decoder, bytes: &[u8]) -> Result<(Header, Vec<u8>)> {
    let header = probe(bytes)?;
    let mut image = Image::default();
    decoder.decode(bytes, &header, Rect::full(header.size), false, &mut image)?;
    Ok((header, image.to_rgb()))
}

/// The largest difference of two images' block means in a channel, and the place of that block. The last blocks of rows
/// and columns overlap the ones before, so that all blocks are whole.
fn worst_block(expected: &[u8], got: &[u8], size: Size) -> (f64, usize, usize) {
    let (width, height) = (size.width as usize, size.height as usize);
    let starts = |side: usize| (0..side).step_by(BLOCK_PX).map(move |at| at.min(side.saturating_sub(BLOCK_PX)));
    let (columns, rows) = (BLOCK_PX.min(width), BLOCK_PX.min(height));
    let mut worst = (0.0, 0, 0);
    for y in starts(height) {
        for x in starts(width) {
            let mut sums = [0_i32; 3];
            for row in y..y + rows {
                let values = 3 * (row * width + x)..3 * (row * width + x + columns);
                for (i, (a, b)) in expected[values.clone()].iter().zip(&got[values]).enumerate() {
                    sums[i % 3] += i32::from(*b) - i32::from(*a);
                }
            }
            let most = sums.into_iter().map(i32::abs).max().unwrap_or(0);
            let mean = f64::from(most) / (columns * rows) as f64;
            if mean > worst.0 {
                worst = (mean, x, y);
            }
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_block_is_found_wherever_it_is() {
        let size = Size::new(21, 11);
        let expected = vec![100; 3 * 21 * 11];
        for (x, y) in [(0, 0), (8, 3), (13, 3), (20, 10)] {
            let mut got = expected.clone();
            for row in y..(y + 8).min(11) {
                for column in x..(x + 8).min(21) {
                    got[3 * (21 * row + column) + 1] = 160;
                }
            }
            assert!(worst_block(&expected, &got, size).0 > 0.0, "{x} {y}");
        }
        let mut got = expected.clone();
        (0..8).for_each(|row| (0..8).for_each(|column| got[3 * (21 * (row + 3) + column + 13) + 2] = 80));
        assert_eq!(worst_block(&expected, &got, size), (20.0, 13, 3));
        assert_eq!(worst_block(&[7, 8, 9], &[7, 6, 9], Size::new(1, 1)), (2.0, 0, 0));
    }

    /// Noise around the right value averages out; a constant offset does not.
    #[test]
    fn limits_are_those_of_means() {
        let size = Size::new(64, 64);
        let expected: Vec<u8> = (0..3 * 64 * 64).map(|i| (i % 199) as u8 + 28).collect();
        let mut found = Decoding::default();
        let noisy: Vec<u8> = (0_usize..).zip(&expected).map(|(i, v)| if i % 2 == 0 { v + 3 } else { v - 3 }).collect();
        found.compare("noisy", &expected, &noisy, size);
        assert_eq!((found.fault_count, found.max, found.worst_image), (0, 3, 3.0));
        let shifted: Vec<u8> = expected.iter().map(|v| v + 5).collect();
        found.compare("shifted", &expected, &shifted, size);
        assert_eq!((found.fault_count, found.worst_block), (1, 5.0));
        assert!(found.faults[0].contains("shifted"), "{:?}", found.faults);
    }
}
