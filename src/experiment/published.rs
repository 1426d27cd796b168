//! Figures published by others, which reports show beside measured ones, with their sources.

use serde::Serialize;

/// A publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Publication {
    /// Title of the publication.
    pub title: &'static str,
    /// Address of the publication.
    pub url: &'static str,
    /// Subject of its figures, and the figures that are shown here.
    pub about: &'static str,
}

/// The comparison that [`augment_load`](super::augment_load) repeats.
pub const SAGEMAKER_DALI: Publication = Publication {
    title: "Accelerate computer vision training using GPU preprocessing with NVIDIA DALI on Amazon SageMaker",
    url: "https://aws.amazon.com/blogs/machine-learning/accelerate-computer-vision-training-using-gpu-preprocessing-with-nvidia-dali-on-amazon-sagemaker/",
    about: "One V100 with 8 CPUs over Imagenette's 9,469 images, batches of 32: compare how the times grow and what is saved, not \
            the seconds.",
};

/// The grid that [`workers`](super::workers) repeats.
pub const DEEPLIZARD: Publication = Publication {
    title: "PyTorch DataLoader num_workers - Deep Learning Speed Limit Increase",
    url: "https://deeplizard.com/learn/video/kWVgvsejXsE",
    about: "Workers 0, 1, 2, 4, 8 and 16 with batches of 100, 1000 and 10000 on small images. Its table is there: no figure of it \
            is shown here.",
};

/// The sweep that [`workers`](super::workers) repeats.
pub const GLUON: Publication = Publication {
    title: "Maximize training performance with Gluon data loader workers",
    url: "https://aws.amazon.com/blogs/machine-learning/maximize-training-performance-with-gluon-data-loader-workers/",
    about: "Workers from none to one for each processor, with a small network on MNIST. Its results are plots: no figure of them \
            is shown here.",
};

/// The tuning that [`configurations`](super::configurations) repeats.
pub const LARGER_SCALE: Publication = Publication {
    title: "Training at larger scale, part 4: optimizing the pipeline: data",
    url: "https://coenvde.github.io/blogs/training-at-larger-scale/part4.html",
    about: "PyTorch's DataLoader over 3 epochs of 50 batches against a step of stated length, chunked arrays in a cloud: 35 times \
            its baseline without workers, prefetch and pinned memory, and 15 times where Earthmover first ran it.",
};

/// Published seconds per epoch at one load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Epoch {
    /// Name of the model.
    pub model: &'static str,
    /// Number of repetitions of the operations.
    pub load: u32,
    /// Seconds with trial A, on the CPU.
    pub trial_a_s: f64,
    /// Seconds with trial B, on the GPU.
    pub trial_b_s: f64,
}

const fn epoch(model: &'static str, load: u32, trial_a_s: f64, trial_b_s: f64) -> Epoch {
    Epoch { model, load, trial_a_s, trial_b_s }
}

/// The figures of [`SAGEMAKER_DALI`].
pub const EPOCHS: [Epoch; 12] = [
    epoch("resnet18", 1, 41.67, 21.30),
    epoch("resnet18", 4, 49.95, 21.37),
    epoch("resnet18", 8, 61.92, 21.08),
    epoch("resnet18", 12, 77.82, 21.33),
    epoch("resnet50", 1, 72.64, 46.94),
    epoch("resnet50", 4, 75.21, 45.02),
    epoch("resnet50", 8, 81.22, 46.29),
    epoch("resnet50", 12, 88.89, 46.43),
    epoch("resnet152", 1, 166.96, 119.96),
    epoch("resnet152", 4, 169.68, 115.23),
    epoch("resnet152", 8, 169.03, 117.73),
    epoch("resnet152", 12, 173.18, 114.38),
];

/// Number of images in an epoch of [`EPOCHS`].
pub const EPOCH_IMAGES: u32 = 9_469;
/// Number of images in a batch of [`EPOCHS`].
pub const EPOCH_BATCH: u32 = 32;

/// Pipelines tuned by [`LARGER_SCALE`], and how many times as fast as its baseline each became.
pub const TIMES_THE_BASELINE: [(&str, f64); 2] = [("published, the author's", 35.0), ("published, Earthmover's", 15.0)];

/// The published seconds per epoch of a model at a load; `None` if there are none.
///
/// ```
/// use warpfeed::experiment::published::seconds;
/// assert_eq!(seconds("resnet50", 4).unwrap().trial_a_s, 75.21);
/// assert!(seconds("vit", 4).is_none());
/// ```
#[must_use]
pub fn seconds(model: &str, load: u32) -> Option<&'static Epoch> {
    EPOCHS.iter().find(|epoch| (epoch.model, epoch.load) == (model, load))
}
