//! Synthetic images that load a pipeline like photographs.
//!
//! Blurry scenes with uneven light, rough and smooth places, a few objects with shadows, and sensor grain: encoded as
//! JPEG with 4:2:0 sampling they take about 90 KB at quality 92 and 110 KB at quality 95. Photographs of this size on
//! the web (0.2 Mpx) take as much, so decoding costs the same. The class sets the hue, the direction of the texture and
//! the kind of the objects, with enough variation within a class that a small network has something to learn.
//!
//! Larger images are like those of cameras: the same scenes, with detail down to three pixels, which is as fine as lenses
//! draw, and half the grain. At 2 and 12 Mpx and quality 93 they take 2.2 bits a pixel, 1.5 to 2.8 by image.
//!
//! The same image comes out on every machine: integers, additions, multiplications, divisions and square roots of
//! single floats (which IEEE 754 fixes), and sine and cosine from the `libm` crate.

use crate::encode::{ChromaSampling, JpegOptions, encode_jpeg};
use crate::error::{Error, Result};
use crate::raster::{Image, Size};
use crate::rng::{Domain, SampleRng};
use crate::threads::spawn_scoped;
use crate::{atomic, file};
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;

/// JPEG quality at which files of the usual size are as large as photographs.
const QUALITY: u8 = 95;

/// Mean size of the images unless another is asked for.
const USUAL_MEGAPIXELS: f64 = 0.2;

/// The finest detail in larger images, in pixels. Lenses and the interpolation of a sensor's colors draw no finer.
const LENS_PX: f64 = 3.0;

/// Settings of a folder of synthetic images.
///
/// ```
/// use warpfeed::experiment::synth::SynthSettings;
///
/// let photographs = SynthSettings { megapixels: 12.0, quality: 93, ..SynthSettings::new(100, 10) };
/// assert_eq!(photographs.seed, 0);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SynthSettings {
    /// Number of images.
    pub count: u64,
    /// Number of classes. Image `i` shows class `i % classes`.
    pub classes: u32,
    /// Seed of the images.
    pub seed: u64,
    /// Mean size of the images in millions of pixels, 0.01 to 100; single images have 0.6 to 1.4 times as much.
    pub megapixels: f64,
    /// Quality of the JPEGs, 1 to 100.
    pub quality: u8,
    /// Their chroma subsampling.
    pub sampling: ChromaSampling,
}

impl SynthSettings {
    /// Settings for images of 0.2 megapixels, quality 95 and 4:2:0, with seed 0.
    #[must_use]
    pub fn new(count: u64, classes: u32) -> Self {
        let (megapixels, sampling) = (USUAL_MEGAPIXELS, ChromaSampling::S420);
        Self { count, classes, seed: 0, megapixels, quality: QUALITY, sampling }
    }

    fn check(&self) -> Result<()> {
        for (parameter, value) in [("count", self.count), ("classes", u64::from(self.classes))] {
            if value == 0 {
                return Err(Error::parameter("synth", parameter, "at least 1", value));
            }
        }
        if !(0.01..=100.0).contains(&self.megapixels) {
            return Err(Error::parameter("synth", "megapixels", "0.01 to 100", self.megapixels));
        }
        Ok(())
    }

    /// What the marker of a folder says about its images.
    fn stamp(&self, count: u64) -> String {
        let Self { classes, seed, megapixels, quality, sampling, .. } = self;
        let usual = Self { seed: *seed, ..Self::new(self.count, *classes) } == *self;
        let form = if usual { String::new() } else { format!("form {megapixels} Mpx, {quality}, {sampling:?}\n") };
        format!("version {VERSION}\nclasses {classes}\nseed {seed}\n{form}count {count}\n")
    }
}

/// Must change whenever the images change.
const VERSION: u32 = 1;

/// The file that marks a folder of synthetic images.
const MARKER: &str = ".warpfeed-synth";

/// Largest such file, in bytes.
const MAX_MARKER_BYTES: u64 = 1 << 12;

/// Side of the square grid of random numbers that all noise is interpolated from.
const NOISE_SIDE: usize = 128;

/// The synthetic image `index` of a data set of `classes` classes, showing class `class`.
///
/// The image has about 500 x 375 pixels (0.12 to 0.28 Mpx), in landscape or portrait format.
///
/// ```
/// use warpfeed::experiment::synth::image;
///
/// let first = image(42, 0, 3, 10);
/// assert!((120_000..290_000).contains(&first.size().area_px()));
/// assert_eq!(first.to_rgb(), image(42, 0, 3, 10).to_rgb());
/// assert_ne!(first.to_rgb(), image(42, 1, 3, 10).to_rgb());
/// ```
#[must_use]
pub fn image(seed: u64, index: u64, class: u32, classes: u32) -> Image {
    image_of(USUAL_MEGAPIXELS, seed, index, class, classes)
}

/// As [`image`], with this mean size.
fn image_of(megapixels: f64, seed: u64, index: u64, class: u32, classes: u32) -> Image {
    let mut draw = SampleRng::new(seed, 0, Domain::Synth, index);
    // Factor from the sides of the usual images to these.
    let times = (megapixels / USUAL_MEGAPIXELS).sqrt();
    let size = size(draw.at(0), times);
    let noise = Noise::new(draw.at(1));
    let look = Look::new(class, classes, draw.at(2));
    let mut scene = Scene { size, times, colors: Vec::new(), texture: Vec::new() };
    scene.background(&look, &noise);
    let objects = 2 + draw.at(3).below(4);
    for _ in 0..objects {
        scene.place(&Object::new(&look, size, times, &mut draw), look.light);
    }
    let grain = if times > 1.0 { 0.5 * look.grain } else { look.grain };
    scene.develop(grain, draw.at(4).bits() as u32)
}

/// Draws a size like those of photographs on the web: most are 500 pixels wide and 4:3, some 3:2 or nearly square, and
/// a third are in portrait format. All sides are `times` as long.
fn size(draw: &mut SampleRng, times: f64) -> Size {
    let aspect = match draw.below(10) {
        0..6 => 4.0 / 3.0,
        6..8 => 1.5,
        _ => draw.uniform(1.0, 1.25),
    };
    let area_px = 0.5 * (draw.uniform(120_000.0, 280_000.0) + draw.uniform(130_000.0, 270_000.0));
    let short = times * (area_px / aspect).sqrt();
    let size = Size::new((short * aspect) as u32, short as u32);
    if draw.chance(0.3) { size.transposed() } else { size }
}

/// The look of one image.
struct Look {
    /// The two colors of the ground.
    ground: [[f32; 3]; 2],
    object_hue: f64,
    /// Direction of the texture: sine and cosine.
    direction: (f64, f64),
    /// Depth of the texture, and the factor from each octave to the next finer one.
    texture: f32,
    roughness: f32,
    /// Change of brightness across and down the image.
    light: [f32; 2],
    /// Strength of the grain, in steps of 1/255.
    grain: f32,
    kind: u32,
}

impl Look {
    fn new(class: u32, classes: u32, draw: &mut SampleRng) -> Self {
        let place = f64::from(class) / f64::from(classes.max(1));
        let hue = place + draw.uniform(-0.03, 0.03);
        // Classes of similar hue get quite different directions: steps of the golden section of half a turn.
        let angle = core::f64::consts::PI * (f64::from(class) * 0.618_033_988_75 + draw.uniform(-0.06, 0.06));
        let dark = hsv(hue, draw.uniform(0.35, 0.75), draw.uniform(0.25, 0.5));
        let bright = hsv(hue + draw.uniform(-0.08, 0.08), draw.uniform(0.15, 0.5), draw.uniform(0.6, 0.9));
        Self {
            ground: [dark, bright],
            object_hue: hue + 0.5 + draw.uniform(-0.15, 0.15),
            direction: libm::sincos(angle),
            texture: draw.uniform(0.55, 1.2) as f32,
            roughness: draw.uniform(0.74, 1.15) as f32,
            light: [draw.uniform(-0.5, 0.5) as f32, draw.uniform(-0.6, 0.3) as f32],
            grain: draw.uniform(4.0, 12.0) as f32,
            kind: class % 6,
        }
    }
}

/// Red, green and blue of a color given by hue, saturation and value, each 0 to 1 (the hue wraps around).
fn hsv(hue: f64, saturation: f64, value: f64) -> [f32; 3] {
    [5.0, 3.0, 1.0].map(|turn| {
        let sixth = turn + 6.0 * (hue - hue.floor());
        let sixth = sixth - if sixth >= 6.0 { 6.0 } else { 0.0 };
        let depth = sixth.min(4.0 - sixth).clamp(0.0, 1.0);
        (value * (1.0 - saturation * depth)) as f32
    })
}

/// Value noise: random numbers on a grid, smoothly interpolated in fixed point.
struct Noise {
    grid: Vec<i16>,
    /// `3 t^2 - 2 t^3` in 256 steps.
    smooth: [i32; 256],
}

/// A field of noise over an image: its start, and the distance from pixel to pixel, in 1/65536 of the grid.
struct Field {
    start: [i32; 2],
    right: [i32; 2],
    down: [i32; 2],
}

impl Field {
    /// Noise with these periods along and across a direction.
    fn new((sin, cos): (f64, f64), along_px: f64, across_px: f64, octave: i32) -> Self {
        let fixed = |v: f64| (v * 65536.0) as i32;
        Self {
            // Octaves must not share grid points: otherwise their sum would show the grid.
            start: [fixed(f64::from(octave) * 17.37), fixed(f64::from(octave) * 29.71)],
            right: [fixed(cos / along_px), fixed(-sin / across_px)],
            down: [fixed(sin / along_px), fixed(cos / across_px)],
        }
    }
}

impl Noise {
    fn new(draw: &mut SampleRng) -> Self {
        let words = std::iter::repeat_with(|| draw.bits()).take(NOISE_SIDE * NOISE_SIDE / 4);
        let grid = words.flat_map(|w| [w as i16, (w >> 16) as i16, (w >> 32) as i16, (w >> 48) as i16]).collect();
        let smooth = std::array::from_fn(|t| {
            let t = t as i32;
            (t * t * (3 * 256 - 2 * t)) >> 16
        });
        Self { grid, smooth }
    }

    /// Adds `amplitude` times row `y` of a field, whose values are -1 to 1, to `row`.
    fn add(&self, field: &Field, y: u32, amplitude: f32, row: &mut [f32]) {
        const MASK: usize = NOISE_SIDE - 1;
        let grid: &[i16; NOISE_SIDE * NOISE_SIDE] = self.grid[..].try_into().expect("the grid has this size");
        let start = |axis: usize| field.start[axis].wrapping_add(field.down[axis].wrapping_mul(y as i32));
        let (mut u, mut v) = (start(0), start(1));
        let scale = amplitude / 32768.0;
        for value in row {
            let (x, y) = ((u >> 16) as usize & MASK, (v >> 16) as usize & MASK);
            let (fx, fy) = (self.smooth[(u >> 8) as usize & 255], self.smooth[(v >> 8) as usize & 255]);
            let at = |x: usize, y: usize| i32::from(grid[(y & MASK) * NOISE_SIDE + (x & MASK)]);
            let upper = at(x, y) * (256 - fx) + at(x + 1, y) * fx;
            let lower = at(x, y + 1) * (256 - fx) + at(x + 1, y + 1) * fx;
            let mixed = (upper >> 8) * (256 - fy) + (lower >> 8) * fy;
            *value += (mixed >> 8) as f32 * scale;
            u = u.wrapping_add(field.right[0]);
            v = v.wrapping_add(field.right[1]);
        }
    }
}

/// Maps `edge0` to `edge1` to 0 to 1, smoothly.
fn smoothstep(edge0: f32, edge1: f32, x: f32) -> f32 {
    let t = ((x - edge0) / (edge1 - edge0)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// An unfinished image: light as red, green and blue, 0 to about 1, and the depth of the texture for each pixel.
struct Scene {
    size: Size,
    /// Factor from the sides of usual images to those of this one.
    times: f64,
    colors: Vec<[f32; 3]>,
    texture: Vec<f32>,
}

impl Scene {
    fn background(&mut self, look: &Look, noise: &Noise) {
        let Size { width, height } = self.size;
        let long = f64::from(width.max(height));
        let upright = (0.0, 1.0);
        let places: Vec<Field> =
            (0..2).map(|o| Field::new(upright, long / [2.3, 5.9][o], long / [2.3, 5.9][o], 20 + o as i32)).collect();
        let masks: Vec<Field> =
            (0..2).map(|o| Field::new(upright, long / [3.1, 9.7][o], long / [3.1, 9.7][o], 30 + o as i32)).collect();
        let mut octaves = Vec::new();
        let (mut period, mut amplitude) = (40.0 * self.times, 1.0_f32);
        for octave in 0..6 {
            if self.times > 1.0 && period < LENS_PX {
                break;
            }
            octaves.push((Field::new(look.direction, period * 2.5, period, octave), amplitude));
            (period, amplitude) = (period * 0.53, amplitude * look.roughness);
        }
        // Detail that usual images are too small for: the finer, the fainter.
        for octave in 6.. {
            if period < LENS_PX {
                break;
            }
            octaves.push((Field::new(look.direction, period * 2.5, period, octave), amplitude));
            (period, amplitude) = (period * 0.53, amplitude * 0.53);
        }
        // Independent octaves are summed, so their variances add up.
        let power: f32 = octaves.iter().map(|(_, a)| a * a).sum();
        let texture = look.texture / power.sqrt();
        let (mut place, mut mask, mut rough) =
            (vec![0.0; width as usize], vec![0.0; width as usize], vec![0.0; width as usize]);
        for y in 0..height {
            for row in [&mut place, &mut mask, &mut rough] {
                row.fill(0.0);
            }
            for (octave, amplitude) in [0.75, 0.35].into_iter().enumerate() {
                noise.add(&places[octave], y, amplitude, &mut place);
                noise.add(&masks[octave], y, amplitude, &mut mask);
            }
            for (field, amplitude) in &octaves {
                noise.add(field, y, amplitude * texture, &mut rough);
            }
            let down = (y as f32 + 0.5) / height as f32 - 0.5;
            for (x, ((place, mask), rough)) in place.iter().zip(&mask).zip(&rough).enumerate() {
                let across = (x as f32 + 0.5) / width as f32 - 0.5;
                let light = 1.0 + look.light[0] * across + look.light[1] * down;
                let depth = rough * (0.2 + 0.8 * smoothstep(-0.35, 0.45, *mask));
                let mix = smoothstep(-0.6, 0.6, *place);
                let [dark, bright] = look.ground;
                let shade = light * (1.0 + 0.6 * depth).max(0.05);
                self.colors.push([0, 1, 2].map(|c| (dark[c] + (bright[c] - dark[c]) * mix) * shade));
                self.texture.push(*rough);
            }
        }
    }

    /// Puts an object and its shadow into the scene.
    fn place(&mut self, object: &Object, light: [f32; 2]) {
        let Size { width, height } = self.size;
        let away = object.radius * 0.15;
        let shadow = [object.center[0] - away * (1.0 + light[0]), object.center[1] + away];
        let reach = object.radius * 1.5 + away * 3.0;
        let span = |center: f32, len: u32| {
            ((center - reach).clamp(0.0, len as f32) as u32, (center + reach).clamp(0.0, len as f32) as u32)
        };
        let ((left, right), (top, bottom)) = (span(object.center[0], width), span(object.center[1], height));
        for y in top..bottom {
            for x in left..right {
                let point = [x as f32 + 0.5, y as f32 + 0.5];
                let at = y as usize * width as usize + x as usize;
                let shade = smoothstep(away * 1.5, -away * 1.5, object.distance(point, shadow));
                let cover = smoothstep(object.soft, -object.soft, object.distance(point, object.center));
                // Objects are lit from above, and each has its own roughness.
                let turn = (object.center[1] - point[1] + (point[0] - object.center[0]) * light[0]) / object.radius;
                let lit = (0.85 + 0.3 * turn) * (1.0 + object.texture * self.texture[at]).max(0.05);
                for (value, color) in self.colors[at].iter_mut().zip(object.color) {
                    *value *= 1.0 - 0.45 * shade;
                    *value += (color * lit - *value) * cover;
                }
            }
        }
    }

    /// Adds grain, compresses highlights softly, and rounds to eight bits.
    fn develop(&self, grain: f32, seed: u32) -> Image {
        let mut image = Image::new(self.size);
        // Xorshift (Marsaglia 2003): one word per pixel, of which two bytes and two half bytes are used.
        let mut word = seed | 1;
        let step = grain / 255.0 / 104.5;
        for (pixel, color) in image.pixels_mut().iter_mut().zip(&self.colors) {
            word ^= word << 13;
            word ^= word >> 17;
            word ^= word << 5;
            let [a, b, c, d] = word.to_le_bytes().map(f32::from);
            // The sum of two bytes has a standard deviation of 104.5. Color noise is weaker.
            let all = a + b - 255.0;
            let own = [0.35 * (c - 127.5), -0.2 * (c + d - 255.0), 0.35 * (d - 127.5)];
            for channel in 0..3 {
                let value = color[channel] + step * (all + own[channel]);
                let value = if value > 0.8 { 1.0 - 0.04 / (value - 0.6) } else { value };
                pixel[channel] = (value * 255.0 + 0.5) as u8;
            }
        }
        image
    }
}

/// An object in the scene.
struct Object {
    kind: u32,
    center: [f32; 2],
    radius: f32,
    /// Sine and cosine of its rotation.
    turn: (f32, f32),
    color: [f32; 3],
    texture: f32,
    /// Half the width of its soft edge in pixels.
    soft: f32,
}

impl Object {
    fn new(look: &Look, size: Size, times: f64, draw: &mut SampleRng) -> Self {
        let short = f64::from(size.width.min(size.height));
        let (sin, cos) = libm::sincos(draw.uniform(0.0, core::f64::consts::TAU));
        Self {
            kind: look.kind,
            center: [
                (f64::from(size.width) * draw.uniform(0.1, 0.9)) as f32,
                (f64::from(size.height) * draw.uniform(0.15, 0.9)) as f32,
            ],
            radius: (short * draw.uniform(0.08, 0.26)) as f32,
            turn: (sin as f32, cos as f32),
            color: hsv(look.object_hue + draw.uniform(-0.06, 0.06), draw.uniform(0.3, 0.85), draw.uniform(0.4, 0.95)),
            texture: draw.uniform(0.1, 0.7) as f32,
            soft: (times * draw.uniform(0.7, 3.5)) as f32,
        }
    }

    /// Approximate distance of `point` from the object's outline in pixels, positive outside. `center`: the object's
    /// center.
    fn distance(&self, point: [f32; 2], center: [f32; 2]) -> f32 {
        let (dx, dy) = (point[0] - center[0], point[1] - center[1]);
        let (sin, cos) = self.turn;
        let (x, y) = (cos * dx + sin * dy, cos * dy - sin * dx);
        let radius = self.radius;
        let round = || (x * x + y * y).sqrt();
        match self.kind {
            0 => round() - radius,
            1 => x.abs().max(y.abs() * 1.4) - radius * 0.9,
            2 => (y * 0.5 + x.abs() * 0.866_025_4).max(-y) - radius * 0.6,
            3 => (round() - radius * 0.75).abs() - radius * 0.25,
            4 => (x.abs().min(y.abs()) - radius * 0.3).max(x.abs().max(y.abs()) - radius),
            _ => (x.abs() + y.abs() * 0.6) * 0.857_492_9 - radius * 0.8,
        }
    }
}

/// Result of [`write_folder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Number of images that were written.
    pub written: u64,
    /// Number of images that existed already.
    pub kept: u64,
    /// Number of bytes written.
    pub bytes: u64,
}

/// Writes synthetic images as a folder of class folders, `class_00/00000.jpg` and so on, on all cores.
///
/// `progress` is called from any thread with the number of finished images. Each
/// file is written completely or not at all. So after an interruption the same call continues: it keeps the images that
/// exist.
///
/// The folder is created if it is missing. It must be empty, or come from an earlier call with the same settings but for
/// no greater count, which a file `.warpfeed-synth` in it records.
///
/// # Errors
/// [`Error::Parameter`] if a setting is out of range or the folder has other contents; [`Error::Io`] if it cannot be
/// written; [`Error::Panic`] if `progress` panics.
///
/// ```
/// use warpfeed::experiment::synth::{SynthSettings, write_folder};
/// use warpfeed::source::{ImageFolder, Source};
///
/// let folder = tempfile::tempdir().unwrap();
/// let written = write_folder(folder.path(), &SynthSettings::new(5, 2), |_done| {})?;
/// assert_eq!(written.written, 5);
/// let source = ImageFolder::open(folder.path())?;
/// assert_eq!((source.len(), source.classes()), (5, &["class_00".to_owned(), "class_01".to_owned()][..]));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn write_folder(
    folder: impl AsRef<Path>,
    settings: &SynthSettings,
    progress: impl Fn(u64) + Sync,
) -> Result<Written> {
    let folder = folder.as_ref();
    let SynthSettings { count, classes, seed, megapixels, quality, sampling } = *settings;
    let options = JpegOptions { quality, sampling, ..JpegOptions::default() };
    settings.check()?;
    claim(folder, settings)?;
    for class in 0..count.min(u64::from(classes)) {
        let path = class_folder(folder, class as u32, classes);
        fs::create_dir_all(&path).map_err(Error::io("make the folder", &path))?;
        atomic::remove_leftovers(&path, atomic::LEFTOVER_AGE, |name| name.ends_with(".jpg"))?;
    }
    let (next, done, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let make = |index: u64| -> Result<Option<u64>> {
        let class = (index % u64::from(classes)) as u32;
        let path = class_folder(folder, class, classes).join(format!("{:05}.jpg", index / u64::from(classes)));
        if path.exists() {
            return Ok(None);
        }
        let bytes = encode_jpeg(&image_of(megapixels, seed, index, class, classes), &options)?;
        atomic::write(&path, |file| file.write_all(&bytes))?;
        Ok(Some(bytes.len() as u64))
    };
    let work = || -> Result<Written> {
        let _guard = StopOnPanic(&stop);
        let mut own = Written::default();
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                break;
            }
            match make(index).inspect_err(|_| stop.store(true, Ordering::Relaxed))? {
                Some(bytes) => (own.written, own.bytes) = (own.written + 1, own.bytes + bytes),
                None => own.kept += 1,
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
        Ok(own)
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(usize::try_from(count).unwrap_or(1));
    let results: Vec<Result<Written>> = std::thread::scope(|scope| {
        // This thread works too; it works alone if the system gives no other threads.
        let others: Vec<_> =
            (1..threads).map_while(|i| spawn_scoped(scope, format!("warpfeed-synth-{i}"), work).ok()).collect();
        let own = catch_unwind(AssertUnwindSafe(work));
        let all = std::iter::once(own).chain(others.into_iter().map(ScopedJoinHandle::join));
        all.map(|outcome| outcome.unwrap_or_else(|panic| Err(Error::panic(&*panic)))).collect()
    });
    results.into_iter().try_fold(Written::default(), |sum, own| {
        let own = own?;
        Ok(Written { written: sum.written + own.written, kept: sum.kept + own.kept, bytes: sum.bytes + own.bytes })
    })
}

/// Stops all threads if one of them panics.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

fn class_folder(folder: &Path, class: u32, classes: u32) -> PathBuf {
    let digits = (classes - 1).to_string().len().max(2);
    folder.join(format!("class_{class:0digits$}"))
}

/// Marks the folder as this data set's, or says why that is impossible.
fn claim(folder: &Path, settings: &SynthSettings) -> Result<()> {
    let marker = folder.join(MARKER);
    let refuse = |expected: &str, got: String| Err(Error::parameter("synth", "folder", expected, got));
    fs::create_dir_all(folder).map_err(Error::io("make the folder", folder))?;
    match file::if_there(file::read_text_limited(&marker, MAX_MARKER_BYTES))? {
        Some(found) => {
            let before = found.lines().last().and_then(|line| line.strip_prefix("count ")?.parse::<u64>().ok());
            let expected = "empty, or hold synthetic images of the same version and settings and no more of them";
            if !before.is_some_and(|before| before <= settings.count && found == settings.stamp(before)) {
                let found: Vec<&str> = found.lines().take(5).collect();
                return refuse(expected, format!("{} with {}", folder.display(), found.join(", ")));
            }
        }
        None => {
            let mut entries = fs::read_dir(folder).map_err(Error::io("list", folder))?;
            if let Some(entry) = entries.next() {
                let entry = entry.map_err(Error::io("list", folder))?;
                let name = entry.file_name();
                let got = format!("{} with {} and other things in it", folder.display(), name.display());
                return refuse("empty or one that this command made", got);
            }
        }
    }
    atomic::write(&marker, |file| file.write_all(settings.stamp(settings.count).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{ImageFolder, Source};
    use sha2::{Digest, Sha256};
    use std::sync::Mutex;

    fn settings(count: u64, classes: u32, seed: u64) -> SynthSettings {
        SynthSettings { seed, ..SynthSettings::new(count, classes) }
    }

    /// If the images change, `VERSION` must be increased.
    #[test]
    fn the_images_are_the_same_everywhere() {
        let mut hash = Sha256::new();
        for index in 0..6 {
            let image = image(42, index, index as u32, 10);
            hash.update(image.size().width.to_le_bytes());
            hash.update(image.to_rgb());
        }
        let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((VERSION, &hash[..]), (1, GOLDEN_HASH));
    }

    const GOLDEN_HASH: &str = "bfbe49c833c6ea2dd48561e92fc12804fea11829abe9acf076c9a442883a68c3";

    #[test]
    fn images_differ_and_their_sizes_are_those_of_photographs() {
        let mut standing = 0;
        let mut area = 0;
        for index in 0..200 {
            let size = size(SampleRng::new(3, 0, Domain::Synth, index).at(0), 1.0);
            assert!((120_000..280_000).contains(&size.area_px()) && size.width.max(size.height) < 660, "{size}");
            standing += u64::from(size.height > size.width);
            area += size.area_px();
        }
        assert!((30..100).contains(&standing), "{standing} standing of 200");
        assert!((190_000..210_000).contains(&(area / 200)), "{} px in the mean", area / 200);
        let images = [image(1, 0, 0, 2), image(1, 0, 1, 2), image(1, 1, 0, 2), image(2, 0, 0, 2)];
        for (i, a) in images.iter().enumerate() {
            assert!(images[..i].iter().all(|b| a.pixels() != b.pixels()));
            assert!(a.pixels().iter().all(|pixel| pixel[3] == 255));
        }
    }

    #[test]
    fn the_class_decides_the_color() {
        // Class 0 of 3 is red, 1 green, 2 blue: the ground covers most of each image.
        for class in 0..3_u32 {
            for index in 0..3 {
                let image = image(9, index, class, 3);
                let mut sums = [0_u64; 3];
                for pixel in image.pixels() {
                    (0..3).for_each(|c| sums[c] += u64::from(pixel[c]));
                }
                let strongest = (0..3).max_by_key(|&c| sums[c]).unwrap();
                assert_eq!(strongest, class as usize, "image {index}: {sums:?}");
            }
        }
    }

    #[test]
    fn hues_go_round() {
        for (hue, want) in [(0.0, [1.0, 0.0, 0.0]), (1.0 / 3.0, [0.0, 1.0, 0.0]), (-1.0 / 3.0, [0.0, 0.0, 1.0])] {
            let got = hsv(hue, 1.0, 1.0);
            assert!(got.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-6), "{hue}: {got:?}");
        }
        assert_eq!(hsv(0.7, 0.0, 0.25), [0.25; 3]);
        assert_eq!(hsv(1.25, 0.5, 0.5), hsv(0.25, 0.5, 0.5));
    }

    fn encode(image: &Image) -> Result<Vec<u8>> {
        Ok(encode_jpeg(image, &JpegOptions { quality: QUALITY, ..JpegOptions::default() })?)
    }

    #[test]
    fn a_folder_is_written_completely_and_can_grow() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("new/set");
        let calls = Mutex::new(Vec::new());
        let first = write_folder(&folder, &settings(5, 2, 7), |done| calls.lock().unwrap().push(done)).unwrap();
        let mut calls = calls.into_inner().unwrap();
        calls.sort_unstable();
        assert_eq!(calls, [1, 2, 3, 4, 5]);
        assert_eq!((first.written, first.kept), (5, 0));
        // An interrupted call is continued, and a larger count adds images.
        fs::remove_file(folder.join("class_01/00000.jpg")).unwrap();
        let second = write_folder(&folder, &settings(6, 2, 7), |_| {}).unwrap();
        assert_eq!((second.written, second.kept), (2, 4));

        let source = ImageFolder::open(&folder).unwrap();
        assert_eq!((source.len(), source.skipped_files()), (6, 0));
        let names = [
            "class_00/00000",
            "class_00/00001",
            "class_00/00002",
            "class_01/00000",
            "class_01/00001",
            "class_01/00002",
        ];
        let mut total = 0;
        for (position, name) in (0_u64..).zip(names) {
            assert_eq!(source.path(position), folder.join(format!("{name}.jpg")));
            let index = position % 3 * 2 + position / 3;
            let want = encode(&image(7, index, (index % 2) as u32, 2)).unwrap();
            assert_eq!(source.encoded(position).unwrap(), want);
            total += u64::from(index < 5) * want.len() as u64;
        }
        assert_eq!(first.bytes, total);
    }

    #[test]
    fn other_folders_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let try_with = |count, classes, seed| write_folder(folder.path(), &settings(count, classes, seed), |_| {});
        assert!(try_with(0, 1, 1).unwrap_err().is_parameter() && try_with(1, 0, 1).unwrap_err().is_parameter());
        fs::write(folder.path().join("thesis.tex"), "").unwrap();
        let error = try_with(1, 1, 1).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("thesis.tex"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        fs::remove_file(folder.path().join("thesis.tex")).unwrap();

        try_with(3, 2, 1).unwrap();
        for (count, classes, seed) in [(2, 2, 1), (3, 3, 1), (3, 2, 2)] {
            let error = try_with(count, classes, seed).unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains("classes 2, seed 1, count 3"), "{error}");
        }
        assert_eq!(try_with(3, 2, 1).unwrap().kept, 3);
    }

    #[test]
    fn a_panic_ends_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let once = AtomicBool::new(true);
        let progress = |_| assert!(!once.swap(false, Ordering::Relaxed), "once");
        let error = write_folder(folder.path(), &settings(1_000_000, 2, 1), progress).unwrap_err();
        assert!(matches!(&error, Error::Panic { message } if message == "once"), "{error}");
    }
}
