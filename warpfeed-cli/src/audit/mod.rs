//! An audit of a data set before training: damaged images, copies, sizes and formats.

// Each image is read once, hashed, and decoded at the smallest scale that its perceptual hash needs: a JPEG of 256
// pixels or more at 1/8, which takes all of its entropy-coded data, so damage is noticed as by a whole decode. Only few
// images are read again: candidates for copies (`look`, `copies`), those that decoded slowly, and those whose pictures
// are shown.
//
// Memory is 40 bytes an image (`row`), 10 more while copies are looked for, and 8 for each pair of candidates and each
// copy. Counts (`tally`) hardly grow with the images. All else about an image goes to `audit.jsonl` (`journal`), from
// which an audit is resumed.

mod content;
mod copies;
mod finding;
mod found;
mod journal;
mod kept;
mod look;
mod record;
mod report;
mod row;
mod tally;

pub use finding::Finding;

use journal::Journal;
use record::{Inspector, Record, version_of};
use row::{FORMATS, Row};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use tally::Tally;
use warpfeed::internal::threads::{MAX_THREADS, spawn_scoped};
use warpfeed::source::Source;
use warpfeed::{Error, Result};
use warpfeed_bench::report::Report;

/// An image is slow if it takes this many times the median time a pixel of its format.
const SLOW_TIMES: f32 = 5.0;
/// An image that takes less is not slow, in microseconds.
const SLOW_US: f32 = 20_000.0;
/// Number of times that a slow image is decoded again; the fastest time counts.
const SLOW_DECODES: usize = 2;
/// Number of images ahead that sources are told of.
const ANNOUNCED: usize = 64;
/// Most images of an audit, because their numbers take 4 bytes.
const MAX_IMAGES: u64 = u32::MAX as u64;

/// Images that are trained or evaluated on together.
#[derive(Clone)]
pub struct Split {
    /// Name of the split in reports.
    pub name: String,
    /// The images.
    pub images: Arc<dyn Source>,
}

impl Split {
    /// The names of the fields that are read.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a field that no sample can have.
    fn fields(&self, wanted: &[String]) -> Result<Vec<String>> {
        let fields = if wanted.is_empty() { self.images.checked_fields() } else { wanted.to_vec() };
        fields.iter().try_for_each(|field| self.images.check_field(field))?;
        Ok(fields)
    }
}

/// Options of an audit.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct AuditOptions {
    /// Number of threads, 1 to 1,024. Default: one for each processor.
    pub threads: usize,
    /// Shorter side below which an image is tiny, in pixels. Default: 32.
    pub tiny_px: u32,
    /// Number of pixels above which an image is huge. Default: 50 million.
    pub huge_px: u64,
    /// Ratio of the longer to the shorter side above which an image is long and narrow. Default: 5.
    pub max_ratio: f64,
    /// Folder for `audit.jsonl`, a record of each image, which is written as images are finished, and for
    /// `found.jsonl`, the images with findings. Default: none.
    pub folder: Option<PathBuf>,
    /// List file ([`ListFile`](warpfeed::source::ListFile)) to write of the images of the first split that have none of
    /// the findings in [`drop`](Self::drop). Default: none.
    pub kept: Option<PathBuf>,
    /// Findings whose images are left out of the list. Default: none.
    pub drop: Vec<Finding>,
    /// Names of the fields that are read with each image, to find those that cannot be used, as boxes of another image.
    /// Default: those that all samples of a source with annotations have, such as `boxes` and `labels`.
    pub fields: Vec<String>,
    /// Whether records that the folder has are used, and only the other images are read. Images must not have changed
    /// since. Default: no.
    pub resume: bool,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            tiny_px: 32,
            huge_px: 50_000_000,
            max_ratio: 5.0,
            folder: None,
            kept: None,
            drop: Vec::new(),
            fields: Vec::new(),
            resume: false,
        }
    }
}

impl AuditOptions {
    fn check(&self) -> Result<()> {
        let refuse = |parameter, expected: &str, got: String| Err(Error::parameter("audit", parameter, expected, got));
        if !(1..=MAX_THREADS).contains(&self.threads) {
            return refuse("threads", &format!("1 to {MAX_THREADS}"), self.threads.to_string());
        }
        if !(self.max_ratio.is_finite() && self.max_ratio >= 1.0) {
            return refuse("max_ratio", "a number of 1 or more", self.max_ratio.to_string());
        }
        if self.resume && self.folder.is_none() {
            return refuse("resume", "set together with a folder", "no folder".to_owned());
        }
        Ok(())
    }
}

/// The result of an audit.
pub struct Audit {
    splits: Vec<Split>,
    /// For each split, the number after that of its last image.
    ends: Vec<u32>,
    options: AuditOptions,
    /// For each split, the names of the fields that are read.
    fields: Vec<Vec<String>>,
    rows: Vec<Row>,
    tally: Tally,
    /// Images that are copies, each with an earlier image that it is a copy of, in the order of the former.
    copies: Vec<(u32, u32)>,
    /// Whether pairs of near duplicates may be missing, because an image has too many.
    is_cut: bool,
}

/// Looks through all images of `splits`: the one to train on first, then those that it is compared with.
///
/// Images that cannot be read or decoded are findings. `progress` receives the number of finished images, those of
/// earlier runs included.
///
/// # Errors
/// [`Error::Parameter`] for options out of range, no split or no image, more than 4 billion images, or a folder that
/// cannot be resumed from, or a list that is empty or names things that are not files; [`Error::Sample`] if the
/// machine is at fault and not an image; [`Error::Io`] if the folder cannot be written; [`Error::Thread`] if the
/// threads cannot be started.
///
/// ```
/// use warpfeed_cli::audit::{AuditOptions, Finding, Split, audit};
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
/// use std::sync::Arc;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(400, 40)), &JpegOptions::default())?;
/// let cut = jpeg[..jpeg.len() - 9].to_vec();
/// let images = Arc::new(EncodedImages::new([(jpeg.clone(), 0), (cut, 0), (jpeg, 1)]));
/// let split = Split { name: "train".to_owned(), images };
/// let found = audit(vec![split], &AuditOptions::default(), &mut |_done| {})?;
/// assert_eq!(found.findings(0, 1), [Finding::Truncated, Finding::Ratio]);
/// assert_eq!(found.findings(0, 2), [Finding::Ratio, Finding::Duplicate, Finding::OtherLabel]);
/// assert_eq!(found.kept(&[Finding::Truncated, Finding::Duplicate]).collect::<Vec<_>>(), [0]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn audit(splits: Vec<Split>, options: &AuditOptions, progress: &mut dyn FnMut(u64)) -> Result<Audit> {
    options.check()?;
    let images = splits.iter().fold(0_u64, |sum, split| sum.saturating_add(split.images.len()));
    if !(1..MAX_IMAGES).contains(&images) {
        let expected = "splits of 1 to 4,294,967,294 images together";
        return Err(Error::parameter("audit", "splits", expected, images));
    }
    let ends = splits.iter().scan(0_u32, |end, split| {
        *end += split.images.len() as u32;
        Some(*end)
    });
    let ends = ends.collect();
    let fields = splits.iter().map(|split| split.fields(&options.fields)).collect::<Result<Vec<_>>>()?;
    let mut audit = Audit {
        splits,
        ends,
        options: options.clone(),
        fields,
        rows: Vec::new(),
        tally: Tally::default(),
        copies: Vec::new(),
        is_cut: false,
    };
    if audit.options.kept.is_some() && !audit.splits[0].images.is_empty() {
        kept::check_files(&audit.splits[0].images.name(0))?;
    }
    warpfeed::internal::reserve(
        &mut audit.rows,
        images as usize,
        "an audit",
        "audit fewer images, or allow more memory",
    )?;
    audit.rows.resize(images as usize, Row::default());
    audit.examine(progress)?;
    audit.find_slow()?;
    audit.find_copies()?;
    if let Some(folder) = &audit.options.folder {
        audit.write_found(folder)?;
    }
    if let Some(path) = &audit.options.kept {
        audit.write_kept(path)?;
    }
    Ok(audit)
}

impl Audit {
    /// The findings about image `index` of split number `split`; none for an image that does not exist.
    #[must_use]
    pub fn findings(&self, split: usize, index: u64) -> Vec<Finding> {
        let start = split.checked_sub(1).map_or(0, |before| self.ends.get(before).copied().unwrap_or(u32::MAX));
        let image = u64::from(start).saturating_add(index);
        let is_in = self.ends.get(split).is_some_and(|&end| image < u64::from(end));
        self.rows.get(image as usize).filter(|_| is_in).map_or(Vec::new(), |row| Finding::of(row.found).collect())
    }

    /// The images of the first split that have none of these findings, in their order.
    pub fn kept(&self, drop: &[Finding]) -> impl Iterator<Item = u64> {
        let bits = Finding::bits(drop);
        let first = &self.rows[..self.ends[0] as usize];
        (0..).zip(first).filter(move |(_, row)| row.found & bits == 0).map(|(index, _)| index)
    }

    /// The report: tables, plots and pictures of what was found. Images that are shown are read again.
    ///
    /// # Errors
    /// [`Error::Thread`] if the threads cannot be started; [`Error::OutOfMemory`].
    pub fn report(&self) -> Result<Report> {
        report::report(self)
    }

    /// The split of an image, and its index there.
    fn at(&self, image: u32) -> (usize, u64) {
        let split = self.ends.partition_point(|&end| end <= image);
        let start = split.checked_sub(1).map_or(0, |before| self.ends[before]);
        (split, u64::from(image - start))
    }

    /// The source of an image, and its index there.
    fn sample(&self, image: u32) -> (&dyn Source, u64) {
        let (split, index) = self.at(image);
        (&*self.splits[split].images, index)
    }

    /// Reads all images that have no record yet.
    fn examine(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let (mut rows, mut tally) = (std::mem::take(&mut self.rows), Tally::default());
        let options = &self.options;
        let mut add = |record: &Record, rows: &mut [Row]| {
            rows[record.image as usize] = Row::new(record, options);
            tally.add(record, self.at(record.image).0);
        };
        let mut journal = match &options.folder {
            Some(folder) => {
                // An image whose file was changed or replaced is looked at again.
                let is_same = |record: &Record| {
                    let (source, index) = self.sample(record.image);
                    record.version == version_of(&source.name(index))
                };
                let mut again = |record: Record| {
                    if is_same(&record) {
                        add(&record, &mut rows)
                    }
                };
                Some(Journal::open(folder, (&self.splits, &options.fields), options.resume, &mut again)?)
            }
            None => None,
        };
        let todo: Vec<u32> = (0..rows.len() as u32).filter(|&image| !rows[image as usize].is_done()).collect();
        let mut done = (rows.len() - todo.len()) as u64;
        progress(done);
        let make = |at: usize, inspector: &mut Inspector, stopped: &AtomicBool| {
            if let Some(&ahead) = todo.get(at + ANNOUNCED) {
                let (source, index) = self.sample(ahead);
                source.prefetch(index);
            }
            let (source, index) = self.sample(todo[at]);
            let inspected = inspector.inspect(source, index, &self.fields[self.at(todo[at]).0], stopped);
            let named = |error| Error::Sample { index, name: source.name(index).into_owned(), source: Box::new(error) };
            inspected.map(|record| Record { image: todo[at], ..record }).map_err(named)
        };
        work(options.threads, todo.len(), make, &mut |_, record: Record| {
            add(&record, &mut rows);
            if let Some(journal) = &mut journal {
                journal.add(&record)?;
            }
            done += 1;
            progress(done);
            Ok(())
        })?;
        if let Some(mut journal) = journal {
            journal.finish()?;
        }
        (self.rows, self.tally) = (rows, tally);
        Ok(())
    }

    /// Times images that decoded slowly again, because a busy machine makes any image slow once.
    fn find_slow(&mut self) -> Result<()> {
        let mut medians = [0.0; FORMATS];
        for (format, median) in medians.iter_mut().enumerate() {
            let is_of = |row: &&Row| row.format() == format && row.decode_us > 0.0 && row.px > 0;
            let mut times: Vec<f32> = self.rows.iter().filter(is_of).map(|row| row.decode_us / row.px as f32).collect();
            let middle = times.len() / 2;
            if middle < times.len() {
                *median = *times.select_nth_unstable_by(middle, f32::total_cmp).1;
            }
        }
        let is_slow = |row: &Row| row.is_slow(medians[row.format()]);
        let slow: Vec<u32> = (0..self.rows.len() as u32).filter(|&image| is_slow(&self.rows[image as usize])).collect();
        let make = |at: usize, inspector: &mut Inspector, _: &AtomicBool| {
            let (source, index) = self.sample(slow[at]);
            passed_over(inspector.fastest_us(source, index, SLOW_DECODES))
        };
        let mut times = Vec::new();
        work(self.options.threads, slow.len(), make, &mut |at, fastest: Option<f32>| {
            times.push((slow[at], fastest));
            Ok(())
        })?;
        for (image, fastest) in times {
            let row = &mut self.rows[image as usize];
            row.decode_us = fastest.unwrap_or(f32::INFINITY).min(row.decode_us);
            if is_slow(row) {
                row.found |= Finding::Slow.bit();
            }
        }
        Ok(())
    }

    /// Finds images of equal bytes, and images that show the same.
    fn find_copies(&mut self) -> Result<()> {
        let mut rows = std::mem::take(&mut self.rows);
        let labels = self.label_numbers();
        let place = |image: u32| {
            let (split, index) = self.at(image);
            let label = self.splits[split].images.label(index);
            let number = |label: u32| match &labels {
                Some(of) => of[split].get(label as usize).copied().unwrap_or(u32::MAX),
                None => label,
            };
            (split, label.map(number))
        };
        let order = copies::by_bytes(&rows);
        let mut found = copies::note_equal_bytes(&mut rows, &order, &place);
        let (candidates, is_cut) = copies::candidates(&rows, &order, &place);
        let make = |at: usize, inspector: &mut Inspector, _: &AtomicBool| {
            let (a, b) = candidates[at];
            passed_over(inspector.same(self.sample(a), self.sample(b)))
        };
        let mut is_copy = vec![false; candidates.len()];
        work(self.options.threads, candidates.len(), make, &mut |at, same: Option<bool>| {
            is_copy[at] = same == Some(true);
            Ok(())
        })?;
        let confirmed: Vec<(u32, u32)> =
            candidates.iter().zip(&is_copy).filter(|(_, is_copy)| **is_copy).map(|(pair, _)| *pair).collect();
        found.extend(copies::note_pairs(&mut rows, &confirmed, &order, &place));
        found.sort_unstable();
        // Of an image that is a copy in both ways, the pair of equal bytes may come second: one is enough.
        found.dedup_by_key(|(image, _)| *image);
        (self.rows, self.copies, self.is_cut) = (rows, found, is_cut);
        Ok(())
    }

    /// For each split, a number for each of its labels, equal for classes of the same name. `None` if a split does not
    /// name its classes: then the labels themselves are compared.
    fn label_numbers(&self) -> Option<Vec<Vec<u32>>> {
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let of_split = |split: &Split| -> Option<Vec<u32>> { (!split.images.classes().is_empty()).then(Vec::new) };
        let mut all = self.splits.iter().map(of_split).collect::<Option<Vec<_>>>()?;
        for (split, own) in self.splits.iter().zip(&mut all) {
            for class in split.images.classes() {
                let next = numbers.len() as u32;
                own.push(*numbers.entry(class).or_insert(next));
            }
        }
        Some(all)
    }
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Audit of {} images", self.rows.len())
    }
}

/// Makes `None` of the error of an image that was read before and is gone or changed now.
fn passed_over<T>(made: Result<T>) -> Result<Option<T>> {
    match made {
        Err(error) if error.is_bad_sample() => Ok(None),
        made => made.map(Some),
    }
}

/// Calls `make` for the numbers from 0 to `count` on several threads, and `take` with the results as they come.
fn work<T: Send>(
    threads: usize,
    count: usize,
    make: impl Fn(usize, &mut Inspector, &AtomicBool) -> Result<T> + Sync,
    take: &mut dyn FnMut(usize, T) -> Result<()>,
) -> Result<()> {
    let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (send, receive) = mpsc::sync_channel(4 * threads);
        // Ends waits in sources, however this ends. The threads themselves end when the receiver is gone.
        let _stop = Stop(&stopped);
        for i in 0..threads.min(count) {
            let (send, mut inspector) = (send.clone(), Inspector::new()?);
            let (next, stopped, make) = (&next, &stopped, &make);
            spawn_scoped(scope, format!("warpfeed-audit-{i}"), move || {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    if at >= count {
                        return;
                    }
                    // The source may be the caller's own code, which can panic.
                    let made = catch_unwind(AssertUnwindSafe(|| make(at, &mut inspector, stopped)));
                    let made = made.unwrap_or_else(|panic| Err(Error::panic(&*panic)));
                    if send.send((at, made)).is_err() {
                        return;
                    }
                }
            })?;
        }
        drop(send);
        receive.into_iter().try_for_each(|(at, made)| take(at, made?))
    })
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
