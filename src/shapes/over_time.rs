//! Sizes of images that change in the course of training.

use crate::error::{Error, Result};
use crate::options::TextValue;
use crate::raster::Size;
use crate::rng::{Domain, SampleRng};
use std::str::FromStr;

/// Largest number of sizes.
const MAX_SIZES: usize = 1_000;

/// The sizes of the images of batches, by epoch and step ([`PipelineBuilder::sizes`](crate::PipelineBuilder::sizes)).
///
/// The written form is `128,192,224/90`, sizes and number of epochs, for [`progressive`](Self::progressive);
/// `drawn=128,192,224/90` for [`drawn`](Self::drawn); `,budget=PIXELS` may follow.
///
/// ```
/// use warpfeed::image::Size;
/// use warpfeed::shapes::SizeSchedule;
///
/// let sizes = SizeSchedule::progressive([128, 192, 224].map(Size::from), 90)?;
/// assert_eq!([0, 29, 30, 89, 1_000].map(|epoch| sizes.size(42, epoch, 0).width), [128, 128, 192, 224, 224]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SizeSchedule {
    sizes: Vec<Size>,
    epochs: u64,
    rule: Rule,
    budget_px: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
enum Rule {
    /// One size for each stretch of epochs.
    Progressive,
    /// A draw for each batch.
    Drawn(Drawn),
}

#[derive(Debug, Clone, PartialEq)]
struct Drawn {
    weights: Option<Vec<f64>>,
    spread: f64,
    random_share: f64,
}

impl SizeSchedule {
    /// Each size for an equal part of the epochs, one after the other: progressive resizing. Where epochs do not divide
    /// evenly, later sizes have the longer parts. After the last epoch the last size stays.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no size or more than 1,000, a size without pixels, and fewer epochs than sizes.
    pub fn progressive(sizes: impl IntoIterator<Item = Size>, epochs: u64) -> Result<Self> {
        let this = Self { sizes: sizes.into_iter().collect(), epochs, rule: Rule::Progressive, budget_px: None };
        this.check_sizes()?;
        if epochs < this.sizes.len() as u64 {
            let expected = format!("{} or more, one for each size", this.sizes.len());
            return Err(Error::parameter("sizes", "epochs", expected, epochs));
        }
        Ok(this)
    }

    /// A size is drawn for each batch, mostly small ones in the first epochs and large ones in the last: timm's
    /// `--train-size-schedule progressive`. The weights are a Gaussian over the sizes' numbers, whose center moves from
    /// the first size to the last over the epochs and whose standard deviation is 0.65. In one draw of ten all sizes
    /// are equally likely.
    ///
    /// # Errors
    /// [`Error::Parameter`] for fewer than 2 sizes or more than 1,000, a size without pixels, and no epochs.
    pub fn drawn(sizes: impl IntoIterator<Item = Size>, epochs: u64) -> Result<Self> {
        let rule = Rule::Drawn(Drawn { weights: None, spread: 0.65, random_share: 0.1 });
        let this = Self { sizes: sizes.into_iter().collect(), epochs, rule, budget_px: None };
        this.check_sizes()?;
        if this.sizes.len() < 2 {
            return Err(Error::parameter("sizes", "sizes", "2 or more", this.sizes.len()));
        }
        if epochs == 0 {
            return Err(Error::parameter("sizes", "epochs", "1 or more", epochs));
        }
        Ok(this)
    }

    /// The standard deviation of the Gaussian, in numbers of sizes, and the share of draws in which all sizes are
    /// equally likely. A standard deviation of 0 leaves the nearest size, or the two that are as near.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a schedule that draws nothing, a negative number, and a share over 1.
    pub fn spread(mut self, spread: f64, random_share: f64) -> Result<Self> {
        if !(spread >= 0.0 && spread.is_finite()) {
            return Err(Error::parameter("sizes", "spread", "0 or more", spread));
        }
        if !(0.0..=1.0).contains(&random_share) {
            return Err(Error::parameter("sizes", "random_share", "0 to 1", random_share));
        }
        let drawn = self.drawn_mut("spread")?;
        (drawn.spread, drawn.random_share) = (spread, random_share);
        Ok(self)
    }

    /// A weight for each size, by which the Gaussian is multiplied. A size of weight 0 never comes.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a schedule that draws nothing, another number of weights than of sizes, weights that are
    /// negative or no numbers, and if all are 0.
    pub fn weights(mut self, weights: impl IntoIterator<Item = f64>) -> Result<Self> {
        let mut weights: Vec<f64> = weights.into_iter().take(MAX_SIZES + 1).collect();
        let sum: f64 = weights.iter().sum();
        let is_valid = weights.iter().all(|weight| *weight >= 0.0) && sum > 0.0 && sum.is_finite();
        if weights.len() != self.sizes.len() || !is_valid {
            let expected = format!("{} numbers of 0 or more, one of them above 0", self.sizes.len());
            return Err(Error::parameter("sizes", "weights", expected, format!("{weights:?}")));
        }
        weights.iter_mut().for_each(|weight| *weight /= sum);
        self.drawn_mut("weights")?.weights = Some(weights);
        Ok(self)
    }

    /// Gives each size a batch size of its own: as many images as have at most this number of pixels together, but one at
    /// least. Default: the pipeline's batch size for all.
    #[must_use]
    pub const fn budget(mut self, pixels: u64) -> Self {
        self.budget_px = Some(pixels);
        self
    }

    /// Number of pixels in a batch, if sizes have batch sizes of their own.
    pub(crate) const fn pixel_budget(&self) -> Option<u64> {
        self.budget_px
    }

    fn drawn_mut(&mut self, parameter: &'static str) -> Result<&mut Drawn> {
        match &mut self.rule {
            Rule::Drawn(drawn) => Ok(drawn),
            Rule::Progressive => {
                Err(Error::parameter("sizes", parameter, "for sizes that are drawn", "sizes by epoch"))
            }
        }
    }

    fn check_sizes(&self) -> Result<()> {
        if self.sizes.is_empty() || self.sizes.len() > MAX_SIZES {
            return Err(Error::parameter("sizes", "sizes", format!("1 to {MAX_SIZES}"), self.sizes.len()));
        }
        match self.sizes.iter().find(|size| size.is_empty()) {
            Some(empty) => Err(Error::parameter("sizes", "sizes", "sizes with pixels", empty)),
            None => Ok(()),
        }
    }

    /// The sizes, in the order in which they were given.
    #[must_use]
    pub fn sizes(&self) -> &[Size] {
        &self.sizes
    }

    /// The probability of each size in an epoch.
    #[must_use]
    pub fn probabilities(&self, epoch: u64) -> Vec<f64> {
        let count = self.sizes.len();
        let Rule::Drawn(Drawn { weights, spread, random_share }) = &self.rule else {
            let stage = self.stage(epoch);
            return (0..count).map(|i| f64::from(u8::from(i == stage))).collect();
        };
        let progress = match self.epochs {
            1 => 1.0,
            epochs => (epoch as f64 / (epochs - 1) as f64).min(1.0),
        };
        let center = progress * (count - 1) as f64;
        let own = |i: usize| weights.as_ref().map_or(1.0 / count as f64, |weights| weights[i]);
        let off = |i: usize| (i as f64 - center).abs();
        let nearest = (0..count).map(off).fold(f64::INFINITY, f64::min);
        let bell = |i: usize| match *spread {
            0.0 => f64::from(u8::from(off(i) == nearest)),
            spread => libm::exp(-0.5 * ((i as f64 - center) / spread) * ((i as f64 - center) / spread)),
        };
        let mut all: Vec<f64> = (0..count).map(|i| bell(i) * own(i)).collect();
        let sum: f64 = all.iter().sum();
        let is_active = |i: &usize| own(*i) > 0.0;
        if sum > 0.0 {
            all.iter_mut().for_each(|weight| *weight /= sum);
        } else if let Some(nearest) = (0..count).filter(is_active).min_by(|a, b| off(*a).total_cmp(&off(*b))) {
            // The sizes near the center have no weight.
            all[nearest] = 1.0;
        }
        let active = (0..count).filter(is_active).count() as f64;
        for (i, weight) in all.iter_mut().enumerate() {
            let random = if is_active(&i) { random_share / active } else { 0.0 };
            *weight = (1.0 - random_share) * *weight + random;
        }
        all
    }

    /// The number of the size of an epoch, without draws.
    fn stage(&self, epoch: u64) -> usize {
        let (count, epoch) = (self.sizes.len() as u128, u128::from(epoch.min(self.epochs - 1)));
        (epoch * count / u128::from(self.epochs)) as usize
    }

    /// The size of the images of a batch, which all ranks make at the same step of an epoch.
    #[must_use]
    pub fn size(&self, seed: u64, epoch: u64, step: u64) -> Size {
        if self.rule == Rule::Progressive {
            return self.sizes[self.stage(epoch)];
        }
        let mut left = SampleRng::new(seed, epoch, Domain::Sizes, step).unit();
        let all = self.probabilities(epoch);
        // Rounding may leave a little after the last.
        let last = all.iter().rposition(|share| *share > 0.0).unwrap_or(0);
        let drawn = all.iter().position(|share| {
            left -= share;
            left < 0.0
        });
        self.sizes[drawn.unwrap_or(last)]
    }

    /// Number of images in a batch of images of this size: as many as have `budget_px` pixels together, rounded down to
    /// a multiple of `divisor` if that is not 0. At least 1.
    ///
    /// ```
    /// use warpfeed::image::Size;
    /// use warpfeed::shapes::SizeSchedule;
    ///
    /// let budget_px = 64 * 224 * 224;
    /// assert_eq!(SizeSchedule::batch_size(Size::from(224), budget_px, 8), 64);
    /// assert_eq!(SizeSchedule::batch_size(Size::from(128), budget_px, 8), 192);
    /// ```
    #[must_use]
    pub fn batch_size(size: Size, budget_px: u64, divisor: u64) -> u64 {
        let fit = budget_px / size.area_px().max(1);
        let multiple = fit - fit % divisor.max(1);
        if multiple == 0 { fit.max(1) } else { multiple }
    }
}

text_value!(SizeSchedule);

/// Reads the written form.
impl FromStr for SizeSchedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |expected: &str| Error::parameter("sizes", "text", expected, format!("{text:?}"));
        let expected = "sizes and epochs such as 128,192,224/90 or drawn=128,192,224/90, and then ,budget=PIXELS";
        let (sizes, rest) = text.split_once('/').ok_or_else(|| wrong(expected))?;
        let (epochs, budget) = rest.split_once(',').map_or((rest, None), |(epochs, budget)| (epochs, Some(budget)));
        let epochs = epochs.parse().map_err(|_| wrong(expected))?;
        let is_drawn = sizes.starts_with("drawn=");
        let sizes = sizes.trim_start_matches("drawn=").split(',').map(Size::read);
        let sizes = sizes.collect::<Result<Vec<Size>, String>>().map_err(|expected| wrong(&expected))?;
        let schedule = if is_drawn { Self::drawn(sizes, epochs) } else { Self::progressive(sizes, epochs) }?;
        let Some(budget) = budget else { return Ok(schedule) };
        let budget = budget.strip_prefix("budget=").and_then(|pixels| pixels.parse().ok());
        budget.map(|pixels| schedule.budget(pixels)).ok_or_else(|| wrong(expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes<const N: usize>() -> [Size; N] {
        std::array::from_fn(|i| Size::from(32 * (i as u32 + 1)))
    }

    #[test]
    fn progressive_sizes_share_the_epochs() {
        let counts = |epochs: u64| {
            let schedule = SizeSchedule::progressive(sizes::<3>(), epochs).unwrap();
            let all: Vec<Size> = (0..epochs).map(|epoch| schedule.size(1, epoch, epoch)).collect();
            assert!(all.is_sorted_by_key(|size| size.width));
            assert_eq!(schedule.size(1, u64::MAX, 7), Size::from(96));
            assert_eq!(schedule.probabilities(0), [1.0, 0.0, 0.0]);
            sizes::<3>().map(|size| all.iter().filter(|own| **own == size).count())
        };
        assert_eq!([counts(3), counts(90), counts(10)], [[1, 1, 1], [30, 30, 30], [4, 3, 3]]);
    }

    /// timm's `ScheduledBatchSampler.choice_weights_for_epoch`.
    #[test]
    fn probabilities_are_those_of_timm() {
        let plain = SizeSchedule::drawn(sizes::<3>(), 10).unwrap();
        let weighted = |epochs, spread, share| {
            let schedule = SizeSchedule::drawn(sizes::<4>(), epochs).unwrap();
            schedule.weights([1.0, 0.0, 2.0, 1.0]).unwrap().spread(spread, share).unwrap()
        };
        let (nearest, narrow) = (weighted(4, 0.0, 0.2), weighted(1, 0.3, 0.0));
        let (most, least) = (0.866_666_666_666_666_7, 0.066_666_666_666_666_67);
        for (schedule, epoch, want) in [
            (&plain, 0, &[0.717_733_774_119_931_1, 0.242_914_529_065_365_43, 0.039_351_696_814_703_41][..]),
            (&plain, 3, &[0.367_903_993_346_595_35, 0.529_705_219_116_273_4, 0.102_390_787_537_131_21]),
            (&plain, 9, &[0.039_351_696_814_703_414, 0.242_914_529_065_365_45, 0.717_733_774_119_931_1]),
            (&plain, 50, &[0.039_351_696_814_703_414, 0.242_914_529_065_365_45, 0.717_733_774_119_931_1]),
            (&nearest, 0, &[most, 0.0, least, least]),
            (&nearest, 1, &[most, 0.0, least, least]),
            (&nearest, 2, &[least, 0.0, most, least]),
            (&nearest, 3, &[least, 0.0, least, most]),
            (&narrow, 0, &[1.913_951_480_812_623_2e-22, 0.0, 0.007_672_517_598_337_86, 0.992_327_482_401_662_1]),
        ] {
            let own = schedule.probabilities(epoch);
            let off = own.iter().zip(want).map(|(own, want)| (own - want).abs()).fold(0.0, f64::max);
            assert!(own.len() == want.len() && off < 1e-15, "{epoch}: {own:?}");
        }
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let schedule = SizeSchedule::drawn(sizes::<3>(), 10).unwrap();
        for epoch in [0, 3, 9] {
            let drawn: Vec<Size> = (0..20_000).map(|step| schedule.size(5, epoch, step)).collect();
            for (size, share) in sizes::<3>().iter().zip(schedule.probabilities(epoch)) {
                let own = drawn.iter().filter(|own| *own == size).count() as f64 / drawn.len() as f64;
                assert!((own - share).abs() < 0.015, "{epoch} {size}: {own} of {share}");
            }
        }
        let of = |seed, epoch| (0..50).map(|step| schedule.size(seed, epoch, step)).collect::<Vec<_>>();
        assert!(of(5, 4) == of(5, 4) && of(5, 4) != of(6, 4) && of(5, 4) != of(5, 5));
        let never = schedule.clone().weights([0.0, 1.0, 1.0]).unwrap();
        assert!((0..1_000).all(|step| never.size(1, 0, step) != sizes::<3>()[0]));
    }

    #[test]
    fn wrong_parameters_are_named() {
        let is = |result: Result<SizeSchedule>, name: &str| {
            let error = result.unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains(name), "{error}");
        };
        is(SizeSchedule::progressive([], 3), "sizes");
        is(SizeSchedule::progressive(sizes::<3>(), 2), "epochs");
        is(SizeSchedule::progressive([Size::new(0, 3)], 2), "sizes");
        is(SizeSchedule::drawn(sizes::<1>(), 2), "sizes");
        is(SizeSchedule::drawn(sizes::<2>(), 0), "epochs");
        let drawn = || SizeSchedule::drawn(sizes::<2>(), 5).unwrap();
        is(drawn().spread(-1.0, 0.1), "spread");
        is(drawn().spread(f64::NAN, 0.1), "spread");
        is(drawn().spread(1.0, 1.1), "random_share");
        for weights in [&[1.0][..], &[0.0, 0.0], &[1.0, -1.0], &[1.0, f64::NAN]] {
            is(drawn().weights(weights.iter().copied()), "weights");
        }
        is(SizeSchedule::progressive(sizes::<2>(), 5).unwrap().spread(1.0, 0.0), "sizes by epoch");
        assert_eq!(SizeSchedule::batch_size(Size::from(1_000), 500, 8), 1);
        assert_eq!(SizeSchedule::batch_size(Size::new(0, 0), 500, 0), 500);
        assert_eq!(SizeSchedule::batch_size(Size::from(10), 550, 8), 5);
    }
}
