//! Checks of a builder's settings, and values derived from them.

use super::{MemoryBound, PipelineBuilder, Shapes};
use crate::backend::cuda::direct::KNOWN_BYTES;
use crate::backend::{Largest, MAX_BATCH_BYTES, Open, OutputForm, PixelForm, RunOptions};
use crate::device::{Device, JpegDecoder};
use crate::error::{Error, Result};
use crate::ops::SizeEffect;
use crate::ops::check::{Ends, check_following, check_gray, check_ops, check_seen, check_steps, one_size};
use crate::ops::normalize::Normalization;
use crate::ops::transform::{Transform, end_gray};
use crate::ops::values::PixelValues;
use crate::order::{EqualBatches, Partition, ShardedOrder};
use crate::os::forks::OfProcess;
use crate::os::notice;
use crate::os::threads::MAX_THREADS;
use crate::pipeline::bucketed::{Bucketed, UnitOptions};
use crate::pipeline::cache::{Cache, ImageCache};
use crate::pipeline::planned::Planned;
use crate::pipeline::policy::{BadLimit, LastBatch, OnError};
use crate::pipeline::recipes::{Recipes, ViewTransforms, most_images};
use crate::pipeline::setup::{Setup, all_positions};
use crate::pipeline::view::View;
use crate::pipeline::{Pipeline, unoptimized};
use crate::pixels::Pixels;
use crate::plan::Strategy;
use crate::raster::Size;
use crate::sampler::Chosen;
use crate::simd;
use crate::source::{ImageSizes, Input, MAX_ENCODED_BYTES, ReadRequest, Sample};
use crate::targets::TargetSpec;
use std::marker::PhantomData;
use std::num::NonZero;
use std::sync::{Arc, OnceLock};

/// Largest number of samples that are joined in one image: a mosaic blended with another has 8.
const MAX_IMAGES: u64 = 64;
/// Largest number that the sides of a padded batch are made multiples of.
const MAX_DIVISOR: u32 = 1 << 16;
/// Largest number of lanes of a stream.
const MAX_LANES: u32 = 1 << 16;
/// Bytes of a decoded pixel.
const PIXEL_BYTES: u64 = 4;
/// Bytes of a pixel of another sample in a recipe.
const PART_PIXEL_BYTES: u64 = 3;
/// Bytes of a pixel in the cache.
const KEPT_PIXEL_BYTES: u64 = 3;
/// Bytes of a pixel of a mask, at most.
const MASK_PIXEL_BYTES: u64 = 2;
/// Bytes of a pixel's coefficients in a progressive image: at most four components of 16 bits each.
const COEFFICIENT_BYTES: u64 = 8;

impl PipelineBuilder {
    /// Makes a pipeline for each device. Each gets a part of the builder's partition.
    pub(super) fn build_each<I>(mut self, devices: &[Device], open: &Open<'_>) -> Result<Vec<Pipeline<I>>> {
        unoptimized::warn();
        simd::check()?;
        self.input.warnings().iter().for_each(|warning| notice::warn(warning));
        let partitions = self.partitions(devices.len())?;
        let partition = partitions[0];
        self.opening.validate()?;
        let values = self.values()?;
        (self.planner.values, self.options.values) = (values, values);
        let views = settle_views(std::mem::take(&mut self.ops), self.views.take(), self.elements, values.is_none())?;
        let threads = self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get));
        self.check_options(threads)?;
        self.check_fields(&views)?;
        let is_stream = self.input.samples().is_none();
        check_partners(&views, is_stream)?;
        views.iter().flat_map(|view| &view.images).try_for_each(|transforms| check_seen(transforms))?;
        self.check_lanes(partition, is_stream)?;
        let chosen = self.chosen(partition)?;
        let bucketed = self.bucketed(&views, partition, chosen.as_ref(), threads)?;
        let planned = self.planned(&views, partition, chosen.as_ref(), bucketed.is_some())?;
        // Ranks with other numbers of batches would have other shapes.
        self.equal_batches |= planned.is_some();
        let largest = match (&bucketed, &planned) {
            (Some(bucketed), _) => Some(bucketed.most()),
            (None, planned) => planned.as_ref().and_then(Planned::most),
        };
        let (outputs, normalize) = self.outputs(&views, largest)?;
        self.check_outputs(&views, &outputs, normalize)?;
        let positions = chosen.as_ref().map(|chosen| chosen.positions);
        let sampler = match &bucketed {
            Some(bucketed) => bucketed.sampler(partition, positions),
            None => self.order(partition, is_stream, positions)?,
        };
        let target_bytes = self.targets.as_ref().map_or(self.options.target_bytes, TargetSpec::max_bytes);
        let options = RunOptions { threads, target_bytes, fields: self.fields.len(), outputs, ..self.options.clone() };
        let most_images = match (&bucketed, &planned) {
            (Some(bucketed), _) => Some(bucketed.most_images()),
            (None, planned) => planned.as_ref().map(Planned::most_images),
        };
        let options = RunOptions { batch_size: most_images.unwrap_or(options.batch_size), ..options };
        let all = all_positions(&sampler, self.limit);
        let batch_images = match most_images {
            Some(most) => most,
            None => self.batch_images(&options, all, is_stream)?,
        };
        let options = Arc::new(RunOptions { batch_images, entry_points: self.entry_points.open()?, ..options });
        let sanitize = self.sanitize && !self.fields.is_empty();
        let recipes = Arc::new(Recipes::new(
            self.seed,
            views,
            self.opening,
            self.planner,
            sanitize,
            bucketed.as_ref().map(|bucketed| bucketed.buckets.clone()),
        ));
        let cached = |cache| Cache::open(cache, &recipes, options.accept_truncated, is_stream);
        let cache = self.cache.as_ref().map(cached).transpose()?;
        let setup = Setup {
            fingerprint: OnceLock::new(),
            has_labels: self.input.has_labels(),
            input: self.input,
            shuffle: self.shuffle,
            sampler,
            chosen: chosen.map(Arc::new),
            bucketed: bucketed.map(Arc::new),
            planned: planned.map(Arc::new),
            recipes,
            normalize,
            limit: self.limit,
            lanes: self.lanes,
            targets: self.targets,
            fields: self.fields.into(),
            mix: self.mix,
            options,
            policy: self.policy,
            cache: cache.map(Arc::new),
        };
        let pipeline = |(&device, &partition): (&Device, &Partition)| {
            let setup = Setup { sampler: setup.sampler.partition(partition), ..setup.clone() };
            let backend = open(device, &setup.options, normalize)?;
            let memory = memory(&setup, self.cache.as_ref(), backend.device_bytes());
            let (setup, backend) = (Arc::new(setup), Arc::new(backend));
            let _kept = OfProcess::new((Arc::clone(&setup), Arc::clone(&backend)));
            Ok(Pipeline { setup, backend, _kept, memory, device, images: PhantomData })
        };
        devices.iter().zip(&partitions).map(pipeline).collect()
    }

    /// The values of images as they are decoded, if they are not RGB of 8 bits.
    pub(super) fn values(&self) -> Result<Option<PixelValues>> {
        let refused =
            |parameter, expected: &str, got: &str| Err(Error::parameter("pipeline", parameter, expected, got));
        if self.max_value.is_some_and(|max| !(max > 0.0 && max.is_finite())) {
            return refused("max_value", "a finite number above 0", "another");
        }
        let values = match (self.pixels, &self.input) {
            (Pixels::Own, Input::Stream(_)) => {
                return refused("pixels", "rgb, or the kind of all images such as u16x1, for a stream", "own");
            }
            (Pixels::Own, Input::DataSet(source)) if source.is_empty() => None,
            (Pixels::Own, Input::DataSet(source)) => {
                let mut first = Sample::default();
                source.read(0, &ReadRequest::IMAGE.or_parts(true), &mut first)?;
                let failed = |error: Error| Error::Sample {
                    index: 0,
                    name: source.name(0).into_owned(),
                    source: Box::new(error),
                };
                let header = self.opening.header(first.image(), u64::MAX).map_err(failed)?;
                self.pixels.values_of(&header, self.max_value)
            }
            _ => self.pixels.values(self.max_value),
        };
        let Some(values) = values else {
            let none = self.max_value.is_none_or(|max| max == 255.0);
            return if none { Ok(None) } else { refused("max_value", "none, or 255, for RGB of 8 bits", "another") };
        };
        values.check_max()?;
        if self.elements.channels != 3 {
            return refused("channels", "that of the pixels: select_channels takes some of them", "another");
        }
        if self.planner.strategy == Strategy::Composed {
            return refused("strategy", "fused or sequential for images that are not RGB", "composed");
        }
        if self.cache.is_some() {
            return refused("cache", "none for images that are not RGB", "one");
        }
        if self.opening.draft_size().is_some() {
            return refused("draft and thumbnail", "none for images that are not RGB", "one");
        }
        Ok(Some(values))
    }

    fn check_lanes(&self, partition: Partition, is_stream: bool) -> Result<()> {
        let Some(lanes) = self.lanes else { return Ok(()) };
        if !is_stream {
            return Err(Error::parameter("pipeline", "lanes", "given for a stream", "given for a data set"));
        }
        let ranks = partition.world_size();
        if (ranks..=MAX_LANES).contains(&lanes) {
            return Ok(());
        }
        Err(Error::parameter("pipeline", "lanes", format!("{ranks}, the number of ranks, to {MAX_LANES}"), lanes))
    }

    /// Splits the builder's partition into one for each device.
    fn partitions(&self, devices: usize) -> Result<Vec<Partition>> {
        let (rank, world_size) = (self.partition.rank(), self.partition.world_size());
        let too_many = || Error::parameter("pipeline", "devices", "fewer than 2^32 of all ranks", devices);
        let devices = u32::try_from(devices).map_err(|_| too_many())?;
        let all = world_size.checked_mul(devices).ok_or_else(too_many)?;
        (0..devices).map(|i| Partition::new(rank * devices + i, all)).collect()
    }

    /// Checks each parameter by itself.
    fn check_options(&self, threads: usize) -> Result<()> {
        let within = |parameter, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Error::parameter("pipeline", parameter, format!("{least} to {most}"), value))
        };
        within("threads", threads, 0, MAX_THREADS)?;
        within("prefetch", self.options.prefetch, 1, 1 << 20)?;
        within("batch_size", self.options.batch_size, 1, 1 << 20)?;
        if self.planner.max_px == 0 {
            return Err(Error::parameter("pipeline", "max_pixels", "1 or more", 0));
        }
        let share = self.options.hardware_share;
        if !(0.0..=1.0).contains(&share) {
            return Err(Error::parameter("pipeline", "hardware_share", "0 to 1", share));
        }
        if self.options.pin_batches.is_some() && self.options.batch_memory.is_some() {
            let expected = "none with pin_batches, which pins the pipeline's own memory";
            return Err(Error::parameter("pipeline", "batch_memory", expected, "both"));
        }
        let decoder = self.options.jpeg_decoder;
        if self.options.gpu_direct && !matches!(decoder, JpegDecoder::Auto | JpegDecoder::Device) {
            let expected = "auto or device with gpu_direct, as only these decode what the GPU has read";
            return Err(Error::parameter("pipeline", "jpeg_decoder", expected, format!("{decoder:?}").to_lowercase()));
        }
        self.policy.max_bad.map_or(Ok(()), BadLimit::check)?;
        if self.planner.values.is_none() && !matches!(self.elements.channels, 1 | 3) {
            return Err(Error::parameter("pipeline", "channels", "1 or 3", self.elements.channels));
        }
        if let Some(targets) = &self.targets {
            targets.check()?;
            if let (Some(field), Input::DataSet(source)) = (&targets.field, &self.input) {
                source.check_field(field)?;
            }
            targets.check_labels(self.input.has_labels(), self.input.classes().len())?;
        }
        Ok(())
    }

    /// Checks what the settings ask of the views together.
    fn check_outputs(&self, views: &[ViewTransforms], outputs: &[OutputForm], normalize: Normalization) -> Result<()> {
        if self.shapes != Shapes::One {
            self.check_shapes(views)?;
        }
        if let Some(mix) = &self.mix {
            mix.check()?;
            mix.check_targets(self.targets.as_ref())?;
            if !matches!(outputs, [OutputForm { times: 1, .. }]) {
                return Err(Error::parameter("mix", "views", "one image of each sample", "several views"));
            }
        }
        if self.elements.channels == 1 && self.planner.values.is_none() { check_gray(normalize) } else { Ok(()) }
    }

    /// Checks that the source can have the fields, and that the other settings can be had with fields.
    fn check_fields(&self, views: &[ViewTransforms]) -> Result<()> {
        let Some(first) = self.fields.first() else { return Ok(()) };
        check_following(views.iter().flat_map(|view| &view.images).flatten())?;
        if let Some((i, twice)) = self.fields.iter().enumerate().find(|(i, name)| self.fields[..*i].contains(name)) {
            return Err(Error::parameter(
                "pipeline",
                "fields",
                "each field once",
                format!("{twice} again, as field {i}"),
            ));
        }
        if self.mix.is_some() {
            let expected = "none with fields: mixed images have the objects of two. random_mix_up joins objects too";
            return Err(Error::parameter("pipeline", "mix", expected, format!("a mix, and the field {first}")));
        }
        match &self.input {
            Input::DataSet(source) => self.fields.iter().try_for_each(|name| source.check_field(name)),
            Input::Stream(_) => Ok(()),
        }
    }

    /// Checks the settings that a batch with images of different sizes cannot have, and its own.
    fn check_shapes(&self, views: &[ViewTransforms]) -> Result<()> {
        let build = if self.shapes == Shapes::Each { "build_ragged" } else { "build_padded" };
        let refused = |parameter, expected: &str, got| Err(Error::parameter(build, parameter, expected, got));
        if let Shapes::Padded(divisor) = self.shapes
            && !(1..=MAX_DIVISOR).contains(&divisor)
        {
            return Err(Error::parameter(build, "divisor", format!("1 to {MAX_DIVISOR}"), divisor));
        }
        if views.iter().flat_map(ViewTransforms::all).count() != 1 {
            return refused("views", "one image of each sample", "several");
        }
        if self.mix.is_some() {
            return refused("mix", "none: images that are mixed have one size", "a mix");
        }
        if self.shapes == Shapes::Each && self.policy.last == LastBatch::Pad {
            return refused("last_batch", "keep or drop: no shape is to be kept", "pad");
        }
        Ok(())
    }

    /// The sampler's choice of samples; `None` if an epoch has each sample once.
    fn chosen(&self, partition: Partition) -> Result<Option<Chosen>> {
        let Some(sampler) = &self.sampler else { return Ok(None) };
        match &self.input {
            Input::DataSet(source) => sampler.prepare(&**source, partition, self.options.batch_size).map(Some),
            Input::Stream(_) => Err(Error::Unsupported {
                feature: "a sampler over a stream".to_owned(),
                remedy: "a stream's samples are known when they come: use a source of random access".to_owned(),
            }),
        }
    }

    /// The buckets of the samples; `None` without buckets.
    fn bucketed(
        &self,
        views: &[ViewTransforms],
        partition: Partition,
        chosen: Option<&Chosen>,
        threads: usize,
    ) -> Result<Option<Bucketed>> {
        let refused =
            |parameter, expected: &str, got: &str| Err(Error::parameter("pipeline", parameter, expected, got));
        let Some(buckets) = &self.buckets else {
            return if self.unit.is_none() { Ok(None) } else { refused("unit", "none without buckets", "one") };
        };
        let Input::DataSet(source) = &self.input else {
            return Err(Error::Unsupported {
                feature: "buckets of a stream".to_owned(),
                remedy: "the sizes of a stream's images are known when they come: use a source of random access"
                    .to_owned(),
            });
        };
        if self.shapes != Shapes::One {
            return refused(
                "buckets",
                "none: batches have one size with build(), and images sizes of their own here",
                "some",
            );
        }
        if self.policy.on_error == OnError::Skip {
            return refused("on_error", "fail or substitute with buckets, which give all ranks equal batches", "skip");
        }
        if self.shares != 1 {
            return refused("shares", "1 with buckets", "several");
        }
        if self.opening.thumbnail.is_some() {
            return refused("thumbnail", "none with buckets", "one");
        }
        if self.cache.is_some() {
            return refused("cache", "none with buckets", "one");
        }
        check_bucket_crop(views)?;
        let sizes = match &self.image_sizes {
            Some(sizes) => Arc::clone(sizes),
            None => Arc::new(match &self.sizes_file {
                Some(file) => ImageSizes::scan_kept(&**source, self.opening.orientation, threads.max(1), file)?,
                None => ImageSizes::scan(&**source, self.opening.orientation, threads.max(1))?,
            }),
        };
        let options = UnitOptions {
            batch_size: self.options.batch_size,
            last: self.policy.last,
            unit: self.unit,
            world_size: partition.world_size(),
        };
        Bucketed::new(buckets.clone(), sizes, &**source, chosen, &options).map(Some)
    }

    /// The shapes of batches by their places in an epoch; `None` if places do not decide.
    fn planned(
        &self,
        views: &[ViewTransforms],
        partition: Partition,
        chosen: Option<&Chosen>,
        has_buckets: bool,
    ) -> Result<Option<Planned>> {
        let refused =
            |parameter, expected: &str, got: &str| Err(Error::parameter("pipeline", parameter, expected, got));
        let name = match (&self.sizes, &self.sequences) {
            (None, None) => return Ok(None),
            (Some(_), None) => "sizes",
            (None, Some(_)) => "sequences",
            (Some(_), Some(_)) => return refused("sequences", "none with sizes", "both"),
        };
        if has_buckets {
            return refused(name, "none with buckets, which have sizes of their own", "both");
        }
        let samples = chosen.map(|chosen| chosen.positions).or(self.input.samples());
        let Some(samples) = samples else {
            return Err(Error::Unsupported {
                feature: format!("{name} over a stream"),
                remedy: "the ranks of a stream do not have equally many batches: use a source of random access"
                    .to_owned(),
            });
        };
        if self.policy.on_error == OnError::Skip {
            return refused("on_error", "fail or substitute where batches have shapes of their own", "skip");
        }
        if self.policy.last == LastBatch::Pad {
            return refused("last_batch", "keep or drop where batches have shapes of their own", "pad");
        }
        let drops_last = self.policy.last == LastBatch::Drop;
        if let Some(budget) = &self.sequences {
            if self.shapes != Shapes::Each {
                return refused(
                    "sequences",
                    "with build_ragged, as images of a batch have other sizes",
                    "another build",
                );
            }
            let samples = samples.min(self.limit.saturating_mul(partition.world_size().into()));
            return Planned::sequences(budget, self.seed, samples, partition.world_size(), drops_last).map(Some);
        }
        if self.shapes != Shapes::One {
            return refused("sizes", "with build, as all images of a batch have one size", "another build");
        }
        if self.cache.is_some() {
            return refused("cache", "none with sizes that change", "one");
        }
        check_bucket_crop(views)?;
        let schedule = self.sizes.clone();
        Ok(schedule.map(|schedule| Planned::sizes(schedule, self.seed, self.options.batch_size, drops_last)))
    }

    /// Checks the operations of all views. Returns the views' outputs, and the normalization, which all views share.
    /// `largest`: the largest batches, if each has a size of its own.
    fn outputs(&self, views: &[ViewTransforms], largest: Option<Largest>) -> Result<(Vec<OutputForm>, Normalization)> {
        let (mut outputs, mut shared) = (Vec::new(), None);
        let values = self.planner.values;
        for view in views {
            let (mut size, mut elements) = (None, self.elements);
            for transforms in &view.images {
                let Ends { size: own, normalize, pixels } =
                    check_ops(transforms, self.stored_size(), values.unwrap_or(PixelValues::RGB8))?;
                elements = self.elements.of_pixels(&pixels, normalize, values.is_some())?;
                let own = if self.shapes != Shapes::One || largest.is_some() {
                    None
                } else {
                    Some(one_size("pipeline", own)?)
                };
                if *shared.get_or_insert(normalize) != normalize {
                    let expected = "one for all views: add it once, after views";
                    return Err(Error::parameter("pipeline", "normalize", expected, "several"));
                }
                size = own;
            }
            let times = view.times * view.images.len();
            let padded_to = if let Shapes::Padded(divisor) = self.shapes { Some(divisor) } else { None };
            outputs.push(OutputForm { size, largest, padded_to, times, elements });
        }
        if outputs.iter().any(|output: &OutputForm| output.elements != outputs[0].elements) {
            return Err(Error::parameter("pipeline", "select_channels", "the same number in all views", "another"));
        }
        check_steps(views.iter().flat_map(ViewTransforms::all).flatten())?;
        Ok((outputs, shared.flatten()))
    }

    /// The size of every image before its first operation, if the source knows that all have it.
    pub(super) fn stored_size(&self) -> Option<Size> {
        match &self.input {
            Input::DataSet(source) if self.opening.thumbnail.is_none() => source.image_size(),
            Input::DataSet(_) | Input::Stream(_) => None,
        }
    }

    /// The order of an epoch. `positions`: its length, if a sampler decides it.
    fn order(&self, partition: Partition, is_stream: bool, positions: Option<u64>) -> Result<ShardedOrder> {
        // A stream's order has no end, and the stream shuffles by itself.
        let len = positions.or(self.input.samples()).unwrap_or(u64::MAX);
        let on_error = self.policy.on_error;
        if len == 0 {
            return Err(Error::parameter("pipeline", "source", "one that has samples", "a source without any"));
        }
        if is_stream && (self.equal_batches || on_error == OnError::Substitute) {
            let feature = if self.equal_batches { "equal_batches" } else { "OnError::Substitute" };
            return Err(Error::Unsupported {
                feature: format!("{feature} over a stream"),
                remedy: "a stream's samples are known when they come: use a source of random access".to_owned(),
            });
        }
        // A sampler shuffles its choice itself.
        let shuffled = self.shuffle && !is_stream && positions.is_none();
        if self.shares == 0 {
            return Err(Error::parameter("pipeline", "shares", "1 or more", 0));
        }
        if self.shares > 1 && !shuffled {
            let got = match (is_stream, positions) {
                (true, _) => "a stream",
                (_, Some(_)) => "a sampler, which chooses anew each epoch",
                _ => "an order that is not shuffled",
            };
            return Err(Error::parameter("pipeline", "shares", "1, or a shuffled order of all samples", got));
        }
        let sampler = if shuffled {
            ShardedOrder::shuffled(len, self.seed).shares(self.shares)
        } else {
            ShardedOrder::sequential(len)
        };
        let sampler = sampler.partition(partition);
        match (self.equal_batches, on_error, self.policy.last) {
            (false, ..) => Ok(sampler),
            (true, OnError::Skip, _) => {
                Err(Error::parameter("pipeline", "on_error", "fail or substitute with even", "skip"))
            }
            (true, _, LastBatch::Drop) => Ok(sampler.equal_batches(EqualBatches::Cut)),
            (true, ..) => Ok(sampler.equal_batches(EqualBatches::Padded)),
        }
    }

    /// The most images of a batch, in an epoch with `positions` positions.
    fn batch_images(&self, options: &RunOptions, positions: u64, is_stream: bool) -> Result<usize> {
        let batch_size = options.batch_size as u64;
        if self.policy.last == LastBatch::Drop && !is_stream && positions < batch_size {
            let expected = format!("at most {positions}, the samples of an epoch, where a last batch is dropped");
            return Err(Error::parameter("pipeline", "batch_size", expected, batch_size));
        }
        let images = if self.policy.last == LastBatch::Pad { batch_size } else { batch_size.min(positions) };
        // Images of different sizes take memory when they come: hardly any has the largest size.
        let sample_bytes =
            if options.is_ragged() { options.target_bytes } else { options.sample_bytes(self.planner.max_px) };
        let batch_bytes = images.saturating_mul(sample_bytes);
        if batch_bytes > MAX_BATCH_BYTES {
            return Err(Error::Limits {
                what: "a batch in bytes",
                got: batch_bytes,
                limit: MAX_BATCH_BYTES,
                remedy: "use a smaller batch_size or image",
            });
        }
        Ok(images as usize)
    }
}

/// The transforms of each view: its own, between the builder's first and last ones.
fn settle_views(
    ops: Vec<Transform>,
    views: Option<(usize, Vec<View>)>,
    elements: PixelForm,
    is_rgb: bool,
) -> Result<Vec<ViewTransforms>> {
    let mut all = match views {
        None => vec![ViewTransforms { images: vec![ops], times: 1 }],
        Some((_, views)) if views.is_empty() => {
            return Err(Error::parameter("pipeline", "views", "at least one view", "none"));
        }
        Some((first, views)) => {
            let (first, last) = ops.split_at(first);
            views.iter().map(|view| view.between(first, last)).collect::<Result<_>>()?
        }
    };
    if elements.channels == 1 && is_rgb {
        all.iter_mut().flat_map(|view| &mut view.images).for_each(end_gray);
    }
    Ok(all)
}

/// Checks the number of samples that transforms join in one image.
fn check_partners(views: &[ViewTransforms], is_stream: bool) -> Result<()> {
    let images = most_images(views);
    if images > 1 && is_stream {
        return Err(Error::Unsupported {
            feature: "joining samples of a stream".to_owned(),
            remedy: "use a source of random access".to_owned(),
        });
    }
    if images > MAX_IMAGES {
        let expected = format!("such that at most {MAX_IMAGES} samples are joined in one image");
        return Err(Error::parameter("pipeline", "operations", expected, images));
    }
    Ok(())
}

/// Checks that each image ends with the size of its bucket.
fn check_bucket_crop(views: &[ViewTransforms]) -> Result<()> {
    for transforms in views.iter().flat_map(|view| &view.images) {
        let is_crop =
            |transform: &Transform| matches!(transform, Transform::BucketCrop(_) | Transform::RandomResizedCrop(_));
        let Some(at) = transforms.iter().rposition(is_crop) else {
            let expected = "with bucket_crop or random_resized_crop, which give each image the size of its batch";
            return Err(Error::parameter("buckets", "operations", expected, "none"));
        };
        let changes = |transform: &&Transform| transform.size_effect() != SizeEffect::Keeps;
        if let Some(after) = transforms[at + 1..].iter().find(changes) {
            let expected = "those that keep the size after bucket_crop or random_resized_crop";
            return Err(Error::parameter("buckets", "operations", expected, after.name()));
        }
    }
    Ok(())
}

/// Upper bounds of the memory that a pipeline takes.
fn memory(setup: &Setup, cache: Option<&ImageCache>, device_bytes: u64) -> MemoryBound {
    let (options, max_px) = (&setup.options, setup.recipes.planner.max_px);
    let images_bytes = options.batch_bytes(max_px);
    // A wide image and a high one, both small, may make a padded batch of the largest size.
    let batch_bytes = if options.is_padded() { images_bytes.saturating_add(MAX_BATCH_BYTES) } else { images_bytes };
    // Without worker threads the consumer's thread does their work.
    let working = options.threads.max(1) as u64;
    // The image for the cache is made and read in addition to the other buffers.
    let kept_bytes = if cache.is_some() { KEPT_PIXEL_BYTES } else { 0 };
    // With several images of a sample, the decoded image must stay as it is while each of them is made.
    let buffers = if options.images_of_a_sample() > 1 { 3 } else { 2 };
    // The encoded bytes of other samples are kept while a sample is worked on, and so are their images, as they are
    // made.
    let (encoded, others) = (working.saturating_mul(setup.recipes.images), setup.recipes.images - 1);
    let image_bytes = buffers * PIXEL_BYTES + COEFFICIENT_BYTES + kept_bytes + others * PART_PIXEL_BYTES;
    let len = setup.input.samples().unwrap_or(u64::MAX);
    let fields_bytes = options.pixels_of_a_sample(max_px).saturating_mul(MASK_PIXEL_BYTES * setup.fields.len() as u64);
    let fields_bytes = fields_bytes.saturating_mul(options.batch_images as u64);
    let index_bytes = if u32::try_from(len).is_ok() { 4 } else { 8 };
    MemoryBound {
        spare_bytes: options.all_spare_bytes(device_bytes > 0),
        batches_bytes: batch_bytes.saturating_mul(options.batches_at_a_time() as u64),
        batch_bytes,
        fields_bytes: fields_bytes.saturating_mul(options.batches_at_a_time() as u64),
        images_bytes: (image_bytes * working).saturating_mul(max_px),
        encoded_bytes: MAX_ENCODED_BYTES * encoded
            + setup.input.memory_bytes().saturating_mul(setup.lanes_of_a_rank())
            + if device_bytes > 0 && options.gpu_direct { KNOWN_BYTES } else { 0 },
        order_bytes: match (&setup.chosen, &setup.bucketed) {
            (chosen, Some(bucketed)) => {
                bucketed.order_bytes().saturating_add(chosen.as_ref().map_or(0, |chosen| chosen.order_bytes()))
            }
            (Some(chosen), None) => chosen.order_bytes(),
            (None, None) if setup.shuffle && setup.input.samples().is_some() => len.saturating_mul(index_bytes),
            (None, None) => 0,
        },
        cache_bytes: cache.map_or(0, ImageCache::memory_bytes),
        entry_points_bytes: options.entry_points.as_ref().map_or(0, |points| points.limit_bytes()),
        device_bytes,
        device_cache_bytes: if device_bytes > 0 { options.device_cache_bytes } else { 0 },
    }
}
