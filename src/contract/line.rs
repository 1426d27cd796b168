//! A program's values as a line through the bytes of each channel.

use super::Contract;
use super::hypothesis::Hypothesis;
use super::outputs::Planes;
use crate::ops::Op;
use crate::preset::{IMAGENET_MEAN, IMAGENET_STD};
use crate::raster::Image;
use crate::tensor::DType;

/// A difference that is not a rounding, in levels.
const OUTLIER: f64 = 4.0;
/// Largest share of outliers that a hypothesis may leave.
const OUTLIERS: f64 = 0.08;

/// The numbers of an image: slope and offset of each channel, over its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    slope: [f64; 3],
    offset: [f64; 3],
}

impl Line {
    /// The line of a contract's own numbers.
    pub(super) fn of(contract: &Contract) -> Self {
        let (scale, [mean, std]) = normalization(contract);
        Self { slope: [0, 1, 2].map(|c| scale / std[c]), offset: [0, 1, 2].map(|c| -mean[c] / std[c]) }
    }

    /// The line by which numbers are closest to an image's bytes; `None` if a channel of the image or of the numbers is
    /// all one value.
    pub(super) fn fit(image: &Image, output: &Planes, hypothesis: &Hypothesis) -> Option<Self> {
        let (mut slope, mut offset) = ([0.0; 3], [0.0; 3]);
        for channel in 0..3 {
            let from = hypothesis.channel(channel);
            // Bytes of 0 and 255 stand for all numbers below and above.
            let pairs = || {
                let values = image.pixels().iter().map(|pixel| pixel[from]).zip(&output.planes[channel]);
                values.filter(|(byte, _)| !matches!(byte, 0 | 255)).map(|(byte, value)| (f64::from(byte), value))
            };
            let sums = pairs().fold([0.0; 3], |[count, x, y], (pixel, value)| [count + 1.0, x + pixel, y + value]);
            let (x, y) = (sums[1] / sums[0], sums[2] / sums[0]);
            let (square, product) = pairs().fold((0.0, 0.0), |(square, product), (pixel, value)| {
                ((pixel - x).mul_add(pixel - x, square), (pixel - x).mul_add(value - y, product))
            });
            if square == 0.0 || product == 0.0 || !(product / square).is_finite() {
                return None;
            }
            slope[channel] = product / square;
            offset[channel] = y - slope[channel] * x;
        }
        Some(Self { slope, offset })
    }

    /// Root mean square of the difference between an image and numbers, in levels of 0 to 255; `None` if the sizes
    /// differ. A few outliers are left out.
    pub(super) fn left_over(&self, image: &Image, output: &Planes, hypothesis: &Hypothesis) -> Option<f64> {
        if image.size() != output.size {
            return None;
        }
        let (mut all, mut close, mut outliers) = (0.0, 0.0, 0_usize);
        for (channel, plane) in output.planes.iter().enumerate() {
            let from = hypothesis.channel(channel);
            let (slope, offset) = (self.slope[channel], self.offset[channel]);
            for (pixel, value) in image.pixels().iter().zip(plane) {
                // Tensors of numbers have values below 0 and above 255, which bytes have not.
                let left = ((value - offset) / slope).clamp(0.0, 255.0) - f64::from(pixel[from]);
                all += left * left;
                if left.abs() > OUTLIER {
                    outliers += 1;
                } else {
                    close += left * left;
                }
            }
        }
        let count = 3 * image.pixels().len();
        // A place that is exactly between two pixels is rounded by chance: a few columns then come from the neighbors.
        let few = !hypothesis.changes.is_empty() && outliers as f64 <= OUTLIERS * count as f64;
        Some((if few { close } else { all } / count as f64).sqrt())
    }

    /// Difference of the line from the contract's, in words; `None` if it is the contract's. `reversed`: of channels in
    /// the order blue, green, red.
    pub(super) fn difference(&self, contract: &Contract, reversed: bool) -> Option<String> {
        let (scale, [mean, std]) = normalization(contract);
        let close = |got: f64, wanted: f64, least: f64| (got - wanted).abs() <= 2e-3 * wanted.abs() + least;
        let is = |scale: f64, after: f64, mean: [f64; 3], std: [f64; 3]| {
            (0..3).all(|c| {
                close(self.slope[c], scale * after / std[c], 0.0)
                    && close(self.offset[c], -mean[c] * after / std[c], 0.01 * after)
            })
        };
        if is(scale, 1.0, mean, std) {
            return None;
        }
        let turned = |values: [f64; 3]| [values[2], values[1], values[0]];
        if is(scale, 1.0, turned(mean), turned(std)) {
            // Channels that are exchanged at the end take their mean and std along.
            return (!reversed).then(|| "mean and std are in the order blue, green, red".to_owned());
        }
        let (zero, one) = ([0.0; 3], [1.0; 3]);
        let [imagenet_mean, imagenet_std] = [IMAGENET_MEAN, IMAGENET_STD].map(|values| values.map(f64::from));
        let clip_mean = [0.481_454_66, 0.457_827_5, 0.408_210_73];
        let clip_std = [0.268_629_54, 0.261_302_58, 0.275_777_11];
        let known = [
            (is(scale, 1.0, std, mean), "mean and std are swapped"),
            (is(1.0, 1.0, mean, std), "normalization comes before scaling: values of 0 to 255 are normalized"),
            (
                is(1.0, 1.0 / 255.0, mean, std),
                "normalization comes before scaling: values of 0 to 255 are normalized, and then divided by 255",
            ),
            (is(scale / 255.0, 1.0, mean, std), "values are divided by 255 twice"),
            (is(scale, 1.0, zero, std), "the mean is not subtracted"),
            (is(scale, 1.0, mean, one), "values are not divided by std"),
            (is(1.0, 1.0, zero, one), "values are 0 to 255, not normalized"),
            (is(1.0 / 255.0, 1.0, zero, one), "values are 0 to 1, not normalized"),
            (is(1.0 / 255.0, 1.0, [0.5; 3], [0.5; 3]), "values are -1 to 1: mean and std are 0.5"),
            (is(1.0 / 255.0, 1.0, imagenet_mean, imagenet_std), "mean and std are ImageNet's"),
            (is(1.0 / 255.0, 1.0, clip_mean, clip_std), "mean and std are CLIP's"),
        ];
        if let Some((_, text)) = known.iter().find(|(is, _)| *is) {
            return Some((*text).to_owned());
        }
        let got = [0, 1, 2].map(|c| 1.0 / (255.0 * self.slope[c]));
        let subtracted = [0, 1, 2].map(|c| -self.offset[c] * got[c]);
        let list = |values: [f64; 3]| values.map(|value| format!("{value:.4}")).join(", ");
        Some(format!("mean and std are [{}] and [{}], for values of 0 to 1", list(subtracted), list(got)))
    }
}

/// The factor of bytes before normalization, and mean and std.
fn normalization(contract: &Contract) -> (f64, [[f64; 3]; 2]) {
    let normalize = contract.operations.iter().find_map(|op| match op {
        Op::Normalize(normalize) => Some([normalize.mean, normalize.std].map(|values| values.three().map(f64::from))),
        _ => None,
    });
    let is_bytes = contract.settings.dtype == DType::U8;
    (if is_bytes { 1.0 } else { 1.0 / 255.0 }, normalize.unwrap_or([[0.0; 3], [1.0; 3]]))
}
