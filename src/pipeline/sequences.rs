//! Batches as sequences of patches.

use super::batch::Batch;
use crate::error::{Error, Result};
use crate::raster::Size;
use crate::shapes::{BatchShape, ImageValues, PatchBatch, Patches};
use crate::tensor::{Element, Layout, Tensor};

impl Batch<Vec<Tensor>> {
    /// Cuts the images into patches: sequences with their places and a mask, as NaFlex models of timm and SigLIP2 take
    /// them. Sequences have the length of the batch ([`PipelineBuilder::sequences`](crate::PipelineBuilder::sequences)), or
    /// `seq_len`. Images of a device are copied to the host.
    ///
    /// ```
    /// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// use warpfeed::ops::SequenceResize;
    /// use warpfeed::prelude::*;
    /// use warpfeed::shapes::{Patches, TokenBudget};
    ///
    /// let jpeg = |width, height| encode_jpeg(&Image::new(Size::new(width, height)), &JpegOptions::default());
    /// let source = EncodedImages::new([(jpeg(40, 30)?, 0), (jpeg(90, 20)?, 1)]);
    /// let pipeline = Pipeline::builder(source)
    ///     .sequences(TokenBudget::new(128, [64]))
    ///     .transform(SequenceResize::new(8))
    ///     .build_ragged()?;
    /// let batch = pipeline.epoch(0).next().unwrap()?;
    /// let patches = batch.patches::<f32>(Patches::new(8), None)?;
    /// assert_eq!(patches.patches().len(), 2 * 64 * 8 * 8 * 3);
    /// assert_eq!(patches.spatial_shapes(), [7, 9, 4, 16]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] for another type of elements than the images', where neither the batch nor `seq_len` says a
    /// length, and for an image with more patches; [`Error::Device`] if images cannot be copied from a device.
    pub fn patches<T: Element + Default>(&self, layout: Patches, seq_len: Option<u32>) -> Result<PatchBatch<T>> {
        let of_batch = match self.shape() {
            Some(BatchShape::SeqLen(seq_len)) => Some(seq_len),
            _ => None,
        };
        let Some(seq_len) = of_batch.or(seq_len) else {
            let expected = "given, or a pipeline with sequences (PipelineBuilder::sequences)";
            return Err(Error::parameter("Batch::patches", "seq_len", expected, "none"));
        };
        let channels = |image: &Tensor| image.shape()[if image.layout() == Layout::Nchw { 1 } else { 3 }];
        let all = self.images().first().map_or(3, channels);
        let mut batch = PatchBatch::new(layout, self.len(), seq_len as usize, all)?;
        for (index, image) in self.images().iter().enumerate() {
            let host = image.to_host()?;
            let values = host.as_slice::<T>()?;
            let (values, [_, rows, columns, _]) = match (image.layout(), image.shape()) {
                (Layout::Nchw, [n, c, h, w]) => (ImageValues::Planes(values), [n, h, w, c]),
                (Layout::Nhwc, shape) => (ImageValues::Interleaved(values), shape),
            };
            let size = Size::new(columns as u32, rows as u32);
            batch.write(index, values, size, all)?;
        }
        Ok(batch)
    }
}
