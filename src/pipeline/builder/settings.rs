//! The settings of a pipeline that a text can give: options of the command, arguments of the Python package.

use super::PipelineBuilder;
use crate::apply::opening::Thumbnail;
use crate::device::{Device, JpegDecoder, StreamPriority};
use crate::error::Result;
use crate::mix::Mix;
use crate::ops::filter::PassOrder;
use crate::ops::orientation::Orientation;
use crate::options::{TextValue, read, unknown};
use crate::order::Partition;
use crate::pipeline::policy::{BadLimit, LastBatch, OnError};
use crate::pixels::Pixels;
use crate::plan::Strategy;
use crate::raster::Size;
use crate::shapes::{Buckets, SizeSchedule, TokenBudget};
use crate::targets::TargetSpec;
use crate::tensor::{DType, Layout};
use SettingEffect::{Batches, Nothing, Order};
use std::num::NonZeroU64;
use std::path::PathBuf;

/// A setting of a [`PipelineBuilder`] whose value can be written as text.
///
/// ```
/// use warpfeed::Setting;
///
/// let strategy = Setting::named("strategy").unwrap();
/// assert_eq!(strategy.default, "fused");
/// assert!(strategy.choices.iter().any(|(name, _)| *name == "sequential"));
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Setting {
    /// The name, which is that of the builder's method.
    pub name: &'static str,
    /// Stands for the value: `N`, `PX`; empty if the value is one of [`choices`](Self::choices), `true` or `false`.
    pub value: &'static str,
    /// The value that it has if it is not set, as text, or a word about it; empty if it is not set at all.
    pub default: &'static str,
    /// What it does: a line, and after an empty line more about it.
    pub description: &'static str,
    /// The names of all values, with a line about each; empty if there are other values.
    pub choices: &'static [(&'static str, &'static str)],
    /// What it decides about.
    pub effect: SettingEffect,
    set: fn(PipelineBuilder, &str) -> Result<PipelineBuilder>,
    check: fn(&str) -> Result<()>,
}

/// What a setting decides about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingEffect {
    /// Speed and memory. Batches stay as they are.
    Nothing,
    /// The order of samples, which an [`EpochState`](crate::EpochState) knows.
    Order,
    /// The contents of batches.
    Batches,
    /// The contents of batches, if it has one of these values.
    BatchesIf(&'static [&'static str]),
}

macro_rules! settings {
    ($($name:ident: $type:ty, $value:literal, $default:literal, $effect:expr, $description:literal
        $(, $set:expr)?;)*) => {
        &[$(Setting {
            name: stringify!($name),
            value: $value,
            default: $default,
            description: $description,
            choices: <$type as TextValue>::CHOICES,
            effect: $effect,
            set: |builder, text| {
                let set: fn(PipelineBuilder, $type) -> PipelineBuilder = settings!(@set $name $($set)?);
                Ok(set(builder, read(stringify!($name), text)?))
            },
            check: |text| read::<$type>(stringify!($name), text).map(drop),
        }),*]
    };
    (@set $name:ident) => { PipelineBuilder::$name };
    (@set $name:ident $set:expr) => { $set };
}

impl Setting {
    /// All settings.
    pub const ALL: &'static [Self] = settings! {
        strategy: Strategy, "", "fused", SettingEffect::BatchesIf(&["composed"]), "How operations are run.";
        batch_size: usize, "B", "32", Batches, "Images in a batch.";
        threads: usize, "T", "one for each processor", Nothing, "Worker threads.";
        prefetch: usize, "P", "2", Nothing, "Batches that are filled or ready ahead of the consumer.";
        seed: u64, "S", "0", Order, "Seed of order and random transforms.";
        shuffle: bool, "", "false", Order, "Deliver images in another order in each epoch.",
            |builder, shuffle| PipelineBuilder { shuffle, ..builder };
        partition: Partition, "R/W", "0/1", Order,
            "Read the part of rank R of W, positions R, R + W, R + 2W, ... of each epoch's order.";
        equal_batches: bool, "", "false", Order,
            "Give every rank the same number of batches: a rank with one image fewer repeats one, as padding.\n\n\
             Where last batches are dropped, the other ranks drop an image instead.";
        shares: u32, "N", "1", Order,
            "Deal the images to N shares once and shuffle each: with as many shares as ranks, each rank keeps its images.";
        lanes: u32, "L", "the number of ranks", Batches,
            "Read a stream in L lanes, so that up to L ranks can go on with an epoch.";
        limit: NonZeroU64, "K", "", Order, "End each epoch after K images.", |builder, limit| builder.limit(limit.get());
        buckets: Buckets, "SPEC", "", Batches,
            "Batch images by shape: sdxl, flux, kohya, pixart, ..., sizes such as 1024x1024,832x1216, or area=WxH.\n\n\
             After commas may follow step=N, sides=A..B, nearest=RULE, min-samples=N, merge, budget=PIXELS, no-upscale \
             and lossy.";
        unit: u64, "N", "the images of a batch of all ranks", Order,
            "Images that share a shape, one after the other in the order of all ranks, with buckets.";
        sizes_file: PathBuf, "FILE", "", Nothing,
            "Keep the sizes of images for buckets in this file, so that headers are read once.";
        sizes: SizeSchedule, "SPEC", "", Batches,
            "Change the size of images over the epochs: 128,192,224/90, or drawn=128,192,224/90 as timm.\n\n\
             ,budget=PIXELS may follow, for larger batches of smaller images.";
        sequences: TokenBudget, "SPEC", "", Batches,
            "Batch images as sequences of patches: lengths and tokens, as 128,256,784/16384.\n\n\
             ,divisor=N may follow: the number that batch sizes are multiples of, 8 unless given.";
        targets: TargetSpec, "SPEC", "", Batches,
            "Deliver targets: class=K, multi-hot=K, float=N, soft=K, soft=K/SMOOTHING or bytes.\n\n\
             A colon and the name of their field may follow, as in multi-hot=80:json.tags.";
        fields: Vec<String>, "NAMES", "", Batches,
            "Deliver these fields of the samples, which follow the operations: boxes,labels,mask,masks,keypoints and \
             others.", PipelineBuilder::fields;
        mix: Mix, "SPEC", "", Batches,
            "Mix the images of each batch: torchvision=A/B or timm=A/B with the alphas of MixUp and CutMix.\n\n\
             Options may follow after commas: mode=pair or elem, probability=P, switch=P, minmax=A/B, uncorrected, \
             hard-labels. Without hard-labels, f32 targets are needed.";
        dtype: DType, "", "f32", Batches, "Element type of the output [u8 is not normalized]",
            |builder, dtype| { let layout = builder.elements.layout; builder.output(dtype, layout) };
        layout: Layout, "", "nchw", Batches, "Layout of the output.",
            |builder, layout| { let dtype = builder.elements.dtype; builder.output(dtype, layout) };
        channels: usize, "N", "3", Batches, "Channels of the output: 3, or 1 for gray.";
        last_batch: LastBatch, "", "keep", Batches, "What to do with a last batch that is not full.";
        on_error: OnError, "", "fail", Batches, "What to do with an image that cannot be used.";
        max_bad: BadLimit, "N|P%", "the first 100, or all", Nothing,
            "Fail if more images of an epoch cannot be used: a number, or a share such as 1%.";
        orientation: Orientation, "", "apply", Batches,
            "What to do with EXIF orientation. torchvision, timm and Hugging Face's processors ignore it.";
        draft: Size, "S|WxH", "", Batches,
            "Decode JPEGs at 1/2, 1/4 or 1/8 of their size, but with no side below S, or W and H: Pillow's \
             Image.draft.";
        thumbnail: Thumbnail, "S|WxH[/G]", "", Batches,
            "Begin with a thumbnail of each image that fits into S x S, or W x H: Pillow's Image.thumbnail. JPEGs are \
             drafted.\n\n\
             G, 1 or more, is how much of the shrinking is left to the filter at least: Pillow's reducing_gap, 2 \
             unless given. With none, nothing is drafted.";
        accept_truncated: bool, "", "false", Batches,
            "Decode truncated JPEGs as far as possible instead of refusing them.";
        pixels: Pixels, "KIND", "rgb", Batches,
            "Kind of pixels: rgb, own (that of the first image), or u8, u16 or f32 with a number of channels, as u16x13.";
        max_value: f32, "V", "", Batches,
            "The value of pixels that are not rgb that stands for 1: 4095 for 12 bits in 16.";
        max_pixels: u64, "N", "128000000", Batches,
            "Refuse images with more pixels, as stored or after any operation.";
        pass_order: PassOrder, "", "pillow13", Batches, "The pass of a resize that comes first.";
        device: Device, "DEVICE", "auto", SettingEffect::BatchesIf(&[]),
            "Device for augmentations: auto, cpu, cuda, cuda:I.";
        jpeg_decoder: JpegDecoder, "", "auto",
            SettingEffect::BatchesIf(&["hybrid", "hardware", "hardware-device"]), "JPEG decoder for a GPU.";
        hardware_share: f64, "SHARE", "0.75", Batches,
            "Share of images for the GPU's hardware decoder, 0 to 1, where that is used.";
        device_memory: u64, "BYTES", "half of the free memory", Nothing,
            "Limit of GPU memory for in-flight batches, in bytes.";
        device_cache: u64, "BYTES", "0", Nothing,
            "Limit of GPU memory for encoded images that stay there from epoch to epoch, in bytes.";
        gpu_direct: bool, "", "false", Nothing, "Have a GPU read images of shards past the host (GPUDirect Storage).";
        pinned: bool, "", "true", Nothing, "Stage copies to a GPU in pinned memory.";
        stream_priority: StreamPriority, "", "low", Nothing, "Priority of the pipeline's streams on a GPU.";
    };

    /// The setting of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|setting| setting.name == name)
    }

    /// Whether its values are `true` and `false`.
    #[must_use]
    pub const fn is_flag(&self) -> bool {
        self.value.is_empty() && self.choices.is_empty()
    }

    /// Whether its value is a list with commas.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.value == "NAMES"
    }

    /// Checks a value.
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) for a text that is not a value of this setting.
    pub fn check(&self, text: &str) -> Result<()> {
        (self.check)(text)
    }
}

impl PipelineBuilder {
    /// Sets the setting of this name, one of [`Setting::ALL`], from text.
    ///
    /// ```
    /// use warpfeed::prelude::*;
    ///
    /// let builder = Pipeline::builder(EncodedImages::new([(Vec::new(), 0)]));
    /// let builder = [("batch_size", "64"), ("last_batch", "drop")]
    ///     .into_iter()
    ///     .try_fold(builder, |builder, (name, text)| builder.set(name, text))?;
    /// let error = builder.set("strategy", "quick").unwrap_err();
    /// assert!(error.to_string().contains("fused, sequential, composed"));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`](crate::Error::Parameter) for a name that is not a setting's, or another text.
    pub fn set(self, name: &str, text: &str) -> Result<Self> {
        let setting = Setting::named(name).ok_or_else(|| unknown(name))?;
        (setting.set)(self, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Pipeline;
    use crate::source::EncodedImages;

    #[test]
    fn defaults_are_those_of_the_builder() {
        let shown = |builder: &PipelineBuilder| {
            let PipelineBuilder { shuffle, seed, partition, shares, equal_batches, policy, opening, planner, .. } =
                builder;
            let order = (shuffle, seed, partition, shares, equal_batches);
            format!("{:?}", (order, policy, opening, planner, builder.elements, builder.device, &builder.options))
        };
        let usual = Pipeline::builder(EncodedImages::new([(Vec::new(), 0)]));
        let mut set = 0;
        for setting in Setting::ALL.iter().filter(|setting| setting.check(setting.default).is_ok()) {
            let builder = usual.clone().set(setting.name, setting.default).unwrap();
            assert_eq!(shown(&builder), shown(&usual), "{}", setting.name);
            set += usize::from(!setting.is_list());
        }
        assert!(set >= 20, "{set}");
    }

    #[test]
    fn the_documentation_has_the_table() {
        let text = include_str!("../../../docs/command.md");
        let (_, rest) = text.split_once("<!--settings-->\n").expect("the table begins");
        let (found, _) = rest.split_once("<!--/settings-->").expect("the table ends");
        let mut want = "| setting | values | default | |\n| --- | --- | --- | --- |\n".to_owned();
        for Setting { name, value, default, description, choices, .. } in Setting::ALL {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            let value = if names.is_empty() { value.replace('|', " or ") } else { names.join(", ") };
            let line = description.lines().next().unwrap_or_default();
            want += &format!("| `{name}` | {value} | {default} | {line} |\n");
        }
        assert!(found == want, "write this between the marks in docs/command.md:\n{want}");
    }

    #[test]
    fn each_value_of_a_choice_is_set() {
        let builder = Pipeline::builder(EncodedImages::new([(Vec::new(), 0)]));
        for setting in Setting::ALL {
            for (name, _) in setting.choices {
                builder.clone().set(setting.name, name).unwrap();
            }
            assert!(setting.choices.is_empty() || setting.choices.iter().any(|(name, _)| *name == setting.default));
        }
        assert!(builder.clone().set("strategi", "fused").is_err());
        let error = builder.set("thumbnail", "100/x").unwrap_err().to_string();
        assert!(error.contains("thumbnail must be a number, or none, after the slash"), "{error}");
    }
}
