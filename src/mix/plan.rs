//! The plan of a mixed batch, which is drawn on the host and executed by the back end. An element becomes
//! `own * share + partner * rest`, with `share` = lambda and `rest` = 1 - lambda, both rounded from f64 to f32. Each
//! product and the sum are rounded to f32, as in torchvision, and the result to nearest even.

use super::{Mix, MixMode, Mixed, Style};
use crate::raster::{Rect, Size};
use crate::rng::{Domain, SampleRng};

/// The change of one image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mixing {
    Nothing,
    /// The whole image is blended.
    Blend,
    /// This rectangle of the partner is pasted.
    Paste(Rect),
}

/// One image's part of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MixedImage {
    /// Lambda: share of the image that is its own.
    pub(crate) lambda: f64,
    pub(crate) mixing: Mixing,
}

impl MixedImage {
    const WHOLE: Self = Self { lambda: 1.0, mixing: Mixing::Nothing };

    /// The weights of the image's elements and of its partner's elements.
    pub(crate) fn weights(self) -> [f32; 2] {
        [self.lambda as f32, (1.0 - self.lambda) as f32]
    }
}

/// The plan of a mixed batch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MixPlan {
    /// Whether partners are the batch in reverse order. Otherwise an image's partner is the image before it.
    pub(crate) flip: bool,
    pub(crate) images: Vec<MixedImage>,
}

impl MixPlan {
    /// The place of an image's partner in the batch.
    fn partner(&self, i: usize) -> usize {
        let images = self.images.len();
        if self.flip { images - 1 - i } else { (i + images - 1) % images }
    }

    /// Whether any image changes.
    pub(crate) fn changes(&self) -> bool {
        self.images.iter().any(|image| image.mixing != Mixing::Nothing)
    }

    /// The record for the batch's consumer.
    pub(crate) fn mixed(&self, images: usize, labels: Option<&[u32]>) -> Mixed {
        let partners: Vec<usize> = (0..images).map(|i| self.partner(i)).collect();
        Mixed {
            labels: labels.map(|labels| partners.iter().map(|&partner| labels[partner]).collect()),
            shares: self.images.iter().map(|image| image.lambda as f32).collect(),
            partners,
        }
    }

    /// Mixes the rows of targets. All images have equally many numbers.
    pub(crate) fn mix_rows(&self, rows: &mut [f32]) {
        let (own, len) = (rows.to_vec(), rows.len() / self.images.len().max(1));
        for (i, image) in self.images.iter().enumerate().filter(|(_, image)| image.lambda != 1.0) {
            let [share, rest] = image.weights();
            let partner = &own[self.partner(i) * len..][..len];
            for (row, partner) in rows[i * len..][..len].iter_mut().zip(partner) {
                *row = *row * share + *partner * rest;
            }
        }
    }
}

impl Mix {
    /// Draws the plan of a batch of `images` images of `size`, from the seed, the epoch and the batch's number among
    /// the batches of all ranks.
    pub(crate) fn plan(&self, (seed, epoch, number): (u64, u64, u64), images: usize, size: Size) -> MixPlan {
        let mut draw = SampleRng::new(seed, epoch, Domain::Mix, number);
        let flip = self.style == Style::Timm;
        let images = match self.mode {
            MixMode::Batch => vec![self.draw(&mut draw, size); images],
            MixMode::Element => (0..images).map(|i| self.draw(draw.at(i as u32), size)).collect(),
            MixMode::Pair => {
                let mut all = vec![MixedImage::WHOLE; images];
                for i in 0..images / 2 {
                    all[i] = self.draw(draw.at(i as u32), size);
                    all[images - 1 - i] = all[i];
                }
                all
            }
        };
        MixPlan { flip, images }
    }

    fn draw(&self, draw: &mut SampleRng, size: Size) -> MixedImage {
        if !draw.chance(self.probability) {
            return MixedImage::WHOLE;
        }
        let cutmix = match (self.mixup_alpha > 0.0, self.cutmix_alpha > 0.0) {
            (true, true) => draw.chance(self.switch_probability),
            (_, cutmix) => cutmix,
        };
        // torch's shares are f32, and so are timm's, except for whole batches.
        let lambda = f64::from(beta(draw, if cutmix { self.cutmix_alpha } else { self.mixup_alpha }) as f32);
        if lambda == 1.0 {
            return MixedImage::WHOLE;
        }
        if !cutmix {
            return MixedImage { lambda, mixing: Mixing::Blend };
        }
        let (rect, own) = match (self.style, self.minmax) {
            (_, Some((least, largest))) => {
                let mut side = |whole: u32| {
                    let (low, high) = ((f64::from(whole) * least) as u64, (f64::from(whole) * largest) as u64);
                    (low + draw.below(high.saturating_sub(low))).min(whole.into()) as u32
                };
                let (height, width) = (side(size.height), side(size.width));
                let mut start = |whole: u32, cut: u32| draw.below(u64::from(whole - cut) + 1) as u32;
                let (y, x) = (start(size.height, height), start(size.width, width));
                let rect = Rect { x, y, width, height };
                (rect, own_share(rect, size))
            }
            (Style::Torchvision, None) => {
                let (x, y) = (draw.below(size.width.into()) as u32, draw.below(size.height.into()) as u32);
                let rect = torchvision_box(lambda, (x, y), size);
                (rect, own_share(rect, size))
            }
            (Style::Timm, None) => {
                let (y, x) = (draw.below(size.height.into()) as u32, draw.below(size.width.into()) as u32);
                let rect = timm_box(lambda, (x, y), size);
                (rect, if self.corrected { own_share(rect, size) } else { lambda })
            }
        };
        // timm keeps the shares of pairs and elements in f32.
        let lambda = if self.mode == MixMode::Batch { own } else { f64::from(own as f32) };
        MixedImage { lambda, mixing: Mixing::Paste(rect) }
    }
}

/// The part of an image that a rectangle leaves.
fn own_share(rect: Rect, size: Size) -> f64 {
    let cut = f64::from(rect.width) * f64::from(rect.height);
    1.0 - cut / size.area_px() as f64
}

/// A rectangle of this width and height around a point, clipped to the image. If a side is odd, its larger half comes
/// after the point.
fn clipped((x, y): (u32, u32), (width, height): (u32, u32), size: Size) -> Rect {
    let (left, top) = (x.saturating_sub(width / 2), y.saturating_sub(height / 2));
    let (right, bottom) = ((x + width.div_ceil(2)).min(size.width), (y + height.div_ceil(2)).min(size.height));
    Rect { x: left, y: top, width: right - left, height: bottom - top }
}

/// torchvision's rectangle for a share and a center.
fn torchvision_box(lambda: f64, center: (u32, u32), size: Size) -> Rect {
    let half = 0.5 * (1.0 - lambda).sqrt();
    let cut = |side: u32| 2 * (half * f64::from(side)) as u32;
    clipped(center, (cut(size.width), cut(size.height)), size)
}

/// timm's rectangle for a share and a center.
fn timm_box(lambda: f64, center: (u32, u32), size: Size) -> Rect {
    let ratio = (1.0 - lambda).sqrt();
    let cut = |side: u32| (f64::from(side) * ratio) as u32;
    clipped(center, (cut(size.width), cut(size.height)), size)
}

/// A draw from the Beta distribution with both parameters `alpha`: the share of the first of two Gamma draws in their
/// sum.
fn beta(draw: &mut SampleRng, alpha: f64) -> f64 {
    let (first, second) = (log_gamma(draw, alpha), log_gamma(draw, alpha));
    1.0 / (1.0 + libm::exp(second - first))
}

/// The logarithm of a draw from the Gamma distribution, by Marsaglia and Tsang ("A simple method for generating gamma
/// variables", 2000). For small alphas the draw itself would round to 0.
fn log_gamma(draw: &mut SampleRng, alpha: f64) -> f64 {
    let log_unit = |draw: &mut SampleRng| libm::log(1.0 - draw.unit());
    if alpha < 1.0 {
        let boost = log_unit(draw) / alpha;
        return log_gamma(draw, alpha + 1.0) + boost;
    }
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(draw);
        let v = (1.0 + c * x) * (1.0 + c * x) * (1.0 + c * x);
        if v > 0.0 && log_unit(draw) < 0.5 * x * x + d - d * v + d * libm::log(v) {
            return libm::log(d * v);
        }
    }
}

/// A draw from the normal distribution, by Box and Muller.
fn normal(draw: &mut SampleRng) -> f64 {
    let radius = (-2.0 * libm::log(1.0 - draw.unit())).sqrt();
    radius * libm::cos(core::f64::consts::TAU * draw.unit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const SIZE: Size = Size { width: 30, height: 20 };

    fn rect(left: u32, top: u32, right: u32, bottom: u32) -> Mixing {
        Mixing::Paste(Rect { x: left, y: top, width: right - left, height: bottom - top })
    }

    /// Rectangles and shares equal those of torchvision and timm for the same draws (tests/reference/mix.py).
    #[test]
    fn rectangles_are_torchvisions_and_timms() {
        let mut compared = [0, 0];
        for line in include_str!("../../tests/reference/mix.jsonl").lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let number = |key: &str, i: usize| case[key][i].as_f64().unwrap();
            let first = case["images"].as_array().unwrap().iter().find(|image| !image["rect"].is_null());
            let (Some(first), true) = (first, case["drawn"].as_array().unwrap().len() == 3) else { continue };
            let want: Vec<u32> =
                first["rect"].as_array().unwrap().iter().map(|side| side.as_u64().unwrap() as u32).collect();
            let size = Size::new(case["width"].as_u64().unwrap() as u32, case["height"].as_u64().unwrap() as u32);
            let (lambda, one, other) = (number("drawn", 0), number("drawn", 1) as u32, number("drawn", 2) as u32);
            let is_timm = case["style"] == "timm";
            let found = if is_timm {
                timm_box(lambda, (other, one), size)
            } else {
                torchvision_box(lambda, (one, other), size)
            };
            assert_eq!([found.x, found.y, found.right(), found.bottom()], want[..], "{line}");
            assert!((own_share(found, size) - first["lambda"].as_f64().unwrap()).abs() < 1e-12, "{line}");
            compared[usize::from(is_timm)] += 1;
        }
        assert!(compared[0] >= 4 && compared[1] >= 8, "{compared:?}");
    }

    /// These draws are a promise, like all draws; another program in another language computed them. Never change them.
    #[test]
    fn golden_mixes() {
        let mix = Mix::torchvision(0.2, 1.0);
        let plans: Vec<MixedImage> = (0..4).map(|number| mix.plan((42, 1, number), 3, SIZE).images[2]).collect();
        assert_eq!(plans, GOLDEN_BATCHES.map(|(lambda, mixing)| MixedImage { lambda, mixing: mixing() }));
        let mix = Mix::timm(0.8, 1.0).mode(MixMode::Element).probability(0.9);
        let images = mix.plan((42, 1, 7), 5, SIZE).images;
        assert_eq!(images, GOLDEN_ELEMENTS.map(|(lambda, mixing)| MixedImage { lambda, mixing: mixing() }));
    }

    const GOLDEN_BATCHES: [(f64, fn() -> Mixing); 4] = [
        (0.691_003_978_252_410_9, || Mixing::Blend),
        (0.56, || rect(7, 8, 29, 20)),
        (0.999_635_636_806_488, || Mixing::Blend),
        (0.798_333_333_333_333_3, || rect(0, 0, 11, 11)),
    ];
    const GOLDEN_ELEMENTS: [(f64, fn() -> Mixing); 5] = [
        (0.949_999_988_079_071, || rect(0, 0, 5, 6)),
        (0.941_666_662_693_023_7, || rect(7, 5, 14, 10)),
        (0.775_146_842_002_868_7, || Mixing::Blend),
        (0.012_690_533_883_869_648, || Mixing::Blend),
        (0.725_391_268_730_163_6, || Mixing::Blend),
    ];

    #[test]
    fn shares_have_the_distribution_that_was_asked_for() {
        const COUNT: u32 = 20_000;
        for alpha in [0.1, 0.2, 0.8, 1.0, 4.0] {
            let mut draw = SampleRng::new(5, 0, Domain::Mix, 0);
            let numbers: Vec<f64> = (0..COUNT).map(|_| beta(&mut draw, alpha)).collect();
            assert!(numbers.iter().all(|number| (0.0..=1.0).contains(number)));
            let mean = numbers.iter().sum::<f64>() / f64::from(COUNT);
            let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / f64::from(COUNT);
            // The variance of Beta(a, a) is 1 / (4 (2 a + 1)). The bound is four standard errors.
            let want = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!((mean - 0.5).abs() < 4.0 * (want / f64::from(COUNT)).sqrt(), "{alpha}: mean {mean}");
            assert!((variance / want - 1.0).abs() < 0.05, "{alpha}: variance {variance}, not {want}");
        }
        // For alphas below a thousandth, both Gamma draws would round to 0.
        let mut draw = SampleRng::new(5, 0, Domain::Mix, 0);
        assert!((0..1000).all(|_| (0.0..=1.0).contains(&beta(&mut draw, 1e-3))));
    }

    #[test]
    fn modes_probabilities_and_limits_are_kept() {
        let plan = |mix: Mix, images| mix.plan((1, 2, 3), images, SIZE);
        let pairs = plan(Mix::timm(1.0, 0.0).mode(MixMode::Pair), 7).images;
        assert_eq!((pairs[0], pairs[1], pairs[3]), (pairs[6], pairs[5], MixedImage::WHOLE));
        assert!(pairs[0] != pairs[1]);
        let never = plan(Mix::timm(1.0, 1.0).probability(0.0), 4);
        assert!(!never.changes() && never.images == [MixedImage::WHOLE; 4]);
        let elements = plan(Mix::timm(0.0, 1.0).mode(MixMode::Element).cutmix_minmax(0.2, 0.6), 200).images;
        for image in elements {
            let Mixing::Paste(rect) = image.mixing else { continue };
            assert!((6..18).contains(&rect.width) && (4..12).contains(&rect.height), "{rect:?}");
            assert!(rect.right() <= SIZE.width && rect.bottom() <= SIZE.height);
        }
        let uncorrected = plan(Mix::timm(0.0, 1.0).corrected(false), 1).images[0];
        let corrected = plan(Mix::timm(0.0, 1.0), 1).images[0];
        assert_eq!(uncorrected.mixing, corrected.mixing);
        assert!(uncorrected.lambda != corrected.lambda);
        // A batch of single pixels, into which no smaller rectangle fits.
        for images in [1, 2, 3] {
            for mix in [Mix::torchvision(0.0, 1.0), Mix::timm(0.0, 1.0), Mix::timm(0.0, 1.0).cutmix_minmax(0.0, 1.0)] {
                let plan = mix.plan((1, 2, 3), images, Size::new(1, 1));
                assert_eq!(plan.images.len(), images);
            }
        }
    }
}
