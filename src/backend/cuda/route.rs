//! Chooses the decoder of each image.

use crate::decode::{Format, Header};
use crate::device::DecodePath;
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
/// Share of the images that a decoder on the device gets before its speed is known: the initial value of DALI.
const FIRST_SHARE: f64 = 0.65;
/// Weight of a new measurement against the earlier ones.
const WEIGHT: f64 = 0.05;
/// One in this many images on the host goes to the slower host decoder, to check whether it still is the slower one.
const EXPLORE: u32 = 64;

/// Chooses a decoder for each image: by its header alone or, on the fastest and the exact path, by measured speed.
#[derive(Debug)]
pub(super) struct Router {
    path: DecodePath,
    hybrid: bool,
    hardware: bool,
    threads: f64,
    balance: Mutex<Balance>,
}

#[derive(Debug, Default)]
struct Balance {
    /// A thread's time for an encoded byte, in nanoseconds: for the CPU's decoder and for the hybrid one's host part.
    cpu_ns: Option<f64>,
    hybrid_ns: Option<f64>,
    /// A thread's time for an image, in nanoseconds.
    host_ns: Option<f64>,
    /// The hardware decoder's time for an image, in nanoseconds.
    hardware_ns: Option<f64>,
    /// The kernels' time for an image, in nanoseconds.
    device_ns: Option<f64>,
    /// Number of images that the device's decoder is still owed.
    owed: f64,
    /// Number of images that went to the host's decoders.
    host: u32,
}

impl Router {
    /// A router for the decoders that nvJPEG has here.
    pub(super) fn new(path: DecodePath, hybrid: bool, hardware: bool, threads: usize) -> Self {
        let path = match path {
            DecodePath::Auto | DecodePath::Fastest if !hybrid => DecodePath::Exact,
            path => path,
        };
        Self { path, hybrid, hardware, threads: threads.max(1) as f64, balance: Mutex::default() }
    }

    /// The decoder that tries this image first. With `later`, decoders that decode a batch together are allowed.
    pub(super) fn route(&self, header: &Header, later: bool) -> Route {
        match self.path {
            DecodePath::Device if later => return Route::Device,
            // Images that the device's decoder does not take go to it too, because it counts the reasons.
            DecodePath::Exact if later => {
                let to_device = !is_jpeg_for_device(header)
                    || self.balance(|balance| balance.is_due(balance.device_ns, self.threads));
                return if to_device { Route::Device } else { Route::Cpu };
            }
            _ if !self.hybrid || !is_jpeg_for_nvjpeg(header) => return Route::Cpu,
            _ => {}
        }
        let hardware = later && self.hardware && is_jpeg_for_hardware(header);
        match self.path {
            DecodePath::Cpu | DecodePath::Device | DecodePath::Exact => Route::Cpu,
            DecodePath::Hybrid => Route::Hybrid,
            DecodePath::Auto | DecodePath::Hardware if hardware => Route::Hardware,
            DecodePath::Auto | DecodePath::Hardware => Route::Hybrid,
            DecodePath::Fastest => self.balance(|balance| balance.route(hardware, self.threads)),
        }
    }

    fn balance<T>(&self, work: impl FnOnce(&mut Balance) -> T) -> T {
        work(&mut self.balance.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records a thread's time for an image of `bytes` encoded bytes.
    pub(super) fn measured(&self, route: Route, bytes: usize, time: Duration) {
        let ns = time.as_nanos() as f64;
        self.balance(|balance| {
            let per_byte = match route {
                Route::Cpu => &mut balance.cpu_ns,
                Route::Hybrid => &mut balance.hybrid_ns,
                Route::Hardware | Route::Device => return,
            };
            average(per_byte, ns / bytes.max(1) as f64);
            average(&mut balance.host_ns, ns);
        });
    }

    /// Records the hardware decoder's time for `images` images.
    pub(super) fn hardware_took(&self, images: usize, time_ms: f32) {
        self.balance(|balance| average(&mut balance.hardware_ns, ns_an_image(images, time_ms)));
    }

    /// Records the kernels' time for `images` images.
    pub(super) fn device_took(&self, images: usize, time_ms: f32) {
        self.balance(|balance| average(&mut balance.device_ns, ns_an_image(images, time_ms)));
    }
}

/// Name of the decoder that takes an image on `auto`, on a card that has all of nvJPEG's: as of `--decode`.
#[cfg(feature = "experiment")]
pub(crate) fn on_auto(header: &Header) -> &'static str {
    match Router::new(DecodePath::Auto, true, true, 1).route(header, true) {
        Route::Hardware => "hardware",
        Route::Hybrid => "hybrid",
        Route::Cpu | Route::Device => "cpu",
    }
}

fn ns_an_image(images: usize, time_ms: f32) -> f64 {
    1e6 * f64::from(time_ms) / images.max(1) as f64
}

fn average(value: &mut Option<f64>, new: f64) {
    *value = Some(value.map_or(new, |old| old + WEIGHT * (new - old)));
}

impl Balance {
    /// Whether the next image goes to a decoder on the device, which takes `device_ns` for one, instead of the threads.
    /// Both finish together if each gets what it can do in the same time.
    fn is_due(&mut self, device_ns: Option<f64>, threads: f64) -> bool {
        self.owed += match (device_ns, self.host_ns) {
            (Some(device), Some(host)) => host / (host + device * threads),
            _ => FIRST_SHARE,
        };
        let is_due = self.owed >= 1.0;
        self.owed -= f64::from(u8::from(is_due));
        is_due
    }

    fn route(&mut self, hardware: bool, threads: f64) -> Route {
        if hardware && self.is_due(self.hardware_ns, threads) {
            return Route::Hardware;
        }
        self.host = self.host.wrapping_add(1);
        let explore = self.host.is_multiple_of(EXPLORE);
        match (self.cpu_ns, self.hybrid_ns) {
            (_, None) => Route::Hybrid,
            (None, _) => Route::Cpu,
            (Some(cpu), Some(hybrid)) if (cpu < hybrid) != explore => Route::Cpu,
            _ => Route::Hybrid,
        }
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
pub(crate) fn is_jpeg_for_device(header: &Header) -> bool {
    header.format == Format::Jpeg
        && !header.is_draft()
        && matches!(header.process, 0xC0 | 0xC1)
        && header.precision_bits == 8
        && matches!(header.components, 1 | 3)
}

/// Whether the hardware decoder can try to decode an image: a single scan, a usual sampling.
fn is_jpeg_for_hardware(header: &Header) -> bool {
    let [luma, blue, red, _] = header.sampling;
    let sampling = match header.components {
        1 => true,
        _ => matches!(luma, (1, 1) | (2, 1) | (2, 2) | (1, 2)) && blue == (1, 1) && red == (1, 1),
    };
    let sides = header.size.width.max(header.size.height);
    !header.progressive && sampling && sides <= MAX_HARDWARE_SIDE_PX
}

#[cfg(test)]
mod tests {
    use super::{Route, Router};
    use crate::device::DecodePath;
    use crate::{
        decode::probe,
        encode::{ChromaSampling, JpegOptions, encode_jpeg},
        raster::{Image, Size},
    };
    use std::time::Duration;

    fn jpeg(options: &JpegOptions) -> crate::decode::Header {
        probe(&encode_jpeg(&Image::new(Size::new(16, 16)), options).unwrap()).unwrap()
    }

    #[test]
    fn images_go_to_a_decoder_that_takes_them() {
        let baseline = jpeg(&JpegOptions::default());
        let progressive = jpeg(&JpegOptions { progressive: true, ..JpegOptions::default() });
        let cmyk = jpeg(&JpegOptions { color: crate::encode::JpegColor::Cmyk, ..JpegOptions::default() });
        let routes = |path, hardware| {
            let router = Router::new(path, true, hardware, 2);
            [&baseline, &progressive, &cmyk].map(|header| router.route(header, true))
        };
        assert_eq!(routes(DecodePath::Cpu, true), [Route::Cpu; 3]);
        assert_eq!(routes(DecodePath::Hybrid, true), [Route::Hybrid, Route::Hybrid, Route::Cpu]);
        assert_eq!(routes(DecodePath::Hardware, true), [Route::Hardware, Route::Hybrid, Route::Cpu]);
        assert_eq!(routes(DecodePath::Hardware, false), [Route::Hybrid, Route::Hybrid, Route::Cpu]);
        for hardware in [false, true] {
            assert_eq!(routes(DecodePath::Auto, hardware), routes(DecodePath::Hardware, hardware));
        }
        assert_eq!(routes(DecodePath::Device, true), [Route::Device; 3]);
        // Substitutes never go to decoders that decode a batch together.
        let device = Router::new(DecodePath::Device, true, true, 2);
        assert_eq!(device.route(&baseline, false), Route::Cpu);
        let odd = jpeg(&JpegOptions { sampling: ChromaSampling::S440, ..JpegOptions::default() });
        assert_eq!(Router::new(DecodePath::Hardware, true, true, 2).route(&odd, true), Route::Hardware);
    }

    /// Number of images, of 1,000, that the kernels get on the exact path.
    fn exact_share(path: DecodePath, cpu_us: u64, device_us: f32, threads: usize) -> usize {
        let router = Router::new(path, path == DecodePath::Exact, true, threads);
        let header = jpeg(&JpegOptions::default());
        router.measured(Route::Cpu, 1_000, Duration::from_micros(cpu_us));
        router.device_took(10, 10.0 * device_us / 1e3);
        (0..1_000).filter(|_| router.route(&header, true) == Route::Device).count()
    }

    #[test]
    fn the_kernels_and_the_cpu_share_by_speed_where_bytes_are_exact() {
        // Eight threads at 400 us are as fast as kernels at 50 us.
        for path in [DecodePath::Exact, DecodePath::Auto, DecodePath::Fastest] {
            assert!((495..=505).contains(&exact_share(path, 400, 50.0, 8)), "{path:?}");
        }
        assert!(exact_share(DecodePath::Exact, 400, 4.0, 1) > 980);
        assert!(exact_share(DecodePath::Exact, 400, 4_000.0, 8) < 20);
        // Images that the kernels do not take go to them too, because they count the reasons.
        let progressive = jpeg(&JpegOptions { progressive: true, ..JpegOptions::default() });
        let router = Router::new(DecodePath::Exact, true, true, 8);
        assert!((0..10).all(|_| router.route(&progressive, true) == Route::Device));
        assert_eq!(router.route(&progressive, false), Route::Cpu);
    }

    /// Number of images, of 1,000, for each decoder once these times are known.
    fn shares(cpu_us: u64, hybrid_us: u64, hardware_us: f32, threads: usize) -> [usize; 3] {
        let router = Router::new(DecodePath::Fastest, true, true, threads);
        let header = jpeg(&JpegOptions::default());
        router.measured(Route::Cpu, 1_000, Duration::from_micros(cpu_us));
        router.measured(Route::Hybrid, 1_000, Duration::from_micros(hybrid_us));
        router.hardware_took(1, hardware_us / 1e3);
        let mut counts = [0; 3];
        for _ in 0..1_000 {
            let route = router.route(&header, true);
            counts[route as usize] += 1;
            let time = if route == Route::Cpu { cpu_us } else { hybrid_us };
            router.measured(route, 1_000, Duration::from_micros(time));
        }
        counts
    }

    #[test]
    fn the_header_alone_decides_unless_the_fastest_way_is_asked_for() {
        let header = jpeg(&JpegOptions::default());
        let router = Router::new(DecodePath::Auto, true, true, 2);
        for cpu_us in [1, 1_000_000] {
            router.measured(Route::Cpu, 1_000, Duration::from_micros(cpu_us));
            router.measured(Route::Hybrid, 1_000, Duration::from_micros(1_000));
            router.hardware_took(1, 1_000.0);
            assert!((0..100).all(|_| router.route(&header, true) == Route::Hardware));
        }
    }

    #[test]
    fn work_goes_where_it_is_done_first() {
        // Eight threads at 400 us are as fast as hardware at 50 us.
        let [cpu, hybrid, hardware] = shares(800, 400, 50.0, 8);
        assert!((490..=520).contains(&hardware), "{hardware}");
        assert!(cpu > 0 && cpu < 20 && hybrid > 450, "{cpu} {hybrid}");
        let [cpu, hybrid, hardware] = shares(400, 800, 1_000_000.0, 8);
        assert!(cpu > 950 && hybrid < 30 && hardware < 10, "{cpu} {hybrid} {hardware}");
    }
}
