//! Types that pipeline and back end exchange for a batch.

use super::{Decoded, WorkStats};
use crate::decode::Header;
use crate::error::Error;
use crate::fields::{Mask, MaskOnDevice};
use crate::mix::MixPlan;
use crate::plan::Plan;
use crate::raster::Size;
use crate::tensor::{Annotations, Storage, Tensor};
use std::ops::AddAssign;
use std::time::Duration;

/// One sample and its plans.
pub(crate) struct PlannedSample<'a> {
    /// The sample's place in its batch.
    pub(crate) place: usize,
    /// Its index in a data set, from which later epochs read it again.
    pub(crate) index: Option<u64>,
    pub(crate) header: &'a Header,
    /// One plan for each image that the batch has of the sample, orientation included: all repetitions of the first
    /// view, then those of the next. The images of a view have the view's size.
    pub(crate) plans: &'a [Plan<'a>],
    /// The masks of these images.
    pub(crate) masks: &'a [PlannedMask<'a>],
    /// Whether part of the work may be left to [`Backend::settle`], for the whole batch at once, which may then report
    /// the sample as bad.
    pub(crate) later: bool,
}

/// The result of running a sample.
pub(crate) struct Ran {
    pub(crate) work: WorkStats,
    /// The sample's masks after their plans; empty if they stay on a device until the batch is finished.
    pub(crate) masks: Vec<Mask>,
}

/// A mask of a sample, and the plan that moves it.
pub(crate) struct PlannedMask<'a> {
    /// Number of the image among the sample's that the mask belongs to.
    pub(crate) image: usize,
    /// Number of the field among the pipeline's.
    pub(crate) field: usize,
    pub(crate) mask: &'a Mask,
    pub(crate) plan: Plan<'a>,
}

/// The masks of a view on a device: for each of the pipeline's fields, those of each image, padding included; `None`
/// where the field is not a mask.
pub(crate) type MasksOfView = Vec<Vec<Option<MaskOnDevice>>>;

/// The result of the work that was left for the whole batch.
#[derive(Default)]
pub(crate) struct Settled {
    /// The places and errors of samples that turned out to be bad.
    pub(crate) bad: Vec<(usize, Error)>,
    /// The places of samples whose pixels are not the CPU's, because of their decoder.
    pub(crate) approximate: Vec<usize>,
    pub(crate) decoded: Decoded,
}

impl AddAssign for Settled {
    fn add_assign(&mut self, mut other: Self) {
        self.bad.append(&mut other.bad);
        self.approximate.append(&mut other.approximate);
        self.decoded += other.decoded;
    }
}

/// The final contents of a batch.
pub(crate) struct End<'a> {
    /// The places of the samples that are delivered, in this order.
    pub(crate) places: &'a [usize],
    /// Number of repetitions of the last sample that follow as padding.
    pub(crate) padding: usize,
    /// The annotations of the samples and the padding.
    pub(crate) annotations: &'a Annotations,
    /// Mixing of the images at the end; `None` without mixing. Mixing requires a single view with one image of each
    /// sample.
    pub(crate) mix: Option<&'a MixPlan>,
}

/// A finished batch on its device: a tensor for each output (or one for each image, if the images have sizes of their
/// own and are not padded), and numeric targets.
pub(crate) struct Finished {
    pub(crate) images: Vec<Tensor>,
    /// The size of each image, padding included; empty if images have one size.
    pub(crate) sizes: Vec<Size>,
    pub(crate) targets: Option<Storage>,
    /// The masks of each view that the back end has moved; empty if it has moved none.
    pub(crate) masks: Vec<MasksOfView>,
    /// Time that mixing took on the host.
    pub(crate) mix: Duration,
}
