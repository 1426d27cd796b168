//! The buckets of a data set, and the epochs that are batched by them.

use super::batches::{Batches, ShapedBatch};
use super::policy::LastBatch;
use super::setup::Setup;
use crate::backend::Largest;
use crate::error::{Error, Result};
use crate::hex::hex;
use crate::order::{EqualBatches, Partition, Remaining, ShardedOrder};
use crate::raster::Size;
use crate::rng::{Domain, SampleRng};
use crate::sampler::{Chosen, Picks};
use crate::shapes::{Assignment, BatchShape, BucketSummary, Buckets, Cut, Fate, Remainder, Units};
use crate::source::{ImageSizes, Source};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Largest number of samples that a message names.
const NAMED: usize = 5;
/// Largest number of samples that are batched by buckets.
const MOST: u64 = u32::MAX as u64;

/// A data set whose images have buckets.
pub(super) struct Bucketed {
    pub(super) buckets: Buckets,
    sizes: Arc<ImageSizes>,
    assignment: Assignment,
    /// Samples of each bucket, as often as an epoch has them; `None` if the sampler draws them anew in each epoch.
    counts: Option<Vec<u64>>,
    /// The samples of each bucket.
    members: Vec<Vec<u32>>,
    cuts: Vec<Cut>,
    batch_sizes: Vec<usize>,
    /// What states compare.
    pub(super) name: String,
}

/// The settings that decide about units.
pub(super) struct UnitOptions {
    pub(super) batch_size: usize,
    pub(super) last: LastBatch,
    /// Number of positions of a unit, if it is given.
    pub(super) unit: Option<u64>,
    pub(super) world_size: u32,
}

impl Bucketed {
    /// Assigns the samples of a source.
    ///
    /// # Errors
    /// [`Error::Parameter`] for buckets, units or sizes that do not fit; [`Error::Unsupported`] if samples would be lost
    /// and that is not allowed.
    pub(super) fn new(
        buckets: Buckets,
        sizes: Arc<ImageSizes>,
        source: &dyn Source,
        chosen: Option<&Chosen>,
        options: &UnitOptions,
    ) -> Result<Self> {
        buckets.validate()?;
        let len = source.len();
        if sizes.len() != len {
            return Err(Error::parameter("buckets", "image_sizes", format!("of {len} images"), sizes.len()));
        }
        if len >= MOST {
            return Err(Error::parameter("buckets", "source", format!("one of fewer than {MOST} samples"), len));
        }
        let ranks = u64::from(options.world_size);
        let batch_size = |size| buckets.batch_size(size, options.batch_size);
        let unit_of = |size| options.unit.unwrap_or(ranks.saturating_mul(batch_size(size) as u64));
        let assignment = buckets.assign((0..len).map(|index| sizes.get(index)), unit_of)?;
        let mut members = vec![Vec::new(); assignment.buckets.len()];
        for index in 0..len {
            if let Fate::Bucket(bucket) = assignment.fate(index) {
                members[usize::from(bucket)].push(index as u32);
            }
        }
        let batch_sizes: Vec<usize> = assignment.buckets.iter().map(|size| batch_size(*size)).collect();
        if let Some(&wrong) = batch_sizes.iter().find(|size| !(1..=1 << 20).contains(*size)) {
            return Err(Error::parameter("buckets", "budget", "one for batches of at most 1048576 images", wrong));
        }
        let remainder = match options.last {
            LastBatch::Drop => Remainder::Dropped,
            LastBatch::Keep => Remainder::Kept,
            LastBatch::Pad => Remainder::Padded,
        };
        let cut = |(size, batch): (&Size, &usize)| {
            let (unit, step) = (unit_of(*size), ranks.saturating_mul(*batch as u64));
            if unit == 0 || unit % step != 0 {
                let expected = format!("a multiple of {step}, the images of {ranks} ranks with {batch} each");
                return Err(Error::parameter("pipeline", "unit", expected, unit));
            }
            Ok(Cut { unit, ranks, remainder })
        };
        let cuts = assignment.buckets.iter().zip(&batch_sizes).map(cut).collect::<Result<Vec<_>>>()?;
        let counts = match chosen {
            None => Some(members.iter().map(|members| members.len() as u64).collect()),
            Some(chosen) => chosen
                .times()
                .map(|times| members.iter().map(|members| members.len() as u64 * u64::from(times)).collect()),
        };
        let mut hash = Sha256::new();
        hash.update(format!("{buckets:?} {}", options.last));
        cuts.iter().for_each(|cut| hash.update(cut.unit.to_le_bytes()));
        if options.last == LastBatch::Keep {
            // A short unit is filled up to a multiple of the number of ranks.
            hash.update(options.world_size.to_le_bytes());
        }
        hash.update(assignment.bytes().collect::<Vec<u8>>());
        let name = hex(&hash.finalize()[..8]);
        let bucketed = Self { buckets, sizes, assignment, counts, members, cuts, batch_sizes, name };
        bucketed.check_losses(source)?;
        Ok(bucketed)
    }

    /// Refuses losses that are not allowed.
    fn check_losses(&self, source: &dyn Source) -> Result<()> {
        if self.buckets.is_lossy() {
            return Ok(());
        }
        let named = |indices: &mut dyn Iterator<Item = u64>| {
            let names: Vec<String> = indices.take(NAMED).map(|index| source.name(index).into_owned()).collect();
            names.join(", ")
        };
        let refused = |feature: String, remedy: &str| Err(Error::Unsupported { feature, remedy: remedy.to_owned() });
        let (unreadable, unfit) = (self.lost(Fate::Unreadable), self.lost(Fate::Unfit));
        if unreadable > 0 {
            let first = self.sizes.bad().first().map(|(_, why)| why.to_string()).unwrap_or_default();
            let names = named(&mut self.indices_of(Fate::Unreadable));
            let feature =
                format!("batches by shape of {unreadable} images whose headers cannot be read ({names}: {first})");
            return refused(feature, "leave them out of the source, or accept that they never come (lossy)");
        }
        if unfit > 0 {
            let names = named(&mut self.indices_of(Fate::Unfit));
            let feature = format!("{unfit} images that go to no bucket ({names})");
            return refused(feature, "add buckets, allow enlarging, or accept that they never come (lossy)");
        }
        let small = |(bucket, count): (usize, &u64)| {
            let cut = self.cuts[bucket];
            (*count > 0 && cut.of(*count).0 == 0).then_some((bucket, *count))
        };
        let counts = self.counts.as_deref().unwrap_or_default();
        let Some((bucket, count)) = counts.iter().enumerate().find_map(small) else { return Ok(()) };
        let names = named(&mut self.members[bucket].iter().map(|index| u64::from(*index)));
        let (size, unit) = (self.assignment.buckets[bucket], self.cuts[bucket].unit);
        let feature = format!(
            "dropping the whole bucket of {size}, {count} images that never fill the {unit} of a batch of all ranks ({names})"
        );
        refused(
            feature,
            "merge small buckets into the nearest (merge, or min-samples=N), keep or pad last batches, or accept that \
             these images never come (lossy)",
        )
    }

    /// The size of the images of a sample's batch; `None` if it has no bucket.
    pub(super) fn size_of(&self, index: u64) -> Option<Size> {
        self.assignment.bucket(index)
    }

    /// The largest batches.
    pub(super) fn most(&self) -> Largest {
        let in_use = || self.assignment.buckets.iter().zip(&self.members).filter(|(_, members)| !members.is_empty());
        let size = in_use().map(|(size, _)| *size).max_by_key(|size| size.area_px()).unwrap_or(Size::new(1, 1));
        let batch = |(size, batch): (&Size, &usize)| size.area_px().saturating_mul(*batch as u64);
        let batch_px = self.assignment.buckets.iter().zip(&self.batch_sizes).map(batch).max().unwrap_or(0);
        Largest { size, batch_px }
    }

    /// The positions of an epoch, which ranks share equally. `chosen`: those of a sampler that draws anew in each epoch.
    pub(super) fn sampler(&self, partition: Partition, chosen: Option<u64>) -> ShardedOrder {
        let positions = self.positions().or(chosen).unwrap_or(0);
        ShardedOrder::sequential(positions).partition(partition).equal_batches(EqualBatches::Cut)
    }

    /// The most images in a batch.
    pub(super) fn most_images(&self) -> usize {
        self.batch_sizes.iter().copied().max().unwrap_or(1)
    }

    /// Checks the size that an image turns out to have.
    ///
    /// # Errors
    /// [`Error::Unfit`] if it is another than that of the header that was read before.
    pub(super) fn check_size(&self, index: u64, found: Size) -> Result<()> {
        match self.sizes.get(index) {
            Some(known) if known != found => {
                let remedy = "read the sizes anew, and say all images' sizes rightly where you give them";
                Err(Error::unfit("buckets", format!("the image has {found} pixels, and had {known} before: {remedy}")))
            }
            _ => Ok(()),
        }
    }

    /// Draws a substitute for a bad sample from its bucket.
    pub(super) fn substitute(&self, seed: u64, epoch: u64, index: u64, attempt: u32) -> Option<u64> {
        let Fate::Bucket(bucket) = self.assignment.fate(index) else { return None };
        let members = &self.members[usize::from(bucket)];
        let others = (members.len() as u64).checked_sub(1).filter(|&n| n > 0)?;
        let own = members.binary_search(&u32::try_from(index).ok()?).ok()? as u64;
        let draw = SampleRng::new(seed, epoch, Domain::Substitute, index).at(attempt).below(others);
        members.get((draw + u64::from(draw >= own)) as usize).map(|&index| index.into())
    }

    /// Number of a rank's batches in every epoch; `None` if it differs from epoch to epoch.
    pub(super) fn batches_of_an_epoch(&self, setup: &Setup) -> Option<u64> {
        self.counts.as_ref()?;
        if setup.limit == u64::MAX {
            return Some(self.summaries().iter().map(|bucket| bucket.steps).sum());
        }
        let rest = setup.rest(0, &[], setup.sampler.own_partition().world_size());
        self.epoch(setup, 0, &rest, 0).ok().map(|(_, batches, _)| batches.count())
    }

    /// Upper bound of the memory of sizes, buckets and an epoch's order, in bytes.
    pub(super) fn order_bytes(&self) -> u64 {
        let (samples, positions) = (self.assignment.len() as u64, self.positions().unwrap_or(0));
        // Size, bucket, place among the bucket's samples, and the epoch's first order; then each sample and its repetition in
        // its bucket, in its unit, and in the rank's own order, in lists that grow by doubling.
        samples * (8 + 2 + 4 + 8) + (samples + positions) * 8 * 4
    }

    /// Number of a rank's positions in an epoch that repeat samples.
    pub(super) fn padding_of(&self, partition: Partition) -> u64 {
        let (rank, ranks) = (u64::from(partition.rank()), u64::from(partition.world_size()));
        let padding = |(cut, count): (&Cut, &u64)| {
            let (_, last, padding) = cut.of(*count);
            (last - padding..last).filter(|position| position % ranks == rank).count() as u64
        };
        self.cuts.iter().zip(self.counts.as_deref().unwrap_or_default()).map(padding).sum()
    }

    /// Number of positions of all ranks in an epoch; `None` if it differs from epoch to epoch.
    pub(super) fn positions(&self) -> Option<u64> {
        Some(self.positions_of(self.counts.as_ref()?))
    }

    fn positions_of(&self, counts: &[u64]) -> u64 {
        let positions = |(cut, count): (&Cut, &u64)| {
            let (units, last, _) = cut.of(*count);
            units.checked_sub(1).map_or(0, |full| full * cut.unit + last)
        };
        self.cuts.iter().zip(counts).map(positions).sum()
    }

    /// The whole epoch's order in units.
    fn units(&self, setup: &Setup, epoch: u64) -> Result<Units<(u32, u32)>> {
        let (seed, shuffle) = (setup.recipes.seed, setup.shuffle);
        let with_shape = |(index, repetition): (u32, u32)| match self.assignment.fate(index.into()) {
            Fate::Bucket(bucket) => Some(((index, repetition), bucket)),
            Fate::Unfit | Fate::Unreadable => None,
        };
        let weights: Vec<u64> = self.assignment.buckets.iter().map(|size| size.area_px()).collect();
        let mut rng = SampleRng::new(seed, epoch, Domain::Units, 0);
        let rng = shuffle.then_some(&mut rng);
        Ok(match &setup.chosen {
            Some(chosen) => {
                let all = ShardedOrder::sequential(chosen.positions).epoch(epoch);
                let Picks(picks) = chosen.picks(seed, shuffle, epoch, &all)?;
                Units::new(picks.into_iter().filter_map(with_shape), &self.cuts, &weights, rng)
            }
            None => {
                let len = self.assignment.len() as u64;
                let order = if shuffle { ShardedOrder::shuffled(len, seed) } else { ShardedOrder::sequential(len) };
                let order = order.order_of(epoch, Remaining::whole(len))?;
                Units::new(
                    order.iter().map(|index| (index as u32, 0)).filter_map(with_shape),
                    &self.cuts,
                    &weights,
                    rng,
                )
            }
        })
    }

    /// Number of positions of all ranks in an epoch.
    ///
    /// # Errors
    /// The errors of the sampler.
    pub(super) fn positions_in(&self, setup: &Setup, epoch: u64) -> Result<u64> {
        match self.positions() {
            Some(positions) => Ok(positions),
            None => Ok(self.units(setup, epoch)?.samples.len() as u64),
        }
    }

    /// A rank's samples in the rest of an epoch, their batches from the rank's position `first` on, and the number of
    /// batches before these.
    ///
    /// # Errors
    /// The errors of the sampler; [`Error::Parameter`] if the ranks cannot share the rest of a unit equally.
    pub(super) fn epoch(
        &self,
        setup: &Setup,
        epoch: u64,
        rest: &Remaining,
        first: u64,
    ) -> Result<(Picks, Batches, u64)> {
        let units = self.units(setup, epoch)?;
        let partition = setup.sampler.own_partition();
        let (rank, ranks) = (u64::from(partition.rank()), u64::from(partition.world_size()));
        let left = rest.len();
        let begun = if left > 0 { rest.get(0) } else { 0 };
        if left > 0 && rest.get(left - 1) != begun + left - 1 {
            let expected = "that have all come as far: what they leave otherwise are no batches of one shape";
            return Err(Error::parameter("buckets", "ranks", expected, "ranks that delivered different numbers"));
        }
        let end = (begun + left.min(setup.limit.saturating_mul(ranks))).min(units.samples.len() as u64);
        let own = (begun + rank..end).step_by(ranks as usize).map(|position| units.samples[position as usize]);
        let picks = Picks(own.collect());
        let whole = self.batches(&units, partition, begun, end)?;
        if first == 0 {
            return Ok((picks, Batches::shaped(whole), 0));
        }
        let before = whole.iter().take_while(|batch| batch.end <= first).count() as u64;
        let rest = self.batches(&units, partition, begun + first * ranks, end)?;
        Ok((picks, Batches::shaped(rest), before))
    }

    /// A rank's batches from position `from` of all ranks on.
    fn batches(
        &self,
        units: &Units<(u32, u32)>,
        partition: Partition,
        from: u64,
        end: u64,
    ) -> Result<Vec<ShapedBatch>> {
        let (rank, ranks) = (u64::from(partition.rank()), u64::from(partition.world_size()));
        let (mut batches, mut start, mut own_start) = (Vec::new(), 0, 0);
        for unit in &units.units {
            let (begin, stop) = (start.max(from), unit.end.min(end));
            start = unit.end;
            if begin >= stop {
                continue;
            }
            let left = stop - begin;
            if left % ranks != 0 {
                let expected = format!(
                    "such that the {left} samples that are left of a batch can be shared (set a unit that a batch of all \
                     ranks divides, before and after)"
                );
                return Err(Error::parameter("buckets", "ranks", expected, ranks));
            }
            let bucket = usize::from(unit.shape);
            let (own, batch) = (left / ranks, self.batch_sizes[bucket] as u64);
            let padded_from = unit.end - unit.padding;
            for first in (0..own).step_by(batch as usize) {
                let len = batch.min(own - first);
                // The rank's positions that are at or after the first one of padding.
                let is_real = |own: &u64| begin + own * ranks + rank < padded_from;
                let padding = len - (first..first + len).take_while(is_real).count() as u64;
                own_start += len;
                let shape = BatchShape::Size(self.assignment.buckets[bucket]);
                batches.push(ShapedBatch { end: own_start, shape, padding });
            }
        }
        Ok(batches)
    }

    /// The buckets in use, with what an epoch has of each.
    pub(super) fn summaries(&self) -> Vec<BucketSummary> {
        let counts: Vec<u64> = match &self.counts {
            Some(counts) => counts.clone(),
            None => self.members.iter().map(|members| members.len() as u64).collect(),
        };
        let summary = |bucket: usize| {
            let (size, cut, samples) = (self.assignment.buckets[bucket], self.cuts[bucket], counts[bucket]);
            let (units, last, repeated) = cut.of(samples);
            let batch = self.batch_sizes[bucket] as u64;
            let steps = |positions: u64| (positions / cut.ranks).div_ceil(batch);
            let (mut cropped, mut enlarged) = (0.0, 0);
            for own in self.members[bucket].iter().filter_map(|index| self.sizes.get(u64::from(*index))) {
                let resized = self.buckets.covering(own, size);
                cropped += 1.0 - size.area_px() as f64 / resized.area_px() as f64;
                enlarged += u64::from(resized.width > own.width || resized.height > own.height);
            }
            BucketSummary {
                width: size.width,
                height: size.height,
                samples: self.members[bucket].len() as u64,
                batch_size: self.batch_sizes[bucket],
                steps: units.checked_sub(1).map_or(0, |full| full * steps(cut.unit) + steps(last)),
                dropped: cut.dropped(samples),
                repeated,
                cropped: cropped / (self.members[bucket].len().max(1)) as f64,
                enlarged,
            }
        };
        (0..self.members.len()).filter(|&bucket| !self.members[bucket].is_empty()).map(summary).collect()
    }

    fn indices_of(&self, fate: Fate) -> impl Iterator<Item = u64> {
        (0..self.assignment.len() as u64).filter(move |&index| self.assignment.fate(index) == fate)
    }

    fn lost(&self, fate: Fate) -> u64 {
        self.indices_of(fate).count() as u64
    }

    /// The samples that never come: those that go to no bucket, those whose headers cannot be read, and those of buckets
    /// that are dropped as a whole.
    pub(super) fn never(&self) -> Vec<u64> {
        let is_lost = |&index: &u64| match self.assignment.fate(index) {
            Fate::Bucket(bucket) => {
                let count = self.counts.as_ref().map_or(u64::MAX, |counts| counts[usize::from(bucket)]);
                self.cuts[usize::from(bucket)].of(count).0 == 0
            }
            Fate::Unfit | Fate::Unreadable => true,
        };
        (0..self.assignment.len() as u64).filter(is_lost).collect()
    }

    /// The buckets that were merged into others.
    pub(super) fn merged(&self) -> &[Size] {
        &self.assignment.removed
    }
}
