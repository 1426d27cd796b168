//! MixUp and CutMix: the options for them, and a record of how a batch was mixed. The plan for a batch is drawn on the
//! host, from the seed, the epoch and the batch's number among the batches of all ranks.

mod plan;

pub(crate) use plan::{MixPlan, MixedImage, Mixing};

use crate::error::{Error, Result};
use crate::targets::{TargetSpec, TargetType};
use std::fmt;
use std::str::FromStr;

/// MixUp and CutMix of whole batches ([`PipelineBuilder::mix`](crate::PipelineBuilder::mix)), as in torchvision or
/// timm.
///
/// MixUp blends each image with its partner, and CutMix pastes a rectangle of the partner into it. Targets that are f32
/// ([`TargetSpec`](crate::TargetSpec)) are blended by the same share. Without such targets, the labels of mixed images
/// would be wrong, so `build` refuses a mix, unless [`hard_labels`](Self::hard_labels) says that the loss takes the
/// shares and the partners' labels from [`Batch::mixed`](crate::Batch::mixed).
///
/// The written form, as the command reads it, is `torchvision=0.2/1` or
/// `timm=0.8/1,mode=pair,probability=0.5,switch=0.3,minmax=0.2/0.8,uncorrected,hard-labels`. The numbers after the name
/// are the alphas of MixUp and CutMix; 0 switches one off.
///
/// ```
/// use warpfeed::prelude::*;
/// use warpfeed::{Mix, TargetSpec, Targets, image::{Image, JpegOptions, encode_jpeg}};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let source = EncodedImages::new((0..4).map(|label| (jpeg.clone(), label)));
/// let pipeline = Pipeline::builder(source)
///     .transform(CenterCrop::new(8))
///     .targets(TargetSpec::soft(4))
///     .mix(Mix::torchvision(0.2, 1.0))
///     .build()?;
/// let batch = pipeline.epoch(0).next().unwrap()?;
/// let mixed = batch.mixed().unwrap();
/// assert_eq!((mixed.partners(), mixed.partner_labels()), (&[3, 0, 1, 2][..], Some(&[3, 0, 1, 2][..])));
/// let Some(Targets::Numbers(soft)) = batch.targets() else { unreachable!("they were asked for") };
/// assert_eq!(soft.to_host()?.as_slice::<f32>()?[0], mixed.shares()[0]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    style: Style,
    mixup_alpha: f64,
    cutmix_alpha: f64,
    probability: f64,
    switch_probability: f64,
    mode: MixMode,
    corrected: bool,
    minmax: Option<(f64, f64)>,
    hard_labels: bool,
}

/// The library whose way of mixing is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Torchvision,
    Timm,
}

/// Granularity of shares and rectangles: timm's modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MixMode {
    /// One share and one rectangle for the batch.
    #[default]
    Batch,
    /// One share and one rectangle for each pair of partners.
    Pair,
    /// One share and one rectangle for each image.
    Element,
}

impl MixMode {
    const NAMES: [(&str, Self); 3] = [("batch", Self::Batch), ("pair", Self::Pair), ("elem", Self::Element)];
}

impl Mix {
    fn new(style: Style, mixup_alpha: f64, cutmix_alpha: f64) -> Self {
        Self {
            style,
            mixup_alpha,
            cutmix_alpha,
            probability: 1.0,
            switch_probability: 0.5,
            mode: MixMode::Batch,
            corrected: true,
            minmax: None,
            hard_labels: false,
        }
    }

    /// torchvision's `MixUp(alpha)` and `CutMix(alpha)`. If both alphas are over 0, one of them is drawn for each
    /// batch. Each image's partner is the image before it; the first image's partner is the last. One share is drawn
    /// for the batch. With CutMix, the share is corrected to the part of the image that the clipped rectangle leaves.
    #[must_use]
    pub fn torchvision(mixup_alpha: f64, cutmix_alpha: f64) -> Self {
        Self::new(Style::Torchvision, mixup_alpha, cutmix_alpha)
    }

    /// timm's `Mixup(mixup_alpha, cutmix_alpha)`: partners are the batch in reverse order. In an odd batch, which timm
    /// refuses, the middle image is its own partner. The targets define the label smoothing
    /// ([`TargetSpec::smoothing`](crate::TargetSpec::smoothing)).
    #[must_use]
    pub fn timm(mixup_alpha: f64, cutmix_alpha: f64) -> Self {
        Self::new(Style::Timm, mixup_alpha, cutmix_alpha)
    }

    /// Probability that a batch, a pair or an image is mixed. Default: 1.
    #[must_use]
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    /// Probability of CutMix instead of MixUp, if both alphas are over 0. Default: 0.5.
    #[must_use]
    pub fn switch_probability(mut self, probability: f64) -> Self {
        self.switch_probability = probability;
        self
    }

    /// Granularity of shares and rectangles, for [`timm`](Self::timm). Default: the batch.
    #[must_use]
    pub fn mode(mut self, mode: MixMode) -> Self {
        self.mode = mode;
        self
    }

    /// Whether CutMix's share is corrected to the part of the image that the rectangle leaves, for
    /// [`timm`](Self::timm). Default: true.
    #[must_use]
    pub fn corrected(mut self, corrected: bool) -> Self {
        self.corrected = corrected;
        self
    }

    /// The range of the rectangle's width and height in CutMix, as parts of the image's sides, for
    /// [`timm`](Self::timm). Both are uniform in the range. This replaces CutMix's alpha, which becomes 1.
    #[must_use]
    pub fn cutmix_minmax(mut self, least: f64, largest: f64) -> Self {
        (self.minmax, self.cutmix_alpha) = (Some((least, largest)), 1.0);
        self
    }

    /// Says that the loss takes the partners' labels and the shares from [`Batch::mixed`](crate::Batch::mixed), so that
    /// no f32 targets are needed. Default: false.
    #[must_use]
    pub fn hard_labels(mut self, hard_labels: bool) -> Self {
        self.hard_labels = hard_labels;
        self
    }

    /// Checks that the targets are mixed with the images, or need not be.
    pub(crate) fn check_targets(&self, targets: Option<&TargetSpec>) -> Result<()> {
        if self.hard_labels || targets.and_then(TargetSpec::element) == Some(TargetType::F32) {
            return Ok(());
        }
        let expected = "f32, which are mixed with the images (TargetSpec::soft(classes), --targets soft=CLASSES), or the \
                        mix with hard_labels (,hard-labels), for a loss that takes partners and shares from Batch::mixed";
        let got = targets.map_or_else(|| "labels alone".to_owned(), ToString::to_string);
        Err(Error::parameter("mix", "targets", expected, got))
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |parameter, expected: &str, got: f64| Err(Error::parameter("mix", parameter, expected, got));
        for alpha in [self.mixup_alpha, self.cutmix_alpha] {
            if !(alpha == 0.0 || (1e-3..=1e3).contains(&alpha)) {
                return refuse("alpha", "0, or 0.001 to 1000", alpha);
            }
        }
        if self.mixup_alpha == 0.0 && self.cutmix_alpha == 0.0 {
            return refuse("alpha", "over 0, of MixUp, CutMix or both", 0.0);
        }
        for probability in [self.probability, self.switch_probability] {
            if !(0.0..=1.0).contains(&probability) {
                return refuse("probability", "0 to 1", probability);
            }
        }
        if let Some((least, largest)) = self.minmax
            && !(0.0 <= least && least <= largest && largest <= 1.0)
        {
            return refuse("cutmix_minmax", "two shares of 0 to 1, the lesser first", least);
        }
        let plain = self.mode == MixMode::Batch && self.corrected && self.minmax.is_none();
        if self.style == Style::Torchvision && !plain {
            let got = "torchvision's with mode, corrected or cutmix_minmax";
            return Err(Error::parameter("mix", "style", "timm for modes, uncorrected shares and cutmix_minmax", got));
        }
        Ok(())
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let style = if self.style == Style::Timm { "timm" } else { "torchvision" };
        write!(f, "{style}={}/{}", self.mixup_alpha, self.cutmix_alpha)?;
        if let Some((name, _)) = MixMode::NAMES.iter().find(|(_, mode)| *mode == self.mode && *mode != MixMode::Batch) {
            write!(f, ",mode={name}")?;
        }
        if self.probability != 1.0 {
            write!(f, ",probability={}", self.probability)?;
        }
        if self.switch_probability != 0.5 {
            write!(f, ",switch={}", self.switch_probability)?;
        }
        if let Some((least, largest)) = self.minmax {
            write!(f, ",minmax={least}/{largest}")?;
        }
        if !self.corrected {
            f.write_str(",uncorrected")?;
        }
        if self.hard_labels { f.write_str(",hard-labels") } else { Ok(()) }
    }
}

text_value!(Mix);

impl FromStr for Mix {
    type Err = Error;

    /// Reads `torchvision=MIXUP/CUTMIX` or `timm=MIXUP/CUTMIX`, where MIXUP and CUTMIX are the alphas. Options follow,
    /// separated by commas: `mode=batch`, `mode=pair` or `mode=elem`, `probability=P`, `switch=P`, `minmax=A/B`,
    /// `uncorrected`, `hard-labels`.
    fn from_str(text: &str) -> Result<Self> {
        let two = |text: &str| {
            let (first, second) = text.split_once('/')?;
            Some((first.parse().ok()?, second.parse().ok()?))
        };
        let parse = || {
            let mut words = text.split(',');
            let (style, alphas) = words.next()?.split_once('=')?;
            let (mixup, cutmix) = two(alphas)?;
            let mix = match style {
                "torchvision" => Self::torchvision(mixup, cutmix),
                "timm" => Self::timm(mixup, cutmix),
                _ => return None,
            };
            words.try_fold(mix, |mix, word| {
                Some(match word.split_once('=') {
                    Some(("mode", name)) => mix.mode(MixMode::NAMES.iter().find(|(own, _)| *own == name)?.1),
                    Some(("probability", number)) => mix.probability(number.parse().ok()?),
                    Some(("switch", number)) => mix.switch_probability(number.parse().ok()?),
                    Some(("minmax", numbers)) => {
                        let (least, largest) = two(numbers)?;
                        mix.cutmix_minmax(least, largest)
                    }
                    None if word == "uncorrected" => mix.corrected(false),
                    None if word == "hard-labels" => mix.hard_labels(true),
                    _ => return None,
                })
            })
        };
        let expected = "torchvision=A/B or timm=A/B, the alphas of MixUp and CutMix, and mode=batch|pair|elem, \
                        probability=P, switch=P, minmax=A/B, uncorrected, hard-labels behind commas";
        let mix = parse().ok_or_else(|| Error::parameter("mix", "spec", expected, text))?;
        mix.check().map(|()| mix)
    }
}

/// Partners and shares of the images of a mixed batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixed {
    partners: Vec<usize>,
    labels: Option<Vec<u32>>,
    shares: Vec<f32>,
}

impl Mixed {
    /// The place in the batch of each image's partner.
    #[must_use]
    pub fn partners(&self) -> &[usize] {
        &self.partners
    }

    /// The label of each image's partner; `None` if the samples have no labels.
    #[must_use]
    pub fn partner_labels(&self) -> Option<&[u32]> {
        self.labels.as_deref()
    }

    /// Share of each image that is its own, 0 to 1: lambda. The rest is the partner's. 1 if the image was not mixed.
    #[must_use]
    pub fn shares(&self) -> &[f32] {
        &self.shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_texts() {
        for text in [
            "torchvision=0.2/1",
            "torchvision=0/1,probability=0.3",
            "timm=0.8/1,mode=pair,probability=0.5,switch=0.3,minmax=0.2/0.8,uncorrected",
            "timm=1/0,mode=elem",
        ] {
            assert_eq!(text.parse::<Mix>().unwrap().to_string(), text);
        }
        for wrong in [
            "",
            "timm",
            "timm=0/0",
            "timm=-1/0",
            "timm=nan/0",
            "other=1/1",
            "timm=1/1,mode=x",
            "timm=1/1,switch=2",
            "torchvision=1/1,mode=pair",
            "torchvision=1/1,uncorrected",
            "timm=1/1,minmax=0.8/0.2",
            "timm=1/1,x",
        ] {
            assert!(wrong.parse::<Mix>().unwrap_err().is_parameter(), "{wrong}");
        }
    }
}
