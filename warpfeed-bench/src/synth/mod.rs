//! Synthetic images that load a pipeline like photographs.
//!
//! Blurry scenes with uneven light, rough and smooth places, a few objects with shadows, and sensor grain: encoded as
//! JPEG with 4:2:0 sampling they take about 90 KB at quality 92 and 110 KB at quality 95. Photographs of this size on
//! the web (0.2 Mpx) take as much, so decoding costs the same. The class sets the hue, the direction of the texture and
//! the kind of the objects, with enough variation within a class that a small network has something to learn.
//!
//! Larger images are like those of cameras: the same scenes, with detail down to three pixels, which is as fine as
//! lenses draw, and half the grain. At 2 and 12 Mpx and quality 93 they take 2.2 bits a pixel, 1.5 to 2.8 by image.
//!
//! The same image comes out on every machine: integers, additions, multiplications, divisions and square roots of
//! single floats (which IEEE 754 fixes), and sine and cosine from the `libm` crate.

mod detection;
mod scene;

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
/// [`CocoFiles`](warpfeed::source::CocoFiles) reads: 1 to 7 objects in an image, some of which hide parts of others,
/// with the boxes and masks of what is seen of each.
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

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use warpfeed::Pipeline;
    use warpfeed::fields::{BoxFormat, Field, MaskValues};
    use warpfeed::source::{CocoFiles, ImageFolder, Source};

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
    fn annotations_are_of_what_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let settings = SynthSettings { megapixels: 0.05, ..SynthSettings::detection(12) };
        write_folder(folder.path(), &settings, |_| {}).unwrap();
        let annotations = folder.path().join("annotations.json");
        let coco = CocoFiles::open(folder.path().join("images"), &annotations).unwrap();
        assert_eq!((coco.len(), coco.classes().len()), (12, 6));
        let (mut all, mut objects, mut kinds, mut hidden) = (Vec::new(), 0, BTreeSet::new(), 0);
        let builder = Pipeline::builder(coco).fields(["boxes", "masks", "labels"]).sanitize(false);
        for batch in builder.build_ragged().unwrap().epoch(0) {
            let batch = batch.unwrap();
            let fields = (0..batch.len()).map(|i| batch.fields(0).unwrap().image(i).unwrap().clone());
            all.extend(fields);
        }
        assert_eq!(all.len(), 12);
        for fields in all {
            let (boxes, Some(Field::Mask(masks))) = (fields.boxes().unwrap(), fields.get("masks")) else { panic!() };
            let Some(Field::Integers(labels)) = fields.get("labels") else { panic!() };
            kinds.extend(labels.iter().copied());
            let planes = masks.planes().iter().map(|plane| match &**plane {
                MaskValues::U8(plane) => plane.clone(),
                _ => panic!(),
            });
            let mut sum = vec![0; masks.size().area_px() as usize];
            for (plane, row) in planes.zip(boxes.to(BoxFormat::Xyxy).rows()) {
                let width = masks.size().width as usize;
                let seen = || {
                    plane.iter().enumerate().filter(|(_, value)| **value == 1).map(|(at, _)| [at % width, at / width])
                };
                let most = |axis: usize| seen().map(|place| place[axis]).max().unwrap() as f32 + 1.0;
                let least = |axis: usize| seen().map(|place| place[axis]).min().unwrap() as f32;
                assert_eq!(*row, [least(0), least(1), most(0), most(1)]);
                sum.iter_mut().zip(&plane).for_each(|(sum, value)| *sum += value);
                objects += 1;
                // Something hides a part of it, or the edge of the image does, or it is a ring or a cross.
                hidden += usize::from(seen().count() * 3 < ((most(0) - least(0)) * (most(1) - least(1))) as usize);
            }
            assert!(sum.iter().all(|sum| *sum <= 1), "a pixel shows one object");
        }
        assert!(objects > 24 && kinds.len() == 6 && hidden > 0, "{objects} {kinds:?} {hidden}");
        let before = fs::read(&annotations).unwrap();
        let more = SynthSettings { count: 13, ..settings.clone() };
        assert_eq!(write_folder(folder.path(), &more, |_| {}).unwrap().kept, 12);
        assert!(fs::read(&annotations).unwrap().len() > before.len());
        let error = write_folder(folder.path(), &SynthSettings { detection: false, ..more }, |_| {}).unwrap_err();
        assert!(error.to_string().contains("with annotations"), "{error}");
        let many = SynthSettings { classes: 7, ..SynthSettings::detection(1) };
        assert!(write_folder(folder.path(), &many, |_| {}).unwrap_err().to_string().contains("classes"));
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
