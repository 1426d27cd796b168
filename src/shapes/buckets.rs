//! Aspect buckets: the sizes that batches may have, and which of them an image gets.

use crate::error::{Error, Result};
use crate::options::TextValue;
use crate::raster::Size;
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Largest number of buckets in use.
const MOST_BUCKETS: usize = u16::MAX as usize - 1;

/// Buckets: the sizes that batches of images of many aspects have ([`PipelineBuilder::buckets`]). Each image goes to the
/// bucket that it loses least in, is resized until it covers the bucket, and is cropped to it
/// ([`BucketCrop`](crate::ops::BucketCrop)).
///
/// The bucket of a size is found with whole numbers: of `w x h` against `bw x bh`, the larger ratio over the smaller one,
/// `max(w bh, h bw) / min(w bh, h bw)`, is least; of equal buckets the one with more pixels, then the earlier one
/// ([`nearest`](Self::nearest) has the rules of other systems). The presets assign as their systems do, ties and rounding
/// included.
///
/// The written form is a preset (`sdxl`, `flux`, `kohya`, `kohya-no-upscale`, `novelai`, `diffusers`, `diffusion-pipe`,
/// `ai-toolkit`, `pixart`), a preset with its resolution (`kohya=768x512`, `ai-toolkit=512`), sizes
/// (`512x512,768x512`), or an area (`area=1024x1024`). After commas may follow `step=64`, `sides=512..2048`,
/// `nearest=ratio`, `min-samples=64`, `merge`, `no-upscale`, `budget=1048576` and `lossy`.
///
/// ```
/// use warpfeed::{image::Size, shapes::Buckets};
///
/// let buckets: Buckets = "1024x1024,1152x896,896x1152".parse()?;
/// assert_eq!(buckets.bucket(Size::new(500, 375)), Some(Size::new(1152, 896)));
/// // It is resized to this size, and then 43 columns are cut off.
/// assert_eq!(buckets.covering(Size::new(500, 375), Size::new(1152, 896)), Size::new(1195, 896));
/// # Ok::<(), warpfeed::Error>(())
/// ```
///
/// [`PipelineBuilder::buckets`]: crate::PipelineBuilder::buckets
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets {
    rule: Rule,
    nearest: Nearest,
    rounding: Rounding,
    /// Whether an image whose size is a bucket stays in it.
    own_size_stays: bool,
    /// Images whose ratio differs by this much from every bucket's go to none.
    most_error: Option<f64>,
    upscale: bool,
    min_samples: u64,
    merge: bool,
    budget_px: Option<u64>,
    lossy: bool,
}

/// Where the sizes come from.
#[derive(Debug, Clone, PartialEq)]
enum Rule {
    /// A list of sizes.
    List(Vec<Size>),
    /// Sizes of at most the area of `of`, with sides that are multiples of `step` within `least` to `most`.
    Area { of: Size, step: u32, least: Option<u32>, most: Option<u32> },
    /// sd-scripts' `bucket_no_upscale`: multiples of `step` that the image, shrunk to the area, is cut down to.
    OwnCut { side: u32, step: u32 },
    /// diffusers' eleven ratios at the image's own area, at most that of `side`.
    OwnRatios { side: u32, step: u32 },
    /// ai-toolkit's multiples of `step` around the image, shrunk to the area.
    OwnSteps { side: u32, step: u32 },
    /// Sizes that stand for ratios.
    Ratios(Vec<(f64, Size)>),
}

/// How an image's ratio is compared with a bucket's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Nearest {
    /// Least difference of the ratios' logarithms, which is what is cropped, in whole numbers. Of equal buckets the one
    /// with more pixels, then the earlier one.
    #[default]
    LogRatio,
    /// Least difference of width over height, the first of equals: sd-scripts, NovelAI, finetrainers.
    Ratio,
    /// Least difference of height over width, the first of equals: OneTrainer.
    InverseRatio,
    /// As `InverseRatio`, with the bucket's ratio rounded to two digits, as PixArt's tables have it.
    RoundedInverseRatio,
    /// As `InverseRatio`, in 32-bit floats, as mosaicml/diffusion does.
    SingleInverseRatio,
    /// Least `|h bw - w bh|`, the last of equals: diffusers.
    CrossProduct,
}

choices! {
    Nearest, "nearest":
    LogRatio = "log", "Least difference of logarithms.";
    Ratio = "ratio", "Least difference of width over height.";
    InverseRatio = "inverse", "Least difference of height over width.";
    RoundedInverseRatio = "inverse-rounded", "The same, with the bucket's ratio rounded to two digits.";
    SingleInverseRatio = "inverse-single", "The same in 32-bit floats.";
    CrossProduct = "cross", "Least |h bw - w bh|, the last of equals.";
}

/// How the side that is cropped is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounding {
    /// The exact quotient, half up.
    HalfUp,
    /// Both sides times one factor in floats, half to even: diffusers.
    HalfEven,
    /// sd-scripts' size before the cut, which leaves images below the area as they are.
    OwnCut { side: u32, step: u32 },
}

/// The ratios of diffusers' buckets, width to height.
const RATIOS: [(u32, u32); 11] =
    [(1, 1), (4, 5), (5, 4), (2, 3), (3, 2), (3, 4), (4, 3), (9, 16), (16, 9), (1, 2), (2, 1)];

/// SDXL's buckets that trainers list most.
const SDXL: [(u32, u32); 9] = [
    (640, 1536),
    (768, 1344),
    (832, 1216),
    (896, 1152),
    (1024, 1024),
    (1152, 896),
    (1216, 832),
    (1344, 768),
    (1536, 640),
];

/// The buckets of diffusers' documentation for Flux Kontext.
pub(super) const FLUX: [(u32, u32); 17] = [
    (1568, 672),
    (1504, 688),
    (1456, 720),
    (1392, 752),
    (1328, 800),
    (1248, 832),
    (1184, 880),
    (1104, 944),
    (1024, 1024),
    (944, 1104),
    (880, 1184),
    (832, 1248),
    (800, 1328),
    (752, 1392),
    (720, 1456),
    (688, 1504),
    (672, 1568),
];

/// PixArt's table for 1024 pixels, up to its square. The rest are these turned, without 1344 high and 704 wide.
const PIXART: [(u32, u32); 21] = [
    (2048, 512),
    (1984, 512),
    (1920, 512),
    (1856, 512),
    (1792, 576),
    (1728, 576),
    (1664, 576),
    (1600, 640),
    (1536, 640),
    (1472, 704),
    (1408, 704),
    (1344, 704),
    (1344, 768),
    (1280, 768),
    (1216, 832),
    (1152, 832),
    (1152, 896),
    (1088, 896),
    (1088, 960),
    (1024, 960),
    (1024, 1024),
];

impl Buckets {
    fn new(rule: Rule) -> Self {
        Self {
            rule,
            nearest: Nearest::default(),
            rounding: Rounding::HalfUp,
            own_size_stays: false,
            most_error: None,
            upscale: true,
            min_samples: 0,
            merge: false,
            budget_px: None,
            lossy: false,
        }
    }

    /// These sizes.
    #[must_use]
    pub fn list(sizes: impl IntoIterator<Item = Size>) -> Self {
        Self::new(Rule::List(sizes.into_iter().collect()))
    }

    fn listed(sizes: &[(u32, u32)]) -> Self {
        Self::list(sizes.iter().map(|&(width, height)| Size::new(width, height)))
    }

    /// For each width that is a multiple of the [`step`](Self::step) within [`sides`](Self::sides), the largest height
    /// for which the size has at most the pixels of `area`; all of them turned as well, and the largest square.
    /// sd-scripts' ladder.
    #[must_use]
    pub fn area(area: impl Into<Size>) -> Self {
        Self::new(Rule::Area { of: area.into(), step: 64, least: None, most: None })
    }

    /// SDXL's nine buckets of about a million pixels, from 640 x 1536 to 1536 x 640.
    #[must_use]
    pub fn sdxl() -> Self {
        Self::listed(&SDXL)
    }

    /// The 17 buckets of diffusers' Flux Kontext, from 1568 x 672 to 672 x 1568, as diffusers assigns them.
    #[must_use]
    pub fn flux() -> Self {
        Self { rounding: Rounding::HalfEven, ..Self::listed(&FLUX).nearest(Nearest::CrossProduct) }
    }

    /// sd-scripts' (kohya's) buckets for a resolution: steps of 64, sides within 256 to 1024, or to twice the longer
    /// side of the resolution if that is more.
    #[must_use]
    pub fn kohya(resolution: impl Into<Size>) -> Self {
        let of = resolution.into();
        let most = of.width.max(of.height).saturating_mul(2).max(1024);
        let rule = Rule::Area { of, step: 64, least: Some(256), most: Some(most) };
        Self { own_size_stays: true, ..Self::new(rule).nearest(Nearest::Ratio) }
    }

    /// sd-scripts' `bucket_no_upscale`: each image has a bucket of its own, in steps of 64. It is shrunk to the area of
    /// `side` squared if it has more pixels, and cut down to multiples of the step. Images with a side below the step
    /// go to no bucket; sd-scripts fails for them.
    #[must_use]
    pub fn kohya_no_upscale(side: u32) -> Self {
        let step = 64;
        Self { rounding: Rounding::OwnCut { side, step }, ..Self::new(Rule::OwnCut { side, step }) }
    }

    /// NovelAI's buckets: at most 768 x 512 pixels in steps of 64, sides within 256 to 1024. Images whose ratio differs
    /// by 4 or more from every bucket's go to no bucket.
    #[must_use]
    pub fn novelai() -> Self {
        Self { most_error: Some(4.0), ..Self::list(novelai_sizes()).nearest(Nearest::Ratio) }
    }

    /// diffusers' automatic buckets: the eleven ratios from 1:2 to 2:1, in steps of 16, of the image's own area, at most
    /// `side` squared.
    #[must_use]
    pub fn diffusers(side: u32) -> Self {
        Self { rounding: Rounding::HalfEven, ..Self::new(Rule::OwnRatios { side, step: 16 }) }
    }

    /// diffusion-pipe's buckets: seven ratios from 1:2 to 2:1, evenly spread in their logarithms, in steps of 16, of the
    /// area of `side` squared.
    #[must_use]
    pub fn diffusion_pipe(side: u32) -> Self {
        let ratio = |i: u32| libm::exp(libm::log(0.5) + (libm::log(2.0) - libm::log(0.5)) * f64::from(i) / 6.0);
        let area = f64::from(side) * f64::from(side);
        let to_step = |side: f64| ((side / 16.0).round_ties_even() * 16.0).max(16.0) as u32;
        let size = |ratio: f64| {
            let width = (area * ratio).sqrt();
            (ratio, Size::new(to_step(width), to_step(area / width)))
        };
        Self::new(Rule::Ratios((0..7).map(ratio).map(size).collect()))
    }

    /// ai-toolkit's buckets: each image has one of its own, with sides in steps of 64 around the image's, and at most
    /// `side` squared pixels.
    #[must_use]
    pub fn ai_toolkit(side: u32) -> Self {
        Self::new(Rule::OwnSteps { side, step: 64 })
    }

    /// PixArt's 40 buckets of about a million pixels.
    #[must_use]
    pub fn pixart() -> Self {
        let turned = PIXART.iter().rev().skip(1).filter(|size| **size != (1344, 704));
        let sizes: Vec<_> = PIXART.iter().copied().chain(turned.map(|&(width, height)| (height, width))).collect();
        Self::listed(&sizes).nearest(Nearest::RoundedInverseRatio)
    }

    /// The number that the sides of buckets are multiples of, for those that are made. Default: 64, and 16 for
    /// diffusers' and diffusion-pipe's.
    #[must_use]
    pub fn step(mut self, step: u32) -> Self {
        if let Rule::Area { step: own, .. }
        | Rule::OwnCut { step: own, .. }
        | Rule::OwnRatios { step: own, .. }
        | Rule::OwnSteps { step: own, .. } = &mut self.rule
        {
            *own = step;
        }
        if let Rounding::OwnCut { step: own, .. } = &mut self.rounding {
            *own = step;
        }
        self
    }

    /// The least and the largest side of buckets that are made from an area. Default: half the longer side of the area
    /// to twice that side.
    #[must_use]
    pub fn sides(mut self, sides: RangeInclusive<u32>) -> Self {
        if let Rule::Area { least, most, .. } = &mut self.rule {
            (*least, *most) = (Some(*sides.start()), Some(*sides.end()));
        }
        self
    }

    /// How an image's ratio is compared with the buckets'. Default: [`Nearest::LogRatio`].
    #[must_use]
    pub fn nearest(mut self, nearest: Nearest) -> Self {
        self.nearest = nearest;
        self
    }

    /// Whether images may be enlarged. If not, an image goes to the nearest bucket that is not larger than the image in
    /// width or height, and to none if all are. Default: true.
    #[must_use]
    pub fn upscale(mut self, upscale: bool) -> Self {
        self.upscale = upscale;
        self
    }

    /// The least number of samples of a bucket. While a bucket has fewer, the bucket with the fewest is removed, and its
    /// images go to the nearest of the others. It holds for all epochs. Default: 0.
    #[must_use]
    pub fn min_samples(mut self, samples: u64) -> Self {
        self.min_samples = samples;
        self
    }

    /// [`min_samples`](Self::min_samples) of as many samples as a batch of all ranks has, so that no bucket is without a
    /// full batch. Default: false.
    #[must_use]
    pub fn merge(mut self, merge: bool) -> Self {
        self.merge = merge;
        self
    }

    /// Gives each bucket a batch size of its own: as many images as have at most this number of pixels together, but
    /// one at least. Default: the pipeline's batch size for all.
    #[must_use]
    pub fn budget(mut self, pixels: u64) -> Self {
        self.budget_px = Some(pixels);
        self
    }

    /// Accepts that samples never come: images that go to no bucket, or whose headers cannot be read, and the samples of
    /// buckets that have no full batch where last batches are dropped. Otherwise `build` refuses them, with their names.
    /// Default: false.
    #[must_use]
    pub fn lossy(mut self, lossy: bool) -> Self {
        self.lossy = lossy;
        self
    }

    /// The bucket of an image of this size, turned upright; `None` if it goes to none. Removed buckets
    /// ([`min_samples`](Self::min_samples)) depend on the other images and are not considered.
    #[must_use]
    pub fn bucket(&self, size: Size) -> Option<Size> {
        let ladder = self.ladder();
        self.find(size, ladder.as_deref())
    }

    /// The size to which an image of this size is resized before it is cropped to `bucket`: the smallest of the same
    /// ratio, up to rounding, that covers the bucket. The other side than the bucket's is rounded half up, and by the
    /// presets as their systems do.
    #[must_use]
    pub fn covering(&self, size: Size, bucket: Size) -> Size {
        let covering = match self.rounding {
            Rounding::OwnCut { side, step } => match own_cut(size, side, step) {
                Some((own, before)) if own == bucket => before,
                // The image was moved from a bucket with too few samples.
                _ => cover(size, bucket),
            },
            Rounding::HalfEven => {
                let [w, h, bw, bh] =
                    [size.width.max(1), size.height.max(1), bucket.width, bucket.height].map(f64::from);
                let scale = (bh / h).max(bw / w);
                Size::new((w * scale).round_ties_even() as u32, (h * scale).round_ties_even() as u32)
            }
            Rounding::HalfUp => cover(size, bucket),
        };
        Size::new(covering.width.max(bucket.width), covering.height.max(bucket.height))
    }

    /// The number of images in a batch of a bucket. `batch_size`: that of the pipeline.
    pub(crate) fn batch_size(&self, bucket: Size, batch_size: usize) -> usize {
        match self.budget_px {
            Some(budget) => (budget / bucket.area_px().max(1)).max(1).try_into().unwrap_or(usize::MAX),
            None => batch_size,
        }
    }

    /// Whether samples may be lost.
    pub(crate) fn is_lossy(&self) -> bool {
        self.lossy
    }

    /// Checks the sizes.
    ///
    /// # Errors
    /// [`Error::Parameter`] without buckets, or for sides of 0 or above 65,535.
    pub(crate) fn validate(&self) -> Result<()> {
        let refused =
            |parameter, expected: &str, got: String| Err(Error::parameter("buckets", parameter, expected, got));
        if let Rule::Area { step: 0, .. }
        | Rule::OwnCut { step: 0, .. }
        | Rule::OwnRatios { step: 0, .. }
        | Rule::OwnSteps { step: 0, .. } = self.rule
        {
            return refused("step", "1 or more", "0".to_owned());
        }
        if let Rule::OwnCut { side, .. } | Rule::OwnRatios { side, .. } | Rule::OwnSteps { side, .. } = self.rule
            && !(1..=MAX_SIDE).contains(&side)
        {
            return refused("resolution", "1 to 65535", side.to_string());
        }
        if let Rule::Area { of, .. } = self.rule
            && !(1..=MAX_SIDE).contains(&of.width.max(of.height))
        {
            return refused("area", "of at most 65535 x 65535 pixels", of.to_string());
        }
        let Some(ladder) = self.ladder() else { return Ok(()) };
        if ladder.is_empty() || ladder.len() > MOST_BUCKETS {
            return refused("sizes", "1 to 65534", format!("{}", ladder.len()));
        }
        let is_wrong = |size: &&Size| !(1..=MAX_SIDE).contains(&size.width) || !(1..=MAX_SIDE).contains(&size.height);
        if let Some(wrong) = ladder.iter().find(is_wrong) {
            return refused("sizes", "with sides of 1 to 65535 pixels", wrong.to_string());
        }
        if let Some((i, twice)) = ladder.iter().enumerate().find(|(i, size)| ladder[..*i].contains(size)) {
            return refused("sizes", "each size once", format!("{twice} again, as number {i}"));
        }
        Ok(())
    }

    /// All buckets, in order; `None` if images have buckets of their own.
    fn ladder(&self) -> Option<Vec<Size>> {
        match &self.rule {
            Rule::List(sizes) => Some(sizes.clone()),
            Rule::Ratios(sizes) => Some(sizes.iter().map(|(_, size)| *size).collect()),
            &Rule::Area { of, step, least, most } => Some(area_sizes(of, step, least, most)),
            Rule::OwnCut { .. } | Rule::OwnRatios { .. } | Rule::OwnSteps { .. } => None,
        }
    }

    /// The bucket of an image, of `ladder` or of its own.
    fn find(&self, size: Size, ladder: Option<&[Size]>) -> Option<Size> {
        if size.width == 0 || size.height == 0 {
            return None;
        }
        match (&self.rule, ladder) {
            (&Rule::OwnCut { side, step }, None) => own_cut(size, side, step).map(|(bucket, _)| bucket),
            (&Rule::OwnRatios { side, step }, None) => {
                let [w, h] = [size.width, size.height].map(f64::from);
                let own = ((h * w).sqrt().round_ties_even() as u32).min(side);
                nearest(size, &own_ratios(own, step), Nearest::CrossProduct).filter(|bucket| self.fits(size, *bucket))
            }
            (&Rule::OwnSteps { side, step }, None) => {
                Some(own_steps(size, side, step)).filter(|bucket| self.fits(size, *bucket))
            }
            (Rule::Ratios(sizes), Some(ladder)) if sizes.len() == ladder.len() && self.upscale => {
                let of = libm::log(f64::from(size.width) / f64::from(size.height));
                let error = |ratio: f64| (of - libm::log(ratio)).abs();
                let best = sizes.iter().min_by(|(a, _), (b, _)| error(*a).total_cmp(&error(*b)));
                best.map(|(_, size)| *size)
            }
            (_, ladder) => {
                let ladder = ladder.unwrap_or_default();
                if self.own_size_stays && ladder.contains(&size) {
                    return Some(size);
                }
                let found = if self.upscale {
                    nearest(size, ladder, self.nearest)
                } else {
                    let fitting: Vec<Size> = ladder.iter().copied().filter(|bucket| self.fits(size, *bucket)).collect();
                    nearest(size, &fitting, self.nearest)
                };
                let ratio = |size: Size| f64::from(size.width) / f64::from(size.height);
                let is_near =
                    |bucket: &Size| self.most_error.is_none_or(|most| (ratio(*bucket) - ratio(size)).abs() < most);
                found.filter(is_near)
            }
        }
    }

    /// Whether an image may go to a bucket without being enlarged against the caller's wish.
    fn fits(&self, size: Size, bucket: Size) -> bool {
        self.upscale || bucket.width <= size.width && bucket.height <= size.height
    }

    /// The buckets of all samples. `sizes`: those of the samples, `None` for one that cannot be read. `unit`: number of
    /// samples in a batch of all ranks, if it has `batch_size` images on each.
    ///
    /// # Errors
    /// [`Error::Parameter`] for too many buckets.
    pub(crate) fn assign(
        &self,
        sizes: impl Iterator<Item = Option<Size>>,
        unit_of: impl Fn(Size) -> u64,
    ) -> Result<Assignment> {
        // Sets have few sizes, and a size has one bucket.
        let (mut numbers, mut all, mut counts) = (HashMap::<Size, u32>::new(), Vec::<Size>::new(), Vec::<u64>::new());
        let mut of_size = Vec::new();
        for size in sizes {
            let Some(size) = size else {
                of_size.push(u32::MAX);
                continue;
            };
            let number = *numbers.entry(size).or_insert_with(|| {
                all.push(size);
                counts.push(0);
                all.len() as u32 - 1
            });
            counts[number as usize] += 1;
            of_size.push(number);
        }
        let ladder = self.ladder();
        let mut found: Vec<Option<Size>> = all.iter().map(|size| self.find(*size, ladder.as_deref())).collect();
        let mut buckets = ladder.unwrap_or_else(|| {
            let mut own: Vec<Size> = found.iter().flatten().copied().collect();
            own.sort_unstable_by_key(|size| (size.width, size.height));
            own.dedup();
            own
        });
        if buckets.len() > MOST_BUCKETS {
            let expected = format!("such that images have at most {MOST_BUCKETS}");
            return Err(Error::parameter("buckets", "sizes", expected, buckets.len()));
        }
        let removed = self.merge_small(&mut buckets, &all, &counts, &mut found, &unit_of);
        let number = |bucket: &Size| buckets.iter().position(|other| other == bucket).map_or(NONE, |at| at as u16);
        let of: Vec<u16> = found.iter().map(|bucket| bucket.as_ref().map_or(NONE, number)).collect();
        let fate = |number: u32| if number == u32::MAX { UNREADABLE } else { of[number as usize] };
        let of: Vec<u16> = of_size.into_iter().map(fate).collect();
        Ok(Assignment { buckets, removed, of })
    }

    /// Removes buckets with too few samples. Returns them.
    fn merge_small(
        &self,
        buckets: &mut Vec<Size>,
        sizes: &[Size],
        counts: &[u64],
        found: &mut [Option<Size>],
        unit_of: &impl Fn(Size) -> u64,
    ) -> Vec<Size> {
        let mut removed = Vec::new();
        if !self.merge && self.min_samples == 0 {
            return removed;
        }
        loop {
            let mut samples: HashMap<Size, u64> = HashMap::new();
            for (bucket, count) in found.iter().zip(counts) {
                bucket.iter().for_each(|bucket| *samples.entry(*bucket).or_default() += count);
            }
            let count = |bucket: &Size| samples.get(bucket).copied().unwrap_or(0);
            let least =
                |bucket: &Size| if self.merge { unit_of(*bucket).max(self.min_samples) } else { self.min_samples };
            let small = (0..buckets.len()).filter(|&at| count(&buckets[at]) < least(&buckets[at]));
            // Of equals the last.
            let Some(at) = small.min_by_key(|&at| (count(&buckets[at]), usize::MAX - at)) else { return removed };
            if buckets.len() == 1 {
                return removed;
            }
            let small = buckets.remove(at);
            if count(&small) > 0 {
                removed.push(small);
            }
            for (size, bucket) in sizes.iter().zip(&mut *found) {
                if *bucket == Some(small) {
                    *bucket = self.find(*size, Some(buckets));
                }
            }
        }
    }
}

/// Largest side of an image.
const MAX_SIDE: u32 = 65_535;

/// Stands for an image that goes to no bucket.
const NONE: u16 = u16::MAX;
/// Stands for an image whose size is not known.
const UNREADABLE: u16 = u16::MAX - 1;

/// What becomes of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is in the bucket of this number.
    Bucket(u16),
    /// It goes to no bucket.
    Unfit,
    /// Its header cannot be read.
    Unreadable,
}

/// The buckets of all samples of a source.
#[derive(Debug, Clone)]
pub(crate) struct Assignment {
    pub(crate) buckets: Vec<Size>,
    /// The buckets that had too few samples.
    pub(crate) removed: Vec<Size>,
    of: Vec<u16>,
}

impl Assignment {
    /// What becomes of a sample.
    pub(crate) fn fate(&self, index: u64) -> Fate {
        match usize::try_from(index).ok().and_then(|index| self.of.get(index)) {
            Some(&UNREADABLE) => Fate::Unreadable,
            None | Some(&NONE) => Fate::Unfit,
            Some(&number) => Fate::Bucket(number),
        }
    }

    /// The bucket of a sample; `None` if it has none.
    pub(crate) fn bucket(&self, index: u64) -> Option<Size> {
        match self.fate(index) {
            Fate::Bucket(number) => Some(self.buckets[usize::from(number)]),
            Fate::Unfit | Fate::Unreadable => None,
        }
    }

    /// The bytes that decide about an epoch's order.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = u8> {
        let sides = self.buckets.iter().flat_map(|size| [size.width, size.height]).flat_map(u32::to_le_bytes);
        sides.chain(self.of.iter().flat_map(|number| number.to_le_bytes()))
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }
}

/// A bucket, and what an epoch has of it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct BucketSummary {
    /// Columns of its images.
    pub width: u32,
    /// Rows of its images.
    pub height: u32,
    /// Samples of the source that go to it.
    pub samples: u64,
    /// Images in a batch of one rank.
    pub batch_size: usize,
    /// Batches of each rank in an epoch.
    pub steps: u64,
    /// Samples that an epoch leaves out, others in each epoch if it is shuffled.
    pub dropped: u64,
    /// Samples that an epoch delivers once more than the others, as padding.
    pub repeated: u64,
    /// Mean share of an image that is cropped, 0 to 1.
    pub cropped: f64,
    /// Samples that are enlarged.
    pub enlarged: u64,
}

/// A batch of a rank ([`Pipeline::steps`](crate::Pipeline::steps)).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct BucketStep {
    /// Columns of its images.
    pub width: u32,
    /// Rows of its images.
    pub height: u32,
    /// The samples, by their indices in the source.
    pub indices: Vec<u64>,
}

impl BucketStep {
    pub(crate) fn new(size: Size, indices: Vec<u64>) -> Self {
        Self { width: size.width, height: size.height, indices }
    }
}

/// The nearest bucket.
fn nearest(size: Size, buckets: &[Size], how: Nearest) -> Option<Size> {
    let (w, h) = (u128::from(size.width), u128::from(size.height));
    let [fw, fh] = [size.width, size.height].map(f64::from);
    let ratio = |bucket: &Size| f64::from(bucket.width) / f64::from(bucket.height);
    let inverse = |bucket: &Size| f64::from(bucket.height) / f64::from(bucket.width);
    let first_of = |error: &dyn Fn(&Size) -> f64| buckets.iter().min_by(|a, b| error(a).total_cmp(&error(b))).copied();
    match how {
        Nearest::LogRatio => {
            let mut best: Option<Size> = None;
            for &bucket in buckets {
                let distance = |bucket: Size| {
                    let (a, b) = (w * u128::from(bucket.height), h * u128::from(bucket.width));
                    (a.max(b), a.min(b))
                };
                let is_better = best.is_none_or(|best| {
                    let ((a, b), (c, d)) = (distance(bucket), distance(best));
                    let (own, other) = (a * d, c * b);
                    own < other || own == other && bucket.area_px() > best.area_px()
                });
                if is_better {
                    best = Some(bucket);
                }
            }
            best
        }
        Nearest::Ratio => first_of(&|bucket| (ratio(bucket) - fw / fh).abs()),
        Nearest::InverseRatio => first_of(&|bucket| (inverse(bucket) - fh / fw).abs()),
        Nearest::RoundedInverseRatio => first_of(&|bucket| {
            let rounded = format!("{:.2}", inverse(bucket)).parse().unwrap_or(f64::NAN);
            (rounded - fh / fw).abs()
        }),
        Nearest::SingleInverseRatio => first_of(&|bucket| {
            let own = bucket.height as f32 / bucket.width as f32;
            f64::from((own - (fh / fw) as f32).abs())
        }),
        Nearest::CrossProduct => buckets
            .iter()
            .rev()
            .copied()
            .min_by_key(|bucket| (h * u128::from(bucket.width)).abs_diff(w * u128::from(bucket.height))),
    }
}

/// The smallest size of an image's ratio that covers a bucket. The side that is not the bucket's is rounded half up.
pub(crate) fn cover(size: Size, bucket: Size) -> Size {
    let (w, h) = (u128::from(size.width.max(1)), u128::from(size.height.max(1)));
    let (bw, bh) = (u128::from(bucket.width), u128::from(bucket.height));
    let side =
        |dividend: u128, divisor: u128| u32::try_from((2 * dividend + divisor) / (2 * divisor)).unwrap_or(u32::MAX);
    if w * bh >= h * bw { Size::new(side(w * bh, h), bucket.height) } else { Size::new(bucket.width, side(h * bw, w)) }
}

/// sd-scripts' ladder, sorted by width, then height.
fn area_sizes(of: Size, step: u32, least: Option<u32>, most: Option<u32>) -> Vec<Size> {
    let longer = of.width.max(of.height);
    let (step, area) = (u64::from(step.max(1)), of.area_px());
    let least = u64::from(least.unwrap_or_else(|| (longer / 2).max(1)));
    let most = u64::from(most.unwrap_or_else(|| longer.saturating_mul(2))).min(MAX_SIDE.into());
    let mut sizes = BTreeSet::new();
    let side = (area.isqrt() / step * step) as u32;
    if side > 0 {
        sizes.insert((side, side));
    }
    let mut width = least;
    while width > 0 && width <= most {
        let height = most.min(area / width / step * step);
        if height >= least && height > 0 {
            sizes.insert((width as u32, height as u32));
            sizes.insert((height as u32, width as u32));
        }
        width += step;
    }
    sizes.into_iter().map(|(width, height)| Size::new(width, height)).collect()
}

/// NovelAI's sizes, in the order of its list.
fn novelai_sizes() -> Vec<Size> {
    const AREA: u32 = 768 * 512;
    let mut sizes = BTreeSet::from([(512, 512)]);
    for long in (256..=1024).step_by(64) {
        // The largest multiple of the step that keeps the area and the longest side.
        let short = (AREA / long / 64 * 64).min(1024);
        if short >= 256 {
            sizes.extend([(long, short), (short, long)]);
        }
    }
    let mut sizes: Vec<Size> = sizes.into_iter().map(|(width, height)| Size::new(width, height)).collect();
    sizes.sort_by_key(|size| i64::from(size.width) * 4096 - i64::from(size.height));
    sizes
}

/// sd-scripts' bucket without enlarging, and the size before the cut; `None` for a side below the step.
fn own_cut(size: Size, side: u32, step: u32) -> Option<(Size, Size)> {
    if size.width.min(size.height) < step {
        return None;
    }
    let area = f64::from(side) * f64::from(side);
    let [w, h] = [size.width, size.height].map(f64::from);
    let before = if w * h > area {
        let ratio = w / h;
        let own_width = (area * ratio).sqrt();
        let own_height = area / own_width;
        let half_up = |side: f64| (side + 0.5) as u32;
        let down = |side: f64| half_up(side) - half_up(side) % step;
        let (by_width, by_height) = (down(own_width), down(own_height));
        let (other_height, other_width) = (down(f64::from(by_width) / ratio), down(f64::from(by_height) * ratio));
        // Where a side would be nothing, the other way is taken, for which sd-scripts fails.
        let error = |width: u32, height: u32| {
            if width == 0 || height == 0 { f64::INFINITY } else { (f64::from(width) / f64::from(height) - ratio).abs() }
        };
        if error(by_width, other_height) < error(other_width, by_height) {
            Size::new(by_width, half_up(f64::from(by_width) / ratio))
        } else {
            Size::new(half_up(f64::from(by_height) * ratio), by_height)
        }
    } else {
        size
    };
    let bucket = Size::new(before.width - before.width % step, before.height - before.height % step);
    (bucket.width > 0 && bucket.height > 0).then_some((bucket, before))
}

/// diffusers' buckets of an area, each once.
fn own_ratios(side: u32, step: u32) -> Vec<Size> {
    let (area, step_f) = (f64::from(side) * f64::from(side), f64::from(step));
    let mut sizes = Vec::new();
    for (a, b) in RATIOS {
        let ratio = f64::from(a) / f64::from(b);
        let height = (area / ratio).sqrt();
        let to_step = |side: f64| ((side / step_f).round_ties_even() * step_f).max(step_f) as u32;
        let size = Size::new(to_step(height * ratio), to_step(height));
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    sizes
}

/// ai-toolkit's bucket.
fn own_steps(size: Size, side: u32, step: u32) -> Size {
    let (step_f, area) = (f64::from(step), f64::from(side) * f64::from(side));
    let [w, h] = [size.width, size.height].map(f64::from);
    let target = (w * h).min(area);
    let scale = (target / (w * h)).sqrt();
    let (width, height) = (w * scale / step_f, h * scale / step_f);
    let mut best: Option<(f64, f64)> = None;
    let error = |(width, height): (f64, f64)| (width * height - target).abs();
    for width in [width.floor(), width.ceil()] {
        for height in [height.floor(), height.ceil()] {
            let sides = (width * step_f, height * step_f);
            let fits = sides.0 > 0.0 && sides.1 > 0.0 && sides.0 * sides.1 <= area;
            if fits && best.is_none_or(|best| error(sides) < error(best)) {
                best = Some(sides);
            }
        }
    }
    let (width, height) = best.unwrap_or(((width.floor() * step_f).max(step_f), (height.floor() * step_f).max(step_f)));
    Size::new(width as u32, height as u32)
}

text_value!(Buckets);

/// Reads the written form.
impl FromStr for Buckets {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |expected: &str, got: &str| Error::parameter("buckets", "text", expected, format!("{got:?}"));
        let mut words = text.split([',', ';']).map(str::trim).filter(|word| !word.is_empty()).peekable();
        let mut sizes = Vec::new();
        let is_size = |word: &str| word.split_once('x').is_some_and(|(w, h)| is_digits(w) && is_digits(h));
        while let Some(word) = words.next_if(|word| is_size(word)) {
            sizes.push(Size::read(word).map_err(|expected| wrong(&expected, word))?);
        }
        let mut buckets =
            if sizes.is_empty() { Self::named(words.next().unwrap_or_default())? } else { Self::list(sizes) };
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse::<u64>().map_err(|_| wrong(&format!("a whole number for {name}"), word));
            buckets = match name {
                "step" => {
                    if !matches!(buckets.rule, Rule::List(_) | Rule::Ratios(_)) {
                        buckets.step(u32::try_from(number()?).map_err(|_| wrong("a step of pixels", word))?)
                    } else {
                        return Err(wrong("a step for buckets that are made (area=WxH)", word));
                    }
                }
                "sides" if matches!(buckets.rule, Rule::Area { .. }) => {
                    let sides = value
                        .split_once("..")
                        .and_then(|(a, b)| Some((a.parse().ok()?, b.trim_start_matches('=').parse().ok()?)));
                    let (least, most) = sides.ok_or_else(|| wrong("sides=LEAST..MOST", word))?;
                    buckets.sides(least..=most)
                }
                "nearest" => buckets.nearest(Nearest::read(value).map_err(|expected| wrong(&expected, word))?),
                "min-samples" => buckets.min_samples(number()?),
                "budget" => buckets.budget(number()?),
                "merge" if value.is_empty() => buckets.merge(true),
                "no-upscale" if value.is_empty() => buckets.upscale(false),
                "lossy" if value.is_empty() => buckets.lossy(true),
                _ => {
                    let expected = "step=N, sides=A..B (with area=WxH), nearest=RULE, min-samples=N, budget=PIXELS, merge, \
                                    no-upscale or lossy after the buckets";
                    return Err(wrong(expected, word));
                }
            };
        }
        buckets.validate()?;
        Ok(buckets)
    }
}

impl Buckets {
    /// The buckets of a name, which a resolution may follow.
    fn named(word: &str) -> Result<Self> {
        let wrong = |expected: &str| Error::parameter("buckets", "text", expected, format!("{word:?}"));
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let size = || value.map(|value| Size::read(value).map_err(|expected| wrong(&expected))).transpose();
        let side = |usual: u32| match size()? {
            None => Ok(usual),
            Some(Size { width, height }) if width == height => Ok(width),
            Some(_) => Err(wrong("one side, the root of the area")),
        };
        let alone = |buckets: Self| if value.is_none() { Ok(buckets) } else { Err(wrong("no value for this name")) };
        match name {
            "sdxl" => alone(Self::sdxl()),
            "flux" => alone(Self::flux()),
            "novelai" => alone(Self::novelai()),
            "pixart" => alone(Self::pixart()),
            "kohya" => Ok(Self::kohya(size()?.unwrap_or(Size::new(512, 512)))),
            "kohya-no-upscale" => Ok(Self::kohya_no_upscale(side(512)?)),
            "diffusers" => Ok(Self::diffusers(side(1024)?)),
            "diffusion-pipe" => Ok(Self::diffusion_pipe(side(512)?)),
            "ai-toolkit" => Ok(Self::ai_toolkit(side(1024)?)),
            "area" => Ok(Self::area(size()?.ok_or_else(|| wrong("area=WxH"))?)),
            _ => Err(wrong(
                "sizes such as 512x512,768x512, area=WxH, or sdxl, flux, kohya, kohya-no-upscale, novelai, diffusers, \
                 diffusion-pipe, ai-toolkit or pixart",
            )),
        }
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
