//! What a pipeline and a back end hand each other for a batch.

use super::Decoded;
use crate::decode::Header;
use crate::error::Error;
use crate::mix::MixPlan;
use crate::plan::Plan;
use crate::tensor::{Annotations, Storage, Tensor};
use std::ops::AddAssign;
use std::time::Duration;

/// One sample's work.
pub(crate) struct PlannedSample<'a> {
    /// Its place in its batch.
    pub(crate) place: usize,
    pub(crate) header: &'a Header,
    /// The plan of each image that the batch has of it, orientation included: a view's repetitions, then those of the next.
    /// The images of a view come out in its size.
    pub(crate) plans: &'a [Plan<'a>],
    /// Whether part of the work may be left to be done with the whole batch ([`Backend::settle`]), which may then show
    /// that the sample is bad.
    pub(crate) later: bool,
}

/// What was left to be done with a whole batch.
#[derive(Default)]
pub(crate) struct Settled {
    /// The places of samples that cannot be used after all.
    pub(crate) bad: Vec<(usize, Error)>,
    pub(crate) decoded: Decoded,
}

impl AddAssign for Settled {
    fn add_assign(&mut self, mut other: Self) {
        self.bad.append(&mut other.bad);
        self.decoded += other.decoded;
    }
}

/// What a batch ends with.
pub(crate) struct End<'a> {
    /// The places of the samples that are delivered, in this order.
    pub(crate) places: &'a [usize],
    /// How many repetitions of the last one follow.
    pub(crate) padding: usize,
    /// Of the samples and the padding.
    pub(crate) annotations: &'a Annotations,
    /// How the images of the only view, one of each sample, are mixed at last, if they are.
    pub(crate) mix: Option<&'a MixPlan>,
}

/// A batch where its device is: a tensor for each output, or for each image of an output of images with sizes of their
/// own; and targets that are numbers.
pub(crate) struct Finished {
    pub(crate) images: Vec<Tensor>,
    pub(crate) targets: Option<Storage>,
    /// What mixing took on the host.
    pub(crate) mix: Duration,
}
