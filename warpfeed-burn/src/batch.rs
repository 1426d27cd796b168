//! A batch in the form that burn's models train on.

use crate::IntoBurn;
use burn::tensor::{Device, Int, Tensor, TensorData};
use warpfeed::fields::BatchFields;
use warpfeed::{Batch, Error, Mixed, Result, TargetType, Targets};

/// A batch in the form that burn's models train on, without its padding ([`LastBatch::Pad`](warpfeed::LastBatch::Pad)).
#[derive(Debug, Clone)]
pub struct ImageBatch {
    /// The images, `[N, C, H, W]` or in the pipeline's layout. With several views, the images of the first view.
    pub images: Tensor<4>,
    /// The views after the first one.
    pub views: Vec<Tensor<4>>,
    /// The classes, `[N]`; `None` if the source has no labels. [`labels`](Self::labels) is an error then.
    pub labels: Option<Tensor<1, Int>>,
    /// The index of each sample in the source.
    pub indices: Vec<u64>,
    /// The targets, `[N, K]`, if the pipeline delivers them
    /// ([`PipelineBuilder::targets`](warpfeed::PipelineBuilder::targets)).
    pub targets: Option<Tensor<2>>,
    /// Partners and shares of mixed images, padding included, for losses that take no soft targets
    /// ([`Mix::hard_labels`](warpfeed::Mix::hard_labels)); `None` without
    /// [`PipelineBuilder::mix`](warpfeed::PipelineBuilder::mix).
    pub mixed: Option<Mixed>,
    /// The fields of each view's images, as the pipeline delivers them
    /// ([`PipelineBuilder::fields`](warpfeed::PipelineBuilder::fields)): boxes, keypoints, masks, labels of objects.
    /// None without such fields. [`FieldIntoBurn`](crate::FieldIntoBurn) makes tensors of them.
    pub fields: Vec<BatchFields>,
}

impl ImageBatch {
    /// Turns a pipeline's batch into tensors on `device`.
    ///
    /// # Errors
    /// The errors of [`IntoBurn::into_burn`]; [`Error::Unsupported`] for targets that are not floats of one length,
    /// and for a batch that has only padding
    /// ([`PipelineBuilder::equal_batches`](warpfeed::PipelineBuilder::equal_batches)).
    pub fn new(mut batch: Batch, device: &Device) -> Result<Self> {
        let (all, count) = (batch.len(), batch.len() - batch.padding());
        if count == 0 {
            return Err(Error::Unsupported {
                feature: "a batch that has only padding, without it".to_owned(),
                remedy: "choose a batch size that divides the number of samples of a rank, use LastBatch::Drop, or take the \
                         pipeline's own batches"
                    .to_owned(),
            });
        }
        let tensor = |labels: &[u32]| {
            let labels: Vec<i64> = labels[..count].iter().map(|&label| label.into()).collect();
            Tensor::from_data(TensorData::new(labels, [count]), device)
        };
        let labels = batch.labels().ok().map(tensor);
        let indices = batch.indices()[..count].to_vec();
        let mixed = batch.mixed().cloned();
        let targets = batch.take_targets().map(|targets| dense(&targets, count, device)).transpose()?;
        // A view has `times` images of each sample: first the first image of every sample, then the second ones, and so
        // on.
        let own = |of_view: &BatchFields| {
            of_view.of_images(&(0..of_view.len()).filter(|i| i % all < count).collect::<Vec<_>>())
        };
        let fields = (0..).map_while(|i| batch.fields(i)).map(own).collect();
        let mut views = Vec::new();
        for view in batch.into_views() {
            let (shape, times) = (view.shape(), view.shape()[0] / all);
            let view = view.into_burn(device)?;
            views.push(if count == all { view } else { without_padding(view, shape, [times, all, count]) });
        }
        let images = views.remove(0);
        Ok(Self { images, views, labels, indices, targets, mixed, fields })
    }

    /// The classes, `[N]`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the remedy if the source has no labels.
    pub fn labels(&self) -> Result<Tensor<1, Int>> {
        self.labels.clone().ok_or_else(|| Error::Unsupported {
            feature: "training on labels of a source without labels".to_owned(),
            remedy:
                "name the field that holds them (RecordOptions::label), give labels (SourceExt::relabel), or train on \
                     targets or fields"
                    .to_owned(),
        })
    }
}

/// Keeps the first `count` of `all` samples, in a view with `times` images of each sample.
fn without_padding(view: Tensor<4>, [_, a, b, c]: [usize; 4], [times, all, count]: [usize; 3]) -> Tensor<4> {
    view.reshape([times, all, a, b * c]).narrow(1, 0, count).reshape([times * count, a, b, c])
}

fn dense(targets: &Targets, count: usize, device: &Device) -> Result<Tensor<2>> {
    match targets {
        Targets::Numbers(numbers) if numbers.element() == TargetType::F32 => {
            let ([_, len], host) = (numbers.shape(), numbers.to_host()?);
            let values = host.as_slice::<f32>()?[..count * len].to_vec();
            Ok(Tensor::from_data(TensorData::new(values, [count, len]), device))
        }
        _ => Err(other_targets()),
    }
}

pub(crate) fn other_targets() -> Error {
    Error::Unsupported {
        feature: "targets other than floats in a batch for burn".to_owned(),
        remedy: "ask for floats (TargetSpec::floats, soft, multi_hot), or take the pipeline's own batches".to_owned(),
    }
}
