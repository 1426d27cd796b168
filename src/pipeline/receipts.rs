//! Receipts, which record how each image of a batch was made.

use super::batch::{Batch, BatchImages};
use super::host_images::HostImages;
use crate::error::Result;
use crate::hex::hex;
use crate::ops::Op;
use crate::source::Input;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Record of everything that made one image of a batch ([`Batch::receipts`]).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Receipt {
    /// Index of the sample in the source.
    pub index: u64,
    /// The sample's path or key; `None` for a stream, whose samples have names only while they are read.
    pub name: Option<String>,
    /// The sample's label; `None` if the source has none.
    pub label: Option<u32>,
    /// Number of times that the sample came before in the epoch.
    pub repetition: u32,
    /// Number of the view, from 0.
    pub view: usize,
    /// Number of the image among those that the view has of the sample, from 0.
    pub image: usize,
    /// Index of the bad sample that this one substitutes ([`OnError::Substitute`](crate::OnError::Substitute)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<u64>,
    /// Place in the batch of the image that this one is mixed with; `None` if batches are not mixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partner: Option<usize>,
    /// Share of the image that is its own, 0 to 1; `None` if batches are not mixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f32>,
    /// Whether the sample only fills the batch ([`Batch::padding`]).
    pub padding: bool,
    /// Whether nvJPEG decoded the image. Its pixels differ a little from the CPU's.
    pub by_nvjpeg: bool,
    /// The explicit operations that the stored image has gone through, orientation included.
    pub recipe: Vec<Op>,
    /// SHA-256 of the image's part of the tensor, 64 hexadecimal digits; `None` if it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl<I: BatchImages> Batch<I> {
    /// Receipt of each image of the batch, in the order of the images, view after view. With the pipeline's source and
    /// settings, the receipts are enough to reproduce the batch; [`RunLog`](crate::RunLog) writes them down.
    ///
    /// Recipes are drawn once more, so unused receipts cost nothing. `digests`: whether to compute SHA-256 of each
    /// image, for which a batch of a device is copied to the host.
    ///
    /// ```
    /// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// # use warpfeed::prelude::*;
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// # let source = EncodedImages::new((0..4).map(|label| (jpeg.clone(), label)));
    /// let pipeline = Pipeline::builder(source).shuffle(7).transform(random_resized_crop(8)).build()?;
    /// for batch in pipeline.epoch(0) {
    ///     let batch = batch?;
    ///     let receipts = batch.receipts(true)?;
    ///     assert_eq!((receipts.len(), receipts[1].index), (4, batch.indices()[1]));
    ///     assert_eq!(receipts[1].recipe, batch.recipes(1)?[0]);
    ///     assert_eq!(receipts[1].digest.as_ref().map(String::len), Some(64));
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`recipes`](Self::recipes); [`Error::Device`](crate::Error::Device) if the batch is on a device
    /// and cannot be copied.
    pub fn receipts(&self, digests: bool) -> Result<Vec<Receipt>> {
        let mut digests = if digests { self.digests()? } else { Vec::new() }.into_iter();
        let mut recipes = (0..self.len()).map(|i| self.recipes(i)).collect::<Result<Vec<_>>>()?;
        let name = |index| match &self.moment.setup.input {
            Input::DataSet(source) => Some(source.name(index).into_owned()),
            Input::Stream(_) => None,
        };
        let (real, times) = (self.len() - self.padding(), self.moment.setup.options.outputs.iter().map(|o| o.times));
        let mut receipts = Vec::new();
        let mut before = 0;
        for (view, times) in times.enumerate() {
            for image in 0..times {
                for (i, drawn) in self.drawn.iter().enumerate() {
                    receipts.push(Receipt {
                        index: drawn.pick.index,
                        name: name(drawn.pick.index),
                        label: self.labels().ok().map(|labels| labels[i]),
                        repetition: drawn.pick.repetition,
                        view,
                        image,
                        instead_of: drawn.instead_of,
                        partner: self.mixed().map(|mixed| mixed.partners()[i]),
                        share: self.mixed().map(|mixed| mixed.shares()[i]),
                        padding: i >= real,
                        by_nvjpeg: drawn.approximate,
                        recipe: std::mem::take(&mut recipes[i][before + image]),
                        digest: digests.next(),
                    });
                }
            }
            before += times;
        }
        Ok(receipts)
    }

    /// SHA-256 of each image, view after view, in hexadecimal.
    pub(super) fn digests(&self) -> Result<Vec<String>> {
        let mut digests = Vec::new();
        for tensors in self.tensors() {
            let images = HostImages::new(tensors)?;
            for i in 0..images.count() {
                digests.push(hex(&Sha256::digest(images.image_bytes(i)?)));
            }
        }
        Ok(digests)
    }
}
