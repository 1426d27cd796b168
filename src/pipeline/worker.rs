//! A thread's work on samples: reads, draws recipes, runs them, applies policies, and makes batches.

use super::assembly::{Delivered, Made, MovedFields, Parts, Slot, deliver, fields_of_views};
use super::cache::Loaded;
use super::context::Context;
use super::partners::{LoadedPartner, WorkerPartners};
use super::policy::{LastBatch, OnError, SUBSTITUTES};
use super::recipes::Drawn;
use super::setup::Setup;
use crate::apply::field_mover::{FieldMover, UnmovedMask};
use crate::apply::opening::Stored;
use crate::backend::{
    AnyBackend, AnyBatch, AnyWorker, Decoded, End, Given, PlannedMask, PlannedSample, Ran, WorkStats,
};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::ops::Op;
use crate::ops::part::{Loaded as LoadedPart, LoadedImage};
use crate::os::memory;
use crate::raster::Size;
use crate::rng::Pick;
use crate::shapes::BatchShape;
use crate::targets::Annotation;
use crate::tensor::Annotations;
use crate::trace::{Activity, Span};
use std::sync::Arc;
use std::time::Instant;

/// A thread at work on an epoch.
pub(super) struct Worker<'a> {
    context: &'a Context,
    backend: &'a AnyBackend,
    own: &'a mut ThreadMemory,
}

/// The decoders and memory of a thread, kept from one position to the next.
#[derive(Default)]
pub(super) struct ThreadMemory {
    /// The back end's, made when first needed.
    pub(super) backend: Option<AnyWorker>,
    /// For masks.
    follower: FieldMover,
}

/// A sample whose images are in their places.
struct Prepared {
    annotation: Annotation,
    drawn: Drawn,
    moved: MovedFields,
}

/// The place that a sample is written to.
#[derive(Clone, Copy)]
pub(super) struct Destination<'a> {
    pub(super) batch: &'a AnyBatch,
    pub(super) place: usize,
    /// The batch's shape, if batches have shapes of their own.
    pub(super) shape: Option<BatchShape>,
    /// Whether part of the work may be left for the whole batch.
    pub(super) later: bool,
}

impl<'a> Worker<'a> {
    /// A worker for the calling thread.
    pub(super) fn new(context: &'a Context, backend: &'a AnyBackend, own: &'a mut ThreadMemory) -> Self {
        Self { context, backend, own }
    }

    /// Drops state that a panic may have left inconsistent.
    pub(super) fn reset(&mut self) {
        *self.own = ThreadMemory::default();
    }

    /// The back end's decoders and memory for this thread.
    pub(super) fn own(&mut self) -> Result<&mut AnyWorker> {
        Ok(match &mut self.own.backend {
            Some(own) => own,
            none => none.insert(self.backend.worker()?),
        })
    }

    /// Works on one sample, or on its substitute.
    pub(super) fn position(&mut self, pick: Pick, to: &Destination<'_>) -> Slot {
        match self.sample(pick, to) {
            Ok(Prepared { annotation, drawn, moved }) => {
                self.context.bad.good();
                Slot::Done { drawn, annotation, moved, instead_of: None }
            }
            Err(_) if self.context.ended_before(pick.index) => Slot::Ended,
            Err(error) => self.instead(self.context.picked(pick), error, to),
        }
    }

    /// Applies the policy to a sample that could not be used.
    pub(super) fn instead(&mut self, pick: Pick, error: Error, to: &Destination<'_>) -> Slot {
        let (context, index) = (self.context, pick.index);
        let policy = context.setup.policy.on_error;
        if policy == OnError::Fail || !error.is_bad_sample() {
            return Slot::Failed(Box::new(context.sample_error(index, error)));
        }
        let error = match context.bad.record(index, || context.name(index), error) {
            Ok(error) => error,
            Err(error) => return Slot::Failed(Box::new(error)),
        };
        if policy == OnError::Skip {
            return Slot::Skipped(Box::new(context.sample_error(index, error)));
        }
        let now = Destination { later: false, ..*to };
        let mut tried = 0;
        while tried < SUBSTITUTES
            && let Some(other) = context.setup.substitute(context.epoch, index, tried)
        {
            let pick = Pick { index: other, ..pick };
            match self.sample(pick, &now) {
                Ok(Prepared { annotation, drawn, moved }) => {
                    let drawn = Drawn { instead_of: Some(index), ..drawn };
                    let instead_of = Some(Box::new(context.sample_error(index, error)));
                    return Slot::Done { drawn, annotation, moved, instead_of };
                }
                Err(error) if error.is_bad_sample() => tried += 1,
                Err(error) => return Slot::Failed(Box::new(context.sample_error(other, error))),
            }
        }
        let error = Error::NoSubstitute { tried, source: Box::new(error) };
        Slot::Failed(Box::new(context.sample_error(index, error)))
    }

    /// Reads one sample and runs its recipes. The images go to its place in the batch, and what else is known of the
    /// sample is returned.
    fn sample(&mut self, pick: Pick, to: &Destination<'_>) -> Result<Prepared> {
        let index = pick.index;
        let (annotation, image) = match self.kept_on_device(index).or_else(|| self.in_file(index)) {
            Some(image) => (self.context.read_annotation(index)?, image),
            None => self.load(index)?,
        };
        if let Some(bucketed) = &self.context.setup.bucketed {
            bucketed.check_size(index, self.context.setup.recipes.upright(image.stored)?)?;
        }
        self.run(self.context.picked(pick), annotation, image, to)
    }

    /// Reads another sample for a recipe.
    pub(super) fn partner(&mut self, index: u64) -> Result<LoadedPartner> {
        let context = self.context;
        let loaded = self.load(index).and_then(|(annotation, image)| {
            let annotation = context.setup.recipes.fit(annotation, image.stored, &mut self.own.follower)?;
            Ok(LoadedPartner { index, annotation, image })
        });
        loaded.map_err(|error| context.sample_error(index, error))
    }

    /// The settings of the pipeline.
    pub(super) fn setup(&self) -> &'a Setup {
        &self.context.setup
    }

    /// The image of a sample whose data a device has kept since an earlier epoch.
    fn kept_on_device(&self, index: u64) -> Option<Loaded> {
        let kept = self.backend.cached(index)?;
        let header = kept.header.clone();
        Some(Loaded { stored: Stored::from(&header), header, image: Given::OnDevice(kept), cached_ops: None })
    }

    /// The image of a sample that a device reads.
    fn in_file(&self, index: u64) -> Option<Loaded> {
        let image = self.backend.in_file(index, &self.context.reader)?;
        let (header, read_bytes) = (image.known.header.clone(), image.len_bytes());
        self.context.counters.add(|stats| stats.read_bytes += read_bytes);
        let (stored, image) = (Stored::from(&header), Given::InFile(Box::new(image)));
        Some(Loaded { stored, header, image, cached_ops: None })
    }

    /// Reads a sample: its annotation, and its image from the cache or the source.
    fn load(&mut self, index: u64) -> Result<(Annotation, Loaded)> {
        let (context, backend) = (self.context, self.backend);
        let (counters, cache, recipes) = (&context.counters, context.setup.cache.as_ref(), &context.setup.recipes);
        let own = self.own()?;
        let mut buffer = backend.buffer(own);
        if let Some(kept) = cache.and_then(|cache| cache.known(counters, index, &mut buffer)) {
            backend.give_buffer(own, buffer);
            return Ok((context.read_annotation(index)?, kept));
        }
        let start = Instant::now();
        let reading = Span::enter(Activity::Read);
        let (image, annotation) = context.read(index, buffer)?;
        drop(reading);
        let (read_bytes, read) = (image.bytes().len() as u64, start.elapsed());
        let start = Instant::now();
        let probing = Span::enter(Activity::Header);
        let header = recipes.header(image.input());
        drop(probing);
        counters.add(|stats| {
            stats.read_bytes += read_bytes;
            stats.read += read;
            stats.decode += start.elapsed();
        });
        let header = header?;
        let becomes_rgb = context.setup.options.values.is_none();
        if becomes_rgb && (header.has_more_bits() || header.has_alpha()) {
            counters.add(|stats| {
                stats.sixteen_bits += u64::from(header.has_more_bits());
                stats.alpha += u64::from(header.has_alpha());
            });
        }
        let kept = cache.map(|cache| {
            cache.image(counters, index, image.input(), &header, |ops, out| {
                let plan = recipes.planner.plan_one(ops, header.size)?;
                let job = context.setup.options.job(image.input(), &header);
                own.host.run_to_rgb(&job, &[plan], [out])
            })
        });
        let loaded = match kept.transpose()?.flatten() {
            Some(kept) => {
                backend.give_buffer(own, image.into_buffer());
                kept
            }
            None => Loaded { image: Given::Held(image), stored: Stored::from(&header), header, cached_ops: None },
        };
        Ok((annotation, loaded))
    }

    /// Makes the images of other samples in a recipe, and moves their fields.
    fn make_parts(&mut self, recipe: &mut [Op], partners: &[LoadedPartner]) -> Result<()> {
        for part in recipe.iter_mut().flat_map(Op::parts_mut) {
            self.make_parts(&mut part.ops, partners)?;
            let partner = partners.iter().find(|partner| partner.index == part.sample);
            let missing = || Error::Panic { message: "a partner of the sample was not read".to_owned() };
            let made = self.make_part(&part.ops, partner.ok_or_else(missing)?);
            part.loaded = made.map_err(|error| self.context.sample_error(part.sample, error))?;
        }
        Ok(())
    }

    /// Makes the image of another sample after operations, and moves its fields.
    fn make_part(&mut self, ops: &[Op], partner: &LoadedPartner) -> Result<LoadedPart> {
        let (counters, planner) = (&self.context.counters, &self.context.setup.recipes.planner);
        let LoadedPartner { annotation, image: Loaded { image, header, stored, cached_ops }, .. } = partner;
        let start = Instant::now();
        let follow = |fields: &Arc<Fields>| self.own.follower.follow((**fields).clone(), stored.size, ops, planner);
        let fields = annotation.fields.as_ref().map(follow).transpose()?.map(|(fields, _)| Arc::new(fields));
        let plan = planner.plan_one(&ops[cached_ops.unwrap_or(0)..], header.size)?;
        let size = plan.size;
        let len = 3 * size.area_px() as usize;
        let mut rgb = memory::zeros(len, "the image of another sample", memory::FEWER_IMAGES)?;
        let augment = start.elapsed();
        let job = self.context.setup.options.job(image.input()?, header);
        let mut work = self.own()?.host.run_to_rgb(&job, &[plan], [&mut rgb[..]])?;
        work.augment += augment;
        counters.add_work(work.counted(*cached_ops));
        Ok(LoadedPart { fields, image: Some(LoadedImage { size, rgb: Arc::new(rgb) }) })
    }

    /// Draws a sample's recipes, and runs of them what has not been run yet. The fields follow the recipes.
    fn run(
        &mut self,
        pick: Pick,
        annotation: Annotation,
        loaded: Loaded,
        &Destination { batch, place, shape, later }: &Destination<'_>,
    ) -> Result<Prepared> {
        let (context, backend, recipes) = (self.context, self.backend, &self.context.setup.recipes);
        let Loaded { image, header, stored, cached_ops } = loaded;
        let (start, draws) = (Instant::now(), Span::enter(Activity::Draw));
        // Those of a sample that could not be used.
        self.own.follower.take_dropped();
        let annotation = recipes.fit(annotation, stored, &mut self.own.follower)?;
        let partners = WorkerPartners::new(self);
        let sample = Drawn::new(pick, stored).in_batch(shape);
        let mut drawn = recipes.draw(context.epoch, sample, &annotation, Some(&partners))?;
        let (partners, reading) = partners.into_loaded();
        if drawn.is_padded {
            context.counters.add(|stats| stats.smaller_than_crop += 1);
        }
        let drawing = start.elapsed().saturating_sub(reading);
        drawn.recipes.iter_mut().try_for_each(|recipe| self.make_parts(recipe, &partners))?;
        let start = Instant::now();
        let (mut moved, unmoved) = match &annotation.fields {
            Some(fields) => self.follow(fields, stored.size, &drawn.recipes)?,
            None => (MovedFields::new(), Vec::new()),
        };
        let mut masks = Vec::with_capacity(unmoved.len());
        for (image, mask) in &unmoved {
            if let Some(field) = context.setup.fields.iter().position(|name| *name == mask.name) {
                let plan = mask.plan(&recipes.planner)?;
                masks.push(PlannedMask { image: *image, field, mask: &mask.mask, plan });
            }
        }
        let plans = recipes.planner.plan(&drawn.recipes, cached_ops.unwrap_or(0), header.size)?;
        context.setup.options.check_sizes(&plans, shape.and_then(BatchShape::size))?;
        drop(draws);
        context.counters.add(|stats| stats.augment += drawing + start.elapsed());
        let own = self.own()?;
        let index = context.is_finite().then_some(pick.index);
        let planned = PlannedSample { place, index, header: &header, plans: &plans, masks: &masks, later };
        match backend.run(own, batch, image, &planned) {
            Ok(Ran { work, masks: made }) => {
                moved.iter_mut().filter(|_| made.len() < masks.len()).for_each(|(fields, _)| fields.drop_masks());
                for (of, mask) in masks.iter().zip(made) {
                    moved[of.image].0.replace_mask(&context.setup.fields[of.field], mask);
                }
                context.counters.add_work(work.counted(cached_ops));
                if !moved.is_empty() {
                    let objects = moved.iter().map(|(fields, _)| fields.objects() as u64).sum::<u64>();
                    let dropped = self.own.follower.take_dropped();
                    context.counters.add(|stats| {
                        stats.objects += objects;
                        stats.dropped_objects += dropped;
                    });
                }
                let drawn = Drawn { approximate: work.approximate, ..sample };
                Ok(Prepared { annotation, drawn, moved })
            }
            Err(error) => {
                // The reasons for leaving an image to the CPU are counted even if the CPU then found it bad.
                let decoded = backend.take_counts(own);
                context.counters.add(|stats| stats.decoded += decoded);
                Err(error)
            }
        }
    }

    /// Moves the fields of a sample through the recipes of its images. Masks that the back end moves are returned as
    /// they are, with the numbers of their images.
    fn follow(
        &mut self,
        fields: &Fields,
        stored: Size,
        recipes: &[Vec<Op>],
    ) -> Result<(MovedFields, Vec<(usize, UnmovedMask)>)> {
        let (planner, follower) = (&self.context.setup.recipes.planner, &mut self.own.follower);
        let (mut moved, mut unmoved) = (MovedFields::new(), Vec::new());
        for (image, recipe) in recipes.iter().enumerate() {
            let (fields, size, masks) = follower.move_except_masks(fields.clone(), stored, recipe, planner)?;
            moved.push((fields, size));
            unmoved.extend(masks.into_iter().map(|mask| (image, mask)));
        }
        Ok((moved, unmoved))
    }

    /// Makes batch number `number` from the workers' results.
    pub(super) fn make(&mut self, number: u64, batch: Option<AnyBatch>, mut slots: Vec<Slot>) -> Result<Made> {
        let (context, backend) = (self.context, self.backend);
        let _batch = Span::of_batch(Activity::Batch, number);
        let setup = &context.setup;
        let Some(mut batch) = batch else {
            // The batch could not be begun.
            let losses = deliver(slots)?.losses;
            return Ok(Made { parts: None, losses });
        };
        let delivered = self.settle(&mut batch, &mut slots).and_then(|()| deliver(slots));
        let delivered = match delivered {
            Ok(delivered) => delivered,
            Err(error) => {
                backend.abandon(batch);
                return Err(error);
            }
        };
        let Delivered { places, mut annotations, mut drawn, mut moved, losses, ended } = delivered;
        let dropped = ended && setup.policy.last == LastBatch::Drop;
        let (Some(last), Some(&last_drawn), false) = (annotations.last(), drawn.last(), dropped) else {
            backend.abandon(batch);
            return Ok(Made { parts: None, losses });
        };
        let filled = drawn.len();
        // Units are padded before their samples are read.
        if setup.policy.last == LastBatch::Pad && context.batches.shape(number).is_none() {
            let last = last.clone();
            annotations.resize(setup.options.batch_size, last);
            drawn.resize(setup.options.batch_size, last_drawn);
            if let Some(last) = moved.last().cloned() {
                moved.resize(setup.options.batch_size, last);
            }
        }
        // Positions that fill up even partitions count as padding too.
        let images = filled - (context.batches.padding_of(number) as usize).min(filled);
        let seen = if setup.recipes.see_annotations { annotations.clone() } else { Vec::new() };
        let mut annotations = Annotations::new(setup.targets.as_ref(), annotations);
        let size = context.batches.shape(number).and_then(BatchShape::size);
        let plan = setup.mix.as_ref().zip(size.or(setup.options.outputs[0].size)).map(|(mix, size)| {
            let key = (setup.recipes.seed, context.epoch, context.batch_of_all_ranks(number));
            mix.plan(key, drawn.len(), size)
        });
        if let Some(plan) = &plan {
            annotations.mix(plan);
        }
        let mixed = plan.as_ref().map(|plan| plan.mixed(drawn.len(), annotations.labels()));
        let padding = drawn.len() - filled;
        let end = End { places: &places, padding, annotations: &annotations, mix: plan.as_ref() };
        let finished = backend.finish(batch, &end)?;
        context.counters.add(|stats| stats.mix += finished.mix);
        let padding = drawn.len() - images;
        let (labels, targets) = annotations.finish(finished.targets);
        let times = setup.options.outputs.iter().map(|output| output.times);
        let fields = fields_of_views(&moved, times, &setup.fields, finished.masks);
        let (images, sizes) = (finished.images, finished.sizes);
        let parts = Parts { images, sizes, labels, drawn, seen, targets, fields, mixed, padding };
        Ok(Made { parts: Some(parts), losses })
    }

    /// Has the back end do the work left for the whole batch, and applies the policy to samples that turn out bad.
    fn settle(&mut self, batch: &mut AnyBatch, slots: &mut [Slot]) -> Result<()> {
        let backend = self.backend;
        let settling = Span::enter(Activity::Settle);
        let settled = backend.settle(self.own()?, batch)?;
        drop(settling);
        self.context.counters.add(|stats| stats.decoded += settled.decoded);
        for place in settled.approximate {
            if let Slot::Done { drawn, .. } = &mut slots[place] {
                drawn.approximate = true;
            }
        }
        for (place, error) in settled.bad {
            if let Slot::Done { drawn, .. } = slots[place] {
                let to = Destination { batch, place, shape: drawn.shape, later: false };
                slots[place] = self.instead(drawn.pick, error, &to);
            }
        }
        Ok(())
    }
}

impl WorkStats {
    /// These counts, where `cached_ops` is set for an image from the cache: without the image, which was counted when
    /// it was cached.
    fn counted(self, cached_ops: Option<usize>) -> Self {
        if cached_ops.is_none() { self } else { Self { decoded: Decoded::default(), ..self } }
    }
}
