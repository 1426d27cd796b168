//! Synthetic images that load a pipeline like photographs: blurry scenes with objects, shadows and sensor grain, whose
//! JPEGs take as many bytes. Hue, texture and objects follow the class, so a small network can learn them. Every
//! machine makes the same image.

// Integers, single floats as IEEE 754 fixes them, and sine and cosine from `libm` are the same on every machine.

mod bands;
mod depth;
mod detection;
mod scene;
#[cfg(test)]
mod tests;

pub use bands::{BANDS, write_bands};
pub use depth::write_depth;

use detection::KINDS;
use scene::{Look, Noise, Object, size};
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use warpfeed::image::{ChromaSampling, Image, JpegOptions, encode_jpeg};
use warpfeed::internal::threads::spawn_scoped;
use warpfeed::internal::{Domain, SampleRng};
use warpfeed::internal::{atomic, file};
use warpfeed::source::read_text_limited;
use warpfeed::{Error, Result};

/// JPEG quality at which files of the usual size are as large as photographs.
const QUALITY: u8 = 95;

/// Mean size of the images unless another is asked for.
const USUAL_MEGAPIXELS: f64 = 0.2;

/// Settings of a folder of synthetic images.
///
/// ```
/// use warpfeed_bench::synth::SynthSettings;
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
    /// Whether images show objects of all classes, 6 at most, and have annotations: see [`write_folder`].
    pub detection: bool,
}

impl SynthSettings {
    /// Settings for images of 0.2 megapixels, quality 95 and 4:2:0, with seed 0.
    #[must_use]
    pub fn new(count: u64, classes: u32) -> Self {
        let (megapixels, sampling) = (USUAL_MEGAPIXELS, ChromaSampling::S420);
        Self { count, classes, seed: 0, megapixels, quality: QUALITY, sampling, detection: false }
    }

    /// Settings for such images with annotated objects of six classes.
    #[must_use]
    pub fn detection(count: u64) -> Self {
        Self { detection: true, ..Self::new(count, KINDS.len() as u32) }
    }

    /// The factor from the sides of usual images to those of these.
    fn times(&self) -> f64 {
        (self.megapixels / USUAL_MEGAPIXELS).sqrt()
    }

    fn check(&self) -> Result<()> {
        for (parameter, value) in [("count", self.count), ("classes", u64::from(self.classes))] {
            if value == 0 {
                return Err(Error::parameter("synth", parameter, "at least 1", value));
            }
        }
        if self.detection && self.classes as usize > KINDS.len() {
            let expected = format!("at most {} with annotations", KINDS.len());
            return Err(Error::parameter("synth", "classes", expected, self.classes));
        }
        if !(0.01..=100.0).contains(&self.megapixels) {
            return Err(Error::parameter("synth", "megapixels", "0.01 to 100", self.megapixels));
        }
        Ok(())
    }

    /// What the marker of a folder says about its images.
    fn stamp(&self, count: u64) -> String {
        let Self { classes, seed, megapixels, quality, sampling, detection, .. } = self;
        let usual = Self { seed: *seed, detection: *detection, ..Self::new(self.count, *classes) } == *self;
        let kind = if *detection { "with annotations\n" } else { "" };
        let form = if usual { String::new() } else { format!("form {megapixels} Mpx, {quality}, {sampling:?}\n") };
        format!("version {VERSION}\nclasses {classes}\nseed {seed}\n{kind}{form}count {count}\n")
    }
}

/// Must change whenever the images change.
const VERSION: u32 = 1;

/// The file that marks a folder of synthetic images.
const MARKER: &str = ".warpfeed-synth";

/// Largest such file, in bytes.
const MAX_MARKER_BYTES: u64 = 1 << 12;

/// The synthetic image `index` of a data set of `classes` classes, showing class `class`.
///
/// The image has about 500 x 375 pixels (0.12 to 0.28 Mpx), in landscape or portrait format.
///
/// ```
/// use warpfeed_bench::synth::image;
///
/// let first = image(42, 0, 3, 10);
/// assert!((120_000..290_000).contains(&first.size().area_px()));
/// assert_eq!(first.to_rgb(), image(42, 0, 3, 10).to_rgb());
/// assert_ne!(first.to_rgb(), image(42, 1, 3, 10).to_rgb());
/// ```
#[must_use]
pub fn image(seed: u64, index: u64, class: u32, classes: u32) -> Image {
    image_of(1.0, seed, index, class, classes)
}

/// As [`image`], with sides `times` as long.
fn image_of(times: f64, seed: u64, index: u64, class: u32, classes: u32) -> Image {
    let mut draw = SampleRng::new(seed, 0, Domain::Synth, index);
    let size = size(draw.at(0), times);
    let noise = Noise::new(draw.at(1));
    let look = Look::new(class, classes, draw.at(2));
    let number = 2 + draw.at(3).below(4);
    let objects: Vec<Object> = (0..number).map(|_| Object::new(&look, size, times, &mut draw)).collect();
    scene::image(size, times, &noise, &look, &objects, draw.at(4).bits() as u32)
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

/// Writes synthetic images as a folder of class folders, `class_00/00000.jpg` and so on, on all cores; or, with
/// [`SynthSettings::detection`], as `images/000000.jpg` and so on, with `annotations.json`, which
/// [`CocoFiles`](warpfeed::source::CocoFiles) reads: 1 to 7 objects in an image, some hiding parts of others, with the
/// boxes and masks of what is seen of each.
///
/// `progress` is called from any thread with the number of finished images. Each
/// file is written completely or not at all. So after an interruption the same call continues: it keeps the images that
/// exist.
///
/// The folder is created if it is missing. It must be empty, or come from an earlier call with the same settings but
/// for no greater count, which a file `.warpfeed-synth` in it records.
///
/// # Errors
/// [`Error::Parameter`] if a setting is out of range or the folder has other contents; [`Error::Io`] if it cannot be
/// written; [`Error::Panic`] if `progress` panics.
///
/// ```
/// use warpfeed_bench::synth::{SynthSettings, write_folder};
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
    let SynthSettings { count, classes, seed, quality, sampling, detection, .. } = *settings;
    let options = JpegOptions { quality, sampling, ..JpegOptions::default() };
    settings.check()?;
    claim(folder, settings)?;
    let folders = if detection { 1 } else { count.min(u64::from(classes)) };
    let folder_of = |class: u32| if detection { folder.join("images") } else { class_folder(folder, class, classes) };
    for class in 0..folders {
        let path = folder_of(class as u32);
        fs::create_dir_all(&path).map_err(Error::io("make the folder", &path))?;
        atomic::remove_leftovers(&path, atomic::LEFTOVER_AGE, |name| name.ends_with(".jpg"))?;
    }
    let (next, done, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let make = |index: u64| -> Result<Option<u64>> {
        let class = (index % u64::from(classes)) as u32;
        let name = format!("{:05}.jpg", index / u64::from(classes));
        let path = folder_of(class).join(if detection { detection::file_name(index) } else { name });
        if path.exists() {
            return Ok(None);
        }
        let image = if detection {
            detection::image_of(settings, index)
        } else {
            image_of(settings.times(), seed, index, class, classes)
        };
        let bytes = encode_jpeg(&image, &options)?;
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
    let written = results.into_iter().try_fold(Written::default(), |sum, own| {
        let own: Written = own?;
        Ok(Written { written: sum.written + own.written, kept: sum.kept + own.kept, bytes: sum.bytes + own.bytes })
    });
    if detection && written.is_ok() {
        detection::write_annotations(folder, settings)?;
    }
    written
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
    match file::if_there(read_text_limited(&marker, MAX_MARKER_BYTES))? {
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
