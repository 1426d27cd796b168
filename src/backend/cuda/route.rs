//! Chooses the decoder of each image.

use crate::decode::{Format, Header};
use crate::device::JpegDecoder;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Cpu,
    Hybrid,
    Hardware,
    /// The crate's own decoder.
    Device,
}

/// The longest side that the hardware decoder takes, in pixels.
const MAX_HARDWARE_SIDE_PX: u32 = 16_000;
/// Most pixels of an image for the engines. All of nvJPEG's memory for them grows with the largest image; larger images
/// are rare among photographs for training.
const MAX_HARDWARE_PX: u64 = 2 << 20;
/// While the speed of the device or of the CPU is not known, one in this many images goes to the CPU.
const FIRST_OF: f64 = 32.0;
/// Weight of a new measurement against the earlier ones.
const WEIGHT: f64 = 0.05;
/// A thread's time for an image that the device decodes, as a multiple of what it takes to hand the image over: reading
/// and planning take about as long again.
const WITH_READING: f64 = 2.0;

/// Chooses a decoder for each image: by its header and length alone or, on `auto`, by measured speed.
#[derive(Debug)]
pub(super) struct Router {
    path: JpegDecoder,
    /// Share of the images for the hardware decoder that it gets, 0 to 1.
    hardware_share: f64,
    threads: f64,
    balance: Mutex<Balance>,
}

#[derive(Debug, Default)]
struct Balance {
    /// A thread's time to decode an image, in nanoseconds.
    cpu_ns: Option<f64>,
    /// A thread's time to hand an image over to the device's decoder, in nanoseconds.
    hand_over_ns: Option<f64>,
    /// The kernels' time for an image, in nanoseconds.
    device_ns: Option<f64>,
    /// Number of images that the CPU is still owed.
    owed: f64,
}

impl Router {
    /// A router for a path whose decoders are there.
    pub(super) fn new(path: JpegDecoder, hardware_share: f64, threads: usize) -> Self {
        Self { path, hardware_share, threads: threads.max(1) as f64, balance: Mutex::default() }
    }

    /// The decoder that tries an image of `len_bytes` bytes first. With `later`, decoders that decode a batch together
    /// are allowed.
    pub(super) fn route(&self, header: &Header, len_bytes: usize, later: bool) -> Route {
        let hardware = matches!(self.path, JpegDecoder::Hardware | JpegDecoder::HardwareDevice);
        if hardware && later && is_jpeg_for_hardware(header) && draw(header, len_bytes) < self.hardware_share {
            return Route::Hardware;
        }
        self.without_hardware(header, later)
    }

    /// The decoder that tries an image which is not for the hardware decoder, or which that does not take.
    pub(super) fn without_hardware(&self, header: &Header, later: bool) -> Route {
        match self.path {
            JpegDecoder::Device | JpegDecoder::HardwareDevice if later => Route::Device,
            // Images that the device's decoder does not take go to it too, because it counts the reasons.
            JpegDecoder::Auto if later => {
                let to_cpu = is_jpeg_for_device(header) && self.balance(|balance| balance.is_for_cpu(self.threads));
                if to_cpu { Route::Cpu } else { Route::Device }
            }
            JpegDecoder::Hybrid | JpegDecoder::Hardware if is_jpeg_for_nvjpeg(header) => Route::Hybrid,
            _ => Route::Cpu,
        }
    }

    fn balance<T>(&self, work: impl FnOnce(&mut Balance) -> T) -> T {
        work(&mut self.balance.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records a thread's time to decode an image.
    pub(super) fn cpu_took(&self, time: Duration) {
        self.balance(|balance| average(&mut balance.cpu_ns, time.as_nanos() as f64));
    }

    /// Records a thread's time to hand an image over to the device's decoder.
    pub(super) fn handing_over_took(&self, time: Duration) {
        self.balance(|balance| average(&mut balance.hand_over_ns, time.as_nanos() as f64));
    }

    /// Records the kernels' time for `images` images.
    pub(super) fn device_took(&self, images: usize, time_ms: f32) {
        let ns = 1e6 * f64::from(time_ms) / images.max(1) as f64;
        self.balance(|balance| average(&mut balance.device_ns, ns));
    }
}

/// A number in 0..1 that an image's size, sampling and length decide, so that every run has the same decoder for it.
fn draw(header: &Header, len_bytes: usize) -> f64 {
    let (luma, size) = (header.sampling[0], header.size);
    let words = [u64::from(size.width) << 32 | u64::from(size.height), u64::from(luma.0) << 8 | u64::from(luma.1)];
    let mixed = words.into_iter().chain([len_bytes as u64]).fold(0, |hash: u64, word| {
        // SplitMix64's steps.
        let mut z = (hash ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    });
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

fn average(value: &mut Option<f64>, new: f64) {
    *value = Some(value.map_or(new, |old| old + WEIGHT * (new - old)));
}

impl Balance {
    /// Whether the next image is for the CPU.
    ///
    /// The CPU helps where the device takes longer for an image than all threads together take to feed it. Then both
    /// finish together: the device gets a share of the images for which it takes as long as the threads take for all
    /// images, those that they decode themselves included.
    fn is_for_cpu(&mut self, threads: f64) -> bool {
        self.owed += match (self.device_ns, self.hand_over_ns, self.cpu_ns) {
            (Some(device), Some(hand_over), Some(cpu)) => {
                let spare = (device * threads - WITH_READING * hand_over).max(0.0);
                spare / (spare + cpu + (WITH_READING - 1.0) * hand_over)
            }
            _ => 1.0 / FIRST_OF,
        };
        let is_due = self.owed >= 1.0;
        self.owed -= f64::from(u8::from(is_due));
        is_due
    }
}

/// Name of the decoder that takes an image on `hardware`, on a card that has a hardware decoder, in the words of
/// `--jpeg-decoder`.
pub fn on_hardware(header: &Header) -> &'static str {
    match Router::new(JpegDecoder::Hardware, 1.0, 1).route(header, 0, true) {
        Route::Hardware => "hardware",
        Route::Hybrid => "hybrid",
        Route::Cpu | Route::Device => "cpu",
    }
}

/// Whether nvJPEG can try to decode an image: Huffman coding, 8 bits a sample, gray or YCbCr.
fn is_jpeg_for_nvjpeg(header: &Header) -> bool {
    header.format == Format::Jpeg
        && !header.is_draft()
        && matches!(header.process, 0xC0..=0xC2)
        && header.precision_bits == 8
        && matches!(header.components, 1 | 3)
        && !header.rgb
}

/// Whether the crate's own decoder can try to decode an image: Huffman coding in one pass, 8 bits a sample, no CMYK.
pub fn is_jpeg_for_device(header: &Header) -> bool {
    header.format == Format::Jpeg
        && !header.is_draft()
        && matches!(header.process, 0xC0 | 0xC1)
        && header.precision_bits == 8
        && matches!(header.components, 1 | 3)
}

/// Whether the hardware decoder can try to decode an image: three components in a single scan, a usual sampling. It
/// accepts gray images too, but writes wrong colors (nvJPEG 13.0 on an H200).
fn is_jpeg_for_hardware(header: &Header) -> bool {
    let [luma, blue, red, _] = header.sampling;
    let sampling = matches!(luma, (1, 1) | (2, 1) | (2, 2) | (1, 2)) && blue == (1, 1) && red == (1, 1);
    let sides = header.size.width.max(header.size.height);
    is_jpeg_for_nvjpeg(header)
        && header.components == 3
        && !header.progressive
        && sampling
        && sides <= MAX_HARDWARE_SIDE_PX
        && header.size.area_px() <= MAX_HARDWARE_PX
}

#[cfg(test)]
mod tests {
    use super::{Route, Router};
    use crate::device::JpegDecoder;
    use crate::{
        decode::{Header, probe},
        encode::{ChromaSampling, JpegColor, JpegOptions, encode_jpeg},
        raster::{Image, Size},
    };
    use std::time::Duration;

    fn jpeg(options: &JpegOptions) -> crate::decode::Header {
        probe(&encode_jpeg(&Image::new(Size::new(16, 16)), options).unwrap()).unwrap()
    }

    #[test]
    fn images_go_to_a_decoder_that_takes_them() {
        let color = |color| jpeg(&JpegOptions { color, ..JpegOptions::default() });
        let headers = [
            jpeg(&JpegOptions::default()),
            jpeg(&JpegOptions { sampling: ChromaSampling::S440, ..JpegOptions::default() }),
            color(JpegColor::Gray),
            jpeg(&JpegOptions { progressive: true, ..JpegOptions::default() }),
            color(JpegColor::Cmyk),
        ];
        let routes = |path, later| {
            let router = Router::new(path, 1.0, 2);
            headers.each_ref().map(|header| router.route(header, 1_000, later))
        };
        let hybrid = [Route::Hybrid, Route::Hybrid, Route::Hybrid, Route::Hybrid, Route::Cpu];
        let hardware = [Route::Hardware, Route::Hardware, Route::Hybrid, Route::Hybrid, Route::Cpu];
        assert_eq!(routes(JpegDecoder::Hybrid, true), hybrid);
        assert_eq!(routes(JpegDecoder::Hardware, true), hardware);
        let engines = [Route::Hardware, Route::Hardware, Route::Device, Route::Device, Route::Device];
        assert_eq!(routes(JpegDecoder::HardwareDevice, true), engines);
        assert_eq!(routes(JpegDecoder::HardwareDevice, false), [Route::Cpu; 5]);
        for path in [JpegDecoder::Auto, JpegDecoder::Device] {
            assert_eq!(routes(path, true), [Route::Device; 5]);
            // Substitutes never go to decoders that decode a batch together.
            assert_eq!(routes(path, false), [Route::Cpu; 5]);
        }
        assert_eq!(routes(JpegDecoder::Hardware, false), hybrid);
        assert_eq!(routes(JpegDecoder::Cpu, true), [Route::Cpu; 5]);
    }

    #[test]
    fn the_engines_get_their_share_of_the_images_and_always_the_same_ones() {
        let of_size = |options: &JpegOptions, size| {
            let mut header: Header = jpeg(options);
            header.size = size;
            header
        };
        let header = |options| (1..20).map(|width| of_size(options, Size::new(20 * width, 300))).collect::<Vec<_>>();
        let whole = JpegOptions { sampling: ChromaSampling::S444, ..JpegOptions::default() };
        let headers = [header(&JpegOptions::default()), header(&whole)].concat();
        for share in [0.0, 0.5, 0.75, 1.0] {
            let engines = || {
                let router = Router::new(JpegDecoder::Hardware, share, 1);
                let images = headers.iter().flat_map(|header| (9_000..9_100).map(move |len| (header, len)));
                images.map(|(header, len)| router.route(header, len, true) == Route::Hardware).collect::<Vec<_>>()
            };
            let (first, again) = (engines(), engines());
            assert_eq!(first, again);
            let found = first.iter().filter(|&&is_theirs| is_theirs).count() as f64 / first.len() as f64;
            assert!((found - share).abs() < 0.02, "{share}: {found}");
        }
        let large = of_size(&whole, Size::new(2_000, 2_000));
        assert_eq!(Router::new(JpegDecoder::Hardware, 1.0, 1).route(&large, 9, true), Route::Hybrid);
    }

    /// Number of images, of 1,000, that the CPU gets on `auto` if a thread hands an image over in 50 us.
    fn share_of_the_cpu(cpu_us: u64, device_us: f32, threads: usize) -> usize {
        let router = Router::new(JpegDecoder::Auto, 1.0, threads);
        let header = jpeg(&JpegOptions::default());
        router.cpu_took(Duration::from_micros(cpu_us));
        router.handing_over_took(Duration::from_micros(50));
        router.device_took(10, 10.0 * device_us / 1e3);
        (0..1_000).filter(|_| router.route(&header, 0, true) == Route::Cpu).count()
    }

    #[test]
    fn the_cpu_helps_a_device_that_is_slower_than_the_threads_feed_it() {
        // Sixteen threads feed 160,000 images a second, which a device at 5 us takes.
        assert_eq!(share_of_the_cpu(500, 5.0, 16), 0);
        // Eight threads feed 80,000 a second, and a device at 50 us takes 20,000. With the share s for the CPU:
        // 50 (1 - s) = (100 (1 - s) + 550 s) / 8.
        let s = 300.0 / (300.0 + 550.0);
        let found = share_of_the_cpu(500, 50.0, 8);
        assert!((found as f64 - 1e3 * s).abs() < 3.0, "{found}");
        assert!(share_of_the_cpu(500, 5_000.0, 8) > 980);
        // Images that the kernels do not take go to them too, because they count the reasons.
        let progressive = jpeg(&JpegOptions { progressive: true, ..JpegOptions::default() });
        let router = Router::new(JpegDecoder::Auto, 1.0, 8);
        assert!((0..100).all(|_| router.route(&progressive, 0, true) == Route::Device));
        assert_eq!(router.route(&progressive, 0, false), Route::Cpu);
    }

    #[test]
    fn the_cpus_speed_is_found_out() {
        let router = Router::new(JpegDecoder::Auto, 1.0, 2);
        let header = jpeg(&JpegOptions::default());
        assert_eq!((0..320).filter(|_| router.route(&header, 0, true) == Route::Cpu).count(), 10);
    }
}
